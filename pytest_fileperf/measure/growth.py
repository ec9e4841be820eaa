"""What a server holds more and more of, request by request: open files, threads, memory.

    memory │     ╭──────── a cache that is full          memory │        ╭─ to the end: it is told
           │  ╭──╯                                              │     ╭──╯
           └─────────────── requests                            └─────╯──────── requests

Growth lasts if each quarter of the requests of a start-up has its part of it. The warm-up does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pytest_fileperf.watch.sample import ProcessUse, Sample

__all__ = ("HELD", "Growth", "Served", "growth_of", "joined")

_LEAST_SAMPLES = 4
_LEAST_REQUESTS = 20
_QUARTERS = 4
_LASTING_SHARE = 0.4
"""Each quarter of the requests has at least this share of its part of the growth."""
_SPARE = 8
"""So many files or threads, and one for each connection, come and go in any server."""
_LEAST_BYTES = 4 << 20
_LEAST_OF_MEMORY = 0.05
"""A heap may grow by so much, in bytes and as a share, as it is broken into pieces."""
_LASTING_STARTS = 0.8
"""Share of the start-ups in which growth lasts, where it is told."""
_AT_LIMIT = 0.97
"""A process with this share of the open files that it may have is at the limit: some are kept free, or just closed."""

Served = Sequence[tuple[int, int, int]]
"""When each round of a start-up began and ended, on the monotonic clock, and how many requests it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much more a server held for each request that it answered, well or not; None where that is not known."""

    requests: int
    """So many it is known of."""
    open_files: float | None = None
    threads: float | None = None
    memory_bytes: float | None = None
    lasting: frozenset[str] = frozenset()
    """The names of those that grew all the time, and by more than servers usually do."""
    files_limit: int | None = None
    """The limit of open files that a process reached; None where none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Something that a process holds."""

    name: str
    of: Callable[[ProcessUse], int | None]

    def least(self, start: float, connections: int) -> float:
        """Returns the least growth of a start-up that is told."""
        if self.name == "memory_bytes":
            return max(_LEAST_BYTES, _LEAST_OF_MEMORY * start)
        return _SPARE + connections


HELD = (
    _Held(name="open_files", of=lambda use: use.files),
    _Held(name="threads", of=lambda use: use.threads),
    _Held(name="memory_bytes", of=lambda use: use.rss_bytes),
)


def growth_of(samples: Sequence[Sample], served: Served, *, connections: int, files_limit: int | None) -> Growth | None:
    """Returns the growth over a start-up's rounds; None where too little was seen, or processes came and went."""
    rounds = sorted(served)
    reached = None if files_limit is None else _AT_LIMIT * files_limit
    at_limit = [
        sample.at_ns
        for sample in samples
        if reached is not None and any((use.files or 0) >= reached for use in sample.server)
    ]
    limit = files_limit if at_limit else None
    if not rounds:
        return None if limit is None else Growth(requests=0, files_limit=limit)
    begin_ns, end_ns = rounds[0][0], max(ended_ns for _, ended_ns, _ in rounds)
    seen = [sample for sample in samples if begin_ns <= sample.at_ns <= end_ns]
    if len({tuple(use.pid for use in sample.server) for sample in seen}) != 1 or not seen[0].server:
        return None if limit is None else Growth(requests=0, files_limit=limit)
    times, totals = _course(rounds)
    found: dict[str, float] = {}
    lasting = set()
    for held in HELD:
        usable = [one for one in seen if not (held.name == "open_files" and at_limit and one.at_ns >= at_limit[0])]
        values = [[held.of(use) for use in sample.server] for sample in usable]
        if len(usable) < _LEAST_SAMPLES or any(value is None for own in values for value in own):
            continue
        requests = np.interp([sample.at_ns for sample in usable], times, totals)
        if requests[-1] - requests[0] < _LEAST_REQUESTS:
            continue
        sums = [float(sum(value for value in own if value is not None)) for own in values]
        found[held.name] = (sums[-1] - sums[0]) / float(requests[-1] - requests[0])
        if _lasts(requests.tolist(), sums, held.least(sums[0], connections)):
            lasting.add(held.name)
    if not found and limit is None:
        return None
    return Growth(
        requests=round(totals[-1]),
        open_files=found.get("open_files"),
        threads=found.get("threads"),
        memory_bytes=found.get("memory_bytes"),
        lasting=frozenset(lasting),
        files_limit=limit,
    )


def joined(growths: Iterable[Growth | None]) -> Growth | None:
    """Returns the growth of several start-ups: the mean by requests, and what lasted in nearly all of them."""
    known = [growth for growth in growths if growth is not None]
    if not known:
        return None

    def mean(name: str) -> float | None:
        own = [(getattr(one, name), one.requests) for one in known if getattr(one, name) is not None]
        weight = sum(requests for _, requests in own)
        return sum(value * requests for value, requests in own) / weight if weight else None

    def lasts(name: str) -> bool:
        own = [name in one.lasting for one in known if getattr(one, name) is not None]
        return bool(own) and sum(own) >= _LASTING_STARTS * len(own)

    names = [held.name for held in HELD]
    return Growth(
        requests=sum(one.requests for one in known),
        **{name: mean(name) for name in names},
        lasting=frozenset(filter(lasts, names)),
        files_limit=max((one.files_limit for one in known if one.files_limit is not None), default=None),
    )


def _course(rounds: Served) -> tuple[list[int], list[float]]:
    """Returns instants, and how many requests had been answered by then."""
    times: list[int] = []
    totals: list[float] = []
    total = 0.0
    for began_ns, ended_ns, requests in rounds:
        times += [began_ns, ended_ns]
        totals += [total, total + requests]
        total += requests
    return times, totals


def _lasts(requests: Sequence[float], sums: Sequence[float], least: float) -> bool:
    """Returns whether it grew by this at the least, and in each quarter of the requests."""
    if sums[-1] - sums[0] < least:
        return False
    knots = np.interp(np.linspace(requests[0], requests[-1], _QUARTERS + 1), requests, sums)
    part = _LASTING_SHARE * (sums[-1] - sums[0]) / _QUARTERS
    return all(later - earlier >= part for earlier, later in pairwise(knots.tolist()))
