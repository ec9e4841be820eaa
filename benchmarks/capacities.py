"""Searches for capacities that are known, again and again, and counts how near the searches come.

    python benchmarks/capacities.py --results FILE [--cases queue,threads] [--searches 10] [--minutes 60]
    python benchmarks/capacities.py --results FILE --table

Four servers take turns. `queue` answers one request after the other, 5 ms each: theory (M/D/1) says at which rate 1 %
of requests take longer than the limit. Of the other three, nothing says so but loads of their own, and those say it
only for their minute, as the machine's pace changes. So right before and right after each search, on boots of their
own, loads are made from the middle of the capacity that is known by then, and the search is held against those. What
is found is added to FILE at once, so the script can be stopped at any time and goes on where it was.
Needs an idle machine with two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gate import read

from pytest_fileperf.errors import LimitExceededError
from pytest_fileperf.judge.capacity import NextLoad, Search, estimate, next_load
from pytest_fileperf.judge.result import TestId
from pytest_fileperf.measure.capacity import RateTried, tried_of
from pytest_fileperf.plan.arrivals import place_of
from pytest_fileperf.plan.capacity import CapacityPlan
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.session.loading import recording_of
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session, SessionOptions
from pytest_fileperf.settings.capacity import for_capacity
from pytest_fileperf.settings.resolve import Settings

HERE = Path(__file__).parent
LIMIT_S, SERVICE_S = 0.1, 0.005
LIMITS = {"max_p99": LIMIT_S, "max_error_rate": 0.001}
CONNECTIONS, TIMEOUT_NS = 256, 5_000_000_000
LOADS, LOAD_S = 8, 4.0
"""Of the loads before a search, and of those after it."""
WITHIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A server and what it is asked for."""

    app: str
    operation: Operation


CASES = {
    "queue": Case(app="capacity.app:app", operation=Operation(method="GET", url="/queue")),
    "download": Case(
        app="file_endpoints.app:app", operation=Operation(method="GET", url="/files/download/stream/async_read")
    ),
    "threads": Case(app="capacity.app:app", operation=Operation(method="GET", url="/threads")),
    "upload": Case(
        app="app:app", operation=Operation(method="POST", url="/upload", arguments={"content": payload("256KiB")})
    ),
}


def main() -> None:
    """Makes the searches that are missing, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES), help="servers to search, of several: %(default)s")
    parser.add_argument("--searches", type=int, default=10, help="searches for each server")
    parser.add_argument("--minutes", type=float, default=120.0, help="stop after so long")
    parser.add_argument("--table", action="store_true", help="print what is in the results, and search for nothing")
    arguments = parser.parse_args()
    results: Path = arguments.results
    sys.path.append(str(HERE.parent / "examples"))  # three of the servers are an example's
    ends_s = time.monotonic() + 60 * arguments.minutes
    while not arguments.table and time.monotonic() < ends_s:
        rows = read(results)
        counts = {name: sum(row["case"] == name for row in rows) for name in arguments.cases.split(",")}
        name = min(counts, key=counts.__getitem__)
        if counts[name] >= arguments.searches:
            break
        row = search(name, rows)
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        found = f"{row['rate']:.0f} [{row['low']:.0f}, {row['high']:.0f}]"
        print(f"{name} {counts[name] + 1}/{arguments.searches}: {found} in {row['seconds']} s", flush=True)
    print(table(read(results)))


def search(name: str, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Returns what one search found, and what loads right before and after it show."""
    case, rig = CASES[name], Rig()
    settings = for_capacity(Settings(app=case.app, server=Uvicorn(), limits=LIMITS, gate=()))
    test = TestId(nodeid=f"benchmarks/capacities.py::{name}", module="benchmarks/capacities.py", name=name)
    own = [row for row in rows if row["case"] == name]
    before = beside(case, settings, test, centre=_median(own, "rate"), busy_rate=_median(own, "closed")) if own else []
    with tempfile.TemporaryDirectory(prefix="fileperf-capacity-") as scratch:
        began_s = time.monotonic()
        with Session(SessionOptions(baselines=Path(scratch)), rig) as session:
            with suppress(LimitExceededError):  # at no rate a limit held: that is a result, too
                session.capacity(case.operation, settings, test)
            found = session.results[0].capacity
        seconds = time.monotonic() - began_s
    assert found is not None
    after = beside(case, settings, test, centre=found.rate, busy_rate=found.closed_rps or found.rate)
    return {
        "case": name,
        "at": round(time.time()),
        "seconds": round(seconds, 1),
        "rate": found.rate,
        "low": found.low,
        "high": found.high,
        "closed": found.closed_rps,
        "loads": len(found.tried),
        "beside": [before, after],
    }


