"""Shows how pytest and the load generator grow, in a long load and over many measurements in one session.

    python benchmarks/memory.py load [--minutes 10]
    python benchmarks/memory.py measurements [--count 200] [--duration 1s]

The app answers after a time that differs by chance, so that latencies lie in many steps of a histogram. The memory that
only a process has (its unique set size) after a tenth of the load or 5 s, or after the second measurement, is held
against that at the end. Linux only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from bench import ENVIRONMENT, INI, PYTEST, PYTHONPATH, parser

TESTS = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({count}))
def test_it(fileperf, number):
    fileperf.get("/chance", duration="{duration}", warmup="0.2s", boots=1, gate="none", connections=32)
    with Path("done").open("a") as file:
        file.write(".")
"""


def generator_of(run: psutil.Process) -> psutil.Process | None:
    """Returns the load generator of a run, and not the supervisor above it; None if there is none."""
    for process in run.children(recursive=True):
        with suppress(psutil.Error):
            if "pytest_fileperf.drive" in process.cmdline() and not process.children():
                return process
    return None


def looks(project: Path, run: subprocess.Popen[bytes]) -> Iterator[tuple[float, int, int, int]]:
    """Yields seconds of the load, measurements so far, and the memory of pytest and of the generator, until the end."""
    done, itself, begun_s = project / "done", psutil.Process(run.pid), 0.0
    while run.poll() is None:
        time.sleep(0.5)
        with suppress(psutil.Error):
            if (generator := generator_of(itself)) is not None:
                begun_s = begun_s or time.monotonic()
                count = done.stat().st_size if done.exists() else 0
                own, others = (process.memory_full_info().uss for process in (itself, generator))
                yield time.monotonic() - begun_s, count, own, others


def watched(*, count: int, duration: str) -> list[tuple[float, int, int, int]]:
    """Makes a session of so many measurements, and returns what was seen of it."""
    with tempfile.TemporaryDirectory(prefix="memory-") as directory:
        project = Path(directory)
        (project / "pytest.ini").write_text(INI.format(app="bench_apps:counted"), encoding="utf-8")
        (project / "test_it.py").write_text(TESTS.format(count=count, duration=duration), encoding="utf-8")
        env = {**ENVIRONMENT, "PYTHONPATH": PYTHONPATH}
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
    first, last, most = (value / 1e6 for value in (values[0], values[-1], max(values)))
    return f"{what:10} {first:7.2f} MB at first, {last:7.2f} MB in the end: {last - first:+6.2f} MB (most {most:.2f})"


def main() -> None:
    options = parser(__doc__)
    ways = options.add_subparsers(dest="way", required=True)
    ways.add_parser("load").add_argument("--minutes", type=float, default=10.0)
    measurements = ways.add_parser("measurements")
    measurements.add_argument("--count", type=int, default=200)
    measurements.add_argument("--duration", default="1s")
    asked = options.parse_args()
    if asked.way == "load":
        seconds = 60 * asked.minutes
        seen = watched(count=1, duration=f"{seconds:g}s")
        during = [look for look in seen if min(5.0, seconds / 10) < look[0] < seconds]
    else:
        seen = watched(count=asked.count, duration=asked.duration)
        during = [look for look in seen if 2 <= look[1] <= asked.count]
    print(growth("pytest", [look[2] for look in during]))
    print(growth("generator", [look[3] for look in during]))


if __name__ == "__main__":
    main()
