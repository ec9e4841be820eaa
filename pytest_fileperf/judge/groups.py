"""The record of a session that every report is made from, with its groups whose members are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY, grouped, unknown_params
from pytest_fileperf.judge.ranking import Place, Ranking, rank_runs
from pytest_fileperf.judge.result import FailedTest, Result

__all__ = ("Asked", "RankedGroup", "SessionRecord", "session_record")


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
class Asked:
    """What a session was asked to do, as far as reports differ by it."""

    command: str = ""
    """As typed into a shell."""
    against: str = ""
    """Another version, as the user wrote it; empty where runs were compared with stored baselines."""
    aa: bool = False
    """The code was compared with itself."""
    update: str = ""
    """`passed`, `all` or `new` baselines were stored; empty where none were."""
    smoke: bool = False
    strict: bool = False
    profile: bool = False
    group_by: tuple[str, ...] = DEFAULT_GROUP_BY


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """All that was measured in a session, and all else that a report shows: reports are made from nothing else."""

    results: tuple[Result, ...] = ()
    """In the order they were made."""
    alone: tuple[Result, ...] = ()
    """Those that are in no ranked group."""
    groups: tuple[RankedGroup, ...] = ()
    """In order of appearance."""
    unknown_params: tuple[str, ...] = ()
    """Parameters to group by that no test has."""
    failed: tuple[FailedTest, ...] = ()
    """Tests that failed for another reason than a figure, in the order they did; they may have results too."""
    said: tuple[str, ...] = ()
    """Lines about the whole session: checkouts, packages, baselines whose tests are gone."""
    created: str = ""
    """When the session ended, in ISO 8601; empty where nobody noted it."""
    asked: Asked = Asked()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of `pytest-fileperf`, `pytest` and `python`."""
    commit: Mapping[str, object] | None = None
    """As `versions.commit` tells it; None where there is none, or no report wanted to know."""
    environment: Mapping[str, object] = field(default_factory=dict)
    """Machine, system, Python and packages, as JSON values; empty where no report wanted to know."""


def session_record(results: Sequence[Result], labels: Sequence[str] = DEFAULT_GROUP_BY) -> SessionRecord:
    """Returns the record; `labels` are what `parse_group_by` returns and say which results are a group.

    A group is ranked where two or more of it have a successful request; a few requests of a smoke run rank nothing, nor
    do searches for a capacity, whose rates are their own choice.
    """
    groups = []
    for title, members in grouped(_comparable(results), labels).items():
        if title and sum(result.measurement.requests > 0 for result in members) > 1:
            limits = [result.measurement.limit for result in members]
            ranking = rank_runs([result.recording for result in members], limits)
            groups.append(RankedGroup(title=title, results=tuple(members), ranking=_by_rank(ranking)))
    ranked = {id(result) for group in groups for result in group.results}
    return SessionRecord(
        results=tuple(results),
        alone=tuple(result for result in results if id(result) not in ranked),
        groups=tuple(groups),
        unknown_params=unknown_params(results, labels),
    )


def _comparable(results: Sequence[Result]) -> Iterator[Result]:
    return (result for result in results if not result.smoke and result.capacity is None)


def _by_rank(ranking: Ranking) -> Ranking:
    """Returns the ranking sorted by rank: a member with a wide interval may rank before one with a better value."""
    return replace(ranking, places=tuple(sorted(ranking.places, key=lambda place: place.rank or math.inf)))
