"""Sides of comparisons for tests: made by hand, or simulated with the noise that DESIGN measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round

Value = TypeVar("Value")
STABILISED = ("hash seed", "addresses")
MS, SECOND = 1_000_000, 1_000_000_000


def known(value: Value | None) -> Value:
    assert value is not None
    return value


def boot(*values: float, metric: str = "rps", requests: int = 5000, latency_ms: int = 5) -> BootEvidence:
    """A boot with these round values, every request as slow as the other."""
    return BootEvidence(
        turns=tuple({metric: value} for value in values),
        latency=alike(latency_ms, requests),
        runs={},
    )


@cache
def alike(latency_ms: int, requests: int) -> Histogram:
    return Histogram.of([latency_ms * MS] * requests)


def round_of(
    requests: int,
    *,
    boot: int = 0,
    index: int = 0,
    phase: Phase = Phase.ROUND,
    length_ns: int = SECOND,
    latency: Histogram | None = None,
    **more: Any,
) -> Round:
    """A round whose requests take 5 ms, each with a thousand bytes."""
    latency = alike(5, requests) if latency is None else latency
    return Round(
        boot=boot,
        index=index,
        phase=phase,
        started_ns=index * SECOND,
        ended_ns=index * SECOND + length_ns,
        requests=requests,
        latency=latency,
        ttfb=latency,
        bytes_sent=0,
        bytes_received=1000 * requests,
        **more,
    )


def recording_of(*rounds: Round, boots: tuple[Boot, ...] = (Boot(index=0),), open_loop: bool = False) -> Recording:
    return Recording(rounds=rounds, boots=boots, connections=1, engine="replay", open_loop=open_loop)


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
        return Evidence(
            boots=tuple(
                BootEvidence(turns=tuple({"rps": value} for value in values), latency=alike(5, 5000), runs={})
                for values in np.exp(logs).tolist()
            ),
            stabilised=STABILISED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TailNoise:
    """Simulated latencies around 5 ms whose tail differs from round to round."""

    requests: int = 1000
    """In a round."""
    round_sd: float = 0.25
    """Deviation of a round's tail: with these requests its p99 varies by 20 to 30 %."""
    session_sd: float = 0.05
    slow_share: float = 0.0
    """Share of the requests that take `slow_s` longer."""
    slow_s: float = 0.05

    def latencies(self, rng: np.random.Generator) -> Evidence:
        """Returns a side of three boots of four rounds."""
        session = self.session_sd * rng.standard_normal()
        return Evidence(boots=tuple(self._boot(rng, session) for _ in range(3)), stabilised=STABILISED)

    def _boot(self, rng: np.random.Generator, session: float) -> BootEvidence:
        level = 0.005 * math.exp(session + 0.02 * rng.standard_normal())
        rounds = []
        for _ in range(4):
            tail = 0.4 * np.abs(rng.standard_normal(self.requests)) * math.exp(self.round_sd * rng.standard_normal())
            seconds = level * np.exp(tail) + self.slow_s * (rng.random(self.requests) < self.slow_share)
            rounds.append(Histogram.of((seconds * 1e9).astype(np.int64)))
        p99 = METRICS["p99"]
        assert p99.percentile is not None
        whole = Histogram.merged(rounds)
        told = self.requests >= p99.least_requests
        return BootEvidence(
            turns=tuple({"p99": histogram.percentile_ns(99) / 1e9} if told else {} for histogram in rounds),
            latency=whole,
            runs={},
        )
