"""Sides and pairs of boots for comparisons: made by hand, or simulated with the noise of a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np
from measure.recordings import MS, alike
from numpy.typing import NDArray

from pytest_fileperf.judge.evidence import BootEvidence, Evidence, Pair
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.metrics import METRICS

Value = TypeVar("Value")
STABILISED = ("hash seed", "addresses")


def known(value: Value | None) -> Value:
    assert value is not None
    return value


def boot(*values: float, metric: str = "rps", requests: int = 5000, latency_ms: int = 5) -> BootEvidence:
    """A boot with these round values, every request as slow as the other."""
    return BootEvidence(turns=turns(values, metric), latency=alike(latency_ms, requests), runs={})


def turns(values: Sequence[float], metric: str = "rps") -> tuple[dict[str, float], ...]:
    return tuple({metric: value} for value in values)


def side(
    *levels: float, metric: str = "rps", requests: int = 5000, stabilised: tuple[str, ...] = STABILISED
) -> Evidence:
    """A side whose boots have these levels, each with four rounds closely around it."""
    return Evidence(
        boots=tuple(
            boot(level * 0.99, level, level, level * 1.01, metric=metric, requests=requests) for level in levels
        ),
        stabilised=stabilised,
    )


def pair(
    base: Sequence[float],
    now: Sequence[float],
    *,
    base_ms: Sequence[float] = (5,),
    now_ms: Sequence[float] = (5,),
    requests: int = 5000,
    runs: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
    stabilised: tuple[str, ...] = STABILISED,
) -> Pair:
    """Returns a pair with these rates of its turns, and its latencies in equal parts of `base_ms` and `now_ms`."""
    return Pair(
        base=BootEvidence(turns=turns(base), latency=_in_parts(tuple(base_ms), requests), runs=runs[0]),
        now=BootEvidence(turns=turns(now), latency=_in_parts(tuple(now_ms), requests), runs=runs[1]),
        stabilised=stabilised,
    )


@cache
def _in_parts(values_ms: tuple[float, ...], requests: int) -> Histogram:
    return Histogram.of([round(values_ms[place * len(values_ms) // requests] * MS) for place in range(requests)])


def swapped(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns the same with the sides the other way round."""
    return [replace(each, base=each.now, now=each.base) for each in pairs]


def measured(latencies_ms: NDArray[np.float64], *, stretches: int = 0) -> BootEvidence:
    """Returns a boot that answered in these times; with `stretches`, in so many parts one after the other."""
    latencies = (latencies_ms * MS).astype(np.int64)
    parts = tuple(map(Histogram.of, np.split(latencies.ravel(), stretches))) if stretches else ()
    return BootEvidence(
        turns=(), latency=Histogram.merged(parts) if parts else Histogram.of(latencies), stretches=parts, runs={}
    )


def stalling(
    seed: int = 4, *, base_stalls: float = 0.012, stalls: float = 0.012, slow: float = 0.0, pairs: int = 8
) -> list[Pair]:
    """Returns eight pairs: in so many stretches of 50 requests half of them wait for 50 ms together.

    Of now's, the share `slow` of all waits for 100 ms by itself. With the defaults 0.6 % of either side wait.
    """
    rng = np.random.default_rng(seed)

    def side(stalls: float, slow: float) -> BootEvidence:
        stalled = (rng.random((30, 1)) < stalls) & (np.arange(50) < 25)
        taken_ms = 2.5 * np.exp(0.47 * rng.standard_normal((30, 50)))
        return measured(taken_ms + 50 * stalled + 100 * (rng.random((30, 50)) < slow), stretches=30)

    return [Pair(base=side(base_stalls, 0.0), now=side(stalls, slow), stabilised=STABILISED) for _ in range(pairs)]


