"""Compares one metric with figures of another session and says PASS, IMPROVED, REGRESSED or INCONCLUSIVE.

Model
    A boot's log value is   session's level + boot's own offset + what its rounds or requests leave uncertain.
    A side's level is the mean of its boots. `worse` is the difference of the sides in the metric's bad direction.

Variance of `worse`
    boots    s² (1/k₁ + 1/k₂), where s² is the variance of a boot's value (`boots`).
    session  what unchanged code changes by from one session to another on this machine: a `Spread`, learned from
             earlier sessions (`steadiness`). These were measured by boots too, so boots count twice: bounds are rather
             too wide than too narrow.
    The sum's degrees of freedom are Welch's and Satterthwaite's (Satterthwaite, Biometrics Bull. 2 (1946) 110–114).

Outcome, with L = log(1 + tolerance)
    REGRESSED     the lower one-sided 95 % bound of `worse` is above L (a t-test against a threshold, as in McCarthy
                  and Smyth, Bioinformatics 25 (2009) 765–771), and the bound at the error alpha is above 0. The second
                  keeps the promise for a whole session: with Bonferroni's alpha over its gates, identical code
                  regresses anywhere with at most `Rules.session_alpha`. Also where the whole interval that is shown is
                  beyond ten times the tolerance.
    IMPROVED      so far in the good direction.
    PASS          `worse` is at most L, and its upper one-sided 95 % bound below L + 2 % (`Rules.rate_excluded`), or
                  2 L + 2 % for a percentile (`Rules.excluded`): a true loss of that much passes in at most 1 of 20
                  runs. On a machine whose sessions are known to deviate by 1 %, the same code is PASS in 72 %, 5 %
                  slower in 2 %, 10 % slower in 0.01 %, with a tolerance of 3 %; in 85 % where the baseline is known
                  to 0.6 %.
    INCONCLUSIVE  otherwise.

Why Bonferroni and not Holm: a test fails in its own call phase, when the p values of later tests do not exist, so there
is nothing to sort. Bonferroni over the number of gates is Holm's first step: never less strict.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_fileperf.judge.boots import variance_of_boots
from pytest_fileperf.judge.difference import Difference, Threshold, as_share
from pytest_fileperf.judge.evidence import Evidence, alike
from pytest_fileperf.judge.level import Level, level_of, measured_of
from pytest_fileperf.judge.rules import RULES, ExcludedLoss, Rules
from pytest_fileperf.judge.steadiness import Spread
from pytest_fileperf.judge.verdict import MetricComparison, NoiseOf, Outcome, Reason, ReasonKind, unless_far_worse
from pytest_fileperf.measure.metrics import Metric

__all__ = ("ErrorBudget", "compare", "difference_of", "why_no_level")


class ErrorBudget:
    """Shares the error of a session's comparisons out, in the order in which they come.

    Each gate has its equal part; that of a gate that was REGRESSED is used again by the next test, as Holm's procedure
    would, which needs all p values at once (Tian and Ramdas, "Online control of the familywise error rate", Stat.
    Methods Med. Res. 30 (2021) 976–993: the online fallback procedure).
    """

    def __init__(self, gates: int, rules: Rules = RULES) -> None:
        self._each = rules.session_alpha / max(1, gates)
        self._left = 0.0

    def level(self, gates: int, *, of_parts: int = 0) -> float:
        """Returns the level of each of the next test's gates; those of parts of its load share what the test has."""
        return (self._each * max(1, gates) + self._left) / max(1, gates + of_parts)

    def used(self, level: float, regressed: int) -> None:
        """Takes note of how many gates of that test, judged at that level, were REGRESSED."""
        self._left = level * regressed


