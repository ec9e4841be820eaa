"""Runs the gate on real servers whose difference is known, and counts what it says.

    python benchmarks/gate.py [--results FILE] [--cases aa-tiny,slower5-upload] [--runs 30] [--minutes 60] [--keep DIR]
    python benchmarks/gate.py --table [--results FILE]
    python benchmarks/gate.py --projects DIR [--store] [--cases same,slower10] [--runs 20] [--minutes 60] [--table]

Without `--projects` each run is `pytest --fileperf --fileperf-against=DIRECTORY` with default settings on one test, in
a process of its own. The cases `item-mix`, `file-mix` and `upload-mix` make one part of a mix 15 % slower. `--keep`
keeps what was measured, for simulate.py to draw from that of the same code.

With `--projects` the gate is against stored baselines. A project is a Git repository with one app and its load tests:
`gate` has a tiny GET and a 256 KiB upload, `quickstart` is the example of that name. Its baselines are stored once and
committed; with `--store` nothing else is done. A run changes the app's code, by a comment at least, so that the
baseline's code is measured again.

The outcome of a run is added to the results at once, so the script can be stopped at any time and goes on where it was.
Needs Linux and two cores.
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

from bench import HERE, INI, Row, campaign, parser, pytest, read, reported, spread, table

TINY = 'def test_tiny(fileperf):\n    fileperf.get("/tiny")\n'
UPLOAD = (
    "from pytest_fileperf import payload\n\n\n"
    'def test_upload(fileperf):\n    fileperf.post("/upload", content=payload("256KiB"))\n'
)
MIX = """
from pytest_fileperf import part, payload

NUMBERS = [f"{number:05}" for number in range(10_000)]
ITEM = part.get("/mixed/item?number={id}", feed=NUMBERS, name="item", gate="p50")
FILE = part.get("/mixed/file?number={id}", feed=NUMBERS, name="file", gate="p50")
UPLOAD = part.post("/mixed/upload", content=payload("64KiB", unique=True), name="upload", gate="p50")

def test_mix(fileperf):
    fileperf.mix({ITEM: 2, FILE: 1, UPLOAD: 1}, connections=1, gate="none")
"""
"""On one connection no request waits for another, so that a slower part makes no other part slower."""
TESTS = {"tiny": TINY, "upload": UPLOAD, "mix": MIX}
USUAL_S = {"tiny": 0.0024, "upload": 0.006, "mix": 0.0}
"""What a request usually takes here, so that one of 100 can be made to take ten times as long."""
OUTCOMES = ("REGRESSED", "PASS", "IMPROVED", "INCONCLUSIVE", "NEW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A known difference."""

    slower: float = 0.0
    """CPU that a request costs more, as a share."""
    slower_part: str = ""
    """The part of a mix whose own work is so much more; empty for all that requests cost."""
    delayed: int = 0
    """One request of so many takes ten times as long, and nothing else changes."""
    stall_every_s: float = 0.0
    """All requests wait for 30 ms, once in about so many seconds."""
    busy: bool = False
    """Another process burns one core half of the time."""
    project: str = "gate"
    """Where the stored baselines are."""
    changed: bool = True
    """Whether the code differs from the stored baseline's at all."""
    options: tuple[str, ...] = ()

    def app(self, usual_s: float = 0.0, *, run: float = 0.0) -> str:
        """Returns the module of the app."""
        known = f"slower={self.slower}, delayed={self.delayed}, delay_s={9 * usual_s}"
        known += f", stall_every_s={self.stall_every_s}, slower_part={self.slower_part!r}"
        return f"import bench_apps\n\napp = bench_apps.gate({known})\n# run {run}\n"


