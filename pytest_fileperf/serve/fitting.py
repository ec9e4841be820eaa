"""Makes the app that the server imported like the one the test made, before its lifespan, or says why it cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.likeness import (
    MISSING,
    Part,
    Parts,
    is_item,
    parts_of,
    places,
    set_part,
    state_of,
    tell_difference,
    told,
)
from pytest_fileperf.serve.made import Made, loaded

__all__ = ("Fitting",)

_WAY_OUT = (
    'Give a factory in a module that the server can import ("package.module:make()"), '
    "functools.partial(make, …), or a lambda; or the app by its name, to serve it as it is imported"
)
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True, kw_only=True)
class Fitting:
    """What was set on the app of this process. Each process that serves has its own."""

    made: Made | None = None
    nodes: Mapping[str, object] = field(default_factory=dict)
    differing: Parts = field(default_factory=dict)
    """The parts that differed from what was imported, with the entries that they had."""
    awaited: Mapping[Part, str] = field(default_factory=dict)
    """Parts that cannot be sent, which the app's lifespan has to set as it did in the test's process, and why."""
    watched: list[_Noting] = field(default_factory=list)

    def fit(self, app: object, run_directory: Path) -> None:
        """Sets on the app what the test has set. Raises AppLoadError where that cannot be."""
        self.made = made = Made.read(run_directory)
        if made is None:
            return
        found = parts_of(app)
        if not made.binding:
            return
        self.nodes = dict(places(app))
        self.differing = {
            part: found.get(part, ())
            for part in sorted({*found, *made.parts})
            if found.get(part) != made.parts.get(part)
        }
        if not self.differing:
            return
        values = loaded(made)
        self._check(made, values)
        for part in self.differing:
            if part not in self.awaited:
                set_part(self.nodes[part[0]], part[1], values.get(part, MISSING))
        self._check_again(app, made)
        self._watch()

    def started(self) -> None:
        """Looks what the app's lifespan has set. Raises AppLoadError where the test's app had something else."""
        written = {part for noting in self.watched for part in noting.end()}
        made = self.made
        if made is None or not self.differing:
            return
        found = parts_of(next(iter(self.nodes.values())))
        for part, why in self.awaited.items():
            mine, now = made.parts.get(part, ()), found.get(part, ())
            was_set = part in written or now != self.differing[part]
            if not was_set or _DIGITS.sub("", str(mine)) != _DIGITS.sub("", str(now)):
                raise AppLoadError(_refusal(part, mine, now, why))
        self.differing = {
            part: entries
            for part, entries in self.differing.items()
            if part not in written and part not in self.awaited
        }

    def changed(self) -> tuple[tuple[str, str], ...]:
        """Returns what the server's app has from the test: the name of each part, and its entries."""
        made = self.made
        return tuple(
            (f"{part[1]}{f' of {part[0]}' if part[0] else ''}", told(part, made.parts.get(part, ())) or "none")
            for part in (self.differing if made is not None else ())
            if made is not None
        )

    def _check(self, made: Made, values: Mapping[Part, object]) -> None:
        for part, theirs in self.differing.items():
            where, name = part
            mine, why = made.parts.get(part, ()), made.unsent.get(part, "")
            may_remove = not mine and name.startswith(("config.", "state."))
            if where in self.nodes and (part in values or may_remove):
                continue
            if where in self.nodes and why and made.has_run and is_item(name):
                self.awaited = {**self.awaited, part: why}
                continue
            raise AppLoadError(_refusal(part, mine, theirs, why))

    def _check_again(self, app: object, made: Made) -> None:
        found = parts_of(app)
        for part in {*found, *made.parts} - {*self.awaited}:
            if found.get(part) != made.parts.get(part):
                why = "it stays so when it is set there"
                raise AppLoadError(_refusal(part, made.parts.get(part, ()), found.get(part, ()), why))

    def _watch(self) -> None:
        """Notes which items of a state the lifespan sets: those are its own."""
        for where in {part[0] for part in self.differing if part[1].startswith("state.")}:
            node = self.nodes[where]
            if (held := state_of(node)) is not None:
                noting = _Noting(held, where, getattr(node, "state", None))
                self.watched.append(noting)


class _Noting(dict[str, object]):
    """What an app's state holds while its lifespan starts: notes what is set."""

    def __init__(self, held: dict[str, object], where: str, state: object) -> None:
        super().__init__(held)
        self._held, self._where, self._state = held, where, state
        self._set: set[str] = set()
        object.__setattr__(state, "_state", self)

    def __setitem__(self, key: str, value: object) -> None:
        self._set.add(key)
        super().__setitem__(key, value)

    def end(self) -> frozenset[Part]:
        """Gives the state what it held before, with what was set since; returns the parts that were set."""
        self._held.clear()
        self._held.update(self)
        object.__setattr__(self._state, "_state", self._held)
        return frozenset((self._where, f"state.{key}") for key in self._set)


def _refusal(part: Part, mine: tuple[str, ...], theirs: tuple[str, ...], why: str) -> str:
    reason = f" It cannot be set there: {why}." if why else ""
    return f"{tell_difference(part, mine, theirs)}.{reason} {_WAY_OUT}"
