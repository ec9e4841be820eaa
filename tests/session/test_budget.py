"""The time that the comparisons of a session share, on fake servers and a fake clock: who gets how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from session.fakes import GET, MS, TEST, App, Host, rig_of

from pytest_fileperf.errors import LimitExceededError
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.session.budget import TimeBudget
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.tree import CodeTree

EASY = Settings(app="app:app", connections=2, warmup_ns=0, gate=("rps",), tolerances={"rps": 4.0})
HARD = replace(EASY, gate=("p99",), tolerances={"p99": 0.01})
"""It takes more requests than a first part has time for."""


class Sharing:
    """A session with so many tests to come, which share so much time."""

    def __init__(self, top: Path, total_s: float, tests: int) -> None:
        for tree in ("here", "base"):
            (top / tree).mkdir()
        self.host = Host(base=App(latency_ns=10 * MS), now=App(latency_ns=10 * MS))
        self.time = TimeBudget(total_s=total_s, to_come=tests, clock=self.host.clock)
        rig, *_ = rig_of(self.host)
        base = CodeTree(title="main", here=top / "here", there=top / "base")
        self.session = Session(
            Options(baselines=top / "baselines"), replace(rig, time=self.time), against=base, gates=tests
        )

    def measure(self, name: str, settings: Settings = EASY) -> tuple[Result, float]:
        """Returns what was found of a test, and the seconds that it took."""
        begun_s = self.host.clock()
        self.session.measure(GET, settings, replace(TEST, nodeid=name))
        self.time.to_come -= 1
        return self.session.results[-1], self.host.clock() - begun_s

    def again(self, *names: str) -> None:
        self.time.again, self.time.to_come = True, len(names)
        for name in names:
            self.session.forget(name)


@pytest.fixture
def sharing(tmp_path: Path) -> Callable[[float, int], Sharing]:
    return lambda total_s, tests: Sharing(tmp_path, total_s, tests)


def outcome_of(result: Result) -> Outcome:
    (comparison,) = result.verdict.comparisons
    return comparison.outcome


def test_what_is_undecided_goes_on_with_the_time_that_others_left(sharing: Callable[[float, int], Sharing]) -> None:
    shared = sharing(76, 4)
    first, first_s = shared.measure("hard", HARD)
    assert outcome_of(first) is Outcome.INCONCLUSIVE
    assert "Give it more time with --fileperf-budget" in sentence(first.verdict.comparisons[0].reason)
    assert first_s < 76 / 4  # no more than an equal share
    easy = [shared.measure(f"easy{number}") for number in range(3)]
    assert {outcome_of(result) for result, _ in easy} == {Outcome.PASS}
    assert [shared.time.needs_s(name) > 0 for name in ("hard", "easy0")] == [True, False]
    booted, left_s = len(shared.host.booted), shared.time.left_s
    assert left_s == pytest.approx(76 - first_s - sum(seconds for _, seconds in easy))
    shared.again("hard")
    last, last_s = shared.measure("hard", HARD)
    assert 0 < last_s < left_s + 1
    assert outcome_of(last) is Outcome.PASS
    # It goes on with what it had, on further start-ups.
    assert len(last.pairs) == len(first.pairs) + (len(shared.host.booted) - booted) // 2 > len(first.pairs)
    assert last.pairs[: len(first.pairs)] == first.pairs
    assert last.base_seconds == pytest.approx(first_s + last_s, abs=2)
    assert [result.test.nodeid for result in shared.session.results] == ["easy0", "easy1", "easy2", "hard"]
    assert shared.time.needs_s("hard") == 0  # there is no third time


def test_a_slow_endpoint_gets_the_time_that_it_takes_at_least(sharing: Callable[[float, int], Sharing]) -> None:
    shared = sharing(60, 60)
    slow = App(latency_ns=300 * MS)
    shared.host.base = shared.host.now = slow
    found, seconds = shared.measure("slow")
    assert 10 < seconds < 60
    assert found.pairs


def test_a_call_that_raised_raises_again(sharing: Callable[[float, int], Sharing]) -> None:
    shared = sharing(60, 1)
    limited = replace(EASY, limits={"min_rps": 1e9})
    with pytest.raises(LimitExceededError) as first:
        shared.measure("limited", limited)
    shared.again("limited")
    with pytest.raises(LimitExceededError) as second:
        shared.measure("limited", limited)
    assert second.value is first.value
