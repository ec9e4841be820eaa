"""Lets whole runs of pytest store baselines in one directory at once, again and again, and counts what was lost.

    python benchmarks/storing.py [--runs 2,4] [--times 50]

Each run has tests of its own in a file that all of them share, and so stores into one file of baselines; each of its
tests is stored as it passes. All of them also write one JSON file. Every other time one entry of each run is there
before, to be replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLACES = ("first", "second", "third")
APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
TESTS = """
import pytest

@pytest.mark.parametrize("place", ["first", "second", "third"])
@pytest.mark.parametrize("run", RUNS)
def test_it(fileperf, run, place):
    fileperf.get("/", requests=4, connections=2, boots=1, warmup=0, rounds=1)
"""


def stored_at_once(runs: int, *, some_before: bool) -> tuple[int, int, list[str]]:
    """Makes so many runs at once; returns how many entries there should be, how many are missing, and what failed."""
    with tempfile.TemporaryDirectory(prefix="storing-") as directory:
        project = Path(directory)
        (project / "app.py").write_text(APP)
        (project / "pytest.ini").write_text("[pytest]\nfileperf_app = app:app\npythonpath = .\n")
        (project / "test_it.py").write_text(TESTS.replace("RUNS", str([f"run{run}" for run in range(runs)])))
        options = ("--fileperf", "--fileperf-server=inprocess", "--fileperf-update=all", "--fileperf-json=run.json")
        if some_before:
            _wait([_started(project, *options, "-k", "first")])
        said = _wait([_started(project, *options, "-k", f"run{run}") for run in range(runs)])
        wanted = {f"test_it.py::test_it[run{run}-{place}]" for run in range(runs) for place in PLACES}
        (file,) = (project / ".fileperf").glob("*-*/*.json")
        found = set(json.loads(file.read_text())["tests"])
        if len(json.loads((project / "run.json").read_text())["results"]) != len(PLACES):
            said.append("the JSON file is that of no single run")
        said += [f"{path.name} was left" for path in project.rglob(".fileperf-*")]
    return len(wanted), len(wanted - found), said


def _started(project: Path, *options: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-pno:randomly", *options)
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Returns what the runs that failed have printed."""
    texts = [process.communicate(timeout=120)[0] for process in processes]
    return [text[-2000:] for process, text in zip(processes, texts, strict=True) if process.returncode]


def main() -> None:
    """Prints a line for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="2,4", help="how many at once, with commas")
    parser.add_argument("--times", type=int, default=50)
    asked = parser.parse_args()
    for runs in map(int, asked.runs.split(",")):
        begun_s, wanted, lost, failed = time.monotonic(), 0, 0, 0
        for number in range(asked.times):
            entries, missing, said = stored_at_once(runs, some_before=bool(number % 2))
            wanted, lost, failed = wanted + entries, lost + missing, failed + len(said)
            for text in said:
                print(text, file=sys.stderr)
        taken_s = time.monotonic() - begun_s
        told = f"{lost} of {wanted} entries lost, {failed} failures, {taken_s:.0f} s"
        print(f"{runs} runs at once, {asked.times} times: {told}", flush=True)


if __name__ == "__main__":
    main()
