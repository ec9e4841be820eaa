"""The capacity of a server: the highest rate at which it holds its limits, and the loads that show it; frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.units import format_rate


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
    """Whether every limit held in this load, and the server did not fall behind."""
    falls_behind: bool = False
    """Every limit held, but only as the load was over soon: its backlog grew from beginning to end."""
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
