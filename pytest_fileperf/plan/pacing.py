"""Decides when the next request is due; a pure function of time and counts, so it is tested without a clock.

Only `drive` waits. *Closed loop*: a connection's next request is due as soon as its last ended, so a slow server is
asked less. *Open loop*: requests are due at given instants, however slow the server (vegeta's pacer, wrk2's schedule).
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import ClassVar, Protocol

from pytest_fileperf.plan.arrivals import instants
from pytest_fileperf.plan.share import Share

__all__ = (
    "Burst",
    "ClosedLoop",
    "ConnectionRamp",
    "ConstantRate",
    "Interleaved",
    "Pacing",
    "RandomArrivals",
    "RateRamp",
    "Stage",
)

_SECOND_NS = 1_000_000_000


class Pacing(Protocol):
    """When to send."""

    @property
    def open_loop(self) -> bool:
        """Whether a request's latency counts from when it was due, not from when it was sent."""

    @property
    def slots_rest(self) -> bool:
        """Whether there may be less under way than could be."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns when request number `started` (from 0) is due, in nanoseconds since the load began.

        `elapsed_ns` is now, on the same clock, and `busy` how many requests are under way; a due time in the past
        means at once, one in the future to ask again then, or when a request has ended. None: no more requests.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Each connection sends again at once, until the time is over or a number of requests have been started."""

    open_loop: ClassVar[bool] = False
    slots_rest: ClassVar[bool] = False
    duration_ns: int
    """Warm-up and rounds together; with `requests` the longest time that they may take: every load ends by itself."""
    requests: int = sys.maxsize

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns now, or None when the time or the number is used up."""
        return elapsed_ns if elapsed_ns < self.duration_ns and started < self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A number of requests are due at the very beginning: those without a free connection wait for one."""

    open_loop: ClassVar[bool] = True
    slots_rest: ClassVar[bool] = True
    requests: int

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns 0, or None when the count is used up."""
        return 0 if started < self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRate:
    """A request is due every 1/rate seconds, the first one at once: `rate` × duration of them, rounded up."""

    open_loop: ClassVar[bool] = True
    slots_rest: ClassVar[bool] = True
    rate: float
    """Per second."""
    duration_ns: int

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns the instant by the count alone, so that errors never add up; after the last one the end."""
        due_ns = round(started * _SECOND_NS / self.rate)
        if due_ns < self.duration_ns:
            return due_ns
        return self.duration_ns if elapsed_ns < self.duration_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomArrivals:
    """Requests are due at instants that chance draws, on average `rate` a second: users who do not know of each other.

    It is a Poisson process. At the same rate, requests queue that would not if they came evenly, so that a server holds
    a limit of latency up to a lower rate.
    """

    open_loop: ClassVar[bool] = True
    slots_rest: ClassVar[bool] = True
    rate: float
    """Per second."""
    duration_ns: int
    seed: int
    _due_ns: Sequence[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_due_ns", _kept(self.rate, self.duration_ns, self.seed))

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns the instant that was drawn for it; after the last one the end."""
        if started < len(self._due_ns):
            return self._due_ns[started]
        return self.duration_ns if elapsed_ns < self.duration_ns else None


@lru_cache(maxsize=2)
def _kept(rate: float, duration_ns: int, seed: int) -> Sequence[int]:
    """Returns the instants of a load, which asks for its pacing several times."""
    return tuple(instants(rate, duration_ns, seed).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of a ramp: from the target of the stage before (0 before the first) evenly to its own."""

    duration_ns: int
    """0 for a jump."""
    target: float
    """Requests per second, or connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRamp:
    r"""An open loop whose rate goes from target to target.

    rate 80 |      ________
            |     /         \
          0 |____/___________\____ time
    """

    open_loop: ClassVar[bool] = True
    slots_rest: ClassVar[bool] = True
    stages: tuple[Stage, ...]
    _starts: tuple[tuple[int, float, float], ...] = field(init=False, repr=False, compare=False)
    """For each stage, and the end: when it begins (ns), at which rate, and how many requests were due before."""

    def __post_init__(self) -> None:
        begins = accumulate((stage.duration_ns for stage in self.stages), initial=0)
        rates = (0.0, *(stage.target for stage in self.stages))
        seconds = (stage.duration_ns / _SECOND_NS for stage in self.stages)
        counts = accumulate(
            (length * (low + high) / 2 for length, (low, high) in zip(seconds, pairwise(rates), strict=True)),
            initial=0.0,
        )
        object.__setattr__(self, "_starts", tuple(zip(begins, rates, counts, strict=True)))

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns when the integral of the rate reaches the count; where it never does, the end."""
        end_ns, _, total = self._starts[-1]
        if started >= total:
            return end_ns if elapsed_ns < end_ns else None
        at = bisect_right(self._starts, float(started), key=lambda start: start[2]) - 1
        begin_ns, rate, before = self._starts[at]
        stage = self.stages[at]
        missing = started - before
        slope = (stage.target - rate) / (stage.duration_ns / _SECOND_NS)  # a jump has no requests, so is never `at`
        # missing = rate·t + slope·t²/2, solved without cancellation where the slope is small.
        root = math.sqrt(max(0.0, rate * rate + 2 * slope * missing))
        seconds = 2 * missing / (rate + root) if missing else 0.0
        return begin_ns + round(seconds * _SECOND_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRamp:
    """A closed loop in which the number of connections at work goes from target to target, in whole ones."""

    open_loop: ClassVar[bool] = False
    slots_rest: ClassVar[bool] = True
    stages: tuple[Stage, ...]

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns now where one more may be at work, else the instant from which one may; None when time is over."""
        begin_ns, level = 0, 0.0
        for stage in self.stages:
            end_ns = begin_ns + stage.duration_ns
            if elapsed_ns < end_ns:
                found_ns = _reaches(busy + 1, level, stage, begin_ns, max(elapsed_ns, begin_ns))
                if found_ns is not None:
                    return found_ns
            begin_ns, level = end_ns, stage.target
        return None if elapsed_ns >= begin_ns else begin_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """What one of several generators sends: of n generators each has every n-th due time, or connection at work.

    all          | | | | | | | |
    generator 1  |     |     |
    generator 2    |     |     |
    generator 3      |     |
    """

    pacing: Pacing
    """That of all of them."""
    share: Share

    @property
    def open_loop(self) -> bool:
        """As that of all."""
        return self.pacing.open_loop

    @property
    def slots_rest(self) -> bool:
        """As that of all."""
        return self.pacing.slots_rest

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns when its own request of that number is due, with so many of its own under way."""
        return self.pacing.due(elapsed_ns, self.share.number(started), self.share.number(busy))


def _reaches(wanted: int, level: float, stage: Stage, begin_ns: int, from_ns: int) -> int | None:
    """Returns the first instant in the stage, from `from_ns` on, at which the line is at `wanted` or more."""
    if stage.duration_ns == 0:
        return None
    slope = (stage.target - level) / stage.duration_ns
    if level + slope * (from_ns - begin_ns) >= wanted:
        return from_ns
    if stage.target < wanted:
        return None
    return begin_ns + math.ceil((wanted - level) / slope)
