"""Runs the gate against stored baselines on real servers whose difference is known, and counts what it says.

    python benchmarks/stored.py --projects DIR --store      # makes the projects, and stores their baselines
    python benchmarks/stored.py --projects DIR [--cases same,slower10] [--runs 20] [--minutes 60]
    python benchmarks/stored.py --projects DIR --table

A project is a Git repository with one app and its load tests: `gate` has a tiny GET and a 256 KiB upload, `quickstart`
is the example of that name. Its baselines are stored once and committed. A run changes the app's code (by a comment
at least, so that the baseline's code is measured again) and is `pytest --fileperf` in a process of its own. What it
says is added to `DIR/results.jsonl` at once, so the script can be stopped at any time and goes on where it was. Cases
take turns, so that all of them have seen the same machine. Needs Linux, Git and two cores.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gate import burning, read

HERE = Path(__file__).parent
GATE_TESTS = """
import pytest
from pytest_fileperf import payload

def test_tiny(fileperf):
    fileperf.get("/tiny")

def test_upload(fileperf):
    fileperf.post("/upload", content=payload("256KiB"))
"""
INI = "[pytest]\nfileperf_app = gate_app:app\npythonpath = .\n"
OUTCOMES = ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE", "NEW")
LONGEST_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A known change of the code that a baseline is of, or none."""

    project: str = "gate"
    slower: float = 0.0
    """CPU that a request costs more, as a share."""
    stall_every_s: float = 0.0
    """All requests wait for 30 ms, once in about so many seconds."""
    busy: bool = False
    """Another process burns one core half of the time."""
    changed: bool = True
    """Whether the code differs from the baseline's at all."""
    options: tuple[str, ...] = ()

    def module(self, run: int) -> str:
        """Returns the module that the app reads."""
        values = f"SLOWER = {self.slower}\nDELAYED = 0\nDELAY_S = 0.0\nSTALL_S = {self.stall_every_s}\n"
        return f"{values}# run {run}\n" if self.changed else values


CASES = {
    "same": Case(),
    "busy": Case(busy=True),
    "slower10": Case(slower=0.10),
    "slower20": Case(slower=0.20),
    "slower5": Case(slower=0.05),
    "slower5-1%": Case(slower=0.05, options=("-o", "fileperf_tolerance=1%", "--fileperf-max-duration=60s")),
    "stalls": Case(stall_every_s=0.3),
    "unchanged": Case(changed=False),
    "quickstart": Case(project="quickstart", changed=False),
}


