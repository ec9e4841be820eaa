"""The load of a comparison: two servers in turn, many short turns each, in an order made by chance; pure.

Disturbances of a machine come and go in tenths of seconds, and slow the server that has the turn. Two turns that follow
each other directly are disturbed alike, so their ratio is not. Randomised order: Abedi and Brecht, "Conducting
Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017.
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
    turn_ns: int
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
        return self.measured_from_ns + 2 * len(self.firsts) * self.turn_ns

    @property
    def longest_ns(self) -> int:
        """The time after which the load has ended even if a server never answers."""
        return self.duration_ns + self.timeout_ns

    def pacing(self, side: Side) -> Turns:
        """Returns when one side sends."""
        warm_ns, turn_ns = self._warm_turn_ns, self.turn_ns
        warm = _starts(self.warm_firsts, side, warm_ns) if warm_ns else []
        edges = [at for start in warm for at in (start, start + warm_ns)]
        starts = (self.measured_from_ns + start for start in _starts(self.firsts, side, turn_ns))
        return Turns(edges=(*edges, *(at for start in starts for at in (start, start + turn_ns))))

    def rounds(self, side: Side) -> tuple[tuple[int, int], ...]:
        """Returns from when to when one side's turns count, one a cycle, in ns since `measured_from_ns`."""
        starts = _starts(self.firsts, side, self.turn_ns)
        return tuple((start + self.handover_ns, start + self.turn_ns) for start in starts)

    @property
    def _warm_turn_ns(self) -> int:
        return self.warmup_ns // len(self.warm_firsts)


def _starts(firsts: Sequence[Side], side: Side, turn_ns: int) -> list[int]:
    """Returns when the turns of a side begin, since the first cycle did."""
    return [(2 * cycle + (first != side)) * turn_ns for cycle, first in enumerate(firsts)]
