"""Shows how pytest and the load generator grow, in a long load and over many measurements in one session.

    python benchmarks/memory.py load [--minutes 10] [--work get|rate|journey|failing]
    python benchmarks/memory.py measurements [--count 200] [--duration 1s]

The app answers after a time that differs by chance from 0 to some hundred milliseconds, so that latencies lie in many
steps of a histogram. What a process has for itself is counted (its unique set size): what it is after a tenth of the
load or 5 s, or after the second measurement, and what it is at the end. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from bench import INI, PYTEST, PYTHONPATH, parser

MB = 1_000_000
LOOK_S = 0.5
TESTS = """
import pytest
from pathlib import Path

async def journey(client):
    (await client.get("/chance")).raise_for_status()

WORK = {{
    "get": lambda fileperf, load: fileperf.get("/chance", **load),
    "rate": lambda fileperf, load: fileperf.get("/chance", rate=500, **load),
    "journey": lambda fileperf, load: fileperf.run(journey, **load),
    "failing": lambda fileperf, load: fileperf.get("/chance/failing", max_error_rate=1, **load),
}}

@pytest.mark.parametrize("number", range({count}))
def test_it(fileperf, number):
    WORK["{work}"](fileperf, dict(duration="{duration}", warmup="0.2s", boots=1, gate="none", connections=32))
    with Path("done").open("a") as file:
        file.write(".")
"""


def own_bytes(process: psutil.Process) -> int:
    """Returns the memory that only this process has."""
    return int(process.memory_full_info().uss)


def generator_of(run: psutil.Process) -> psutil.Process | None:
    """Returns the load generator of a run, and not the supervisor above it; None where there is none."""
    for process in run.children(recursive=True):
        with suppress(psutil.Error):
            if "pytest_fileperf.drive" in process.cmdline() and not process.children():
                return process
    return None


def looks(project: Path, run: subprocess.Popen[bytes]) -> Iterator[tuple[float, int, int, int]]:
    """Yields seconds of the load, measurements so far, and the memory of pytest and of the generator, until the end."""
    done, itself = project / "done", psutil.Process(run.pid)
    begun_s = None
    while run.poll() is None:
        time.sleep(LOOK_S)
        with suppress(psutil.Error):
            generator = generator_of(itself)
            if generator is None:
                continue
            begun_s = begun_s or time.monotonic()
            count = done.stat().st_size if done.exists() else 0
            yield time.monotonic() - begun_s, count, own_bytes(itself), own_bytes(generator)


def watched(*, work: str, count: int, duration: str) -> list[tuple[float, int, int, int]]:
    """Makes a session of so many measurements, and returns what was seen of it."""
    with tempfile.TemporaryDirectory(prefix="memory-") as directory:
        project = Path(directory)
        (project / "pytest.ini").write_text(INI.format(app="bench_apps:counted"), encoding="utf-8")
        text = TESTS.format(work=work, count=count, duration=duration)
        (project / "test_it.py").write_text(text, encoding="utf-8")
        env = {name: value for name, value in os.environ.items() if name != "CI"} | {"PYTHONPATH": PYTHONPATH}
        with (
            (project / "log.txt").open("w+b") as log,
            subprocess.Popen((*PYTEST, "--fileperf"), cwd=project, env=env, stdout=log) as run,
        ):
            seen = list(looks(project, run))
            if run.returncode:
                log.seek(0)
                sys.exit(log.read().decode(errors="replace")[-3000:])
    return seen


def growth(what: str, values: list[int]) -> str:
    """Returns a line about the memory of a process."""
    first, last = values[0], values[-1]
    return (
        f"{what:10} {first / MB:7.2f} MB at first, {last / MB:7.2f} MB at the end: {(last - first) / MB:+6.2f} MB"
        f" ({max(values) / MB:.2f} MB at the most)"
    )


def main() -> None:
    """Prints a line for each of the two processes."""
    options = parser(__doc__)
    ways = options.add_subparsers(dest="way", required=True)
    load = ways.add_parser("load")
    load.add_argument("--minutes", type=float, default=10.0)
    load.add_argument("--work", choices=("get", "rate", "journey", "failing"), default="get")
    measurements = ways.add_parser("measurements")
    measurements.add_argument("--count", type=int, default=200)
    measurements.add_argument("--duration", default="1s")
    asked = options.parse_args()
    if asked.way == "load":
        seconds = 60 * asked.minutes
        seen = watched(work=asked.work, count=1, duration=f"{seconds:g}s")
        during = [look for look in seen if min(5.0, seconds / 10) < look[0] < seconds]
        print(f"{asked.work}, {seconds:g} s, {len(during)} looks")
    else:
        seen = watched(work="get", count=asked.count, duration=asked.duration)
        during = [look for look in seen if 2 <= look[1] <= asked.count]
        print(f"{asked.count} measurements of {asked.duration}, {len(during)} looks")
    print(growth("pytest", [look[2] for look in during]))
    print(growth("generator", [look[3] for look in during]))


if __name__ == "__main__":
    main()
