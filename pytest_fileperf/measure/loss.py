"""Finds why requests of the new version take longer: CPU time, waiting, or a blocked event loop."""

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

# --- Splits the lost time into CPU time and waiting
#
# A request needs a core for some time, and waits for other things for some time. If requests share cores, they also
# wait for each other's CPU time. So 0.1 ms more CPU time can make 8 requests in flight 0.8 ms slower. A queue model
# says how much: one station with that much CPU time, and a delay that needs no core.
#
# Closed loop: mean-value analysis by Bard and Schweitzer (Schweitzer, "Approximate analysis of multiclass closed
# networks of queues", 1979). Several cores: Seidmann's approximation (1987). Open loop: M/D/1.

A_GOOD_PART = 0.25
"""A cause is reported if it has at least this share of a loss. The model is accurate to about a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How one version answered a load, per request."""

    latency_s: float
    """The mean. In a closed loop, the time from one request of a connection to the next, including pauses."""
    cpu_s: float
    connections: int
    rate: float | None = None
    """Open loop: answers per second. None in a closed loop."""
    cores: int = 1
    core_delay: float = 1.0
    """Other programs on the server's cores may have stretched its CPU time by this factor."""

    @property
    def core_s(self) -> float:
        """How long a request needs a core, including the time that other programs had it."""
        return self.cpu_s * self.core_delay

    @property
    def per_second(self) -> float:
        return self.connections / self.latency_s if self.rate is None else self.rate

    @property
    def wait_s(self) -> float:
        """The part of the latency that is neither CPU time nor waiting for a core; 0.0 if `is_busy`."""
        if self.is_busy:
            return 0.0
        if self.rate is None:
            cpu_s = self.station_s / (1 - (self.connections - 1) * self.station_s / self.latency_s)
        else:
            cpu_s = _queued_s(self.station_s, self.rate)
        return max(0.0, self.latency_s - cpu_s - self.apart_s)

    @property
    def is_busy(self) -> bool:
        """Whether CPU time, and not waiting, limits requests/s."""
        return self.core_s * self.per_second >= BUSY_CORE * self.cores

    @property
    def station_s(self) -> float:
        """The queue model treats all cores as a single faster core."""
        return self.core_s / self.cores

    @property
    def apart_s(self) -> float:
        """The queue model counts this time as a wait without a queue."""
        return self.core_s - self.station_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """How much longer a request takes than before, in seconds on average."""

    total_s: float
    cpu_s: float
    """The part caused by more CPU time, for this request and for the requests before it."""
    others_s: float = 0.0
    """The part caused by waiting for a core that other programs used; an upper bound."""

    @property
    def wait_s(self) -> float:
        """The part caused by waiting for anything but a core."""
        return self.total_s - self.cpu_s - self.others_s

    @property
    def cpu_share(self) -> float:
        return self.cpu_s / self.total_s


def latency_of(served: Served, *, wait_s: float) -> float:
    """Returns the latency that the queue model predicts if `wait_s` replaces `served.wait_s`."""
    wait_s += served.apart_s
    if served.rate is not None:
        return _queued_s(served.station_s, served.rate) + wait_s
    over_s = served.station_s * served.connections - wait_s
    return (over_s + math.sqrt(over_s**2 + 4 * served.station_s * wait_s)) / 2 + wait_s


def loss_of(base: Served, now: Served) -> Loss | None:
    """Returns the loss from the old to the new version; None if latency did not grow by at least 1 %."""
    total_s = now.latency_s - base.latency_s
    if total_s < 0.01 * base.latency_s:  # chance
        return None
    both = min(base.core_delay, now.core_delay)
    cpu_s = _by_cores(((base, both), (now, both)), total_s)
    by_cores_s = _by_cores(((base, base.core_delay), (now, now.core_delay)), total_s)
    others_s = min(max(0.0, by_cores_s - cpu_s), now.latency_s * (1 - both / now.core_delay))
    return Loss(total_s=total_s, cpu_s=max(cpu_s, by_cores_s - others_s), others_s=others_s)


def _by_cores(sides: Sequence[tuple[Served, float]], total_s: float) -> float:
    """Returns how much of `total_s` comes from longer use of cores. `sides`: (version, delay) of old and new."""
    cores = max(math.ceil(side.cpu_s * delay * side.per_second - 0.5) for side, delay in sides)
    base, now = (replace(side, core_delay=delay, cores=max(side.cores, cores)) for side, delay in sides)
    if now.rate is not None and now.is_busy and not base.is_busy:
        return total_s  # an endless queue grows for as long as the load lasts
    # More CPU time costs more without a wait than with one: the mean of both counts.
    costs_s = [latency_of(now, wait_s=wait_s) - latency_of(base, wait_s=wait_s) for wait_s in (base.wait_s, now.wait_s)]
    return min(max(0.0, sum(costs_s) / 2), total_s)


