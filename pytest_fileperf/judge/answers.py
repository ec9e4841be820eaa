"""Whether two sides give the same answers, by their statuses and sizes: other answers are other work.

An error page of 28 bytes in place of a table of 12 KB is fast, and no improvement. Nobody reads the bodies here, so
equal sizes prove nothing.

Statuses  The shares of a status differ by more than 2 %, and by more than chance.
Sizes     The means of a good answer differ by more than 2 % and some bytes, as counters in an answer get longer by a
          digit. Where sizes vary they differ by more than chance, and their rounds lie further apart than sizes grow
          within a boot: a list that grows with each request is longer on a faster side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from pytest_fileperf.measure.recording import Recording

__all__ = ("Answers", "OtherAnswers", "answers_of", "differing")

_SHARE = 0.02
"""What may differ of statuses and sizes."""
_SPARE_BYTES = 64
"""What sizes that vary may differ by: some numbers and dates have other lengths."""
_SPARE_BYTES_CONSTANT = 4
"""What sizes may differ by that are constant on both sides."""
_ERRORS = 4.0
"""Standard errors that are more than chance; rounds hang together, so they are rather many."""
_LEAST_ROUNDS = 4
"""Of each side, where sizes vary: fewer do not tell how much."""
_CONSTANT = 1e-4
"""Stored sizes are rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What one side answered."""

    sizes: tuple[tuple[float, ...], ...] = ()
    """Bytes of the body of a good answer, as the mean of each round of each boot."""
    statuses: Mapping[int, int]
    """How often each status was answered, of failed requests too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAnswers:
    """How the answers of two sides differ; what does not differ is empty."""

    of: str = ""
    """The part of the load, or the step; empty for all of it."""
    sizes: tuple[float, ...] = ()
    """Bytes of a good answer, of base and now."""
    base_statuses: Mapping[int, float]
    """The share of each status among all answers."""
    now_statuses: Mapping[int, float]


def answers_of(recording: Recording) -> Answers:
    """Returns what was answered in a recording."""
    statuses: Counter[int] = Counter()
    for round_ in recording.rounds:
        statuses.update({status: count for status, count in round_.statuses if status})
    rounds = recording.measured() if any(round_.requests for round_ in recording.measured()) else recording.rounds
    sizes = (
        tuple(round_.bytes_received / round_.requests for round_ in rounds if round_.boot == index and round_.requests)
        for index in dict.fromkeys(round_.boot for round_ in rounds)
    )
    return Answers(sizes=tuple(filter(None, sizes)), statuses=dict(sorted(statuses.items())))


def differing(base: Answers, now: Answers, *, of: str = "") -> tuple[OtherAnswers, ...]:
    """Returns how the answers of two sides differ, as one item; nothing where they do not, or too little is known."""
    sizes = _other_sizes(base.sizes, now.sizes)
    shares = (_shares(base.statuses), _shares(now.statuses)) if _other_statuses(base, now) else ({}, {})
    if not sizes and not any(shares):
        return ()
    return (OtherAnswers(of=of, sizes=sizes, base_statuses=shares[0], now_statuses=shares[1]),)


def _other_sizes(*sides: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Returns the mean sizes of both sides; nothing where they do not differ, or too little is known."""
    base, now = ([size for boot in side for size in boot] for side in sides)
    if not base or not now:
        return ()
    means = fmean(base), fmean(now)
    apart = abs(means[0] - means[1]) - _SHARE * max(means)
    if all(max(own) - min(own) <= _CONSTANT * max(own) for own in (base, now)):
        return means if apart > _SPARE_BYTES_CONSTANT else ()
    gap = max(min(base), min(now)) - min(max(base), max(now))
    if min(len(base), len(now)) < _LEAST_ROUNDS or gap <= 2 * max(map(_growth, sides)):
        return ()
    error = math.sqrt(sum(variance(own) / len(own) for own in (base, now)))
    return means if apart > _SPARE_BYTES + _ERRORS * error else ()


def _growth(boots: Sequence[Sequence[float]]) -> float:
    """Returns by how much sizes grow from the first half of a boot to the second, on average."""
    halves = [(boot[: len(boot) // 2], boot[len(boot) // 2 :]) for boot in boots if len(boot) > 1]
    return abs(fmean(fmean(late) - fmean(early) for early, late in halves)) if halves else 0.0


def _other_statuses(base: Answers, now: Answers) -> bool:
    made = sum(base.statuses.values()), sum(now.statuses.values())
    if not all(made):
        return False
    both = _shares(base.statuses), _shares(now.statuses)
    for status in base.statuses.keys() | now.statuses.keys():
        shares = [own.get(status, 0.0) for own in both]
        pooled = (base.statuses.get(status, 0) + now.statuses.get(status, 0)) / sum(made)
        error = math.sqrt(pooled * (1 - pooled) * (1 / made[0] + 1 / made[1]))
        if abs(shares[0] - shares[1]) > _SHARE + _ERRORS * error:
            return True
    return False


def _shares(statuses: Mapping[int, int]) -> dict[int, float]:
    made = sum(statuses.values())
    return {status: count / made for status, count in statuses.items()}
