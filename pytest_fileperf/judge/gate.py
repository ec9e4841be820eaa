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
             what the boots' variance exceeds `Rules.unrest` times that of a machine at rest by: what moves a machine
             from second to second moves it no less from one hour to another.
    The sum's degrees of freedom are Welch's and Satterthwaite's (Satterthwaite, Biometrics Bull. 2 (1946) 110–114).

Outcome, with L = log(1 + tolerance)
    REGRESSED     the lower one-sided 95 % bound of `worse` is above L (a t-test against a threshold, as in McCarthy
                  and Smyth, Bioinformatics 25 (2009) 765–771), and the bound at the error alpha is above 0. The second
                  keeps the promise for a whole session: with Bonferroni's alpha over its gates, identical code
                  regresses anywhere with at most `Rules.stored_alpha`; in fact far less, as the first asks for more.
    IMPROVED      so far in the good direction.
    INCONCLUSIVE  neither, and either `worse` itself is above L, which the noise may or may not explain, or the evidence
                  could not have shown a loss of three tolerances (`Rules.stored_excluded`) with 80 % probability.
    PASS          otherwise. So a true loss of three tolerances or more passes in at most 1 of 20 runs: it would have to
                  be seen 1.7 standard errors too small.
    Chromium's Pinpoint has the same three answers from two thresholds (different, same, unknown).

Why Bonferroni and not Holm: a test fails in its own call phase, when the p values of later tests do not exist, so there
is nothing to sort. Bonferroni over the number of gates is Holm's first step: never less strict.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

from pytest_fileperf.judge.difference import Difference, Threshold, as_share
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.level import Level, level_of, spread_of, tail_factor, variance_of_location
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.measure.metrics import Metric

__all__ = ("ErrorBudget", "alpha_each", "compare", "difference_of")


class ErrorBudget:
    """Shares the error of a session's comparisons out, in the order in which they come.

    Each gate has its equal part; that of a gate that was REGRESSED is used again by the next test, as Holm's procedure
    would, which needs all p values at once (Tian and Ramdas, "Online control of the familywise error rate", Stat.
    Methods Med. Res. 30 (2021) 976–993: the online fallback procedure).
    """

    def __init__(self, gates: int, rules: Rules = RULES) -> None:
        self._each = rules.paired_alpha / max(1, gates)
        self._left = 0.0

    def level(self, gates: int) -> float:
        """Returns the level of each of the next test's gates."""
        return self._each + self._left / max(1, gates)

    def used(self, level: float, regressed: int) -> None:
        """Takes note of how many gates of that test, judged at that level, were REGRESSED."""
        self._left = level * regressed


def alpha_each(gates: int, rules: Rules = RULES) -> float:
    """Returns the level of one of so many gates of a session: Bonferroni's share of `Rules.stored_alpha`."""
    return rules.stored_alpha / max(1, gates)


def compare(
    metric: Metric, *, base: Evidence, now: Evidence, tolerance: float, alpha: float, rules: Rules = RULES
) -> MetricComparison:
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
        return replace(levels, reason=_why_no_level(metric, base, "base"))
    if now_level is None:
        return replace(levels, reason=_why_no_level(metric, now, "now"))
    change = as_share(now_level.mean - base_level.mean)
    if min(base.requests, now.requests) < metric.least_requests:
        return replace(levels, change=change, reason=_why_too_few(metric, base, now))
    difference = difference_of(metric, base, now, (base_level, now_level), rules)
    threshold = Threshold(limit=math.log1p(tolerance), alpha=alpha, bound_error=rules.bound_error)
    outcome, reason = _outcome(difference, threshold, tolerance, rules)
    low, high = sorted(metric.worse_sign * bound(rules.bound_error) for bound in (difference.low, difference.high))
    return replace(
        levels,
        outcome=outcome,
        change=change,
        low=as_share(low),
        high=as_share(high),
        confidence=1 - 2 * rules.bound_error,
        detectable=as_share(difference.detectable(threshold, rules.power)),
        reason=reason,
    )


