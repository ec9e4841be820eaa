"""Decides when the next request is due; a pure function of time and count, so it is tested without a clock.

Only `drive` waits. Both pacings here are *closed loop*: a connection's next request is due as soon as its last ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ("ClosedLoop", "FixedCount", "Pacing")


class Pacing(Protocol):
    """When to send."""

    def due(self, elapsed_ns: int, started: int) -> int | None:
        """Returns when request number `started` (from 0) is due, in nanoseconds since the load began.

        `elapsed_ns` is now, on the same clock; a due time in the past means at once. None: no more requests.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Each connection sends again at once, until the time is over."""

    duration_ns: int
    """Warm-up and rounds together."""

    def due(self, elapsed_ns: int, started: int) -> int | None:
        """Returns now, or None when the time is over."""
        return elapsed_ns if elapsed_ns < self.duration_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCount:
    """Each connection sends again at once, until so many requests have been started or the time is over."""

    requests: int
    duration_ns: int
    """The longest the load may go on: every load ends by itself."""

    def due(self, elapsed_ns: int, started: int) -> int | None:
        """Returns now, or None when the count or the time is used up."""
        return elapsed_ns if started < self.requests and elapsed_ns < self.duration_ns else None
