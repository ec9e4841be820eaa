"""Rows of values for the fields of a request, from what a user may give as a feed; kept by columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from pytest_fileperf.errors import PlanError

__all__ = ("MOST_DRAWN", "Columns", "Maker", "columns_of")

MOST_DRAWN = 100_000
"""Rows that are drawn from a generator, which may have no end."""
Columns: TypeAlias = Mapping[str, tuple[object, ...]]
"""The values of each field, one a row."""
Maker: TypeAlias = Callable[[object], object]
"""Makes a feed of what a setup returned."""


def columns_of(feed: object, fields: Collection[str]) -> Columns:
    """Returns the values of these fields. A row is a mapping, or the value itself where there is one field.

    Raises PlanError for a feed without rows, and for a row that lacks a field.
    """
    if isinstance(feed, str | bytes | Mapping) or not isinstance(feed, Iterable):
        raise PlanError(
            f"feed: {type(feed).__name__} is no list of rows: give values, as in ['a', 'b'], or mappings by field, "
            "as in [{'id': 'a'}]"
        )
    rows: Sequence[object] = list(islice(feed, MOST_DRAWN) if isinstance(feed, Iterator) else feed)
    if not rows:
        raise PlanError("feed: it has no row, so no request could be made")
    if not any(isinstance(row, Mapping) for row in rows):
        if len(fields) != 1:
            names = ", ".join(sorted(fields))
            raise PlanError(f"feed: {len(fields)} fields ({names}) need rows that are mappings, as in {{'id': 'a'}}")
        (name,) = fields
        return {name: tuple(rows)}
    return {name: tuple(_value(row, name, place) for place, row in enumerate(rows)) for name in sorted(fields)}


def _value(row: object, name: str, place: int) -> object:
    if not isinstance(row, Mapping):
        raise PlanError(f"feed: row {place} is {type(row).__name__}, where other rows are mappings")
    if name not in row:
        known = ", ".join(map(str, row)) or "nothing"
        raise PlanError(f"feed: row {place} has no {name!r}, which the request needs; it has {known}")
    return row[name]
