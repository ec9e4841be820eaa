"""Finds the functions whose CPU time per request grew between two profiles.

The search starts at the outermost function, and follows the calls that have most of the growth. It stops at a function
that does the work itself, or whose growth many calls share.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from pytest_fileperf.measure.stacks import CHILD_PROCESSES, Frame, Profile, Stack, place_of

# --- Work that moved is not growth
#
# New middleware around a whole app, another thread, or a new function that takes over a part only moves work. So the
# old work is put beneath the callers that do it now. The difference that is left is growth.

_CLEAR = 4.0
"""A change of at least this many standard deviations is clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One stack's CPU seconds per request, in the old and the new version."""

    path: Stack
    before_s: float
    after_s: float


def _costs_by_path(side: Profile, root: Path, around: set[str], *, torn: bool) -> dict[Stack, float]:
    """Returns CPU seconds per request by stack. Stacks begin at the project's outermost function, if there is one.

    Adds the packages that call the project's code to `around`. With `torn`, stacks may mix several moments, so only the
    project's innermost function is kept.
    """
    costs_s: dict[Stack, float] = defaultdict(float)
    places = {frame: place_of(frame, root) for stack in side.stacks for frame in stack}
    for stack, count in side.stacks.items():
        seen = tuple(places[frame] for frame in stack)
        path = tuple(place for above, place in zip((None, *seen), seen, strict=False) if not _is_inner(place, above))
        own = [at for at, place in enumerate(path) if place.own_code and place.function != "<module>"]
        if (torn or stack in side.torn_stacks) and CHILD_PROCESSES not in stack:
            path = path[own[-1] : own[-1] + 1] if own else ()
        elif own:
            around.update(map(_package, path[: own[0]]))
            path = path[own[0] :]
        costs_s[path] += count * side.per_sample_s
    return costs_s


def _package(place: Frame) -> str:
    """Returns a library function's package, or its module in the standard library, such as `asyncio`."""
    return place.package or place.file.partition("/")[0]


def _is_inner(place: Frame, above: Frame | None) -> bool:
    if above is None or place.own_code or above.own_code or place.package or above.package:
        return False
    return _package(place) == _package(above)


def _aligned(before: Mapping[Stack, float], after: Mapping[Stack, float], *, sample_s: float) -> list[_Work]:
    """Returns each stack's work in both versions. If a function has other callers now, its old work moves to them.

    One sample stands for `sample_s` CPU seconds per request.
    """
    moved: dict[Stack, float] = dict(before)
    by_leaf: dict[Frame, list[Stack]] = defaultdict(list)
    for path in dict.fromkeys((*before, *after)):
        if path:
            by_leaf[path[-1]].append(path)
    for paths in by_leaf.values():
        fresh = [path for path in paths if path not in before]
        for gone in (path for path in paths if path not in after and fresh):
            alike = [_common_end(gone, path) for path in fresh]
            takers = [path for path, end in zip(fresh, alike, strict=True) if end == max(alike)]
            all_s = sum(after[path] for path in takers)
            cost_s = moved.pop(gone)
            for path in takers:
                moved[path] = moved.get(path, 0.0) + cost_s * after[path] / all_s
        _settle(paths, moved, after)
    _give_out(moved, after, known={place for path in before for place in path}, sample_s=sample_s)
    return [
        _Work(path=path, before_s=moved.get(path, 0.0), after_s=after.get(path, 0.0))
        for path in dict.fromkeys((*moved, *after))
    ]


def _settle(paths: Sequence[Stack], moved: dict[Stack, float], after: Mapping[Stack, float]) -> None:
    """Moves old work from stacks that cost less now to stacks that cost more, the most similar first."""
    more = {path: after.get(path, 0.0) - moved.get(path, 0.0) for path in paths}
    less = [path for path in paths if more[path] < 0]
    pairs = ((_common_end(one, other), one, other) for one in less for other in paths if more[other] > 0)
    for _, one, other in sorted(pairs, key=lambda pair: -pair[0]):
        part_s = min(-more[one], more[other])
        if part_s > 0:
            moved[one] -= part_s
            moved[other] = moved.get(other, 0.0) + part_s
            more[one] += part_s
            more[other] -= part_s


