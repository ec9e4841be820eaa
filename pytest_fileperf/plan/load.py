"""The load for each start-up: how many connections, how long, in which rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from pytest_fileperf.plan.pacing import (
    WHOLE,
    Arrivals,
    ClosedLoop,
    ConstantRate,
    Interleaved,
    Pacing,
    Ramp,
    Share,
    random_arrivals,
)
from pytest_fileperf.plan.work import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A load on one start-up: warm-up, rounds, then a drain of the requests in flight.

    |-- warm-up --|-- round 1 --|-- round 2 --| … |-- round n --|~ drain ~|

    At most one of `requests`, `burst`, `rate` and `ramp` is given. If none is, the load is a closed loop of fixed time.
    """

    connections: int
    """The most requests that are under way at once."""
    warmup_ns: int
    """Length of the warm-up, whose samples are thrown away."""
    round_ns: int
    """Length of a round. With `requests`, the time limit for sending them."""
    rounds: int
    timeout_ns: int
    """A request that takes longer fails. In an open loop, the wait for a connection has the same limit."""
    requests: int | None = None
    """A fixed number of requests instead of a time. They make one round, without warm-up."""
    burst: int | None = None
    """A number of requests that are all due at once. They make one round, without warm-up."""
    rate: float | None = None
    """Open loop: requests per second."""
    seed: int | None = None
    """With `rate`: the seed of random due times. None spaces them evenly."""
    ramp: Ramp | None = None
    """How the rate or the number of connections changes, over all rounds; without warm-up."""
    pause: Pause | None = None
    """How long each connection waits before its next request; closed loops only."""
    close: bool = False
    """Whether to sample often enough to show stalls, and to keep each answer's end time."""
    generators: int = 1
    """The most processes that make the load together; `split` gives each its part."""
    share: Share = WHOLE
    """This process's part of the load. `connections`, `requests` and `burst` are the part's own."""

    @property
    def counted(self) -> bool:
        """Whether the load has a fixed number of requests, and ends with the last one."""
        return self.requests is not None or self.burst is not None

    @property
    def opened_first(self) -> int:
        """How many connections to open at the start. Others open on demand, because idle ones can slow the server."""
        if self.rate is not None or self.ramp is not None or self.pause is not None:
            return 0
        return min(number for number in (self.connections, self.requests, self.burst) if number is not None)

    @property
    def measured_from_ns(self) -> int:
        return self.warmup_ns

    @property
    def duration_ns(self) -> int:
        """Warm-up and rounds, without the drain."""
        return self.warmup_ns + self.round_ns * self.rounds

    @property
    def longest_ns(self) -> int:
        """The load ends after this time, even if the server never answers."""
        waits = 2 if self.pacing().open_loop else 1  # for a connection, then for the answer
        return self.duration_ns + waits * self.timeout_ns

    def pacing(self) -> Pacing:
        if self.requests is not None:
            return ClosedLoop(requests=self.requests, duration_ns=self.duration_ns)
        if self.burst is not None:
            return Arrivals(requests=self.burst)
        whole: Pacing
        if self.rate is not None and self.seed is not None:
            whole = random_arrivals(self.rate, self.duration_ns, self.seed)
        elif self.rate is not None:
            whole = ConstantRate(rate=self.rate, duration_ns=self.duration_ns)
        elif self.ramp is not None:
            whole = self.ramp
        else:
            return ClosedLoop(duration_ns=self.duration_ns)
        return whole if self.share.of == 1 else Interleaved(whole=whole, share=self.share)


# --- A comparison's load: two servers alternately, in many short turns, in random order; pure
#
# Disturbances of a machine come and go in tenths of seconds, and slow the server whose turn it is. Two turns that
# follow each other directly suffer alike, so their ratio does not change. The order is random, after Abedi and Brecht,
# "Conducting Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017. If all turns had one
# length, a periodic disturbance could always slow the same version. So even the lengths are random.


