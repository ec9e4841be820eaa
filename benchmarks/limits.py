"""Loads servers that have exactly one limit each, and counts how often it is named.

    python benchmarks/limits.py [--runs 10] [--seconds 2] [--cases sleep,burn]

It needs Linux, two cores, and a disk below the directory for temporary files, and takes about ten minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import PYTHONPATH, Row, chosen, parser, reported, table

TEST = """
import pytest
from pytest_fileperf import InProcess, Uvicorn

async def visit(client):
    assert (await client.get("/raw")).text == "ok"

@pytest.mark.parametrize("run", range({runs}))
def test_limit(fileperf, run):
    fileperf.{load}, app="bench_apps:limited", duration={seconds}, rounds=4, warmup=0.3, boots=1, gate="none")
"""
CASES = {
    "journey": ("load generator", "run(visit"),
    "burn": ("server CPU", "get('/burn'"),
    "tiny": ("server CPU", "get('/tiny'"),
    "burn-in-thread": ("server CPU", "get('/burn-in-thread', connections=64"),
    "two-workers": ("server CPU", "get('/burn', workers=2"),
    "one-worker": ("server CPU", "get('/one-worker', connections=128, workers=2"),
    "thread": ("thread pool", "get('/thread', connections=64"),
    "executor": ("thread pool", "get('/executor'"),
    "sleep": ("concurrency", "get('/sleep'"),
    "sleep-and-thread": ("concurrency", "get('/sleep-and-thread'"),
    "stream": ("concurrency", "get('/stream'"),
    "one-connection": ("concurrency", "get('/thread', connections=1"),
    "blocking": ("event loop", "get('/blocking'"),
    "fsync": ("disk", "get('/fsync'"),
    "read-on-loop": ("disk", "get('/read-on-loop'"),
    "read": ("disk", "get('/read', connections=64"),
    "paced": ("network", "get('/download'"),
    "rate": ("rate", "get('/sleep', rate=200, connections=32"),
    "rate-above": ("server CPU", "get('/burn', rate=1000, connections=32"),
    "rate-thread": ("thread pool", "get('/thread', rate=600, connections=1000"),
    "burst": ("unclear", "get('/sleep', burst=2000, connections=64"),
    "short-burst": ("unclear", "get('/sleep', burst=450, connections=64"),
    "in-process-burn": ("server CPU", "get('/burn', server=InProcess()"),
    "in-process-sleep": ("concurrency", "get('/sleep', server=InProcess()"),
    "lock": ("unclear", "get('/thread-lock', connections=64"),
    "semaphore": ("unclear", "get('/semaphore'"),
}
"""By what they are called in the table: the limit that must be named, and the call."""


def limits_named(name: str, runs: int, seconds: float) -> list[Row]:
    """Returns the limit that each run named."""
    with tempfile.TemporaryDirectory(prefix="fileperf-limits-") as directory:
        text = TEST.format(runs=runs, seconds=seconds, load=CASES[name][1])
        (Path(directory) / "test_limit.py").write_text(text, encoding="utf-8")
        paced = "1" if name == "paced" else ""
        _, results = reported(Path(directory), PYTHONPATH=PYTHONPATH, LIMITS_SCRATCH=directory, LIMITS_PACED=paced)
    return [result["limit"] for result in results]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10, help="measurements of each case (default: 10)")
    options.add_argument("--seconds", type=float, default=2.0, help="length of a measurement (default: 2)")
    options.add_argument("--cases", default="", help="which cases (default: all)")
    asked = options.parse_args()
    rows = []
    for name in chosen(options, asked.cases, CASES):
        found = limits_named(name, asked.runs, asked.seconds)
        print(f"{name}: {found}", file=sys.stderr)
        kinds = Counter(limit["kind"] for limit in found)
        right = kinds.pop(CASES[name][0], 0)
        others = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
        rows.append([name, CASES[name][0], f"{right} of {len(found)}", others or "–", found[0]["evidence"]])
    print(table(("load", "limit", "named", "what else was said", "example"), rows))


if __name__ == "__main__":
    main()
