"""Every constant of the judge in one value, each with its reason or source.

With the same evidence, only these change a verdict. A simulation puts other `RULES` into the judge's modules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pytest_fileperf.serve.stability import STABILISERS

Deviations: TypeAlias = tuple[float, float, float]
"""Usual standard deviations of log values: for start-ups with all, some or none of `STABILISERS`. These are sources of
chance that can be fixed."""


def usual_sd(deviations: Deviations, held: Iterable[str]) -> float:
    """Returns the one of three deviations for start-ups with these fixed sources of chance, such as `hash seed`."""
    known = set(STABILISERS) & set(held)
    return deviations[0 if len(known) == len(STABILISERS) else 1 if known else 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The constants of all comparisons. Deviations are of log values, errors are probabilities."""

    # --- both kinds of comparison

    session_alpha: float = 0.01
    """Highest probability that unchanged code is REGRESSED anywhere in a session."""
    bound_error: float = 0.05
    """Error of one-sided bounds: a worsening within the tolerance is taken for a greater one, or the other way round.
    The shown interval has a bound on each side, so it contains the change with 90 %."""
    power: float = 0.80
    """If reports call a worsening visible, it shows with this probability: the usual convention."""

    excluded_more: float = 0.02
    """PASS of a rate excludes a loss that exceeds the tolerance by this log ratio. With 3 % this is 5.1 %."""
    tail_tolerances: float = 2.0
    """PASS of a percentile excludes a loss of this many tolerances, plus `excluded_more`: 35 % with a tolerance of 15
    %. For a rate, this would be 8.2 % with 3 %. Then code that is 5 % slower would PASS in 10 to 15 % of simulated
    tests."""
    far_worse: float = 10.0
    """An undecided metric is REGRESSED if its whole interval is worse by more than this many tolerances."""
    nothing_told: float = 0.5
    """If only a worsening beyond this share would have shown, reports say that the measurement tells nothing."""

    # --- stored baselines (`gate`)

    boot_sd: Deviations = (0.01, 0.025, 0.05)
    """How much a start-up's mean differs from other start-ups. Measured: 0.3 to 1.0 % if stabilised (sources of chance
    are fixed), 3.9 to 4.9 % if not. Partly stabilised is between the two."""
    boot_prior_df: int = 4
    """Weight of `boot_sd`, in degrees of freedom: as much as the start-ups of two versions with three each."""
    round_sd: Deviations = (0.03, 0.03, 0.05)
    """How much a round differs from other rounds of its start-up. Measured: 2.4 to 2.9 % if stabilised (sources of
    chance are fixed), 4 to 5 % if not."""
    round_prior_df: int = 4
    """Weight of `round_sd`, in degrees of freedom. It is little beside the 18 of two versions with three start-ups of
    four rounds each."""
    environment_sd: float = 0.25
    """How much the log mean of unchanged code differs between sessions or environments. In campaigns, sessions on one
    machine deviated by 0.16 to 0.30. A percentile has `tail_factor` times as much."""
    environment_noted: float = 2.0
    """An environment that is slower by up to this many `environment_sd` (a rate that is 39 % lower) changes no outcome.
    Beyond, unchanged code does not PASS."""
    environment_failed: float = 5.0
    """The test fails if the environment's whole interval is slower by this many `environment_sd` (a rate that is 71 %
    lower)."""

    known_to: float = 0.015
    """A baseline's requests/s, and other metrics of rounds, are known well enough if their logarithm's standard error
    is this."""

    # --- whether two versions give the same answers (`evidence`)

    answers_share: float = 0.02
    """Two versions' answers are the same if their statuses and sizes differ by at most this share."""
    answers_errors: float = 4.0
    """Statuses and sizes must also differ by this many standard errors: rather many, because rounds depend on each
    other."""

    # --- exact counts (`difference`)

    least_counted: float = 0.25
    """Counts per request that differ by less are equal. Caches that expire, or that fast code fills sooner, change some
    requests. Another database statement in each third request shows."""
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
    """All looks at the evidence, which are judgements while it comes in: (share of the time, share of the error). The
    last look has most of the error, because small changes only show by then."""
    rate_pass_error: float = 0.01
    """Probability of error with which PASS of a rate excludes a loss, even in the total. Each look at the evidence has
    all of this error, because looks have much in common. Code that is 5 % slower is PASS in 1.5 to 4 % of simulated
    tests. For a percentile it is `bound_error`."""
    total_more: float = 0.05
    """In the total over all turns, PASS excludes a loss that exceeds the tolerance by this much: 8.3 % with 3 %. The
    total includes all of the machine's stalls, so it is less exact than the typical pace."""
    total_share: float = 0.2
    """Part of a gate's error that a rate's total over all turns may use. The rate in typical turns has the other
    part."""
    calm_share: float = 0.5
    """Part of a gate's error that a percentile between stalls may use. The percentile of all requests has the other
    part. 32 of 60 simulated tests of a fast endpoint find that 1 request in 100 takes ten times as long. By all
    requests alone, 3 tests find it."""
    calm_error: float = 0.2
    """If a percentile between stalls is worse, this probability of error is enough for the percentile of all
    requests."""
    hopeless_from: float = 0.5
    """No comparison is given up before this share of its time."""
    hopeless_errors: float = 2.0
    """A comparison is given up if it would stay undecided even if the estimate moved by this many standard errors."""
    least_pairs: int = 3
    """Fewer pairs do not show how much start-ups differ, and decide nothing."""
    few_pairs_times: float = 1.2
    """With fewer than `least_pairs`, a comparison may take this multiple of its limit, and `few_pairs_more_s` more."""
    few_pairs_more_s: float = 4.0
    settled_pairs: int = 4
    """With fewer pairs of start-ups, only a regression ends a comparison that has time for another pair. The first
    three load a version for 1.5 s, too short to show stalls. With 1.4 s, stalls of 30 ms that cost 10 % passed after
    three in 3 of 400 simulated tests."""
    known_cycles: int = 15
    """With fewer cycles in fewer than `known_pairs`, a comparison that has time goes on. A cycle is a turn on each
    version. Three pairs of one to three cycles may agree by chance. On two cores with 8 to 21 busy programs, this
    failed 2 of 60 tests of unchanged code. On a quiet machine, three pairs of a closed loop have 21 or more. Slow
    endpoints, and loads at a rate, have one or two cycles in a pair."""
    known_pairs: int = 5
    """This many pairs of start-ups show by themselves how much they differ."""
    pair_sd: Deviations = (0.01, 0.015, 0.07)
    """How much two start-ups of the same code differ, as a log ratio. Not stabilised it is √2 times the deviation of
    one start-up. Besides noise, forks of an app with new memory for each upload differed by 0.3 to 0.5 % (231
    pairs)."""
    pair_prior_df: int = 8
    """Weight of `pair_sd` beside the observed spread: as much as nine pairs. The spread of requests/s differed between
    259 comparisons on one kind of machine, which gives 7 to 20. Memory has the same weight, but nobody measured it. The
    weight suits start-ups that differ by up to twice the usual."""
    alone_prior_df: int = 1
    """Weight of `pair_sd` if a pair has too few cycles to show how uncertain it is. Some such pairs agree by chance and
    look exact. Without this and `prior_cycles`, 33 of 60 simulated sessions of the same code had a false alarm. With
    them, 5 of 400 had."""
    few_cycles: int = 10
    """With fewer cycles, a pair's value is the Hodges–Lehmann estimate. With the biweight, 9 of 60 simulated sessions
    of the same code had a false alarm. With more cycles it is the biweight. In much noise the biweight finds 5 % in 63
    % of GETs, Hodges–Lehmann in 53 %."""
    deviation_cycles: int = 7
    """With fewer cycles, a pair's uncertainty comes from the cycles' variance, because five cycles may agree by chance.
    With more, it comes from their median deviation. In 96 first pairs of the same code the variance made errors 1.6 and
    3.1 times too large. Stalls hardly move the estimate."""
    least_cycles: int = 3
    """Fewer cycles do not show how uncertain a pair of start-ups is: two may agree by chance."""
    prior_cycles: int = 10
    """Weight of the usual deviation of cycles, for a single pair: as much as this many cycles. A pair's own one to
    thirty cycles say little."""

    # --- percentiles of versions that are measured alternately (`ranks`)

    ranks_prior_df: int = 4
    """Weight of the expected spread of shares of slow requests: as much as five pairs. It is less than for rates,
    because the expectation rests on more unknowns, and the spread may be smaller."""
    ranks_group: float = 5.0
    """Neighbouring pairs share one percentile of the old version. Together they have this many times the metric's least
    number of requests. Then about 15 slow requests, or as many bunches of them, lie above it. Fewer say little, and
    larger groups mix different moments of the machine."""
    calm_deviations: float = 3.0
    """Between stalls, a turn may have more slow requests than usual by chance. Those beyond 1 and this many deviations
    of a Poisson number do not count."""

    jump: float = 1.7
    """Latency jumps at a percentile if it grows by this factor from just below it to just above. The cause is a pause
    that hits this share of requests. If servers stall as often as p99 notices, 97 of 263 undecided simulated tests have
    a jump. p99.5 decides 58 of these, and 10 of the tests without a jump. p95 decides most of both."""

    # --- start-ups that get slower one after another (`unit`)

    course_totals: tuple[float, float, float] = (0.3, 0.25, 0.2)
    """A trend's least log ratio of the last start-up to the first, if there are three, four or more. Start-ups of the
    same code differ by 1 to 6 % each."""
    course_step: float = 0.3
    """In a trend, each step is at least this part of an even step between start-ups. One jump is not a trend."""
    course_errors: float = 3.0
    """In a trend, each step between start-ups is at least this many standard errors."""
    course_round_sd: float = 0.05
    """Standard error of a start-up with a single round: the usual deviation of rounds."""
    course_cpu: float = 0.3
    """If CPU time per request changes by more than this part of a trend, the machine may be its cause."""

    # --- groups of variants (`groups`)

    ranking_alpha: float = 0.05
    """Highest probability that any equal variants of a group get different ranks."""
    drift_sd: float = 0.015
    """How much the log mean of the same code differs between tests of a session. Measured: up to 4 % within a minute,
    or 1.2 % if spread evenly."""
    drift_df: int = 30
    """Weight of `drift_sd`, in degrees of freedom: it comes from one machine, so it isn't certain. A session can tell
    less about itself."""
    latencies_a_round: float = 4.0
    """Rounds that are shorter than this many mean latencies say nothing by themselves about a rate."""

    @property
    def confidence(self) -> float:
        """Confidence of the intervals that reports show."""
        return 1 - 2 * self.bound_error

    def most_told(self, tolerance: float) -> float:
        """Returns the greatest worsening, as a share, that is worth reporting."""
        return max(self.nothing_told, 2 * tolerance)

    def most_by_chance(self, share: float, requests: float) -> float:
        """Returns how many requests of a turn are slow by chance at most, if usually this `share` is slow."""
        usual = share * requests
        return usual + self.calm_deviations * math.sqrt(usual) + 1


