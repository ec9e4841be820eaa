"""The result of a search for a server's capacity: the highest rate at which it meets its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.units import format_rate


class CapacityEnd(StrEnum):
    """Why a search for the capacity ended."""

    FOUND = "found"
    """Loads below this rate met the limits, and loads above it did not."""
    GENERATOR = "load generator"
    """The server met its limits at every rate that the load generator could make. So the server's capacity is at least
    the highest of these rates."""
    NO_RATE = "no rate holds"
    """Even a very low rate broke the limits."""
    SMOKE = "smoke run"
    """A smoke run made a few requests and did not search. `Capacity.rate` is only the rate of these requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTried:
    rate: float
    """Requests due per second."""
    boot: int
    seconds: float
    """How long the load lasted, without its warm-up."""
    requests: int
    """Successful requests."""
    failed: int
    beyond: Mapping[str, int]
    """For each limit's name, how many requests broke it: they were too slow, or failed."""
    holds: bool
    """Every limit was met, and the server did not fall behind."""
    falls_behind: bool = False
    """Every limit was met, but only because the load was short: the backlog of requests grew all the time."""
    by_generator: bool = False
    """The load generator was saturated, or its late requests broke a limit. So this load says nothing about the
    server."""
    p50: float | None = None
    p99: float | None = None
    """`p50` and `p99` are latencies in seconds, from when requests were due. None if no request succeeded."""

    @property
    def made(self) -> int:
        return self.requests + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate of an open loop at which a server meets its limits. Rates are requests per second.

    Repeated loads do not all find the same capacity. `rate` is the median.
    """

    rate: float
    """0.0 if no rate meets the limits."""
    low: float
    high: float
    """`low` to `high` is the interval of `rate` at `confidence`. `high` is infinite if only the load generator broke a
    limit."""
    confidence: float = 0.9
    limits: Mapping[str, float]
    """The limits to meet, by name, in SI units."""
    broken: str = ""
    """The limit that breaks first when the rate grows, such as `max_p99`. Empty if no limit broke."""
    limit: Limit = field(default=Limit(kind=LimitKind.UNCLEAR, evidence=""))
    """The bottleneck at rates slightly above `rate`."""
    closed_rps: float | None = None
    """Requests per second of a short closed loop before the search; None if there was no such load."""
    ended: CapacityEnd = CapacityEnd.FOUND
    tried: tuple[RateTried, ...] = ()

    def __str__(self) -> str:
        if self.ended is CapacityEnd.NO_RATE:
            return "every rate breaks the limits"
        rate = f"{format_rate(self.rate)}/s"
        if self.ended is CapacityEnd.SMOKE:
            return "not searched for in a smoke run"
        if math.isinf(self.high):
            return f"at least {rate}"
        return f"{rate} [{format_rate(self.low)}, {format_rate(self.high)}]"
