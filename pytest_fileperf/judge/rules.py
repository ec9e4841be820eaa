"""What shapes a verdict: every constant of the judge in one value, each with its reason or source.

Nothing else varies what the judge says of the same evidence. A simulation puts other `RULES` into the judge's modules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pytest_fileperf.serve.stability import STABILISERS

Deviations: TypeAlias = tuple[float, float, float]
"""A usual standard deviation of log values, where all, some or none of `STABILISERS` were held equal between boots."""


def usual_sd(deviations: Deviations, held: Iterable[str]) -> float:
    """Returns the one of the deviations that goes with what was `held`."""
    known = set(STABILISERS) & set(held)
    return deviations[0 if len(known) == len(STABILISERS) else 1 if known else 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The constants of all comparisons. Deviations are of log values, errors are probabilities."""

    # --- both kinds of comparison

    session_alpha: float = 0.01
    """Highest probability that identical code regresses in any gate of a session."""
    bound_error: float = 0.05
    """Error of one-sided bounds: to take a worsening that is tolerated for one that is not, and the other way round.
    The interval shown has one bound on each side, so it holds the change with 90 %."""
    power: float = 0.80
    """Probability that goes with "could have been seen"; the usual convention."""

    excluded_more: float = 0.02
    """PASS of a rate excludes a loss of the tolerance and so much more, as log ratios: 5.1 % with 3 %."""
    tail_tolerances: float = 2.0
    """That of a percentile excludes so many tolerances, and `excluded_more`: 35 % with 15 %. If that of a rate did,
    code that is 5 % slower would be PASS in 10 to 15 % of simulated tests, as it would exclude 8.2 % with 3 %."""
    nothing_told: float = 0.5
    """Where only a greater worsening than this share could have been seen, nothing can be told."""

    # --- stored baselines (`gate`)

    boot_sd: Deviations = (0.01, 0.025, 0.05)
    """Of a boot's level. Measured: 0.3 to 1.0 % stabilised, 3.9 to 4.9 % as it comes; partly is between the two."""
    boot_prior_df: int = 4
    """Weight of `boot_sd`: as much as two sides of three boots bring themselves."""
    round_sd: Deviations = (0.03, 0.03, 0.05)
    """Of a round within its boot. Measured: 2.4 to 2.9 % stabilised, 4 to 5 % as it comes."""
    round_prior_df: int = 4
    """Weight of `round_sd`: little beside the 18 of two sides of three boots of four rounds."""
    environment_sd: float = 0.25
    """Of the log level of unchanged code from one session, or environment, to another: as much as sessions on one
    machine deviated by in campaigns, 0.16 to 0.30. A percentile has `tail_factor` times as much."""
    environment_noted: float = 2.0
    """Within so many of these deviations it is a note: 39 % slower. Beyond, unchanged code is no PASS."""
    environment_failed: float = 5.0
    """If the whole interval is beyond so many it is a failure: 71 % slower."""

    # --- what is counted exactly (`difference`)

    least_counted: float = 0.25
    """A count for each request that differs by less is the same: caches that end by time, or that fast code fills
    sooner, change a part of the requests. A statement more in each third request is seen."""
    counted_errors: float = 4.0
    """It also differs by more than so many standard errors, as requests of several kinds come by chance."""

    # --- sides that are measured in turn (`paired`)

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
    """When to look at the evidence, as a share of the time there is, and which share of the error that look may use:
    the last one most, as small changes can only be seen by then."""
    rate_pass_error: float = 0.01
    """Error with which PASS of a rate excludes a loss, in the total too, at each look, however many there are: looks
    have much in common, and 5 % slower is PASS in 1.5 to 4 % of simulated tests. A percentile has `bound_error`."""
    total_more: float = 0.05
    """In the total over all turns it excludes a loss of so much more than the tolerance: 8.3 % with 3 %. The total
    holds all of the machine's stalls, so it is known less exactly than the typical pace."""
    total_share: float = 0.2
    """Part of a gate's error that the total of a rate has; the typical ratio has the rest."""
    calm_share: float = 0.5
    """Part of a gate's error that a percentile between stalls has; that of all requests has the rest. That 1 request in
    100 takes ten times as long, 32 of 60 simulated tests of a fast endpoint find, and 3 by all requests alone."""
    calm_error: float = 0.2
    """Error of taking a percentile of all requests for beyond the tolerance, where that between stalls is."""
    hopeless_from: float = 0.5
    """The share of the time before which no comparison is given up."""
    hopeless_errors: float = 2.0
    """So many standard errors the estimate may still move; what that does not decide is given up."""
    least_pairs: int = 3
    """Fewer pairs of boots say nothing about how much boots differ."""
    settled_pairs: int = 4
    """With fewer pairs only a regression ends a comparison, if there is time for another: the first three load a side
    for 1.4 s, too short to show stalls. Simulated, 30 ms stalls that cost 10 % passed so in 3 of 400 tests."""
    pair_sd: Deviations = (0.01, 0.015, 0.07)
    """For the ratio of two start-ups of the same code. Not stabilised it is √2 times the deviation of one start-up.
    Forks of an app that takes new memory for each upload differed by 0.3 to 0.5 % beside their noise, in 231 pairs."""
    pair_prior_df: int = 8
    """Weight of `pair_sd`, as that of nine pairs: how the spread of requests/s differed between 259 comparisons on one
    kind of machine tells 7 to 20. Of memory it is taken over. It holds where boots differ by up to twice the usual."""
    alone_prior_df: int = 1
    """Weight of `pair_sd` where no cycles tell what is uncertain about a pair: some agree by chance and look exact.
    Without this and `prior_cycles` 33 of 60 simulated sessions of the same code had a false alarm, else 5 of 400."""
    few_cycles: int = 10
    """Fewer cycles have the Hodges–Lehmann estimate: with the biweight, 9 of 60 simulated sessions of the same code had
    a false alarm. More have the biweight. In much noise it finds 5 % in 63 % of GETs, Hodges–Lehmann in 53 %."""
    deviation_cycles: int = 7
    """Fewer cycles have a variance, because five may agree by chance. More have a median deviation. In 96 first pairs
    of the same code the variance made errors 1.6 and 3.1 times too large: stalls hardly move the estimate."""
    least_cycles: int = 3
    """Fewer cycles do not tell what is uncertain about a pair: two may agree by chance."""
    prior_cycles: int = 10
    """Weight of what a pair's cycles usually deviate by, as that of so many: its own one to thirty say little."""

    # --- percentiles of sides that are measured in turn (`ranks`)

    ranks_prior_df: int = 4
    """Weight of what is expected of the shares in a pair, as that of five pairs: less than of rates, as what is
    expected leans on more that is not known, and the spread may be less."""
    ranks_group: float = 5.0
    """Neighbouring pairs share one percentile of base until they have so many times the least requests that it needs:
    then about 15 slow ones, or as many bunches of them, lie above it. Fewer say little, and pairs have moments of their
    own."""
    calm_deviations: float = 3.0
    """Between stalls, so many deviations of a Poisson number above the usual one, and 1 more, are the most slow
    requests that chance has in a stretch of time."""

    # --- searches for a capacity (`capacity`)

    backlog_share: float = 0.13
    """A load falls behind if its backlog grows by more than this share of its requests. Smaller growth breaks the limit
    itself: a load of seven times the limit (`capacity.ROUGH_LOAD`) shows 12 %, as `capacity._ENDS` says."""
    backlog_deviations: float = 2.0
    """The backlog must also grow by more than so many times √requests. At 80 % of capacity fewer than 1 simulated load
    in 100 falls behind so (M/M/1, 14 requests). At 140 % half of the loads with 28 requests do (M/D/1)."""
    backlog_errors: float = 3.5
    """The latencies must also grow by more than so many standard errors: slow requests need not be in a queue. Of
    14 long latencies that differ by chance (exponential), fewer than 1 simulated load in 100 does so."""
    backlog_requests: int = 10
    """Fewer requests do not show how much their latencies differ."""

    # --- groups of variants (`groups`)

    ranking_alpha: float = 0.05
    """Highest probability that variants which are alike are told apart anywhere in a group."""
    drift_sd: float = 0.015
    """Of the level from one test of a session to the next. Measured: up to 4 % within a minute, which spread evenly is
    1.2 %."""
    drift_df: int = 30
    """Weight of `drift_sd`: found on one machine, so no certainty, yet more than a session can tell about itself."""
    latencies_a_round: float = 4.0
    """A round that holds fewer mean latencies is not one of many alike."""

    def most_told(self, tolerance: float) -> float:
        """Returns the greatest worsening, a share like the tolerance, that is worth being told of."""
        return max(self.nothing_told, 2 * tolerance)

    def most_backlog(self, requests: int) -> float:
        """Returns by which share of its requests a load's backlog grows at most by chance; infinite for few."""
        if requests < self.backlog_requests:
            return math.inf
        return max(self.backlog_share, self.backlog_deviations / math.sqrt(requests))

    def most_by_chance(self, share: float, requests: float) -> float:
        """Returns how many of a stretch's requests chance makes slow at most, if usually this share is."""
        usual = share * requests
        return usual + self.calm_deviations * math.sqrt(usual) + 1


