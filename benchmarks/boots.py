"""Shows what makes two boots of the same code differ, and what each stabilisation brings.

    python benchmarks/boots.py [--boots 10] [--seconds 3] [--app app:app] [--variants nothing,all] [--minutes 30]

Boots the app many times in each of some ways, all of them before anything is measured, and loads them in turns of
0.4 s whose order is random in each cycle: so all have seen the same machine. Who has not the turn is stopped by a
signal, as an idle server wakes up ten times a second. A boot's level is the Hodges-Lehmann estimate of its turns, each
less what all boots had in common in that cycle; what the scatter of the turns leaves uncertain (the noise of a level)
is taken off the deviation between boots, which can only be seen where it is not much smaller. CPU per request is told
too, which others on the machine disturb less. Needs Linux and two cores. Takes 0.45 s for each boot, turn and work: as
it stands about 20 minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from scipy.special import chdtri

from pytest_fileperf.drive.beginning import Target
from pytest_fileperf.drive.process import Generator
from pytest_fileperf.judge.level import hodges_lehmann
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.serve.cores import split_cores
from pytest_fileperf.serve.process import STAGES
from pytest_fileperf.serve.stability import stabilising_env

HERE = Path(__file__).parent
MS = 1_000_000
TURN_MS = 400
WARM_MS = 100
"""Of each turn: connections are new in each, and caches hold what another server needed."""
CONNECTIONS = 32
SEED = {name: value for name, value in stabilising_env(0).items() if name == "PYTHONHASHSEED"}
ALLOCATOR = {name: value for name, value in stabilising_env(0).items() if name.startswith("MALLOC_")}
ALL = SEED | ALLOCATOR
NUMBERED = "import uvicorn; from pytest_fileperf.serve.stability import move_heap; move_heap(); uvicorn.main()"
"""What a worker of the plugin does before it loads its app."""
PR_SET_THP_DISABLE = 41
NORMAL_PAIR = 0.6744897501960817 * math.sqrt(2)
"""The median difference of two values of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to boot."""

    title: str
    env: Mapping[str, str] = field(default_factory=dict)
    addresses: bool = False
    """Fixed."""
    no_huge_pages: bool = False
    numbered: bool = False
    """As the plugin boots: seed and layout of memory differ from boot to boot, and are known."""
    swapped: bool = False
    """Every other boot on the generator's core, and the generator on its."""


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
    "numbered": replace(STABLE, title="… with another seed and layout in each boot", numbered=True),
    "swapped": replace(STABLE, title="… but cores changed about", swapped=True),
}
WORK = {
    "tiny GET": Operation(method="GET", url="/tiny", arguments={}),
    "256 KiB upload": Operation(method="POST", url="/upload", arguments={"content": payload("256KiB")}),
}


@dataclass(slots=True, kw_only=True)
class Booted:
    """A server, and what its turns have shown."""

    variant: str
    url: str
    process: subprocess.Popen[bytes]
    generator_core: int
    turns: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    """By work and metric: by cycle, the logarithm of its value."""


def main() -> None:
    """Measures, and prints a table for each work and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boots", type=int, default=10, help="of each variant")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load on each boot for each work")
    parser.add_argument("--app", default="app:app", help="with /tiny and /upload, as in app.py")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="some of these")
    parser.add_argument("--minutes", type=float, default=45.0, help="stop after so long")
    parser.add_argument("--results", type=Path, help="write the turns of every boot there, as JSON")
    arguments = parser.parse_args()
    ends_s = time.monotonic() + 60 * arguments.minutes
    variants = arguments.variants.split(",")
    cycles = max(2, round(arguments.seconds * 1000 / (TURN_MS - WARM_MS)))
    with booted(arguments.app, variants, arguments.boots) as boots:
        made = measure(boots, cycles, ends_s)
    print(f"{arguments.boots} boots of each, {made} turns of {TURN_MS - WARM_MS} ms\n")
    if arguments.results:
        rows = [
            {"variant": boot.variant, "work": work, "metric": metric, "turns": turns}
            for boot in boots
            for (work, metric), turns in boot.turns.items()
        ]
        arguments.results.write_text(json.dumps(rows), encoding="utf-8")
    for work in WORK:
        for metric in ("requests/s", "CPU/request"):
            print(f"{table(boots, work, metric)}\n")


@contextmanager
def booted(app: str, variants: Sequence[str], count: int) -> Iterator[list[Booted]]:
    """Boots all of them, in random order, and stops them until their turns."""
    cores = split_cores(1)
    if cores is None:
        sys.exit("needs two cores")
    (core,), (generator_core,) = cores
    order = [(name, number) for name in variants for number in range(count)]
    random.shuffle(order)
    with ExitStack() as stack:
        boots = []
        for name, number in order:
            swapped = VARIANTS[name].swapped and number % 2 == 1
            pair = (generator_core, core) if swapped else (core, generator_core)
            boots.append(boot(app, name, number, pair, stack))
            boots[-1].process.send_signal(signal.SIGSTOP)
            print(f"\rbooted {len(boots)} of {len(order)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        yield boots


def boot(app: str, name: str, number: int, cores: tuple[int, int], stack: ExitStack) -> Booted:
    """Boots one, and waits until it answers."""
    variant = VARIANTS[name]
    core, generator_core = cores
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(HERE), **variant.env}
    if variant.numbered:
        env |= stabilising_env(number)
    program = ("-c", NUMBERED) if variant.numbered else ("-m", "uvicorn")
    serve = (*program, app, f"--port={port}", "--log-level=warning", "--no-access-log")
    stage = (sys.executable, "-I", "-S", str(STAGES / "settle.py"), str(core), "FIX" if variant.addresses else "KEEP")
    command = [*stage, sys.executable, "-P", *serve]
    process = subprocess.Popen(
        command, env=env, preexec_fn=forbid_huge_pages if variant.no_huge_pages else None, start_new_session=True
    )
    stack.callback(end, process)
    deadline_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                sys.exit(f"{name} number {number} does not answer")
            time.sleep(0.02)
    return Booted(variant=name, url=f"http://127.0.0.1:{port}", process=process, generator_core=generator_core)


def forbid_huge_pages() -> None:
    """Holds for this process and what it executes."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server, stopped or not."""
    process.kill()
    process.wait()


