"""Tables that fit a width: the least important columns are left out first, then names are shortened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from pytest_fileperf.judge.grouping import param_id, param_texts
from pytest_fileperf.judge.groups import Place, RankedGroup
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.report.story import STYLES
from pytest_fileperf.report.text import Screen, Style, amount, cells, pad, paint, plain, shorten

LEAST_NAME_CELLS = 12
_GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading and a text for each row."""

    heading: str
    texts: tuple[str, ...]
    styles: tuple[Style, ...] = ()
    """One for each row, or none."""
    right: bool = False
    """Aligned to the right, as numbers are."""
    least_name_cells: int = 0
    """Cells that names must keep for the column to be shown, or all that the longest needs; 0 is always shown."""

    @property
    def width(self) -> int:
        """The cells it takes."""
        return max(cells(text) for text in (self.heading, *self.texts))


Table: TypeAlias = Sequence[tuple[Column, int]]
"""The columns that are shown, each with the cells it gets."""


def table_lines(table: Table, screen: Screen) -> list[str]:
    """Returns the heading, and a line for each row."""
    headings = (_cell(column.heading, Style.BOLD, column, size, screen.colour) for column, size in table)
    lines = [_GAP.join(headings).rstrip()]
    for at in range(len(table[0][0].texts)):
        texts = (
            _cell(column.texts[at], column.styles[at] if column.styles else Style.NONE, column, size, screen.colour)
            for column, size in table
        )
        lines.append(_GAP.join(texts).rstrip())
    return lines


def _cell(text: str, style: Style, column: Column, size: int, colour: bool) -> str:
    text = shorten(text, size)
    space = " " * (size - cells(text))
    painted = paint(text, style, colour=colour)
    return space + painted if column.right else painted + space


def table_of(names: Column, columns: Sequence[Column], *, width: int, before: Sequence[Column] = ()) -> Table:
    """Returns the table with the columns that there is room for, the most important ones first.

    Columns keep their order. Those `before` the names are always shown.
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
    # All are cut at one place: the one that leaves most of them different.
    ways = (tuple(shorten(name, size, tail=tail) for name in names.texts) for tail in (0.5, 0.75, 0.25, 1.0, 0.0))
    told_apart = max(ways, key=lambda texts: len(set(texts)))
    return [
        *((column, column.width) for column in before),
        (replace(names, texts=told_apart), size),
        *((column, column.width) for at, column in enumerate(columns) if at in shown),
    ]


def row_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Returns a name for each row: the test's title, or its name where others share the title, or else its node id.

    The second run of a test has `#2` behind its name.
    """
    tests = [result.test for result in results]
    bearers: dict[str, set[str]] = {}
    for test in tests:
        for name in {test.title, test.name}:
            bearers.setdefault(name, set()).add(test.item)
    named = (
        next(
            (name for name in (test.title, test.name) if plain(name) and len(bearers[name]) == 1),
            test.item,
        )
        for test in tests
    )
    return tuple(plain(f"{name} {test.further}") for name, test in zip(named, tests, strict=True))


def is_rough(name: str, result: Result) -> bool:
    """Returns whether it is a percentile of too few requests."""
    metric = METRICS[name]
    return metric.percentile is not None and 0 < result.measurement.requests < metric.least_requests


def metric_text(name: str, result: Result) -> str:
    """Returns a metric of the whole run for a column; `~` marks a percentile of too few requests."""
    metric = METRICS[name]
    value = metric.of_run(result.recording) if result.measurement.requests else None
    if value is None:
        return "-"
    return "~" * is_rough(name, result) + amount(value, metric.unit)


def metric_column(name: str, results: Sequence[Result], least_name_cells: int) -> Column:
    """Returns the column of a metric of the whole runs."""
    texts = tuple(metric_text(name, result) for result in results)
    return Column(heading=METRICS[name].title, texts=texts, right=True, least_name_cells=least_name_cells)


def outcome_column(results: Sequence[Result], *, heading: str = "outcome") -> Column:
    """Returns the column of the standings."""
    standings = [result.standing for result in results]
    texts, styles = tuple(each.value for each in standings), tuple(STYLES[each] for each in standings)
    return Column(heading=heading, texts=texts, styles=styles)


