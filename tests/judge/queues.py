"""Servers whose capacity is known, and searches for it, without a server and without a wait."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.capacity import NextLoad, Search, estimate, next_load
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.metrics import share_allowed
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import instants, place_of
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Settings

Array: TypeAlias = NDArray[np.float64]
Server: TypeAlias = Callable[[Array, np.random.Generator], Array]
"""Returns how long requests take that are due at these seconds; infinite for one that fails."""

STABILISED = ("hash seed", "addresses")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


def one_after_the_other(service_s: Array, due: Array) -> Array:
    """Returns the latencies of a queue with one server (Lindley's recursion, as running maximum)."""
    work = np.cumsum(service_s)
    return np.maximum.accumulate(due - (work - service_s)) + work - due


def fixed(service_s: float) -> Server:
    """M/D/1 where requests come by chance: every request takes as long, one after the other."""
    return lambda due, rng: one_after_the_other(np.full(due.size, service_s), due)


def varying(service_s: float, sigma: float) -> Server:
    """M/G/1: requests take different times, one after the other."""
    return lambda due, rng: one_after_the_other(service_s * rng.lognormal(-(sigma**2) / 2, sigma, due.size), due)


def uneven(server: Server, sd: float) -> Server:
    """A server that is slower or faster in each load by chance; `sd` is that of the logarithm."""

    def latencies(due: Array, rng: np.random.Generator) -> Array:
        slower = math.exp(rng.normal(0, sd))
        return server(due / slower, rng) * slower

    return latencies


def refusing(service_s: float, most_waiting: int) -> Server:
    """A queue that refuses what finds so many requests before it."""

    def latencies(due: Array, rng: np.random.Generator) -> Array:
        free, taken = 0.0, []
        for at in due:
            if free - at > most_waiting * service_s:
                taken.append(math.inf)
                continue
            free = max(free, at) + service_s
            taken.append(free - at)
        return np.array(taken)

    return latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search found."""

    rate: float
    low: float
    high: float
    tried: Sequence[RateTried]
    ended: CapacityEnd | None
    broken: str


def searched(
    server: Server,
    limits: Mapping[str, float],
    rng: np.random.Generator,
    *,
    start: float,
    total_s: float = 54.0,
    boots_off: Sequence[float] = (1.0, 1.0, 1.0),
    generator_most: float = math.inf,
    stalled: Sequence[int] = (),
) -> Searched:
    """Searches as a session does; `boots_off` is how much slower each boot is, `stalled` the loads that stand still."""
    chance, first_place = random.Random(int(rng.integers(1 << 31))), float(rng.random())
    settings = Settings(capacity=True, limits=limits, search_connections=1, timeout_ns=1)
    plan = Plan(test=TEST, work=Operation(method="GET", url="/"), settings=settings, app=None)
    search, seen, used_s = Search(limits=limits, start=start, total_s=total_s), list[RateTried](), 0.9
    ended: CapacityEnd | None = None
    for boot, off in enumerate(boots_off):
        while ended is None:
            left_s = total_s * (boot + 1) / len(boots_off) - used_s
            following = next_load(search, seen, left_s=left_s, boot=boot)
            if isinstance(following, CapacityEnd):
                ended = following
            if not isinstance(following, NextLoad):
                break
            made = plan.search_load(
                following.rate,
                warmup_s=following.warmup_s,
                seconds=following.seconds,
                chance=chance,
                place=place_of(len(seen), first_place),
                busy_rate=start,
            )
            load, took_s = _load(server, made, limits, rng, off=off, stall=len(seen) in stalled)
            seen.append(
                RateTried(
                    rate=following.rate,
                    boot=boot,
                    seconds=following.seconds,
                    requests=load.good,
                    failed=load.failed,
                    beyond=load.beyond,
                    holds=load.holds,
                    by_generator=following.rate > generator_most,
                )
            )
            used_s += took_s
    found = None if ended is CapacityEnd.NO_RATE else estimate(search, seen)
    if found is None:
        return Searched(rate=0.0, low=0.0, high=0.0, tried=seen, ended=ended, broken="")
    rate, margin = math.exp(found.mean), math.exp(found.margin(STABILISED))
    return Searched(rate=rate, low=rate / margin, high=rate * margin, tried=seen, ended=ended, broken=found.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    good: int
    failed: int
    beyond: Mapping[str, int]
    holds: bool


def _load(
    server: Server, load: LoadPlan, limits: Mapping[str, float], rng: np.random.Generator, *, off: float, stall: bool
) -> tuple[_Loaded, float]:
    assert load.rate is not None
    assert load.seed is not None
    length_s, warmup_s = load.duration_ns / 1e9, load.warmup_ns / 1e9
    due = instants(load.rate, load.duration_ns, load.seed) / 1e9
    due = due if due.size else np.zeros(1)
    latency = server(due / off, rng) * off
    ends_s = float((due + np.where(np.isinf(latency), 0, latency)).max())
    latency = latency[due >= warmup_s]
    if stall:
        latency[: latency.size // 5] += 1.0
    failed = int(np.isinf(latency).sum())
    beyond = {
        name: failed if name == "max_error_rate" else int((latency > limit).sum()) for name, limit in limits.items()
    }
    holds = latency.size > failed and all(
        count <= _allowed(name, limits[name]) * latency.size for name, count in beyond.items()
    )
    return _Loaded(good=latency.size - failed, failed=failed, beyond=beyond, holds=holds), 0.06 + max(length_s, ends_s)


def _allowed(name: str, limit: float) -> float:
    return limit if name == "max_error_rate" else share_allowed(name, limit)