def measure(boots: Sequence[Booted], cycles: int, ends_s: float) -> int:
    """Loads every boot once a cycle with each work, and returns how many cycles there was time for."""
    plan = LoadPlan(
        connections=CONNECTIONS,
        warmup_ns=WARM_MS * MS,
        round_ns=(TURN_MS - WARM_MS) * MS,
        rounds=1,
        timeout_ns=30_000 * MS,
    )
    with Generator() as generator:
        for cycle in range(-1, cycles):  # the first is to warm up
            if time.monotonic() > ends_s:
                return max(0, cycle)
            for work in random.sample(list(WORK), len(WORK)):
                for server in random.sample(boots, len(boots)):
                    take_turn(generator, plan, server, work, cycle)
            print(f"\rcycle {cycle + 1} of {cycles}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return cycles


def take_turn(generator: Generator, plan: LoadPlan, server: Booted, work: str, cycle: int) -> None:
    """Loads one server for one turn."""
    server.process.send_signal(signal.SIGCONT)
    try:
        result = generator.run(
            WORK[work],
            plan,
            Target(boot=0, url=server.url),
            pids=(server.process.pid,),
            cores=frozenset((server.generator_core,)),
            progress=lambda _: None,
            check=lambda: None,
        )
    finally:
        server.process.send_signal(signal.SIGSTOP)
    round_ = result.rounds[0]
    if round_.failed or not round_.requests or not round_.server_cpu_ns:
        sys.exit(f"{work}: {round_.requests} answers, failures: {round_.failures}")
    if cycle < 0:
        return
    values = {
        "requests/s": round_.requests / round_.duration_ns * 1e9,
        "CPU/request": round_.server_cpu_ns / round_.requests / 1e3,
    }
    for metric, value in values.items():
        server.turns.setdefault((work, metric), {})[cycle] = math.log(value)


def table(boots: Sequence[Booted], work: str, metric: str) -> str:
    """Returns a row for each variant: level, and deviations between boots, of a boot's level, and between turns."""
    names = list(dict.fromkeys(boot.variant for boot in sorted(boots, key=lambda b: list(VARIANTS).index(b.variant))))
    turns = common_taken_off([boot.turns[work, metric] for boot in boots])
    spreads = {
        name: Spread.of([own for boot, own in zip(boots, turns, strict=True) if boot.variant == name]) for name in names
    }
    first = next(iter(spreads.values()))
    unit = "µs" if metric == "CPU/request" else "/s"
    lines = [
        f"**{work}, {metric}**\n",
        "| stabilised | level | against the first | between boots (90 % interval) | × the first "
        "| noise of a level | between turns |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, spread in spreads.items():
        low, high = spread.interval()
        ratio = f"{spread.boots / first.boots:.2f}" if first.interval()[0] > 0 else "–"  # else it may be by nothing
        lines.append(
            f"| {VARIANTS[name].title} | {math.exp(spread.level):,.0f} {unit} "
            f"| {math.expm1(spread.level - first.level):+.1%} "
            f"| {spread.boots:.2%} ({low:.2%}–{high:.2%}) | {ratio} | {math.sqrt(spread.noise):.2%} "
            f"| {spread.turns:.2%} |"
        )
    return "\n".join(lines)


def common_taken_off(turns: Sequence[Mapping[int, float]]) -> list[list[float]]:
    """Returns the turns of each boot less what each cycle did to all: how far the median boot was from its usual."""
    usual = [statistics.median(own.values()) for own in turns]
    cycles = set.intersection(*(set(own) for own in turns))
    shift = {
        cycle: statistics.median(own[cycle] - level for own, level in zip(turns, usual, strict=True))
        for cycle in cycles
    }
    return [[own[cycle] - shift[cycle] for cycle in sorted(cycles)] for own in turns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much boots of one variant differ, and turns of one boot, as deviations of logarithms."""

    level: float
    observed: float
    """Variance of the boots' levels."""
    noise: float
    """The part of it that comes from the turns."""
    turns: float
    count: int

    @classmethod
    def of(cls, boots: Sequence[Sequence[float]]) -> Spread:
        """Returns it from the turns of each boot."""
        levels = [hodges_lehmann(own) for own in boots]
        gaps = [abs(one - other) for own in boots for one, other in combinations(own, 2)]
        turns = statistics.median(gaps) / NORMAL_PAIR
        return cls(
            level=statistics.fmean(levels),
            observed=statistics.variance(levels),
            noise=math.pi / 3 * turns**2 / len(boots[0]),
            turns=turns,
            count=len(boots),
        )

    @property
    def boots(self) -> float:
        """The deviation between boots."""
        return math.sqrt(max(0.0, self.observed - self.noise))

    def interval(self) -> tuple[float, float]:
        """Returns where it lies with 90 % probability, as the chi-square distribution says."""
        df = self.count - 1
        low, high = (df * self.observed / float(chdtri(df, tail)) for tail in (0.05, 0.95))
        return math.sqrt(max(0.0, low - self.noise)), math.sqrt(max(0.0, high - self.noise))


if __name__ == "__main__":
    main()