# --- The grid that two parameters of a group of measurements make


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values of two parameters, and the member of each cell."""

    row_name: str
    """The parameter whose values are the rows."""
    column_name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    members: Mapping[tuple[str, str], int]
    """Indices into the group's results, by row and column; a cell may be missing."""

    def turned(self) -> Grid:
        """Returns it with rows and columns exchanged."""
        members = {(column, row): member for (row, column), member in self.members.items()}
        return Grid(
            row_name=self.column_name,
            column_name=self.row_name,
            rows=self.columns,
            columns=self.rows,
            members=members,
        )


def grid_of(results: Sequence[Result]) -> Grid | None:
    """Returns the grid of the first two parameters that tell all results apart, with few holes, or None.

    The parameter with more values makes the rows.
    """
    texts = [param_texts(result.test) for result in results]
    shared = [name for name in texts[0] if all(name in each for each in texts)]
    varying = [name for name in shared if len({each[name] for each in texts}) > 1]
    for one, other in combinations(varying, 2):
        members = {(each[one], each[other]): member for member, each in enumerate(texts)}
        grid = Grid(
            row_name=one,
            column_name=other,
            rows=tuple(dict.fromkeys(each[one] for each in texts)),
            columns=tuple(dict.fromkeys(each[other] for each in texts)),
            members=members,
        )
        # Three of four cells must have a member: with more holes the list shows more.
        if len(members) == len(results) >= len(grid.rows) * len(grid.columns) * 0.75:
            return grid.turned() if len(grid.columns) > len(grid.rows) else grid
    return None


# --- A ranked group as text: its members, best first, and the grid of two parameters where there is one
#
#     event loops                requests/s  of best                 p99  limited by
# 1   Protocol, uvloop               25,234  100 %               61.0 ms  load generator
# 2   Protocol, asyncio              21,008   83 % [76, 91]      70.2 ms  server CPU
# 3=  aiohttp, bare, uvloop          13,269   53 % [48, 58]       104 ms  server CPU

_READABLE_NAME_CELLS = 24
"""Cells that a name keeps before p50 and p99 are shown. What limited the run comes first: it may void the order."""
_LIMITED_BY = "limited by"
_PERCENTILES = ("p99", "p50")
"""The first one is left out last: with all connections at work, p50 follows from the rate."""
OUTSIDE = (LimitKind.GENERATOR, LimitKind.JOURNEY, LimitKind.NETWORK)
"""Limits that are not the server's own."""


def group_lines(
    group: RankedGroup, under: Callable[[Result, Screen], Sequence[str]], screen: Screen, *, said: LimitKind | None
) -> list[str]:
    """Returns the table of a group, its grid and its notes.

    `under` makes the lines below a row; `said` is what limited every run of the session.
    """
    results = [result for result, _ in group.ordered()]
    title, names = plain(group.title), member_names(results)
    is_heading = cells(title) <= max(_READABLE_NAME_CELLS, *map(cells, names))
    lines = [] if is_heading else screen.flow([(title, Style.BOLD)])
    places = group.places
    best = tuple(Style.GOOD if place.rank == 1 else Style.NONE for place in places)
    ranks = Column(heading="", texts=tuple(map(rank_text, places)), styles=best)
    named = Column(heading=title if is_heading else "test", texts=names, styles=best)
    table = table_of(named, _columns(group, results), width=screen.width, before=[ranks])
    heading, *rows = table_lines(table, screen)
    lines.append(heading)
    below = Screen(width=screen.width - ranks.width, colour=screen.colour)
    for row, result in zip(rows, results, strict=True):
        lines += [row, *(" " * ranks.width + line for line in under(result, below))]
    grid = grid_of(group.results)
    if grid is not None and (shown := grid_lines(grid, group, screen)):
        lines += ["", *shown]
    has_limits = any(column.heading == _LIMITED_BY for column, _ in table)
    return lines + screen.remarks(_notes(group, said, in_table=has_limits))


