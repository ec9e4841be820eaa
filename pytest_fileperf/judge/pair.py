"""A pair of boots that were loaded in turn, and what each of them has shown: the unit that `paired` compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Round

__all__ = ("Pair", "PairSide", "pair_side")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One side of a pair."""

    turns: tuple[Mapping[str, float], ...]
    """For each turn the metrics it can tell, by name, in SI units; turn i of both sides are cycle i."""
    latency: Histogram
    """Nanoseconds of all successful requests of the boot."""
    runs: Mapping[str, float]
    """Metrics that only the whole boot can tell, such as `rss`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A boot of each side, loaded in turn."""

    base: PairSide
    now: PairSide
    stabilised: tuple[str, ...] = ()
    """What was held equal between boots."""


def pair_side(rounds: Iterable[Round], peaks_bytes: Iterable[int]) -> PairSide:
    """Returns a side of a pair from the rounds of a boot, and its peaks of memory if they are known."""
    rounds, peaks = tuple(rounds), tuple(peaks_bytes)
    return PairSide(
        turns=tuple(_turn_values(round_) for round_ in rounds if round_.phase is Phase.ROUND),
        latency=Histogram.merged(round_.latency for round_ in rounds),
        runs={"rss": float(max(peaks))} if peaks else {},
    )


def _turn_values(round_: Round) -> dict[str, float]:
    values = {name: metric.of_round(round_) for name, metric in METRICS.items() if metric.percentile is None}
    return {name: value for name, value in values.items() if value is not None}
