"""Simulates sessions of the gate with a known truth, from the noise of real runs, and counts what it says.

    python benchmarks/simulate.py --kept DIR [--sessions 2000] [--pool aa|busy] [--changes same,10] [--limit 30]
        [--tolerance 0.01] [--calmer 0.155] [--scale 0.65]

The noise is that of the runs of the same code that gate.py has kept. A simulated test takes a real run's first three
pairs of boots, then stretches of two later pairs that followed each other; swaps their sides by chance, as both are the
same code; and draws stretches of cycles within each pair: so boots differ, rounds hang together and drift as they
really did. Then the known change is put in. Chance is seeded: two versions of the judge see the same evidence.

`--calmer` takes only real runs in which the log ratios of cycles deviate by less than this within a pair. `--scale`
multiplies those log ratios, and so what two boots differ by, but no latencies: p99 says nothing of a quieter hour.
"""

from __future__ import annotations

import gzip
import math
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from bench import parser, table
from numpy.typing import NDArray

from pytest_fileperf.judge import paired, ranks, unit
from pytest_fileperf.judge.evidence import BootEvidence, Pair, excess_of
from pytest_fileperf.judge.paired import Sequential
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.unit import unit_of
from pytest_fileperf.measure.histogram import Histogram, middle_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.record_file import read_record
from pytest_fileperf.settings.settings import DEFAULT_MAX_DURATION_NS

TESTS = 5
"""Of a session; each has two gates."""
LOTS = 4
"""Sessions come in lots. The more, the less depends on what one of them has drawn."""
GATES = ("rps", "p99")
TAILS = vars(ranks)["_tails"]
"""As it is: each lot remembers what it returned."""
FIRST_PAIRS, STRETCH_PAIRS, STRETCH_CYCLES = 3, 2, 6
FIRST_PAIR_S = 1.0
"""How long the first pair is loaded."""
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


Cycles: TypeAlias = tuple[Mapping[str, float], ...]
Stretch: TypeAlias = tuple[Real, ...]
Drawn: TypeAlias = tuple[Sequence[Stretch], Sequence[Stretch]]
"""First and later stretches, which a lot puts the tests of one kind together from."""


@dataclass(frozen=True, slots=True)
class Truth:
    """A known change of now."""

    title: str
    slower: float = 0.0
    """CPU that a request costs more, as a share: all of its latency grows by it, and the rate falls."""
    stalled: float = 0.0
    """Share of the time in which the server stands still, for `STALL_S` at once: it is lost to requests/s."""
    tests: int = 1


TRUTHS = {
    "same": Truth(f"{TESTS} tests, the same code", tests=TESTS),
    "5": Truth("5 % slower", slower=0.05),
    "10": Truth("10 % slower", slower=0.10),
    "20": Truth("20 % slower", slower=0.20),
    "stalls10": Truth("30 ms stalls that cost 10 % of requests/s", stalled=0.10),
    "stalls5": Truth("30 ms stalls that cost 5 % of requests/s", stalled=0.05),
}
COLUMNS = ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kept", type=Path, required=True, help="the directory that gate.py --keep has filled")
    options.add_argument("--sessions", type=int, default=2000)
    options.add_argument("--pool", default="aa", help="the case whose noise is used: aa or busy")
    options.add_argument("--changes", default=",".join(TRUTHS), help=f"some of {', '.join(TRUTHS)}")
    options.add_argument("--limit", type=float, default=DEFAULT_MAX_DURATION_NS / 1e9, help="seconds of a comparison")
    options.add_argument("--tolerance", type=float, help="of every gate; as usual without it")
    options.add_argument("--calmer", type=float, default=math.inf, help="only runs whose cycles deviate by less")
    options.add_argument("--scale", type=float, default=1.0, help="multiplies the log ratios of cycles")
    asked = options.parse_args()
    kept = {
        kind: [scaled(run, asked.scale) for run in runs if deviation_of(run) <= asked.calmer]
        for kind, runs in runs_of(asked.kept, asked.pool).items()
    }
    tolerances = {name: asked.tolerance or METRICS[name].tolerance for name in GATES}
    judge = partial(Sequential, tolerances, limit_s=asked.limit)
    print(f"noise of {', '.join(f'{len(runs)} runs of {name}' for name, runs in kept.items())}\n")
    heading = ["change", "test", "simulated", "any REGRESSED", *(f"rps {name}" for name in COLUMNS)]
    print(table([*heading, "p99 REGRESSED", "p99 PASS", "both PASS", "median s"], []))
    for truth in (TRUTHS[name] for name in asked.changes.split(",")):
        for own in [kept] if truth.tests > 1 else [{kind: runs} for kind, runs in kept.items()]:
            row(own, truth, judge, asked.sessions)