def _queued_s(cpu_s: float, rate: float) -> float:
    """Returns how long requests take in a queue, if they come at random and each needs `cpu_s` (M/D/1)."""
    busy = min(cpu_s * rate, 0.999)
    return cpu_s * (1 + busy / (2 * (1 - busy)))


# --- Finds the times in which one call blocked an event loop, so that it answered no request (stalls)
#
# This takes frequent samples (looks). A loop that answers request after request is busy, not blocked. The stacks of
# the main thread over all its time show which code blocks it.

_LEAST_STALL_NS = 10_000_000
"""Shorter stalls look like a busy loop, because samples are some milliseconds apart."""
_LEAST_WAITING = 0.1
"""A smaller share of waiting in the busy samples may be the noise of two profiles."""
_LOOP = re.compile(r".*/(?:selectors|asyncio/(?:runners|base_events|events)|uvloop/\w+|uvicorn/\w+|trio/_core/\w+)\.py")
"""Files like these contain the innermost function of an idle event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    typical_s: float
    """Half of all blocked time is in stalls of at least this length."""
    lost_s: float
    """How long a request waited for stalls, on average over all requests."""
    waits: bool
    """Whether the loop mostly waited during stalls; else it computed."""


def stalls_of(
    samples: Sequence[Sample], ends_ns: Sequence[int], *, worker: int, connections: int | None, span_ns: tuple[int, int]
) -> Stalls | None:
    """Returns the stalls of one worker's event loop; None if it had none.

    `ends_ns` are the instants in `span_ns` (start, end) at which answers ended, ascending. `connections` is None for an
    open loop.
    """
    start_ns, end_ns = span_ns
    looks = [
        (sample.at_ns, process.main)
        for sample in samples
        for process in sample.server
        if process.pid == worker and process.main is not None and start_ns <= sample.at_ns <= end_ns
    ]
    found = [stall for stall in _stretches(looks, ends_ns, span_ns) if stall[0] >= _LEAST_STALL_NS]
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


def held_by(collapsed: Iterable[str], at_work: Iterable[str] = ()) -> Stack | None:
    """Returns the outermost functions that at least half of the event loop's busy samples share; None if unknown.

    Samples in `at_work` lack waiting threads, and were taken for as long. They are subtracted, so waiting remains.
    """
    seen: Counter[Stack] = Counter()
    busy = 0
    for sign, texts in ((1, collapsed), (-1, at_work)):
        for is_main, stack, count in (found for text in texts for found in stacks_in(text)):
            if is_main and not _LOOP.fullmatch(stack[-1].file.replace("\\", "/")):
                seen[stack] += sign * count
                busy += count if sign > 0 else 0
    if seen.total() < _LEAST_WAITING * busy:
        return None
    held: list[Frame] = []
    while True:
        next_: Counter[Frame] = Counter()
        for stack, count in seen.items():
            if len(stack) > len(held) and list(stack[: len(held)]) == held:
                next_[stack[len(held)]] += count
        most = next_.most_common(1)
        if not most or most[0][1] < seen.total() / 2:
            is_held = held and not _LOOP.fullmatch(held[-1].file.replace("\\", "/"))
            return tuple(held) if is_held else None
        held.append(most[0][0])


def _stretches(
    looks: Sequence[tuple[int, MainThread]], ends_ns: Sequence[int], span_ns: tuple[int, int]
) -> list[tuple[int, float]]:
    """Returns each stall's (length in ns, share in which the main thread waited instead of using a core).

    In a stall no answer ends, and every sample finds work.
    """
    found = []
    at = 0
    for before, after in pairwise((span_ns[0], *ends_ns, span_ns[1])):
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
            # On average, something between two looks began half way.
            busy, begins_ns = [], look[0] + ((looks[at][0] - look[0]) // 2 if at < len(looks) else 0)
        found += _stall(busy, begins_ns, after)
    return found


def _stall(busy: Sequence[tuple[int, MainThread]], begins_ns: int, ends_ns: int) -> list[tuple[int, float]]:
    if len(busy) < 2:
        return []
    waited = sum(state is not MainThread.RUNNING for _, state in busy) / len(busy)
    return [(ends_ns - begins_ns, waited)]