def difference_of(
    metric: Metric, base: Evidence, now: Evidence, levels: tuple[Level, Level], rules: Rules = RULES
) -> Difference:
    """Returns how much worse `now` is than `base`, by their `levels`."""
    tail, held = tail_factor(metric), set(base.stabilised) & set(now.stabilised)
    boot_sd, round_sd = rules.boot_sd.given(held) * tail, rules.round_sd.given(held)
    within = _within(metric, levels, round_sd, rules)
    squares = sum((value - level.mean) ** 2 for level in levels for value in level.boots)
    df = rules.boot_prior_df + sum(len(level.boots) - 1 for level in levels)
    boot_variance = max((rules.boot_prior_df * (boot_sd**2 + within) + squares) / df, within)
    boots = boot_variance * sum(1 / len(level.boots) for level in levels)
    unrest = max(0.0, boot_variance - rules.unrest * _usual(metric, levels, boot_sd, round_sd, within))
    session = 2 * ((rules.session_sd * tail) ** 2 + unrest)
    return Difference(
        worse=metric.worse_sign * (levels[1].mean - levels[0].mean),
        error=math.sqrt(boots + session),
        df=(boots + session) ** 2 / (boots**2 / df + session**2 / rules.session_df),
    )


def _usual(metric: Metric, levels: tuple[Level, Level], boot_sd: float, round_sd: float, within: float) -> float:
    """Returns the variance of a boot's value on a machine at rest: of a percentile, all that is seen within boots."""
    if metric.percentile is None and any(rounds for level in levels for rounds in level.rounds):
        within = variance_of_location(round_sd**2, levels)
    return boot_sd**2 + within


def _within(metric: Metric, levels: tuple[Level, Level], usual_sd: float, rules: Rules) -> float:
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
    prior = rules.round_prior_df
    return variance_of_location((prior * usual_sd**2 + df * variance) / (prior + df), levels)


def _outcome(
    difference: Difference, threshold: Threshold, tolerance: float, rules: Rules
) -> tuple[Outcome, Reason | None]:
    if difference.is_worse(threshold):
        return Outcome.REGRESSED, None
    if difference.is_better(threshold):
        return Outcome.IMPROVED, Reason(kind=ReasonKind.IMPROVED)
    if difference.worse > threshold.limit:
        return Outcome.INCONCLUSIVE, Reason(kind=ReasonKind.NOISE, share=tolerance)
    detectable = difference.detectable(threshold, rules.power)
    if detectable > rules.stored_excluded.at(threshold.limit):
        allowed = _tolerance_for(difference, threshold, rules)
        return Outcome.INCONCLUSIVE, Reason(kind=ReasonKind.UNSEEN, share=as_share(detectable), tolerance=allowed)
    return Outcome.PASS, None


def _tolerance_for(difference: Difference, threshold: Threshold, rules: Rules) -> float:
    """Returns the least tolerance, in whole per cents, with which this noise would not be INCONCLUSIVE."""
    seen, excluded = difference.margin(1 - rules.power), rules.stored_excluded
    beyond_limit = (difference.margin(threshold.bound_error) + seen - excluded.more) / (excluded.tolerances - 1)
    beyond_zero = (difference.margin(threshold.alpha) + seen - excluded.more) / excluded.tolerances
    return math.ceil(100 * math.expm1(max(beyond_limit, beyond_zero))) / 100


def _why_too_few(metric: Metric, base: Evidence, now: Evidence) -> Reason:
    side, count = ("now", now.requests) if now.requests <= base.requests else ("base", base.requests)
    return Reason(
        kind=ReasonKind.FEW_REQUESTS, metric=metric.name, side=side, count=count, needed=metric.least_requests
    )


def _why_no_level(metric: Metric, evidence: Evidence, side: str) -> Reason:
    if evidence.requests == 0:
        return Reason(kind=ReasonKind.NO_REQUEST, side=side)
    known = any(metric.name in values for boot in evidence.boots for values in (*boot.rounds, boot.runs))
    return Reason(kind=ReasonKind.WAS_ZERO if known else ReasonKind.NOT_MEASURED, metric=metric.name, side=side)
