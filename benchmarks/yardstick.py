"""Tries whether stored baselines are better as ratios to a fixed server that is measured in turn with the app.

    python benchmarks/yardstick.py [--results FILE] [--sessions 30] [--minutes 20] [--pause 0]
    python benchmarks/yardstick.py --table [--results FILE]

Each session boots the app and the yardstick (yardstick_server.py) three times, both stabilised and on the same core,
and loads the two in turns of 0.1 s, for 2.4 s a boot. In every other session another process burns a core half of the
time. A session is a line of JSON in the results file, so the script can be stopped at any time and goes on where it
was. The table compares the scatter of sessions by requests/s with that of requests/s over the yardstick's, and what
the gate says when it takes each session for the baseline of each other one: the code is always the same. Needs Linux
and two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from gate import burning, read

from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.judge.gate import compare
from pytest_fileperf.judge.level import level_of
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.steadiness import Steadiness
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.alternation import Alternation, Side
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.cores import split_cores
from pytest_fileperf.serve.pool import ServerPool
from pytest_fileperf.serve.spec import Command, Uvicorn
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.session.loading import Loader, Run

HERE = Path(__file__).parent
MS = 1_000_000
BOOTS = 3
CYCLES = 12
TOLERANCE = 0.05
WORK = {
    "tiny": Operation(method="GET", url="/tiny", arguments={}),
    "upload": Operation(method="POST", url="/upload", arguments={"content": payload("256KiB")}),
}
YARDSTICK = Command(["{python}", str(HERE / "yardstick_server.py"), "{port}"])
RPS = METRICS["rps"]
CONDITIONS = ("quiet", "busy")
SIDES = ("requests/s", "over the yardstick's")


def main() -> None:
    """Runs the sessions that are missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "yardstick.jsonl")
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between sessions, at most: drawn by chance")
    parser.add_argument("--table", action="store_true", help="print what is in the results file, and run nothing")
    arguments = parser.parse_args()
    ends_s = time.monotonic() + 60 * arguments.minutes
    done = len(read(arguments.results))
    while not arguments.table and done < arguments.sessions and time.monotonic() < ends_s:
        row = session(CONDITIONS[done % 2])
        with arguments.results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        done += 1
        print(f"{done} of {arguments.sessions}: {row['condition']}, {row['seconds']} s", flush=True)
        time.sleep(random.uniform(0, arguments.pause))
    print(table(read(arguments.results)))


def session(condition: str) -> dict[str, object]:
    """Returns the requests/s of both servers in each turn of each boot, for each work."""
    cores = split_cores(1)
    if cores is None:
        sys.exit("needs two cores")
    began_s = time.monotonic()
    loader = Loader()
    try:
        with burning(condition == "busy"), closing(ServerPool()) as pool:
            yardsticks = pool.boots(YARDSTICK, None, BOOTS, cores[0])
            apps = pool.boots(Uvicorn(), app_spec("app:app"), BOOTS, cores[0])
            boots: dict[str, list[list[list[float]]]] = {name: [] for name in WORK}
            for index, servers in enumerate(zip(yardsticks, apps, strict=True)):
                for name in random.sample(list(WORK), len(WORK)):
                    plan = Alternation(
                        connections=32,
                        warmup_ns=200 * MS,
                        turn_ns=100 * MS,
                        handover_ns=20 * MS,
                        firsts=tuple(random.choice(tuple(Side)) for _ in range(CYCLES)),
                        timeout_ns=30_000 * MS,
                    )
                    made = loader.alternate(WORK[name], plan, index, servers, cores[1], lambda _: None)
                    boots[name].append([rates(run) for run in made])
    finally:
        loader.close()
    return {"condition": condition, "at": round(time.time()), "seconds": round(time.monotonic() - began_s, 1), **boots}


