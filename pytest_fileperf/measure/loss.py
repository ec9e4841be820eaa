"""What requests lost their time to between two versions under one load: CPU time, waiting, a blocked event loop."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pytest_fileperf.host.sample import MainThread, Sample
from pytest_fileperf.measure.stacks import Frame, Stack, stacks_in
from pytest_fileperf.measure.usage import BUSY_CORE

# --- Splits the time that requests lost into CPU time and waiting
#
# A request needs a core for some time, and waits for other things for some time. Where requests share cores they also
# wait for each other's CPU time, so 0.1 ms more of CPU time can make 8 requests in flight 0.8 ms slower. A queue model
# says how much: one station, with that much CPU time, and a delay that needs no core.
#
# Closed loop: mean-value analysis by Bard and Schweitzer (Schweitzer, "Approximate analysis of multiclass closed
# networks of queues", 1979), several cores by Seidmann's approximation (1987). Open loop: M/D/1.

A_GOOD_PART = 0.25
"""Share of a loss from which on a cause is worth a word. The model is good to about a tenth."""
_LEAST_LOSS = 0.01
"""Share of the latency before. Less is how counts of requests differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How one version answered a load; per request."""

    latency_s: float
    """The mean. In a closed loop the time between two requests of a connection, pauses among it."""
    cpu_s: float
    """CPU time of the whole server."""
    connections: int
    rate: float | None = None
    """Open loop: answers per second. None in a closed loop."""
    cores: int = 1
    """Those that the server can use."""
    core_delay: float = 1.0
    """How many times that CPU time its cores may have been needed, as others had them meanwhile."""

    @property
    def core_s(self) -> float:
        """How long it needs a core, with what others had of it."""
        return self.cpu_s * self.core_delay

    @property
    def per_second(self) -> float:
        return self.connections / self.latency_s if self.rate is None else self.rate

    @property
    def wait_s(self) -> float:
        """The part of the latency that needs no core: neither for this request, nor for others before it."""
        own_s, apart_s = self._demand()
        if self.is_busy:
            return 0.0
        if self.rate is None:
            cpu_s = own_s / (1 - (self.connections - 1) * own_s / self.latency_s)
        else:
            cpu_s = _queued_s(own_s, self.rate)
        return max(0.0, self.latency_s - cpu_s - apart_s)

    @property
    def is_busy(self) -> bool:
        """Whether the cores set the pace."""
        return self.core_s * self.per_second >= BUSY_CORE * self.cores

    def _demand(self) -> tuple[float, float]:
        """Returns how long a request holds the station of all cores, and what else of its CPU time it takes."""
        return self.core_s / self.cores, self.core_s * (self.cores - 1) / self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a request takes longer than before, in seconds on average."""

    total_s: float
    cpu_s: float
    """Of it, because requests need more CPU time, their own and that of those before them."""
    others_s: float = 0.0
    """Of it, as much as may be waiting for a core that other processes of the machine had."""

    @property
    def wait_s(self) -> float:
        """Of it, waiting for anything but a core."""
        return self.total_s - self.cpu_s - self.others_s

    @property
    def cpu_share(self) -> float:
        return self.cpu_s / self.total_s


def latency_of(served: Served, *, wait_s: float) -> float:
    """Returns the latency by the model, for that CPU time and load, and so long a wait."""
    own_s, apart_s = served._demand()
    wait_s += apart_s
    if served.rate is not None:
        return _queued_s(own_s, served.rate) + wait_s
    over_s = own_s * served.connections - wait_s
    return (over_s + math.sqrt(over_s**2 + 4 * own_s * wait_s)) / 2 + wait_s