RULES = Rules()
"""The constants that the judge uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """The constants of a search for a capacity (`capacity`). Deviations are of log rates."""

    # --- one load

    backlog_share: float = 0.13
    """A load falls behind if its backlog grows by more than this share of its requests. If it grows by less, requests
    exceed the limit itself. A load of seven times the limit (`rough_load`) shows 12 %, as `visible_growth` says."""
    backlog_deviations: float = 2.0
    """To fall behind, a load's backlog must also grow by more than this many times √requests. At 80 % of the capacity,
    fewer than 1 in 100 simulated loads grows so much (M/M/1, 14 requests). At 140 %, half of the loads with 28 requests
    do (M/D/1)."""
    backlog_errors: float = 3.5
    """To fall behind, a load's latencies must also grow by more than this many standard errors. Slow requests alone
    need not be in a queue. With 14 long latencies that differ by chance (exponential), fewer than 1 in 100 simulated
    loads does so."""
    backlog_requests: int = 10
    """A load with fewer requests cannot fall behind: it does not show how much latencies differ."""

    # --- how likely each capacity is

    odd_loads: float = 0.01
    """Share of loads that say nothing about the rate, for whatever reason. In them any number of slow requests is
    equally likely."""
    expected: float = -0.15
    """The expected capacity, as a log ratio to the closed loop's rate: 14 % below it."""
    expected_sd: float = 0.5
    elsewhere: float = 0.02
    """How likely a capacity far from the expected one is, beside the likeliest capacity."""
    boot_sd: float = 0.04
    """Standard deviation of start-ups' capacities: more than between stabilised start-ups, because minutes lie
    between."""
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
    """Slopes, each with its weight before any load. A slope is how fast the share of slow requests grows with the rate.
    With a low slope, latency grows long before the capacity. With a high slope, a server falls behind all at once;
    M/D/1 has about 28. If low slopes were as likely as others, two unlucky loads would send a search to half of the
    capacity. Coming back would take most of a start-up's loads."""
    together: tuple[tuple[float, float], ...] = ((0.001, 0.0), (0.008, 0.0), (0.04, 0.0), (0.008, 0.12))
    """How much slow requests of a load come together: the correlation of two requests. The highest is for a queue that
    gets long once in a load. Each has the share of loads in which the machine stood still for a moment. Downloads by
    aiofiles broke a p99 of 100 ms in one of seven loads, far below the capacity."""
    longest_stall: float = 0.2
    """If more than this share of a load's requests exceed a limit, the server counts as slow. Otherwise the machine may
    have stood still."""
    pace_sds: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.15)
    """Possible deviations of a server's log pace (the rate that it keeps up with) between loads. The last one is for a
    machine with much other work."""
    crowding: float = 1.2
    """A load's requests come close together by chance, which changes a server's pace by this / √requests. Their number
    varies by 1 / √number, and their distances vary too. 1.2 fits M/D/1."""
    most_crowding: float = 0.1
    """By `crowding`, a server's pace varies at most by this. With few requests, only some of them meet a queue."""
    middle_room: float = 1.2
    """Factor by which a middle load's pace lies further above the capacity than crowding alone would put it. Fits
    searches of M/D/1 with limits of 10 and 20 times a request's duration."""
    visible_growth: float = 0.85
    """A server that falls behind by a share x reaches a limit after limit / x. If x is less than 0.85 × limit / length,
    a load is over before that, and the server seems too fast. Fits M/D/1 with 0.1 to 1 ms per request."""
    most_variance: float = 1.5
    """A variance from a start-up's own loads is at most this many times the posterior's variance. Few loads say nothing
    by themselves."""
    deviations: float = 2.0
    """Half the width of a capacity's interval, in standard deviations. A normal distribution has 1.64. With 2.0, 89 to
    100 % of simulated searches are right, but not for heavy tails."""

    # --- the next load

    first: float = 0.8
    """The first rate, as a share of the closed loop's rate. Users who come by chance need some room."""
    climb: float = 1.35
    """If the first rate meets the limits, the second rate is higher by this factor. Further rates double until a limit
    breaks."""
    few_broken: int = 3
    """If more loads than this break by a little, the rate is halved. Until then it is multiplied by `first`."""
    none_below: float = 1 / 8
    """If two loads at most at this share of the closed loop's rate break the limits, no rate meets them."""
    generator_near: float = 0.88
    """If the generator failed at two rates, and the highest good rate exceeds this share of both, the search ends."""
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
    """Least length of a long load, as a multiple of the slowest limit."""
    beyond_a_load: int = 3
    """A long load has so many requests that this many of them may exceed a limit at the capacity."""
    loads_a_search: int = 8
    """Loads are so short that a search has time for this many."""
    rough_load: float = 0.7
    """Until the capacity is roughly known, a load's length is this share of a long load's."""
    fits: float = 0.6
    """To fit into the time that is left, a load may be shortened to this share of its length."""
    warmup_s: float = 0.3
    latencies_a_warmup: int = 4
    """Least length of a long load's warm-up, as a multiple of the slowest limit."""
    longest_warmup: float = 0.3
    """Longest warm-up, as a share of the load."""

    def most_backlog(self, requests: int) -> float:
        """Returns how much a backlog grows by chance at most, as a share of the load's requests.

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
    """How much a session's log ratio differs beyond its stated error. With half of it, wrong errors give 5 false alarms
    in 1,000 runs. Sessions that resemble their neighbours give 3."""
    tail_session_sd: float = 0.05
    """The same as `session_sd`, for a percentile. With 0.01 it would have 2.1 false alarms in 1,000 runs, and with this
    it has 0.4."""
    penalty: float = 12.0
    """Cost of another segment, which begins with a step: it must differ by 3.5 standard errors from the segment before.
    About 0.35 false alarms in 1,000 runs."""
    least: int = 3
    """Least number of runs between two steps: one odd run makes no step, and two in a row rarely do."""
    first: int = 10
    """A history with fewer runs shows no step."""
    window: int = 7
    clip: float = 2.5
    """An odd run's ratio is drawn to this many deviations from the median of `window` runs. If errors have long tails,
    0.55 false alarms remain of 2.0, and as many steps are found."""
    prior_runs: int = 20
    """Weight of the errors that runs state: as much as this many runs. Neighbouring runs show how right these errors
    are."""
    machine_sd: float = 0.01
    """How much log ratios on two kinds of machine may differ (standard deviation). It is a guess, because no histories
    of several kinds exist."""
    machine_runs: int = 20
    """A kind of machine that did not occur in this many runs is a new one."""
    turns: int = 5
    """If neighbouring runs alternate between two old codes at least this often, they show how far these are apart."""
    slow_runs: int = 20
    """A slow change begins at most this many runs before its first step. It ends at most this many after its last
    step."""
    slow_least: int = 5
    """A slow change has at least this many runs: a shorter one looks like a step."""
    slow_gain: float = 2.0
    """To be a slow change, a straight line must fit better than steps by this much, in squared standard errors. Then 2
    % of single steps are called slow. 20 % of slow changes are called steps (5 % in 10 runs, with errors of 0.5 to 1.5
    %)."""


TREND = TrendRules()
