"""The groups of a session whose members are ranked, and the grid that two parameters make of a group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from pytest_fileperf.judge.ranking import Place, Ranking, rank_runs
from pytest_fileperf.report.grouping import grouped
from pytest_fileperf.report.parameters import param_texts
from pytest_fileperf.report.result import Result

__all__ = ("Grid", "RankedGroup", "grid_of", "ranked_groups")

_FULL = 0.75
"""Share of a grid's cells that must have a member: with more holes it shows less than the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroup:
    """Measurements that are compared with each other."""

    title: str
    results: tuple[Result, ...]
    """In the order they were made; a place's `member` is an index into them."""
    ranking: Ranking

    def ordered(self) -> Iterator[tuple[Result, Place]]:
        """Yields the members, best first."""
        for place in self.ranking.places:
            yield self.results[place.member], place


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values of two parameters, and which member has which two."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    members: Mapping[tuple[str, str], int]
    """Indices into the group's results, by row and column; a cell may be missing."""

    def turned(self) -> Grid:
        """Returns it with rows and columns exchanged."""
        members = {(column, row): member for (row, column), member in self.members.items()}
        return Grid(rows=self.columns, columns=self.rows, members=members)


def ranked_groups(
    results: Sequence[Result], labels: Sequence[str]
) -> tuple[tuple[Result, ...], tuple[RankedGroup, ...]]:
    """Returns the results that are in no ranked group, and the groups by `labels`, in order of appearance.

    A group is ranked where two or more of it have a successful request; a few requests of a smoke run rank nothing.
    """
    groups = []
    for title, members in grouped((result for result in results if not result.smoke), labels).items():
        if title and sum(result.measurement.requests > 0 for result in members) > 1:
            limits = [result.measurement.limit for result in members]
            ranking = rank_runs([result.recording for result in members], limits)
            groups.append(RankedGroup(title=title, results=tuple(members), ranking=_by_rank(ranking)))
    taken = {id(result) for group in groups for result in group.results}
    return tuple(result for result in results if id(result) not in taken), tuple(groups)


def _by_rank(ranking: Ranking) -> Ranking:
    """Returns it with equal ranks next to each other, best first: a wide interval may rank before a better value."""
    return replace(ranking, places=tuple(sorted(ranking.places, key=lambda place: place.rank or math.inf)))


def grid_of(results: Sequence[Result]) -> Grid | None:
    """Returns the grid of the first two parameters that tell all results apart, with few holes; None for none.

    The parameter with more values makes the rows.
    """
    texts = [param_texts(result.test) for result in results]
    shared = [name for name in texts[0] if all(name in each for each in texts)]
    varying = [name for name in shared if len({each[name] for each in texts}) > 1]
    for one, other in combinations(varying, 2):
        members = {(each[one], each[other]): member for member, each in enumerate(texts)}
        grid = Grid(
            rows=_distinct(each[one] for each in texts),
            columns=_distinct(each[other] for each in texts),
            members=members,
        )
        if len(members) == len(results) >= len(grid.rows) * len(grid.columns) * _FULL:
            return grid.turned() if len(grid.columns) > len(grid.rows) else grid
    return None


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
