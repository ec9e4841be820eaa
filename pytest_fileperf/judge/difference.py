"""How much worse one version is than the other, how certain that is, and the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import fmean, variance
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.units import as_share

Values = TypeVar("Values", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """When a version counts as worse or better: it must surely differ, and surely by more than the tolerance."""

    limit: float
    """The tolerance as a log ratio: log(1 + tolerance)."""
    alpha: float
    """Accepted probability that versions seem to differ although they do not."""
    bound_error: float
    """Accepted probability that versions seem to differ by more than `limit` although they do not."""

    @classmethod
    def of(cls, tolerance: float, alpha: float) -> Threshold:
        """Returns the threshold for a tolerance.

        With 0.05, a duration may grow by a factor of 1.05, and a rate shrink by this factor.
        """
        return cls(limit=math.log1p(tolerance), alpha=alpha, bound_error=RULES.bound_error)

    def part(self, share: float) -> Threshold:
        """Returns the threshold for one of several judgements, which may use this share of both errors."""
        return Threshold(limit=self.limit, alpha=share * self.alpha, bound_error=share * self.bound_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much worse the new version is, as a log ratio: above 0 is worse for any metric.

    All bounds are one-sided. In methods, `error` is a bound's probability of error, by Student's t.
    """

    worse: float
    error: float
    """Standard error of `worse`."""
    df: float

    def margin(self, error: float) -> float:
        """Returns the distance between `worse` and a bound with this probability of error."""
        return standard_errors(error, self.df) * self.error

    def low(self, error: float) -> float:
        return self.worse - self.margin(error)

    def high(self, error: float) -> float:
        return self.worse + self.margin(error)

    def interval(self, metric: Metric) -> tuple[float, float]:
        """Returns the two ends of the interval that reports show for the change, as shares (`Rules.confidence`)."""
        low, high = sorted(metric.worse_sign * bound(RULES.bound_error) for bound in (self.low, self.high))
        return as_share(low), as_share(high)

    def is_above(self, limit: float, error: float) -> bool:
        return self.low(error) > limit

    def is_below(self, limit: float, error: float) -> bool:
        return self.high(error) < limit

    def is_worse(self, threshold: Threshold) -> bool:
        return self.is_above(0.0, threshold.alpha) and self.is_above(threshold.limit, threshold.bound_error)

    def is_better(self, threshold: Threshold) -> bool:
        return self.is_below(0.0, threshold.alpha) and self.is_below(-threshold.limit, threshold.bound_error)

    def least_shown(self, threshold: Threshold) -> float:
        """Returns the smallest value of `worse` that would count as a regression."""
        return max(self.margin(threshold.alpha), threshold.limit + self.margin(threshold.bound_error))

    def detectable(self, threshold: Threshold) -> float:
        """Returns the true worsening that would count as a regression with probability `Rules.power`."""
        return self.least_shown(threshold) + self.margin(1 - RULES.power)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How much worse the new version is, by a main figure and by a second one, the guard.

    Only versions that were loaded alternately have a guard. The guard finds losses that the main figure may hide.
    """

    metric: Metric
    main: Difference
    """For a rate of versions that were loaded alternately: its difference in typical moments, without stalls. For
    everything else: the difference over all requests."""
    guard: Difference | None = None
    """A rate's difference over all turns, or a percentile's difference for the requests between stalls. A stall is a
    pause of all requests."""
    pass_error: float
    """Accepted probability that a PASS overlooks a loss."""

    @property
    def is_calm(self) -> bool:
        """Whether the guard counts only requests between stalls. This is so for percentiles."""
        return self.metric.percentile is not None

    def parts(self, threshold: Threshold) -> list[tuple[Difference, Threshold]]:
        """Returns `main` and the guard, if there is one, each with its threshold.

        Both thresholds share the errors of `threshold`.
        """
        if self.guard is None:
            return [(self.main, threshold)]
        share = RULES.calm_share if self.is_calm else RULES.total_share
        return [(self.main, threshold.part(1 - share)), (self.guard, threshold.part(share))]

    def may_be_worse(self, limit: float) -> bool:
        """Returns whether the guard is surely worse than `limit`, a log ratio. If so, the outcome isn't PASS."""
        return self.guard is not None and self.guard.is_above(limit, RULES.bound_error)

    @property
    def tolerances(self) -> float:
        """A PASS rules out that `main` is worse by this many tolerances plus `Rules.excluded_more`."""
        return RULES.tail_tolerances if self.is_calm else 1.0

    def excluded(self, limit: float) -> float:
        """Returns the worsening of `main` that a PASS rules out, as a log ratio."""
        return self.tolerances * limit + RULES.excluded_more

    def seems_well(self, limit: float) -> bool:
        return self.main.worse <= limit and self.main.is_below(self.excluded(limit), self.pass_error)

    def may_lose(self, limit: float) -> bool:
        """Returns whether the guard still allows a great loss. If so, the outcome isn't PASS.

        `limit` is the tolerance as a log ratio. False if the metric isn't a rate.
        """
        if self.guard is None or self.metric.worse_sign > 0:
            return False
        return not self.guard.is_below(limit + RULES.total_more, RULES.rate_pass_error)


