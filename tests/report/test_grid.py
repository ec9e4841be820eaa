"""Which results are ranked, and which parameters make a grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from report.samples import recording, result
from report.variants import stacks, steady, uploads

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.report.table import Grid, grid_of


def test_groups_are_ranked_best_first_and_the_rest_stays_in_order() -> None:
    first, second = result("test_first"), result("test_second")
    record = session_record([first, *uploads(), second, *stacks()])
    groups = record.groups
    assert record.alone == (first, second)
    assert [group.title for group in groups] == ["study A, uploads", "event loops"]
    members = [(each.test.label, place.rank) for each, place in groups[0].ordered()]
    assert members[0] == ("binary stream, sync write", 1)
    assert members[-1] == ("form, whole, def endpoint", 5)
    assert [each.test.nodeid for each in groups[0].results] == [each.test.nodeid for each in uploads()]


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