def loss_of(base: Served, now: Served) -> Loss | None:
    """Returns what was lost from base to now; None where requests do not take longer.

    More CPU time costs more where there is no wait, and less where there is one. The CPU part is the mean of both. What
    others have of the cores makes each CPU second longer on both sides: what more they had of one side may be theirs.
    """
    total_s = now.latency_s - base.latency_s
    if total_s < _LEAST_LOSS * base.latency_s:
        return None
    both = min(base.core_delay, now.core_delay)
    cpu_s = _by_cores(((base, both), (now, both)), total_s)
    by_cores_s = _by_cores(((base, base.core_delay), (now, now.core_delay)), total_s)
    others_s = min(max(0.0, by_cores_s - cpu_s), now.latency_s * (1 - both / now.core_delay))
    return Loss(total_s=total_s, cpu_s=max(cpu_s, by_cores_s - others_s), others_s=others_s)


def _by_cores(sides: Sequence[tuple[Served, float]], total_s: float) -> float:
    """Returns how much of the total it is that requests need their cores for longer; sides are with their delays."""
    cores = max(math.ceil(side.cpu_s * delay * side.per_second - 0.5) for side, delay in sides)
    base, now = (replace(side, core_delay=delay, cores=max(side.cores, cores)) for side, delay in sides)
    if now.rate is not None and now.is_busy and not base.is_busy:
        return total_s  # a queue that grows without end is as long as the load lasts
    before_s, after_s = base.wait_s, now.wait_s
    first_s = latency_of(now, wait_s=before_s) - latency_of(base, wait_s=before_s)
    last_s = latency_of(now, wait_s=after_s) - latency_of(base, wait_s=after_s)
    return min(max(0.0, (first_s + last_s) / 2), total_s)


def _queued_s(cpu_s: float, rate: float) -> float:
    """Returns how long requests take that come by chance and need a core for so long; very long for too many."""
    busy = min(cpu_s * rate, 0.999)
    return cpu_s * (1 + busy / (2 * (1 - busy)))


# --- Finds the times in which an event loop was blocked: one thing ran or waited on it, and no request was answered
#
# Seen from outside, in a load that is looked at closely. A loop that answers request after request is busy, not
# blocked. Which code blocks it is found in stacks of the main thread, those of all its time.

LEAST_STALL_NS = 10_000_000
"""Shorter ones are not told from a loop that has much to do, by looks that are some milliseconds apart."""
_LEAST_LOOKS = 2
_HOLDS = 0.5
"""Share of the time of a blocked loop that makes a function its holder."""
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
    passed = zip(lengths, accumulate(lengths), strict=True)
    typical_s = next(length for length, sum_s in passed if sum_s >= total_s / 2)
    return Stalls(typical_s=typical_s, lost_s=lost_s, waits=waited_s >= total_s / 2)


def held_by(collapsed: Iterable[str]) -> Stack | None:
    """Returns the functions that hold the loop for half of the time in which it is not idle, outermost first.

    Takes texts of py-spy with threads and idle time. None where nothing holds it for so long, or only what runs it: a
    thread that holds Python's lock is not on its stack.
    """
    seen: Counter[Stack] = Counter()
    for is_main, stack, count in (found for text in collapsed for found in stacks_in(text)):
        if is_main and not _LOOP.fullmatch(stack[-1].file.replace("\\", "/")):
            seen[stack] += count
    held: list[Frame] = []
    while True:
        next_: Counter[Frame] = Counter()
        for stack, count in seen.items():
            if len(stack) > len(held) and list(stack[: len(held)]) == held:
                next_[stack[len(held)]] += count
        most = next_.most_common(1)
        if not most or most[0][1] < seen.total() * _HOLDS:
            is_held = held and not _LOOP.fullmatch(held[-1].file.replace("\\", "/"))
            return tuple(held) if is_held else None
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
            # On average something between two looks began half way.
            busy, begins_ns = [], look[0] + ((looks[at][0] - look[0]) // 2 if at < len(looks) else 0)
        found += _stall(busy, begins_ns, after)
    return found


def _stall(busy: Sequence[tuple[int, MainThread]], begins_ns: int, ends_ns: int) -> list[tuple[int, float]]:
    """Returns the stall that these looks show; nothing where there are too few."""
    if len(busy) < _LEAST_LOOKS:
        return []
    waited = sum(state is not MainThread.RUNNING for _, state in busy) / len(busy)
    return [(ends_ns - begins_ns, waited)]
