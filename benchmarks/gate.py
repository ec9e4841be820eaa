"""Runs the gate on real servers whose difference is known, and counts what it says.

    python benchmarks/gate.py [--results FILE] [--cases aa-tiny,slower5-upload] [--runs 30] [--minutes 60] [--keep DIR]
    python benchmarks/gate.py --stored DIR [--cases same,slower10] [--runs 20] [--minutes 60]

Each run is `pytest --fileperf --fileperf-against=DIRECTORY` with default settings on one test. `--keep` keeps what was
measured, for simulate.py to draw from that of the same code.

With `--stored` the gate is against baselines, of a Git repository that is made in DIR once. A run changes the app's
code, by a comment at least, so that the baseline's code is measured again.

What a run said is added to the results at once, so the script can be stopped at any time and goes on where it was.
`--minutes 0` only prints the table. It needs Linux and two cores.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench import HERE, INI, Row, campaign, chosen, parser, pytest, read, reported, spread, table

TINY = 'def test_tiny(fileperf):\n    fileperf.get("/tiny")\n'
UPLOAD = (
    "from pytest_fileperf import payload\n\n\n"
    'def test_upload(fileperf):\n    fileperf.post("/upload", content=payload("256KiB"))\n'
)
TESTS = {"tiny": TINY, "upload": UPLOAD}
USUAL_S = {"tiny": 0.0024, "upload": 0.006}
"""What a request usually takes here, so that one of 100 can be made to take ten times as long."""
OUTCOMES = ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE", "NEW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A known difference."""

    slower: float = 0.0
    """CPU that a request costs more, as a share."""
    delayed: int = 0
    """One request of so many takes ten times as long, and nothing else changes."""
    stall_every_s: float = 0.0
    """All requests wait for 30 ms, once in about so many seconds."""
    busy: bool = False
    """Another process burns one core half of the time."""
    options: tuple[str, ...] = ()

    def app(self, usual_s: float = 0.0, *, run: float = 0.0) -> str:
        known = f"slower={self.slower}, delayed={self.delayed}, delay_s={9 * usual_s}"
        known += f", stall_every_s={self.stall_every_s}"
        return f"import bench_apps\n\napp = bench_apps.Gate({known})\n# run {run}\n"


