"""How much worse one side is than the other, how exactly that is known, and what it takes to be sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

__all__ = ("Difference", "Threshold", "as_share", "standard_errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What it takes to call a side worse, or better: it is shown to differ at all, and by more than is tolerated."""

    limit: float
    """log(1 + tolerance)."""
    alpha: float
    """Probability of error with which the difference is above 0."""
    bound_error: float
    """Probability of error with which it is above `limit`."""

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
        """Returns the lower bound."""
        return self.worse - self.margin(error)

    def high(self, error: float) -> float:
        """Returns the upper bound."""
        return self.worse + self.margin(error)

    def is_above(self, limit: float, error: float) -> bool:
        """Returns whether it is shown to be above the limit."""
        return self.low(error) > limit

    def is_below(self, limit: float, error: float) -> bool:
        """Returns whether it is shown to be below the limit."""
        return self.high(error) < limit

    def is_worse(self, threshold: Threshold) -> bool:
        """Returns whether it is shown to be a regression."""
        return self.is_above(0.0, threshold.alpha) and self.is_above(threshold.limit, threshold.bound_error)

    def is_better(self, threshold: Threshold) -> bool:
        """Returns whether it is shown to be an improvement."""
        return self.is_below(0.0, threshold.alpha) and self.is_below(-threshold.limit, threshold.bound_error)

    def least_shown(self, threshold: Threshold) -> float:
        """Returns the least observed `worse` that would be shown to be a regression, with errors as they are."""
        return max(self.margin(threshold.alpha), threshold.limit + self.margin(threshold.bound_error))

    def detectable(self, threshold: Threshold, power: float) -> float:
        """Returns the true worsening that would be shown to be a regression with probability `power`."""
        return self.least_shown(threshold) + self.margin(1 - power)


@lru_cache(maxsize=4096)
def standard_errors(error: float, df: float) -> float:
    """Returns how many standard errors off a one-sided bound is, at this probability of error: Student's t."""
    from scipy.special import stdtrit

    return -float(stdtrit(df, error))


def as_share(ratio: float) -> float:
    """Returns a log ratio as a share: 0.05 is 5 % more. Ratios that no float holds are cut off."""
    return math.expm1(max(-700.0, min(ratio, 700.0)))