AGAINST = {
    "aa": Case(),
    "slower5": Case(slower=0.05),
    "slower3": Case(slower=0.03),
    "slower20": Case(slower=0.20),
    "faster5": Case(slower=-0.05),
    "tail": Case(delayed=100),
    "busy": Case(busy=True),
}
MIXED = {
    # So much more work makes the median of a part's latency 15 % longer: the rest of it is the framework's.
    "item": Case(slower=0.19, slower_part="item"),
    "file": Case(slower=0.16, slower_part="file"),
    "upload": Case(slower=0.17, slower_part="upload"),
}
STORED = {
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
    """Runs what is missing, or prints the table."""
    options = parser(__doc__)
    options.add_argument("--results", type=Path, default=HERE / "gate.jsonl")
    options.add_argument("--cases", default="", help="which of them (default: all but those of a mix)")
    options.add_argument("--keep", type=Path, help="where to keep what each run measured, for simulate.py")
    options.add_argument(
        "--projects", type=Path, help="the directory of projects with stored baselines, and of results"
    )
    options.add_argument(
        "--store", action="store_true", help="make the projects and store their baselines, and no more"
    )
    options.add_argument("--runs", type=int, help="runs of each case (default: 30, of stored ones 20)")
    options.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    options.add_argument("--table", action="store_true", help="print what is in the results file, and run nothing")
    asked = options.parse_args()
    cases = asked.cases.split(",") if asked.cases else []
    if asked.projects is None:
        results, runs = asked.results, asked.runs or 30
        cases = cases or [f"{case}-{test}" for case in AGAINST for test in ("tiny", "upload")]
        run = partial(run_against, asked.keep)
    else:
        directory: Path = asked.projects.absolute()
        results, runs = directory / "results.jsonl", asked.runs or 20
        cases = cases or list(STORED)
        run = partial(run_stored, directory)
        if not asked.table:
            for project in {STORED[case].project for case in cases}:
                make_project(directory / project)
    if not asked.table and not asked.store:
        campaign(results, cases, run, runs=runs, minutes=asked.minutes)
    print(outcomes_table(read(results)))


# --- against another directory


def run_against(keep: Path | None, name: str) -> tuple[Row, str]:
    """Returns what one run said; keeps what it measured."""
    case_name, _, test = name.partition("-")
    case = (MIXED if test == "mix" else AGAINST)[case_name]
    with tempfile.TemporaryDirectory(prefix="fileperf-gate-") as directory:
        base, now = Path(directory) / "base", Path(directory) / "work"
        sides = {base: Case(slower=max(0.0, -case.slower)), now: case if case.slower >= 0 else Case()}
        for path, side in sides.items():
            write_app(path, side.app(USUAL_S[test]))
        (now / "test_gate.py").write_text(TESTS[test], encoding="utf-8")
        kept = keep / f"{name}-{time.time():.0f}.json.gz" if keep is not None else None
        with burning(case.busy):
            status, results = reported(now, f"--fileperf-against={base}", keep=kept)
    if test == "mix":
        tests = {result["test"]["part"]: seen(result) for result in results if result["test"]["part"]}
        return {"status": status, "tests": tests}, str({part: found["outcomes"] for part, found in tests.items()})
    found = seen(results[0])
    return {"status": status, **found}, str(found["outcomes"])


def write_app(path: Path, app: str) -> None:
    """Makes a directory with an app and what it needs."""
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
    unfinished = path.with_name(f"{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    if path.name == "quickstart":
        shutil.copytree(HERE.parent / "examples" / "quickstart", unfinished, ignore=shutil.ignore_patterns(".*", "__*"))
    else:
        write_app(unfinished, Case().app())
        (unfinished / "test_gate.py").write_text(f"{UPLOAD}\n\n{TINY}", encoding="utf-8")
    (unfinished / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    unfinished.rename(path)
    git(path, "init", "-q")
    commit(path, "The app")
    done = pytest(path, "--fileperf", "--fileperf-update=new")
    if not (path / ".fileperf").exists():
        shutil.rmtree(path)
        raise SystemExit(f"{path}: no baselines\n{done.stdout}\n{done.stderr}")
    commit(path, "Its baselines")


def git(path: Path, *words: str) -> None:
    """Runs Git in a project."""
    who = ("-c", "user.name=fileperf", "-c", "user.email=fileperf@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(("git", *who, *words), cwd=path, check=True)


def commit(path: Path, message: str) -> None:
    """Commits everything."""
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", message)


def run_stored(directory: Path, name: str) -> tuple[Row, str]:
    """Returns what one run said."""
    case = STORED[name]
    path = directory / case.project
    if case.changed:
        (path / "gate_app.py").write_text(case.app(run=time.time()), encoding="utf-8")
    with burning(case.busy):
        status, results = reported(path, *case.options)
    git(path, "checkout", "-q", "--", ".")
    tests = {result["test"]["name"]: seen(result) for result in results}
    return {"status": status, "tests": tests}, str({test: found["outcomes"] for test, found in tests.items()})


# --- what was seen


def seen(result: Row) -> Row:
    """Returns what one test said."""
    verdict, profile, base = result["verdict"], result["profile"] or {}, result["base"] or {}
    comparisons = verdict["comparisons"]
    return {
        "outcomes": {item["metric"]: item["outcome"] for item in comparisons},
        "changes": {item["metric"]: item["change"] for item in comparisons},
        "world": {item["metric"]: [item["outcome"], item["change"]] for item in verdict["world"]},
        "code": verdict["code"],
        "pairs": comparisons[0]["pairs"] if comparisons else None,
        "compared": base.get("seconds"),
        "named": [function["function"] for function in profile.get("functions", [])],
    }


def outcomes_table(rows: Sequence[Row]) -> str:
    """Returns for each case and test how often each outcome came, what it saw, and how long it took."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for test, one in row.get("tests", {"": row}).items():
            found[row["case"], test].append(one)
    named = ", ".join(outcome.lower() for outcome in OUTCOMES)
    heading = ("case", "runs", named, "first changed by (median, range)", "world", "median s", "longest s")
    return table(heading, (_cells(f"{case} {test}".strip(), own) for (case, test), own in sorted(found.items())))


def _cells(title: str, own: Sequence[Row]) -> list[str]:
    metrics = dict.fromkeys(metric for one in own for metric in one["outcomes"])
    counts = {metric: Counter(one["outcomes"].get(metric) for one in own) for metric in metrics}
    first = next(iter(metrics), "")
    world: list[Mapping[str, Sequence[float]]] = [one.get("world", {}) for one in own]
    seconds = [one["compared"] for one in own if one["compared"] is not None]
    return [
        title,
        str(len(own)),
        "; ".join(f"{metric} {' / '.join(str(count[name]) for name in OUTCOMES)}" for metric, count in counts.items()),
        spread((one["changes"].get(first) for one in own), "+.1%"),
        spread((one[first][1] for one in world if first in one), "+.1%"),
        f"{median(seconds):.0f}" if seconds else "–",
        f"{max(seconds):.0f}" if seconds else "–",
    ]


if __name__ == "__main__":
    main()
