"""Tables of results: which ones are ranked, how groups and their grids look."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import recording, result, steady
from report.stored import stored

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.report.table import Grid, grid_lines, grid_of, member_names, share
from pytest_fileperf.report.terminal import terminal_report
from pytest_fileperf.report.text import Screen, cells

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
def test_no_text_breaks_the_columns(title: str, names: list[str], width: int) -> None:
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
