"""The lines about baselines whose tests are gone."""

from __future__ import annotations

from pytest_fileperf.judge.baseline import Why
from pytest_fileperf.report.terminal import stale_lines

ONE = {"tests/test_a.py::test_old[\x1b]": Why.NO_TEST}
MANY = {f"tests/test_b.py::test_{at:02}": Why.NO_MODULE for at in range(12)}


def test_each_is_named_with_why_and_what_to_do() -> None:
    assert stale_lines(ONE, entries=1, removed=False, width=80, colour=False) == [
        "1 stale baseline; --fileperf-prune removes it",
        "  tests/test_a.py::test_old[\N{REPLACEMENT CHARACTER}]: no such test",
    ]


def test_what_was_removed() -> None:
    lines = stale_lines(
        {**ONE, "tests/test_b.py::test_00": Why.NO_MODULE}, entries=3, removed=True, width=80, colour=False
    )
    assert [lines[0], len(lines)] == ["removed 3 stale baselines", 3]


def test_many_are_cut_short_unless_asked_for() -> None:
    lines = stale_lines(MANY, entries=24, removed=False, width=80, colour=False)
    assert lines[0] == "24 stale baselines; --fileperf-prune removes them"
    assert lines[10:] == ["  tests/test_b.py::test_09: no such file", "  and of 2 more (-v shows all)"]
    assert len(stale_lines(MANY, entries=24, removed=False, width=80, colour=False, verbosity=1)) == 13
    assert len(stale_lines(MANY, entries=24, removed=False, width=80, colour=False, verbosity=-1)) == 1