def _give_out(
    moved: dict[Stack, float], after: Mapping[Stack, float], *, known: Collection[Frame], sample_s: float
) -> None:
    """Moves old work from the project's functions that cost less now to new functions that they call."""
    for path in [path for path in moved if path and path[-1].own_code]:
        less_s = moved[path] - after.get(path, 0.0)
        if less_s < _CLEAR * math.sqrt((moved[path] + after.get(path, 0.0)) * sample_s):
            continue
        deep = len(path)
        takers = [
            other
            for other in after
            if other[:deep] == path and len(other) > deep and other[deep].own_code and other[deep] not in known
        ]
        all_s = sum(after[other] - moved.get(other, 0.0) for other in takers)
        if all_s > 0:
            for other in takers:
                part_s = min(less_s, all_s) * (after[other] - moved.get(other, 0.0)) / all_s
                moved[other] = moved.get(other, 0.0) + part_s
                moved[path] -= part_s


def _common_end(one: Stack, other: Stack) -> int:
    alike = (left == right for left, right in zip(reversed(one), reversed(other), strict=False))
    return sum(takewhile(bool, alike))


# --- blame

GREW = 0.01
"""A smaller rise, as a share of the old cost, also occurs between two start-ups of the same code."""
_UNSTEADY = 0.2
"""Around unchanged code, the cost of server and framework varies by this share (standard deviation). It depends on how
many requests the server reads at once."""
_MOST = 0.85
"""If calls have at least this share of a function's growth, the called functions are the cause."""
_AROUND = 0.6
"""Above this share of the old CPU time, a function is blamed for its calls only if its time doubled. Such a function is
around nearly all code."""
_WORTH_NAMING = 0.05
"""A function with a smaller share of the whole growth is left out."""
_OF_A_CALLER = 0.2
"""A caller of the greatest cause is left out if it has a smaller share of the growth. The cause fills caches and makes
garbage, which may slow its callers. In 6 of 38 slower libraries, an unchanged caller had up to 0.18 of the growth."""
_IN_EACH = 0.25
"""Each look (a run of the profiler on both versions) must show at least this share of a function's growth. A profiler
that waited for a core then takes many samples at once. So one moment may fill a tenth of all samples."""
_NEW = 0.2
"""A function is new if its old cost was less than this share of its new cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionGrowth:
    frame: Frame
    """The function, with its line in the new version, or in the old version if it is gone."""
    growth_s: float
    """CPU seconds per request that the function added; negative for savings. Work that it took over from other
    functions does not count."""
    share: float
    """`growth_s` ÷ the whole growth, from −1.0 to 1.0."""
    base_s: float
    """CPU seconds per request in the old version, including called functions."""
    now_s: float
    base_self_s: float
    """As `base_s`, without called Python functions."""
    now_self_s: float
    caller: Frame | None = None
    """For a library's function: its caller in the project, else in another package. None without such a caller."""


_Part: TypeAlias = tuple[_Work, int]
"""(work, index of a function in its path). −1 stands for the whole path."""
_Cause: TypeAlias = tuple[Frame, Sequence[_Part]]
"""(function, the work whose growth it causes)."""


