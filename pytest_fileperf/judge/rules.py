"""All constants behind verdicts, each with its reason or source.

With the same evidence, only these change a verdict. Simulations replace `RULES` to try other constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pytest_fileperf.serve.stability import STABILISERS

Deviations: TypeAlias = tuple[float, float, float]
"""Standard deviations of log values in start-ups. The three values are for all, some and none of the sources of chance
(`STABILISERS`) fixed."""


def usual_sd(deviations: Deviations, held: Iterable[str]) -> float:
    """Returns the deviation for start-ups in which the sources of chance `held`, such as `hash seed`, are fixed."""
    known = set(STABILISERS) & set(held)
    return deviations[0 if len(known) == len(STABILISERS) else 1 if known else 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The constants of all comparisons. Deviations are standard deviations of log values, errors are probabilities."""

    # --- both kinds of comparison

    session_alpha: float = 0.01
    """Highest probability that unchanged code is REGRESSED anywhere in a session."""
    bound_error: float = 0.05
    """Probability that a one-sided bound is wrong. An interval in reports has two such bounds, so it contains the true
    change with 90 %."""
    power: float = 0.80
    """Reports call a worsening visible if it is found with this probability. 80 % is the usual convention."""

    excluded_more: float = 0.02
    """A rate's PASS rules out a loss of the tolerance plus this log ratio: 5.1 % with a tolerance of 3 %."""
    tail_tolerances: float = 2.0
    """A percentile's PASS rules out a loss of this many tolerances plus `excluded_more`: 35 % with a tolerance of 15 %.
    A rate's PASS would then rule out only 8.2 %, with a tolerance of 3 %. Code that is 5 % slower would PASS in 10 to
    15 % of simulated tests."""
    far_worse: float = 10.0
    """An undecided metric is REGRESSED if its whole interval is worse by more than this many tolerances."""
    nothing_told: float = 0.5
    """Reports call a measurement too noisy to decide if it could only find a worsening beyond this share."""

    # --- stored baselines (`gate`)

    boot_sd: Deviations = (0.01, 0.025, 0.05)
    """How much a start-up's mean differs from other start-ups' means. Measured: 0.3 to 1.0 % if sources of chance are
    fixed, 3.9 to 4.9 % if not. If only some are fixed, it is between the two."""
    boot_prior_df: int = 4
    """Weight of `boot_sd`, in degrees of freedom. Two versions with three start-ups each weigh as much."""
    round_sd: Deviations = (0.03, 0.03, 0.05)
    """How much a round differs from other rounds of its start-up. Measured: 2.4 to 2.9 % if sources of chance are
    fixed, 4 to 5 % if not."""
    round_prior_df: int = 4
    """Weight of `round_sd`, in degrees of freedom. Measured rounds weigh more: two versions with three start-ups of
    four rounds each have 18."""
    environment_sd: float = 0.25
    """How much the mean of unchanged code differs between sessions or environments, as a log ratio. On one machine it
    was 0.16 to 0.30. A percentile has `tail_factor` times as much."""
    environment_noted: float = 2.0
    """PASS and IMPROVED become INCONCLUSIVE if the environment became slower by more than this many `environment_sd`.
    For a rate, this is a loss of 39 %."""
    environment_failed: float = 5.0
    """The test fails if the environment became slower by more than this many `environment_sd`. For a rate, this is a
    loss of 71 %. The whole interval must be so much slower."""

    known_to: float = 0.015
    """The goal for a baseline's standard error, as a log ratio, for requests/s and other metrics of rounds."""

    # --- whether two versions give the same answers (`evidence`)

    answers_share: float = 0.02
    """Two versions' answers are the same if their statuses and sizes differ by at most this share."""
    answers_errors: float = 4.0
    """To count as different, statuses and sizes must also differ by this many standard errors. The number is high,
    because rounds depend on each other."""

    # --- exact counts (`difference`)

    least_counted: float = 0.25
    """Counts per request, such as database queries, are equal if they differ by less. Some requests differ because
    caches expire, or because fast code fills them sooner. One more query in every third request still shows."""
    counted_errors: float = 4.0
    """Counts must also differ by more than this many standard errors, because requests of several kinds come in random
    numbers."""

    # --- versions that are measured alternately (`paired`)

    looks: tuple[tuple[float, float], ...] = (
        (0.10, 0.10),
        (0.15, 0.05),
        (0.20, 0.05),
        (0.30, 0.10),
        (0.40, 0.10),
        (0.55, 0.10),
        (0.75, 0.15),
        (1.0, 0.35),
    )
    """A comparison is judged several times while evidence comes in. Each such look is (share of the time that is over,
    share of the probability of error). The last look has most of the error, because small changes only show at the
    end."""
    rate_pass_error: float = 0.01
    """Probability that a rate's PASS overlooks a loss, in typical moments and over the whole load. Each look may use
    all of it, because looks have much evidence in common. Code that is 5 % slower is PASS in 1.5 to 4 % of simulated
    tests. A percentile has `bound_error` instead."""
    total_more: float = 0.05
    """Like `excluded_more`, but for a rate over the whole load: 8.3 % with a tolerance of 3 %. It is greater, because a
    rate over the whole load is less exact: all of the machine's stalls count."""
    total_share: float = 0.2
    """A rate's probability of error is divided. This part is for the rate over the whole load, the other part for the
    rate in typical moments."""
    calm_share: float = 0.5
    """A percentile's probability of error is divided. This part is for the requests between stalls, the other part for
    all requests. In 60 simulated tests of a fast endpoint, 1 request in 100 takes ten times as long. With both parts,
    32 tests find this; with all requests alone, 3."""
    calm_error: float = 0.2
    """A percentile that is worse between stalls must also be worse over all requests. This is the second condition's
    probability of error."""
    hopeless_from: float = 0.5
    """No comparison is given up before this share of its time."""
    hopeless_errors: float = 2.0
    """A comparison is given up if it would stay undecided even if the estimate moved by this many standard errors."""
    least_pairs: int = 3
    """Fewer pairs of start-ups do not show how much start-ups differ, and decide nothing."""
    few_pairs_times: float = 1.2
    """To reach `least_pairs`, a comparison may take its time limit times this, plus `few_pairs_more_s`."""
    few_pairs_more_s: float = 4.0
    settled_pairs: int = 4
    """With fewer pairs of start-ups, only a regression ends a comparison early. The first three pairs load each version
    for 1.5 s, too short to show rare stalls. After 1.4 s, 3 of 400 simulated tests passed code with stalls of 30 ms
    that cost 10 %."""
    known_cycles: int = 15
    """A cycle loads each version once. With fewer cycles, and fewer pairs than `known_pairs`, a comparison goes on
    while it has time. Three pairs of one to three cycles may agree by chance. On two cores with 8 to 21 busy programs,
    this failed 2 of 60 tests of unchanged code. On a quiet machine, three pairs of a closed loop have 21 or more
    cycles. But slow endpoints, and loads at a rate, have only one or two cycles in a pair."""
    known_pairs: int = 5
    """This many pairs of start-ups show by themselves how much they differ."""
    pair_sd: Deviations = (0.01, 0.015, 0.07)
    """How much two start-ups of the same code differ, as a log ratio. Without fixed sources of chance, it is √2 times
    `boot_sd`. Forks of an app that allocates memory for each upload differed by 0.3 to 0.5 %, besides noise (231
    pairs)."""
    pair_prior_df: int = 8
    """Weight of `pair_sd` beside the observed spread: as much as nine pairs. For requests/s, 259 comparisons on one
    kind of machine suggest 7 to 20. For memory, nobody measured it. The weight suits start-ups that differ by up to
    twice the usual."""
    alone_prior_df: int = 1
    """Weight of `pair_sd` if pairs have too few cycles to show how uncertain they are. Some such pairs agree by chance
    and look exact. Without this and `prior_cycles`, 33 of 60 simulated sessions of the same code had a false alarm.
    With both, 5 of 400 had."""
    few_cycles: int = 10
    """With this many cycles or more, a pair's value is the cycles' `biweight`. In much noise, this finds a 5 % change
    in 63 % of GETs, and `hodges_lehmann` in 53 %. With fewer cycles, `hodges_lehmann` is used. There the biweight gave
    a false alarm in 9 of 60 simulated sessions of the same code."""
    deviation_cycles: int = 7
    """With this many cycles or more, a pair's uncertainty comes from the cycles' median deviation. A variance also
    grows by stalls, which hardly move the estimate. In 96 first pairs of the same code, errors were then 1.6 and 3.1
    times too large. With fewer cycles, the variance is used: the median deviation of five cycles may be small by
    chance."""
    least_cycles: int = 3
    """Fewer cycles do not show how uncertain a pair of start-ups is: two may agree by chance."""
    prior_cycles: int = 10
    """A pair's own deviation of cycles is mixed with the usual deviation, which weighs as much as this many cycles. A
    pair's own one to thirty cycles say little."""

    # --- percentiles of versions that are measured alternately (`ranks`)

    ranks_prior_df: int = 4
    """Weight of the expected spread of slow requests between pairs: as much as five pairs. It is less than for rates,
    because the expected spread is less certain, and may be too large."""
    ranks_group: float = 5.0
    """Neighbouring pairs share the old version's percentile. Together they have at least this many times the metric's
    least number of requests. Then about 15 slow requests, or as many bunches of them, lie above the percentile. Fewer
    say little, and larger groups mix different moments of the machine."""
    calm_deviations: float = 3.0
    """To leave stalls out, slow requests in a slice of the load count only up to a limit. This limit is the usual
    number, plus 1, plus this many standard deviations of a Poisson number."""

    jump: float = 1.7
    """Latency jumps at a percentile if it is this many times higher just above the percentile than just below. The
    cause is a pause that hits just this share of requests. Among 263 undecided simulated tests with such pauses, 97
    have a jump at p99. Judged by p99.5, 58 of these are decided, and 10 of the others. Judged by p95, most of either
    kind are."""

    # --- start-ups that get slower one after another (`unit`)

    course_totals: tuple[float, float, float] = (0.3, 0.25, 0.2)
    """Least log ratio of the last start-up to the first in a trend. The values are for three, four and more start-ups.
    Start-ups of the same code differ by 1 to 6 % each."""
    course_step: float = 0.3
    """In a trend, each start-up's change is at least this part of the mean change. One jump isn't a trend."""
    course_errors: float = 3.0
    """In a trend, each change from a start-up to the next is at least this many standard errors."""
    course_round_sd: float = 0.05
    """For a trend, rounds of a start-up count as differing by at least this standard deviation. A few rounds may agree
    by chance."""
    course_chance: float = 0.5
    """A version's trend may be chance if the other version's start-ups differ as much without a trend. As much means
    more than this part of the trend. Start-ups of an app with SQLite and 32 connections differed by factors, and had an
    order by chance."""
    course_cpu: float = 0.3
    """The machine may cause a trend if CPU time per request changes by more than this part of it."""

    # --- groups of variants (`groups`)

    ranking_alpha: float = 0.05
    """Highest probability that any equal variants of a group get different ranks."""
    drift_sd: float = 0.015
    """How much the log mean of the same code differs between tests of a session. Measured: up to 4 % within a minute,
    which is a standard deviation of 1.2 % if spread evenly."""
    drift_df: int = 30
    """How well `drift_sd` is known, in degrees of freedom. It comes from one machine, so it isn't certain, but a single
    session would show less."""
    latencies_a_round: float = 4.0
    """Rounds that are shorter than this many mean latencies say nothing by themselves about a rate."""

    @property
    def confidence(self) -> float:
        """Confidence of the intervals that reports show."""
        return 1 - 2 * self.bound_error

    def most_told(self, tolerance: float) -> float:
        """Returns the greatest detectable worsening, as a share, that reports still show."""
        return max(self.nothing_told, 2 * tolerance)

    def most_by_chance(self, share: float, requests: float) -> float:
        """Returns how many of these requests are slow by chance at most, if this `share` of them is usually slow."""
        usual = share * requests
        return usual + self.calm_deviations * math.sqrt(usual) + 1


RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """The constants of a search for a capacity (`capacity`). Deviations are standard deviations of log rates."""

    # --- one load

    backlog_share: float = 0.13
    """A load falls behind if its backlog of waiting requests grows by more than this share of all its requests. A load
    that is seven times as long as the limit (`rough_load`) breaks the limit itself from 12 % on (`visible_growth`)."""
    backlog_deviations: float = 2.0
    """To fall behind, a load's backlog must also grow by more than this many times √requests. At 80 % of the capacity,
    it grows so much in fewer than 1 of 100 simulated loads (M/M/1, 14 requests). At 140 %, it does in half of the loads
    with 28 requests (M/D/1)."""
    backlog_errors: float = 3.5
    """To fall behind, a load's latencies must also grow by more than this many standard errors. Slow requests alone
    need not come from a queue. 14 latencies that differ by chance (exponential) grow so much in fewer than 1 of 100
    simulated loads."""
    backlog_requests: int = 10
    """A load with fewer requests never counts as falling behind, because it does not show how much latencies differ."""

    # --- how likely each capacity is

    odd_loads: float = 0.01
    """Share of loads that say nothing about the rate, for whatever reason. In such a load, any number of slow requests
    is equally likely."""
    expected: float = -0.15
    """The expected capacity, as a log ratio to the closed loop's rate: 14 % below it."""
    expected_sd: float = 0.5
    elsewhere: float = 0.02
    """Probability of a capacity far from the expected one, as a share of the likeliest capacity's probability."""
    boot_sd: float = 0.04
    """Standard deviation between start-ups' capacities. It is greater than `Rules.boot_sd` for fixed sources of chance,
    because minutes lie between these start-ups."""
    apart: float = 0.01
    """Share of start-ups whose capacity has nothing in common with other start-ups."""
    slopes: tuple[tuple[float, float], ...] = (
        (5.0, 0.05),
        (16.0, 0.2),
        (28.0, 1.0),
        (48.0, 1.0),
        (84.0, 1.0),
        (150.0, 1.0),
        (300.0, 1.0),
    )
    """Each item is (slope, weight before any load). A slope says how fast the share of slow requests grows with the
    rate. With a low slope, latency grows long before the capacity. With a high slope, a server falls behind all at
    once; M/D/1 has about 28. Low slopes have low weights: otherwise two unlucky loads would send a search to half of
    the capacity. Coming back would take most of a start-up's loads."""
    together: tuple[tuple[float, float], ...] = ((0.001, 0.0), (0.008, 0.0), (0.04, 0.0), (0.008, 0.12))
    """Each item is (correlation, share of loads). A high correlation says that slow requests come together. The highest
    one fits a queue that gets long once in a load. The share has loads in which the machine stood still for a moment.
    Downloads by aiofiles broke a p99 of 100 ms in one of seven loads, far below the capacity."""
    longest_stall: float = 0.2
    """If more than this share of a load's requests exceed a limit, the server counts as slow. Otherwise the machine may
    have stood still."""
    pace_sds: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.15)
    """Possible standard deviations, between loads, of the rate that a server keeps up with (as a log rate). The last
    one is for a machine with much other work."""
    crowding: float = 1.2
    """Requests come close together by chance. So the rate that a server keeps up with varies between loads by this /
    √requests. The requests' random number alone would give 1 / √requests, and their random distances add to it. 1.2
    fits M/D/1."""
    most_crowding: float = 0.1
    """Upper limit of the deviation that `crowding` gives. If requests are few, only some of them meet a queue."""
    middle_room: float = 1.2
    """In the median load, a server keeps up with more than the capacity. The log ratio is the effect of `crowding`,
    times this factor. Fits searches of M/D/1 with limits of 10 and 20 times a request's duration."""
    visible_growth: float = 0.85
    """Example: a server that falls behind by 10 % exceeds a limit of 1 s only after 10 s. In shorter loads it seems
    fast enough. A load shows this if the server falls behind by more than this × limit / length of the load. Fits M/D/1
    with 0.1 to 1 ms per request."""
    most_variance: float = 1.5
    """A start-up's own loads may say little about its capacity. The variance by them alone counts as at most this many
    times the variance by all loads."""
    deviations: float = 2.0
    """Half the width of a capacity's interval, in standard deviations. A normal distribution has 1.64. With 2.0, the
    interval contains the capacity in 89 to 100 % of simulated searches, but not with heavy tails."""

    # --- the next load

    first: float = 0.8
    """The first rate, as a share of the closed loop's rate. Requests that come at random times need some room."""
    climb: float = 1.35
    """If the first rate meets the limits, the second rate is higher by this factor. Further rates double until a limit
    breaks."""
    few_broken: int = 3
    """While no rate meets the limits, the next rate is the lowest one times `first`. After more loads than this, it is
    half of the lowest. If a limit breaks by far, it is half after two loads."""
    none_below: float = 1 / 8
    """The search ends without a capacity if limits break twice at or below this share of the closed loop's rate."""
    generator_near: float = 0.88
    """The search ends if the load generator failed at two rates just above the highest rate that met the limits. Just
    above means that the highest rate is at least this share of both."""
    most_room: float = 0.15
    """A load's rate is at most this far above the estimated capacity, in log rate. Far above, a load takes long to end,
    because waiting requests must be served."""
    at_capacity: int = 4
    """Once the capacity is roughly known, one load in this many is made at the capacity, for the figures there."""
    rough_sd: float = 0.15
    """The capacity is roughly known, and loads get long, once the standard deviation of its logarithm is at most
    this."""
    sure_sd: float = 0.01
    """A start-up's search ends early if the standard deviation of the log capacity is at most this."""
    least_loads: int = 4
    """A start-up's search does not end early with fewer loads."""
    least_load_s: float = 1.0
    latencies_a_load: int = 10
    """Least length of a long load, as a multiple of the longest latency limit."""
    beyond_a_load: int = 3
    """A long load has enough requests for this many of them to exceed a limit at the capacity."""
    loads_a_search: int = 8
    """Loads are so short that a search has time for this many."""
    rough_load: float = 0.7
    """Until the capacity is roughly known, a load's length is this share of a long load's."""
    fits: float = 0.6
    """To fit into the time that is left, a load may be shortened to this share of its length."""
    warmup_s: float = 0.3
    latencies_a_warmup: int = 4
    """Least length of a long load's warm-up, as a multiple of the longest latency limit."""
    longest_warmup: float = 0.3
    """Longest warm-up, as a share of the load."""

    def most_backlog(self, requests: int) -> float:
        """Returns the greatest growth of a backlog that chance can explain, as a share of the load's requests.

        Infinite for few requests.
        """
        if requests < self.backlog_requests:
            return math.inf
        return max(self.backlog_share, self.backlog_deviations / math.sqrt(requests))


