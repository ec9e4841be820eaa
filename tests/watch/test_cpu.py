"""CPU time and memory of other processes, of their trees, over time, and of the cores of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from judge.sides import known
from serve.processes import Scripted, scripted

from pytest_fileperf.host import cpu
from pytest_fileperf.host.cores import cores_of
from pytest_fileperf.host.cpu import (
    CpuSeries,
    TreeCpu,
    cpu_time_ns,
    open_files,
    peak_rss_bytes,
    process_use,
    reset_peak_rss,
    tree_pids,
)
from pytest_fileperf.host.sample import CoreTime, parse_core_times

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
    before = cpu_time_ns(worker.pid)
    worker.do("work")
    after = cpu_time_ns(worker.pid)
    assert before is not None
    assert after is not None
    assert 195_000_000 <= after - before <= 400_000_000
    times = psutil.Process(worker.pid).cpu_times()
    assert after / 1e9 == pytest.approx(times.user + times.system, abs=0.05)  # psutil counts in 10 ms ticks


@linux
def test_peak_memory_starts_anew(worker: Worker) -> None:
    worker.do("allocate")
    peak = known(peak_rss_bytes([worker.pid]))
    assert peak > 64 << 20
    if not reset_peak_rss([worker.pid]):
        pytest.skip("this system does not allow a reset")
    rest = known(peak_rss_bytes([worker.pid]))
    assert rest < peak - (60 << 20)


def test_of_a_process_that_is_gone_nothing_is_known(worker: Worker) -> None:
    assert cpu_time_ns(GONE) is None
    assert peak_rss_bytes([worker.pid, GONE]) is None
    assert peak_rss_bytes([]) is None
    assert not reset_peak_rss([worker.pid, GONE])
    assert process_use(GONE) is None


@linux
def test_needs_no_psutil() -> None:
    code = (
        "import os, sys, pytest_fileperf.host.cpu as c; p = [os.getpid()];"
        "c.cpu_time_ns(*p), c.reset_peak_rss(p), c.peak_rss_bytes(p); c.process_use(*p), c.io_stalled_ns();"
        "print('psutil' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- What a process uses


@pytest.fixture
def process() -> Iterator[Scripted]:
    with scripted() as process:
        yield process


@linux
def test_threads_memory_and_files_are_what_psutil_sees(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    use, known = process_use(process.pid), psutil.Process(process.pid)
    assert use is not None
    assert use.threads == known.num_threads() == 2
    assert use.rss_bytes == pytest.approx(known.memory_info().rss, rel=0.2)
    assert use.cpu_ns / 1e9 == pytest.approx(sum(known.cpu_times()[:2]), abs=0.05)  # psutil counts in 10 ms ticks
    process.do("open 7")
    after = process_use(process.pid)
    assert use.files is not None
    assert after is not None
    assert after.files == known.num_fds() == use.files + 7
    # Where the kernel does not count files they are listed, unless there are many: `fdinfo` has no size on any kernel.
    uncounted = f"/proc/{process.pid}/fdinfo"
    assert open_files(uncounted) == known.num_fds()
    monkeypatch.setattr(cpu, "MOST_FILES_LISTED", 1)
    assert open_files(uncounted) is None


# --- A process tree whose children begin and end

PARENT = """
import os, signal, subprocess, sys, threading, time
code = "import time\\nwhile time.process_time() < 0.2: pass\\nprint(1, flush=True); input()"
burn = [sys.executable, "-S", "-c", code]
children = []

def begin():
    children.append(subprocess.Popen(burn, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    children[-1].stdout.readline()

for line in sys.stdin:
    if line == "begin\\n":
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    elif line == "ignore\\n":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        children[-1].communicate("")
    print("done", flush=True)
"""


@contextmanager
def parent() -> Iterator[Worker]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Worker(process)


@linux
def test_children_count_while_they_live_and_when_they_have_ended() -> None:
    with parent() as own:
        tree = TreeCpu([own.pid])
        before = known(tree.spent_ns())
        own.do("begin")
        living = known(tree.spent_ns())
        assert living - before >= 190_000_000
        (child,) = set(tree.pids) - {own.pid}
        assert tree.above([child]) == {own.pid}
        own.do("end")
        ended = known(tree.spent_ns())
        assert ended >= living - 20_000_000
        assert child not in tree.pids
        assert tree.ended_ns >= 180_000_000


@linux
def test_a_child_that_nobody_waits_for_leaves_the_time_unknown() -> None:
    with parent() as own:
        own.do("ignore")
        tree = TreeCpu([own.pid])
        tree.spent_ns()
        own.do("begin")
        assert tree.spent_ns() is not None
        own.do("end")
        assert tree.spent_ns() is None
        assert not tree.is_complete


@linux
def test_without_a_process_nothing_is_known() -> None:
    assert TreeCpu([]).spent_ns() is None
    assert tree_pids([os.getpid()])[0] == os.getpid()


# --- Over time

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
    whole = known(series.spent_ns(first_ns, last_ns))
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


def test_what_was_not_seen_is_not_known() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process, CpuSeries([process.pid]) as series:
        first_ns = time.monotonic_ns()
        process.kill()
        process.wait()
        time.sleep(0.05)
    now_ns = time.monotonic_ns()
    assert series.spent_ns(first_ns, now_ns) is None  # it has ended
    with running(IDLE) as pid, CpuSeries([pid]) as series:
        time.sleep(0.02)
    now_ns = time.monotonic_ns()
    assert series.spent_ns(now_ns, now_ns + 1_000_000) == 0  # nothing more is known than at the end
    assert series.spent_ns(now_ns - 10**10, now_ns) is None
    with CpuSeries([]) as nobody:
        pass
    assert nobody.spent_ns(0, now_ns) is None


# --- Each core of the machine, read off a `/proc/stat`

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
def test_the_cores_of_processes_are_all_they_may_run_on() -> None:
    assert cores_of([os.getpid()]) == os.sched_getaffinity(0)
    assert cores_of([os.getpid(), 2**22 + 1]) == frozenset()
    assert cores_of([]) == frozenset()
