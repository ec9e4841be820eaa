"""Simulates sessions of the gate with a known truth, from the noise of real runs, and counts what it says.

    python benchmarks/simulate.py --kept DIR [--sessions 2000] [--pool aa|busy] [--changes same,10] [--limit 30]
        [--tolerance 0.01] [--calmer 0.155] [--scale 0.65]

The noise is that of the runs of the same code that gate.py has kept. A simulated test takes a real run's first three
pairs of boots, then stretches of two later pairs that followed each other; swaps their sides by chance, as both are the
same code; and draws stretches of cycles within each pair, with all that they showed, latencies too: so boots differ,
rounds hang together and drift as they really did. Then the known change is put in. Sessions come in lots: each lot
draws some hundred such stretches and puts its sessions together from them. A pair takes as long as it did, boots too.
Chance is seeded by the numbers of lot, session and test: two versions of the judge see the same evidence.

A quieter hour: `--calmer` takes only the real runs in which the log ratios of cycles deviate by less than this within
a pair, in the median of their pairs. `--scale` then multiplies those log ratios, and so what two boots differ by; the
cycles' common pace stays, and latencies do, so p99 says nothing of a quieter hour. No machine has shown such noise.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from noise import Drawn, Real, Stretch, Truth, deviation_of, pool_of, runs_of, scaled

from pytest_fileperf.judge import paired, ranks, unit
from pytest_fileperf.judge.evidence import Pair, excess_of
from pytest_fileperf.judge.paired import Sequential
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.judge.unit import PairValue, unit_of
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.settings.settings import DEFAULT_MAX_DURATION_NS

TESTS = 5
"""Of a session; each has two gates."""
LOTS = 4
"""The more, the less depends on what one of them has drawn."""
GATES = ("rps", "p99")
TAILS = vars(ranks)["_tails"]
"""As it is: each lot remembers what it returned."""


@dataclass(frozen=True, slots=True)
class Gates:
    """How the tests are judged."""

    tolerances: Mapping[str, float]
    limit_s: float


TRUTHS = {
    "same": Truth(f"{TESTS} tests, the same code", tests=TESTS),
    "5": Truth("5 % slower", slower=0.05),
    "10": Truth("10 % slower", slower=0.10),
    "20": Truth("20 % slower", slower=0.20),
    "faster": Truth("5 % faster", slower=-0.05),
    "tail": Truth("1 in 100 takes ten times as long", delayed=0.01),
    "stalls10": Truth("30 ms stalls that cost 10 % of requests/s", stalled=0.10),
    "stalls5": Truth("30 ms stalls that cost 5 % of requests/s", stalled=0.05),
}
"""By the name that `--changes` takes."""


def main() -> None:
    """Prints a row for each known change and kind of test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="the directory that gate.py --keep has filled")
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--pool", default="aa", help="the case whose noise is used: aa or busy")
    parser.add_argument("--changes", default=",".join(TRUTHS), help=f"some of {', '.join(TRUTHS)}")
    parser.add_argument("--limit", type=float, default=DEFAULT_MAX_DURATION_NS / 1e9, help="seconds of a comparison")
    parser.add_argument("--tolerance", type=float, help="of every gate; as usual without it")
    parser.add_argument("--calmer", type=float, default=math.inf, help="only runs whose cycles deviate by less")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the log ratios of cycles")
    arguments = parser.parse_args()
    kept = {
        kind: [scaled(run, arguments.scale) for run in runs if deviation_of(run) < arguments.calmer]
        for kind, runs in runs_of(arguments.kept, arguments.pool).items()
    }
    gates = Gates(
        {name: arguments.tolerance or METRICS[name].tolerance for name in GATES},
        arguments.limit,
    )
    print(f"noise of {', '.join(f'{len(runs)} runs of {name}' for name, runs in kept.items())}\n")
    columns = ["REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE"]
    print(f"| change | test | simulated | any REGRESSED | {' | '.join(f'rps {name}' for name in columns)} ", end="")
    print("| p99 REGRESSED | p99 PASS | both PASS | median s |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for truth in (TRUTHS[name] for name in arguments.changes.split(",")):
        kinds = [tuple(kept)] if truth.tests > 1 else [(kind,) for kind in kept]
        for own in kinds:
            row({kind: kept[kind] for kind in own}, truth, gates, arguments.sessions)


def row(kept: Mapping[str, Sequence[Stretch]], truth: Truth, judged_by: Gates, sessions: int) -> None:
    """Simulates one known change."""
    with multiprocessing.Pool() as workers:
        lots = workers.map(partial(simulated, kept, truth, judged_by, sessions), range(LOTS), chunksize=1)
    found = [tests_found for lot in lots for tests_found in lot]
    gates = [outcomes for tests_found in found for outcomes, _ in tests_found]
    any_regressed = sum(any("REGRESSED" in outcomes for outcomes, _ in tests_found) for tests_found in found)
    seconds = median(time for tests_found in found for _, time in tests_found)
    rps, p99 = (Counter(outcomes[at] for outcomes in gates) for at in (0, 1))
    cells = [truth.title, " and ".join(kept), sessions, f"{any_regressed / sessions:.2%}"]
    cells += [f"{rps[name] / len(gates):.1%}" for name in ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE")]
    cells += [f"{p99['REGRESSED'] / len(gates):.1%}", f"{p99['PASS'] / len(gates):.1%}"]
    cells += [f"{gates.count(('PASS', 'PASS')) / len(gates):.1%}", f"{seconds:.1f}"]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


# --- in the workers


def simulated(
    kept: Mapping[str, Sequence[Stretch]], truth: Truth, gates: Gates, sessions: int, lot: int
) -> list[list[tuple[tuple[str, str], float]]]:
    """Returns for each session of a lot what its tests said and took."""
    judge_units_once()
    rng = np.random.default_rng(lot)
    pools = {kind: pool_of(runs, truth, rng) for kind, runs in kept.items()}
    return [session(pools, truth, gates, number) for number in range(lot, sessions, LOTS)]


def judge_units_once() -> None:
    """Makes each unit be worked out once."""
    known: dict[tuple[object, ...], PairValue | None] = {}

    def once(metric: Metric, pairs: Sequence[Pair], *, total: bool, rules: Rules = RULES) -> PairValue | None:
        key = (metric.name, total, *map(id, pairs))
        if key not in known:
            known[key] = unit_of(metric, pairs, total=total, rules=rules)
        return known[key]

    seen: dict[tuple[int, float, bool], tuple[float, float]] = {}

    def excess_once(
        stretches: Sequence[Histogram], percent: float, *, most: Callable[[float], float] | None = None
    ) -> tuple[float, float]:
        key = (id(stretches), percent, most is None)
        if key not in seen:
            seen[key] = excess_of(stretches, percent, most=most)
        return seen[key]

    tailed: dict[tuple[int, bool], object] = {}

    def tails_once(pair: Pair, most: Callable[[float], float] | None = None) -> object:
        key = (id(pair), most is None)
        if key not in tailed:
            tailed[key] = TAILS(pair, most)
        return tailed[key]

    vars(ranks).update(_tails=tails_once)
    # Levels are shown, and judge nothing.
    vars(paired).update(unit_of=once, _level=lambda metric, sides: None)
    vars(unit).update(excess_of=excess_once)


def session(pools: Mapping[str, Drawn], truth: Truth, gates: Gates, number: int) -> list[tuple[tuple[str, str], float]]:
    """Returns the outcomes (rps, p99) of each test and how long it took."""
    alpha = RULES.session_alpha / (len(GATES) * truth.tests)
    found = []
    for test in range(truth.tests):
        rng = np.random.default_rng([number, test])
        found.append(one_test(pools[str(rng.choice(list(pools)))], gates, alpha, rng))
    return found


def one_test(pool: Drawn, judged_by: Gates, alpha: float, rng: np.random.Generator) -> tuple[tuple[str, str], float]:
    """Compares until it is decided, as the session does."""
    gates = Sequential(judged_by.tolerances, alpha=alpha, limit_s=judged_by.limit_s)

    def pick(stretches: Sequence[Stretch]) -> list[Real]:
        return list(stretches[int(rng.integers(len(stretches)))])

    pairs: list[Pair] = []
    elapsed_s = 0.0
    queue = pick(pool.firsts)
    while True:
        queue = queue or pick(pool.laters)
        real = queue.pop(0)
        pairs.append(real.pair)
        elapsed_s += real.seconds
        found = gates.look(pairs, elapsed_s=elapsed_s, next_s=(queue or pool.laters[0])[0].seconds)
        if found is not None:
            return (found[0].outcome.value, found[1].outcome.value), elapsed_s


if __name__ == "__main__":
    main()
