"""A pair of boots that were loaded in turn, and what each of them has shown: the unit that `paired` compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.memory import Course, memory_after
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Recording, Round

__all__ = ("Pair", "PairSide", "pair_side", "pairs_alike", "requests_alike", "sides_by_boot", "sides_of")


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
    memory: Course = ()
    """How the boot's peak of memory grew with its requests; `pairs_alike` makes `rss` of it."""

    def rate(self, name: str) -> float | None:
        """Returns what was counted of a metric in all turns, which are equally long; None where no turn shows it."""
        counted = [turn[name] for turn in self.turns if name in turn]
        return fmean(counted) if counted else None


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


def pairs_alike(pairs: Iterable[Pair]) -> list[Pair]:
    """Returns the pairs with the memory (`rss`) of all boots after equally many requests: as many as all reached.

    A faster boot answers more in its turns, and what it keeps of each request would count against it.
    """
    pairs = list(pairs)
    requests = requests_alike(pairs)
    if requests is None:
        return pairs
    return [replace(pair, base=_after(pair.base, requests), now=_after(pair.now, requests)) for pair in pairs]


def _after(side: PairSide, requests: int) -> PairSide:
    return replace(side, runs={**side.runs, "rss": memory_after(side.memory, requests)})


def requests_alike(pairs: Iterable[Pair]) -> int | None:
    """Returns after how many requests `pairs_alike` takes the memory of all boots; None where that is not known."""
    courses = [side.memory for pair in pairs for side in (pair.base, pair.now)]
    return min(course[-1][0] for course in courses) if courses and all(courses) else None


def pair_side(rounds: Iterable[Round], memory: Course = ()) -> PairSide:
    """Returns a side of a pair from the rounds of a boot, and the course of its memory if that is known."""
    rounds = tuple(rounds)
    turns = [round_ for round_ in rounds if round_.phase is Phase.ROUND]
    return PairSide(
        turns=tuple(map(_turn_values, turns)),
        typical=tuple(map(_typical_rates, turns)),
        latency=Histogram.merged(round_.latency for round_ in rounds),
        stretches=_stretches(rounds),
        runs={},
        memory=memory,
    )


def sides_by_boot(recording: Recording) -> tuple[PairSide, ...]:
    """Returns what each boot has shown, in order."""
    return tuple(
        pair_side((round_ for round_ in recording.rounds if round_.boot == boot.index), boot.memory)
        for boot in recording.boots
    )


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