class Side(IntEnum):
    BASE = 0
    """The old code."""
    NOW = 1
    """The new code, in the working tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTurns:
    """A closed loop on one of two servers, during this server's turns (slices of the load)."""

    open_loop, slots_rest = False, True
    edges: tuple[int, ...]
    """When turns begin and end, alternately, in ns since the load began; ascending."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        passed = bisect_right(self.edges, elapsed_ns)
        if passed & 1:
            return elapsed_ns
        return self.edges[passed] if passed < len(self.edges) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation:
    """Cycles in which each server has one turn (slice of load); the first cycles warm up.

    | base | now | now | base | base | now | now | base | …
     warm-up                   cycle 0      cycle 1

    Each turn begins with a handover, in which the other server's last answers still arrive.
    """

    requests = burst = pause = None
    counted = False
    connections: int
    """The number of connections to each server; the load goes to one server at a time."""
    warmup_ns: int
    """The length of each server's warm-up, before the first cycle that counts."""
    turns_ns: tuple[int, ...]
    """For each cycle, how long each of its two turns takes."""
    handover_ns: int
    """The length of each turn's handover. Answers in the handover do not count for requests/s."""
    firsts: tuple[Side, ...]
    """For each cycle, the server that begins."""
    timeout_ns: int
    warm_firsts: tuple[Side, ...] = (Side.BASE,)
    """For each warm-up cycle, the server that begins. Several cycles are fairer, because the very first turn also warms
    up the machine."""
    generators: int = 1
    """The most processes that make the load together; all have the same turns."""
    share: Share = WHOLE
    """This process's part of the load, with `connections` of its own."""

    @property
    def opened_first(self) -> int:
        return self.connections

    @property
    def measured_from_ns(self) -> int:
        return 2 * len(self.warm_firsts) * self._warm_turn_ns

    @property
    def duration_ns(self) -> int:
        return self.measured_from_ns + 2 * sum(self.turns_ns)

    @property
    def longest_ns(self) -> int:
        return self.duration_ns + self.timeout_ns

    def pacing(self, side: Side) -> SideTurns:
        from_ns, warm_ns = self.measured_from_ns, [self._warm_turn_ns] * len(self.warm_firsts)
        warm = _turns(self.warm_firsts, warm_ns, side) if from_ns else []
        turns = [(from_ns + start, from_ns + end) for start, end in _turns(self.firsts, self.turns_ns, side)]
        return SideTurns(edges=tuple(at for turn in (*warm, *turns) for at in turn))

    def rounds(self, side: Side) -> tuple[tuple[int, int], ...]:
        """Returns (start, end) of this server's turns without their handovers, in ns since `measured_from_ns`."""
        return tuple((start + self.handover_ns, end) for start, end in _turns(self.firsts, self.turns_ns, side))

    @property
    def _warm_turn_ns(self) -> int:
        return self.warmup_ns // len(self.warm_firsts)


def _turns(firsts: Sequence[Side], turns_ns: Sequence[int], side: Side) -> list[tuple[int, int]]:
    """Returns (start, end) of each turn of the server `side`, in ns since the first cycle began."""
    turns, begun_ns = [], 0
    for first, turn_ns in zip(firsts, turns_ns, strict=True):
        start_ns = begun_ns + (turn_ns if first != side else 0)
        turns.append((start_ns, start_ns + turn_ns))
        begun_ns += 2 * turn_ns
    return turns


# --- Splits a load over several generators, so that they together make exactly the load that was planned; pure
#
# connections, requests, burst   are divided; the first generators have one more if there is a remainder
# rate, ramp of a rate           generator k of n has every n-th due time, from the k-th on
# ramp of connections            generator k of n has every n-th connection, from the k-th on
# turns of two servers           are at the same instants for all generators


def generators_used(plan: LoadPlan | Alternation) -> int:
    return min(plan.generators, plan.connections)


def split(plan: LoadPlan | Alternation) -> tuple[LoadPlan | Alternation, ...]:
    count = generators_used(plan)
    if count == 1:
        return (plan,)
    made = plan.burst if plan.requests is None else plan.requests
    each = []
    for place in range(count):
        before = None if made is None else made // count * place + min(place, made % count)
        share = Share(place=place, of=count, before=before, connections=plan.connections)
        totals = {name: getattr(plan, name) for name in ("connections", "requests", "burst")}
        own: dict[str, Any] = {name: share.part_of(total) for name, total in totals.items() if total is not None}
        each.append(replace(plan, share=share, **own))
    return tuple(each)
