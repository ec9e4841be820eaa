"""Rows of values for the fields of a request, from what a user may give as a feed; kept by columns."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, repeat
from typing import TYPE_CHECKING, TypeAlias

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.payload import Payload
from pytest_fileperf.plan.request import PLAIN, UNIQUE, Operation, Place, described_recipes, filled, url_text

if TYPE_CHECKING:
    import numpy as np

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
    if any(isinstance(row, Mapping) for row in rows):
        columns = {name: tuple(_value(row, name, place) for place, row in enumerate(rows)) for name in sorted(fields)}
    elif len(fields) == 1:
        columns = {name: tuple(rows) for name in fields}
    else:
        names = ", ".join(sorted(fields))
        raise PlanError(f"feed: {len(fields)} fields ({names}) need rows that are mappings, as in {{'id': 'a'}}")
    for name, column in columns.items():
        _require_texts(name, column)
    return columns


def _require_texts(name: str, column: Sequence[object]) -> None:
    """Raises PlanError for a value that would be sent as Python shows it, such as where it is in memory."""
    no_text = (object.__str__, object.__repr__)
    wrong = {
        kind
        for kind in set(map(type, column))
        if issubclass(kind, bytes | bytearray | memoryview | Payload) or (kind.__str__, kind.__repr__) == no_text
    }
    for place, value in enumerate(column if wrong else ()):
        if type(value) in wrong:
            raise PlanError(
                f"feed: {name!r} of row {place} is {type(value).__name__}, which cannot be written in a request: give "
                "a text or a number. Different content of one size for every request is "
                "content=payload(…, unique=True)"
            )


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


# --- In which order the requests of a load are sent: the same at every run, by a seed

ORDERS = ("cycle", "shuffle", "zipf")
"""One after the other; in a random order, again and again; at random, with the first ones far more often."""
_DRAWN_AT_ONCE = 1024
"""Drawing so many takes some ten microseconds: the load does not notice it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    kind: str = "cycle"
    """One of `ORDERS`."""
    seed: int = 0
    each: bool = False
    """Whether each connection goes through all of them by itself."""

    def places(self, count: int, *, own: int = 0, first: int = 0) -> Iterator[int]:
        """Returns the places, from 0 to below `count`, without an end.

        They begin with the place that is at `first` in the order. `zipf`, by the chance number `own`, draws place i
        with a probability in proportion to 1 / (i + 1): Zipf's law, as the files of a web server are asked for (Breslau
        et al., "Web caching and Zipf-like distributions", INFOCOM 1999).
        """
        if self.kind == "zipf" and count > 1:
            return chain.from_iterable(self._drawn(count, own))
        if self.kind != "shuffle":
            return chain(range(first, count), chain.from_iterable(repeat(range(count))))
        shuffled = self._generator(0).permutation(count).tolist()
        return chain(shuffled[first:], chain.from_iterable(repeat(shuffled)))

    def identity(self) -> dict[str, object]:
        seed = {} if self.kind == "cycle" else {"seed": self.seed}
        return {"order": self.kind, **seed} | ({"each connection": True} if self.each else {})

    def _drawn(self, count: int, own: int) -> Iterator[list[int]]:
        import numpy as np

        generator = self._generator(own)
        ends = np.array(list(accumulate(1 / (place + 1) for place in range(count))))
        while True:
            drawn = np.searchsorted(ends, generator.random(_DRAWN_AT_ONCE) * ends[-1], side="right")
            yield np.minimum(drawn, count - 1).tolist()

    def _generator(self, own: int) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng((self.seed, own))


# --- Many requests as one load: recipes with fields, the rows of values for them, and the order of the rows

_IN_URL = (Place.PATH_START, Place.PATH_FIRST, Place.PATH, Place.QUERY, Place.PARAMS_TEXT)
"""Texts that httpx takes as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Many requests, each made of a recipe and a row."""

    recipes: tuple[Operation, ...]
    """With fields such as `{id}`."""
    names: tuple[str, ...] = ()
    """Of each recipe: requests of one name are counted together, beside all. Empty where none has one."""
    order: Order = field(default_factory=Order)
    columns: Columns = field(default_factory=dict)
    """The values of the fields, one a row; empty where no field needs one."""
    make: Maker | None = None
    """Makes the rows of what the setup of a boot returned; there are none before."""
    urls: tuple[str, ...] = ()
    """The URL of each row, where recipes have none of their own."""
    uses: tuple[int, ...] = ()
    """The place of each row's recipe; empty where there is one recipe only."""

    @property
    def count(self) -> int:
        """How many different requests there are; a field that is unique makes no more of them."""
        return len(self.urls) or len(self.uses) or max(map(len, self.columns.values()), default=1)

    @property
    def name(self) -> str:
        """`GET /files/{id}`, or `1,000 requests`."""
        return self.recipes[0].name if len(self.recipes) == 1 and not self.urls else f"{self.count:,} requests"

    def recipe_of(self, row: int) -> int:
        return self.uses[row] if self.uses else 0

    def operation(self, row: int, unique: str) -> Operation:
        """Returns the request of a row; `unique` is put in where it is to be different from all others."""

        def fill(place: Place, name: str) -> object:
            value = unique if name == UNIQUE else self.columns[name][row] if name in self.columns else f"{{{name}}}"
            if place is Place.JSON_VALUE:
                return value
            return url_text(place, value) if place in _IN_URL else str(value)

        return filled(self.recipes[self.recipe_of(row)], fill, self.urls[row] if self.urls else None)

    def identity(self) -> dict[str, object]:
        recipes = described_recipes([recipe.identity() for recipe in self.recipes])
        rows: dict[str, object] = {"count": self.count, "digest": self._digest()} if self.make is None else {}
        named = {"names": list(self.names)} if self.names else {}
        return {"requests": recipes, **named, "rows": rows or "of the setup", **self.order.identity()}

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            digest.update(json.dumps([name, *map(_as_text, column)]).encode())
        for part in (self.urls, self.uses):
            digest.update(json.dumps(part).encode())
        return PLAIN + digest.hexdigest()


def _as_text(value: object) -> str:
    """Returns what tells a value from others: as JSON, or where it is none, the text that is sent."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
