"""The load to make on each boot of the server: how many connections, how long, in which rounds."""

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
    def measured_from_ns(self) -> int:
        return self.warmup_ns

    @property
    def duration_ns(self) -> int:
        """Warm-up and rounds together, without the drain."""
        return self.warmup_ns + self.round_ns * self.rounds

    @property
    def longest_ns(self) -> int:
        """The time after which the load ends even if the server never answers; ending itself takes a little more."""
        waits = 2 if self.pacing().open_loop else 1  # for a connection, then for the answer
        return self.duration_ns + waits * self.timeout_ns

    def closely(self) -> LoadPlan:
        """Returns the same load, made to find a cause."""
        return replace(self, close=True)

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
        return whole if self.share.of == 1 else Interleaved(pacing=whole, share=self.share)


# --- The load of a comparison: two servers in turn, many short turns each, in an order made by chance; pure
#
# Disturbances of a machine come and go in tenths of seconds, and slow the server that has the turn. Two turns that
# follow each other directly are disturbed alike, so their ratio is not. Randomised order: Abedi and Brecht, "Conducting
# Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017. What comes and goes by a clock may
# keep step with turns of one length, and slow the same side each time: so chance draws their lengths, too.


class Side(IntEnum):
    """A side of a comparison, and its place in a pair of both."""

    BASE = 0
    """What is compared with."""
    NOW = 1
    """The code here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTurns:
    """A closed loop on one of two servers: each connection sends again at once while it is this server's turn."""

    open_loop, slots_rest = False, True
    edges: tuple[int, ...]
    """When turns begin and end, by turns, in ns since the load began; ascending."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        passed = bisect_right(self.edges, elapsed_ns)
        if passed & 1:
            return elapsed_ns
        return self.edges[passed] if passed < len(self.edges) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation:
    """Cycles of one turn of each server; the first ones warm up.

    | base | now | now | base | base | now | now | base | …
     warm-up                   cycle 0      cycle 1

    The first part of each turn is handover: the other server's last answers are still under way then.
    """

    requests = burst = pause = None
    counted = False
    """It ends by time, as a `LoadPlan` without these."""
    connections: int
    """To each server; only one of them is loaded at a time."""
    warmup_ns: int
    """Of each server, before the first cycle that counts."""
    turns_ns: tuple[int, ...]
    """For each cycle, how long each of its two turns takes."""
    handover_ns: int
    """The part of each turn that no rate counts."""
    firsts: tuple[Side, ...]
    """For each cycle, whose turn is first."""
    timeout_ns: int
    """A request that takes longer counts as failed."""
    warm_firsts: tuple[Side, ...] = (Side.BASE,)
    """For each cycle of the warm-up, whose turn is first; the cycles share its time. The first turn also warms up the
    machine and the generator, so several cycles are fairer than one."""
    generators: int = 1
    """How many processes make it together, at most: their turns are the same."""
    share: Share = WHOLE
    """Which of them this plan is for: `connections` are its own."""

    @property
    def opened_first(self) -> int:
        return self.connections

    @property
    def measured_from_ns(self) -> int:
        return 2 * len(self.warm_firsts) * self._warm_turn_ns

    @property
    def duration_ns(self) -> int:
        """Warm-up and cycles together, without the drain."""
        return self.measured_from_ns + 2 * sum(self.turns_ns)

    @property
    def longest_ns(self) -> int:
        """The time after which the load has ended even if a server never answers."""
        return self.duration_ns + self.timeout_ns

    def pacing(self, side: Side) -> SideTurns:
        from_ns, warm_ns = self.measured_from_ns, [self._warm_turn_ns] * len(self.warm_firsts)
        warm = _turns(self.warm_firsts, warm_ns, side) if from_ns else []
        turns = [(from_ns + start, from_ns + end) for start, end in _turns(self.firsts, self.turns_ns, side)]
        return SideTurns(edges=tuple(at for turn in (*warm, *turns) for at in turn))

    def rounds(self, side: Side) -> tuple[tuple[int, int], ...]:
        """Returns from when to when one side's turns count, one a cycle, in ns since `measured_from_ns`."""
        return tuple((start + self.handover_ns, end) for start, end in _turns(self.firsts, self.turns_ns, side))

    @property
    def _warm_turn_ns(self) -> int:
        return self.warmup_ns // len(self.warm_firsts)


def _turns(firsts: Sequence[Side], turns_ns: Sequence[int], side: Side) -> list[tuple[int, int]]:
    """Returns when the turns of a side begin and end, since the first cycle began."""
    turns, begun_ns = [], 0
    for first, turn_ns in zip(firsts, turns_ns, strict=True):
        start_ns = begun_ns + (turn_ns if first != side else 0)
        turns.append((start_ns, start_ns + turn_ns))
        begun_ns += 2 * turn_ns
    return turns


# --- Splits a load over several generators, so that all of them together make exactly what was asked for; pure
#
# connections, requests, burst   are divided, the first generators have one more where that leaves a rest
# rate, ramp of a rate           generator k of n has every n-th due time, from the k-th on
# ramp of connections            generator k of n has every n-th connection, from the k-th on
# turns of two servers           are the same instants for all of them


def generators_used(plan: LoadPlan | Alternation) -> int:
    """Returns how many generators make the load: each one has a connection."""
    return min(plan.generators, plan.connections)


def split(plan: LoadPlan | Alternation) -> tuple[LoadPlan | Alternation, ...]:
    """Returns what each generator makes of the load; the plan itself where it is one."""
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
