"""Looks at the evidence of a comparison as it comes in, and says when it is enough. Pure: is told the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.paired import compare_pairs, is_hopeless, share_of_looks
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.judge.worse import LEAST_PAIRS
from pytest_fileperf.measure.metrics import METRICS

__all__ = ("Sequential",)

_SETTLED = (Outcome.PASS, Outcome.IMPROVED)


class Sequential:
    """The gates of one test, over all looks at them."""

    def __init__(
        self, tolerances: Mapping[str, float], *, alpha: float, limit_s: float, to_the_end: bool = False
    ) -> None:
        """`tolerances` has every gated metric by name; `alpha` is each gate's level, `limit_s` the time there is.

        With `to_the_end` all of the time is used, whatever is seen.
        """
        self._tolerances = tolerances
        self._alpha = alpha
        self._limit_s = limit_s
        self._to_the_end = to_the_end
        self._looked_at = 0.0

    def look(self, pairs: Sequence[Pair], *, elapsed_s: float, next_s: float) -> tuple[MetricComparison, ...] | None:
        """Returns the verdict where it is time for one: all is decided, or the time does not do for another pair.

        `next_s` is what the next pair will take. None: go on.
        """
        if len(pairs) < LEAST_PAIRS:
            return None
        last = elapsed_s + next_s > self._limit_s
        at = 1.0 if last else min(elapsed_s / self._limit_s, 0.99)
        share = share_of_looks(self._looked_at, at)
        if share <= 0:
            return None
        self._looked_at = at
        found = self._compared(pairs, share, last=last)
        if last:
            return found
        if self._to_the_end or not self._is_over(found, pairs, at):
            return None
        explained = self._compared(pairs, share, last=True)
        return tuple(
            replace(item, reason=full.reason) if item.outcome is Outcome.INCONCLUSIVE else item
            for item, full in zip(found, explained, strict=True)
        )

    def _compared(self, pairs: Sequence[Pair], share: float, *, last: bool) -> tuple[MetricComparison, ...]:
        return tuple(
            compare_pairs(METRICS[name], pairs, tolerance=tolerance, alpha=self._alpha, share=share, last=last)
            for name, tolerance in self._tolerances.items()
        )

    def _is_over(self, found: Sequence[MetricComparison], pairs: Sequence[Pair], at: float) -> bool:
        """Returns whether a regression is found, or nothing that is undecided can be decided in the time there is."""
        if any(item.outcome is Outcome.REGRESSED for item in found):
            return True
        return all(
            is_hopeless(METRICS[item.metric], pairs, tolerance=item.tolerance, alpha=self._alpha, at=at)
            for item in found
            if item.outcome not in _SETTLED
        )
