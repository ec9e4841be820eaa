"""How long does it take to start: what the installed plugin costs a run without it, and the first measured request.

    python benchmarks/start.py plugin ALONE PACKAGES PLUGIN [--rounds 80]
    python benchmarks/start.py first [--rounds 15]

`plugin`: these are the Pythons of three environments: one with pytest alone, one with the packages that pytest-fileperf
needs, one with it too. In each round every way of starting `pytest --collect-only` on an empty test file runs once, in
random order. CPU is user and system time of the process. A difference is the median of those within rounds, with an
interval of 95 % by ranks.

`first`: the app is a FastAPI with one GET under uvicorn, the test one line, without a stored baseline. The app notes
when its first request comes; all times count from when the process was started.

- `the app alone`: uvicorn with that app, asked as soon as it answers. That is the app's own boot.
- `warmup=0`: `pytest --fileperf` with a load without warm-up, so that its first request is a measured one.
- `as it comes`: the same with the default warm-up. Its first request is the warm-up's first; the first measured one
  comes when the warm-up is over.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from bench import INI, parser, pytest, table, uvicorn

Found = TypeVar("Found")
Cost: TypeAlias = tuple[float, float]
"""CPU and wall time of one start, in milliseconds."""

START = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
NO_ANYIO = ("-p", "no:anyio")
"""httpx needs anyio, which is a plugin of pytest too."""
NOTHING_COLLECTED = 5
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With that variable pytest would compile every plugin anew at each start."""
DIFFERENCES = (
    ("packages that we need", "packages", "alone"),
    ("our plugin", "plugin", "packages"),
    ("the same, without anyio's plugin: packages", "packages, no anyio plugin", "alone"),
    ("the same, without anyio's plugin: our plugin", "plugin, no anyio plugin", "packages, no anyio plugin"),
)
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
TEST = 'def test_hello(fileperf):\n    fileperf.get("/", duration="0.5s", boots=1{more})\n'
WARM_UP_S = 0.3
"""The default one."""


def main() -> None:
    """Measures, and prints the table."""
    options = parser(__doc__)
    ways = options.add_subparsers(dest="what", required=True)
    plugin = ways.add_parser("plugin")
    for name in ("alone", "packages", "plugin"):
        plugin.add_argument(name, help="the Python of this environment")
    plugin.add_argument("--rounds", type=int, default=80)
    ways.add_parser("first").add_argument("--rounds", type=int, default=15)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="fileperf-start-") as directory:
        if asked.what == "first":
            print(first(Path(directory), asked.rounds))
        else:
            print(costs(asked.alone, asked.packages, asked.plugin, Path(directory), asked.rounds))


def in_rounds(ways: Mapping[str, Callable[[], Found]], rounds: int) -> dict[str, list[Found]]:
    """Returns what each way gave in each round, in which all run once in random order."""
    found: dict[str, list[Found]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # files are read and compiled once before they are timed
    for number in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            found[name].append(ways[name]())
        print(f"{number + 1}/{rounds}", file=sys.stderr)
    return found


# --- what the plugin costs


def costs(alone: str, packages: str, plugin: str, directory: Path, rounds: int) -> str:
    """Returns what each thing costs, in milliseconds."""
    (directory / "test_empty.py").touch()
    commands = {
        "alone": [alone, *START],
        "packages": [packages, *START],
        "plugin": [plugin, *START],
        "packages, no anyio plugin": [packages, *START, *NO_ANYIO],
        "plugin, no anyio plugin": [plugin, *START, *NO_ANYIO],
    }
    ways = {name: (lambda command=command: start(command, directory)) for name, command in commands.items()}
    found = in_rounds(ways, rounds)
    cpu, wall = ({name: [cost[kind] for cost in values] for name, values in found.items()} for kind in (0, 1))
    rows = [["pytest alone", *(f"{statistics.median(times['alone']):.1f}" for times in (cpu, wall))]]
    rows += [
        [label, *(difference(times[name], times[than]) for times in (cpu, wall))] for label, name, than in DIFFERENCES
    ]
    return table(("what", "CPU ms", "wall ms"), rows)


def start(command: Sequence[str], directory: Path) -> Cost:
    """Returns what one start cost."""
    null = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 1)]
    before_s = time.perf_counter()
    pid = os.posix_spawn(command[0], [*command, str(directory)], ENVIRONMENT, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - before_s
    os.close(null)
    if os.waitstatus_to_exitcode(status) != NOTHING_COLLECTED:
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, wall_s * 1e3


def difference(values: Sequence[float], others: Sequence[float]) -> str:
    """Returns the median of the differences, and between which of them it lies with 95 % confidence."""
    ordered = sorted(value - other for value, other in zip(values, others, strict=True))
    cut = max(0, math.floor(len(ordered) / 2 - 1.96 * math.sqrt(len(ordered)) / 2))
    return f"{statistics.median(ordered):+.1f} ({ordered[cut]:+.1f} to {ordered[-1 - cut]:+.1f})"


# --- the first request


def first(directory: Path, rounds: int) -> str:
    """Returns how long it takes until the first request."""
    (directory / "hello_app.py").write_text(APP, encoding="utf-8")
    (directory / "pytest.ini").write_text(INI.format(app="hello_app:app"), encoding="utf-8")
    tests = {
        "cold": TEST.format(more=", warmup=0"),
        "usual": TEST.format(more=""),
        "empty": "def test_nothing():\n    pass\n",
    }
    for test, text in tests.items():
        (directory / f"test_{test}.py").write_text(text, encoding="utf-8")
    ways: Mapping[str, Callable[[], float]] = {
        "empty": lambda: pytest_s(directory, "test_empty.py", "-p", "no:fileperf"),
        "alone": lambda: boot_s(directory),
        "cold": lambda: first_s(directory, "test_cold.py"),
        "usual": lambda: first_s(directory, "test_usual.py"),
    }
    found = in_rounds(ways, rounds)
    cold, usual = (
        [value - boot for value, boot in zip(found[name], found["alone"], strict=True)] for name in ("cold", "usual")
    )
    titled = {
        "pytest on an empty test, all of it": found["empty"],
        "the app alone, to its first request": found["alone"],
        "`warmup=0`: to the first request, which is measured": found["cold"],
        "beyond the app's own boot": cold,
        "as it comes: to the first request, of the warm-up": found["usual"],
        f"beyond the app's own boot, with {WARM_UP_S} s of warm-up": [value + WARM_UP_S for value in usual],
    }
    rows = (
        [title, *(f"{value:.2f}" for value in (statistics.median(seconds), min(seconds), max(seconds)))]
        for title, seconds in titled.items()
    )
    return table(("from the start of the process", "median s", "least", "most"), rows)


def boot_s(directory: Path) -> float:
    """Returns how long the app alone takes to its first request."""
    came = directory / "came"
    started_s = time.monotonic()
    with uvicorn("hello_app:app", directory=directory, path="/", FIRST_CAME=str(came)):
        return float(came.read_text(encoding="utf-8")) - started_s


def first_s(directory: Path, test: str) -> float:
    """Returns how long pytest takes to the first request of its load."""
    came = directory / "came"
    started_s = time.monotonic()
    pytest_s(directory, test, "--fileperf", FIRST_CAME=str(came))
    return float(came.read_text(encoding="utf-8")) - started_s


def pytest_s(directory: Path, *options: str, **environment: str) -> float:
    """Returns how long a run of pytest takes; raises if it fails."""
    started_s = time.monotonic()
    done = pytest(directory, *options, **environment)
    if done.returncode != 0:
        raise SystemExit(f"{options} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started_s


if __name__ == "__main__":
    main()