AGAINST = {
    "aa": Case(),
    "slower5": Case(slower=0.05),
    "slower3": Case(slower=0.03),
    "slower20": Case(slower=0.20),
    "faster5": Case(slower=-0.05),
    "tail": Case(delayed=100),
    "busy": Case(busy=True),
}
STORED = {
    "same": Case(),
    "busy": Case(busy=True),
    "slower10": Case(slower=0.10),
    "slower20": Case(slower=0.20),
    "slower5": Case(slower=0.05),
    "slower5-1%": Case(slower=0.05, options=("-o", "fileperf_tolerance=1%", "--fileperf-max-duration=60s")),
    "stalls": Case(stall_every_s=0.3),
    "same-fresh": Case(options=("--fileperf-preload=never",)),
    "slower5-fresh": Case(slower=0.05, options=("--fileperf-preload=never",)),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--results", type=Path, default=HERE / "gate.jsonl")
    options.add_argument("--cases", default="", help="which of them (default: all)")
    options.add_argument("--keep", type=Path, help="where to keep what each run measured, for simulate.py")
    options.add_argument("--stored", type=Path, help="the directory of a project with baselines, and of results")
    options.add_argument("--runs", type=int, help="runs of each case (default: 30, of stored ones 20)")
    options.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    asked = options.parse_args()
    if asked.stored is None:
        all_cases = [f"{case}-{test}" for case in AGAINST for test in TESTS]
        results, runs, run = asked.results, asked.runs or 30, partial(run_against, asked.keep)
    else:
        directory: Path = asked.stored.absolute()
        project, all_cases = directory / "gate", list(STORED)
        make_project(project)
        results, runs, run = directory / "results.jsonl", asked.runs or 20, partial(run_stored, project)
    campaign(results, chosen(options, asked.cases, all_cases), run, runs=runs, minutes=asked.minutes)
    print(outcomes_table(read(results)))


# --- against another directory


def run_against(keep: Path | None, name: str) -> tuple[Row, str]:
    """Returns what one run said; keeps what it measured."""
    case_name, _, test = name.partition("-")
    case = AGAINST[case_name]
    with tempfile.TemporaryDirectory(prefix="fileperf-gate-") as directory:
        base, now = Path(directory) / "base", Path(directory) / "work"
        sides = {base: Case(slower=max(0.0, -case.slower)), now: case if case.slower >= 0 else Case()}
        for path, side in sides.items():
            write_app(path, side.app(USUAL_S[test]))
        (now / "test_gate.py").write_text(TESTS[test], encoding="utf-8")
        kept = keep / f"{name}-{time.time():.0f}.json.gz" if keep is not None else None
        with burning(case.busy):
            status, results = reported(now, f"--fileperf-against={base}", keep=kept)
    return row_of(status, {"": seen(results[0])})


def write_app(path: Path, app: str) -> None:
    path.mkdir(parents=True)
    (path / "gate_app.py").write_text(app, encoding="utf-8")
    (path / "pytest.ini").write_text(INI.format(app="gate_app:app"), encoding="utf-8")
    shutil.copy(HERE / "bench_apps.py", path)


@contextmanager
def burning(on: bool) -> Iterator[None]:
    """Burns one core half of the time, in stretches of chance, while the block runs."""
    burner = multiprocessing.Process(target=burn, daemon=True)
    if on:
        burner.start()
    try:
        yield
    finally:
        if on:
            burner.kill()
            burner.join()


def burn() -> None:
    """Burns and rests by turns, up to a second each; ends with whoever started it, as a daemon."""
    while True:
        ends_s = time.monotonic() + random.uniform(0.05, 1.0)
        while time.monotonic() < ends_s:
            pass
        time.sleep(random.uniform(0.05, 1.0))


# --- against stored baselines


def make_project(path: Path) -> None:
    """Makes a repository with an app, its tests and their baselines, unless it is there."""
    if path.exists():
        return
    write_app(path, Case().app())
    (path / "test_gate.py").write_text(f"{UPLOAD}\n\n{TINY}", encoding="utf-8")
    (path / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    git(path, "init", "-q")
    commit(path, "The app")
    done = pytest(path, "--fileperf", "--fileperf-update=new")
    if not (path / ".fileperf").exists():
        shutil.rmtree(path)
        raise SystemExit(f"{path}: no baselines\n{done.stdout}\n{done.stderr}")
    commit(path, "Its baselines")


def git(path: Path, *words: str) -> None:
    who = ("-c", "user.name=fileperf", "-c", "user.email=fileperf@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(("git", *who, *words), cwd=path, check=True)


def commit(path: Path, message: str) -> None:
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", message)


def run_stored(path: Path, name: str) -> tuple[Row, str]:
    case = STORED[name]
    (path / "gate_app.py").write_text(case.app(run=time.time()), encoding="utf-8")
    with burning(case.busy):
        status, results = reported(path, *case.options)
    git(path, "checkout", "-q", "--", ".")
    return row_of(status, {result["test"]["name"]: seen(result) for result in results})


# --- what was seen


def row_of(status: int, tests: Mapping[str, Row]) -> tuple[Row, str]:
    return {"status": status, "tests": tests}, ", ".join(str(found["outcomes"]) for found in tests.values())


def seen(result: Row) -> Row:
    verdict, profile, base = result["verdict"], result["profile"] or {}, result["base"] or {}
    comparisons = verdict["comparisons"]
    return {
        "outcomes": {item["metric"]: item["outcome"] for item in comparisons},
        "changes": {item["metric"]: item["change"] for item in comparisons},
        "world": {item["metric"]: item["change"] for item in verdict["world"]},
        "compared": base.get("seconds"),
        "named": [function["function"] for function in profile.get("functions", [])],
    }


def outcomes_table(rows: Sequence[Row]) -> str:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for test, one in row["tests"].items():
            found[f"{row['case']} {test}".strip()].append(one)
    named = ", ".join(outcome.lower() for outcome in OUTCOMES)
    heading = ("case", "runs", named, "first changed by (median, range)", "world", "median s", "longest s")
    return table(heading, (_cells(title, own) for title, own in sorted(found.items())))


def _cells(title: str, own: Sequence[Row]) -> list[str]:
    metrics = dict.fromkeys(metric for one in own for metric in one["outcomes"])
    counts = {metric: Counter(one["outcomes"].get(metric) for one in own) for metric in metrics}
    told = (f"{metric} {' / '.join(str(count[name]) for name in OUTCOMES)}" for metric, count in counts.items())
    first, seconds = next(iter(metrics), ""), [one["compared"] for one in own if one["compared"] is not None]
    changes, world = (spread((one[what].get(first) for one in own), "+.1%") for what in ("changes", "world"))
    times = [f"{median(seconds):.0f}", f"{max(seconds):.0f}"] if seconds else ["–", "–"]
    return [title, str(len(own)), "; ".join(told), changes, world, *times]


if __name__ == "__main__":
    main()
