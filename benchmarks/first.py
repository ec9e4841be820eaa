"""How long does it take until the first measured request? Prints a Markdown table.

    python benchmarks/first.py [--rounds 15]

The app is a FastAPI with one GET under uvicorn, the test one line, without a stored baseline. In each round every way
of starting runs once, in random order, and the app notes when its first request comes:

- `the app alone`: uvicorn with that app, asked as soon as it answers. That is the app's own boot.
- `warmup=0`: `pytest --fileperf` with a load without warm-up, so that its first request is a measured one.
- `as it comes`: the same with the default warm-up. Its first request is the warm-up's first; the first measured one
  comes when the warm-up is over.

All times count from when the process was started.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from peers import table
from servers import uvicorn

from pytest_fileperf.settings.settings import DEFAULT_WARMUP_NS

APP = """
import os, time
from fastapi import FastAPI

app = FastAPI()
came = []

@app.get("/")
async def hello():
    if not came:
        came.append(time.monotonic())
        with open(os.environ["FIRST_CAME"], "w") as file:
            file.write(repr(came[0]))
    return "hello"
"""
TEST = """
def test_hello(fileperf):
    fileperf.get("/", duration="0.5s", boots=1{more})
"""
EMPTY = """
def test_nothing():
    pass
"""
LIMIT_S = 60


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fileperf-first-") as name:
        directory = Path(name)
        (directory / "hello_app.py").write_text(APP, encoding="utf-8")
        (directory / "pytest.ini").write_text(
            "[pytest]\nfileperf_app = hello_app:app\npythonpath = .\n", encoding="utf-8"
        )
        for test, text in (
            ("cold", TEST.format(more=", warmup=0")),
            ("usual", TEST.format(more="")),
            ("empty", EMPTY),
        ):
            (directory / f"test_{test}.py").write_text(text, encoding="utf-8")
        print(measured(directory, asked.rounds))


def measured(directory: Path, rounds: int) -> str:
    """Returns the table."""
    ways: Mapping[str, Callable[[], float]] = {
        "pytest on an empty test": lambda: pytest_s(directory, "test_empty.py", "-p", "no:fileperf"),
        "the app alone": lambda: boot_s(directory),
        "warmup=0": lambda: first_s(directory, "test_cold.py"),
        "as it comes": lambda: first_s(directory, "test_usual.py"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # files are read and compiled once before they are timed
    for number in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            seconds[name].append(ways[name]())
        print(f"{number + 1}/{rounds}", file=sys.stderr)
    boots, warmup_s = seconds["the app alone"], DEFAULT_WARMUP_NS / 1e9
    beyond = {
        name: [value + later_s - boot for value, boot in zip(seconds[name], boots, strict=True)]
        for name, later_s in (("warmup=0", 0.0), ("as it comes", warmup_s))
    }
    rows = [
        row("pytest on an empty test, all of it", seconds["pytest on an empty test"]),
        row("the app alone, to its first request", boots),
        row("`warmup=0`: to the first request, which is measured", seconds["warmup=0"]),
        row("beyond the app's own boot", beyond["warmup=0"]),
        row("as it comes: to the first request, of the warm-up", seconds["as it comes"]),
        row(f"beyond the app's own boot, with {warmup_s:g} s of warm-up", beyond["as it comes"]),
    ]
    return table(("from the start of the process", "median s", "least", "most"), rows)


def row(name: str, seconds: Sequence[float]) -> list[str]:
    """Returns a line of the table."""
    return [name, *(f"{value:.2f}" for value in (median(seconds), min(seconds), max(seconds)))]


def boot_s(directory: Path) -> float:
    """Returns how long the app alone takes to its first request."""
    came = directory / "came"
    came.unlink(missing_ok=True)
    started_s = time.monotonic()
    with uvicorn("hello_app:app", directory=directory, path="/", FIRST_CAME=str(came)):
        return float(came.read_text(encoding="utf-8")) - started_s


def first_s(directory: Path, test: str) -> float:
    """Returns how long pytest takes to the first request of its load."""
    came = directory / "came"
    came.unlink(missing_ok=True)
    started_s = time.monotonic()
    pytest_s(directory, test, "--fileperf", FIRST_CAME=str(came))
    return float(came.read_text(encoding="utf-8")) - started_s


def pytest_s(directory: Path, test: str, *options: str, **environment: str) -> float:
    """Returns how long a run of pytest takes; raises where it fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, test]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    started_s = time.monotonic()
    run = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    if run.returncode != 0:
        raise SystemExit(f"{command} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return time.monotonic() - started_s


if __name__ == "__main__":
    main()