# --- Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Relative deviations of simulated sides; the defaults are DESIGN's for stabilised servers."""

    boots: int = 3
    rounds: int = 4
    boot_sd: float = 0.01
    round_sd: float = 0.03
    session_sd: float = 0.015
    far_off: float = 0.02
    """Share of rounds that are 10 to 50 % slower, as when something else runs on the machine."""

    def rates(self, rng: np.random.Generator, level: float) -> Evidence:
        """Returns a side with requests/s around e to the power of `level`."""
        shape = (self.boots, self.rounds)
        logs = level + self.boot_sd * rng.standard_normal((self.boots, 1)) + self.round_sd * rng.standard_normal(shape)
        logs -= (rng.random(shape) < self.far_off) * rng.uniform(0.1, 0.5, shape)
        return Evidence(boots=tuple(boot(*values) for values in np.exp(logs).tolist()), stabilised=STABILISED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailNoise:
    """Simulated latencies around 5 ms whose tail differs from round to round."""

    requests: int = 1000
    """In a round."""
    round_sd: float = 0.25
    """Deviation of a round's tail: with these requests its p99 varies by 20 to 30 %."""
    slow_share: float = 0.0
    """Share of the requests that take 50 ms longer."""

    def latencies(self, rng: np.random.Generator) -> Evidence:
        """Returns a side of three boots of four rounds."""
        session = 0.05 * rng.standard_normal()
        return Evidence(boots=tuple(self._boot(rng, session) for _ in range(3)), stabilised=STABILISED)

    def _boot(self, rng: np.random.Generator, session: float) -> BootEvidence:
        level_ms = 5 * math.exp(session + 0.02 * rng.standard_normal())
        shape = (4, self.requests)
        tails = 0.4 * np.abs(rng.standard_normal(shape)) * np.exp(self.round_sd * rng.standard_normal((4, 1)))
        made = measured(level_ms * np.exp(tails) + 50 * (rng.random(shape) < self.slow_share), stretches=4)
        told = self.requests >= METRICS["p99"].least_requests
        p99 = [stretch.percentile_ns(99) / 1e9 for stretch in made.stretches]
        return replace(made, turns=turns(p99, "p99") if told else ({},) * 4, stretches=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PairNoise:
    """How pairs of boots of the same code differ, as logarithms."""

    boot_sd: float = 0.01
    """Of the ratio of two boots."""
    cycle_sd: float = 0.08
    """Of the ratio of a cycle's turns."""
    hang_together: float = 0.3
    """Correlation of a cycle's ratio with that of the one before; that of the machine's level is twice as much."""
    far_off: float = 0.05
    """Share of turns that are 10 to 60 % slower, as when something else runs on the machine."""
    tail_sd: float = 0.05
    """Of a boot's p99."""
    cycles: int = 30
    requests: int = 2000
    """Of a boot."""
    stabilised: tuple[str, ...] = STABILISED

    def drawn(self, rng: np.random.Generator, *, slower: float = 0.0) -> Pair:
        """Returns a pair whose now takes longer by this share."""
        worse = math.log1p(slower)
        boot = worse + self.boot_sd * rng.standard_normal()
        ratios = self._course(rng, self.cycle_sd, self.hang_together)
        common = self._course(rng, self.cycle_sd, 2 * self.hang_together)
        shape = (2, self.cycles)
        hit = (rng.random(shape) < self.far_off) * rng.uniform(0.1, 0.6, shape)
        base = np.exp(7.6 + common - hit[0])
        now = np.exp(7.6 + common - boot - ratios - hit[1])
        tails = np.exp(self.tail_sd * rng.standard_normal(2) + (0.0, boot))
        return Pair(
            base=self._side(base, float(tails[0])), now=self._side(now, float(tails[1])), stabilised=self.stabilised
        )

    def _side(self, rates: NDArray[np.float64], factor: float) -> BootEvidence:
        """Returns a side with a stretch for every five hundred requests, each like the other."""
        stretches = (self._latency(factor),) * (self.requests // 500)
        return BootEvidence(
            turns=turns(rates.tolist()), latency=Histogram.merged(stretches), stretches=stretches, runs={}
        )

    def _course(self, rng: np.random.Generator, sd: float, hang_together: float) -> NDArray[np.float64]:
        """Returns a value for each cycle, an autoregressive process of the first order."""
        values = sd * rng.standard_normal(self.cycles)
        for cycle in range(1, self.cycles):
            values[cycle] = hang_together * values[cycle - 1] + math.sqrt(1 - hang_together**2) * values[cycle]
        return values

    def _latency(self, factor: float) -> Histogram:
        """Returns five hundred requests around 5 ms, by fives alike, whose percentiles are so many times the usual."""
        shares = (np.arange(100) + 0.5) / 100
        return Histogram.of(np.repeat(5 * MS * factor * (1 - np.log1p(-shares) / 4), 5).astype(np.int64))


NO_ANSWER = BootEvidence(turns=({"rps": 0.0},), latency=EMPTY, runs={})
