"""All constants behind verdicts, each with its reason or source.

With the same evidence, only these change a verdict. A simulation replaces `RULES` in the judge's modules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pytest_fileperf.serve.stability import STABILISERS

Deviations: TypeAlias = tuple[float, float, float]
"""Three usual standard deviations of log values: for start-ups with all, some or none of `STABILISERS` (sources of
chance) fixed."""


def usual_sd(deviations: Deviations, held: Iterable[str]) -> float:
    """Returns the deviation for start-ups in which the sources of chance in `held`, such as `hash seed`, are fixed."""
    known = set(STABILISERS) & set(held)
    return deviations[0 if len(known) == len(STABILISERS) else 1 if known else 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The constants of all comparisons. Deviations are standard deviations of log values, errors are probabilities."""

    # --- both kinds of comparison

    session_alpha: float = 0.01
    """Highest probability that unchanged code is REGRESSED anywhere in a session."""
    bound_error: float = 0.05
    """Probability that a one-sided bound is wrong. A worsening within the tolerance then counts as greater, or a
    greater one as within. The interval in reports has a bound on each side, so it contains the change with 90 %."""
    power: float = 0.80
    """Probability with which a worsening is found that reports call visible. 80 % is the usual convention."""

    excluded_more: float = 0.02
    """The PASS of a rate excludes a loss of the tolerance plus this log ratio. With a tolerance of 3 %, this is a loss
    of 5.1 %."""
    tail_tolerances: float = 2.0
    """The PASS of a percentile excludes a loss of this many tolerances plus `excluded_more`: 35 % with a tolerance of
    15 %. For a rate, this would be 8.2 % with a tolerance of 3 %. Then code that is 5 % slower would PASS in 10 to 15 %
    of simulated tests."""
    far_worse: float = 10.0
    """An undecided metric is REGRESSED if its whole interval is worse by more than this many tolerances."""
    nothing_told: float = 0.5
    """If a measurement could only find a worsening beyond this share, reports call it too noisy to decide."""

    # --- stored baselines (`gate`)

    boot_sd: Deviations = (0.01, 0.025, 0.05)
    """How much a start-up's mean differs from other start-ups. Measured: 0.3 to 1.0 % if stabilised (sources of chance
    are fixed), 3.9 to 4.9 % if not. Partly stabilised is between the two."""
    boot_prior_df: int = 4
    """Weight of `boot_sd`, in degrees of freedom: as much as two versions with three start-ups each."""
    round_sd: Deviations = (0.03, 0.03, 0.05)
    """How much a round differs from other rounds of its start-up. Measured: 2.4 to 2.9 % if stabilised (sources of
    chance are fixed), 4 to 5 % if not."""
    round_prior_df: int = 4
    """Weight of `round_sd`, in degrees of freedom. Measured rounds weigh more: two versions with three start-ups of
    four rounds each have 18."""
    environment_sd: float = 0.25
    """How much the log mean of unchanged code differs between sessions or environments. On one machine it was 0.16 to
    0.30. A percentile has `tail_factor` times as much."""
    environment_noted: float = 2.0
    """PASS and IMPROVED become INCONCLUSIVE if the environment became slower by more than this many `environment_sd`. A
    rate is then 39 % lower."""
    environment_failed: float = 5.0
    """The test fails if the environment became slower by more than this many `environment_sd`. A rate is then 71 %
    lower. Even the better end of the interval must be so much slower."""

    known_to: float = 0.015
    """The goal for the standard error of the logarithm of a baseline's requests/s, and of other metrics of rounds."""

    # --- whether two versions give the same answers (`evidence`)

    answers_share: float = 0.02
    """Two versions' answers are the same if their statuses and sizes differ by at most this share."""
    answers_errors: float = 4.0
    """To count as different, statuses and sizes must also differ by this many standard errors. It is high, because
    rounds depend on each other."""

    # --- exact counts (`difference`)

    least_counted: float = 0.25
    """Counts per request that differ by less are equal. Some requests differ because caches expire, or because fast
    code fills them sooner. One more database statement in every third request still shows."""
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
    """The evidence is judged several times while it comes in. Each of these looks is (share of the time, share of the
    error). The last look has most of the error, because small changes only show at the end."""
    rate_pass_error: float = 0.01
    """Probability of error with which a rate's PASS excludes a loss, in typical moments and over the whole load. Each
    judgement (`looks`) may use all of it, because judgements have much evidence in common. Code that is 5 % slower is
    PASS in 1.5 to 4 % of simulated tests. A percentile has `bound_error` instead."""
    total_more: float = 0.05
    """Over the whole load, a rate's PASS excludes a loss of the tolerance plus this log ratio. With a tolerance of 3 %,
    this is a loss of 8.3 %. The whole load includes all of the machine's stalls, so it is less exact than typical
    moments."""
    total_share: float = 0.2
    """Part of a gate's error for a rate over the whole load. The rate in typical moments has the other part."""
    calm_share: float = 0.5
    """Part of a gate's error for a percentile of the requests between stalls. The percentile of all requests has the
    other part. In 60 simulated tests of a fast endpoint, 1 request in 100 takes ten times as long. With both parts, 32
    tests find this; with all requests alone, 3."""
    calm_error: float = 0.2
    """A percentile that is worse between stalls must also be worse by all requests. This is the probability of error
    for the second condition."""
    hopeless_from: float = 0.5
    """No comparison is given up before this share of its time."""
    hopeless_errors: float = 2.0
    """A comparison is given up if it would stay undecided even if the estimate moved by this many standard errors."""
    least_pairs: int = 3
    """Fewer pairs of start-ups do not show how much start-ups differ, and decide nothing."""
    few_pairs_times: float = 1.2
    """With fewer than `least_pairs`, a comparison may take its time limit times this, plus `few_pairs_more_s`."""
    few_pairs_more_s: float = 4.0
    settled_pairs: int = 4
    """With fewer pairs of start-ups, only a regression ends a comparison that has time for another pair. The first
    three pairs load each version for 1.5 s, too short to show rare stalls. After 1.4 s, 3 of 400 simulated tests passed
    code with stalls of 30 ms that cost 10 %."""
    known_cycles: int = 15
    """A comparison with fewer cycles, and fewer than `known_pairs`, goes on while it has time. A cycle loads each
    version once. Three pairs of one to three cycles may agree by chance. On two cores with 8 to 21 busy programs, this
    failed 2 of 60 tests of unchanged code. On a quiet machine, three pairs of a closed loop have 21 or more cycles.
    Slow endpoints, and loads at a rate, have one or two cycles in a pair."""
    known_pairs: int = 5
    """This many pairs of start-ups show by themselves how much they differ."""
    pair_sd: Deviations = (0.01, 0.015, 0.07)
    """How much two start-ups of the same code differ, as a log ratio. If none is stabilised, it is √2 times `boot_sd`.
    Besides noise, forks of an app with new memory for each upload differed by 0.3 to 0.5 % (231 pairs)."""
    pair_prior_df: int = 8
    """Weight of `pair_sd` beside the observed spread: as much as nine pairs. The spreads of requests/s in 259
    comparisons on one kind of machine suggest 7 to 20. Memory has the same weight, but nobody measured it. The weight
    suits start-ups that differ by up to twice the usual."""
    alone_prior_df: int = 1
    """Weight of `pair_sd` if a pair has too few cycles to show how uncertain it is. Some such pairs agree by chance and
    look exact. Without this and `prior_cycles`, 33 of 60 simulated sessions of the same code had a false alarm. With
    them, 5 of 400 had."""
    few_cycles: int = 10
    """With this many cycles or more, a pair's value is their biweight. In much noise it finds a change of 5 % in 63 %
    of GETs, Hodges–Lehmann in 53 %. With fewer cycles, the value is the Hodges–Lehmann estimate. There the biweight
    gave a false alarm in 9 of 60 simulated sessions of the same code."""
    deviation_cycles: int = 7
    """With fewer cycles, a pair's uncertainty comes from their variance. The median deviation of five cycles may be
    small by chance. With more cycles this deviation is used, because stalls enlarge the variance but hardly move the
    estimate. In 96 first pairs of the same code, the variance made errors 1.6 and 3.1 times too large."""
    least_cycles: int = 3
    """Fewer cycles do not show how uncertain a pair of start-ups is: two may agree by chance."""
    prior_cycles: int = 10
    """Weight of the usual deviation of cycles beside a pair's own deviation: as much as this many cycles. A pair's own
    one to thirty cycles say little."""

    # --- percentiles of versions that are measured alternately (`ranks`)

    ranks_prior_df: int = 4
    """Weight of the expected spread between pairs in the share of slow requests: as much as five pairs. It is less than
    for rates, because the expected spread is less certain, and may be too large."""
    ranks_group: float = 5.0
    """Neighbouring pairs form a group with one percentile of the old version. A group has at least this many times the
    metric's least number of requests. Then about 15 slow requests, or as many bunches of them, lie above the
    percentile. Fewer say little, and larger groups mix different moments of the machine."""
    calm_deviations: float = 3.0
    """Between stalls, one version's slow requests in a slice of the load count only up to a limit. This limit is the
    usual number, plus 1, plus this many standard deviations of a Poisson number."""

    jump: float = 1.7
    """Latency jumps at a percentile if it is this many times higher just above the percentile than just below. The
    cause is a pause that hits just this share of requests. Among 263 undecided simulated tests with such pauses, 97
    have a jump at p99. p99.5 decides 58 of these, and 10 of the others. p95 decides most of either kind."""

    # --- start-ups that get slower one after another (`unit`)

    course_totals: tuple[float, float, float] = (0.3, 0.25, 0.2)
    """Least log ratio of the last start-up to the first in a trend: for three, four and more start-ups. Start-ups of
    the same code differ by 1 to 6 % each."""
    course_step: float = 0.3
    """In a trend, each start-up's change is at least this part of the mean change. One jump isn't a trend."""
    course_errors: float = 3.0
    """In a trend, each change from a start-up to the next is at least this many standard errors."""
    course_round_sd: float = 0.05
    """The least standard deviation of rounds in a start-up, for a trend."""
    course_chance: float = 0.5
    """One version's trend may be chance if the other version's start-ups differ in no order. They must differ by more
    than this part of the trend. Start-ups of an app with SQLite and 32 connections differed by factors, and had an
    order by chance."""
    course_cpu: float = 0.3
    """The machine may be a trend's cause if CPU time per request changes by more than this part of it."""

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
        """Returns how many of these `requests` chance makes slow at most, if this `share` of them is usually slow."""
        usual = share * requests
        return usual + self.calm_deviations * math.sqrt(usual) + 1


RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """The constants of a search for a capacity (`capacity`). Deviations are standard deviations of log rates."""

    # --- one load

    backlog_share: float = 0.13
    """A load falls behind if its backlog of waiting requests grows by more than this share of all its requests. A load
    of seven times the limit (`rough_load`) breaks the limit itself from 12 % on (`visible_growth`)."""
    backlog_deviations: float = 2.0
    """To fall behind, a load's backlog must also grow by more than this many times √requests. At 80 % of the capacity,
    fewer than 1 in 100 simulated loads grows so much (M/M/1, 14 requests). At 140 %, half of the loads with 28 requests
    do (M/D/1)."""
    backlog_errors: float = 3.5
    """To fall behind, a load's latencies must also grow by more than this many standard errors. Slow requests alone
    need not come from a queue. If 14 long latencies differ by chance (exponential), they grow so much in fewer than 1
    of 100 simulated loads."""
    backlog_requests: int = 10
    """A load with fewer requests never counts as falling behind, because it does not show how much latencies differ."""

    # --- how likely each capacity is

    odd_loads: float = 0.01
    """Share of loads that say nothing about the rate, for whatever reason. In them any number of slow requests is
    equally likely."""
    expected: float = -0.15
    """The expected capacity, as a log ratio to the closed loop's rate: 14 % below it."""
    expected_sd: float = 0.5
    elsewhere: float = 0.02
    """Probability of a capacity far from the expected one, as a share of the likeliest capacity's probability."""
    boot_sd: float = 0.04
    """Standard deviation between start-ups' capacities. It is greater than in other comparisons of stabilised
    start-ups, because minutes lie between the start-ups."""
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
    once; M/D/1 has about 28. If low slopes were as likely as others, two unlucky loads would send a search to half of
    the capacity. Coming back would take most of a start-up's loads."""
    together: tuple[tuple[float, float], ...] = ((0.001, 0.0), (0.008, 0.0), (0.04, 0.0), (0.008, 0.12))
    """Each item is (correlation, share of loads). The correlation of two requests says how much slow requests of a load
    come together. The highest one is for a queue that gets long once in a load. The share has loads in which the
    machine stood still for a moment. Downloads by aiofiles broke a p99 of 100 ms in one of seven loads, far below the
    capacity."""
    longest_stall: float = 0.2
    """If more than this share of a load's requests exceed a limit, the server counts as slow. Otherwise the machine may
    have stood still."""
    pace_sds: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.15)
    """Possible deviations of a server's log pace (the rate that it keeps up with) between loads. The last one is for a
    machine with much other work."""
    crowding: float = 1.2
    """Requests come close together by chance. So a server's pace (the rate that it keeps up with) varies by this /
    √requests. Their number alone would give 1 / √requests, and their distances add to it. 1.2 fits M/D/1."""
    most_crowding: float = 0.1
    """Upper limit of the deviation that `crowding` gives. If requests are few, only some of them meet a queue."""
    middle_room: float = 1.2
    """The median load's pace lies above the capacity by the effect of `crowding`, times this factor. Fits searches of
    M/D/1 with limits of 10 and 20 times a request's duration."""
    visible_growth: float = 0.85
    """If a server falls behind by a share x of the time, latency exceeds a limit after limit / x. If x is below this ×
    limit / length, a load is over before, and the server seems too fast. Fits M/D/1 with 0.1 to 1 ms per request."""
    most_variance: float = 1.5
    """The variance by a start-up's own loads is at most this many times the posterior's variance. Few loads say nothing
    by themselves."""
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
    """While no rate meets the limits, the lowest rate is multiplied by `first`. After more loads than this, or after
    more than one if a limit breaks by far, it is halved."""
    none_below: float = 1 / 8
    """If two loads at or below this share of the closed loop's rate break the limits, no rate meets them."""
    generator_near: float = 0.88
    """The search ends if the generator failed to make two rates, and a rate just below them met the limits. The highest
    such rate must be at least this share of both."""
    most_room: float = 0.15
    """A load's rate is at most this far above the estimated capacity, in log rate. Far above, a load takes long to end,
    because waiting requests must be served."""
    at_capacity: int = 4
    """Once the capacity is roughly known, one load in this many is made at its rate, for the figures there."""
    rough_sd: float = 0.15
    """Loads are long once the standard deviation of the log capacity is at most this."""
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
        """Returns how much a backlog grows at most by chance, as a share of the load's requests.

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
    """Standard deviation of a session's log ratio beyond its stated error. With 0.005, stated errors that are too
    small give 5 false alarms in 1,000 runs. Sessions that resemble their neighbours give 3."""
    tail_session_sd: float = 0.05
    """`session_sd` for a percentile. With 0.01, there are 2.1 false alarms in 1,000 runs. With 0.05, there are 0.4."""
    penalty: float = 12.0
    """Cost of a step. The means before and after it must differ by 3.5 standard errors. Gives about 0.35 false alarms
    in 1,000 runs."""
    least: int = 3
    """Least number of runs between two steps: one odd run makes no step, and two in a row rarely do."""
    first: int = 10
    """A history with fewer runs shows no step."""
    window: int = 7
    clip: float = 2.5
    """A run's ratio counts as at most this many deviations from the median of `window` runs. If errors have long tails,
    0.55 false alarms remain of 2.0 in 1,000 runs, and as many steps are found."""
    prior_runs: int = 20
    """Weight of the errors that runs state: as much as this many runs. Neighbouring runs show how right these errors
    are."""
    machine_sd: float = 0.01
    """How much log ratios on two kinds of machine may differ (standard deviation). It is a guess, because no histories
    of several kinds exist."""
    machine_runs: int = 20
    """A kind of machine that did not occur in this many runs is a new one."""
    turns: int = 5
    """If neighbouring runs change at least this often between two old codes, they show the ratio of these two codes."""
    slow_runs: int = 20
    """A slow change begins at most this many runs before its first step. It ends at most this many after its last
    step."""
    slow_least: int = 5
    """A slow change has at least this many runs: a shorter one looks like a step."""
    slow_gain: float = 2.0
    """To be a slow change, a straight line must fit better than steps by this much, in squared standard errors. Then 2
    % of single steps count as slow changes. 20 % of slow changes count as steps (5 % over 10 runs, with errors of 0.5
    to 1.5 %)."""


TREND = TrendRules()