SEARCH = SearchRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendRules:
    """The constants of a history (`trend`), chosen among about 30 variants by simulation (`benchmarks/trend.py`)."""

    session_sd: float = 0.01
    """How much sessions differ beyond their stated errors: a standard deviation, as a log ratio. With 0.005, there are
    5 false alarms in 1,000 runs if the stated errors are too small. There are 3 if sessions resemble their
    neighbours."""
    tail_session_sd: float = 0.05
    """`session_sd` for a percentile. With 0.01, there are 2.1 false alarms in 1,000 runs. With 0.05, there are 0.4."""
    penalty: float = 12.0
    """Cost of a step. It means that the means before and after a step must differ by 3.5 standard errors. Gives about
    0.35 false alarms in 1,000 runs."""
    least: int = 3
    """Least number of runs between two steps: one odd run makes no step, and two in a row rarely do."""
    first: int = 10
    """A history with fewer runs shows no step."""
    window: int = 7
    clip: float = 2.5
    """A run's ratio counts as at most this many deviations from the median of `window` runs. If errors have long tails,
    this lowers false alarms from 2.0 to 0.55 in 1,000 runs. As many steps are found."""
    prior_runs: int = 20
    """Weight of the errors that runs state: as much as this many runs. Neighbouring runs show how right these errors
    are."""
    machine_sd: float = 0.01
    """How much log ratios on two kinds of machine may differ: a standard deviation. It is a guess, because no histories
    of several kinds exist."""
    machine_runs: int = 20
    """A kind of machine that did not occur in this many runs is a new one."""
    turns: int = 5
    """Runs that change at least this often between two baselines' codes show by themselves how much the codes
    differ."""
    slow_runs: int = 20
    """A slow change begins at most this many runs before its first step. It ends at most this many after its last
    step."""
    slow_least: int = 5
    """A slow change has at least this many runs: a shorter one looks like a step."""
    slow_gain: float = 2.0
    """A change is slow if a straight line fits better than steps by this much, in squared standard errors. Then 2 % of
    single steps are mistaken for slow changes. 20 % of slow changes are mistaken for steps (5 % over 10 runs, with
    errors of 0.5 to 1.5 %)."""


TREND = TrendRules()
