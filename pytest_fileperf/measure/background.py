"""What each side of a comparison did while the other one had its turn: they share a core, so it slows the other one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.units import format_share

__all__ = ("Background", "background_of")

_FELT = 0.02
"""Share of a core from which it must be said: it costs the other side as much of its rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Shares of a core that the sides used in each other's turns; None where that is not known."""

    base: float | None
    now: float | None

    def __str__(self) -> str:
        """Returns a sentence that says whose work slows the other side; empty where none does."""
        sides = (("the base", self.base or 0.0), ("the code here", self.now or 0.0))
        told = [f"{whose} used {format_share(round(share, 2))}" for whose, share in sides if share > _FELT]
        if not told:
            return ""
        used = f"{' and '.join(told)} of a core while the other side had its turn"
        return f"{used}: background work of one side slows the other"


def background_of(base: Recording, now: Recording) -> Background:
    """Returns what each side did in the other one's turns, over all pairs of boots."""
    return Background(base=_share(base, now), now=_share(now, base))


def _share(own: Recording, other: Recording) -> float | None:
    """Returns the share of a core that a side used in the turns of the other one, without what late answers cost it."""
    starts = [turn.started_ns for turn in other.measured()]
    ends = [turn.ended_ns for turn in other.measured()]

    def is_in_a_turn(round_: Round) -> bool:
        last = bisect_right(starts, round_.started_ns) - 1
        return last >= 0 and round_.ended_ns <= ends[last]

    known = [round_ for round_ in own.rounds if round_.server_cpu_ns is not None]
    turns = [round_ for round_ in known if round_.phase is Phase.ROUND]
    idle = [round_ for round_ in known if round_.phase is Phase.HANDOVER and is_in_a_turn(round_)]
    idle_ns = sum(round_.duration_ns for round_ in idle)
    (turns_cpu_ns, answers), (idle_cpu_ns, late) = _cpu_and_answers(turns), _cpu_and_answers(idle)
    if idle_ns == 0 or answers == 0:
        return None
    return max(0.0, (idle_cpu_ns - late * turns_cpu_ns / answers) / idle_ns)


def _cpu_and_answers(rounds: list[Round]) -> tuple[int, int]:
    return sum(each.server_cpu_ns or 0 for each in rounds), sum(each.requests + each.failed for each in rounds)
