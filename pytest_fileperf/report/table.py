"""Tables that fit a width: the least important columns are left out first, then names are shortened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from pytest_fileperf.judge.grouping import param_id, param_texts
from pytest_fileperf.judge.groups import Place, RankedGroup
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.report import story
from pytest_fileperf.report.text import Screen, Style, amount, cells, pad, plain, shorten

RUN_METRICS = ("rps", "p50", "p99")
"""Metrics that every report has for every measurement."""
LEAST_NAME_CELLS = 12
_GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    heading: str = ""
    texts: tuple[str, ...]
    """A text for each row. `styles` has a style for each row, or is empty."""
    styles: tuple[Style, ...] = ()
    right: bool = False
    """Whether the texts are aligned to the right, as for numbers."""
    least_name_cells: int = 0
    """If the column would leave fewer cells than this for names, it is left out. 0 always shows it."""

    @property
    def width(self) -> int:
        return max(cells(text) for text in (self.heading, *self.texts))


Table: TypeAlias = Sequence[tuple[Column, int]]
"""The shown columns, each with its width in cells."""


def table_lines(table: Table, screen: Screen) -> list[str]:
    shown = []
    for column, size in table:
        styles = (Style.BOLD, *(column.styles or [Style.NONE] * len(column.texts)))
        shown.append(
            [
                pad(text, size, right=column.right, style=style, colour=screen.colour)
                for text, style in zip((column.heading, *column.texts), styles, strict=True)
            ]
        )
    return [_GAP.join(row).rstrip() for row in zip(*shown, strict=True)]


def table_of(names: Column, columns: Sequence[Column], *, width: int, before: Sequence[Column] = ()) -> Table:
    """Returns the columns `before`, the `names`, and the `columns` that fit into `width`, in this order.

    Columns with the greatest `least_name_cells` are left out first.
    """
    room = width - sum(column.width + len(_GAP) for column in before)
    shown = set()
    for at in sorted(range(len(columns)), key=lambda at: columns[at].least_name_cells):
        column = columns[at]
        left = room - len(_GAP) - column.width
        if column.least_name_cells == 0 or left >= min(names.width, column.least_name_cells):
            shown.add(at)
            room = left
    size = max(1, min(names.width, room))
    # All names are cut at the same place. It is chosen so that as many cut names as possible differ.
    ways = (tuple(shorten(name, size, tail=tail) for name in names.texts) for tail in (0.5, 0.75, 0.25, 1.0, 0.0))
    return [
        *((column, column.width) for column in before),
        (replace(names, texts=max(ways, key=lambda texts: len(set(texts)))), size),
        *((column, column.width) for at, column in enumerate(columns) if at in shown),
    ]


def row_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Returns each test's title. If other tests share the title, returns the test's name or node id."""
    tests = [result.test for result in results]
    bearers: dict[str, set[str]] = {}
    for test in tests:
        for name in {test.title, test.name}:
            bearers.setdefault(name, set()).add(test.item)
    named = (
        next((name for name in (test.title, test.name) if plain(name) and len(bearers[name]) == 1), test.item)
        for test in tests
    )
    return tuple(plain(f"{name} {test.further}") for name, test in zip(named, tests, strict=True))


def is_rough(name: str, result: Result) -> bool:
    """Whether the metric is a percentile of too few requests."""
    metric = METRICS[name]
    return metric.percentile is not None and 0 < result.measurement.requests < metric.least_requests


def metric_text(name: str, result: Result) -> str:
    """Returns a metric for a column: `~` marks a percentile of too few requests, `-` an unknown value."""
    metric = METRICS[name]
    # The few requests of a smoke run tell nothing about speed.
    value = metric.of_run(result.recording) if result.measurement.requests and not result.smoke else None
    return "-" if value is None else "~" * is_rough(name, result) + amount(value, metric.unit)


