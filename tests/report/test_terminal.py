"""The terminal's reports at any width, with any text, and after failures: what they show is in `test_goldens`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import CPU_REGRESSED, ERRORS, NEW, PASSED, recording, result
from report.stored import stored

from pytest_fileperf.judge.baseline import Why
from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.verdict import Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.terminal import brief_report, stale_lines, terminal_report
from pytest_fileperf.report.text import cells


@pytest.mark.parametrize(
    "session,narrowest",
    [("open_loops", 40), ("variants", 40), ("worlds", 40), ("every_kind", 75), ("limits", 75)],  # profiles never wrap
)
def test_no_line_is_too_wide_and_colour_changes_nothing_else(session: str, narrowest: int) -> None:
    for width, verbosity in ((narrowest, -1), (narrowest, 2), (81, 0), (100, 1), (200, 0)):
        text = terminal_report(stored(session), width=width, verbosity=verbosity)
        assert max(map(cells, text.split("\n"))) <= width
        coloured = terminal_report(stored(session), width=width, verbosity=verbosity, colour=True)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text


@settings(max_examples=15)
@given(
    name=st.text(min_size=1, max_size=200),
    label=st.none() | st.text(max_size=80),
    example=st.text(max_size=400),
    reason=st.text(max_size=200),
    width=st.integers(40, 160),
    verbosity=st.integers(-1, 2),
)
def test_no_text_breaks_the_columns(
    name: str, label: str | None, example: str, reason: str, width: int, verbosity: int
) -> None:
    failed = recording(requests=4, boots=1, rounds=1, failures=(Failure(kind="size", count=10**9, example=example),))
    absent = Reason(kind=ReasonKind.ABSENT, text=reason)
    verdict = Verdict(
        limits=(ERRORS,), comparisons=(CPU_REGRESSED, PASSED, *(replace(new, reason=absent) for new in NEW))
    )
    odd = result(name, label=label, recorded=failed, verdict=verdict, group=label, work=name)
    text = terminal_report(session_record([odd, *stored("first_run").results]), width=width, verbosity=verbosity)
    assert max(map(cells, text.split("\n"))) <= width
    rows = [line for line in text.split("\n") if line.endswith("  REGRESSED") and not line.startswith(" ")]
    if verbosity < 1:
        assert rows
        return
    heading = next(line for line in text.split("\n") if line.startswith("test ") and line.endswith("outcome"))
    assert cells(heading.removesuffix("outcome")) in {cells(row.removesuffix("REGRESSED")) for row in rows}


@pytest.mark.parametrize("session", ["all_plain", "one_regressed", "inconclusive", "failed_requests", "busy"])
def test_rows_alone_are_told_apart_from_reports_with_more_to_say(session: str) -> None:
    assert brief_report(stored(session), width=80)[1] == (session == "all_plain")


def test_without_results_there_is_no_text() -> None:
    assert brief_report(SessionRecord(), width=80) == ([], False)
    assert terminal_report(SessionRecord()) == ""


@pytest.mark.parametrize("session,told_once", [("one_regressed", "slow_digest"), ("failed_requests", "disk full")])
def test_what_a_failure_has_told_is_not_said_again(session: str, told_once: str) -> None:
    record = stored(session)
    for told, times in ((frozenset[str](), 1), ({record.results[0].test.nodeid}, 0)):
        lines, _ = brief_report(record, width=80, told=told)
        assert "".join(lines).count(told_once) == times
        assert lines[0].startswith("test_upload ")


def test_every_outcome_of_a_gate_has_a_standing() -> None:
    for outcome in Outcome:
        assert result(verdict=Verdict(comparisons=(replace(PASSED, outcome=outcome),))).standing.value == outcome.value


# --- the lines about baselines whose tests are gone

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