def beside(case: Case, settings: Settings, test: TestId, *, centre: float, busy_rate: float) -> list[dict[str, object]]:
    """Returns what loads show on a boot of their own: the first at this rate, each other where it tells most then."""
    rig, chance = Rig(), random.Random()
    plan = CapacityPlan(limits=LIMITS, total_ns=1, connections=CONNECTIONS, timeout_ns=TIMEOUT_NS)
    first, seen = chance.random(), list[RateTried]()
    with (
        tempfile.TemporaryDirectory(prefix="fileperf-capacity-") as scratch,
        Session(SessionOptions(baselines=Path(scratch)), rig) as session,
    ):
        server = session.server(settings, test.nodeid)
        while len(seen) < LOADS:
            following = next_load(Search(limits=LIMITS, start=busy_rate, total_s=60.0), seen, left_s=math.inf)
            rate = following.rate if seen and isinstance(following, NextLoad) else centre
            place = place_of(len(seen), first)
            busy = max(rate, busy_rate)
            load = plan.load(rate, warmup_s=0.8, seconds=LOAD_S, chance=chance, place=place, busy_rate=busy)
            run = rig.loads.make(case.operation, load, 0, server, None, lambda _: None)
            recording = recording_of([run], connections=CONNECTIONS, open_loop=True, pinned=False)
            seen.append(tried_of(rate, recording, LIMITS))
    return [
        {"rate": load.rate, "requests": load.requests, "failed": load.failed, "beyond": dict(load.beyond)}
        | {"holds": load.holds, "by_generator": load.by_generator}
        for load in seen
    ]


def _median(rows: Sequence[dict[str, object]], key: str) -> float:
    return median(float(str(row[key])) for row in rows)


def in_theory(service_s: float, limit_s: float) -> float:
    """Returns the rate of M/D/1 at which 1 % of requests take longer than the limit (Erlang's formula, 1909)."""
    low, high = 0.0, 1 / service_s
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if _beyond(rate, service_s, limit_s - service_s) < 0.01 else (low, rate)
    return low


def _beyond(rate: float, service_s: float, wait_s: float) -> float:
    steps = ((rate * (count * service_s - wait_s), count) for count in range(int(wait_s / service_s) + 1))
    within = math.fsum(math.exp(-step) * step**count / math.factorial(count) for step, count in steps)
    return 1 - (1 - rate * service_s) * within


def shown_beside(row: dict[str, object]) -> tuple[float, float]:
    """Returns the capacity that the loads beside a search show, and its relative deviation."""
    sides: list[list[dict[str, object]]] = row["beside"]  # type: ignore[assignment]
    seen = [
        RateTried(boot=boot, seconds=LOAD_S, **load)  # type: ignore[arg-type]
        for boot, loads in enumerate(sides)
        for load in loads
    ]
    found = estimate(Search(limits=LIMITS, start=float(str(row["closed"])), total_s=60.0), seen)
    assert found is not None
    return math.exp(found.mean), found.sd


def table(rows: Sequence[dict[str, object]]) -> str:
    """Returns a Markdown table: what searches found, against theory or loads of their own."""
    lines = [
        "| server | closed loop | searches (median, range) | held against | within 5 % | interval holds it | seconds |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in CASES:
        own = [row for row in rows if row["case"] == name]
        if not own:
            continue
        known = [(in_theory(SERVICE_S, LIMIT_S), 0.0) if name == "queue" else shown_beside(row) for row in own]
        rates, closed, seconds = (sorted(float(str(row[key])) for row in own) for key in ("rate", "closed", "seconds"))
        pairs = list(zip(own, known, strict=True))
        near = sum(abs(float(str(row["rate"])) / truth - 1) <= WITHIN for row, (truth, _) in pairs)
        held = sum(float(str(row["low"])) <= truth <= float(str(row["high"])) for row, (truth, _) in pairs)
        truths, error = sorted(truth for truth, _ in known), median(error for _, error in known)
        against = f"{truths[0]:,.0f} (theory)"
        if error:
            against = f"{median(truths):,.0f} ({truths[0]:,.0f} to {truths[-1]:,.0f}), each ± {error:.1%}"
        lines.append(
            f"| {name} | {median(closed):,.0f} | {median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) | {against}"
            f" | {near} of {len(own)} | {held} of {len(own)} | {median(seconds):.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