class _Search:
    def __init__(
        self, works: Sequence[_Work], sample_s: tuple[float, float], *, least_s: float, around: Collection[str]
    ) -> None:
        """One sample stands for `sample_s` (old, new) CPU seconds per request. Growth below `least_s` is ignored.

        `around` are the packages of server and framework.
        """
        self._whole = [(work, -1) for work in works]
        self._whole_s = _sums(self._whole)
        self._sample_s = sample_s
        self._least_s = least_s
        self._around = around

    def causes(self) -> list[_Cause]:
        """Returns the functions that clearly grew more than the rest of the program."""
        found: list[_Cause] = []
        while more := list(self._below(None, rest := self._without(found), total_s=self._risen(rest))):
            found += more
        kept: list[_Cause] = []
        while found:
            clarity, best = max(((self._clarity(cause, kept), cause) for cause in found), key=lambda pair: pair[0])
            if clarity < _CLEAR:
                break
            kept.append(best)
            found.remove(best)
        return kept

    def _clarity(self, cause: _Cause, kept: Sequence[_Cause]) -> float:
        """Returns by how many standard deviations a cause grew more than the rest of the program."""
        others_before_s, others_after_s = _sums(self._without([*kept, cause]))
        even = max(1.0, others_after_s / others_before_s) if others_before_s else 1.0
        if others_before_s < 20 * self._sample_s[0]:
            # Too few samples. A slower machine or colder caches may slow the whole program by this factor.
            even = min(even, 1.3)
        _, parts = cause
        before_s, after_s = _sums(parts)
        return (after_s - even * before_s) / self._spread_s(parts)

    def _without(self, causes: Sequence[_Cause]) -> list[_Part]:
        taken = {id(work) for _, parts in causes for work, _ in parts}
        return [part for part in self._whole if id(part[0]) not in taken]

    def _is_clear(self, parts: Sequence[_Part]) -> bool:
        return _rise(parts) >= max(self._least_s, _CLEAR * self._spread_s(parts))

    def _spread_s(self, parts: Sequence[_Part]) -> float:
        """Returns the growth's standard deviation, from chance in sampling and from frameworks' varying CPU time."""
        variance = 0.0
        for all_s, own_s, sample_s in zip(self._whole_s, _sums(parts), self._sample_s, strict=True):
            share = (own_s + sample_s) / (all_s + 2 * sample_s)  # drawn to the middle: none of ten is not surely none
            variance += (own_s + sample_s) * sample_s * (1 - share)
        frame_s = sum(work.before_s for work, _ in parts if self.serves(work.path))
        return math.hypot(math.sqrt(variance), _UNSTEADY * frame_s)

    def serves(self, path: Stack) -> bool:
        """Returns whether a stack's innermost work belongs to server or framework."""
        if CHILD_PROCESSES in path:
            return False
        beneath = list(takewhile(lambda place: not place.own_code, reversed(path)))
        is_called = len(beneath) < len(path)
        return not is_called or (bool(beneath) and all(_package(place) in self._around for place in beneath))

    def _below(self, place: Frame | None, parts: Sequence[_Part], *, total_s: float) -> Iterator[_Cause]:
        """Yields the functions that cause the growth in `place`, or in the whole program if it is None."""
        inner = self._holder(parts, total_s)
        if inner is not None:
            if place is not None and _is_new_use(place, parts, *inner) and self._is_by_itself(parts):
                yield place, parts
            else:
                yield from self._below(*inner, total_s=total_s)
            return
        found = [
            cause
            for called, own in _called(parts).items()
            if sum(max(0.0, work.after_s - work.before_s) for work, _ in own) >= self._least_s
            for cause in self._below(called, own, total_s=self._risen(own))
        ]
        itself = [(work, at) for work, at in parts if at == len(work.path) - 1]
        if place is not None and self._is_clear(itself):
            found.append((place, itself))
        told_s = sum(_rise(own) for _, own in found)
        tells_all = told_s + self._spread_s(parts) >= _MOST * self._risen(parts) and _may_split(
            place, parts, [piece for piece, _ in found]
        )
        if place is None or (found and tells_all) or not self._is_by_itself(parts):
            yield from found
        else:
            yield place, parts

    def _holder(self, parts: Sequence[_Part], total_s: float) -> _Cause | None:
        """Returns the outermost called function with most of the growth, and its work. None if no function has most."""
        beneath: dict[Frame, list[_Part]] = defaultdict(list)
        for work, at in parts:
            for place in dict.fromkeys(work.path[at + 1 :]):
                beneath[place].append((work, _last(work.path, place)))
        holders = [
            (place, own)
            for place, own in beneath.items()
            if _rise(own) + self._spread_s(own) >= _MOST * total_s and self._is_clear(own)
        ]
        return max(holders, key=lambda holder: (sum(_sums(holder[1])), -holder[1][0][1]), default=None)

    def _risen(self, parts: Sequence[_Part]) -> float:
        """Returns the growth without functions that clearly cost less now, because savings would hide growth."""
        by_leaf: dict[Frame | None, list[_Part]] = defaultdict(list)
        for work, at in parts:
            by_leaf[work.path[-1] if work.path else None].append((work, at))
        saved_s = (_rise(own) for own in by_leaf.values() if -_rise(own) >= _CLEAR * self._spread_s(own))
        return _rise(parts) - sum(saved_s)

    def _is_by_itself(self, parts: Sequence[_Part]) -> bool:
        """Returns whether a function may be named as the cause, although the growth is in functions that it calls."""
        before_s = _sums(parts)[0]
        return self._is_clear(parts) and (before_s <= _AROUND * self._whole_s[0] or _rise(parts) >= before_s)


