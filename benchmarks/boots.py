"""Shows what makes two boots of the same code differ, and what each stabilisation brings.

    python benchmarks/boots.py [--results FILE] [--pairs 12] [--app app:app] [--variants nothing,all] [--minutes 30]
    python benchmarks/boots.py --table [--results FILE]

Boots the app twice in one of some ways and loads the two boots in turn, as a comparison does: turns that follow each
other share what the machine does to both, so that what is left is how the boots differ. Ways take turns in random
order. The deviation between boots is that of the pairs' differences, less what is uncertain within a pair, over the
square root of two. A pair is a line of JSON in the results file, so the script can be stopped at any time and goes on
where it was. Needs Linux and two cores. Takes some ten seconds a pair.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from gate import read
from scipy.special import chdtri

from pytest_fileperf import scratch
from pytest_fileperf.judge.pair import Pair, PairSide, pair_side
from pytest_fileperf.judge.unit import unit_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.serve.cores import split_cores
from pytest_fileperf.serve.external import UrlLaunch
from pytest_fileperf.serve.spec import Url
from pytest_fileperf.serve.stability import stabilising_env
from pytest_fileperf.session.loading import Loader, Run
from pytest_fileperf.session.planning import comparison_plan
from pytest_fileperf.settings.resolve import Settings

HERE = Path(__file__).parent
PLAN = comparison_plan(Settings(), alpha=0.05)
LONG_PAIR = 3
"""The first of those that are loaded for longer."""
SEED = {name: value for name, value in stabilising_env(0).items() if name == "PYTHONHASHSEED"}
ALLOCATOR = {name: value for name, value in stabilising_env(0).items() if name.startswith("MALLOC_")}
ALL = SEED | ALLOCATOR
NUMBERED = "import uvicorn; from pytest_fileperf.serve.stability import move_heap; move_heap(); uvicorn.main()"
"""What a worker of the plugin does before it loads its app."""
PR_SET_THP_DISABLE = 41


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to boot."""

    title: str
    env: Mapping[str, str] = field(default_factory=dict)
    addresses: bool = False
    """Fixed."""
    no_huge_pages: bool = False
    numbered: bool = False
    """As a comparison boots: both have the same seed and layout of memory, and each pair has others."""