def member_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Returns a name for each row; only the parameters where tests differ in nothing else."""
    names = row_names(results)
    functions = {name.partition("[")[0] for name in names}
    parameters = tuple(map(param_id, names))
    only_these = len(functions) == 1 and all(parameters) and all(name.endswith("]") for name in names)
    return parameters if only_these else names


def _columns(group: RankedGroup, results: Sequence[Result]) -> list[Column]:
    by = METRICS[group.metric]
    values = tuple(value_text(place, by.unit) for place in group.places)
    ranked = Column(heading=by.title, texts=values, right=True)
    rest = [
        metric_column(name, results, _READABLE_NAME_CELLS + at)
        for at, name in enumerate(_PERCENTILES)
        if name != by.name
    ]
    ratios = Column(heading="of best", texts=_ratios(group.places), least_name_cells=LEAST_NAME_CELLS)
    columns = [ranked, ratios, *reversed(rest)]
    kinds = list(map(limit_word, results))
    if len({*kinds} - {"-"}) > 1:
        columns.append(Column(heading=_LIMITED_BY, texts=tuple(kinds), least_name_cells=LEAST_NAME_CELLS))
    if {result.standing for result in results} != {Standing.UNGATED}:
        columns.append(outcome_column(results))
    return columns


def rank_text(place: Place) -> str:
    """Returns `3=` for a rank that is shared; `-` for none."""
    return "-" if place.rank is None else f"{place.rank}{'=' * place.shared}"


def value_text(place: Place, unit: Unit) -> str:
    """Returns the value by which a member has its place; `-` for none."""
    return "-" if place.value is None else amount(place.value, unit)


def limit_word(result: Result) -> str:
    """Returns what limited a run; `-` without a good answer."""
    return result.measurement.limit.kind.value if result.measurement.requests else "-"


def _ratios(places: Sequence[Place]) -> tuple[str, ...]:
    """Returns `83 % [76, 91]` for each place, with the shares aligned."""
    parts = [ratio_texts(place) for place in places]
    size = max(cells(text) for text, _ in parts)
    return tuple(pad(text, size, right=True) + interval for text, interval in parts)


def ratio_texts(place: Place) -> tuple[str, str]:
    """Returns the share of the best, `83 %` or `-`, and its interval, ` [76, 91]` or nothing."""
    text = "-" if place.ratio is None else f"{share(place.ratio)} %"
    if place.low is None or place.high is None:
        return text, ""
    return text, f" [{share(place.low)}, {share(place.high)}]"


def share(ratio: float) -> str:
    """Returns a ratio in per cent without the unit, with at least two digits."""
    percent = ratio * 100
    return f"{percent:,.0f}" if percent >= 9.95 else f"{percent:.2g}"


def _notes(group: RankedGroup, said: LimitKind | None, *, in_table: bool) -> list[str]:
    """Returns what a reader must know to judge the order, and what limited the runs where no column says it."""
    if group.metric == "p50":
        return ["ranked by p50: all got the rate that was asked for"]
    found = []
    kinds = [result.measurement.limit.kind for result, _ in group.ordered() if result.measurement.requests]
    for kind, count in Counter(kinds).items():
        which = "all" if count == len(kinds) else f"{count} of {len(kinds)}"
        if kind in OUTSIDE:
            found.append(f"{which} limited by {kind}, not by the server: it could do more")
        elif kind is LimitKind.RATE:
            found.append(f"{which} got the rate that was asked for: the server could do more")
        elif kind is not said and not in_table:
            found.append(limited_by(kind, which))
    return found


def limited_by(kind: LimitKind, which: str = "all") -> str:
    """Returns the remark about what limited runs; `which` names them."""
    if kind is LimitKind.UNCLEAR:
        return f"not clear what limited {'any' if which == 'all' else which} of them"
    return f"{which} limited by {kind}"


def grid_lines(grid: Grid, group: RankedGroup, screen: Screen) -> list[str]:
    """Returns the grid under its two parameters: the ranked metric in its cells, the best marked.

    It is turned or left out to fit.
    """
    metric = METRICS[group.metric].title
    for each in (grid, grid.turned()):
        names = Column(heading=plain(each.row_name), texts=tuple(map(plain, each.rows)))
        columns = [_grid_column(each, column, group) for column in each.columns]
        if min(names.width, LEAST_NAME_CELLS) + sum(2 + column.width for column in columns) <= screen.width:
            above = f"{metric} by {plain(each.row_name)} and {plain(each.column_name)}"
            table = table_of(names, columns, width=screen.width)
            return [*screen.flow([(above, Style.NONE)]), *table_lines(table, screen)]
    return []


def _grid_column(grid: Grid, column: str, group: RankedGroup) -> Column:
    unit = METRICS[group.metric].unit
    places = {place.member: place for place in group.places}
    found = [places.get(grid.members.get((row, column), -1)) for row in grid.rows]
    best = [place is not None and place.rank == 1 for place in found]
    return Column(
        heading=plain(column),
        texts=tuple(
            "-" if place is None or place.value is None else "*" * marked + value_text(place, unit)
            for place, marked in zip(found, best, strict=True)
        ),
        styles=tuple(Style.GOOD if marked else Style.NONE for marked in best),
        right=True,
    )