def row(kept: Mapping[str, Sequence[Stretch]], truth: Truth, judge: Callable[..., Sequential], sessions: int) -> None:
    with multiprocessing.Pool() as workers:
        lots = workers.map(partial(simulated, kept, truth, judge, sessions), range(LOTS), chunksize=1)
    found = [tests_found for lot in lots for tests_found in lot]
    gates = [outcomes for tests_found in found for outcomes, _ in tests_found]
    any_regressed = sum(any("REGRESSED" in outcomes for outcomes, _ in tests_found) for tests_found in found)
    seconds = median(time for tests_found in found for _, time in tests_found)
    rps, p99 = (Counter(outcomes[at] for outcomes in gates) for at in (0, 1))
    cells = [truth.title, " and ".join(kept), str(sessions), f"{any_regressed / sessions:.2%}"]
    shares = (*(rps[name] for name in COLUMNS), p99["REGRESSED"], p99["PASS"], gates.count(("PASS", "PASS")))
    cells += [*(f"{share / len(gates):.1%}" for share in shares), f"{seconds:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


# --- in the workers


def simulated(
    kept: Mapping[str, Sequence[Stretch]], truth: Truth, judge: Callable[..., Sequential], sessions: int, lot: int
) -> list[list[tuple[tuple[str, str], float]]]:
    """Returns for each session of a lot what its tests said (rps, p99) and took."""
    judge_units_once()
    rng = np.random.default_rng(lot)
    pools = {kind: pool_of(runs, truth, rng) for kind, runs in kept.items()}
    alpha = RULES.session_alpha / (len(GATES) * truth.tests)
    found = []
    for number in range(lot, sessions, LOTS):
        chances = [np.random.default_rng([number, test]) for test in range(truth.tests)]
        found.append(
            [one_test(pools[str(chance.choice(list(pools)))], judge(alpha=alpha), chance) for chance in chances]
        )
    return found


def judge_units_once() -> None:
    """Makes the judge work out each unit once: tests of a lot share them."""
    vars(ranks).update(_tails=_once(TAILS, lambda pair, most=None: (id(pair), most is None)))
    vars(unit).update(
        excess_of=_once(excess_of, lambda stretches, percent, most=None: (id(stretches), percent, most is None))
    )
    vars(paired).update(
        unit_of=_once(unit_of, lambda metric, pair, total: (metric.name, total, id(pair))),
        _level=lambda metric, sides: None,  # levels are shown, and judge nothing
    )


def _once(function: Callable[..., Any], key: Callable[..., object]) -> Callable[..., Any]:
    known: dict[object, Any] = {}

    def once(*arguments: Any, **keywords: Any) -> Any:
        place = key(*arguments, **keywords)
        if place not in known:
            known[place] = function(*arguments, **keywords)
        return known[place]

    return once


def one_test(pool: Drawn, gates: Sequential, rng: np.random.Generator) -> tuple[tuple[str, str], float]:
    """Compares until it is decided, as the session does."""

    def pick(stretches: Sequence[Stretch]) -> list[Real]:
        return list(stretches[int(rng.integers(len(stretches)))])

    firsts, laters = pool
    pairs, elapsed_s, queue = list[Pair](), 0.0, pick(firsts)
    while True:
        queue = queue or pick(laters)
        real = queue.pop(0)
        pairs.append(real.pair)
        elapsed_s += real.seconds
        found = gates.look(pairs, elapsed_s=elapsed_s, next_s=(queue or laters[0])[0].seconds)
        if found is not None:
            return (found[0].outcome.value, found[1].outcome.value), elapsed_s


# --- noise of real runs, drawn anew, with a known change put in


def runs_of(directory: Path, case: str) -> dict[str, list[Stretch]]:
    """Returns the pairs of each real run, by kind of test."""
    found: dict[str, list[Stretch]] = {}
    for path in sorted(directory.glob(f"{case}-*.json.gz")):
        with tempfile.TemporaryDirectory(prefix="fileperf-kept-") as scratch:
            report = Path(scratch) / "report.json"
            report.write_bytes(gzip.decompress(path.read_bytes()))
            (result,) = read_record(report).results
        pairs, seconds = result.pairs, result.base_seconds or 0.0
        loads_s = [FIRST_PAIR_S * len(pair.base.turns) / len(pairs[0].base.turns) for pair in pairs]
        around_s = max(0.0, seconds - sum(loads_s)) / len(pairs)
        found.setdefault(path.name.split("-")[1], []).append(
            tuple(Real(pair, around_s + load_s) for pair, load_s in zip(pairs, loads_s, strict=True))
        )
    return found


def deviation_of(run: Stretch) -> float:
    """Returns by how much the log ratios of cycles deviate within a pair: a median deviation, the median of pairs."""
    found = []
    for real in run:
        cycles = zip(real.pair.base.typical, real.pair.now.typical, strict=True)
        ratios = [math.log(now["rps"] / base["rps"]) for base, now in cycles if base.get("rps") and now.get("rps")]
        if len(ratios) > 2:
            found.append(1.4826 * median(abs(ratio - median(ratios)) for ratio in ratios))
    return median(found) if found else math.inf


def scaled(run: Stretch, scale: float) -> Stretch:
    """Returns the run with all log ratios of its cycles so many times as great."""
    return tuple(replace(real, pair=_scaled(real.pair, scale)) for real in run)


def _scaled(pair: Pair, scale: float) -> Pair:
    def nearer(own: Cycles, others: Cycles) -> Cycles:
        found = []
        for one, other in zip(own, others, strict=True):
            both = one.get("rps") and other.get("rps")
            by = (other["rps"] / one["rps"]) ** ((1 - scale) / 2) if both else 1.0
            found.append({name: value * by for name, value in one.items()})
        return tuple(found)

    def side(own: BootEvidence, other: BootEvidence) -> BootEvidence:
        return replace(own, turns=nearer(own.turns, other.turns), typical=nearer(own.typical, other.typical))

    return replace(pair, base=side(pair.base, pair.now), now=side(pair.now, pair.base))


def pool_of(runs: Sequence[Stretch], truth: Truth, rng: np.random.Generator) -> Drawn:
    firsts = [drawn(runs[at % len(runs)][:FIRST_PAIRS], truth, rng) for at in range(FIRSTS)]
    lasting, laters = [run for run in runs if len(run) >= FIRST_PAIRS + STRETCH_PAIRS], []
    for at in range(LATERS):
        run = lasting[at % len(lasting)]
        begin = int(rng.integers(FIRST_PAIRS, len(run) - STRETCH_PAIRS + 1))
        laters.append(drawn(run[begin : begin + STRETCH_PAIRS], truth, rng))
    return firsts, laters


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


def _side_of(
    turns: Sequence[Mapping[str, float]], typical: Sequence[Mapping[str, float]], stretches: Sequence[Histogram]
) -> BootEvidence:
    latency = Histogram.merged(stretches)
    return BootEvidence(
        turns=tuple(turns), typical=tuple(typical), latency=latency, stretches=tuple(stretches), runs={}
    )


def _side(side: BootEvidence, places: Sequence[int]) -> BootEvidence:
    turns, typical = ([cycles[at] for at in places] for cycles in (side.turns, side.typical))
    return _side_of(turns, typical, [side.stretches[at] for at in places])


def _changed(side: BootEvidence, truth: Truth, rng: np.random.Generator) -> BootEvidence:
    if truth.stalled:
        return _stalling(side, truth.stalled, rng)
    if not truth.slower:
        return side

    def values(stretch: Histogram) -> Histogram:
        found = np.repeat(middle_of(stretch.steps), stretch.counts) * (1 + truth.slower)
        return Histogram.of(found.astype(np.int64))

    stretches = [values(stretch) if stretch.count else stretch for stretch in side.stretches]
    return _side_of(_slower(side.turns, truth.slower), _slower(side.typical, truth.slower), stretches)


def _slower(turns: Sequence[Mapping[str, float]], slower: float) -> list[dict[str, float]]:
    return [{"rps": turn["rps"] / (1 + slower)} if "rps" in turn else {} for turn in turns]


def _stalling(side: BootEvidence, share: float, rng: np.random.Generator) -> BootEvidence:
    """Returns the side as it is if its server stands still now and then, as for a garbage collection or a lock.

    Stalls begin at instants of chance, and take `share` of the time in which the side is loaded: a turn and the
    handover before it, which is the requests of its stretch over its rate. A turn loses the requests/s of that time,
    and its stretch as many requests, drawn by chance; one that a stall takes to its end goes on in the next. All
    connections wait for a stall: as many of the requests left, drawn by chance, take `STALL_S` longer.
    A typical pace is by the median time in which as many answers come as there are connections: it stays what it was
    while fewer than half of such times have a stall, and has all of it from then on; a turn with fewer than two such
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
    return _side_of(turns, typical, stretches)


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


if __name__ == "__main__":
    main()
