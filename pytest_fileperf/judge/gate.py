"""Compares one metric of two sides and says PASS, IMPROVED, REGRESSED or INCONCLUSIVE.

Model
    A boot's log value is   session's level + boot's own offset + what its rounds or requests leave uncertain.
    A side's level is the mean of its boots. `worse` is the difference of the sides in the metric's bad direction.

Variance of `worse`
    boots    s² (1/k₁ + 1/k₂), where s² is the variance of a boot's value: the one observed, pooled over both sides
             (d degrees of freedom), moderated by the one expected (d₀ degrees of freedom): (d₀ s₀² + d s²) / (d₀ + d).
             Three boots alone know their spread to a factor of two; without this a lucky one would make any change
             "significant". s₀² is the usual offset of a boot plus what is uncertain within a boot, as measured from
             the rounds of both sides, and s² is never less than the latter.
             Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in
             microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004) article 3; the prior is a constant here.
    session  twice the variance of a session's level: a baseline was measured at another time. It is the usual one, and
             what the boots' variance exceeds `UNREST` times that of a machine at rest by: what moves a machine from
             second to second moves it no less from one hour to another.
    The sum's degrees of freedom are Welch's and Satterthwaite's (Satterthwaite, Biometrics Bull. 2 (1946) 110–114).

Outcome, with L = log(1 + tolerance)
    REGRESSED     the lower one-sided 95 % bound of `worse` is above L (a t-test against a threshold, as in McCarthy
                  and Smyth, Bioinformatics 25 (2009) 765–771), and the bound at 1 - alpha is above 0. The second keeps
                  the promise for a whole session: with Bonferroni's alpha over its gates, identical code regresses
                  anywhere with at most `SESSION_ALPHA`; in fact far less, as the first asks for more than 0.
    IMPROVED      the same in the good direction.
    INCONCLUSIVE  neither, and either `worse` itself is above L, which the noise may or may not explain, or the evidence
                  could not have shown a worsening of `CLEAR` tolerances with 80 % probability.
    PASS          otherwise. So a true worsening of `CLEAR` tolerances or more passes in at most 1 of 20 runs: it would
                  have to be seen 1.7 standard errors too small.
    Chromium's Pinpoint has the same three answers from two thresholds (different, same, unknown).

Why Bonferroni and not Holm: a test fails in its own call phase, when the p values of later tests do not exist, so there
is nothing to sort. Bonferroni over the number of gates is Holm's first step: never less strict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean

from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.level import Level, level_of, spread_of, tail_factor, variance_of_location
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.metrics import Direction, Metric
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import format_share

__all__ = (
    "POWER",
    "SESSION_ALPHA",
    "STABILISATIONS",
    "Difference",
    "ErrorBudget",
    "alpha_each",
    "compare",
    "difference_of",
)

_BASE, _NOW = "the baseline", "this run"
SESSION_ALPHA = 0.05
"""Highest probability that identical code regresses in any gate of a session."""
BOUND = 0.95
"""Confidence of the one-sided bounds; the interval shown, with one on each side, has 90 %."""
POWER = 0.80
"""Probability that goes with "could have shown"; the usual convention."""
CLEAR = 3.0
"""PASS needs evidence that would have shown a worsening of this many tolerances (on the log scale): with 5 % on
requests/s a usual machine's noise shows 12 to 13 %."""

STABILISATIONS = frozenset(STABILISERS)
BOOT_SD_STABILISED = 0.01
"""Usual deviation of a boot's level with all of `STABILISATIONS`: measured 0.3 to 1.0 %."""
BOOT_SD_PARTLY = 0.025
"""With some of them: between the two that were measured."""
BOOT_SD_FREE = 0.05
"""With none: measured 3.9 to 4.9 %."""
BOOT_PRIOR_DF = 4
"""Weight of the usual deviation: as much as two sides of three boots bring themselves."""
ROUND_SD_STABILISED = 0.03
"""Usual deviation of a round within its boot: measured 2.4 to 2.9 %."""
ROUND_SD_FREE = 0.05
"""The same without stabilisation: measured 4 to 5 %."""
ROUND_PRIOR_DF = 4
"""Weight of that: little beside the 18 of two sides of three boots of four rounds."""
SESSION_SD = 0.015
"""Deviation of a session's level. Measured: up to 4 % within a minute, which spread evenly is 1.2 %; hours are more."""
UNREST = 12.0
"""By more than this many times their usual variance boots do not differ by chance, but because the machine does."""
SESSION_DF = 30
"""Weight of that: found on one machine, so no certainty, yet more than a session can tell about itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much worse `now` is, as a log ratio, and how exactly that is known."""

    worse: float
    error: float
    """Standard error of `worse`."""
    df: float

    def margin(self, confidence: float) -> float:
        """Returns the distance of a one-sided bound from `worse`."""
        from scipy.special import stdtrit

        return float(stdtrit(self.df, confidence)) * self.error


