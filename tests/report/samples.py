"""Results made by hand, with known samples and verdicts as a judge would give them; and sessions that were stored."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from pytest_fileperf.host.sample import ProcessUse, Sample
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import (
    LimitCheck,
    MetricComparison,
    Outcome,
    Reason,
    ReasonKind,
    Verdict,
    as_the_run_shows,
)
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Boot, Failure, Phase, Recording, Round
from pytest_fileperf.report.record_file import read_record

GOLDEN = Path(__file__).parent / "golden"


def recording(
    *,
    requests: int = 1025,
    boots: int = 3,
    rounds: int = 4,
    slowest_ms: float = 31.0,
    failures: tuple[Failure, ...] = (),
    client_cpu_share: float = 0.61,
    engine: str = "replay",
    why_engine: str = "",
) -> Recording:
    """Returns rounds of half a second on each boot with `requests` requests each, evenly from 5 ms to the slowest."""
    made = []
    latency_ns = np.linspace(5e6, slowest_ms * 1e6, requests).astype(np.int64)
    latency, ttfb = Histogram.of(latency_ns), Histogram.of(latency_ns // 2)
    for boot in range(boots):
        for index in range(rounds):
            start_ns = (boot * rounds + index) * 500_000_000
            made.append(
                Round(
                    boot=boot,
                    index=index,
                    phase=Phase.ROUND,
                    started_ns=start_ns,
                    ended_ns=start_ns + 500_000_000,
                    requests=requests,
                    latency=latency,
                    ttfb=ttfb,
                    bytes_sent=requests * 256 * 1024,
                    bytes_received=requests * 190,
                    statuses=((200, requests),) if requests else (),
                    failures=failures if boot == index == 0 else (),
                    server_cpu_ns=requests * 450_000,
                    client_cpu_ns=round(client_cpu_share * 500_000_000),
                )
            )
    return Recording(
        rounds=tuple(made),
        boots=tuple(
            Boot(
                index=boot,
                pids=(1,),
                peak_rss_bytes=(68 << 20) + boot,
                stabilised=("hash seed", "addresses"),
            )
            for boot in range(boots)
        ),
        connections=32,
        engine=engine,
        why_engine=why_engine,
        wait_ns=15_200_000,
        pinned=True,
    )


@cache
def _usual() -> tuple[Recording, Measurement]:
    """Returns what a result has that is given none: the same for all of them, as it takes a while to make."""
    recorded = recording()
    return recorded, measurement_of(recorded)


def result(
    name: str = "test_upload",
    *,
    recorded: Recording | None = None,
    verdict: Verdict | None = None,
    label: str | None = None,
    group: str | None = None,
    nodeid: str | None = None,
    module: str = "tests/test_files.py",
    work: str = "POST /upload",
    server: str = "uvicorn ×1 (uvloop, httptools)",
    load: str = "32 connections, 6 s",
    params: dict[str, object] | None = None,
    smoke: bool = False,
    limit: Limit | None = None,
    saturated: bool = False,
) -> Result:
    """Returns a result with these parts; a quiet one without gates when none is given.

    Without `limit` it is what the recording tells, which has nothing that would show what limited it.
    """
    recorded, measurement = (recorded, measurement_of(recorded)) if recorded is not None else _usual()
    verdict = verdict or Verdict()
    agreed = as_the_run_shows(verdict.comparisons, recorded, None)
    return Result(
        test=TestId(
            nodeid=nodeid or f"{module}::{name}",
            module=module,
            name=name,
            params=params or {},
            group=group,
            label=label,
        ),
        work=work,
        server=server,
        load=load,
        identity={"work": {"method": "POST", "url": "/upload"}, "server": {"kind": "uvicorn", "workers": 1}},
        recording=recorded,
        measurement=replace(
            measurement, limit=limit or measurement.limit, saturated=measurement.saturated or saturated
        ),
        verdict=replace(verdict, comparisons=agreed),
        smoke=smoke,
    )


PASSED = MetricComparison(
    metric="rps", outcome=Outcome.PASS, tolerance=0.05, base=2040.0, now=2050.0, change=0.0049, low=-0.011, high=0.021,
    confidence=0.95, detectable=0.032,
)  # fmt: skip
REGRESSED = MetricComparison(
    metric="rps", outcome=Outcome.REGRESSED, tolerance=0.05, base=2190.0, now=2050.0, change=-0.064, low=-0.081,
    high=-0.047, confidence=0.95, detectable=0.035,
)  # fmt: skip
TAIL_IMPROVED = MetricComparison(
    metric="p99", outcome=Outcome.IMPROVED, tolerance=0.25, base=0.042162, now=0.030753, change=-0.2706, low=-0.33,
    high=-0.201, confidence=0.95, detectable=0.18,
)  # fmt: skip
TAIL_INCONCLUSIVE = MetricComparison(
    metric="p99", outcome=Outcome.INCONCLUSIVE, tolerance=0.25, base=0.027876, now=0.030753, change=0.1032, low=-0.102,
    high=0.381, confidence=0.95, detectable=0.412,
    reason=Reason(kind=ReasonKind.NOISE, share=0.25),
)  # fmt: skip
NO_BASELINE = Reason(kind=ReasonKind.NO_BASELINE)
NEW = tuple(
    MetricComparison(metric=metric, outcome=Outcome.NEW, tolerance=tolerance, now=now, reason=NO_BASELINE)
    for metric, tolerance, now in (("rps", 0.05, 2050.0), ("p99", 0.25, 0.031))
)
CPU_REGRESSED = MetricComparison(
    metric="cpu_per_request", outcome=Outcome.REGRESSED, tolerance=0.05, base=412e-6, now=450e-6, change=0.0922,
    low=0.081, high=0.104, confidence=0.95, detectable=0.012,
)  # fmt: skip
SERVER_CPU = Limit(kind=LimitKind.SERVER_CPU, evidence="at 97 % of 1 core")
NO_ERRORS = LimitCheck(name="max_error_rate", metric="error_rate", limit=0.0, value=0.0, holds=True)
ERRORS = LimitCheck(name="max_error_rate", metric="error_rate", limit=0.0, value=0.00113, holds=False)
TOO_FEW = LimitCheck(name="min_rps", metric="rps", limit=2400.0, value=2050.0, holds=False)
FAILURES = (
    Failure(kind="status 500", count=12, example='POST /upload answered 500: {"detail":\n "disk full"}'),
    Failure(kind="timeout", count=2, example="no answer within 30 s"),
)


def process_use(
    pid: int, cpu_ns: int, *, threads: int = 5, files: int | None = 40, busy: int | None = None
) -> ProcessUse:
    return ProcessUse(
        pid=pid,
        cpu_ns=cpu_ns,
        main_cpu_ns=None,
        waiting_ns=None,
        rss_bytes=50 << 20,
        threads=threads,
        files=files,
        written_bytes=None,
        read_bytes=None,
        busy_threads=busy,
    )


def watched(
    recorded: Recording, *, workers: int = 1, looks: int = 8, growing: int = 0, busy: bool = False
) -> Recording:
    """Returns the recording with looks at its boots: workers at 90 %, 80 % … of a core, the generator at 50 %."""
    boots = []
    for boot in recorded.boots:
        rounds = [round_ for round_ in recorded.rounds if round_.boot == boot.index]
        start_ns, end_ns = rounds[0].started_ns, rounds[-1].ended_ns
        pids = tuple(range(100 * boot.index + 10, 100 * boot.index + 10 + workers))
        samples: list[Sample] = []
        for at_ns in np.linspace(start_ns, end_ns, looks).astype(int).tolist():
            passed_ns = at_ns - start_ns
            more = growing * len(samples)
            server = [
                process_use(
                    pid,
                    round(passed_ns * (0.9 - 0.1 * place)),
                    threads=5 + more,
                    files=40 + more,
                    busy=more if busy else None,
                )
                for place, pid in enumerate(pids)
            ]
            samples.append(
                Sample(at_ns=at_ns, server=(process_use(1, 0), *server), generators=(process_use(2, passed_ns // 2),))
            )
        boots.append(replace(boot, pids=(1, *pids), worker_pids=pids, samples=tuple(samples)))
    return replace(recorded, boots=tuple(boots))


# --- sessions that were stored: see `test_goldens`


@cache
def stored(session: str) -> SessionRecord:
    return read_record(GOLDEN / session / "run.json")


def one(session: str, name: str) -> Result:
    (result,) = (result for result in stored(session).results if result.test.name == name)
    return result
