"""What a comparison could see on this machine, from one of the same code with itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.paired import smallest_seen, time_to_see, told_of
from pytest_fileperf.measure.metrics import Metric

__all__ = ("ASKED", "NoiseFloor", "noise_floor")

ASKED = (0.05, 0.02)
"""Changes of interest, as shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """How small a worsening of one metric shows, in 8 of 10 comparisons."""

    metric: str
    seconds: float
    """The time that the comparison had."""
    smallest: float | None
    """The smallest worsening, as a share, that would have shown; None where there was too little to tell."""
    seconds_for: Mapping[float, float]
    """For each change in `ASKED` the time that it needs, by the square root law."""


def noise_floor(metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, seconds: float) -> NoiseFloor:
    """Returns what a gate of this tolerance and level sees in so many seconds.

    Where the tolerance itself is too great for a change to show, its time is that of half the change as a tolerance.
    """
    told = told_of(metric, pairs)
    if told is None:
        return NoiseFloor(metric=metric.name, seconds=seconds, smallest=None, seconds_for={})
    limit = math.log1p(tolerance)
    times = {
        change: seconds * time_to_see(told, math.log1p(change), min(limit, math.log1p(change) / 2), alpha)
        for change in ASKED
    }
    smallest = math.expm1(smallest_seen(told, limit, alpha))
    return NoiseFloor(metric=metric.name, seconds=seconds, smallest=smallest, seconds_for=times)
