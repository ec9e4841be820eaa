"""Finds the times in which an event loop was blocked: one thing ran or waited on it, and no request was answered.

Seen from outside, in a load that is looked at closely. A loop that answers request after request is busy, not blocked.
Which code blocks it is found in stacks of the main thread, those of all its time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_fileperf.measure.stacks import Frame, Stack, stack_of
from pytest_fileperf.watch.sample import MainThread, Sample

__all__ = ("Stalls", "held_by", "stalls_of")

LEAST_STALL_NS = 10_000_000
"""Shorter ones are not told from a loop that has much to do, by looks that are some milliseconds apart."""
_LEAST_LOOKS = 2
_HOLDS = 0.5
"""Share of the time of a blocked loop that makes a function its holder."""
_MAIN = re.compile(r"thread \(\w+\): MainThread")
_LOOP = re.compile(r".*/(?:selectors|asyncio/(?:runners|base_events|events)|uvloop/\w+|uvicorn/\w+|trio/_core/\w+)\.py")
"""Where the innermost function is while a loop has nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """How an event loop was blocked in a load."""

    typical_s: float
    """Half of all blocked time is in stalls of this length or longer."""
    lost_s: float
    """What requests waited for it, each on average."""
    waits: bool
    """Whether the loop waited in them for most of the time; else it computed."""


def stalls_of(
    samples: Sequence[Sample], ends_ns: Sequence[int], *, worker: int, connections: int | None, span_ns: tuple[int, int]
) -> Stalls | None:
    """Returns the stalls of a worker's loop; None without any.

    `ends_ns` says when answers ended, ascending, and `span_ns` from when to when all are known. `connections` are those
    of a closed loop, which wait in every stall; None in an open loop, where requests come while it lasts.
    """
    start_ns, end_ns = span_ns
    looks = [
        (sample.at_ns, process.main)
        for sample in samples
        for process in sample.server
        if process.pid == worker and process.main is not None and start_ns <= sample.at_ns <= end_ns
    ]
    found = [stall for stall in _stretches(looks, ends_ns, span_ns) if stall[0] >= LEAST_STALL_NS]
    if not found or not ends_ns:
        return None
    lengths = sorted((length / 1e9 for length, _ in found), reverse=True)
    total_s = sum(lengths)
    if connections is None:
        lost_s = sum(length**2 for length in lengths) / 2 / ((end_ns - start_ns) / 1e9)
    else:
        lost_s = total_s * connections / len(ends_ns)
    waited_s = sum(length * waited for length, waited in found) / 1e9
    return Stalls(typical_s=_weighted_median(lengths), lost_s=lost_s, waits=waited_s >= total_s / 2)


def held_by(collapsed: Iterable[str]) -> Stack | None:
    """Returns the functions that hold the loop for half of the time in which it is not idle, outermost first.

    Takes texts of py-spy with threads and idle time. None where nothing holds it for so long.
    """
    seen: Counter[Stack] = Counter()
    for line in (line for text in collapsed for line in text.splitlines()):
        words, _, number = line.rpartition(" ")
        thread, _, rest = words.partition(";")
        if rest and _MAIN.fullmatch(thread):
            stack = stack_of(rest)
            if not _LOOP.fullmatch(stack[-1].file.replace("\\", "/")):
                seen[stack] += int(number)
    held: list[Frame] = []
    while True:
        next_: Counter[Frame] = Counter()
        for stack, count in seen.items():
            if len(stack) > len(held) and list(stack[: len(held)]) == held:
                next_[stack[len(held)]] += count
        most = next_.most_common(1)
        if not most or most[0][1] < seen.total() * _HOLDS:
            return tuple(held) or None
        held.append(most[0][0])


def _stretches(
    looks: Sequence[tuple[int, MainThread]], ends_ns: Sequence[int], span_ns: tuple[int, int]
) -> list[tuple[int, float]]:
    """Returns times without an answer in which every look found the loop at something: length, and share that waits."""
    found = []
    edges = [span_ns[0], *ends_ns, span_ns[1]]
    at = 0
    for before, after in pairwise(edges):
        busy: list[tuple[int, MainThread]] = []
        begins_ns = before
        while at < len(looks) and looks[at][0] <= after:
            look = looks[at]
            at += 1
            if look[1] is not MainThread.IDLE:
                busy.append(look)
                continue
            if busy:
                found += _stall(busy, begins_ns, (busy[-1][0] + look[0]) // 2)
            busy, begins_ns = [], look[0] + _half_a_look(looks, at)
        found += _stall(busy, begins_ns, after)
    return found


def _half_a_look(looks: Sequence[tuple[int, MainThread]], at: int) -> int:
    """Returns half of the time between a look and the one before: on average something between them began then."""
    return (looks[at][0] - looks[at - 1][0]) // 2 if at < len(looks) else 0


def _stall(busy: Sequence[tuple[int, MainThread]], begins_ns: int, ends_ns: int) -> list[tuple[int, float]]:
    """Returns the stall that these looks show; nothing where there are too few."""
    if len(busy) < _LEAST_LOOKS:
        return []
    waited = sum(state is not MainThread.RUNNING for _, state in busy) / len(busy)
    return [(ends_ns - begins_ns, waited)]


def _weighted_median(lengths: Sequence[float]) -> float:
    """Returns the length that half of the sum reaches; the lengths descend."""
    passed, half = 0.0, sum(lengths) / 2
    for length in lengths:
        passed += length
        if passed >= half:
            break
    return length
