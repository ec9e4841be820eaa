"""Runs the gate on real servers whose difference is known, and counts what it says.

    python benchmarks/gate.py [--results FILE] [--cases aa-tiny,slower5-upload] [--runs 30] [--minutes 60] [--keep DIR]
    python benchmarks/gate.py --table [--results FILE]

Each run is `pytest --fileperf --fileperf-against=DIRECTORY` with default settings on one test, in a process of its own.
Its outcome is added to the results file as a line of JSON at once, so the script can be stopped at any time and goes on
where it was: cases take turns, so that all of them have seen the same machine. What was measured is kept in a
directory, for simulate.py to draw from that of the same code. Needs Linux and two cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
TESTS = {
    "tiny": 'def test_gate(fileperf):\n    fileperf.get("/tiny")\n',
    "upload": (
        "from pytest_fileperf import payload\n\n\n"
        'def test_gate(fileperf):\n    fileperf.post("/upload", content=payload("256KiB"))\n'
    ),
}
USUAL_S = {"tiny": 0.0024, "upload": 0.006}
"""What a request usually takes here, so that one of 100 can be made to take ten times as long."""
KEEPING = """
import gzip, pickle
from pytest_fileperf.plugin.active import ACTIVE

def pytest_terminal_summary(config):
    for result in config.stash[ACTIVE].results:
        with gzip.open({pairs!r}, "wb", compresslevel=4) as stream:
            pickle.dump((result.pairs, result.base_seconds), stream)
"""
"""A conftest.py that keeps what was compared, and what it took."""
OUTCOMES = ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE")
LONGEST_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A known difference."""

    slower: float = 0.0
    """CPU that a request costs more, as a share."""
    delayed: int = 0
    """One request of so many takes ten times as long, and nothing else changes."""
    busy: bool = False
    """Another process burns one core half of the time."""

    def changes(self, test: str) -> str:
        """Returns the module that the app reads."""
        return f"SLOWER = {self.slower}\nDELAYED = {self.delayed}\nDELAY_S = {9 * USUAL_S[test]}\nSTALL_S = 0.0\n"


CASES = {
    "aa": Case(),
    "slower5": Case(slower=0.05),
    "slower3": Case(slower=0.03),
    "slower20": Case(slower=0.20),
    "faster5": Case(slower=-0.05),
    "tail": Case(delayed=100),
    "busy": Case(busy=True),
}


def main() -> None:
    """Runs what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "gate.jsonl")
    parser.add_argument("--cases", default=",".join(f"{case}-{test}" for case in CASES for test in TESTS))
    parser.add_argument("--keep", type=Path, help="where to keep the pairs of each run, for simulate.py")
    parser.add_argument("--runs", type=int, default=30, help="runs of each case")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--table", action="store_true", help="print what is in the results file, and run nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        run_missing(
            arguments.results, arguments.cases.split(","), arguments.runs, 60 * arguments.minutes, arguments.keep
        )
    print(table(read(arguments.results)))


def run_missing(results: Path, cases: Sequence[str], runs: int, seconds: float, keep: Path | None) -> None:
    """Makes runs until each case has enough of them, or the time is over."""
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        counts = Counter(row["case"] for row in read(results))
        missing = [case for case in cases if counts[case] < runs]
        if not missing:
            return
        fewest = min(counts[case] for case in missing)
        case = random.choice([case for case in missing if counts[case] == fewest])
        row = run(case, keep)
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{case} {counts[case] + 1}/{runs}: {row['outcomes']} in {row['seconds']:.0f} s", flush=True)


def run(name: str, keep: Path | None) -> dict[str, object]:
    """Returns what one run said; keeps its pairs."""
    case_name, _, test = name.partition("-")
    case = CASES[case_name]
    with tempfile.TemporaryDirectory(prefix="fileperf-gate-") as directory:
        base, now = Path(directory) / "base", Path(directory) / "work"
        sides = {base: Case(slower=max(0.0, -case.slower)), now: case if case.slower >= 0 else Case()}
        for path, side in sides.items():
            path.mkdir()
            (path / "changes.py").write_text(side.changes(test), encoding="utf-8")
            shutil.copy(HERE / "gate_app.py", path)
        (now / "test_gate.py").write_text(TESTS[test], encoding="utf-8")
        (now / "pytest.ini").write_text("[pytest]\nfileperf_app = gate_app:app\npythonpath = .\n", encoding="utf-8")
        pairs = Path(directory) / "pairs"
        (now / "conftest.py").write_text(KEEPING.format(pairs=str(pairs)), encoding="utf-8")
        began_s = time.monotonic()
        with burning(case.busy):
            status, (result,) = reported(now, f"--fileperf-against={base}")
        seconds = time.monotonic() - began_s
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(pairs, keep / f"{name}-{time.time():.0f}.pickle.gz")
    comparisons = result["verdict"]["comparisons"]
    return {
        "case": name,
        "at": round(time.time()),
        "seconds": round(seconds, 1),
        "status": status,
        "outcomes": {item["metric"]: item["outcome"] for item in comparisons},
        "changes": {item["metric"]: item["change"] for item in comparisons},
        "pairs": comparisons[0]["pairs"],
        "named": [function["function"] for function in (result["profile"] or {}).get("functions", [])],
        "compared": round(result["base"]["seconds"], 1),
    }


def reported(directory: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Runs the load tests of a directory in a process of its own; returns its status and what JSON has."""
    report = directory / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fileperf", *options]
    command.append(f"--fileperf-json={report}")
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    results = json.loads(report.read_text(encoding="utf-8"))["results"] if report.exists() else []
    if not results:
        sys.exit(f"{directory}: nothing was compared\n{done.stdout}\n{done.stderr}")
    return done.returncode, results


@contextmanager
def burning(on: bool) -> Iterator[None]:
    """Burns one core half of the time, in stretches of chance, while the block runs."""
    if not on:
        yield
        return
    burner = multiprocessing.Process(target=burn, daemon=True)
    burner.start()
    try:
        yield
    finally:
        burner.kill()
        burner.join()


def burn() -> None:
    """Burns and rests by turns, up to a second each; ends with whoever started it, as a daemon."""
    while True:
        ends_s = time.monotonic() + random.uniform(0.05, 1.0)
        while time.monotonic() < ends_s:
            pass
        time.sleep(random.uniform(0.05, 1.0))


def read(results: Path) -> list[dict[str, object]]:
    """Returns all rows so far."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def table(rows: Sequence[dict[str, object]]) -> str:
    """Returns a Markdown table: for each case how often each outcome came, what it saw, and how long it took."""
    named = ", ".join(outcome.lower() for outcome in OUTCOMES)
    lines = [
        f"| case | runs | rps: {named} | p99: the same | rps changed by (median, range) | median s | longest s |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in (f"{case}-{test}" for case in CASES for test in TESTS):
        own = [row for row in rows if row["case"] == name]
        if not own:
            continue
        found = [Counter(dict(row["outcomes"])[metric] for row in own) for metric in ("rps", "p99")]  # type: ignore[call-overload]
        counts = [" / ".join(str(outcomes[outcome]) for outcome in OUTCOMES) for outcomes in found]
        changes = sorted(float(dict(row["changes"])["rps"]) for row in own)  # type: ignore[call-overload]
        seconds = sorted(float(str(row["compared"])) for row in own)
        changed = f"{median(changes):+.1%} ({changes[0]:+.1%} to {changes[-1]:+.1%})"
        cells = [name, len(own), *counts, changed, f"{median(seconds):.0f}", f"{seconds[-1]:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
