"""Recordings of open loops, and of servers that were watched, made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from report.samples import recording

from pytest_fileperf.host.sample import ProcessUse, Sample
from pytest_fileperf.measure.recording import LeadTimes, Phase, Recording

SECOND_NS = 1_000_000_000


def use(pid: int, cpu_ns: int, *, threads: int = 5, files: int | None = 40, busy: int | None = None) -> ProcessUse:
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
                use(
                    pid,
                    round(passed_ns * (0.9 - 0.1 * place)),
                    threads=5 + more,
                    files=40 + more,
                    busy=more if busy else None,
                )
                for place, pid in enumerate(pids)
            ]
            samples.append(Sample(at_ns=at_ns, server=(use(1, 0), *server), generators=(use(2, passed_ns // 2),)))
        boots.append(replace(boot, pids=(1, *pids), worker_pids=pids, samples=tuple(samples)))
    return replace(recorded, boots=tuple(boots))


def open_loop(*, requests: int = 100, drain_s: float = 40.0, boots: int = 1) -> Recording:
    """Returns an overloaded open loop: ten requests due per second, of which the server falls ever more behind."""
    recorded = recording(requests=requests // 4, boots=boots, rounds=4, slowest_ms=40_000)
    rounds = [replace(each, service=each.ttfb, send_delay=each.ttfb) for each in recorded.rounds]
    last = rounds[-1]
    ended_ns = last.ended_ns + round(drain_s * SECOND_NS)
    rounds.append(replace(last, index=4, phase=Phase.DRAIN, started_ns=last.ended_ns, ended_ns=ended_ns))
    due_ns = tuple(range(0, requests * SECOND_NS // 10, SECOND_NS // 10))
    lead_ns = tuple(2 * at_ns + SECOND_NS for at_ns in due_ns)
    leads = LeadTimes(due_ns=due_ns, counts=(1,) * requests, mean_ns=lead_ns, max_ns=lead_ns)
    return replace(
        recorded,
        rounds=tuple(rounds),
        boots=tuple(replace(boot, leads=leads) for boot in recorded.boots),
        open_loop=True,
        due=requests,
    )