STABLE = Variant(title="all three", env=ALL, addresses=True)
VARIANTS = {
    "nothing": Variant(title="nothing"),
    "seed": Variant(title="hash seed", env=SEED),
    "addresses": Variant(title="addresses", addresses=True),
    "allocator": Variant(title="allocator", env=ALLOCATOR),
    "seed+addresses": Variant(title="hash seed and addresses", env=SEED, addresses=True),
    "all": STABLE,
    "malloc": Variant(title="… and PYTHONMALLOC=malloc", env={**ALL, "PYTHONMALLOC": "malloc"}, addresses=True),
    "huge": Variant(
        title="… and huge pages for malloc", env={**ALL, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, addresses=True
    ),
    "no-huge": replace(STABLE, title="… and no huge pages at all", no_huge_pages=True),
    "numbered": replace(STABLE, title="… with another seed and layout in each pair", numbered=True),
}
WORK = {
    "tiny GET": Operation(method="GET", url="/tiny", arguments={}),
    "256 KiB upload": Operation(method="POST", url="/upload", arguments={"content": payload("256KiB")}),
}
USUAL_NS = {"tiny GET": 2_400_000, "256 KiB upload": 6_000_000}
"""What a request usually takes here; turns are as long as that asks for."""


def main() -> None:
    """Measures the pairs that are missing, and prints a table for each work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "boots.jsonl")
    parser.add_argument("--pairs", type=int, default=12, help="of boots, of each way")
    parser.add_argument("--app", default="app:app", help="with /tiny and /upload, as in app.py")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="some of these")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--table", action="store_true", help="print what is in the results file, and run nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        measure_missing(arguments)
    rows = read(arguments.results)
    for work in WORK:
        print(f"{table(rows, work)}\n")


def measure_missing(arguments: argparse.Namespace) -> None:
    """Makes pairs until each way has enough of them, or the time is over."""
    ends_s = time.monotonic() + 60 * arguments.minutes
    loader = Loader()
    try:
        while time.monotonic() < ends_s:
            counts = Counter(str(row["variant"]) for row in read(arguments.results))
            missing = [name for name in arguments.variants.split(",") if counts[name] < arguments.pairs]
            if not missing:
                return
            fewest = min(counts[name] for name in missing)
            name = random.choice([name for name in missing if counts[name] == fewest])
            row = {"variant": name, **measured(arguments.app, name, counts[name], loader)}
            with arguments.results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            print(f"\r{name}: pair {counts[name] + 1} of {arguments.pairs}   ", end="", file=sys.stderr, flush=True)
    finally:
        loader.close()
        print(file=sys.stderr)


def measured(app: str, name: str, number: int, loader: Loader) -> dict[str, object]:
    """Returns, for each work, how two boots differ, as a log ratio, and the variance of that alone."""
    cores = split_cores(1)
    if cores is None:
        sys.exit("needs two cores")
    (core,), generator_cores = cores
    found: dict[str, object] = {"at": round(time.time())}
    with booted(app, name, number, core) as one, booted(app, name, number, core) as other:
        for work in random.sample(list(WORK), len(WORK)):
            plan = PLAN.alternation(LONG_PAIR, latency_ns=USUAL_NS[work], chance=random.SystemRandom())
            servers = UrlLaunch(Url(one)).ready(), UrlLaunch(Url(other)).ready()
            made = loader.alternate((WORK[work], WORK[work]), plan, number, servers, generator_cores, lambda _: None)
            sides = tuple(map(side_of, made))
            unit = unit_of(METRICS["rps"], [Pair(base=sides[0], now=sides[1])], total=False)
            if unit is None:
                sys.exit(f"{work}: there were no answers")
            level = statistics.median(turn["rps"] for side in sides for turn in side.turns)
            found[work] = {"difference": unit.value, "variance": unit.variance, "rps": round(level)}
    return found


def side_of(run: Run) -> PairSide:
    """Returns what a boot showed; ends the script where requests failed."""
    failed = [round_.failures for round_ in run.result.rounds if round_.failed]
    if failed:
        sys.exit(f"requests failed: {failed[0]}")
    return pair_side(run.result.rounds, ())


@contextmanager
def booted(app: str, name: str, number: int, core: int) -> Iterator[str]:
    """Boots a server, waits until it answers, and gives its address."""
    variant = VARIANTS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])))}
    env |= variant.env
    if variant.numbered:
        env |= stabilising_env(number)
    program = ("-c", NUMBERED) if variant.numbered else ("-m", "uvicorn")
    serve = (*program, app, f"--port={port}", "--log-level=warning", "--no-access-log")
    with ExitStack() as stack:
        directory = scratch.make("boot")
        stack.callback(scratch.remove, directory)
        process = subprocess.Popen(
            scratch.supervised(
                (sys.executable, "-P", *serve), directory, cores=frozenset({core}), stabilise=variant.addresses
            ),
            env=env,
            preexec_fn=forbid_huge_pages if variant.no_huge_pages else None,
            start_new_session=True,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        deadline_s = time.monotonic() + 30
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                sys.exit(f"{name} number {number} does not answer")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"


def answers(port: int) -> bool:
    """Returns whether something listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def forbid_huge_pages() -> None:
    """Holds for this process and what it executes."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def table(rows: Sequence[dict[str, object]], work: str) -> str:
    """Returns a row for each way: the level, and the deviation between boots."""
    lines = [
        f"**{work}**\n",
        "| stabilised | pairs | requests/s | between boots (90 % interval) | × the first | noise of a difference |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    first = None
    for name, variant in VARIANTS.items():
        own = [cast("Mapping[str, float]", row[work]) for row in rows if row["variant"] == name]
        if len(own) < 2:
            continue
        spread = Spread.of([one["difference"] for one in own], [one["variance"] for one in own])
        first = first or spread
        low, high = spread.interval()
        level = statistics.median(one["rps"] for one in own)
        lines.append(
            f"| {variant.title} | {len(own)} | {level:,.0f} | {spread.boots:.2%} ({low:.2%}–{high:.2%}) "
            f"| {spread.boots / first.boots if first.boots else math.nan:.2f} | {math.sqrt(spread.noise):.2%} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much boots differ, as deviations of logarithms."""

    observed: float
    """Variance of the differences; its mean is known to be 0, as both boots are of the same way."""
    noise: float
    """The part of it that comes from within the pairs."""
    count: int

    @classmethod
    def of(cls, differences: Sequence[float], variances: Sequence[float]) -> Spread:
        """Returns it from what each pair showed."""
        observed = statistics.fmean(difference**2 for difference in differences)
        return cls(observed=observed, noise=statistics.fmean(variances), count=len(differences))

    @property
    def boots(self) -> float:
        """The deviation between boots."""
        return math.sqrt(max(0.0, self.observed - self.noise) / 2)

    def interval(self) -> tuple[float, float]:
        """Returns where it lies with 90 % probability, as the chi-square distribution says."""
        low, high = (self.count * self.observed / float(chdtri(self.count, tail)) for tail in (0.05, 0.95))
        return math.sqrt(max(0.0, low - self.noise) / 2), math.sqrt(max(0.0, high - self.noise) / 2)


if __name__ == "__main__":
    main()