def main() -> None:
    """Stores baselines, runs what is missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True, help="the directory of the projects and results")
    parser.add_argument("--store", action="store_true", help="make the projects and store their baselines, and no more")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--runs", type=int, default=20, help="runs of each case")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--table", action="store_true", help="print what is in the results, and run nothing")
    arguments = parser.parse_args()
    directory: Path = arguments.projects.absolute()
    results = directory / "results.jsonl"
    if not arguments.table:
        cases = arguments.cases.split(",")
        for project in {CASES[case].project for case in cases}:
            make_project(directory / project)
        if not arguments.store:
            run_missing(directory, results, cases, arguments.runs, 60 * arguments.minutes)
    print(table(read(results)))


def make_project(path: Path) -> None:
    """Makes a repository with an app, its tests and their baselines, unless it is there."""
    if path.exists():
        return
    unfinished = path.with_name(f"{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if path.name == "quickstart":
        shutil.copytree(HERE.parent / "examples" / "quickstart", unfinished, ignore=shutil.ignore_patterns(".*", "__*"))
    else:
        unfinished.mkdir(parents=True)
        shutil.copy(HERE / "gate_app.py", unfinished)
        (unfinished / "test_gate.py").write_text(GATE_TESTS, encoding="utf-8")
        (unfinished / "pytest.ini").write_text(INI, encoding="utf-8")
        (unfinished / "changes.py").write_text(Case(changed=False).module(0), encoding="utf-8")
    (unfinished / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    unfinished.rename(path)
    git(path, "init", "-q")
    commit(path, "The app")
    pytest(path, "--fileperf-update=new")
    commit(path, "Its baselines")


def git(path: Path, *words: str) -> None:
    """Runs Git in a project."""
    who = ("-c", "user.name=fileperf", "-c", "user.email=fileperf@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(("git", *who, *words), cwd=path, check=True)


def commit(path: Path, message: str) -> None:
    """Commits everything."""
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", message)


def pytest(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the load tests of a project."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fileperf", *options)
    return subprocess.run(command, cwd=path, capture_output=True, text=True, timeout=LONGEST_S, check=False)


def run_missing(directory: Path, results: Path, cases: Sequence[str], runs: int, seconds: float) -> None:
    """Makes runs until each case has enough of them, or the time is over."""
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        counts = Counter(row["case"] for row in read(results))
        missing = [case for case in cases if counts[case] < runs]
        if not missing:
            return
        fewest = min(counts[case] for case in missing)
        case = random.choice([case for case in missing if counts[case] == fewest])
        row = run(directory, case, counts.total())
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{case} {counts[case] + 1}/{runs}: {row['tests']}", flush=True)


def run(directory: Path, name: str, number: int) -> dict[str, object]:
    """Returns what one run said."""
    case = CASES[name]
    path, report = directory / case.project, directory / "report.json"
    if case.project == "gate":
        (path / "changes.py").write_text(case.module(number), encoding="utf-8")
    report.unlink(missing_ok=True)
    began_s = time.monotonic()
    with burning(case.busy):
        done = pytest(path, f"--fileperf-json={report}", *case.options)
    seconds = time.monotonic() - began_s
    git(path, "checkout", "-q", "--", ".")
    if not report.exists():
        sys.exit(f"{name}: no report\n{done.stdout}\n{done.stderr}")
    document = json.loads(report.read_text(encoding="utf-8"))
    return {
        "case": name,
        "at": round(time.time()),
        "seconds": round(seconds, 1),
        "status": done.returncode,
        "last": done.stdout.strip().splitlines()[-1:],
        "tests": {result["test"]["name"]: seen(result) for result in document["results"]},
    }


def seen(result: dict[str, dict[str, object]]) -> dict[str, object]:
    """Returns what one test said."""
    verdict: dict[str, object] = result["verdict"]
    comparisons: list[dict[str, object]] = verdict["comparisons"]  # type: ignore[assignment]
    world: list[dict[str, object]] = verdict["world"]  # type: ignore[assignment]
    profile, base = result["profile"] or {}, result["base"] or {}
    return {
        "outcomes": {item["metric"]: item["outcome"] for item in comparisons},
        "changes": {item["metric"]: item["change"] for item in comparisons},
        "world": {item["metric"]: [item["outcome"], item["change"]] for item in world},
        "code": verdict["code"],
        "pairs": comparisons[0]["pairs"] if comparisons else None,
        "compared": base.get("seconds"),
        "named": [function["function"] for function in profile.get("functions", [])],  # type: ignore[attr-defined]
    }


def table(rows: Sequence[dict[str, object]]) -> str:
    """Returns a Markdown table: for each case and test how often each outcome came, and how long it took."""
    named = ", ".join(outcome.lower() for outcome in OUTCOMES)
    lines = [
        f"| case | test | runs | rps: {named} | p99: the same | rps changed by (median, range) | world (median, range)"
        " | median s | longest s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in CASES:
        own = [row["tests"] for row in rows if row["case"] == name]
        names = dict.fromkeys(test for tests in own for test in tests)  # type: ignore[attr-defined]
        for test in names:
            cells = _cells([tests[test] for tests in own if test in tests])  # type: ignore[index,operator]
            lines.append(f"| {' | '.join((name, test, *cells))} |")
    return "\n".join(lines)


def _cells(found: Sequence[dict[str, dict[str, object]]]) -> list[str]:
    counts = [Counter(one["outcomes"].get(metric) for one in found) for metric in ("rps", "p99")]
    seconds = [float(str(one["compared"])) for one in found if one["compared"]]
    return [
        str(len(found)),
        *(" / ".join(str(outcomes[outcome]) for outcome in OUTCOMES) for outcomes in counts),
        _range(one["changes"].get("rps") for one in found),
        _range(one["world"]["rps"][1] for one in found if "rps" in one["world"]),  # type: ignore[index]
        f"{median(seconds):.0f}" if seconds else "–",
        f"{max(seconds):.0f}" if seconds else "–",
    ]


def _range(changes: Iterable[object]) -> str:
    known = sorted(float(str(change)) for change in changes if change is not None)
    return f"{median(known):+.1%} ({known[0]:+.1%} to {known[-1]:+.1%})" if known else "–"


if __name__ == "__main__":
    main()
