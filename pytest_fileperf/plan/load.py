"""The load to make on each boot of the server: how many connections, how long, in which rounds."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fileperf.plan.pacing import ClosedLoop, FixedCount, Pacing

__all__ = ("LoadPlan",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One stint of load on one boot: warm-up, then rounds, then a drain of what is in flight.

    |-- warm-up --|-- round 1 --|-- round 2 --| … |-- round n --|~ drain ~|
    """

    connections: int
    warmup_ns: int
    """Load whose samples are thrown away."""
    round_ns: int
    """Length of one round; the longest time allowed when `requests` is given: those not sent by then have failed."""
    rounds: int
    timeout_ns: int
    """A request that takes longer counts as failed."""
    requests: int | None = None
    """A fixed number of requests instead of a time; they make one round, without warm-up."""

    @property
    def duration_ns(self) -> int:
        """Warm-up and rounds together, without the drain."""
        return self.warmup_ns + self.round_ns * self.rounds

    def pacing(self) -> Pacing:
        """Returns the pacing that makes this load."""
        if self.requests is not None:
            return FixedCount(requests=self.requests, duration_ns=self.duration_ns)
        return ClosedLoop(duration_ns=self.duration_ns)
