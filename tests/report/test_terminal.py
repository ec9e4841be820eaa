"""Reports and tables on a terminal of any width, with any text, after failures; what they show is in `test_goldens`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import CPU_REGRESSED, ERRORS, NEW, PASSED, recording, result, steady, stored

from pytest_fileperf.judge.baseline import Why
from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.table import Grid, grid_lines, grid_of, member_names, share
from pytest_fileperf.report.terminal import brief_report, stale_lines, terminal_report
from pytest_fileperf.report.text import Screen, cells


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


# --- tables of groups


# --- which results are ranked, and which parameters make a grid


def test_groups_are_ranked_best_first_and_the_rest_stays_in_order() -> None:
    results = stored("variants").results
    record = session_record([*results[2:7], *results[:2], *results[7:]])
    assert record.alone == results[:2]
    groups = record.groups
    assert [group.title for group in groups][:2] == ["study A, uploads", "event loops"]
    members = [(each.test.label, place.rank) for each, place in groups[0].ordered()]
    assert members[0] == ("binary stream, sync write", 1)
    assert members[-1] == ("form, whole, def endpoint", 5)
    assert groups[0].results == results[2:7]


def test_a_wide_interval_ranks_before_a_better_value_that_is_worse_than_the_best_beyond_doubt() -> None:
    shaky = steady(400, boots=3, rounds=2)
    rounds = tuple(replace(each, requests=each.requests * (1 + 5 * (each.boot == 0))) for each in shaky.rounds)
    recordings = {"best": steady(2000, boots=3), "worse": steady(1000, boots=3), "shaky": replace(shaky, rounds=rounds)}
    (group,) = session_record(
        [result(f"test_{label}", label=label, group="x", recorded=each) for label, each in recordings.items()]
    ).groups
    assert [(each.test.label, place.rank) for each, place in group.ordered()] == [
        ("best", 1),
        ("shaky", 1),
        ("worse", 2),
    ]
    values = {each.test.label: place.value or 0.0 for each, place in group.ordered()}
    assert values["shaky"] < values["worse"]


@pytest.mark.parametrize(
    "members",
    [
        [result(group="of one")],
        [result(group="one without an answer"), result(recorded=recording(requests=0), group="one without an answer")],
        [result(group="smoke", smoke=True), result(group="smoke", smoke=True)],
        [result(), result()],
    ],
)
def test_what_cannot_be_ranked_stays_alone(members: list[Result]) -> None:
    assert session_record(members) == SessionRecord(results=tuple(members))


def cross(names: str, *values: Iterable[object]) -> list[Result]:
    """Returns a result for each combination given, as `parametrize` makes them."""
    keys = names.split(",")
    return [
        result(f"test_get[{'-'.join(map(str, combination))}]", params=dict(zip(keys, combination, strict=True)))
        for combination in values
    ]


FULL = [(size, server) for size in ("1KiB", "1MiB", "9MiB") for server in ("uvicorn-1", "uvicorn-2")]


def test_two_parameters_make_a_grid_with_the_longer_one_as_rows() -> None:
    grid = Grid(
        row_name="size",
        column_name="server",
        rows=("1KiB", "1MiB", "9MiB"),
        columns=("uvicorn-1", "uvicorn-2"),
        members={pair: at for at, pair in enumerate(FULL)},
    )
    assert grid_of(cross("size,server", *FULL)) == grid
    assert grid_of(cross("server,size", *((server, size) for size, server in FULL))) == grid


def test_one_hole_does_not_matter() -> None:
    grid = grid_of(cross("size,server", *FULL[:-1]))
    assert grid is not None
    assert ("9MiB", "uvicorn-2") not in grid.members


def test_parameters_that_are_the_same_everywhere_or_follow_from_another_do_not_matter() -> None:
    results = cross("kind,size,how,server", *(("get", size, f"with {size}", server) for size, server in FULL))
    grid = grid_of(results)
    assert grid is not None
    assert (grid.row_name, grid.column_name) == ("size", "server")
    assert (grid.rows, grid.columns) == (("1KiB", "1MiB", "9MiB"), ("uvicorn-1", "uvicorn-2"))


@pytest.mark.parametrize(
    "results",
    [
        cross("size", *(("1KiB",), ("1MiB",))),
        cross("size,server", *FULL[:2]),
        cross("size,server", FULL[0], FULL[3]),
        cross("a,b,c", *((a, b, c) for a in range(2) for b in range(2) for c in range(2))),
        [*cross("size,server", *FULL), result("test_other")],
        [result("test_one"), result("test_two")],
        [*cross("size,server", *FULL), *(replace(each) for each in cross("size,server", *FULL))],
    ],
    ids=["one parameter", "one row", "half empty", "three parameters", "one without", "none", "two in each cell"],
)
def test_there_is_no_grid_without_two_parameters_that_tell_all_apart(results: list[Result]) -> None:
    assert grid_of(results) is None


# --- rules for any group

WITHOUT_PERCENT = st.characters(codec="utf-8", exclude_characters="%")
"""A row's last percent sign ends its column."""


@settings(max_examples=10)
@given(
    title=st.text(min_size=1, max_size=60),
    names=st.lists(st.text(WITHOUT_PERCENT, min_size=1, max_size=60), min_size=2, max_size=2, unique=True),
    width=st.integers(40, 120),
)
def test_no_text_breaks_the_columns_of_a_ranking(title: str, names: list[str], width: int) -> None:
    members = [
        result(f"test_get[{name}]", params={"a": name, "b": at}, group=title, recorded=steady(1000 * (at + 1)))
        for at, name in enumerate(names)
    ]
    lines = terminal_report(session_record(members), width=width).split("\n")
    assert max(map(cells, lines)) <= width
    ends = {cells(line) - cells(line.split("%")[-1]) for line in lines if re.match(r"[12]  ", line)}
    assert len(ends) == 1


@pytest.mark.parametrize(
    "width,heading",
    [
        (80, ["requests/s by stack and loop", "stack      uvloop  asyncio  3.13 free-threaded  3.14 free-threaded"]),
        (60, ["requests/s by loop and stack", "loop                  bare  protocol"]),
        (20, []),
    ],
)
def test_a_grid_is_turned_or_left_out_where_it_is_too_wide(width: int, heading: list[str]) -> None:
    group = stored("variants").groups[1]
    grid = grid_of(group.results)
    assert grid is not None
    versions = tuple(f"3.{minor} free-threaded" for minor in (13, 14))
    wide = replace(grid, rows=("bare", "protocol"), columns=("uvloop", "asyncio", *versions))
    lines = grid_lines(wide, group, Screen(width=width))
    assert lines[:2] == heading


def test_members_are_called_by_their_parameters_where_they_differ_in_nothing_else() -> None:
    uploads, stacks, gated = (group.results for group in stored("variants").groups)
    assert member_names(stacks)[:3] == ("application-uvloop", "application-asyncio", "bare-uvloop")
    assert member_names(uploads)[:2] == ("binary stream, async write", "form, whole, async write")
    assert member_names(gated) == ("test_json", "test_form", "test_down")
    assert member_names([*stacks, *gated])[0] == "test_get[application-uvloop]"
    assert member_names([result("test_get[]"), result("test_get[a]")]) == ("test_get[]", "test_get[a]")


def test_shares_have_two_digits_or_more() -> None:
    texts = {1.0: "100", 0.834: "83", 0.0999: "10", 0.0994: "9.9", 0.0012: "0.12", 12.5: "1,250"}
    assert {ratio: share(ratio) for ratio in texts} == texts
