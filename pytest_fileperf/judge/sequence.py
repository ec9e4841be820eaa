"""Looks at the evidence of a comparison as it comes in, and says when it is enough. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.paired import compare_pairs, is_hopeless, share_of_looks
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, unless_far_worse
from pytest_fileperf.measure.metrics import METRICS

__all__ = ("MORE_S", "MOST_TIMES", "Sequential")

MOST_TIMES, MORE_S = 1.2, 4.0
"""So many times the limit, and so much more, are not exceeded, though there are too few pairs to tell anything."""
_SETTLED = (Outcome.PASS, Outcome.IMPROVED)


class Sequential:
    """The gates of one test, over all looks at them."""

    def __init__(
        self,
        tolerances: Mapping[str, float],
        *,
        alpha: float,
        limit_s: float,
        to_the_end: bool = False,
        rules: Rules = RULES,
    ) -> None:
        """`tolerances` has every gated metric by name; `alpha` is each gate's level, `limit_s` the time there is.

        With `to_the_end` all of the time is used, whatever is seen.
        """
        self._tolerances = tolerances
        self._alpha = alpha
        self._limit_s = limit_s
        self._to_the_end = to_the_end
        self._rules = rules
        self._looked_at = 0.0

    def look(self, pairs: Sequence[Pair], *, elapsed_s: float, next_s: float) -> tuple[MetricComparison, ...] | None:
        """Returns the verdict where it is time for one: all is decided, or the time does not do for another pair.

        `next_s` is what the next pair will take. None: go on.
        """
        if len(pairs) < self._rules.least_pairs and elapsed_s + next_s <= MOST_TIMES * self._limit_s + MORE_S:
            return None
        last = elapsed_s + next_s > self._limit_s
        at = 1.0 if last else min(elapsed_s / self._limit_s, 0.99)
        share = share_of_looks(self._looked_at, at, self._rules)
        if share <= 0:
            return None
        self._looked_at = at
        found = tuple(
            compare_pairs(METRICS[name], pairs, tolerance=tolerance, alpha=self._alpha, share=share, rules=self._rules)
            for name, tolerance in self._tolerances.items()
        )
        if not last and (self._to_the_end or not self._is_over(found, pairs, at)):
            return None
        return tuple(map(unless_far_worse, found))

    def _is_over(self, found: Sequence[MetricComparison], pairs: Sequence[Pair], at: float) -> bool:
        """Returns whether a regression is found, or nothing that is undecided can be decided in the time there is.

        Without a regression it takes a few more pairs.
        """
        if any(item.outcome is Outcome.REGRESSED for item in found):
            return True
        if len(pairs) < self._rules.settled_pairs:
            return False
        return all(
            is_hopeless(
                METRICS[item.metric],
                pairs,
                tolerance=item.tolerance,
                alpha=self._alpha,
                at=at,
                rules=self._rules,
            )
            for item in found
            if item.outcome not in _SETTLED
        )
