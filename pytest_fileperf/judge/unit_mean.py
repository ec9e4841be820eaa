"""How much worse now is than base by the values that pairs of boots show, and how exactly they tell it.

Mean of the units
    Weighted by 1 / (τ² + v): τ is the usual difference of two boots of the same code, v is what is uncertain about a
    unit by itself. So pairs of a bad moment count less. Where a pair's cycles tell v, it is moderated by what is usual
    in the comparison, as a few cycles that happen to agree make no pair exact. If the units differ by more than their
    weights say, the error of the mean grows by the ratio (Birge, "The calculation of errors by the method of least
    squares", Phys. Rev. 40 (1932) 207–227). The ratio is moderated by `Rules.pair_prior_df` degrees of freedom (Smyth,
    Stat. Appl. Genet. Mol. Biol. 3 (2004) article 3), as three pairs say little about their spread, and is never below
    1.

Pairs of one or two cycles
    Slow requests, or loads that are made as a whole, do not tell v. Such pairs have their own spread: hardly moderated
    as long as it is no more than what boots differ by, and not at all beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.difference import Difference
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.judge.unit import PairValue

__all__ = ("mean_difference",)


def mean_difference(units: Sequence[PairValue], *, usual: float, boots_anew: bool, rules: Rules = RULES) -> Difference:
    """Returns the weighted mean of units; `usual` is by how much two boots differ, as a log ratio."""
    values = np.array([unit.value for unit in units])
    alone = _tell_nothing_by_themselves(units, rules)
    weights = 1 / (usual**2 + (np.zeros(len(units)) if alone else _moderated(units, rules)))
    worse = float(np.average(values, weights=weights))
    squares = float(weights @ (values - worse) ** 2)
    prior = _prior_df(squares, len(units), alone=alone, rules=rules)
    df = prior + len(units) - 1
    birge = max(1.0, (prior + squares) / df)
    # The luck of a boot that all pairs have in common is in each of them alike: no number of pairs averages it out.
    common = 0.0 if boots_anew else usual**2 / 2
    return Difference(worse=worse, error=math.sqrt(birge / weights.sum() + common), df=df)


def _tell_nothing_by_themselves(units: Sequence[PairValue], rules: Rules) -> bool:
    """Returns whether some units have too few cycles, and fewer than two have enough to tell what is usual."""
    cycles = [unit.cycles for unit in units]
    few = any(0 < count < rules.least_cycles for count in cycles)
    return few and sum(count >= rules.least_cycles for count in cycles) < 2


def _moderated(units: Sequence[PairValue], rules: Rules) -> NDArray[np.float64]:
    """Returns their variances; where cycles told them, as if `prior_cycles` more had deviated as the units' do."""
    variances, cycles = (np.array([getattr(unit, name) for unit in units]) for name in ("variance", "cycles"))
    enough, known = cycles >= rules.least_cycles, cycles > 0
    if enough.any():
        usual = float(np.median((variances * cycles)[enough]))
        many, own = cycles[known], variances[known]
        variances[known] = (rules.prior_cycles * usual / many + many * own) / (rules.prior_cycles + many)
    return variances


def _prior_df(squares: float, units: int, *, alone: bool, rules: Rules) -> int:
    """Returns the weight of what boots usually differ by; `squares` are of the units' deviations in such differences.

    Units that tell nothing by themselves lose it where they deviate by more than half of all such units would.
    """
    from scipy.special import chdtri

    if not alone:
        return rules.pair_prior_df
    return rules.alone_prior_df if squares <= float(chdtri(units - 1, 0.5)) else 0
