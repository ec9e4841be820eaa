"""Searches for capacities that are known, again and again, and counts how near the searches come.

    python benchmarks/capacities.py --results FILE [--cases queue,threads] [--searches 10] [--minutes 60]
    python benchmarks/capacities.py --results FILE --table

Four servers take turns. `queue` answers one request after the other, 5 ms each: theory (M/D/1) says at which rate 1 %
of requests take longer than the limit. Of the other three, nothing says so but loads of their own, and those say it
only for their boot and their seconds: one server's pace changes by 10 % from one minute to the next. So each load of
a search is followed by two of a second search, on the same boot, which knows nothing of the first; its time does
not count. The first search is held against what the second one finds, which has twice as many loads, unless it is
sure sooner. What is found is added to FILE at once, so the script can be stopped at any time and goes on where it was.
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
from functools import partial
from pathlib import Path
from statistics import median

from gate import read

from pytest_fileperf.errors import LimitExceededError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.capacity import Capacity
from pytest_fileperf.measure.usage import Busy, busy_of
from pytest_fileperf.plan.load import CapacityPlan, LoadPlan
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.session.capacity import RateSearch
from pytest_fileperf.session.loads import Cores, Loader, Run, Tell, recording_of
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import DEFAULT_OPEN_CONNECTIONS, Options, Settings, for_capacity

HERE = Path(__file__).parent
LIMIT_S, SERVICE_S = 0.1, 0.005
LIMITS = {"max_p99": LIMIT_S, "max_error_rate": 0.001}
SEARCH_NS, CONNECTIONS, TIMEOUT_NS = 60_000_000_000, DEFAULT_OPEN_CONNECTIONS, 5_000_000_000
OTHER_LOADS = 2
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
        app="file_endpoints.app:app",
        operation=Operation(
            method="POST",
            url="/files/upload/stream/async_read_and_async_write",
            arguments={"content": payload("64KiB")},
        ),
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
        row = search(name)
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        found = f"{row['rate']:.0f} [{row['low']:.0f}, {row['high']:.0f}]"
        print(f"{name} {counts[name] + 1}/{arguments.searches}: {found} in {row['seconds']} s", flush=True)
    print(table(read(results)))


class Interleaved(Loader):
    """Makes the loads of a search, and after each one the next loads of another search on the same boot."""

    def __init__(self) -> None:
        super().__init__()
        plan = CapacityPlan(limits=LIMITS, total_ns=SEARCH_NS, connections=CONNECTIONS, timeout_ns=TIMEOUT_NS)
        self.other = RateSearch(plan, chance=random.Random())
        self.busy: tuple[list[Busy], list[Busy]] = ([], [])
        """How busy others kept the machine, in each load of the search and of the other one."""
        self._begun = False
        self._other_s = 0.0

    def clock(self) -> float:
        """Returns the time without that of the other search, in seconds."""
        return time.monotonic() - self._other_s

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        """Makes this load, and then those of the other search."""
        run = super().make(work, plan, index, server, cores, tell)
        begun_s = time.monotonic()
        if not self._begun:
            self._begun = True
            self.other.begin(run)
        else:
            if (plan.connections, plan.timeout_ns) != (CONNECTIONS, TIMEOUT_NS):
                raise ValueError("both searches must make loads of one kind")
            self.busy[0].append(_busy(run))
            load = partial(self._make_other, work, index=index, server=server, cores=cores)
            for _ in range(OTHER_LOADS):
                self.other.step(load, index, left_s=math.inf)
        self._other_s += time.monotonic() - begun_s
        return run

    def _make_other(self, work: Work, plan: LoadPlan, *, index: int, server: RunningServer, cores: Cores) -> Run:
        run = super().make(work, plan, index, server, cores, lambda _: None)
        self.busy[1].append(_busy(run))
        return run


def search(name: str) -> dict[str, object]:
    """Returns what one search found, and what the other one shows that took turns with it."""
    case, loads = CASES[name], Interleaved()
    settings = for_capacity(Settings(app=case.app, server=Uvicorn(), limits=LIMITS, gate=()))
    test = TestId(nodeid=f"benchmarks/capacities.py::{name}", module="benchmarks/capacities.py", name=name)
    rig = Rig(loads=loads, clock=loads.clock)
    with tempfile.TemporaryDirectory(prefix="fileperf-capacity-") as scratch:
        began_s = loads.clock()
        with Session(Options(baselines=Path(scratch)), rig) as session:
            with suppress(LimitExceededError):  # at no rate a limit held: that is a result, too
                session.capacity(case.operation, settings, test)
            found = session.results[0].capacity
        seconds = loads.clock() - began_s
    assert found is not None
    other, known = loads.other.capacity(), loads.other.estimate()
    return {
        "case": name,
        "at": round(time.time()),
        "seconds": round(seconds, 1),
        "rate": found.rate,
        "low": found.low,
        "high": found.high,
        "closed": found.closed_rps,
        "ended": found.ended.name,
        "loads": _loads(found, loads.busy[0]),
        "other": {"rate": other.rate, "sd": None if known is None else known.sd, "ended": other.ended.name}
        | {"loads": _loads(other, loads.busy[1])},
    }


def _loads(found: Capacity, busy: Sequence[Busy]) -> list[dict[str, object]]:
    return [
        {
            "boot": load.boot,
            "rate": round(load.rate, 1),
            "seconds": round(load.seconds, 3),
            "made": load.made,
            "beyond": dict(load.beyond),
            "holds": load.holds,
            "by_generator": load.by_generator,
            "p50": load.p50,
            "p99": load.p99,
            "busy": [round(share, 4) for share in (own.server, own.generator, own.host)],
        }
        for load, own in zip(found.tried, busy, strict=False)
    ]


def _busy(run: Run) -> Busy:
    return busy_of(recording_of([run]))


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


def _other(row: dict[str, object]) -> tuple[float, float]:
    """Returns the capacity that the other search shows, and its relative deviation."""
    other: dict[str, float] = row["other"]  # type: ignore[assignment]
    return other["rate"], other["sd"]


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
        known = [(in_theory(SERVICE_S, LIMIT_S), 0.0) if name == "queue" else _other(row) for row in own]
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
