"""Boots servers that have exactly one limit each, loads them, and counts how often it is named.

    python benchmarks/limits.py [--runs 10] [--seconds 2] [--cases sleep,burn]

Every run is a measurement of its own, through the same session that tests use. It needs Linux, two cores, and a disk
below the directory for temporary files. Takes about ten minutes as it stands.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Uvicorn
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings

MS = 1_000_000
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A load on an endpoint, and what it must be limited by."""

    title: str
    limit: LimitKind
    path: str
    connections: int = 32
    workers: int = 1
    paced: bool = False
    """Connections that send at a limited rate."""
    in_process: bool = False
    journey: bool = False
    """Through httpx's client, which costs the generator more than the answer costs the server."""
    load: Settings = field(default_factory=Settings)
    """What else the load is, such as its rate."""

    def work(self) -> Work:
        """Returns what each connection does."""
        return Journey(function=visit, name="visit") if self.journey else Operation(method="GET", url=self.path)

    def settings(self, seconds: float, scratch: Path) -> Settings:
        """Returns the settings of one measurement."""
        env = (("FILEPERF_LIMITS_SCRATCH", str(scratch)), ("FILEPERF_LIMITS_PACED", "1" if self.paced else ""))
        server: ServerSpec = InProcess() if self.in_process else Uvicorn(workers=self.workers, env=env)
        return replace(
            self.load,
            app="limited:app",
            server=server,
            connections=self.connections,
            duration_ns=round(seconds * 1e9),
            rounds=ROUNDS,
            warmup_ns=300 * MS,
            boots=1,
            gate=(),
        )


async def visit(client: httpx.AsyncClient) -> None:
    """Asks the cheapest endpoint through httpx."""
    answer = await client.get("/raw")
    assert answer.text == "ok"


K = LimitKind
CASES = {
    "journey": Case(title="a journey on an endpoint that costs nothing", limit=K.GENERATOR, path="/raw", journey=True),
    "burn": Case(title="computing", limit=K.SERVER_CPU, path="/burn"),
    "tiny": Case(title="a tiny answer", limit=K.SERVER_CPU, path="/tiny"),
    "burn-in-thread": Case(title="computing in threads", limit=K.SERVER_CPU, path="/burn-in-thread", connections=64),
    "two-workers": Case(title="computing in 2 workers", limit=K.SERVER_CPU, path="/burn", workers=2),
    "one-worker": Case(
        title="computing in 1 of 2 workers", limit=K.SERVER_CPU, path="/one-worker", workers=2, connections=128
    ),
    "thread": Case(title="`time.sleep` in a `def`", limit=K.THREAD_POOL, path="/thread", connections=64),
    "executor": Case(title="`asyncio.to_thread`", limit=K.THREAD_POOL, path="/executor"),
    "sleep": Case(title="`asyncio.sleep`", limit=K.CONCURRENCY, path="/sleep"),
    "sleep-and-thread": Case(title="the same, and a little in a thread", limit=K.CONCURRENCY, path="/sleep-and-thread"),
    "stream": Case(title="a stream with pauses", limit=K.CONCURRENCY, path="/stream"),
    "one-connection": Case(title="1 connection", limit=K.CONCURRENCY, path="/thread", connections=1),
    "blocking": Case(title="`time.sleep` in an `async def`", limit=K.EVENT_LOOP, path="/blocking"),
    "fsync": Case(title="`fsync` in an `async def`", limit=K.DISK, path="/fsync"),
    "read-on-loop": Case(title="reading past the page cache in an `async def`", limit=K.DISK, path="/read-on-loop"),
    "read": Case(title="reading past the page cache in a `def`", limit=K.DISK, path="/read", connections=64),
    "paced": Case(title="sockets of 2 MB/s", limit=K.NETWORK, path="/block", paced=True),
    "rate": Case(title="200/s of `asyncio.sleep`", limit=K.RATE, path="/sleep", load=Settings(rate=200)),
    "rate-above": Case(title="1,000/s of computing", limit=K.SERVER_CPU, path="/burn", load=Settings(rate=1000)),
    "rate-thread": Case(
        title="600/s of `time.sleep` in a `def`",
        limit=K.THREAD_POOL,
        path="/thread",
        connections=1000,
        load=Settings(rate=600),
    ),
    "burst": Case(
        title="2,000 at once of `asyncio.sleep`",
        limit=K.UNCLEAR,
        path="/sleep",
        connections=64,
        load=Settings(burst=2000),
    ),
    "short-burst": Case(
        title="450 at once of `asyncio.sleep`, 0.4 s",
        limit=K.UNCLEAR,
        path="/sleep",
        connections=64,
        load=Settings(burst=450),
    ),
    "in-process-burn": Case(title="computing, in-process", limit=K.SERVER_CPU, path="/burn", in_process=True),
    "in-process-sleep": Case(title="`asyncio.sleep`, in-process", limit=K.CONCURRENCY, path="/sleep", in_process=True),
    "lock": Case(title="one lock for all threads", limit=K.UNCLEAR, path="/thread-lock", connections=64),
    "semaphore": Case(title="one semaphore for all requests", limit=K.UNCLEAR, path="/semaphore"),
}


def limits_named(name: str, case: Case, session: Session, *, runs: int, seconds: float, scratch: Path) -> list[Limit]:
    """Returns what was named in each run; runs that failed are told and left out."""
    test = TestId(nodeid=f"limits.py::{name}", module="limits.py", name=name)
    found = []
    for _ in range(runs):
        try:
            found.append(session.measure(case.work(), case.settings(seconds, scratch), test).limit)
        except FilePerfError as error:
            print(f"{name}: {error}", file=sys.stderr)
        else:
            print(f"{name}: {found[-1]}", file=sys.stderr)
    return found


def row(case: Case, found: Sequence[Limit]) -> Sequence[str]:
    """Returns the case's line of the table."""
    others = Counter(limit.kind.value for limit in found if limit.kind is not case.limit)
    right = [limit for limit in found if limit.kind is case.limit]
    return (
        case.title,
        case.limit.value,
        f"{len(right)} of {len(found)}",
        ", ".join(f"{count} × {kind}" for kind, count in others.most_common()) or "–",
        str(right[0] if right else found[0]) if found else "",
    )


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="measurements of each case (default: 10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement (default: 2)")
    parser.add_argument("--cases", default=",".join(CASES), help="which cases (default: all)")
    options = parser.parse_args()
    chosen = options.cases.split(",")
    if unknown := set(chosen) - set(CASES):
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    print("| load | limit | named | what else was said | example |\n| --- | --- | ---: | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="fileperf-limits-") as directory:
        scratch = Path(directory)
        for name in chosen:
            with Session(Options(baselines=scratch / "baselines"), Rig()) as session:
                found = limits_named(
                    name, CASES[name], session, runs=options.runs, seconds=options.seconds, scratch=scratch
                )
            print("| " + " | ".join(row(CASES[name], found)) + " |", flush=True)


if __name__ == "__main__":
    main()