RULES = Rules()
"""What the gate uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendRules:
    """The constants of a history (`trend`), chosen among about 30 variants by simulation (`benchmarks/trend.py`)."""

    session_sd: float = 0.01
    """How much a session's log ratio differs beyond its stated error. With half of it, wrong errors give 5 false alarms
    in 1,000 runs, and sessions that resemble their neighbours 3."""
    tail_session_sd: float = 0.05
    """The same of a percentile. With 0.01 it gives 2.1 false alarms in 1,000 runs, and 0.4 so."""
    penalty: float = 12.0
    """What another level costs: 3.5 standard errors between two levels. About 0.35 false alarms in 1,000 runs."""
    least: int = 3
    """Runs of a level: one odd run is no step, and two in a row rarely are."""
    first: int = 10
    """Fewer runs show no step."""
    window: int = 7
    clip: float = 2.5
    """An odd run is drawn to so many deviations from the median of so many runs. Where errors have long tails, it
    makes 0.55 false alarms of 2.0; the power stays."""
    prior_runs: int = 20
    """Stated errors weigh as much as so many runs, where neighbours tell how far they are right."""
    machine_sd: float = 0.01
    """How much log ratios on two kinds of machine may differ. A guess: no histories of several kinds exist."""
    machine_runs: int = 20
    """A kind of machine that was not seen in so many runs is a new one."""
    turns: int = 5
    """Neighbours with different old codes tell how far these are apart, if there are so many."""
    slow_runs: int = 20
    """A slow change begins or ends at most so many runs beside its steps."""
    slow_least: int = 5
    """Runs of a slow change, at least: of fewer nobody can tell it from a step."""
    slow_gain: float = 2.0
    """A straight way has to fit so much better, in squared standard errors, than steps. Of single steps 2 % are told
    as slow then, and 20 % of slow changes as steps (5 % in 10 runs, with errors of 0.5 to 1.5 %)."""


TREND = TrendRules()