CONTEST_ALPHA = 0.01
"""The same for gates that measure both sides in turn."""


class ErrorBudget:
    """Shares the error of a session's comparisons out, in the order in which they come.

    Each gate has its equal part; that of a gate that was REGRESSED is used again by the next test, as Holm's procedure
    would, which needs all p values at once (Tian and Ramdas, "Online control of the familywise error rate", Stat.
    Methods Med. Res. 30 (2021) 976–993: the online fallback procedure).
    """

    def __init__(self, gates: int) -> None:
        self._each = CONTEST_ALPHA / max(1, gates)
        self._left = 0.0

    def level(self, gates: int) -> float:
        """Returns the level of each of the next test's gates."""
        return self._each + self._left / max(1, gates)

    def used(self, level: float, regressed: int) -> None:
        """Takes note of how many gates of that test, judged at that level, were REGRESSED."""
        self._left = level * regressed


def alpha_each(gates: int) -> float:
    """Returns the level of one of so many gates of a session: Bonferroni's share of `SESSION_ALPHA`."""
    return SESSION_ALPHA / max(1, gates)


def compare(metric: Metric, *, base: Evidence, now: Evidence, tolerance: float, alpha: float) -> MetricComparison:
    """Returns the comparison of one metric with its baseline; the module's text says how.

    `tolerance` is a share of the worse value: a rate may fall, and a duration grow, by a factor of 1 + tolerance.
    `alpha` is this gate's part of the session's error, from `alpha_each`.
    """
    base_level, now_level = level_of(metric, base), level_of(metric, now)
    levels = MetricComparison(
        metric=metric.name,
        outcome=Outcome.INCONCLUSIVE,
        tolerance=tolerance,
        base=base_level.value if base_level else None,
        now=now_level.value if now_level else None,
    )
    if base_level is None:
        return replace(levels, reason=_why_no_level(metric, base, _BASE))
    if now_level is None:
        return replace(levels, reason=_why_no_level(metric, now, _NOW))
    change = _share(now_level.mean - base_level.mean)
    if min(base.requests, now.requests) < metric.least_requests:
        return replace(levels, change=change, reason=_why_too_few(metric, base, now))
    sign = 1.0 if metric.direction is Direction.LOWER else -1.0
    difference = difference_of(metric, base, now, (base_level, now_level), sign)
    margin = difference.margin(BOUND)
    outcome, reason = _outcome(difference, tolerance, alpha)
    ratio = sign * difference.worse
    return replace(
        levels,
        outcome=outcome,
        change=change,
        low=_share(ratio - margin),
        high=_share(ratio + margin),
        confidence=2 * BOUND - 1,
        detectable=_share(_detectable(difference, math.log1p(tolerance), alpha)),
        reason=reason,
    )


def difference_of(
    metric: Metric, base: Evidence, now: Evidence, levels: tuple[Level, Level], sign: float
) -> Difference:
    """Returns how much worse `now` is than `base`, by their `levels`; `sign` is 1.0 where more is worse, else -1.0."""
    tail = tail_factor(metric)
    held = set(base.stabilised) & set(now.stabilised)
    free = not held & STABILISATIONS
    boot_sd = BOOT_SD_FREE if free else BOOT_SD_STABILISED if held >= STABILISATIONS else BOOT_SD_PARTLY
    usual_round_sd = ROUND_SD_FREE if free else ROUND_SD_STABILISED
    within = _within(metric, levels, usual_round_sd)
    expected = (boot_sd * tail) ** 2 + within
    squares = sum((value - level.mean) ** 2 for level in levels for value in level.boots)
    observed_df = sum(len(level.boots) - 1 for level in levels)
    df = BOOT_PRIOR_DF + observed_df
    boot_variance = max((BOOT_PRIOR_DF * expected + squares) / df, within)
    boots = boot_variance * sum(1 / len(level.boots) for level in levels)
    unrest = max(0.0, boot_variance - UNREST * _usual(metric, levels, boot_sd * tail, usual_round_sd, within))
    session = 2 * ((SESSION_SD * tail) ** 2 + unrest)
    return Difference(
        worse=sign * (levels[1].mean - levels[0].mean),
        error=math.sqrt(boots + session),
        df=(boots + session) ** 2 / (boots**2 / df + session**2 / SESSION_DF),
    )


