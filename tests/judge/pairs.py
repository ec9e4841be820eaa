"""Pairs of boots for tests: made by hand, or simulated with the noise of a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from judge.sides import MS, STABILISED
from numpy.typing import NDArray

from pytest_fileperf.judge.evidence import BootEvidence, Pair
from pytest_fileperf.measure.histogram import Histogram


def pair(
    base: Sequence[float],
    now: Sequence[float],
    *,
    metric: str = "rps",
    base_ms: Sequence[float] = (5,),
    now_ms: Sequence[float] = (5,),
    requests: int = 5000,
    runs: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
    stabilised: tuple[str, ...] = STABILISED,
) -> Pair:
    """Returns a pair with these values of its turns, and its latencies in equal parts of `base_ms` and `now_ms`."""
    return Pair(
        base=BootEvidence(turns=turns(base, metric), latency=latencies(tuple(base_ms), requests), runs=runs[0]),
        now=BootEvidence(turns=turns(now, metric), latency=latencies(tuple(now_ms), requests), runs=runs[1]),
        stabilised=stabilised,
    )


def turns(values: Sequence[float], metric: str) -> tuple[dict[str, float], ...]:
    return tuple({metric: value} for value in values)


@cache
def latencies(values_ms: tuple[float, ...], requests: int) -> Histogram:
    return Histogram.of([round(values_ms[place * len(values_ms) // requests] * MS) for place in range(requests)])


def swapped(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns the same with the sides the other way round."""
    return [replace(each, base=each.now, now=each.base) for each in pairs]


def stalling(seed: int = 4, *, base_stalls: float = 0.012, stalls: float = 0.012, slow: float = 0.0) -> list[Pair]:
    """Returns eight pairs: in so many stretches of 50 requests half of them wait for 50 ms together.

    Of now's, the share `slow` of all waits for 100 ms by itself. With the defaults 0.6 % of either side wait.
    """
    rng = np.random.default_rng(seed)

    def side(stalls: float, slow: float) -> BootEvidence:
        stalled = (rng.random((30, 1)) < stalls) & (np.arange(50) < 25)
        taken_ms = 2.5 * np.exp(0.47 * rng.standard_normal((30, 50)))
        taken_ms += 50 * stalled + 100 * (rng.random((30, 50)) < slow)
        stretches = tuple(Histogram.of((stretch * MS).astype(np.int64)) for stretch in taken_ms)
        return BootEvidence(turns=(), latency=Histogram.merged(stretches), stretches=stretches, runs={})

    return [Pair(base=side(base_stalls, 0.0), now=side(stalls, slow), stabilised=STABILISED) for _ in range(8)]


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
            turns=turns(rates.tolist(), "rps"), latency=Histogram.merged(stretches), stretches=stretches, runs={}
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
