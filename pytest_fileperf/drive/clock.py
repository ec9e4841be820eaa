"""How far the clock of a generator on another machine is ahead of the one here, by questions and answers; pure.

    here    asked ──────────────────────────── heard
    there               ╰── told ──╯

As NTP does (RFC 5905, section 8): the clock there is taken to have been read half way. It was read some time between
question and answer, so the error is at most half of the round trip. The quickest of some answers tells most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_fileperf.drive.run import RunResult
from pytest_fileperf.measure.recording import Round

__all__ = ("SAME_CLOCK", "ClockOffset", "Reading", "offset_of", "on_this_clock")

_DRIFT = 1e-4
"""Two clocks may drift apart by this share of the time since they were read: what NTP allows for is five times less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One question for the time there, in ns of both monotonic clocks."""

    asked_ns: int
    told_ns: int
    """On the clock there."""
    heard_ns: int

    @property
    def round_trip_ns(self) -> int:
        """From the question to its answer."""
        return self.heard_ns - self.asked_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """How two clocks differ."""

    ahead_ns: int = 0
    """What the clock there shows more."""
    error_ns: int = 0
    """It is off by this at most; 0 for one clock."""
    distance_ns: int = 0
    """The shortest round trip of a question; 0 where none was asked."""


SAME_CLOCK = ClockOffset()
"""That of two processes which read one clock."""


def offset_of(readings: Iterable[Reading], *, now_ns: int) -> ClockOffset:
    """Returns how the clocks differ, by the reading that leaves the least error now. Raises ValueError for none."""

    def error_ns(reading: Reading) -> int:
        return reading.round_trip_ns // 2 + round((now_ns - reading.heard_ns) * _DRIFT)

    each = list(readings)
    if not each:
        raise ValueError("no reading of the clock")
    best = min(each, key=error_ns)
    return ClockOffset(
        ahead_ns=best.told_ns - (best.asked_ns + best.heard_ns) // 2,
        error_ns=error_ns(best),
        distance_ns=min(reading.round_trip_ns for reading in each),
    )


def on_this_clock(result: RunResult, clock: ClockOffset) -> RunResult:
    """Returns what a run found there, with its instants on the clock here."""
    ahead_ns = clock.ahead_ns
    if not ahead_ns:
        return result

    def shifted(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
        return tuple(
            replace(round_, started_ns=round_.started_ns - ahead_ns, ended_ns=round_.ended_ns - ahead_ns)
            for round_ in rounds
        )

    return replace(
        result,
        rounds=shifted(result.rounds),
        parts=tuple((name, shifted(rounds)) for name, rounds in result.parts),
        steps=tuple((part, name, shifted(rounds)) for part, name, rounds in result.steps),
        attack=None if result.attack is None else (result.attack[0] - ahead_ns, result.attack[1] - ahead_ns),
        last_end_ns=result.last_end_ns - ahead_ns if result.last_end_ns else 0,
        ends=tuple(
            tuple(type(ended)("q", (at_ns - ahead_ns for at_ns in ended)) for ended in in_round)
            for in_round in result.ends
        ),
    )
