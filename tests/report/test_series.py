from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_fileperf.host.sample import ProcessUse, Sample, SocketQueues
from pytest_fileperf.measure.recording import Boot, LeadTimes
from pytest_fileperf.report.record_file import leads_series, samples_series

MS = 1_000_000


def use(pid: int, cpu_ms: int, *, rss: int = 1000, busy: int | None = None) -> ProcessUse:
    return ProcessUse(
        pid=pid,
        cpu_ns=cpu_ms * MS,
        main_cpu_ns=None,
        waiting_ns=None,
        rss_bytes=rss,
        threads=pid + 40,
        files=None,
        written_bytes=None,
        read_bytes=None,
        busy_threads=busy,
    )


QUEUES = SocketQueues(
    connections=32, server_unread=1, server_unsent=2, client_unread=3, client_unsent=4, under_way=5
)  # fmt: skip


def test_looks_become_columns_with_shares_of_the_time_between_them() -> None:
    samples = (
        Sample(at_ns=7_000 * MS, server=(use(1, 0), use(2, 500)), generators=(use(9, 100),)),
        Sample(
            at_ns=7_250 * MS,
            server=(use(1, 5), use(2, 725, rss=2000, busy=3)),
            generators=(use(9, 200),),
            queues=QUEUES,
        ),
        Sample(at_ns=7_750 * MS, server=(use(2, 1_000), use(3, 10))),
    )
    series = samples_series(Boot(index=0, worker_pids=(2, 3), samples=samples))
    nothing = [None, None, None]
    assert series == {
        "at": [0.0, 0.25, 0.75],
        "processes": [
            {
                "pid": 1, "worker": False, "cpu": [None, 0.02, None], "rss": [1000, 1000, None],
                "threads": [41, 41, None], "files": nothing, "busy_threads": nothing,
            },
            {
                "pid": 2, "worker": True, "cpu": [None, 0.9, 0.55], "rss": [1000, 2000, 1000],
                "threads": [42, 42, 42], "files": nothing, "busy_threads": [None, 3, None],
            },
            {
                "pid": 3, "worker": True, "cpu": nothing, "rss": [None, None, 1000],
                "threads": [None, None, 43], "files": nothing, "busy_threads": nothing,
            },
        ],
        "generator": {
            "cpu": [None, 0.4, None], "rss": [1000, 1000, None],
            "threads": [49, 49, None], "files": nothing, "busy_threads": nothing,
        },
        "generators": [],
        "queues": {
            "connections": [None, 32, None], "server_unread": [None, 1, None], "server_unsent": [None, 2, None],
            "client_unread": [None, 3, None], "client_unsent": [None, 4, None], "under_way": [None, 5, None],
        },
    }  # fmt: skip


def test_what_was_never_seen_is_null() -> None:
    alone = Sample(at_ns=0, server=(use(1, 0),))
    series: Any = samples_series(Boot(index=0, samples=(alone, replace(alone, at_ns=0))))
    assert (series["generator"], series["generators"], series["queues"]) == (None, [], None)
    assert series["processes"][0]["cpu"] == [None, None]  # no time between them


def test_lead_times_are_in_seconds() -> None:
    leads = LeadTimes(due_ns=(0, 500 * MS), counts=(3, 4), mean_ns=(20 * MS, 30 * MS), max_ns=(25 * MS, 50 * MS))
    assert leads_series(leads) == {"due": [0.0, 0.5], "count": [3, 4], "mean": [0.02, 0.03], "max": [0.025, 0.05]}
