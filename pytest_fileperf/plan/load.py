"""The load to make on each boot of the server: how many connections, how long, in which rounds."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fileperf.plan.pacing import (
    Burst,
    ClosedLoop,
    ConnectionRamp,
    ConstantRate,
    Interleaved,
    Pacing,
    RandomArrivals,
    RateRamp,
    Stage,
)
from pytest_fileperf.plan.pause import Pause
from pytest_fileperf.plan.share import WHOLE, Share

__all__ = ("LoadPlan", "Ramp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A load that changes over time."""

    stages: tuple[Stage, ...]
    of_rate: bool
    """Whether targets are requests per second (open loop) or connections (closed loop)."""

    @property
    def duration_ns(self) -> int:
        """All stages together."""
        return sum(stage.duration_ns for stage in self.stages)

    @property
    def highest(self) -> float:
        """The greatest target."""
        return max(stage.target for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run of load on one boot: warm-up, then rounds, then a drain of what is in flight.

    |-- warm-up --|-- round 1 --|-- round 2 --| … |-- round n --|~ drain ~|

    At most one of `requests`, `burst`, `rate` and `ramp` is given; without any it is a closed loop for a time.
    """

    connections: int
    """The most requests that are under way at once."""
    warmup_ns: int
    """Load whose samples are thrown away."""
    round_ns: int
    """Length of one round. With `requests` it is the longest time allowed: requests not sent by then have failed."""
    rounds: int
    timeout_ns: int
    """A request that takes longer counts as failed; in an open loop also one that waits longer for a connection."""
    requests: int | None = None
    """A fixed number of requests instead of a time; they make one round, without warm-up."""
    burst: int | None = None
    """A number of requests that are all due at once; they make one round, without warm-up."""
    rate: float | None = None
    """Open loop: requests per second."""
    seed: int | None = None
    """With `rate`: what chance draws the instants by at which requests are due; None where they come evenly."""
    ramp: Ramp | None = None
    """Its length is the rounds' together, without warm-up."""

    pause: Pause | None = None
    """How long each connection waits before its next request; of a closed loop only."""
    close: bool = False
    """Whether it is made to find a cause, not to measure: the server is looked at so often that a stall of its event
    loop shows, and the load keeps when each answer ended."""
    generators: int = 1
    """How many processes make it together, at most; `split` says what each of them makes."""
    share: Share = WHOLE
    """Which of them this plan is for: `connections`, `requests` and `burst` are its own, `rate` and `ramp` those of
    all."""

    @property
    def counted(self) -> bool:
        """Whether it is a fixed number of requests, that ends with the last of them."""
        return self.requests is not None or self.burst is not None

    @property
    def opened_first(self) -> int:
        """How many connections are open when it begins: all that work at once from then on.

        Any others are opened when a request needs one: connections that nobody uses change the server.
        """
        if self.rate is not None or self.ramp is not None or self.pause is not None:
            return 0
        return min(number for number in (self.connections, self.requests, self.burst) if number is not None)

    @property
    def duration_ns(self) -> int:
        """Warm-up and rounds together, without the drain."""
        return self.warmup_ns + self.round_ns * self.rounds

    @property
    def longest_ns(self) -> int:
        """The time after which the load ends even if the server never answers; ending itself takes a little more."""
        waits = 2 if self.pacing().open_loop else 1  # for a connection, then for the answer
        return self.duration_ns + waits * self.timeout_ns

    def pacing(self) -> Pacing:
        """Returns the pacing that makes this load."""
        if self.requests is not None:
            return ClosedLoop(requests=self.requests, duration_ns=self.duration_ns)
        if self.burst is not None:
            return Burst(requests=self.burst)
        if self.rate is not None:
            if self.seed is not None:
                return self._shared(RandomArrivals(rate=self.rate, duration_ns=self.duration_ns, seed=self.seed))
            return self._shared(ConstantRate(rate=self.rate, duration_ns=self.duration_ns))
        if self.ramp is not None:
            make = RateRamp if self.ramp.of_rate else ConnectionRamp
            return self._shared(make(stages=self.ramp.stages))
        return ClosedLoop(duration_ns=self.duration_ns)

    def _shared(self, pacing: Pacing) -> Pacing:
        """Returns what one of several generators sends of it."""
        return pacing if self.share.of == 1 else Interleaved(pacing=pacing, share=self.share)