def growth(
    base: Profile, now: Profile, *, base_root: Path, now_root: Path, looks: Sequence[tuple[Profile, Profile]] = ()
) -> tuple[FunctionGrowth, ...]:
    """Returns the functions that made CPU time per request grow, the largest growth first. Savings follow.

    Empty if CPU time did not grow, or if no function stands out of the noise. `base` is the old version's profile, and
    `now` the new one's. The roots are the directories of the project's code. `looks` are parts of both profiles (old,
    new). A returned function has changed in each of them.
    """
    whole_s, noise_s = now.cost - base.cost, 0.0
    if not (base.samples and now.samples):
        return ()
    if base.cpu_per_request is None or now.cpu_per_request is None:  # two deviations, because samples count it
        noise_s = 2 * math.hypot(base.cost / math.sqrt(base.samples), now.cost / math.sqrt(now.samples))
    if whole_s <= max(GREW * base.cost, noise_s):
        return ()
    around: set[str] = set()

    def costs(pair: tuple[Profile, Profile]) -> list[dict[Stack, float]]:
        roots, torn = (base_root, now_root), base.torn or now.torn
        return [_costs_by_path(side, root, around, torn=torn) for side, root in zip(pair, roots, strict=True)]

    *in_looks, sides = map(costs, (*looks, (base, now)))
    samples_s = (base.per_sample_s, now.per_sample_s)
    works = _aligned(*sides, sample_s=max(samples_s))
    search = _Search(works, samples_s, least_s=_WORTH_NAMING * whole_s, around=around)
    back = [_Work(path=work.path, before_s=work.after_s, after_s=work.before_s) for work in works]
    savings = _Search(back, samples_s[::-1], least_s=2 * _WORTH_NAMING * whole_s, around=around)
    causes = search.causes()
    greatest = max((parts for _, parts in causes), key=_rise, default=())
    callers = {place for work, at in greatest for place in work.path[:at]}
    grown = [(place, own) for place, own in causes if place not in callers or _rise(own) >= _OF_A_CALLER * whole_s]
    saved = [
        (place, parts)
        for place, parts in (savings.causes() if grown else ())
        if not all(savings.serves(work.path) for work, _ in parts)
    ]
    told = [
        found
        for sign, changed in ((1, grown), (-1, saved))
        for place, parts in changed
        if _is_in_each(found := _told(place, parts, sign, sides, whole_s=whole_s), in_looks)
    ]
    return tuple(sorted(_merged(told), key=lambda each: -each.growth_s))


def _is_in_each(found: FunctionGrowth, looks: Sequence[Sequence[Mapping[Stack, float]]]) -> bool:
    # If nearly all of the growth is in the function's own code, each look must show it there.
    itself = (found.now_self_s - found.base_self_s) / found.growth_s >= 0.8
    for look in looks:
        base_s, now_s = (_cost_of(found.frame, side)[itself] for side in look)
        if not all(look) or (now_s - base_s) / found.growth_s < _IN_EACH:
            return False
    return True


