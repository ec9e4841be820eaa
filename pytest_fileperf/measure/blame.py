"""Why CPU per request grew: compares the profiles of two sides, and names the functions to blame.

The function that causes a growth is neither the largest nor the one whose own time grew most: its callers grew by as
much, and so did what it calls. The cause is where the *share* of samples grew most clearly: in its callers the growth
drowns in what they did before, and each function that it calls has only a part of it. Work that was merely moved into a
function (new middleware now calls the whole app) is not its growth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pytest_fileperf.measure.stacks import CodePlace, Frame, Profile, place_of

__all__ = ("GREW", "FunctionGrowth", "growth")

_CLEAR = 4.0
"""Standard deviations from which the share of one of the project's functions has clearly grown."""
_CLEAR_FURTHER = 5.0
"""Standard deviations for a second function: the first one changes the rhythm of a server, which moves others too."""
_CLEAR_LIBRARY = 6.0
"""Standard deviations for a library's function. How many requests a server reads at once moves it by more than chance:
on a busy machine, 3 of 20 comparisons of equal sides had one at 5."""
GREW = 0.01
"""Less than this is no growth of CPU per request, but the noise between two boots of the same code."""
_MOST = 0.7
"""Share of a function's growth that makes another function answerable for it."""
_TIGHT = 0.9
"""Of two nested functions the inner one is the cause where it shows this much of what the outer one shows."""
_AROUND = 0.6
"""Where a function and all it calls took more than this share of all time, its share goes up and down with the work of
the event loop around it, and explains nothing: only what it does itself can be its growth."""
_WORTH_NAMING = 0.03
"""Share of the whole growth below which a function is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionGrowth:
    """A function that made CPU per request grow."""

    function: str
    file: str
    """As in `FunctionCost`."""
    line: int
    """On the side of now."""
    own_code: bool
    growth_s: float
    """CPU seconds per request that it added, without work that was only moved into it, or that was named before."""
    share: float
    """Of the growth of the whole; 1.0 at the most."""
    base_s: float
    """Cost per request before, with all it calls."""
    now_s: float
    base_self_s: float
    """Cost per request before, without the Python functions it calls."""
    now_self_s: float
    callee: Frame | None = None
    """A library function that it calls, where most of the growth lies in that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Samples that have the same stack."""

    path: tuple[CodePlace, ...]
    places: frozenset[CodePlace]
    """Of the stack: a function that calls itself is in it once."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The samples of one side that are not explained yet, and what each of them costs per request."""

    stacks: tuple[_Samples, ...]
    per_sample_s: float

    @classmethod
    def of(cls, profile: Profile, places: Mapping[Frame, CodePlace]) -> Self:
        paths: Counter[tuple[CodePlace, ...]] = Counter()
        for stack, count in profile.stacks.items():
            paths[tuple(places[frame] for frame in stack)] += count
        stacks = (_Samples(path=path, places=frozenset(path), count=count) for path, count in paths.items())
        return cls(stacks=tuple(stacks), per_sample_s=profile.per_sample_s)

    @property
    def total(self) -> int:
        return sum(samples.count for samples in self.stacks)

    def counts(self) -> Counter[CodePlace]:
        """Returns the samples of each function with all it calls."""
        counts: Counter[CodePlace] = Counter()
        for samples in self.stacks:
            for place in samples.places:
                counts[place] += samples.count
        return counts

    def own_counts(self, *, beneath: CodePlace | None = None, without: CodePlace | None = None) -> Counter[CodePlace]:
        """Returns the samples of each innermost function; of all, or of those with or without a certain function."""
        counts: Counter[CodePlace] = Counter()
        for samples in self.stacks:
            if (beneath is None or beneath in samples.places) and without not in samples.places:
                counts[samples.path[-1]] += samples.count
        return counts

    def without(self, suspect: _Suspect) -> _Side:
        place = suspect.place
        left = tuple(
            samples
            for samples in self.stacks
            if place != samples.path[-1] and (suspect.itself or place not in samples.places)
        )
        return _Side(stacks=left, per_sample_s=self.per_sample_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspect:
    """A function whose share of the samples grew."""

    place: CodePlace
    clarity: float
    """How many standard deviations its share grew by."""
    growth_s: float
    itself: bool = False
    """Only what it does itself grew, or could be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Both sides of a comparison."""

    base: _Side
    now: _Side

    @property
    def growth_s(self) -> float:
        """What is not explained yet."""
        return self.cost_s(self.base.total, self.now.total)

    def cost_s(self, before: float, after: float) -> float:
        """Returns by how much samples of now cost more per request than those of the base."""
        return after * self.now.per_sample_s - before * self.base.per_sample_s

    def rise(self, before: int, after: int) -> tuple[float, float]:
        """Returns by how much the share of some samples grew, and the standard deviation of that."""
        rise = after / self.now.total - before / self.base.total
        return rise, math.hypot(_spread(after, self.now.total), _spread(before, self.base.total))

    def without(self, suspect: _Suspect) -> _Sides:
        return _Sides(base=self.base.without(suspect), now=self.now.without(suspect))


def growth(base: Profile, now: Profile, *, base_root: Path | None, now_root: Path | None) -> tuple[FunctionGrowth, ...]:
    """Returns the functions to blame for the growth of CPU per request, the one it shows most clearly in first.

    Empty where CPU per request did not grow, or no function's part in it stands out of the noise of sampling: the
    difference of two binomial shares has to be `_CLEAR` of its standard deviations, or more. Of torn stacks only the
    project's own functions are believed. The roots are as in `place_of`.
    """
    whole_s = now.cost - base.cost
    if not (base.samples and now.samples) or whole_s <= max(GREW * base.cost, _noise_s(base, now)):
        return ()
    base_places, now_places = (
        {frame: place_of(frame, root) for stack in side.stacks for frame in stack}
        for side, root in ((base, base_root), (now, now_root))
    )
    lines = {place: frame.line for places in (base_places, now_places) for frame, place in places.items()}
    whole = left = _Sides(base=_Side.of(base, base_places), now=_Side.of(now, now_places))
    named: list[FunctionGrowth] = []
    while left.base.stacks and left.now.stacks:
        cause = _cause(left, clear=_CLEAR_FURTHER if named else _CLEAR, own_only=base.torn or now.torn)
        if cause is None or cause.growth_s < _WORTH_NAMING * whole_s:
            break
        named.append(_named(cause, _callee(cause, left), whole, whole_s=whole_s, lines=lines))
        left = left.without(cause)
    return tuple(named)


def _named(
    cause: _Suspect, callee: CodePlace | None, whole: _Sides, *, whole_s: float, lines: Mapping[CodePlace, int]
) -> FunctionGrowth:
    place, base, now = cause.place, whole.base, whole.now
    return FunctionGrowth(
        function=place.function,
        file=place.file,
        line=lines[place],
        own_code=place.own_code,
        growth_s=cause.growth_s,
        share=min(1.0, cause.growth_s / whole_s),
        base_s=base.counts()[place] * base.per_sample_s,
        now_s=now.counts()[place] * now.per_sample_s,
        base_self_s=base.own_counts()[place] * base.per_sample_s,
        now_self_s=now.own_counts()[place] * now.per_sample_s,
        callee=None if callee is None else Frame(function=callee.function, file=callee.file, line=lines[callee]),
    )


def _noise_s(base: Profile, now: Profile) -> float:
    """Returns two standard deviations of the whole growth: none where it was measured, and not counted in samples."""
    if base.cpu_per_request is not None and now.cpu_per_request is not None:
        return 0.0
    return 2 * math.hypot(base.cost / math.sqrt(base.samples), now.cost / math.sqrt(now.samples))


def _cause(sides: _Sides, *, clear: float, own_only: bool) -> _Suspect | None:
    """Returns the function that causes the clearest growth."""
    found_all = _suspects(sides, clear)
    suspects = {suspect.place: suspect for suspect in found_all if suspect.place.own_code or not own_only}
    if not suspects:
        return None
    found = max(suspects.values(), key=lambda suspect: (suspect.clarity, suspect.place.own_code))
    if found.itself:
        return found
    if not found.place.own_code:
        place = _answerable(found, sides)
        if place is None:
            return found
        found = suspects.get(place) or _Suspect(place=place, clarity=0.0, growth_s=found.growth_s)
    return _innermost(found, suspects, sides)


def _suspects(sides: _Sides, clear: float) -> Iterator[_Suspect]:
    """Yields every function whose share of the samples has grown so clearly, and whose cost per request has grown."""
    before, own_before, own_after = sides.base.counts(), sides.base.own_counts(), sides.now.own_counts()
    for place, count in sides.now.counts().items():
        if before[place] <= _AROUND * sides.base.total:
            found = _grown(place, before[place], count, sides, clear if place.own_code else _CLEAR_LIBRARY)
        elif place.own_code:
            found = _grown(place, own_before[place], own_after[place], sides, clear, itself=True)
        else:
            found = None
        if found is not None:
            yield found


def _grown(
    place: CodePlace, before: int, after: int, sides: _Sides, clear: float, *, itself: bool = False
) -> _Suspect | None:
    """Returns the function where the share of these samples of it has grown so clearly; None where it has not."""
    rise, spread = sides.rise(before, after)
    if rise < clear * spread:
        return None
    moved_s = 0.0 if itself else _moved_s(place, sides)
    rise -= moved_s / (sides.now.total * sides.now.per_sample_s)
    growth_s = min(sides.growth_s, sides.cost_s(before, after) - moved_s)
    if rise < clear * spread or growth_s <= 0:
        return None
    return _Suspect(place=place, clarity=rise / spread, growth_s=growth_s, itself=itself)


def _spread(count: int, total: int) -> float:
    """Returns the standard deviation of a share. The share is drawn to the middle a little: 0 of 10 is not surely 0."""
    share = (count + 1) / (total + 2)
    return math.sqrt(share * (1 - share) / (total + 2))


def _moved_s(place: CodePlace, sides: _Sides) -> float:
    """Returns the cost of work that was done elsewhere before, and that this function calls now.

    Each sample belongs to one innermost function: it is work that vanished elsewhere and appeared in here.
    """
    base_beneath, beneath = (side.own_counts(beneath=place) for side in (sides.base, sides.now))
    base_elsewhere, elsewhere = (side.own_counts(without=place) for side in (sides.base, sides.now))
    return sum(
        max(0.0, min(-sides.cost_s(base_elsewhere[inner], elsewhere[inner]), sides.cost_s(base_beneath[inner], count)))
        for inner, count in beneath.items()
    )


def _answerable(found: _Suspect, sides: _Sides) -> CodePlace | None:
    """Returns the project's function that most of this library function's growth lies in, or else comes from."""
    called: dict[CodePlace, float] = {}
    calling: dict[CodePlace, float] = {}
    for samples, cost_s in _signed(found.place, sides):
        at = samples.path.index(found.place)
        for place in {place for place in samples.path[at + 1 :] if place.own_code}:
            called[place] = called.get(place, 0.0) + cost_s
        caller = next((place for place in reversed(samples.path[:at]) if place.own_code), None)
        if caller is not None:
            calling[caller] = calling.get(caller, 0.0) + cost_s
    inner = _most(called, _MOST * found.growth_s, sides)
    outer = _most(calling, _MOST * found.growth_s, sides)
    if inner is None and outer is not None and sides.base.counts()[outer] > _AROUND * sides.base.total:
        return None
    return inner or outer


def _innermost(found: _Suspect, suspects: Mapping[CodePlace, _Suspect], sides: _Sides) -> _Suspect:
    """Returns the innermost of the project's functions called from it that shows nearly all of its growth."""
    beneath = {
        place
        for samples in sides.now.stacks
        if found.place in samples.places
        for place in samples.path[samples.path.index(found.place) :]
        if place.own_code
    }
    tight = [
        suspects[place]
        for place in beneath & suspects.keys()
        if suspects[place].growth_s >= _TIGHT * found.growth_s and suspects[place].clarity >= _TIGHT * found.clarity
    ]
    after = sides.now.counts()
    depth = {place: at for samples in sides.now.stacks for at, place in enumerate(samples.path)}
    return min(tight, key=lambda suspect: (after[suspect.place], -depth[suspect.place]), default=found)


def _callee(suspect: _Suspect, sides: _Sides) -> CodePlace | None:
    """Returns the library function it calls that has most of its growth; None for a function of a library."""
    if suspect.itself or not suspect.place.own_code:
        return None
    grown: dict[CodePlace, float] = {}
    for samples, cost_s in _signed(suspect.place, sides):
        called = samples.path[len(samples.path) - samples.path[::-1].index(suspect.place) :]
        if called and not any(place.own_code for place in called):
            grown[called[0]] = grown.get(called[0], 0.0) + cost_s
    return _most(grown, _MOST * suspect.growth_s, sides)


def _signed(place: CodePlace, sides: _Sides) -> Iterator[tuple[_Samples, float]]:
    """Yields the stacks of both sides that a function is part of, with their cost; that of the base is negative."""
    for side, sign in ((sides.base, -1), (sides.now, 1)):
        for samples in side.stacks:
            if place in samples.places:
                yield samples, sign * samples.count * side.per_sample_s


def _most(grown: Mapping[CodePlace, float], least_s: float, sides: _Sides) -> CodePlace | None:
    """Returns the function that grew most in this place, where that is so much, and not only moved to here."""
    before, after = sides.base.counts(), sides.now.counts()
    found_s = {place: min(cost_s, sides.cost_s(before[place], after[place])) for place, cost_s in grown.items()}
    place = max(found_s, key=lambda place: found_s[place], default=None)
    return place if place is not None and found_s[place] >= least_s else None
