"""Simulates sessions of the gate with a known truth, from the noise of real runs, and counts what it says.

    python benchmarks/simulate.py [--results gate.jsonl] [--sessions 2000] [--pool aa|busy]

The noise is that of the A/A runs in the results of gate.py. A simulated test draws stretches of two consecutive pairs
of boots from them, swaps their sides by chance (both are the same code), and draws stretches of cycles within each
pair: so boots differ, rounds hang together and drift as they really did. Then the known change is put in.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from gate import HERE, read

from pytest_fileperf.judge.gate import CONTEST_ALPHA
from pytest_fileperf.judge.pair import Pair, PairSide
from pytest_fileperf.judge.sequence import Sequential
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS

TESTS = 5
"""Of a session; each has two gates."""
STRETCH_PAIRS, STRETCH_CYCLES = 2, 6
MAX_S = 60.0
STABILISED = ("addresses", "allocator", "hash seed")


@dataclass(frozen=True, slots=True)
class Real:
    """A pair of boots as it was."""

    cycles: tuple[tuple[float, float], ...]
    """Requests/s of both sides."""
    boots: tuple[tuple[int, float, float], ...]
    """Of both sides: requests, p50 and p99 in seconds."""
    seconds: float
    """What it took, boots and all."""


def main() -> None:
    """Prints a row for each known change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "gate.jsonl")
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--pool", default="aa", help="the case whose noise is used: aa or busy")
    arguments = parser.parse_args()
    pool = pools(arguments.results, arguments.pool)
    counted = ", ".join(f"{len(runs)} runs of {name}" for name, runs in pool.items())
    print(f"noise of {counted}\n")
    print("| change | simulated | any REGRESSED | rps REGRESSED | rps PASS | rps IMPROVED | p99 REGRESSED | median s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    changes = ((0.0, 1.0), (0.03, 1.0), (0.05, 1.0), (0.20, 1.0), (-0.05, 1.0), (0.0, 2.0))
    for slower, tail in changes:
        row(pool, arguments.sessions, slower, tail)


def row(pool: dict[str, list[list[Real]]], sessions: int, slower: float, tail: float) -> None:
    """Simulates one known change: whole sessions where there is none, else single tests."""
    tests = TESTS if not slower and tail == 1.0 else 1
    with multiprocessing.Pool(os.cpu_count()) as workers:
        work = partial(session, pool, tests, slower, tail)
        found = workers.map(work, range(sessions), chunksize=20)
    gates = [outcomes for tests_found in found for outcomes, _ in tests_found]
    any_regressed = sum(any("REGRESSED" in outcomes for outcomes, _ in tests_found) for tests_found in found)
    seconds = median(time for tests_found in found for _, time in tests_found)
    rps, p99 = (Counter(outcomes[at] for outcomes in gates) for at in (0, 1))
    title = f"{tests} tests, the same code" if tests > 1 else f"p99 × {tail:g}" if tail != 1.0 else f"{slower:+.0%} CPU"
    cells = [title, sessions, f"{any_regressed / sessions:.2%}"]
    cells += [f"{rps[name] / len(gates):.1%}" for name in ("REGRESSED", "PASS", "IMPROVED")]
    cells += [f"{p99['REGRESSED'] / len(gates):.1%}", f"{seconds:.0f}"]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def pools(results: Path, case: str) -> dict[str, list[list[Real]]]:
    """Returns the real pairs of each run, by kind of test."""
    found: dict[str, list[list[Real]]] = {}
    for line in read(results):
        name, _, test = str(line["case"]).partition("-")
        if name != case:
            continue
        pairs = list(zip(line["cycles"], line["boots"], strict=True))  # type: ignore[call-overload]
        each_s = float(str(line["seconds"])) / len(pairs)
        found.setdefault(test, []).append(
            [Real(tuple(map(tuple, cycles)), tuple(map(tuple, boots)), each_s) for cycles, boots in pairs]
        )
    return found


def session(
    pool: dict[str, list[list[Real]]], tests: int, slower: float, tail: float, seed: int
) -> list[tuple[tuple[str, str], float]]:
    """Returns the outcomes (rps, p99) of each test and how long it took."""
    rng = np.random.default_rng(seed)
    alpha = CONTEST_ALPHA / (2 * tests)
    return [one_test(pool[str(rng.choice(list(pool)))], alpha, slower, tail, rng) for _ in range(tests)]


def one_test(
    runs: Sequence[Sequence[Real]], alpha: float, slower: float, tail: float, rng: np.random.Generator
) -> tuple[tuple[str, str], float]:
    """Compares until it is decided, as the session does."""
    gates = Sequential({name: METRICS[name].paired_tolerance for name in ("rps", "p99")}, alpha=alpha, limit_s=MAX_S)
    pairs: list[Pair] = []
    elapsed_s = 0.0
    queue: list[Real] = []
    while True:
        if not queue:
            run = runs[int(rng.integers(len(runs)))]
            begin = int(rng.integers(max(1, len(run) - STRETCH_PAIRS + 1)))
            swapped = bool(rng.integers(2))
            queue = [_swapped(real) if swapped else real for real in run[begin : begin + STRETCH_PAIRS]]
        real = queue.pop(0)
        pairs.append(drawn(real, slower, tail, rng))
        elapsed_s += real.seconds
        found = gates.look(pairs, elapsed_s=elapsed_s, next_s=real.seconds)
        if found is not None:
            return (found[0].outcome.value, found[1].outcome.value), elapsed_s


def drawn(real: Real, slower: float, tail: float, rng: np.random.Generator) -> Pair:
    """Returns the pair with its cycles drawn anew in stretches, and the change put in."""
    count = len(real.cycles)
    length = min(STRETCH_CYCLES, count)
    starts = rng.integers(0, count - length + 1, size=-(-count // length))
    cycles = [real.cycles[start + step] for start in starts for step in range(length)][:count]
    (base_count, base_p50, base_p99), (now_count, now_p50, now_p99) = real.boots
    return Pair(
        base=PairSide(
            turns=tuple({"rps": base} for base, _ in cycles), latency=_latency(base_count, base_p50, base_p99), runs={}
        ),
        now=PairSide(
            turns=tuple({"rps": now / (1 + slower)} for _, now in cycles),
            latency=_latency(now_count, now_p50 * (1 + slower), now_p99 * (1 + slower) * tail),
            runs={},
        ),
        stabilised=STABILISED,
    )


def _latency(count: int, p50_s: float, p99_s: float) -> Histogram:
    """Returns a log-normal distribution with these two percentiles."""
    from scipy.special import ndtri

    shares = (np.arange(400) + 0.5) / 400
    sigma = math.log(max(p99_s / p50_s, 1.001)) / float(ndtri(0.99))
    values = np.sort((p50_s * np.exp(sigma * ndtri(shares)) * 1e9).astype(np.int64))
    grid = Histogram.of(values)
    factor = max(1, round(count / 400))
    return Histogram(
        steps=grid.steps,
        counts=grid.counts * factor,
        count=grid.count * factor,
        min_ns=grid.min_ns,
        max_ns=grid.max_ns,
        sum_ns=grid.sum_ns * factor,
        sum_squares=grid.sum_squares * factor,
    )


def _swapped(real: Real) -> Real:
    return Real(tuple((now, base) for base, now in real.cycles), real.boots[::-1], real.seconds)


if __name__ == "__main__":
    main()
