"""How long does it take to start: what the plugin costs a run without load tests, and the first measured request.

    python benchmarks/start.py [--rounds 15]

In each round every way runs once, in random order; all times count from when the process was started. A difference is
taken within a round.

The app is a FastAPI with one GET under uvicorn, which notes when its first request comes. The test is one line, without
a stored baseline. As it comes, its first request is the warm-up's, and the first measured one comes after the warm-up.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import sub
from pathlib import Path

from bench import INI, parser, pytest, table, uvicorn

APP = """
import os, time
from pathlib import Path
from fastapi import FastAPI

app, came = FastAPI(), Path(os.environ["FIRST_CAME"])

@app.get("/")
async def hello():
    if not came.exists():
        came.write_text(str(time.monotonic()))
    return "hello"
"""
TEST = 'def test_hello(fileperf):\n    fileperf.get("/", duration="0.5s", boots=1{more})\n'
WARM_UP_S = 0.3


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="fileperf-start-") as scratch:
        directory = Path(scratch)
        (directory / "hello_app.py").write_text(APP, encoding="utf-8")
        (directory / "pytest.ini").write_text(INI.format(app="hello_app:app"), encoding="utf-8")
        (directory / "test_cold.py").write_text(TEST.format(more=", warmup=0"), encoding="utf-8")
        (directory / "test_usual.py").write_text(TEST.format(more=""), encoding="utf-8")
        (directory / "test_empty.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
        ways = {
            "without": partial(pytest_s, directory, "test_empty.py", "-p", "no:fileperf"),
            "with": partial(pytest_s, directory, "test_empty.py"),
            "alone": partial(boot_s, directory),
            "cold": partial(first_s, directory, "test_cold.py"),
            "usual": partial(first_s, directory, "test_usual.py"),
        }
        without, with_it, alone, cold, usual = in_rounds(ways, rounds).values()
    titled: Mapping[str, Iterable[float]] = {
        "pytest on an empty test without our plugin, all of it": without,
        "what our plugin adds": map(sub, with_it, without),
        "the app alone, to its first request": alone,
        "`warmup=0`: to the first request, which is measured": cold,
        "beyond the app's own boot": map(sub, cold, alone),
        "as it comes: to the first request, of the warm-up": usual,
        "beyond the app's own boot, and the default warm-up": (WARM_UP_S + own for own in map(sub, usual, alone)),
    }
    rows = []
    for title, seconds in ((title, sorted(values)) for title, values in titled.items()):
        rows.append([title, *(f"{value:.3f}" for value in (statistics.median(seconds), seconds[0], seconds[-1]))])
    print(table(("from the start of the process", "median s", "least", "most"), rows))


def in_rounds(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns what each way gave in each round, in which all run once in random order."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # files are read and compiled once before they are timed
    for number in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            found[name].append(ways[name]())
        print(f"{number + 1}/{rounds}", file=sys.stderr)
    return found


def boot_s(directory: Path) -> float:
    """Returns how long the app alone takes to its first request."""
    came, started_s = directory / "came", time.monotonic()
    came.unlink(missing_ok=True)
    with uvicorn("hello_app:app", directory=directory, path="/", FIRST_CAME=str(came)):
        return float(came.read_text(encoding="utf-8")) - started_s


def first_s(directory: Path, test: str) -> float:
    came, started_s = directory / "came", time.monotonic()
    came.unlink(missing_ok=True)
    pytest_s(directory, test, "--fileperf", FIRST_CAME=str(came))
    return float(came.read_text(encoding="utf-8")) - started_s


def pytest_s(directory: Path, *options: str, **environment: str) -> float:
    started_s = time.monotonic()
    done = pytest(directory, *options, **environment)
    if done.returncode != 0:
        raise SystemExit(f"{options} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started_s


if __name__ == "__main__":
    main()
