"""The load of a comparison: two servers in turn, many short turns each, in an order made by chance; pure.

Disturbances of a machine come and go in tenths of seconds, and slow the server that has the turn. Two turns that follow
each other directly are disturbed alike, so their ratio is not. Randomised order: Abedi and Brecht, "Conducting
Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017. What comes and goes by a clock may
keep step with turns of one length, and slow the same side each time: so chance draws their lengths, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from pytest_fileperf.plan.share import WHOLE, Share

__all__ = ("Alternation", "Side", "Turns")


class Side(IntEnum):
    """A side of a comparison, and its place in a pair of both."""

    BASE = 0
    """What is compared with."""
    NOW = 1
    """The code here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """A closed loop on one of two servers: each connection sends again at once while it is this server's turn."""

    open_loop: ClassVar[bool] = False
    slots_rest: ClassVar[bool] = True
    edges: tuple[int, ...]
    """When turns begin and end, by turns, in ns since the load began; ascending."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns now within a turn, else when the next one begins, or None after the last."""
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
    def measured_from_ns(self) -> int:
        """When the first cycle begins."""
        return 2 * len(self.warm_firsts) * self._warm_turn_ns

    @property
    def duration_ns(self) -> int:
        """Warm-up and cycles together, without the drain."""
        return self.measured_from_ns + 2 * sum(self.turns_ns)

    @property
    def longest_ns(self) -> int:
        """The time after which the load has ended even if a server never answers."""
        return self.duration_ns + self.timeout_ns

    def pacing(self, side: Side) -> Turns:
        """Returns when one side sends."""
        warm_ns, from_ns = [self._warm_turn_ns] * len(self.warm_firsts), self.measured_from_ns
        warm = _turns(self.warm_firsts, warm_ns, side) if from_ns else []
        edges = [at for turn in warm for at in turn]
        return Turns(
            edges=(*edges, *(from_ns + at for turn in _turns(self.firsts, self.turns_ns, side) for at in turn))
        )

    def rounds(self, side: Side) -> tuple[tuple[int, int], ...]:
        """Returns from when to when one side's turns count, one a cycle, in ns since `measured_from_ns`."""
        turns = _turns(self.firsts, self.turns_ns, side)
        return tuple((start + self.handover_ns, end) for start, end in turns)

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
