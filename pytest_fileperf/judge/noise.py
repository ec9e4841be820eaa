"""What a comparison could see on this machine, from one of the same code with itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.paired import paired_evidence, smallest_seen, time_to_see
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
    """The smallest worsening, as a share, that would have shown; None where there was too little."""
    seconds_for: Mapping[float, float]
    """For each change in `ASKED` the time that it needs, by the square root law."""


def noise_floor(metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, seconds: float) -> NoiseFloor:
    """Returns what a gate of this tolerance and level sees in so many seconds.

    Where the tolerance itself is too great for a change to show, its time is that of half the change as a tolerance.
    """
    evidence = paired_evidence(metric, pairs)
    if evidence is None:
        return NoiseFloor(metric=metric.name, seconds=seconds, smallest=None, seconds_for={})
    times = {
        change: seconds
        * time_to_see(evidence, math.log1p(change), min(tolerance, math.expm1(math.log1p(change) / 2)), alpha)
        for change in ASKED
    }
    smallest = math.expm1(smallest_seen(evidence, tolerance, alpha))
    return NoiseFloor(metric=metric.name, seconds=seconds, smallest=smallest, seconds_for=times)
