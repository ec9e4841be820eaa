"""Parts of a load: `part.get("/files/{id}", feed=ids)` says what one is, and loads nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.mix import Mix, Part, why_no_name
from pytest_fileperf.plan.stream import Stream
from pytest_fileperf.plugin.arguments import VerbCall, journey_from, request_from
from pytest_fileperf.settings.keys import KEYS, LIMITS, unknown_keys
from pytest_fileperf.settings.resolve import resolve

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.plugin.keywords import Journey, JourneyPartKeywords, PartKeywords

__all__ = ("PART_KEYS", "PartOfLoad", "mix_from", "part")

PART_KEYS = ("gate", "tolerance", *(name for name in LIMITS if name != "min_capacity"))
"""The keys of the marker that a part may have of its own. A capacity is a whole load's."""
_GATE = ("p50",)
"""What is compared of a part, unless it says something else. Its rate is that of the mix."""


@dataclass(frozen=True, slots=True, eq=False)
class PartOfLoad:
    """One part of a load. Made by `part`, for `fileperf.mix`."""

    call: VerbCall
    name: str | None = None

    @property
    def title(self) -> str:
        """What it is called where it has no name: `GET /files/{id}`, or as its journey."""
        return self.name or (self.call.where if self.call.work is None else self.call.work.name)


class _PartVerbs:
    """The verbs of `fileperf`, each of which returns a part of a load and measures nothing."""

    def get(self, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of GET requests of `url`; `PartKeywords` describes the keywords."""
        return self.request("GET", url, **arguments)

    def post(self, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of POST requests of `url`; `PartKeywords` describes the keywords."""
        return self.request("POST", url, **arguments)

    def put(self, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of PUT requests of `url`; `PartKeywords` describes the keywords."""
        return self.request("PUT", url, **arguments)

    def patch(self, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of PATCH requests of `url`; `PartKeywords` describes the keywords."""
        return self.request("PATCH", url, **arguments)

    def delete(self, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of DELETE requests of `url`; `PartKeywords` describes the keywords."""
        return self.request("DELETE", url, **arguments)

    def request(self, method: str, url: str | httpx.URL, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of requests of any method; `PartKeywords` describes the keywords."""
        given: dict[str, object] = {**arguments}
        name = given.pop("name", None)
        return _checked(request_from(method, url, given), name)

    def run(self, journey: Journey, **arguments: Unpack[JourneyPartKeywords]) -> PartOfLoad:
        """Returns a part that is a journey; `JourneyPartKeywords` describes the keywords."""
        given: dict[str, object] = {**arguments}
        name = given.pop("name", None)
        return _checked(journey_from(journey, given), name)


part = _PartVerbs()


def _checked(call: VerbCall, name: object) -> PartOfLoad:
    """Returns the part; `mix_from` tells what is wrong with it."""
    problems = list(call.problems)
    if name is not None and (problem := why_no_name(name)):
        problems.append(f"name: {problem}")
        name = None
    if others := [key for key in call.keys if key not in PART_KEYS]:
        problems.append(
            f"{', '.join(others)}: said of the whole load, not of a part, which takes {', '.join(PART_KEYS)}"
        )
    own = str(name) if name is not None else None
    return PartOfLoad(replace(call, problems=tuple(problems)), own)


def mix_from(weights: object, arguments: Mapping[str, object]) -> VerbCall:
    """Returns the call of `mix`: weights by parts, which are parts, or journeys as they are."""
    problems = [*unknown_keys(arguments, KEYS)]
    parts: list[Part] = []
    if not isinstance(weights, Mapping) or not weights:
        problems.append("mix takes weights by parts, as in {part.get('/a'): 1, part.get('/b'): 9}")
        weights = {}
    for given, weight in weights.items():
        own = given if isinstance(given, PartOfLoad) else _journey(given)
        if own is None:
            problems.append(f"{given!r} is no part: write part.get(…), or an async function that takes a client")
            continue
        where = own.title
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            problems.append(f"{where}: its weight is {weight!r}, not a number above 0: leave out what has no turn")
            weight = 1
        problems += (f"{where}: {problem}" for problem in own.call.problems)
        if own.call.work is not None and not own.call.problems:
            try:
                parts.append(_part(own, float(weight), gated=arguments.get("gate") not in (False, "none")))
            except PlanError as error:
                problems += (f"{where}: {problem}" for problem in error.problems)
    names = [one.name for one in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"two parts are called {twice[0]!r}: give them names, as in part.get('/', name='front')")
    work = None if problems else Mix(parts=tuple(parts))
    keys = {key: value for key, value in arguments.items() if key in KEYS}
    return VerbCall(work=work, keys=keys, problems=tuple(problems), where="mix")


def _journey(given: object) -> PartOfLoad | None:
    return PartOfLoad(journey_from(given, {})) if callable(given) or inspect.iscoroutine(given) else None


def _part(own: PartOfLoad, weight: float, *, gated: bool) -> Part:
    """Returns the part, with the gate that it has of its own; raises PlanError."""
    keys, work = own.call.keys, own.call.work
    assert work is not None
    if isinstance(work, Mix | Stream):
        raise PlanError("only requests and journeys are parts of a mix")
    settings = resolve(verb={"gate": _GATE if gated else "none", **keys}, marker={}, options={}, ini={})
    limits = {name: limit for name, limit in settings.limits.items() if name in keys}
    title = own.title.replace("#", "")
    return Part(
        name=title,
        work=work,
        weight=weight,
        gate=settings.gate,
        tolerances=settings.tolerances,
        limits=limits,
    )
