"""A pair of boots that were loaded in turn, and what each of them has shown: the unit that `paired` compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Recording, Round

__all__ = ("Pair", "PairSide", "pair_side", "sides_by_boot", "sides_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One side of a pair."""

    turns: tuple[Mapping[str, float], ...]
    """For each turn the metrics that are known of it, by name, in SI units. Turn i of both sides make cycle i."""
    latency: Histogram
    """Nanoseconds of all successful requests of the boot."""
    stretches: tuple[Histogram, ...] = ()
    """`latency` by turns: each with the handover before it, the last one with what was in flight when it ended."""
    typical: tuple[Mapping[str, float], ...] = ()
    """The rates of `turns` by the turn's typical pace (`Round.typical_rps`); without a rate where it has none."""
    runs: Mapping[str, float]
    """Metrics that are known only of the whole boot, such as `rss`."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """What is uncertain about the logarithms of some of `runs`."""

    def levels(self, name: str) -> list[float]:
        """Returns what the turns show of a metric: of rates the typical ones, where half of the turns have one."""
        typical, counted = ([turn[name] for turn in turns if name in turn] for turns in (self.typical, self.turns))
        return typical if 2 * len(typical) >= len(counted) else counted

    def level(self, name: str) -> float | None:
        """Returns the median of `levels`; None where no turn shows the metric."""
        levels = self.levels(name)
        return median(levels) if levels else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A boot of each side, loaded in turn."""

    base: PairSide
    now: PairSide
    stabilised: tuple[str, ...] = ()
    """What was held equal between boots."""
    base_boots_anew: bool = True
    """Whether base is a boot of its own, and not the same one in every pair."""


def sides_of(pairs: Iterable[Pair]) -> tuple[list[PairSide], list[PairSide]]:
    """Returns base and now, each of all pairs."""
    both = [(pair.base, pair.now) for pair in pairs]
    return [base for base, _ in both], [now for _, now in both]


def pair_side(rounds: Iterable[Round], peaks_bytes: Iterable[int]) -> PairSide:
    """Returns a side of a pair from the rounds of a boot, and its peaks of memory if they are known."""
    rounds, peaks = tuple(rounds), tuple(peaks_bytes)
    turns = [round_ for round_ in rounds if round_.phase is Phase.ROUND]
    return PairSide(
        turns=tuple(map(_turn_values, turns)),
        typical=tuple(map(_typical_rates, turns)),
        latency=Histogram.merged(round_.latency for round_ in rounds),
        stretches=_stretches(rounds),
        runs={"rss": float(max(peaks))} if peaks else {},
    )


def sides_by_boot(recording: Recording) -> tuple[PairSide, ...]:
    """Returns what each boot has shown, in order."""
    found = []
    for boot in recording.boots:
        peaks = () if boot.peak_rss_bytes is None else (boot.peak_rss_bytes,)
        found.append(pair_side((round_ for round_ in recording.rounds if round_.boot == boot.index), peaks))
    return tuple(found)


def _stretches(rounds: Iterable[Round]) -> tuple[Histogram, ...]:
    found: list[Histogram] = []
    handover = EMPTY
    for round_ in rounds:
        if round_.phase is Phase.HANDOVER:
            handover = Histogram.merged((handover, round_.latency))
            continue
        if round_.phase is Phase.ROUND:
            found.append(Histogram.merged((handover, round_.latency)))
        elif found:
            found[-1] = Histogram.merged((found[-1], handover, round_.latency))
        handover = EMPTY
    return tuple(found)


def _typical_rates(turn: Round) -> dict[str, float]:
    if turn.typical_rps is None:
        return {}
    return {
        "rps": turn.typical_rps,
        "throughput": turn.typical_rps * (turn.bytes_sent + turn.bytes_received) / turn.requests,
    }


def _turn_values(round_: Round) -> dict[str, float]:
    values = {name: metric.of_round(round_) for name, metric in METRICS.items() if metric.percentile is None}
    return {name: value for name, value in values.items() if value is not None}
