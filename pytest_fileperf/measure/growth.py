"""Finds resources that a server gathers with each request: open files, threads, memory.

    memory │     ╭──────── a cache that is full          memory │        ╭─ grows to the end: reported
           │  ╭──╯                                              │     ╭──╯
           └─────────────── requests                            └─────╯──────── requests

Growth is lasting if it goes on in each quarter of a start-up's requests. The warm-up does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from pytest_fileperf.host.sample import Sample

if TYPE_CHECKING:
    from pytest_fileperf.measure.recording import Round

_QUARTERS = 4
_LASTING_SHARE = 0.4
"""If each quarter of the requests adds at least this share of growth ÷ 4, the growth is lasting."""
_LEAST_OF_MEMORY = 0.05
"""Memory that grows by less than this share of its size is not reported, because heaps fragment."""
_LASTING_STARTS = 0.8
"""Lasting growth is reported if at least this share of the start-ups shows it."""
_AT_LIMIT = 0.97
"""A process that has opened this share of its allowed files counts as at its limit. It may have closed some again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A server's growth of resources per answered request, good or failed. A figure is None if it is unknown."""

    requests: int
    """How many requests were answered while the growth was measured."""
    open_files: float | None = None
    threads: float | None = None
    memory_bytes: float | None = None
    lasting: frozenset[str] = frozenset()
    """Names of the fields that grew all the time, and by more than is usual for servers."""
    files_limit: int | None = None
    """The limit of open files that a process reached; None if no process did."""


_HELD = {"open_files": "files", "threads": "threads", "memory_bytes": "rss_bytes"}
"""For each figure of `Growth`, the field of `ProcessUse` with one process's value."""


def growth_of(
    samples: Sequence[Sample], rounds: Sequence[Round], *, connections: int, files_limit: int | None
) -> Growth | None:
    """Returns how much the server's memory, open files and the like grew during the `rounds` of a start-up.

    None for too few samples, or if processes came and went. If a process opened as many files as `files_limit` allows,
    the result contains this limit.
    """
    full = (
        sample.at_ns
        for sample in samples
        if files_limit is not None and any((use.files or 0) >= _AT_LIMIT * files_limit for use in sample.server)
    )
    full_ns = next(full, None)
    limit = None if full_ns is None else files_limit
    unknown = None if limit is None else Growth(requests=0, files_limit=limit)
    if not rounds:
        return unknown
    seen = [sample for sample in samples if rounds[0].started_ns <= sample.at_ns <= rounds[-1].ended_ns]
    if len({tuple(use.pid for use in sample.server) for sample in seen}) != 1 or not seen[0].server:
        return unknown
    times = [at_ns for own in rounds for at_ns in (own.started_ns, own.ended_ns)]
    answered = accumulate((own.requests + own.failed for own in rounds), initial=0)
    totals = [total for both in pairwise(answered) for total in both]
    found: dict[str, float] = {}
    lasting = set()
    for name, field in _HELD.items():
        usable = [one for one in seen if name != "open_files" or full_ns is None or one.at_ns < full_ns]
        values = [[getattr(use, field) for use in sample.server] for sample in usable]
        if len(usable) < 4 or any(None in own for own in values):
            continue
        requests = np.interp([sample.at_ns for sample in usable], times, totals)
        if requests[-1] - requests[0] < 20:
            continue
        sums = [float(sum(own)) for own in values]
        grown = sums[-1] - sums[0]
        found[name] = grown / float(requests[-1] - requests[0])
        # A heap may grow by 4 MiB just because it fragments. In any server 8 files or threads come and go, and one per
        # connection.
        least = max(4 << 20, _LEAST_OF_MEMORY * sums[0]) if name == "memory_bytes" else 8 + connections
        knots = np.interp(np.linspace(requests[0], requests[-1], _QUARTERS + 1), requests, sums).tolist()
        part = _LASTING_SHARE * grown / _QUARTERS
        if grown >= least and all(later - earlier >= part for earlier, later in pairwise(knots)):
            lasting.add(name)
    if not found and limit is None:
        return None
    return Growth(requests=totals[-1], **found, lasting=frozenset(lasting), files_limit=limit)


def joined(growths: Iterable[Growth | None]) -> Growth | None:
    """Returns the start-ups' mean growth, weighted by requests; None if unknown.

    `lasting` has the fields that are lasting in nearly all start-ups.
    """
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

    return Growth(
        requests=sum(one.requests for one in known),
        **{name: mean(name) for name in _HELD},
        lasting=frozenset(filter(lasts, _HELD)),
        files_limit=max((one.files_limit for one in known if one.files_limit is not None), default=None),
    )
