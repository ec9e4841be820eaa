"""How much worse one side is than the other, how exactly that is known, and what that decides."""

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

Values = TypeVar("Values", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What it takes to call a side worse, or better: it is shown to differ at all, and by more than is tolerated."""

    limit: float
    """log(1 + tolerance)."""
    alpha: float
    """Probability of error with which the difference is above 0."""
    bound_error: float
    """Probability of error with which it is above `limit`."""

    @classmethod
    def of(cls, tolerance: float, alpha: float) -> Threshold:
        """`tolerance` is a share of the worse value."""
        return cls(limit=math.log1p(tolerance), alpha=alpha, bound_error=RULES.bound_error)

    def part(self, share: float) -> Threshold:
        """Returns the threshold that uses this share of both errors."""
        return Threshold(limit=self.limit, alpha=share * self.alpha, bound_error=share * self.bound_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much worse now is than base, as a log ratio: above 0 is worse, whatever the metric.

    All bounds are one-sided, by Student's t, and go by a probability of error.
    """

    worse: float
    error: float
    """Standard error of `worse`."""
    df: float

    def margin(self, error: float) -> float:
        """Returns the distance of a bound from `worse`."""
        return standard_errors(error, self.df) * self.error

    def low(self, error: float) -> float:
        return self.worse - self.margin(error)

    def high(self, error: float) -> float:
        return self.worse + self.margin(error)

    def interval(self, metric: Metric) -> tuple[float, float]:
        """Returns the one that is shown of the metric's change, as shares."""
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
        """Returns the least observed `worse` that would be shown to be a regression, with errors as they are."""
        return max(self.margin(threshold.alpha), threshold.limit + self.margin(threshold.bound_error))

    def detectable(self, threshold: Threshold) -> float:
        """Returns the true worsening that would be shown to be a regression with probability `Rules.power`."""
        return self.least_shown(threshold) + self.margin(1 - RULES.power)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How much worse now is, and by a guard beside it where both sides were measured in turn."""

    metric: Metric
    main: Difference
    """Of a rate in turn by the typical turns, else by all requests."""
    guard: Difference | None = None
    """What is judged beside it: of a rate the total over all turns, of a percentile the requests between stalls."""
    pass_error: float
    """Probability of error with which a PASS excludes a loss."""

    @property
    def is_calm(self) -> bool:
        """Whether it is a percentile, whose guard is between stalls."""
        return self.metric.percentile is not None

    def parts(self, threshold: Threshold) -> list[tuple[Difference, Threshold]]:
        """Returns `main`, and `guard` if there is one, each with its part of the errors."""
        if self.guard is None:
            return [(self.main, threshold)]
        share = RULES.calm_share if self.is_calm else RULES.total_share
        return [(self.main, threshold.part(1 - share)), (self.guard, threshold.part(share))]

    def may_be_worse(self, limit: float) -> bool:
        """Returns whether the guard speaks against a PASS."""
        return self.guard is not None and self.guard.is_above(limit, RULES.bound_error)

    @property
    def tolerances(self) -> float:
        """How many tolerances a PASS excludes of `main`, beside `Rules.excluded_more`."""
        return RULES.tail_tolerances if self.is_calm else 1.0

    def excluded(self, limit: float) -> float:
        """Returns the worsening of `main` that a PASS excludes, as a log ratio."""
        return self.tolerances * limit + RULES.excluded_more

    def seems_well(self, limit: float) -> bool:
        """Returns whether `main` has what a PASS needs."""
        return self.main.worse <= limit and self.main.is_below(self.excluded(limit), self.pass_error)

    def may_lose(self, limit: float) -> bool:
        """Returns whether the total of a rate does not exclude a loss that a PASS excludes."""
        if self.guard is None or self.metric.worse_sign > 0:
            return False
        return not self.guard.is_below(limit + RULES.total_more, RULES.rate_pass_error)


def decide(found: Differences, threshold: Threshold) -> tuple[Outcome | None, Difference | None]:
    """Returns the outcome, None if it is undecided, and the guard if it decided alone.

    The texts of `gate` and `paired` say what each outcome means.
    """
    main, *guard = (difference.is_worse(part) for difference, part in found.parts(threshold))
    if main:
        return Outcome.REGRESSED, None
    # Requests between stalls make a percentile no worse as long as there are fewer stalls for it.
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
    """Returns the levels of a metric with the outcome, None if it is undecided, and with what the difference shows.

    `seen` is the worsening that could have been seen, a share; it is left out where it is too great to be worth saying.
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
        confidence=1 - 2 * RULES.bound_error,
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
    """Judges what is counted exactly, by the values of the boots of each side, each with its variance.

    Its noise is which requests came, and what differs between boots: there is none where all requests are alike. So it
    is REGRESSED if it is more by `Rules.least_counted`, the tolerance or its floor, whichever is greatest. It takes one
    boot to say so, and no level of error: four standard errors are beyond that of any session.
    """
    compared = partial(MetricComparison.of, metric, tolerance, pairs=pairs)
    for side, known in (("base", base), ("now", now)):
        if not known:
            return compared().undecided(Reason(kind=ReasonKind.NOT_MEASURED, metric=metric.name, side=side))
    (old, old_variance), (new, new_variance) = (_mean_of(side) for side in (base, now))
    more, error = new - old, math.sqrt(old_variance + new_variance)
    margin = standard_errors(RULES.bound_error, math.inf) * error
    change, low, high = ((value / old if old else None) for value in (more, more - margin, more + margin))
    interval: dict[str, Any] = {"low": low, "high": high, "confidence": 1 - 2 * RULES.bound_error}
    found = compared(base=old, now=new, change=change, **interval)
    limit = max(RULES.least_counted, found.tolerance * old, found.floor)
    if abs(more) - margin > limit and abs(more) > RULES.counted_errors * error:
        if more > 0:
            return found.with_outcome(Outcome.REGRESSED, None)
        return found.with_outcome(Outcome.IMPROVED, Reason(kind=ReasonKind.IMPROVED))
    if more <= limit and more + margin <= 2 * limit + RULES.excluded_more * old:
        return found.with_outcome(Outcome.PASS, None)
    return found.undecided(Reason(kind=ReasonKind.COUNTS_VARY))


def _mean_of(boots: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the mean of the boots' values, and its variance, which is at least what boots differ by."""
    values, variances = zip(*boots, strict=True)
    between = variance(values) if len(boots) > 1 else 0.0
    return fmean(values), max(fmean(variances), between) / len(boots)


def moderated(squares: Values, df: float, *, usual: Values, weight: float) -> Values:
    """Returns a variance: that of deviations with these squares and degrees of freedom, drawn to the usual one.

    The usual one has the weight of so many degrees of freedom. Three values alone know their spread to a factor of
    two; without this a lucky one would make any change "significant". Source: Smyth, "Linear models and empirical Bayes
    methods for assessing differential expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004)
    article 3; what is usual is a constant here.
    """
    return (weight * usual + squares) / (weight + df)


@lru_cache(maxsize=4096)
def standard_errors(error: float, df: float) -> float:
    """Returns how many standard errors off a one-sided bound is, at this probability of error: Student's t."""
    from scipy.special import stdtrit

    return -float(stdtrit(df, error))


def as_share(ratio: float) -> float:
    """Returns a log ratio as a share: 0.05 is 5 % more. Ratios that no float holds are cut off."""
    return math.expm1(max(-700.0, min(ratio, 700.0)))
