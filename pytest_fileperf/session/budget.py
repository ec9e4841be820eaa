"""Divides the time of `--fileperf-budget` among all comparisons of a session.

    test 1, test 2, …                              | the undecided ones again, while time is left
    a part of its equal share of the time then left | goes on from its end; first the test that likely needs least

Each of both passes may use half of a gate's error. Together they have the error of a comparison without a budget.
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
_FIRST = 0.75
"""Part of a test's equal share; the rest is for tests that need more."""
_AHEAD = 1.5
"""Multiple of the time that a comparison is likely to need: chance decides its real need."""
_LEAST_S = 2.0


@dataclass(eq=False, slots=True, kw_only=True)
class TimeBudget:
    total_s: float
    to_come: int = 1
    """Tests that are still to be measured, including the running one."""
    again: bool = False
    """Whether this is the second pass."""
    clock: Callable[[], float] = monotonic
    _begun_s: float | None = None
    _kept: dict[str, tuple[str, Comparison]] = field(default_factory=dict)
    """Undecided comparisons by the node id of their call; each with its test's."""
    _decided: dict[str, tuple[Result, ...]] = field(default_factory=dict)
    """Results of all other calls and their parts, by the node id of the call. They are not measured again."""
    _raised: dict[str, Exception] = field(default_factory=dict)
    """Errors that calls have raised, by node id."""

    @property
    def left_s(self) -> float:
        return self.total_s if self._begun_s is None else max(0.0, self.total_s + self._begun_s - self.clock())

    @property
    def is_over(self) -> bool:
        return self._begun_s is not None and self.left_s < _LEAST_S

    def part_s(self, nodeid: str) -> float:
        """Returns how long a call may take, from the beginning of its comparison."""
        if self._begun_s is None:
            self._begun_s = self.clock()
        equal_s = self.left_s / max(1, self.to_come)
        if nodeid not in self._kept:
            return max(_LEAST_S, _FIRST * equal_s)
        comparison = self._kept[nodeid][1]
        return comparison.spent_s + max(_LEAST_S, min(self.left_s, max(equal_s, _AHEAD * comparison.needs_s)))

    def kept(self, nodeid: str) -> Comparison | None:
        """Takes out the comparison to continue, if any."""
        _, comparison = self._kept.pop(nodeid, ("", None))
        return comparison

    def keep(self, nodeid: str, test: str, comparison: Comparison) -> None:
        if not self.again:
            self._kept[nodeid] = test, comparison

    def judged(self, nodeid: str, results: Sequence[Result]) -> None:
        """Keeps the results of a load and its parts as final, unless more time is likely to decide them."""
        outcomes = {item.outcome for result in results for item in result.verdict.comparisons}
        is_open = Outcome.INCONCLUSIVE in outcomes and Outcome.REGRESSED not in outcomes
        if not is_open or nodeid not in self._kept or self._kept[nodeid][1].needs_s <= 0:
            self._kept.pop(nodeid, None)
            self._decided[nodeid] = tuple(results)

    def decided(self, nodeid: str) -> tuple[Result, ...]:
        """Returns a call's final results from the first pass: the whole load first, then its parts."""
        return self._decided.get(nodeid, ())

    def failed(self, nodeid: str, error: Exception) -> None:
        """Keeps a call's error for the second pass: a test that caught the error expects it again."""
        self._raised[nodeid] = error

    def raised(self, nodeid: str) -> Exception | None:
        return self._raised.get(nodeid)

    def needs_s(self, test: str) -> float:
        """Returns how much more time is likely to decide a test; 0.0 if nothing continues."""
        return sum(comparison.needs_s for of, comparison in self._kept.values() if of == test)
