"""What each side of a comparison did while the other one had its turn: they share a core, so it slows the other one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.units import format_share

__all__ = ("Background", "background_of")

_FELT = 0.02
"""Share of a core from which it must be said: it costs the other side as much of its rate."""
_DOUBT = 0.02
"""Chance that a median beyond this is said of a side whose median is not. One late reading of a busy machine, or a
slow request, shows in few of the turns: background work shows in most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Shares of a core that the sides used in each other's turns; None where that is not known."""

    base: float | None
    now: float | None
    surely_base: float = 0.0
    surely_now: float = 0.0
    """What it was in most of these turns, at least."""

    def __str__(self) -> str:
        """Returns a sentence that says whose work slows the other side; empty where none does."""
        sides = (("the base", self.base or 0.0, self.surely_base), ("the code here", self.now or 0.0, self.surely_now))
        told = [f"{whose} used {format_share(round(share, 2))}" for whose, share, surely in sides if surely > _FELT]
        if not told:
            return ""
        used = f"{' and '.join(told)} of a core while the other side had its turn"
        return f"{used}: background work of one side slows the other"


def background_of(base: Recording, now: Recording) -> Background:
    """Returns what each side did in the other one's turns, over all pairs of boots."""
    (of_base, surely_base), (of_now, surely_now) = _shares(base, now), _shares(now, base)
    return Background(base=of_base, now=of_now, surely_base=surely_base, surely_now=surely_now)


def _shares(own: Recording, other: Recording) -> tuple[float | None, float]:
    """Returns the share of a core that a side used in the turns of the other one, without what late answers cost it.

    The second is what it surely was in most of these turns.
    """
    starts = [turn.started_ns for turn in other.measured()]
    ends = [turn.ended_ns for turn in other.measured()]

    def is_in_a_turn(round_: Round) -> bool:
        last = bisect_right(starts, round_.started_ns) - 1
        return last >= 0 and round_.ended_ns <= ends[last]

    known = [round_ for round_ in own.rounds if round_.server_cpu_ns is not None]
    turns = [round_ for round_ in known if round_.phase is Phase.ROUND]
    idle = [round_ for round_ in known if round_.phase is Phase.HANDOVER and is_in_a_turn(round_)]
    idle = [round_ for round_ in idle if round_.duration_ns > 0]
    turns_cpu_ns, answers = _cpu_and_answers(turns)
    if not idle or answers == 0:
        return None, 0.0
    beyond_ns = [cpu_ns - late * turns_cpu_ns / answers for cpu_ns, late in map(_cpu_and_answers, zip(idle))]
    mean = sum(beyond_ns) / sum(round_.duration_ns for round_ in idle)
    surely = _least_median([ns / round_.duration_ns for ns, round_ in zip(beyond_ns, idle, strict=True)])
    return max(0.0, mean), min(surely, mean)


def _least_median(values: Sequence[float]) -> float:
    """Returns what the median is at least, by the sign test; 0.0 where there are too few values to tell."""
    count, below, chance = len(values), 0, 0.0
    while below < count and (chance := chance + comb(count, below) / 2**count) <= _DOUBT:
        below += 1
    return max(0.0, sorted(values)[below - 1]) if below else 0.0


def _cpu_and_answers(rounds: Sequence[Round]) -> tuple[int, int]:
    return sum(each.server_cpu_ns or 0 for each in rounds), sum(each.requests + each.failed for each in rounds)
