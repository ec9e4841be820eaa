"""Tables that fit a width: the least important columns are left out first, then names are shortened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_fileperf.judge.result import Result
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.details import STYLES
from pytest_fileperf.report.text import Style, amount, cells, paint, plain, shorten

__all__ = (
    "LEAST_NAME_CELLS",
    "Column",
    "Table",
    "metric_column",
    "metric_text",
    "outcome_column",
    "row_names",
    "table_of",
)

LEAST_NAME_CELLS = 12
_GAP = "  "
_TAILS = (0.5, 0.75, 0.25, 1.0, 0.0)
"""Where names may be cut, as the share that is kept of their ends."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns that are shown, each with the cells it gets."""

    columns: tuple[tuple[Column, int], ...]

    def has(self, heading: str) -> bool:
        """Returns whether a column is shown."""
        return any(column.heading == heading for column, _ in self.columns)

    def heading(self, *, colour: bool) -> str:
        """Returns the line above the rows."""
        texts = (_cell(column.heading, Style.BOLD, column, size, colour) for column, size in self.columns)
        return _GAP.join(texts).rstrip()

    def row(self, at: int, *, colour: bool) -> str:
        """Returns the line of one row."""
        texts = (
            _cell(column.texts[at], column.styles[at] if column.styles else Style.NONE, column, size, colour)
            for column, size in self.columns
        )
        return _GAP.join(texts).rstrip()


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
    return Table(
        columns=(
            *((column, column.width) for column in before),
            (replace(names, texts=_told_apart(names.texts, size)), size),
            *((column, column.width) for at, column in enumerate(columns) if at in shown),
        )
    )


def _told_apart(names: Sequence[str], size: int) -> tuple[str, ...]:
    """Returns the names in at most `size` cells, all cut at one place: the one that leaves most of them different."""
    ways = (tuple(shorten(name, size, tail=tail) for name in names) for tail in _TAILS)
    return max(ways, key=lambda texts: len(set(texts)))


def row_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Returns a name for each row: the test's title, or its name where others share the title, or else its node id.

    The second run of a test has `#2` behind its name.
    """
    tests = [result.test for result in results]
    bearers: dict[str, set[str]] = {}
    for test in tests:
        for name in {test.title, test.name}:
            bearers.setdefault(name, set()).add(test.nodeid.removesuffix(test.further))
    named = (
        next(
            (name for name in (test.title, test.name) if plain(name) and len(bearers[name]) == 1),
            test.nodeid.removesuffix(test.further),
        )
        for test in tests
    )
    return tuple(plain(f"{name} {test.further}") for name, test in zip(named, tests, strict=True))


def metric_text(name: str, result: Result) -> str:
    """Returns a metric of the whole run for a column; `~` marks a percentile of too few requests."""
    metric = METRICS[name]
    value = metric.of_run(result.recording) if result.measurement.requests else None
    if value is None:
        return "-"
    few = metric.percentile is not None and result.measurement.requests < metric.least_requests
    return "~" * few + amount(value, metric.unit)


def metric_column(name: str, results: Sequence[Result], least_name_cells: int) -> Column:
    """Returns the column of a metric of the whole runs."""
    texts = tuple(metric_text(name, result) for result in results)
    return Column(heading=METRICS[name].title, texts=texts, right=True, least_name_cells=least_name_cells)


def outcome_column(results: Sequence[Result]) -> Column:
    """Returns the column of the standings."""
    standings = [result.standing for result in results]
    texts, styles = tuple(each.value for each in standings), tuple(STYLES[each] for each in standings)
    return Column(heading="outcome", texts=texts, styles=styles)
