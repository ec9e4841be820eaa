"""Many requests as one load: recipes with fields such as `{id}`, and rows of values for the fields."""

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
"""The most rows from a generator, which may have no end."""
MOST_ROWS = 1_000_000
"""The most rows of any other feed: more would fill the memory."""
Columns: TypeAlias = Mapping[str, tuple[object, ...]]
"""For each field's name, the field's value in each row."""


def columns_of(feed: object, fields: Collection[str]) -> Columns:
    """Returns the values of these fields. Raises PlanError for no or too many rows, and for unusable values."""
    if inspect.iscoroutine(feed):
        feed.close()  # nobody will await it, which would be a warning
    if inspect.isawaitable(feed) or isinstance(feed, AsyncIterable):
        raise PlanError(
            "feed: its function is async, but fileperf calls it before the load, without an event loop. Write "
            "a plain function. Or get the rows in an async setup=… and pass them on with feed=lambda rows: rows"
        )
    if isinstance(feed, str | bytes | Mapping) or not isinstance(feed, Iterable):
        raise PlanError(
            f"feed: {type(feed).__name__} isn't a list of rows. Give values, as in ['a', 'b'], or mappings "
            "from fields to values, as in [{'id': 'a'}]"
        )
    rows: Sequence[object] = list(islice(feed, MOST_DRAWN if isinstance(feed, Iterator) else MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise PlanError(
            f"feed: it has more than {MOST_ROWS:,} rows. Give fewer, or a generator: its first {MOST_DRAWN:,} are used"
        )
    if not rows:
        raise PlanError("feed: it has no rows, so no request can be made")
    if any(isinstance(row, Mapping) for row in rows):
        columns = {name: tuple(_value(row, name, place) for place, row in enumerate(rows)) for name in sorted(fields)}
    elif len(fields) == 1:
        columns = {name: tuple(rows) for name in fields}
    else:
        names = ", ".join(sorted(fields))
        raise PlanError(f"feed: there are {len(fields)} fields ({names}). Make each row a mapping, as in {{'id': 'a'}}")
    for name, column in columns.items():
        _require_texts(name, column)
    return columns


def _require_texts(name: str, column: Sequence[object]) -> None:
    """Raises PlanError for bytes, payloads, and objects whose text would be their address in memory."""
    no_text = (object.__str__, object.__repr__)
    wrong = {
        kind
        for kind in set(map(type, column))
        if issubclass(kind, bytes | bytearray | memoryview | Payload) or (kind.__str__, kind.__repr__) == no_text
    }
    for place, value in enumerate(column if wrong else ()):
        if type(value) in wrong:
            raise PlanError(
                f"feed: {name!r} of row {place} has the type {type(value).__name__}, which cannot be written in "
                "a request. Give a text or a number. For different content of one size, use content=payload(…, "
                "unique=True)"
            )


def _value(row: object, name: str, place: int) -> object:
    if not isinstance(row, Mapping):
        raise PlanError(f"feed: row {place} has the type {type(row).__name__}, but others are mappings. Make it one")
    if name not in row:
        known = ", ".join(map(str, row)) or "nothing"
        raise PlanError(
            f"feed: row {place} has no {name!r}, which the request needs. The row has {known}. To send "
            "braces unchanged, give the body as bytes: content=b'…'"
        )
    return row[name]


# --- The order in which a load sends its requests: a seed makes it the same in every run

ORDERS = ("cycle", "shuffle", "zipf")
"""One row after the other, a repeated random order, or random rows with the first rows far more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    kind: str = "cycle"
    """From `ORDERS`."""
    seed: int = 0
    each: bool = False
    """Whether each connection goes through all rows by itself."""

    def places(self, count: int, *, own: int = 0, first: int = 0) -> Iterator[int]:
        """Yields indexes of `count` rows without end, beginning at place `first` of the order.

        `zipf` draws row i with a probability in proportion to 1 / (i + 1), with `own` as a further seed. Clients ask
        for a web server's files by this law: Breslau et al., "Web caching and Zipf-like distributions", INFOCOM 1999.
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
        while True:  # some ten microseconds, which the load does not notice
            drawn = np.searchsorted(ends, generator.random(1024) * ends[-1], side="right")
            yield np.minimum(drawn, count - 1).tolist()

    def _generator(self, own: int) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng((self.seed, own))


# --- Many requests as one load: recipes with fields, the rows of values for them, and the order of the rows

_IN_URL = (Place.PATH_START, Place.PATH_FIRST, Place.PATH, Place.QUERY, Place.PARAMS_TEXT)
"""Values in these places must be quoted for a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    recipes: tuple[Operation, ...]
    """Requests with fields such as `{id}`."""
    names: tuple[str, ...] = ()
    """Each recipe's name. Requests with the same name get joint figures."""
    order: Order = Order()
    columns: Columns = field(default_factory=dict)
    make: Callable[[object], object] | None = None
    """Makes the rows from the setup's result, at each start-up. None if the rows need no setup."""
    urls: tuple[str, ...] = ()
    """Each row's URL, if recipes have no URL of their own."""
    uses: tuple[int, ...] = ()
    """Each row's index into `recipes`; empty for a single recipe."""

    @property
    def count(self) -> int:
        """How many different requests there are, apart from `{unique}`."""
        return len(self.urls) or len(self.uses) or max(map(len, self.columns.values()), default=1)

    @property
    def name(self) -> str:
        """`GET /files/{id}`, or `1,000 requests`."""
        return self.recipes[0].name if len(self.recipes) == 1 and not self.urls else f"{self.count:,} requests"

    def recipe_of(self, row: int) -> int:
        return self.uses[row] if self.uses else 0

    def operation(self, row: int, unique: str) -> Operation:
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
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