def compare(
    metric: Metric,
    *,
    base: Evidence,
    now: Evidence,
    tolerance: float,
    alpha: float,
    spread: Spread,
    rules: Rules = RULES,
) -> MetricComparison:
    """Returns the comparison of one metric with its baseline; the module's text says how.

    `tolerance` is a share of the worse value: a rate may fall, and a duration grow, by a factor of 1 + tolerance.
    `alpha` is this gate's part of the session's error, from `ErrorBudget`. `spread` is that of the metric here.
    """
    is_memory, requests = metric.name == "rss", None
    if is_memory:
        requests, (base, now) = alike(base, now)
    base_level, now_level = level_of(metric, base), level_of(metric, now)
    levels = MetricComparison(
        metric=metric.name,
        outcome=Outcome.INCONCLUSIVE,
        tolerance=tolerance,
        after_requests=requests,
        base=measured_of(metric, base) if base_level else None,
        now=now_level.value if now_level else None,
    )
    if base_level is None:
        return replace(levels, reason=why_no_level(metric, base, "base"))
    if now_level is None:
        return replace(levels, reason=why_no_level(metric, now, "now"))
    if is_memory and requests is None:
        return replace(levels, reason=Reason(kind=ReasonKind.MEMORY_COURSE))
    change = as_share(now_level.mean - base_level.mean)
    if min(base.requests, now.requests) < metric.least_requests:
        return replace(levels, change=change, reason=_why_too_few(metric, base, now))
    difference = difference_of(metric, base, now, (base_level, now_level), spread, rules)
    threshold = Threshold(limit=math.log1p(tolerance), alpha=alpha, bound_error=rules.bound_error)
    noise_of = NoiseOf.SESSIONS if 2 * spread.sd**2 > difference.error**2 else NoiseOf.BOOTS
    excluded = rules.excluded if metric.percentile is not None else rules.rate_excluded
    outcome, reason = _outcome(difference, threshold, tolerance, excluded, noise_of, rules)
    seen = as_share(difference.detectable(threshold, rules.power))
    low, high = sorted(metric.worse_sign * bound(rules.bound_error) for bound in (difference.low, difference.high))
    found = replace(
        levels,
        outcome=outcome,
        change=change,
        low=as_share(low),
        high=as_share(high),
        confidence=1 - 2 * rules.bound_error,
        detectable=seen if outcome is Outcome.REGRESSED else rules.told(seen, tolerance),
        reason=reason,
    )
    return unless_far_worse(found)


def difference_of(
    metric: Metric, base: Evidence, now: Evidence, levels: tuple[Level, Level], spread: Spread, rules: Rules = RULES
) -> Difference:
    """Returns how much worse `now` is than `base`, by their `levels`."""
    boot, df = variance_of_boots(metric, levels, set(base.stabilised) & set(now.stabilised), rules)
    boots, session = boot * sum(1 / len(level.boots) for level in levels), spread.sd**2
    return Difference(
        worse=metric.worse_sign * (levels[1].mean - levels[0].mean),
        error=math.sqrt(boots + session),
        df=(boots + session) ** 2 / (boots**2 / df + session**2 / spread.df),
    )


def _outcome(
    difference: Difference,
    threshold: Threshold,
    tolerance: float,
    excluded: ExcludedLoss,
    noise_of: NoiseOf,
    rules: Rules,
) -> tuple[Outcome, Reason | None]:
    if difference.is_worse(threshold):
        return Outcome.REGRESSED, None
    if difference.is_better(threshold):
        return Outcome.IMPROVED, Reason(kind=ReasonKind.IMPROVED)
    if difference.worse > threshold.limit:
        return Outcome.INCONCLUSIVE, Reason(kind=ReasonKind.NOISE, share=tolerance, noise_of=noise_of)
    if difference.is_below(excluded.at(threshold.limit), threshold.bound_error):
        return Outcome.PASS, None
    seen = as_share(difference.detectable(threshold, rules.power))
    if seen > (most := rules.most_told(tolerance)):
        return Outcome.INCONCLUSIVE, Reason(kind=ReasonKind.NOTHING_TOLD, share=most, noise_of=noise_of)
    allowed = _tolerance_for(difference, threshold, excluded)
    return Outcome.INCONCLUSIVE, Reason(kind=ReasonKind.UNSEEN, share=seen, tolerance=allowed, noise_of=noise_of)


def _tolerance_for(difference: Difference, threshold: Threshold, excluded: ExcludedLoss) -> float:
    """Returns the least tolerance, in whole per cents, with which this evidence would PASS."""
    limit = max(difference.worse, (difference.high(threshold.bound_error) - excluded.more) / excluded.tolerances)
    return math.floor(100 * math.expm1(limit) + 1) / 100


def _why_too_few(metric: Metric, base: Evidence, now: Evidence) -> Reason:
    side, count = ("now", now.requests) if now.requests <= base.requests else ("base", base.requests)
    return Reason(
        kind=ReasonKind.FEW_REQUESTS, metric=metric.name, side=side, count=count, needed=metric.least_requests
    )


def why_no_level(metric: Metric, evidence: Evidence, side: str) -> Reason:
    """Returns why a side, `base` or `now`, has no level of the metric."""
    if evidence.requests == 0:
        return Reason(kind=ReasonKind.NO_REQUEST, side=side)
    known = any(metric.name in values for boot in evidence.boots for values in (*boot.rounds, boot.runs))
    return Reason(kind=ReasonKind.WAS_ZERO if known else ReasonKind.NOT_MEASURED, metric=metric.name, side=side)
