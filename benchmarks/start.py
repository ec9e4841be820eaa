"""Measures what the installed plugin costs a run of pytest that does not use it.

    python benchmarks/start.py ALONE PACKAGES PLUGIN [--rounds 80]

These are the Pythons of three environments: one with pytest alone, one with the packages that pytest-fileperf needs,
one with it too. In each round every way of starting `pytest --collect-only` on an empty test file runs once, in random
order. CPU is user and system time of the process. A difference is the median of those within rounds, with an interval
of 95 % by ranks.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
NO_ANYIO = ("-p", "no:anyio")
NOTHING_COLLECTED = 5
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With that variable pytest would compile every plugin anew at each start."""
DIFFERENCES = (
    ("packages that we need", "packages", "alone"),
    ("our plugin", "plugin", "packages"),
    ("the same, without anyio's plugin: packages", "packages, no anyio plugin", "alone"),
    ("the same, without anyio's plugin: our plugin", "plugin, no anyio plugin", "packages, no anyio plugin"),
)

Cost = tuple[float, float]
"""CPU and wall time of one start, in milliseconds."""


def ways(alone: str, packages: str, plugin: str) -> dict[str, list[str]]:
    """Returns the command of each way to start pytest. httpx needs anyio, which is a plugin of pytest too."""
    return {
        "alone": [alone, *START],
        "packages": [packages, *START],
        "plugin": [plugin, *START],
        "packages, no anyio plugin": [packages, *START, *NO_ANYIO],
        "plugin, no anyio plugin": [plugin, *START, *NO_ANYIO],
    }


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


def table(costs: Mapping[str, Sequence[Cost]]) -> str:
    """Returns what each thing costs, in milliseconds, as a Markdown table."""
    cpu, wall = ({name: [cost[kind] for cost in values] for name, values in costs.items()} for kind in (0, 1))
    medians = (f"{statistics.median(times['alone']):.1f}" for times in (cpu, wall))
    lines = ["| what | CPU ms | wall ms |", "|---|--:|--:|", f"| pytest alone | {' | '.join(medians)} |"]
    for label, name, than in DIFFERENCES:
        cells = (difference(times[name], times[than]) for times in (cpu, wall))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("alone", "packages", "plugin"):
        parser.add_argument(name, help="the Python of this environment")
    parser.add_argument("--rounds", type=int, default=80)
    given = parser.parse_args()
    commands = ways(given.alone, given.packages, given.plugin)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "test_empty.py").touch()
        for command in commands.values():
            start(command, Path(directory))  # files are read once before they are timed
        for number in range(given.rounds):
            print(f"\r{number}/{given.rounds}", end="", file=sys.stderr)
            for name in random.sample(list(commands), len(commands)):
                costs[name].append(start(commands[name], Path(directory)))
    print(f"\r{table(costs)}")


if __name__ == "__main__":
    main()
