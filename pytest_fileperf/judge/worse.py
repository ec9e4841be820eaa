"""How much worse now is than base, and how exactly pairs of boots tell it: by a value that each of them shows.

Mean of the units
    Weighted by 1 / (τ² + v), τ being the usual difference of two boots of the same code, v what is uncertain about a
    unit by itself: pairs of a bad moment count less. Where a pair's cycles tell v, it is moderated by what is usual in
    the comparison, as a few that happen to agree make no pair exact. Of typical rates it is Huber's location ("Robust
    Estimation of a Location Parameter", Ann. Math. Statist. 35 (1964) 73–101): a unit that is more than two deviations
    off pulls no harder than one that is two off, as now and then a pair of the same code differs by a tenth. If the
    units differ by more than their weights say, the error of the mean grows by the ratio (Birge, "The calculation of
    errors by the method of least squares", Phys. Rev. 40 (1932) 207–227), which is moderated by `_PRIOR_DF` degrees of
    freedom (Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) article 3), as three pairs say little about their spread, and
    never below 1. Pairs of one or two cycles (of slow requests, or loads made as a whole) do not tell v: they have
    their own spread, hardly moderated as long as that is no more than what boots differ by, and not at all beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.unit import Unit

__all__ = ("LEAST_PAIRS", "Worse", "standard_errors", "worse_by_units")

LEAST_PAIRS = 3
"""Fewer say nothing about how much boots differ."""

_PRIOR_DF = 8
"""Weight of the usual spread, as that of nine pairs: how the spread of requests/s differed between 259 comparisons on
one kind of machine tells 7 to 20. Of memory it is taken over. It holds where boots differ by up to twice the usual."""
_ALONE_PRIOR_DF = 1
"""The same where no cycles tell what is uncertain about a pair: then pairs that agree by chance look exact."""
_LEAST_CYCLES = 3
"""Fewer do not tell what is uncertain about a pair: two may agree by chance."""
_PRIOR_CYCLES = 10
"""Weight of what a pair's cycles usually deviate by, as that of so many: its own one to thirty say little about it."""
_REACH = 2.0
"""Deviations from which on a unit pulls no harder."""
_NORMAL_MAD = 1.4826
"""A normal distribution's deviation over its median absolute deviation."""
_STEPS, _EXACT = 100, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Worse:
    """How much worse now is than base, as a log ratio, and how exactly that is known."""

    value: float
    error: float
    """Standard error of `value`."""
    df: float
    units: int

    def margin(self, error: float) -> float:
        """Returns the distance of a one-sided bound from `value`, at this probability of error."""
        return standard_errors(error, self.df) * self.error

    def low(self, error: float) -> float:
        """Returns the one-sided lower bound, at this probability of error."""
        return self.value - self.margin(error)

    def high(self, error: float) -> float:
        """Returns the one-sided upper bound, at this probability of error."""
        return self.value + self.margin(error)

    def is_above(self, limit: float, error: float) -> bool:
        """Returns whether it is shown to be above the limit, at this probability of error."""
        return self.low(error) > limit

    def is_below(self, limit: float, error: float) -> bool:
        """Returns whether it is shown to be below the limit, at this probability of error."""
        return self.high(error) < limit


def standard_errors(error: float, df: float) -> float:
    """Returns how many standard errors off a one-sided bound is, at this probability of error: Student's t."""
    from scipy.special import stdtrit

    return -float(stdtrit(df, error))


def worse_by_units(units: Sequence[Unit], *, usual: float, boots_anew: bool, robust: bool) -> Worse:
    """Returns the mean of units; `usual` is by how much two boots differ, as a log ratio.

    With `robust` none of them pulls harder than one that is two deviations off; else it is their plain weighted mean.
    Where units are of one or two cycles, and not two of more tell how uncertain they are, it is their plain mean; once
    they differ by more than boots do, by Student's t.
    """
    cycles = [unit.cycles for unit in units]
    alone = any(0 < count < _LEAST_CYCLES for count in cycles) and sum(count >= _LEAST_CYCLES for count in cycles) < 2
    values = np.array([unit.value for unit in units])
    variances = np.zeros_like(values) if alone else _moderated(units)
    weights = 1 / (usual**2 + variances)
    average = float(np.average(values, weights=weights))
    value, reach = _location(values, weights) if robust and not alone else (average, math.inf)
    deviations = _deviations(values, weights, value)
    squares = float((np.clip(deviations, -reach, reach) ** 2).sum())
    prior = _PRIOR_DF if not alone else _ALONE_PRIOR_DF if squares <= _usual_squares(len(units) - 1) else 0
    df = prior + len(units) - 1
    birge = max(1.0, (prior + squares) / df)
    # Two exact units far apart leave the location to ones that know little: half of the weight holds it all the same.
    held = max(float(weights[np.abs(deviations) <= reach].sum()), float(weights.sum()) / 2)
    # The luck of a boot that all pairs have in common is in each of them alike, and no number of pairs averages it out.
    common = 0.0 if boots_anew else usual**2 / 2
    return Worse(value=value, error=math.sqrt(birge * weights.sum() / held**2 + common), df=df, units=len(units))


def _moderated(units: Sequence[Unit]) -> NDArray[np.float64]:
    """Returns their variances; where cycles told them, as if `_PRIOR_CYCLES` more had deviated as the units' do."""
    variances = np.array([unit.variance for unit in units])
    cycles = np.array([unit.cycles for unit in units])
    if (cycles >= _LEAST_CYCLES).any():
        usual = float(np.median((variances * cycles)[cycles >= _LEAST_CYCLES]))
        told = cycles > 0
        many, own = cycles[told], variances[told]
        variances[told] = (_PRIOR_CYCLES * usual / many + many * own) / (_PRIOR_CYCLES + many)
    return variances


def _usual_squares(df: int) -> float:
    """Returns what squares of so many standard deviations sum to, at most, in half of all cases."""
    from scipy.special import chdtri

    return float(chdtri(df, 0.5))


def _location(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Returns Huber's location, and from how many deviations on a value pulled no harder."""
    location = float(np.median(values))
    reach = _REACH * max(1.0, _NORMAL_MAD * float(np.median(np.abs(_deviations(values, weights, location)))))
    for _ in range(_STEPS):
        far = np.maximum(1.0, np.abs(_deviations(values, weights, location)) / reach)
        before, location = location, float(np.average(values, weights=weights / far))
        if abs(location - before) < _EXACT:
            break
    return location, reach


def _deviations(values: NDArray[np.float64], weights: NDArray[np.float64], location: float) -> NDArray[np.float64]:
    return np.sqrt(weights) * (values - location)
