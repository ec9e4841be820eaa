"""Noise of real runs of the same code, drawn anew, with a known change put in: what simulate.py judges.

What is here runs in simulate.py's workers, from the pairs of boots that gate.py has kept.
"""

from __future__ import annotations

import gzip
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.evidence import Pair, PairSide
from pytest_fileperf.measure.histogram import Histogram, middle_of
from pytest_fileperf.settings.plans import USUAL_PACE

FIRST_PAIRS, STRETCH_PAIRS, STRETCH_CYCLES = 3, 2, 6
FIRSTS, LATERS = 200, 300
"""Stretches that a lot draws for each kind of test, each of them once or more from every real run there is."""
STALL_S = 0.030
CONNECTIONS = 32
"""Of the real runs; as many requests are in flight when a server stalls."""


@dataclass(frozen=True, slots=True)
class Real:
    """A pair of boots as it was, or as it was drawn, and what it took."""

    pair: Pair
    seconds: float


Stretch: TypeAlias = tuple[Real, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a lot puts the tests of one kind together from."""

    firsts: tuple[Stretch, ...]
    laters: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """A known change of now."""

    title: str
    slower: float = 0.0
    """CPU that a request costs more, as a share: all of its latency grows by it, and the rate falls."""
    delayed: float = 0.0
    """Share of the requests that take ten times as long."""
    stalled: float = 0.0
    """Share of the time in which the server stands still, for `STALL_S` at once: it is lost to requests/s."""
    tests: int = 1


def runs_of(directory: Path, case: str) -> dict[str, list[Stretch]]:
    """Returns the pairs of each real run, by kind of test."""
    found: dict[str, list[Stretch]] = {}
    for path in sorted(directory.glob(f"{case}-*.pickle.gz")):
        with gzip.open(path) as stream:
            pairs, seconds = pickle.load(stream)  # gate.py wrote it
        loads_s = [USUAL_PACE.of_pair(number) / 1e9 for number in range(len(pairs))]
        around_s = max(0.0, seconds - sum(loads_s)) / len(pairs)
        found.setdefault(path.name.split("-")[1], []).append(
            tuple(Real(pair, around_s + load_s) for pair, load_s in zip(pairs, loads_s, strict=True))
        )
    return found


def deviation_of(run: Stretch) -> float:
    """Returns by how much the log ratios of cycles deviate within a pair: a median deviation, the median of pairs."""
    found = []
    for real in run:
        ratios = [math.log(now / base) for base, now in _paces(real.pair.base.typical, real.pair.now.typical)]
        if len(ratios) > 2:
            found.append(1.4826 * median(abs(ratio - median(ratios)) for ratio in ratios))
    return median(found)


def scaled(run: Stretch, scale: float) -> Stretch:
    """Returns the run with all log ratios of its cycles so many times as great."""
    return tuple(replace(real, pair=_scaled(real.pair, scale)) for real in run)


def _scaled(pair: Pair, scale: float) -> Pair:
    def nearer(
        base: Sequence[Mapping[str, float]], now: Sequence[Mapping[str, float]]
    ) -> tuple[tuple[dict[str, float], ...], ...]:
        cycles = []
        for of_base, of_now in zip(base, now, strict=True):
            by = 1.0
            if of_base.get("rps") and of_now.get("rps"):
                by = (of_now["rps"] / of_base["rps"]) ** ((1 - scale) / 2)
            cycles.append(
                ({name: own * by for name, own in of_base.items()}, {name: own / by for name, own in of_now.items()})
            )
        return tuple(zip(*cycles, strict=True)) if cycles else ((), ())

    turns, typical = (nearer(getattr(pair.base, name), getattr(pair.now, name)) for name in ("turns", "typical"))
    return replace(
        pair,
        base=replace(pair.base, turns=turns[0], typical=typical[0]),
        now=replace(pair.now, turns=turns[1], typical=typical[1]),
    )


def _paces(base: Sequence[Mapping[str, float]], now: Sequence[Mapping[str, float]]) -> list[tuple[float, float]]:
    both = ((of_base.get("rps"), of_now.get("rps")) for of_base, of_now in zip(base, now, strict=True))
    return [(of_base, of_now) for of_base, of_now in both if of_base and of_now]


def pool_of(runs: Sequence[Stretch], truth: Truth, rng: np.random.Generator) -> Drawn:
    """Returns what the tests of one kind are put together from."""
    lasting = [run for run in runs if len(run) >= FIRST_PAIRS + STRETCH_PAIRS]
    return Drawn(
        firsts=tuple(drawn(runs[at % len(runs)][:FIRST_PAIRS], truth, rng) for at in range(FIRSTS)),
        laters=tuple(drawn(_later(lasting[at % len(lasting)], rng), truth, rng) for at in range(LATERS)),
    )


def _later(run: Stretch, rng: np.random.Generator) -> Stretch:
    begin = int(rng.integers(FIRST_PAIRS, len(run) - STRETCH_PAIRS + 1))
    return run[begin : begin + STRETCH_PAIRS]


def drawn(stretch: Stretch, truth: Truth, rng: np.random.Generator) -> Stretch:
    """Returns the pairs with their sides swapped by chance, their cycles drawn anew, and the change put in."""
    swapped = bool(rng.integers(2))
    return tuple(Real(_drawn(real.pair, truth, swapped=swapped, rng=rng), real.seconds) for real in stretch)


def _drawn(pair: Pair, truth: Truth, *, swapped: bool, rng: np.random.Generator) -> Pair:
    base, now = (pair.now, pair.base) if swapped else (pair.base, pair.now)
    count = len(base.turns)
    length = min(STRETCH_CYCLES, count)
    starts = rng.integers(0, count - length + 1, size=-(-count // length))
    places = [int(start) + step for start in starts for step in range(length)][:count]
    return Pair(base=_side(base, places), now=_changed(_side(now, places), truth, rng), stabilised=pair.stabilised)


def _side(side: PairSide, places: Sequence[int]) -> PairSide:
    stretches = tuple(side.stretches[place] for place in places)
    return PairSide(
        turns=tuple(side.turns[place] for place in places),
        typical=tuple(side.typical[place] for place in places),
        latency=Histogram.merged(stretches),
        stretches=stretches,
        runs={},
    )


def _changed(side: PairSide, truth: Truth, rng: np.random.Generator) -> PairSide:
    if truth.stalled:
        return _stalling(side, truth.stalled, rng)
    if not truth.slower and not truth.delayed:
        return side
    late_ns = 9.0 * side.latency.percentile_ns(50)

    def values(stretch: Histogram) -> Histogram:
        found = np.repeat(middle_of(stretch.steps), stretch.counts) * (1 + truth.slower)
        found += late_ns * (rng.random(found.size) < truth.delayed)
        return Histogram.of(found.astype(np.int64))

    stretches = tuple(values(stretch) if stretch.count else stretch for stretch in side.stretches)
    return PairSide(
        turns=_slower(side.turns, truth.slower),
        typical=_slower(side.typical, truth.slower),
        latency=Histogram.merged(stretches),
        stretches=stretches,
        runs={},
    )


def _slower(turns: Sequence[Mapping[str, float]], slower: float) -> tuple[dict[str, float], ...]:
    return tuple({"rps": turn["rps"] / (1 + slower)} if "rps" in turn else {} for turn in turns)


def _stalling(side: PairSide, share: float, rng: np.random.Generator) -> PairSide:
    """Returns the side as it is where its server stands still now and then, as for a garbage collection or a lock.

    Stalls begin at instants of chance, and hold `share` of the time in which the side is loaded: a turn and the
    handover before it, which is the requests of its stretch over its rate. A turn loses the requests/s of the time that
    stalls hold of it, and its stretch as many requests, drawn by chance; one that a stall holds to its end goes on in
    the next. All connections wait for a stall: as many of the requests left, drawn by chance, take `STALL_S` longer.
    A typical pace is by the median time in which as many answers come as there are connections: it stays what it was
    while fewer than half of such times hold a stall, and has all of it from then on; a turn with fewer than two such
    times has none.
    """
    rates = [turn.get("rps") or math.inf for turn in side.turns]
    lengths = np.array([stretch.count for stretch in side.stretches]) / rates
    ends = np.cumsum(lengths)
    begins = _stalls(float(ends[-1]), share, rng)
    turns, typical, stretches = [], [], []
    for end, length, turn, pace, stretch in zip(ends, lengths, side.turns, side.typical, side.stretches, strict=True):
        held = np.minimum(begins + STALL_S, end) - np.maximum(begins, end - length)
        if length == 0 or not (held > 0).any():
            turns.append(dict(turn))
            typical.append(dict(pace))
            stretches.append(stretch)
            continue
        left = 1 - min(1.0, float(held[held > 0].sum()) / length)
        begun = int(((begins >= end - length) & (begins < end)).sum())
        values = np.repeat(middle_of(stretch.steps), rng.binomial(stretch.counts, left))
        waiting = min(values.size, begun * CONNECTIONS)
        values[rng.permutation(values.size)[:waiting]] += STALL_S * 1e9
        turns.append({"rps": turn["rps"] * left})
        typical.append(_stalled_pace(pace, values.size, begun))
        stretches.append(Histogram.of(values.astype(np.int64)))
    return PairSide(
        turns=tuple(turns),
        typical=tuple(typical),
        latency=Histogram.merged(stretches),
        stretches=tuple(stretches),
        runs={},
    )


def _stalls(seconds: float, share: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns when stalls begin: gaps between them are of chance, and one may hold as the time begins."""
    gap_s = STALL_S * (1 - share) / share
    first = -rng.uniform(0, STALL_S) if rng.random() < share else rng.exponential(gap_s)
    gaps = rng.exponential(gap_s, size=int(2 * seconds / gap_s) + 20)
    return first + np.concatenate([[0.0], np.cumsum(gaps + STALL_S)])


def _stalled_pace(pace: Mapping[str, float], answers: int, stalls: int) -> dict[str, float]:
    if "rps" not in pace or answers < 2 * CONNECTIONS:
        return {}
    if 2 * stalls * CONNECTIONS < answers - CONNECTIONS:
        return {"rps": pace["rps"]}
    return {"rps": CONNECTIONS / (CONNECTIONS / pace["rps"] + STALL_S)}
