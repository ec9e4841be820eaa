"""CPU time and peak memory of another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pytest_fileperf.host.cpu import cpu_times_ns, peak_rss_bytes, reset_peak_rss

WORKER = """
import sys, time
for line in sys.stdin:
    if line == "work\\n":
        start = time.process_time()
        while time.process_time() - start < 0.2: pass
    else:
        block = bytearray(64 << 20)
        del block
    print("done", flush=True)
"""
GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


class Worker:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def worker() -> Iterator[Worker]:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process)
        process.kill()


def test_cpu_time_is_what_psutil_sees(worker: Worker) -> None:
    worker.do("work")
    before = cpu_times_ns([worker.pid])
    worker.do("work")
    after = cpu_times_ns([worker.pid])
    assert 195_000_000 <= after[worker.pid] - before[worker.pid] <= 400_000_000
    times = psutil.Process(worker.pid).cpu_times()
    assert after[worker.pid] / 1e9 == pytest.approx(times.user + times.system, abs=0.05)  # psutil counts in 10 ms ticks


def test_a_process_that_is_gone_is_missing(worker: Worker) -> None:
    assert set(cpu_times_ns([worker.pid, GONE])) == {worker.pid}


@linux
def test_peak_memory_starts_anew(worker: Worker) -> None:
    worker.do("allocate")
    peak = peak_rss_bytes([worker.pid])
    assert peak is not None
    assert peak > 64 << 20
    if not reset_peak_rss([worker.pid]):
        pytest.skip("this system does not allow a reset")
    rest = peak_rss_bytes([worker.pid])
    assert rest is not None
    assert rest < peak - (60 << 20)


def test_peak_memory_is_unknown_when_a_process_is_gone(worker: Worker) -> None:
    assert peak_rss_bytes([worker.pid, GONE]) is None
    assert peak_rss_bytes([]) is None
    assert not reset_peak_rss([worker.pid, GONE])


@linux
def test_needs_no_psutil() -> None:
    code = (
        "import os, sys, pytest_fileperf.host.cpu as c; p = [os.getpid()];"
        "c.cpu_times_ns(p), c.reset_peak_rss(p), c.peak_rss_bytes(p); print('psutil' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
