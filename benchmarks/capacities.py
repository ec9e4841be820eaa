"""Searches for capacities that are known, again and again, and counts how near the searches come.

    python benchmarks/capacities.py --results FILE [--cases queue,threads] [--searches 10] [--minutes 60]

Four servers take turns. `queue` answers one request after the other, 5 ms each: theory (M/D/1) says at which rate 1 %
of requests take longer than the limit. For the other three, only loads of their own say so, and only for their boot and
their seconds: one server's pace changes by 10 % from one minute to the next. So each load of a search is followed by
two of a second search, on the same boot, which knows nothing of the first; its time does not count. The first search
is held against what the second one finds.

What is found is added to FILE at once, so the script can be stopped at any time and goes on where it was.
`--minutes 0` only prints the table. It needs an idle machine with two cores.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from bench import HERE, Row, campaign, chosen, parser, read, spread, table

from pytest_fileperf import LimitExceededError, Uvicorn, payload
from pytest_fileperf.drive.run import Run
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.capacity import RateSearch
from pytest_fileperf.session.loads import Cores, Loader, Tell
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import DEFAULT_OPEN_CONNECTIONS, Options, Settings, for_capacity

LIMIT_S, SERVICE_S = 0.1, 0.005
LIMITS = {"max_p99": LIMIT_S, "max_error_rate": 0.001}
CONNECTIONS, TIMEOUT_NS = DEFAULT_OPEN_CONNECTIONS, 5_000_000_000
OTHER_LOADS = 2
WITHIN = 0.05
UPLOAD = "/files/upload/stream/async_read_and_async_write"
CASES = {
    "queue": ("capacity.app:app", Operation(method="GET", url="/queue")),
    "download": ("file_endpoints.app:app", Operation(method="GET", url="/files/download/stream/async_read")),
    "threads": ("capacity.app:app", Operation(method="GET", url="/threads")),
    "upload": ("file_endpoints.app:app", Operation(method="POST", url=UPLOAD, arguments={"content": payload("64KiB")})),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--results", type=Path, required=True)
    options.add_argument("--cases", default="", help=f"servers to search, of several: {','.join(CASES)}")
    options.add_argument("--searches", type=int, default=10, help="searches for each server")
    options.add_argument("--minutes", type=float, default=120.0, help="stop after so long")
    asked = options.parse_args()
    sys.path.append(str(HERE.parent / "examples"))
    cases = chosen(options, asked.cases, CASES)
    campaign(asked.results, cases, search, runs=asked.searches, minutes=asked.minutes)
    print(found_table(read(asked.results)))


class Interleaved(Loader):
    """Makes the loads of a search, and after each one the next loads of another search on the same boot."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.other = RateSearch(plan, chance=random.Random())
        self._begun = False
        self._other_s = 0.0

    def clock(self) -> float:
        """Returns the time without that of the other search."""
        return time.monotonic() - self._other_s

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        run = super().make(work, plan, index, server, cores, tell)
        begun_s = time.monotonic()
        if not self._begun:
            self._begun = True
            self.other.begin(run)
        else:
            if (plan.connections, plan.timeout_ns) != (CONNECTIONS, TIMEOUT_NS):
                raise ValueError("both searches must make loads of one kind")
            load = partial(super().make, work, index=index, server=server, cores=cores, tell=lambda _: None)
            for _ in range(OTHER_LOADS):
                self.other.step(load, index, left_s=math.inf)
        self._other_s += time.monotonic() - begun_s
        return run


def search(name: str) -> tuple[Row, str]:
    app, operation = CASES[name]
    settings = for_capacity(Settings(app=app, server=Uvicorn(), limits=LIMITS, gate=()))
    test = TestId(nodeid=f"benchmarks/capacities.py::{name}", module="benchmarks/capacities.py", name=name)
    loads = Interleaved(Plan(test=test, work=operation, settings=settings, app=None))
    rig = Rig(loads=loads, clock=loads.clock)
    with tempfile.TemporaryDirectory(prefix="fileperf-capacity-") as scratch:
        began_s = loads.clock()
        with Session(Options(baselines=Path(scratch)), rig) as session:
            with suppress(LimitExceededError):  # at no rate a limit held: that is a result, too
                session.measure(operation, settings, test)
            found = session.results[0].capacity
        seconds = round(loads.clock() - began_s, 1)
    assert found is not None
    other, known = loads.other.capacity(), loads.other.estimate()
    row = {
        "seconds": seconds,
        **{name: getattr(found, name) for name in ("rate", "low", "high", "closed_rps")},
        "ended": found.ended.name,
        "other": {"rate": other.rate, "sd": None if known is None else known.sd, "ended": other.ended.name},
    }
    return row, f"{found.rate:.0f} [{found.low:.0f}, {found.high:.0f}] in {seconds} s"


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


def found_table(rows: Sequence[Row]) -> str:
    lines = []
    for name in CASES:
        own = [row for row in rows if row["case"] == name]
        if not own:
            continue
        truths = [in_theory(SERVICE_S, LIMIT_S) if name == "queue" else row["other"]["rate"] for row in own]
        against = f"{truths[0]:,.0f} (theory)"
        if name != "queue":
            against = f"{spread(truths, ',.0f')}, each ± {median(row['other']['sd'] for row in own):.1%}"
        pairs = list(zip(own, truths, strict=True))
        closed, seconds = (f"{median(row[fact] for row in own):,.0f}" for fact in ("closed_rps", "seconds"))
        near = f"{sum(abs(row['rate'] / truth - 1) <= WITHIN for row, truth in pairs)} of {len(own)}"
        held = f"{sum(row['low'] <= truth <= row['high'] for row, truth in pairs)} of {len(own)}"
        lines.append([name, closed, spread((row["rate"] for row in own), ",.0f"), against, near, held, seconds])
    heading = ("server", "closed loop", "searches", "held against", "within 5 %", "interval holds it", "seconds")
    return table(heading, lines)


if __name__ == "__main__":
    main()