def _usual(metric: Metric, levels: tuple[Level, Level], boot_sd: float, round_sd: float, within: float) -> float:
    """Returns the variance of a boot's value on a machine at rest: of a percentile, all that is seen within boots."""
    if metric.percentile is None and any(rounds for level in levels for rounds in level.rounds):
        within = variance_of_location(round_sd**2, levels)
    return boot_sd**2 + within


def _within(metric: Metric, levels: tuple[Level, Level], usual_sd: float) -> float:
    """Returns the variance that a boot's value has from what happened within the boot."""
    sampling = [level.sampling for level in levels if level.sampling is not None]
    spread = spread_of(levels)
    if sampling:
        # Requests hang together in time, so rounds differ by more than independent ones would: the greater one holds.
        rounds = variance_of_location(spread[0], levels) if spread else 0.0
        return max(fmean(sampling), rounds)
    if not any(rounds for level in levels for rounds in level.rounds):
        return 0.0  # a metric of whole runs: its uncertainty is the boots' alone
    variance, df = spread or (0.0, 0)
    return variance_of_location((ROUND_PRIOR_DF * usual_sd**2 + df * variance) / (ROUND_PRIOR_DF + df), levels)


def _outcome(difference: Difference, tolerance: float, alpha: float) -> tuple[Outcome, str]:
    limit = math.log1p(tolerance)
    least = _least_shown(difference, limit, alpha)
    if difference.worse > least:
        return Outcome.REGRESSED, ""
    if -difference.worse > least:
        return Outcome.IMPROVED, "better than its baseline: store the new level with --fileperf-update"
    if difference.worse > limit:
        return Outcome.INCONCLUSIVE, (
            f"may be worse by more than its tolerance of {format_share(tolerance)}, but the noise hides it:"
            " use more boots or a longer duration"
        )
    detectable = _detectable(difference, limit, alpha)
    if detectable > CLEAR * limit:
        return Outcome.INCONCLUSIVE, (
            f"only a worsening of {format_share(_share(detectable))} could have been seen: use more boots or a longer"
            f" duration, or a tolerance of {format_share(_tolerance_for(difference, alpha))}"
        )
    return Outcome.PASS, ""


def _least_shown(difference: Difference, limit: float, alpha: float) -> float:
    """Returns the least observed `worse` that is REGRESSED."""
    return max(limit + difference.margin(BOUND), difference.margin(1 - alpha))


def _detectable(difference: Difference, limit: float, alpha: float) -> float:
    """Returns the true worsening that is REGRESSED with probability `POWER`."""
    return _least_shown(difference, limit, alpha) + difference.margin(POWER)


def _tolerance_for(difference: Difference, alpha: float) -> float:
    """Returns the least tolerance, in whole per cents, with which this noise would not be INCONCLUSIVE."""
    margin = difference.margin(POWER)
    limit = max((difference.margin(BOUND) + margin) / (CLEAR - 1), (difference.margin(1 - alpha) + margin) / CLEAR)
    return math.ceil(100 * math.expm1(limit)) / 100


def _share(ratio: float) -> float:
    """Returns a log ratio as a share; ratios that no float holds are cut off."""
    return math.expm1(min(ratio, 700.0))


def _why_too_few(metric: Metric, base: Evidence, now: Evidence) -> str:
    whose, count = (_NOW, now.requests) if now.requests <= base.requests else (_BASE, base.requests)
    return (
        f"{metric.title} needs {metric.least_requests} requests and {whose} has {count}: use a longer duration"
        " or gate a lower percentile"
    )


def _why_no_level(metric: Metric, evidence: Evidence, whose: str) -> str:
    if evidence.requests == 0:
        return f"{whose} has no successful request"
    told = any(metric.name in values for boot in evidence.boots for values in (*boot.rounds, boot.runs))
    if told:
        return f"{metric.title} was 0 in {whose}, and a change from or to 0 has no ratio: set a limit instead"
    return f"{metric.title} was not measured in {whose}"