def metric_column(name: str, results: Sequence[Result], least_name_cells: int) -> Column:
    texts = tuple(metric_text(name, result) for result in results)
    return Column(heading=METRICS[name].title, texts=texts, right=True, least_name_cells=least_name_cells)


def outcome_column(results: Sequence[Result], *, heading: str = "outcome") -> Column:
    texts = tuple(result.standing.value for result in results)
    return Column(heading=heading, texts=texts, styles=tuple(story.STYLES[result.standing] for result in results))


# --- The grid that two parameters of a group make

Grid: TypeAlias = tuple[tuple[str, str], Mapping[tuple[str, str], int]]
"""Two parameters, and each test's index by its values: `(("app", "loop"), {("aiohttp", "uvloop"): 0})`."""


def sides_of(grid: Grid) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows, columns = (tuple(dict.fromkeys(values)) for values in zip(*grid[1], strict=True))
    return rows, columns


def _turned(grid: Grid) -> Grid:
    (row_name, column_name), members = grid
    return (column_name, row_name), {(column, row): member for (row, column), member in members.items()}


def grid_of(results: Sequence[Result]) -> Grid | None:
    """Returns the grid of two parameters in which each result has its own cell, and few cells are empty. Else None.

    The parameter with more values makes the rows.
    """
    texts = [param_texts(result.test) for result in results]
    shared = [name for name in texts[0] if all(name in each for each in texts)]
    varying = [name for name in shared if len({each[name] for each in texts}) > 1]
    for one, other in combinations(varying, 2):
        grid: Grid = (one, other), {(each[one], each[other]): member for member, each in enumerate(texts)}
        rows, columns = map(len, sides_of(grid))
        # At least three of four cells must have a member. If more cells are empty, the list is easier to read.
        if len(grid[1]) == len(results) >= rows * columns * 0.75:
            return _turned(grid) if columns > rows else grid
    return None


# --- A ranked group as text: its members, best first, and the grid of two parameters if there is one
#
#     event loops                requests/s  of best                 p99  limited by
# 1   Protocol, uvloop               25,234  100 %               61.0 ms  load generator
# 2   Protocol, asyncio              21,008   83 % [76, 91]      70.2 ms  server CPU
# 3=  aiohttp, bare, uvloop          13,269   53 % [48, 58]       104 ms  server CPU

_READABLE_NAME_CELLS = 24


def group_lines(
    group: RankedGroup, under: Callable[[Result, Screen], Sequence[str]], screen: Screen, *, said: LimitKind | None
) -> list[str]:
    """Returns a ranked group as lines: its table, its grid and its notes.

    `under` makes the lines below a row. `said` is the limit that the report names elsewhere, because all tests share
    it.
    """
    members, title, by = ranked_rows(group), plain(group.title), METRICS[group.metric]
    results = [result for result, _, _ in members]
    ranks, names, values, shares, intervals, limits = zip(*(texts for _, _, texts in members), strict=True)
    is_heading = cells(title) <= max(_READABLE_NAME_CELLS, *map(cells, names))
    lines = [] if is_heading else screen.flow([(title, Style.BOLD)])
    best = tuple(Style.GOOD if place.rank == 1 else Style.NONE for _, place, _ in members)
    ranked = Column(texts=ranks, styles=best)
    named = Column(heading=title if is_heading else "test", texts=names, styles=best)
    widest = max(map(cells, shares))
    ratios = tuple(pad(text, widest, right=True) + interval for text, interval in zip(shares, intervals, strict=True))
    # If only one percentile fits, it is p99: with busy connections, p50 follows from the requests/s.
    percentiles = {"p50": _READABLE_NAME_CELLS + 1, "p99": _READABLE_NAME_CELLS}
    columns = [
        Column(heading=by.title, texts=values, right=True),
        Column(heading="of best", texts=ratios, least_name_cells=LEAST_NAME_CELLS),
        *(metric_column(name, results, least) for name, least in percentiles.items() if name != by.name),
    ]
    # If columns must be left out, limits stay longer than percentiles: a limit may make the order meaningless.
    limited_by = Column(heading="limited by", texts=limits, least_name_cells=LEAST_NAME_CELLS)
    if len({*limits} - {"-"}) > 1:
        columns.append(limited_by)
    if {result.standing for result in results} != {Standing.UNGATED}:
        columns.append(outcome_column(results))
    table = table_of(named, columns, width=screen.width, before=[ranked])
    heading, *rows = table_lines(table, screen)
    lines.append(heading)
    below = Screen(width=screen.width - ranked.width, colour=screen.colour)
    for row, result in zip(rows, results, strict=True):
        lines += [row, *(" " * ranked.width + line for line in under(result, below))]
    grid = grid_of(group.results)
    if grid is not None and (shown := grid_lines(grid, group, screen)):
        lines += ["", *shown]
    has_limits = any(column is limited_by for column, _ in table)
    return lines + screen.remarks(story.rank_notes(group, said, in_table=has_limits))


