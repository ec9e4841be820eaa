"""The grid that two parameters of a group of measurements make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pytest_fileperf.judge.parameters import param_texts
from pytest_fileperf.judge.result import Result

__all__ = ("Grid", "grid_of")

_FULL = 0.75
"""Share of a grid's cells that must have a member: with more holes the list shows more."""


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
            rows=_distinct(each[one] for each in texts),
            columns=_distinct(each[other] for each in texts),
            members=members,
        )
        if len(members) == len(results) >= len(grid.rows) * len(grid.columns) * _FULL:
            return grid.turned() if len(grid.columns) > len(grid.rows) else grid
    return None


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