def decide(found: Differences, threshold: Threshold) -> tuple[Outcome | None, Difference | None]:
    """Returns the outcome (None if undecided), and the guard if only the guard shows a regression.

    The module docstrings of `gate` and `paired` have the rules.
    """
    main, *guard = (difference.is_worse(part) for difference, part in found.parts(threshold))
    if main:
        return Outcome.REGRESSED, None
    # Fewer stalls outweigh slower requests between them: then the percentile is not worse.
    if any(guard) and (not found.is_calm or found.main.is_above(threshold.limit, RULES.calm_error)):
        return Outcome.REGRESSED, found.guard
    may_be_worse = found.may_be_worse(threshold.limit)
    if found.main.is_better(threshold):
        return (None if may_be_worse and not found.is_calm else Outcome.IMPROVED), None
    if may_be_worse or found.may_lose(threshold.limit) or not found.seems_well(threshold.limit):
        return None, None
    return Outcome.PASS, None


def judged(
    levels: MetricComparison, outcome: Outcome | None, shown: Difference, seen: float, reason: Reason | None
) -> MetricComparison:
    """Returns a copy of the comparison `levels` with an outcome, and with the interval of the difference `shown`.

    The outcome None becomes INCONCLUSIVE. `seen` is the least worsening, as a share, that would have been found.
    """
    metric = METRICS[levels.metric]
    low, high = shown.interval(metric)
    is_watched = levels.outcome is Outcome.WATCHED
    is_told = not is_watched and (outcome is Outcome.REGRESSED or seen <= RULES.most_told(levels.tolerance))
    found = replace(
        levels,
        change=as_share(metric.worse_sign * shown.worse),
        low=low,
        high=high,
        confidence=RULES.confidence,
        detectable=seen if is_told else None,
    )
    return found.with_outcome(outcome or Outcome.INCONCLUSIVE, reason)


def compare_counts(
    metric: Metric,
    tolerance: float,
    base: Sequence[tuple[float, float]],
    now: Sequence[tuple[float, float]],
    *,
    pairs: int | None = None,
) -> MetricComparison:
    """Judges exact counts such as database queries per request.

    `base` and `now` contain each start-up's count and variance. One start-up suffices, because time adds no noise to
    counts. The outcome is REGRESSED if the growth surely exceeds `Rules.least_counted`, tolerance and floor.
    """
    compared = partial(MetricComparison.of, metric, tolerance, pairs=pairs)
    for side, known in (("base", base), ("now", now)):
        if not known:
            return compared().undecided(Reason(kind=ReasonKind.NOT_MEASURED, metric=metric.name, side=side))
    (old, old_variance), (new, new_variance) = (_mean_of(side) for side in (base, now))
    more, error = new - old, math.sqrt(old_variance + new_variance)
    margin = standard_errors(RULES.bound_error, math.inf) * error
    change, low, high = ((value / old if old else None) for value in (more, more - margin, more + margin))
    interval: dict[str, Any] = {"low": low, "high": high, "confidence": RULES.confidence}
    found = compared(base=old, now=new, change=change, **interval)
    limit = max(RULES.least_counted, found.tolerance * old, found.floor)
    # Four standard errors are enough for any session's probability of error.
    if abs(more) - margin > limit and abs(more) > RULES.counted_errors * error:
        if more > 0:
            return found.with_outcome(Outcome.REGRESSED, None)
        return found.with_outcome(Outcome.IMPROVED, Reason(kind=ReasonKind.IMPROVED))
    if more <= limit and more + margin <= 2 * limit + RULES.excluded_more * old:
        return found.with_outcome(Outcome.PASS, None)
    return found.undecided(Reason(kind=ReasonKind.COUNTS_VARY))


def _mean_of(boots: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the mean of the start-ups' values, and its variance. `boots` has (value, variance) for each start-up."""
    values, variances = zip(*boots, strict=True)
    between = variance(values) if len(boots) > 1 else 0.0
    return fmean(values), max(fmean(variances), between) / len(boots)


def moderated(squares: Values, df: float, *, usual: Values, weight: float) -> Values:
    """Returns a variance between the observed and the `usual` variance.

    The observed variance comes from `squares`, a sum of squared deviations with `df` degrees of freedom. `usual` weighs
    as much as `weight` degrees of freedom. Three values alone show their spread only to a factor of two. If they
    happened to agree, any change would be "significant".

    Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004) article 3; here the usual variance is a constant.
    """
    return (weight * usual + squares) / (weight + df)


@lru_cache(maxsize=4096)
def standard_errors(error: float, df: float) -> float:
    """Returns how many standard errors a one-sided bound lies from the estimate, by Student's t.

    `error` is the bound's probability of error.
    """
    from scipy.special import stdtrit

    return -float(stdtrit(df, error))
