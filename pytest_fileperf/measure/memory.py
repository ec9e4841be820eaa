"""Peak memory after so many requests: two peaks compare only where both servers have answered equally many."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from pytest_fileperf.measure.recording import Round

__all__ = ("Course", "course_after", "course_of", "memory_after", "thinned")

Course: TypeAlias = tuple[tuple[int, int], ...]
"""How many requests a boot had answered, well or not, and its peak of memory up to then in bytes; both never fall."""

_MOST_POINTS = 64


def course_of(
    readings: Sequence[tuple[int, int]], rounds: Sequence[Round], *, warm: Sequence[tuple[int, int]], warmed: int
) -> Course:
    """Returns the course of a run: readings are instants with peaks, `warmed` the requests before the rounds.

    `warm` is from when to when these were sent, in ns before the rounds begin. Requests are taken to end evenly there,
    and within each round.
    """
    if not readings or not rounds:
        return ()
    zero_ns = rounds[0].started_ns
    loaded_ns = [start - end for start, end in warm]
    done = accumulate((warmed * each / max(1, sum(loaded_ns)) for each in loaded_ns), initial=0.0)
    nodes: list[tuple[int, float]] = []
    for (start, end), (before, after) in zip(warm, pairwise(done), strict=True):
        nodes += ((zero_ns - start, before), (zero_ns - end, after))
    ends = [zero_ns, *(round_.ended_ns for round_ in rounds)]
    nodes += zip(ends, accumulate((own.requests + own.failed for own in rounds), initial=warmed), strict=True)
    peaks = accumulate((size for _, size in readings), max)
    return thinned(
        [(round(_at(nodes, at_ns)), peak) for (at_ns, _), peak in zip(readings, peaks, strict=True)], _MOST_POINTS
    )


def course_after(earlier: Course, later: Course) -> Course:
    """Returns the course of a boot over a run and the one after it."""
    if not earlier or not later:
        return later or earlier
    served, peak = earlier[-1]
    return thinned([*earlier, *((served + count, max(peak, size)) for count, size in later)], _MOST_POINTS)


def memory_after(course: Course, requests: int) -> float:
    """Returns the peak of memory, in bytes, that a boot had after so many requests; of no course it is an error."""
    return _at(course, requests)


def thinned(points: Iterable[tuple[int, int]], most: int) -> Course:
    """Returns at most so many points: first and last of each stretch in which memory did not grow, or some of them."""
    points = tuple(points)
    sizes = [size for _, size in points]
    kept = [
        point
        for at, point in enumerate(points)
        if at in (0, len(points) - 1) or not sizes[at - 1] == sizes[at] == sizes[at + 1]
    ]
    step = (len(kept) - 1) / (most - 1)
    return tuple(kept) if step <= 1 else tuple(kept[round(place * step)] for place in range(most))


def _at(points: Sequence[tuple[int, float]], place: int) -> float:
    """Returns the value at a place between points, whose places ascend; outside that of the nearest one."""
    after = bisect_right(points, place, key=lambda point: point[0])
    if after == 0:
        return float(points[0][1])
    if after == len(points):
        return float(points[-1][1])
    (start, low), (end, high) = points[after - 1], points[after]
    return low + (high - low) * (place - start) / (end - start)
