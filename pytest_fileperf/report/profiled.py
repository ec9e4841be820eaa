"""Profiles as text and JSON: which functions a regression comes from, or what costs most CPU."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fileperf.measure.blame import GREW, FunctionGrowth
from pytest_fileperf.measure.stacks import FunctionCost, Profile
from pytest_fileperf.report.text import cells, flow, shorten, words
from pytest_fileperf.report.verdict_text import WIDTH
from pytest_fileperf.units import format_change, format_duration

__all__ = ("costs_json", "costs_text", "growth_json", "growth_text")

NAMED = 3
_LEAST_NAME = 16
"""Cells of a function's name that stay where its file needs the rest."""


def growth_text(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> str:
    """Returns by how much CPU per request grew, and the functions to blame for most of it; lines of at most 72 cells.

    CPU per request grew by 18.2 µs (+22.0 %), of it
      15.1 µs in slow_digest (app/main.py:31)
      2.05 µs in Cart.total (app/cart.py:9), most in dumps

    What kept single processes from being seen in a look is said below, as less of their functions is in these.
    """
    return "\n".join((_growth(base, now, growths), *_unseen(base, now)))


def costs_text(profile: Profile, costs: Sequence[FunctionCost]) -> str:
    """Returns the project's functions that cost most, for a profile of one side; lines of at most 72 cells."""
    return "\n".join((_costs(profile, costs), *_unseen(profile)))


def _growth(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> str:
    grown_s = now.cost - base.cost
    if not (base.samples and now.samples):
        return _told("CPU per request: nothing was seen in the server's processes, on one side at least")
    if grown_s <= GREW * base.cost:
        figures = f"{format_duration(base.cost * 1e9)} before, {format_duration(now.cost * 1e9)} now"
        return _told(f"CPU per request did not grow ({figures}): the time is lost waiting, not computing")
    head = f"CPU per request grew by {format_duration(grown_s * 1e9)} ({format_change(grown_s / base.cost)})"
    if not growths:
        seen = f"{base.samples:,} and {now.samples:,} samples"
        unseen = "; short work in a thread pool cannot be seen from outside" if base.torn or now.torn else ""
        return _told(f"{head}, but no function stands out of the noise of sampling ({seen}){unseen}")
    shown = growths[:NAMED]
    times = [format_duration(growth.growth_s * 1e9) for growth in shown]
    widest = max(map(cells, times))
    lines = [f"{head}, of it"]
    for time, growth in zip(times, shown, strict=True):
        lead = " " * (2 + widest - cells(time)) + f"{time} in "
        room = WIDTH - cells(lead)
        where = _where(growth.function, growth.file, growth.line, room)
        lines.append(lead + where + _called(growth, room - cells(where)))
    return "\n".join(lines)


def _costs(profile: Profile, costs: Sequence[FunctionCost]) -> str:
    own = [cost for cost in costs if cost.own_code and cost.function != "<module>"][:NAMED]
    head = f"CPU per request {format_duration(profile.cost * 1e9)}"
    if not profile.samples:
        return _told("CPU per request: nothing was seen in the server's processes")
    if not own:
        return _told(f"{head}; none of the project's functions was seen in {profile.samples:,} samples")
    times = [format_duration(cost.cost_s * 1e9) for cost in own]
    widest = max(map(cells, times))
    lines = [f"{head}, with what they call"]
    for time, cost in zip(times, own, strict=True):
        lead = " " * (2 + widest - cells(time)) + f"{time} in "
        lines.append(lead + _where(cost.function, cost.file, cost.line, WIDTH - cells(lead)))
    return "\n".join(lines)


def growth_json(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> dict[str, object]:
    """Returns every function that is to blame, and what the two profiles are; times in seconds of CPU per request."""
    return {
        "base": _profile_json(base),
        "now": _profile_json(now),
        "growth_s": now.cost - base.cost,
        "functions": [
            {
                "function": growth.function,
                "file": growth.file,
                "line": growth.line,
                "own_code": growth.own_code,
                "growth_s": growth.growth_s,
                "share": growth.share,
                "base_s": growth.base_s,
                "now_s": growth.now_s,
                "base_self_s": growth.base_self_s,
                "now_self_s": growth.now_self_s,
                "callee": None
                if growth.callee is None
                else {"function": growth.callee.function, "file": growth.callee.file, "line": growth.callee.line},
            }
            for growth in growths
        ],
    }


def costs_json(profile: Profile, costs: Sequence[FunctionCost]) -> dict[str, object]:
    """Returns what every function costs on one side; times in seconds of CPU per request."""
    return {
        **_profile_json(profile),
        "functions": [
            {
                "function": cost.function,
                "file": cost.file,
                "line": cost.line,
                "own_code": cost.own_code,
                "cost_s": cost.cost_s,
                "self_s": cost.self_s,
            }
            for cost in costs
        ],
    }


def _profile_json(profile: Profile) -> dict[str, object]:
    return {
        "cpu_per_request_s": profile.cost,
        "samples": profile.samples,
        "seconds": profile.seconds,
        "requests": profile.requests,
        "torn": profile.torn,
        "notes": list(profile.notes),
    }


def _unseen(*profiles: Profile) -> list[str]:
    notes = dict.fromkeys(note for profile in profiles for note in profile.notes)
    return [_told(f"one process was not seen in every look: {note}") for note in notes]


def _where(function: str, file: str, line: int, room: int) -> str:
    """Returns `name (file:line)` in so many cells: of a long name the end stays, and of a long path."""
    place = f"{file}:{line}" if line else file
    if not place:
        return shorten(function, room, tail=0.8)
    name = shorten(function, max(_LEAST_NAME, room - cells(place) - 3), tail=0.8)
    return f"{name} ({shorten(place, room - cells(name) - 3, tail=1.0)})"


def _called(growth: FunctionGrowth, room: int) -> str:
    """Returns what it calls of others, in so many cells: with its file, without it, or not at all."""
    if growth.callee is None:
        return ""
    name = f", most in {growth.callee.function}"
    return next((text for text in (f"{name} ({growth.callee.file})", name) if cells(text) <= room), "")


def _told(sentence: str) -> str:
    return "\n".join(flow(words(sentence), width=WIDTH, indent=0, hanging=2, gap=1))
