"""Rows of values for the fields of a request, from what a user may give as a feed; kept by columns."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.payload import Payload

__all__ = ("MOST_DRAWN", "MOST_ROWS", "Columns", "Maker", "columns_of")

MOST_DRAWN = 100_000
"""Rows that are drawn from a generator, which may have no end."""
MOST_ROWS = 1_000_000
"""Rows that a feed may have which is no generator: more would fill the memory."""
Columns: TypeAlias = Mapping[str, tuple[object, ...]]
"""The values of each field, one a row."""
Maker: TypeAlias = Callable[[object], object]
"""Makes a feed of what a setup returned."""


def columns_of(feed: object, fields: Collection[str]) -> Columns:
    """Returns the values of these fields. A row is a mapping, or the value itself where there is one field.

    Raises PlanError for a feed without rows or with too many, for a row that lacks a field, and for a value that is no
    text and has none.
    """
    if inspect.iscoroutine(feed):
        feed.close()  # nothing will await it, which would be a warning
    if inspect.isawaitable(feed) or isinstance(feed, AsyncIterable):
        raise PlanError(
            "feed: its function is async, and rows are drawn before the load, where nothing awaits them: write a plain "
            "function, or get the rows in an async setup=…, and take what it returned with feed=lambda rows: rows"
        )
    if isinstance(feed, str | bytes | Mapping) or not isinstance(feed, Iterable):
        raise PlanError(
            f"feed: {type(feed).__name__} is no list of rows: give values, as in ['a', 'b'], or mappings by field, "
            "as in [{'id': 'a'}]"
        )
    rows: Sequence[object] = list(islice(feed, MOST_DRAWN if isinstance(feed, Iterator) else MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise PlanError(
            f"feed: it has more than {MOST_ROWS:,} rows: give fewer, or a generator, of which the first {MOST_DRAWN:,} "
            "are used"
        )
    if not rows:
        raise PlanError("feed: it has no row, so no request could be made")
    if not any(isinstance(row, Mapping) for row in rows):
        if len(fields) != 1:
            names = ", ".join(sorted(fields))
            raise PlanError(f"feed: {len(fields)} fields ({names}) need rows that are mappings, as in {{'id': 'a'}}")
        (name,) = fields
        columns = {name: tuple(rows)}
    else:
        columns = {name: tuple(_value(row, name, place) for place, row in enumerate(rows)) for name in sorted(fields)}
    for name, column in columns.items():
        _require_texts(name, column)
    return columns


def _require_texts(name: str, column: Sequence[object]) -> None:
    """Raises PlanError for a value that would be sent as Python shows it."""
    kinds = {type(value) for value in column}
    wrong = {kind for kind in kinds if issubclass(kind, bytes | bytearray | memoryview | Payload) or _has_no_text(kind)}
    if wrong:
        place, value = next((place, value) for place, value in enumerate(column) if type(value) in wrong)
        raise PlanError(
            f"feed: {name!r} of row {place} is {type(value).__name__}, which cannot be written in a request: give a "
            "text or a number. Different content of one size for every request is content=payload(…, unique=True)"
        )


def _has_no_text(kind: type) -> bool:
    """Returns whether the text of such objects is the place where they are in memory."""
    return all(getattr(kind, name) is getattr(object, name) for name in ("__str__", "__repr__"))


def _value(row: object, name: str, place: int) -> object:
    if not isinstance(row, Mapping):
        raise PlanError(f"feed: row {place} is {type(row).__name__}, where other rows are mappings")
    if name not in row:
        known = ", ".join(map(str, row)) or "nothing"
        raise PlanError(
            f"feed: row {place} has no {name!r}, which the request needs; it has {known}. To send braces as they "
            "are, give the body as bytes: content=b'…'"
        )
    return row[name]