def ranked_rows(group: RankedGroup) -> list[tuple[Result, Place, tuple[str, str, str, str, str, str]]]:
    """Returns the members, best first, with texts: `3=`, `aiohttp`, `13,269`, `53 %`, ` [48, 58]`, `server CPU`.

    An unknown text is `-`, but an unknown interval is empty.
    """
    members, unit = list(group.ordered()), METRICS[group.metric].unit
    names, found = member_names([result for result, _ in members]), []
    for name, (result, place) in zip(names, members, strict=True):
        rank = "-" if place.rank is None else f"{place.rank}{'=' * place.shared}"
        ratio = "-" if place.ratio is None else f"{share(place.ratio)} %"
        ends = [share(end) for end in (place.low, place.high) if end is not None]
        interval = f" [{', '.join(ends)}]" if len(ends) == 2 else ""
        limit = result.measurement.limit.kind.value if result.measurement.requests else "-"
        found.append((result, place, (rank, name, value_text(place, unit), ratio, interval, limit)))
    return found


def member_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Returns the tests' names, or only their parameters if nothing else differs."""
    names = row_names(results)
    functions = {name.partition("[")[0] for name in names}
    parameters = tuple(map(param_id, names))
    only_these = len(functions) == 1 and all(parameters) and all(name.endswith("]") for name in names)
    return parameters if only_these else names


def value_text(place: Place, unit: Unit) -> str:
    return "-" if place.value is None else amount(place.value, unit)


def share(ratio: float) -> str:
    """Returns a percentage without its unit: `83`, `9.5`, `0.12`."""
    percent = ratio * 100
    return f"{percent:,.0f}" if percent >= 9.95 else f"{percent:.2g}"


def grid_lines(grid: Grid, group: RankedGroup, screen: Screen) -> list[str]:
    """Returns the grid with the best cells marked. Empty if the grid does not fit."""
    metric, places = METRICS[group.metric], {place.member: place for place in group.places}
    no_place = Place(member=-1, rank=None)
    for each in (grid, _turned(grid)):
        (row_name, column_name), members = each
        rows, values = sides_of(each)
        columns = []
        for value in values:
            found = [places.get(members.get((row, value), -1), no_place) for row in rows]
            texts = tuple("*" * (place.rank == 1) + value_text(place, metric.unit) for place in found)
            styles = tuple(Style.GOOD if place.rank == 1 else Style.NONE for place in found)
            columns.append(Column(heading=plain(value), texts=texts, styles=styles, right=True))
        names = Column(heading=plain(row_name), texts=tuple(map(plain, rows)))
        if min(names.width, LEAST_NAME_CELLS) + sum(2 + column.width for column in columns) <= screen.width:
            above = f"{metric.title} by {plain(row_name)} and {plain(column_name)}"
            table = table_of(names, columns, width=screen.width)
            return [*screen.flow([(above, Style.NONE)]), *table_lines(table, screen)]
    return []
