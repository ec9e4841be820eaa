"""How exactly a level is known from the boots that it is the mean of.

A boot's log value is   level + boot's own offset + what its rounds or requests leave uncertain.

Its variance s² is the one observed, pooled over the sides (d degrees of freedom), moderated by the one expected
(d₀ degrees of freedom): (d₀ s₀² + d s²) / (d₀ + d). Three boots alone know their spread to a factor of two; without
this a lucky one would make any change "significant". s₀² is the usual offset of a boot plus what is uncertain within a
boot, as measured from the rounds of all sides, and s² is never less than the latter.
Source: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Stat. Appl. Genet. Mol. Biol. 3 (2004) article 3; the prior is a constant here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.level import Level, level_of, spread_of, tail_factor, variance_of_location
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.measure.metrics import Metric

__all__ = ("precision_of", "variance_of_boots")


def precision_of(metric: Metric, evidence: Evidence, rules: Rules = RULES) -> float:
    """Returns how exactly the metric's level is known: the standard error of its logarithm; infinite without a level.

    It is that of this session. How sessions differ is not in it.
    """
    level = level_of(metric, evidence)
    if level is None:
        return math.inf
    variance, _ = variance_of_boots(metric, [level], evidence.stabilised, rules)
    return math.sqrt(variance / len(level.boots))


def variance_of_boots(
    metric: Metric, levels: Sequence[Level], held: Collection[str], rules: Rules = RULES
) -> tuple[float, float]:
    """Returns the variance of a boot's log value and its degrees of freedom, from one side or both.

    `held` is what was held equal between all of these boots.
    """
    boot_sd = rules.boot_sd.given(held) * tail_factor(metric)
    within = _within(levels, rules.round_sd.given(held), rules)
    squares = math.fsum((value - level.mean) ** 2 for level in levels for value in level.boots)
    df = rules.boot_prior_df + sum(len(level.boots) - 1 for level in levels)
    return max((rules.boot_prior_df * (boot_sd**2 + within) + squares) / df, within), df


def _within(levels: Sequence[Level], usual_sd: float, rules: Rules) -> float:
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
