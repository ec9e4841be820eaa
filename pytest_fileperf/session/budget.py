"""Divides the time of `--fileperf-budget` among all comparisons of a session.

    first pass, of all tests                       | second pass, of undecided tests, while time is left
    each gets ¾ of its equal share of the time left | each goes on; the test with the least time to go is first

Each pass gets half of a gate's allowed probability of a false alarm. So a budget does not make false alarms likelier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from pytest_fileperf.judge.verdict import Outcome

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import Result
    from pytest_fileperf.session.comparison import Comparison

TIMES = 2
_LEAST_S = 2.0


@dataclass(eq=False, slots=True, kw_only=True)
class TimeBudget:
    total_s: float
    to_come: int = 1
    """How many tests are still to be measured, including the running one."""
    again: bool = False
    """Whether this is the second pass, which continues comparisons that the first pass left undecided."""
    clock: Callable[[], float] = monotonic
    _begun_s: float | None = None
    _kept: dict[str, Comparison] = field(default_factory=dict)
    """Comparisons that the second pass may continue, by `TestId.nodeid` (each measurement of a test has its own)."""
    _decided: dict[str, tuple[Sequence[Result], Exception | None]] = field(default_factory=dict)
    """Final results by `TestId.nodeid`, each with the error that the measurement raised."""

    @property
    def left_s(self) -> float:
        return self.total_s if self._begun_s is None else max(0.0, self.total_s + self._begun_s - self.clock())

    @property
    def is_over(self) -> bool:
        return self._begun_s is not None and self.left_s < _LEAST_S

    def part_s(self, nodeid: str) -> float:
        """Returns how many seconds the comparison of `nodeid` may take, including its time in the first pass."""
        if self._begun_s is None:
            self._begun_s = self.clock()
        equal_s = self.left_s / max(1, self.to_come)
        if nodeid not in self._kept:
            return max(_LEAST_S, 0.75 * equal_s)  # the rest is for tests that need more
        comparison = self._kept[nodeid]
        # Chance decides whether the likely time is enough, so a call gets more.
        return comparison.spent_s + max(_LEAST_S, min(self.left_s, max(equal_s, 1.5 * comparison.needs_s)))

    def kept(self, nodeid: str) -> Comparison | None:
        return self._kept.pop(nodeid, None)

    def keep(self, comparison: Comparison) -> None:
        if not self.again:
            self._kept[comparison.plan.test.nodeid] = comparison

    def judged(self, nodeid: str, results: Sequence[Result], error: Exception | None) -> None:
        """Makes `results` and `error` final, unless more time is likely to decide the comparison."""
        outcomes = {item.outcome for result in results for item in result.verdict.comparisons}
        is_open = Outcome.INCONCLUSIVE in outcomes and Outcome.REGRESSED not in outcomes
        if not is_open or nodeid not in self._kept or self._kept[nodeid].needs_s <= 0:
            self._kept.pop(nodeid, None)
            self._decided[nodeid] = results, error

    def decided(self, nodeid: str) -> tuple[Sequence[Result], Exception | None] | None:
        """Returns the final results and the error of a measurement. None if nothing is final yet."""
        return self._decided.get(nodeid)

    def needs_s(self, test: str) -> float:
        """Returns how many more seconds the undecided comparisons of `test` (a node id) likely need."""
        return sum(own.needs_s for own in self._kept.values() if own.plan.test.item == test)
