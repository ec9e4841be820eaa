"""Many requests as one load: recipes with fields, the rows of values for them, and the order of the rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from pytest_fileperf.plan.feed import Columns, Maker, columns_of
from pytest_fileperf.plan.fields import UNIQUE, Place, fields_of, filled, url_text
from pytest_fileperf.plan.hidden import PLAIN, described_recipes
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.order import Order

__all__ = ("Requests",)

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
        """Returns the place of a row's recipe."""
        return self.uses[row] if self.uses else 0

    def operation(self, row: int, unique: str) -> Operation:
        """Returns the request of a row; `unique` is put in where it is to be different from all others."""

        def fill(place: Place, name: str) -> object:
            value = unique if name == UNIQUE else self.columns[name][row] if name in self.columns else f"{{{name}}}"
            if place is Place.JSON_VALUE:
                return value
            return url_text(place, value) if place in _IN_URL else str(value)

        recipe = self.recipes[self.recipe_of(row)]
        return filled(replace(recipe, url=self.urls[row]) if self.urls else recipe, fill)

    def with_value(self, value: object) -> Requests:
        """Returns the requests of a boot whose setup has returned this value. Raises PlanError."""
        if self.make is None:
            return self
        needed = frozenset().union(*map(fields_of, self.recipes)) - {UNIQUE}
        return replace(self, columns=columns_of(self.make(value), needed), make=None)

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
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
