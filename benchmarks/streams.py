"""Compares the figures of streams with the server's own log: 100 clients, 20 events a second each.

    python benchmarks/streams.py [--clients 100] [--events 100]

One client after the other comes, 50 in a second: of requests that come all at once, some wait before the app, and its
log, know of them. Each listens once, to so many events. Takes ten seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Stream
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings

COMING_PER_S = 50


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--events", type=int, default=100)
    asked = parser.parse_args()
    stream = Stream(operation=Operation(method="GET", url="/events"), events=asked.events)
    settings = Settings(
        app="ticking:app",
        server=Uvicorn(),
        connections=asked.clients,
        rate=COMING_PER_S,
        duration_ns=round(asked.clients / COMING_PER_S * 1e9),
        rounds=1,
        warmup_ns=0,
        boots=1,
        gate=(),
    )
    test = TestId(nodeid="benchmarks/streams.py::events", module="benchmarks/streams.py", name="events")
    with (
        tempfile.TemporaryDirectory(prefix="fileperf-streams-") as scratch,
        Session(Options(baselines=Path(scratch)), Rig()) as session,
    ):
        found = session.measure(stream, settings, test).events
        with session.server(settings, test.nodeid).sync_client() as client:
            log = [times[: asked.events + 1] for times in client.get("/log").json()]
    sent = [at for times in log for at in times[1:]]
    seconds = max(sent) - min(times[0] for times in log)
    gaps = [later - earlier for times in log for earlier, later in pairwise(times[1:])]
    _show("events", found.count, len(sent))
    _show("events/s", found.rate, len(sent) / seconds)
    _show("first event p50, ms", 1e3 * found.first.p50, 1e3 * median(times[1] - times[0] for times in log))
    _show("gap p50, ms", 1e3 * found.gap.p50, 1e3 * median(gaps))
    _show("gap p99, ms", 1e3 * found.gap.p99, 1e3 * sorted(gaps)[int(0.99 * len(gaps))])


def _show(name: str, seen: float, logged: float) -> None:
    print(f"{name:22} seen {seen:10.2f}   log {logged:10.2f}   {100 * (seen / logged - 1):+6.2f} %")


if __name__ == "__main__":
    main()
