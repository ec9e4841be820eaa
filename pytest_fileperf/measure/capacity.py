"""The capacity of a server: the highest rate at which it holds its limits, and the loads that show it; frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import SATURATED_CPU_SHARE
from pytest_fileperf.measure.metrics import percent_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import busiest_share
from pytest_fileperf.units import format_rate

__all__ = ("Capacity", "CapacityEnd", "RateTried", "tried_of")


class CapacityEnd(StrEnum):
    """How a search for the capacity ended."""

    FOUND = "found"
    """The rate is between loads that held the limits and loads that did not."""
    GENERATOR = "load generator"
    """The server held every rate that the load generator could make: its capacity is this rate or more."""
    NO_RATE = "no rate holds"
    """Not even at a small part of the closed loop's rate are the limits held."""
    SMOKE = "smoke run"
    """A few requests were made, and no rate was searched for: `rate` is what these requests made by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTried:
    """One load of the search."""

    rate: float
    """Requests due per second."""
    boot: int
    seconds: float
    """How long it was, without its warm-up."""
    requests: int
    """Good answers."""
    failed: int
    beyond: Mapping[str, int]
    """Requests that count against each limit, by its name: slower than it, or failed."""
    holds: bool
    """Whether every limit held in this load."""
    by_generator: bool = False
    """The load generator set the pace, or sent so late that a limit broke: the load says nothing about the server."""
    p50: float | None = None
    p99: float | None = None
    """Seconds from when requests were due; None without a good answer."""

    @property
    def made(self) -> int:
        """All requests."""
        return self.requests + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate of an open loop at which a server holds its limits. Rates are requests per second.

    Some loads find a server slower than others. This goes by its pace in the middle one: half of them find it faster.
    """

    rate: float
    """0.0 where no rate holds."""
    low: float
    high: float
    """Interval of the rate at `confidence`; `high` is infinite where nothing broke a limit but the load generator."""
    confidence: float = 0.9
    limits: Mapping[str, float]
    """What had to hold, by the name of the limit, in SI units."""
    broken: str = ""
    """The limit that breaks first when the rate grows: `max_p99`; empty where none broke."""
    limit: Limit = field(default=Limit(kind=LimitKind.UNCLEAR, evidence=""))
    """What set the pace just above this rate."""
    closed_rps: float | None = None
    """Requests per second of a short closed loop before the search."""
    ended: CapacityEnd = CapacityEnd.FOUND
    tried: tuple[RateTried, ...] = ()
    """Every load, in order."""

    def __str__(self) -> str:
        if self.ended is CapacityEnd.NO_RATE:
            return "no rate holds the limits"
        rate = f"{format_rate(self.rate)}/s"
        if self.ended is CapacityEnd.SMOKE:
            return f"not searched for, {rate} in a smoke run"
        if math.isinf(self.high):
            return f"at least {rate}"
        return f"{rate} [{format_rate(self.low)}, {format_rate(self.high)}]"


def tried_of(rate: float, recording: Recording, limits: Mapping[str, float]) -> RateTried:
    """Returns what a load at this rate has shown about limits that `searches_by` accepts."""
    latency, failed = recording.latency(), sum(round_.failed for round_ in recording.rounds)
    beyond, holds = _beyond(latency, failed, limits)
    # A limit that would hold from the moment of sending is broken by whoever sent so late. In this process that is the
    # app itself, which keeps the event loop from sending.
    # Where all connections that it may open were in use, a request waits for one, and no generator is late.
    some_free = recording.most_open < recording.connections
    late = not holds and some_free and _beyond(recording.service(), failed, limits)[1]
    busy = busiest_share(recording.measured()) > SATURATED_CPU_SHARE
    return RateTried(
        rate=rate,
        boot=recording.boots[0].index,
        seconds=sum(round_.duration_ns for round_ in recording.measured()) / 1e9,
        requests=latency.count,
        failed=failed,
        beyond=beyond,
        holds=holds,
        by_generator=recording.engine != "in-process" and (late or busy),
        p50=latency.percentile_ns(50) / 1e9 if latency.count else None,
        p99=latency.percentile_ns(99) / 1e9 if latency.count else None,
    )


def _beyond(latency: Histogram, failed: int, limits: Mapping[str, float]) -> tuple[dict[str, int], bool]:
    """Returns how many requests count against each limit, and whether all hold; no request at all holds none.

    Requests that failed are slower than any limit. A percentile's own value has to hold it, too, as in a verdict.
    """
    found, holds = {}, latency.count > 0
    for name, limit in limits.items():
        percent, share = percent_of(name), latency.share_within(0, limit * 1e9)
        found[name] = failed + (0 if percent is None else round(latency.count * (1 - share)))
        allowed = limit if percent is None else 1 - percent / 100
        holds = holds and found[name] <= allowed * (latency.count + failed)
        holds = holds and (percent is None or latency.percentile_ns(percent) / 1e9 <= limit)
    return found, holds
