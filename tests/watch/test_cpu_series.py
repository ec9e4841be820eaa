"""The CPU time of a process over time, as another one reads it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_fileperf.host.cpu import CpuSeries

BUSY = "import time\nwhile True: pass"
IDLE = "import time\ntime.sleep(60)"


@contextmanager
def running(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_what_a_process_spends_is_told_for_any_stretch_of_time() -> None:
    with running(BUSY) as pid, CpuSeries([pid]) as series:
        time.sleep(0.1)
        first_ns = time.monotonic_ns()
        time.sleep(0.4)
        last_ns = time.monotonic_ns()
        time.sleep(0.05)
    whole = series.spent_ns(first_ns, last_ns)
    assert whole is not None
    middle_ns = (first_ns + last_ns) // 2
    parts = series.spent_ns(first_ns, middle_ns), series.spent_ns(middle_ns, last_ns)
    assert None not in parts
    assert abs(sum(part or 0 for part in parts) - whole) <= 2  # each is rounded
    assert 0 < whole <= 1.1 * (last_ns - first_ns)


def test_an_idle_process_spends_nothing() -> None:
    with running(IDLE) as pid:
        time.sleep(0.2)  # until it has started
        with CpuSeries([pid]) as series:
            first_ns = time.monotonic_ns()
            time.sleep(0.1)
            last_ns = time.monotonic_ns()
    assert series.spent_ns(first_ns, last_ns) in range(5_000_000)


@pytest.mark.parametrize("after", [False, True])
def test_what_was_not_seen_is_not_known(after: bool) -> None:
    with running(IDLE) as pid, CpuSeries([pid]) as series:
        time.sleep(0.02)
    now_ns = time.monotonic_ns()
    if after:  # nothing more is known than at the end
        assert series.spent_ns(now_ns, now_ns + 1_000_000) == 0
    else:
        assert series.spent_ns(now_ns - 10**10, now_ns) is None


def test_it_is_unknown_without_a_process_and_where_one_ends() -> None:
    with CpuSeries([]) as nobody:
        pass
    assert nobody.spent_ns(0, time.monotonic_ns()) is None
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process, CpuSeries([process.pid]) as series:
        first_ns = time.monotonic_ns()
        process.kill()
        process.wait()
        time.sleep(0.05)
    assert series.spent_ns(first_ns, time.monotonic_ns()) is None