def rates(run: Run) -> list[float]:
    """Returns requests/s of each turn."""
    turns = [round_ for round_ in run.result.rounds if round_.phase is Phase.ROUND]
    if any(round_.failed for round_ in turns):
        sys.exit(f"requests failed: {[round_.failures for round_ in turns if round_.failed][:1]}")
    return [round(round_.requests / round_.duration_ns * 1e9, 1) for round_ in turns]


def table(rows: Sequence[dict[str, object]]) -> str:
    """Returns Markdown: how sessions scatter, and what the gate says of the same code."""
    counts = Counter(str(row["condition"]) for row in rows)
    lines = [
        f"{counts['quiet']} quiet and {counts['busy']} busy sessions\n",
        "| load | by | quiet: sd of sessions | busy: sd of sessions | busy against quiet | between boots, sd "
        "| REGRESSED, quiet against quiet | REGRESSED, busy against quiet | INCONCLUSIVE, busy against quiet "
        "| more than 5 % worse, quiet against quiet | more than 5 % worse, busy against quiet |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for work in WORK:
        for side in SIDES:
            found = {
                condition: [evidence(row[work], side) for row in rows if row["condition"] == condition]
                for condition in CONDITIONS
            }
            if min(map(len, found.values())) < 2:
                continue
            quiet, busy = ([mean_level(one) for one in found[condition]] for condition in CONDITIONS)
            same, other = verdicts(found["quiet"], found["quiet"]), verdicts(found["quiet"], found["busy"])
            cells = [
                work,
                side,
                f"{statistics.stdev(quiet):.1%}",
                f"{statistics.stdev(busy):.1%}",
                f"{math.expm1(statistics.median(busy) - statistics.median(quiet)):+.1%}",
                f"{between_boots(found['quiet']):.1%}",
                share(same["REGRESSED"], same),
                share(other["REGRESSED"], other),
                share(other["INCONCLUSIVE"], other),
                worse(quiet, quiet),
                worse(quiet, busy),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def evidence(boots: object, side: str) -> Evidence:
    """Returns what the gate compares: requests/s of the turns, or their ratios to the yardstick's of the same cycle."""
    assert isinstance(boots, list)
    made = []
    for yardstick, app in boots:
        values = app if side == SIDES[0] else [now / by for by, now in zip(yardstick, app, strict=True)]
        made.append(
            BootEvidence(rounds=tuple({"rps": value} for value in values), latency=EMPTY, requests=round(sum(app)))
        )
    return Evidence(boots=tuple(made), stabilised=STABILISERS)


def mean_level(one: Evidence) -> float:
    """Returns the logarithm of a session's level."""
    level = level_of(RPS, one)
    assert level is not None
    return level.mean


def between_boots(sessions: Sequence[Evidence]) -> float:
    """Returns the deviation of the boots of a session, noise of their turns and all."""
    levels = [level_of(RPS, one) for one in sessions]
    return math.sqrt(statistics.fmean(statistics.variance(level.boots) for level in levels if level is not None))


def verdicts(bases: Sequence[Evidence], nows: Sequence[Evidence]) -> Counter[str]:
    """Returns how often the gate says what, each session being the baseline of each other one."""
    found: Counter[str] = Counter()
    for base, now in product(bases, nows):
        if base is not now:
            alpha, spread = RULES.session_alpha, Steadiness().spread(RPS)
            outcome = compare(RPS, base=base, now=now, tolerance=TOLERANCE, alpha=alpha, spread=spread).outcome
            found[Outcome(outcome).value] += 1
    return found


def share(count: int, of: Counter[str]) -> str:
    """Returns `12 %`."""
    return f"{count / max(1, of.total()):.0%}"


def worse(bases: Sequence[float], nows: Sequence[float]) -> str:
    """Returns how often a plain comparison would fail the same code."""
    pairs = [(base, now) for base, now in product(bases, nows) if base is not now]
    return f"{sum(base - now > math.log1p(TOLERANCE) for base, now in pairs) / len(pairs):.0%}"


if __name__ == "__main__":
    main()
