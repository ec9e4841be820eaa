"""What each core of the machine did, read off a `/proc/stat`."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from pytest_fileperf.host.sample import CoreTime, core_times, cores_of, parse_core_times

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
MS = 1_000_000
LOOKED_AT = b"""cpu  40 40 40 400 40 0 40 4 0 0
cpu0 10 20 30 100 10 0 5 1 0 0
cpu12 30 20 10 300 30 0 35 3 0 0
intr 1 2 3
ctxt 5
"""
"""By a kernel that looks now and then what a core does."""


@pytest.mark.parametrize(
    "text, cores",
    [
        (LOOKED_AT, [(0, 65, 1), (12, 95, 3)]),
        (LOOKED_AT.replace(b"10 0 5", b"10 2 5"), [(0, 60, 1), (12, 95, 3)]),  # that measures interrupts
        (b"cpu0 1 2 3\n", []),  # an old kernel's
        (b"", []),
    ],
)
def test_busy_time_is_what_processes_were_counted(text: bytes, cores: list[tuple[int, int, int]]) -> None:
    expected = tuple(
        CoreTime(core=core, busy_ns=busy * 10 * MS, stolen_ns=stolen * 10 * MS) for core, busy, stolen in cores
    )

    assert parse_core_times(text, unit_ns=10 * MS) == expected


@linux
def test_a_core_that_computes_is_busy() -> None:
    core = min(os.sched_getaffinity(0))

    def busy_ns() -> int:
        return next(time_.busy_ns for time_ in core_times() if time_.core == core)

    def burn() -> None:
        os.sched_setaffinity(0, {core})
        while busy_ns() - before_ns < 20 * MS and time.monotonic() < deadline:  # whoever it is that computes
            time.thread_time()

    before_ns, deadline = busy_ns(), time.monotonic() + 30
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    assert busy_ns() - before_ns >= 20 * MS


@linux
def test_the_cores_of_processes_are_all_they_may_run_on() -> None:
    assert cores_of([os.getpid()]) == os.sched_getaffinity(0)
    assert cores_of([os.getpid(), 2**22 + 1]) == frozenset()
    assert cores_of([]) == frozenset()
