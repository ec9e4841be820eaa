"""Whole reports with ranked groups, compared with the files in `golden/`; the rest are rules for any group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import CONCURRENCY, SERVER_CPU, result
from report.variants import bursts, form_uploads, gated, kept_up, stacks, steady, uploads

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.report.table import grid_lines, grid_of, member_names, share
from pytest_fileperf.report.terminal import terminal_report
from pytest_fileperf.report.text import Screen, cells

GOLDEN = Path(__file__).parent / "golden"


def variants() -> tuple[Result, ...]:
    alone = result("test_list", limit=CONCURRENCY), result("test_single", group="of one", limit=SERVER_CPU)
    return (*alone, *uploads(), *stacks(), *gated())


def open_loops() -> tuple[Result, ...]:
    alone = (replace(each, test=replace(each.test, group=None)) for each in bursts())
    return (next(alone), *form_uploads(), *bursts(), *kept_up())


SESSIONS: dict[str, Callable[[], tuple[Result, ...]]] = {"variants": variants, "open_loops": open_loops}


@cache
def record(session: str) -> SessionRecord:
    return session_record(SESSIONS[session]())


@pytest.mark.parametrize(
    "session,width,verbosity",
    [
        ("variants", 48, 0),
        ("variants", 80, -1),
        ("variants", 80, 0),
        ("variants", 120, 0),
        ("open_loops", 48, 0),
        ("open_loops", 80, 0),
        ("open_loops", 80, 1),
        ("open_loops", 120, 0),
    ],
)
def test_whole_report(session: str, width: int, verbosity: int) -> None:
    expected = (GOLDEN / f"{session}_{width}_{verbosity}.txt").read_text(encoding="utf-8")
    assert terminal_report(record(session), width=width, verbosity=verbosity) == expected


def test_whole_report_in_colour() -> None:
    expected = (GOLDEN / "variants_80_0_colour.txt").read_text(encoding="utf-8").replace("<ESC>", "\x1b")
    assert terminal_report(record("variants"), width=80, colour=True) == expected


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("width", [40, 61, 80, 100, 200])
@pytest.mark.parametrize("session", SESSIONS)
def test_no_line_is_too_wide_and_colour_changes_nothing_else(session: str, width: int, verbosity: int) -> None:
    text = terminal_report(record(session), width=width, verbosity=verbosity)
    assert max(map(cells, text.split("\n"))) <= width
    coloured = terminal_report(record(session), width=width, verbosity=verbosity, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text


WITHOUT_PERCENT = st.characters(codec="utf-8", exclude_characters="%")
"""A row's last percent sign ends its column."""


@settings(max_examples=30)
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


def in_group(members: Iterable[Result], title: str | None) -> list[Result]:
    return [replace(each, test=replace(each.test, group=title)) for each in members]


def test_what_limited_all_of_a_group_is_said_once() -> None:
    group = [result(name, group="bodies", limit=SERVER_CPU) for name in ("test_json", "test_form")]
    other = result("test_list", limit=CONCURRENCY)
    text = terminal_report(session_record([*group, other]))
    assert text.count("limited by server CPU") == text.count("\nall limited by server CPU\n") == 1
    assert "  limited by concurrency: " in text


def test_what_limited_every_run_is_said_once() -> None:
    group = [result(name, group="bodies", limit=SERVER_CPU) for name in ("test_json", "test_form")]
    text = terminal_report(session_record([*group, result("test_list", limit=SERVER_CPU)]))
    assert text.count("limited by") == text.count("\nall limited by server CPU\n") == 1


@pytest.mark.parametrize(
    "width,heading",
    [
        (80, ["requests/s by stack and loop", "stack      uvloop  asyncio  3.13 free-threaded  3.14 free-threaded"]),
        (60, ["requests/s by loop and stack", "loop                  bare  protocol"]),
        (20, []),
    ],
)
def test_a_grid_is_turned_or_left_out_where_it_is_too_wide(width: int, heading: list[str]) -> None:
    (group,) = session_record(tuple(stacks())).groups
    grid = grid_of(group.results)
    assert grid is not None
    versions = tuple(f"3.{minor} free-threaded" for minor in (13, 14))
    wide = replace(grid, rows=("bare", "protocol"), columns=("uvloop", "asyncio", *versions))
    lines = grid_lines(wide, group, Screen(width=width))
    assert lines[:2] == heading


@pytest.mark.parametrize(
    "members,names",
    [
        (stacks, ("application-uvloop", "application-asyncio", "bare-uvloop")),
        (uploads, ("binary stream, async write", "form, whole, async write", "form, chunks, async write")),
        (gated, ("test_json", "test_form", "test_down")),
        (lambda: [*stacks(), *gated()], ("test_get[application-uvloop]", "test_get[application-asyncio]")),
        (lambda: map(result, ("test_get[]", "test_get[a]")), ("test_get[]", "test_get[a]")),
    ],
)
def test_members_are_called_by_their_parameters_where_they_differ_in_nothing_else(
    members: Callable[[], Iterable[Result]], names: tuple[str, ...]
) -> None:
    assert member_names(list(members()))[: len(names)] == names


@pytest.mark.parametrize(
    "ratio,text", [(1.0, "100"), (0.834, "83"), (0.0999, "10"), (0.0994, "9.9"), (0.0012, "0.12"), (12.5, "1,250")]
)
def test_shares_have_two_digits_or_more(ratio: float, text: str) -> None:
    assert share(ratio) == text


def test_another_way_to_group() -> None:
    members = in_group(stacks(), None)
    text = terminal_report(session_record(members, ["param:loop"]))
    assert text.startswith("   loop=uvloop")
    assert "\n   loop=asyncio" in text
    assert "no test has a parameter" not in text


def test_a_parameter_to_group_by_that_no_test_has_is_told() -> None:
    text = terminal_report(session_record(in_group(stacks(), None), ["param:lop"]))
    assert "\nno test has a parameter lop to group by\n" in text
    assert "of best" not in text
