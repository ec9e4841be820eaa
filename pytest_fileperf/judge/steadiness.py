"""How steady a machine is from one session to another: learned from what unchanged code did, not assumed.

    spread² = (n₀ σ₀² + Σ w²) / (n₀ + n),   with n₀ + n degrees of freedom

w is the log change, in one of n sessions, of a baseline's own code against what is stored of it, and σ₀ what to expect
of a machine of which nothing is known, with the weight of n₀ sessions (`Rules.spread_sd`, `Rules.spread_prior_df`).
That weight falls to nothing as sessions become known (`Rules.spread_known`).
Changes are from what is stored, not from their mean: a baseline that caught a fast hour is off for good.
Source: a scaled inverse χ² prior for the variance, as in Gelman and others, "Bayesian Data Analysis" (2013), chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_fileperf.judge.difference import standard_errors
from pytest_fileperf.judge.level import tail_factor
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.metrics import METRICS, Metric

__all__ = ("Spread", "Steadiness", "changes_in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """By how much a metric of unchanged code changes from what is stored of it, in natural logarithms."""

    sd: float
    df: float
    """How well `sd` is known: degrees of freedom."""
    sessions: int = 0
    """How many sessions told it; 0 where it is only expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What earlier sessions on this machine have shown."""

    changes: tuple[Mapping[str, float], ...] = ()
    """Of each session, by metric: the root mean square of its tests' log changes of unchanged code. Sessions are hours
    apart: `history.History` takes runs of the same hours for one."""

    def spread(self, metric: Metric, rules: Rules = RULES) -> Spread:
        """Returns the spread of one metric; the module's text says how."""
        known = [changes[metric.name] for changes in self.changes if metric.name in changes]
        prior = rules.spread_prior_df * max(0.0, 1 - len(known) / rules.spread_known)
        df, expected = prior + len(known), rules.spread_sd * tail_factor(metric)
        variance = (prior * expected**2 + math.fsum(change**2 for change in known)) / df
        return Spread(sd=math.sqrt(variance), df=df, sessions=len(known))

    def is_steady(self, gate: Iterable[str], tolerances: Mapping[str, float], rules: Rules = RULES) -> bool:
        """Returns whether stored figures alone can decide: unchanged code would PASS, and what PASS excludes is seen.

        So it is where a change that is just tolerated would still PASS, if only sessions differed, as at least
        `Rules.least_sessions` sessions have shown for each metric. `tolerances` are shares by metric name; a metric
        that is not among them has its own.
        """
        return all(
            self._decides(metric, math.log1p(tolerances.get(metric.name, metric.tolerance)), rules)
            for metric in (METRICS[name] for name in gate)
        )

    def _decides(self, metric: Metric, limit: float, rules: Rules) -> bool:
        spread = self.spread(metric, rules)
        if spread.sessions < rules.least_sessions:
            return False
        return limit + standard_errors(rules.bound_error, spread.df) * spread.sd < rules.excluded.at(limit)


def changes_in(world: Iterable[MetricComparison]) -> dict[str, float]:
    """Returns what a session's comparisons of unchanged code tell of its machine: the root mean square by metric.

    `world` are comparisons of all tests of the session, from `judge.judge_world`.
    """
    squares: dict[str, list[float]] = {}
    for item in world:
        if item.change is not None and item.change > -1:
            squares.setdefault(item.metric, []).append(math.log1p(item.change) ** 2)
    return {name: math.sqrt(math.fsum(values) / len(values)) for name, values in sorted(squares.items())}
