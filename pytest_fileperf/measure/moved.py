"""The work of two sides, stack by stack: what is done beneath other callers now is put beneath them before, too.

New middleware around a whole app, another thread or a new function that takes a part over then change nothing, and what
is left of the difference is growth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_fileperf.measure.stacks import CodePlace, Frame, Profile, place_of

__all__ = ("Calls", "Work", "aligned", "costs_by_calls")

_CLEAR = 4.0
"""Standard deviations from which a function clearly does less itself."""

Calls: TypeAlias = tuple[CodePlace, ...]
"""As a `Stack`, by what functions are known by on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Samples that have the same stack, as CPU seconds per request on both sides."""

    path: Calls
    before_s: float
    after_s: float


def costs_by_calls(side: Profile, root: Path | None, lines: dict[CodePlace, int], *, torn: bool) -> dict[Calls, float]:
    """Returns what each stack costs, from the project's outermost function on; notes where functions begin.

    What is around that function serves it, and is another one for each thread. Of a torn stack the project's innermost
    function is left, and nothing of one without any.
    """
    costs_s: dict[Calls, float] = defaultdict(float)
    places: dict[Frame, CodePlace] = {}
    for stack, count in side.stacks.items():
        for frame in stack:
            if frame not in places:
                places[frame] = place_of(frame, root)
                lines[places[frame]] = frame.line
        path = _without_inner(tuple(places[frame] for frame in stack))
        own = [at for at, place in enumerate(path) if place.own_code and place.function != "<module>"]
        if torn:
            path = path[own[-1] : own[-1] + 1] if own else ()
        elif own:
            path = path[own[0] :]
        costs_s[path] += count * side.per_sample_s
    return costs_s


def _without_inner(path: Calls) -> Calls:
    """Returns a stack where each part of the standard library is the function of it that was called."""
    return tuple(place for above, place in zip((None, *path), path, strict=False) if not _is_inner(place, above))


def _is_inner(place: CodePlace, above: CodePlace | None) -> bool:
    if above is None or place.own_code or above.own_code or place.package or above.package:
        return False
    return place.file.partition("/")[0] == above.file.partition("/")[0]


def aligned(before: Mapping[Calls, float], after: Mapping[Calls, float], *, sample_s: float) -> tuple[Work, ...]:
    """Returns the work of both sides. What is done beneath other callers now is put beneath them before, too.

    Work is known by its innermost function. Of all its new stacks, those that end most like the old one take it over.
    """
    moved: dict[Calls, float] = dict(before)
    by_leaf: dict[CodePlace, list[Calls]] = defaultdict(list)
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
    return tuple(
        Work(path=path, before_s=moved.get(path, 0.0), after_s=after.get(path, 0.0))
        for path in dict.fromkeys((*moved, *after))
    )


def _settle(paths: Sequence[Calls], moved: dict[Calls, float], after: Mapping[Calls, float]) -> None:
    """Moves what is done less beneath some callers to where the same is done more, the most alike first."""
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
    moved: dict[Calls, float], after: Mapping[Calls, float], *, known: Collection[CodePlace], sample_s: float
) -> None:
    """Moves what a function of the project does less itself to the project's new functions that it calls for it."""
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


def _common_end(one: Calls, other: Calls) -> int:
    same = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        same += 1
    return same