def _cost_of(place: Frame, side: Mapping[Stack, float]) -> tuple[float, float]:
    """Returns a function's CPU seconds per request: (with called functions, without them)."""
    whole_s = sum(cost_s for path, cost_s in side.items() if place in path)
    return whole_s, sum(cost_s for path, cost_s in side.items() if path[-1:] == (place,))


def _told(
    place: Frame, parts: Sequence[_Part], sign: int, sides: Sequence[Mapping[Stack, float]], *, whole_s: float
) -> FunctionGrowth:
    growth_s, caller = sign * _rise(parts), _caller(place, parts)
    (base_s, base_self_s), (now_s, now_self_s) = (_cost_of(place, side) for side in sides)
    # Equal frames may differ in their line. The new version's comes last, so it replaces the old one's.
    newest = {frame: frame for side in sides for path in side for frame in path}
    return FunctionGrowth(
        frame=newest[place],
        growth_s=growth_s,
        share=max(-1.0, min(1.0, growth_s / whole_s)),
        base_s=base_s,
        now_s=now_s,
        base_self_s=base_self_s,
        now_self_s=now_self_s,
        caller=None if caller is None else newest[caller],
    )


def _caller(place: Frame, parts: Sequence[_Part]) -> Frame | None:
    """Returns the `FunctionGrowth.caller` that has most of the growth."""
    rises_s: dict[Frame, float] = defaultdict(float)
    for work, at in parts if not place.own_code else ():
        above = work.path[:at][::-1]
        own = (caller for caller in above if caller.own_code)
        other = (caller for caller in above if caller.package not in (place.package, ""))
        if (caller := next(own, None) or next(other, None)) is not None:
            rises_s[caller] += work.after_s - work.before_s
    return max(rises_s, key=lambda caller: rises_s[caller], default=None)


def _merged(told: Sequence[FunctionGrowth]) -> list[FunctionGrowth]:
    merged: dict[tuple[object, ...], FunctionGrowth] = {}
    for each in told:
        key = (each.frame, each.caller, each.growth_s > 0)
        if (known := merged.get(key)) is not None:
            share = max(-1.0, min(1.0, known.share + each.share))
            each = replace(known, growth_s=known.growth_s + each.growth_s, share=share)
        merged[key] = each
    return list(merged.values())


def _is_new_use(place: Frame, parts: Sequence[_Part], called: Frame, own: Sequence[_Part]) -> bool:
    """Returns whether the library function `place` is new, but the function that it calls is not."""
    if place.own_code or called.own_code:
        return False
    (before_s, after_s), (inner_before_s, inner_after_s) = _sums(parts), _sums(own)
    return before_s < _NEW * after_s and inner_before_s >= _NEW * inner_after_s


def _may_split(place: Frame | None, parts: Sequence[_Part], pieces: Sequence[Frame]) -> bool:
    """Returns whether to name the called `pieces` instead of `place`. A library's inner functions stay unnamed."""
    if (
        place is None
        or place.own_code
        or pieces == [place]
        or not any(above.own_code for work, at in parts for above in work.path[:at])
    ):
        return True
    return any(piece.own_code or piece.package not in (place.package, "") for piece in pieces)


def _called(parts: Sequence[_Part]) -> dict[Frame, list[_Part]]:
    called: dict[Frame, list[_Part]] = defaultdict(list)
    for work, at in parts:
        if at + 1 < len(work.path):
            place = work.path[at + 1]
            called[place].append((work, _last(work.path, place)))
    return called


def _last(path: Stack, place: Frame) -> int:
    return len(path) - 1 - path[::-1].index(place)


def _sums(parts: Sequence[_Part]) -> tuple[float, float]:
    return sum(work.before_s for work, _ in parts), sum(work.after_s for work, _ in parts)


def _rise(parts: Sequence[_Part]) -> float:
    return sum(work.after_s - work.before_s for work, _ in parts)
