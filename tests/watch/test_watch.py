"""A watch on real processes: what it sees, what it survives, what it keeps; and what their threads do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from serve.processes import Scripted, scripted, settled, until

from pytest_fileperf.host.sample import MainThread, ProcessUse
from pytest_fileperf.host.threads import Observation, ThreadWatch
from pytest_fileperf.host.watch import Watch

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
PATIENCE_S = 20.0
OFTEN_S = 0.005


class Counted:
    """A watch of a process, and how many samples it has begun: it asks for the generator each time."""

    def __init__(self, pids: Callable[[], tuple[int, ...]]) -> None:
        self.taken = 0
        self.watch = Watch(pids=pids, port=None, generators=self._ask, interval_s=OFTEN_S)

    def _ask(self) -> tuple[int, ...]:
        self.taken += 1
        return ()

    def wait(self, samples: int = 2) -> None:
        """Returns after so many whole samples from now on."""
        goal, deadline = self.taken + samples + 1, time.monotonic() + PATIENCE_S
        while self.taken < goal:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def uses(self) -> list[ProcessUse]:
        """Returns the first process of the server in each sample."""
        return [sample.server[0] for sample in self.watch.samples]


@pytest.fixture
def process() -> Iterator[Scripted]:
    with scripted() as process:
        yield process


@pytest.fixture
def counted(process: Scripted) -> Counted:
    return Counted(lambda: (process.pid,))


@linux
def test_what_a_process_does_is_in_each_sample(process: Scripted, counted: Counted) -> None:
    before_ns = time.monotonic_ns()
    with counted.watch:
        counted.wait()
        process.do("open 20")
        process.do("nap 3")
        counted.wait(5)
        process.do("rest")
        process.do("spin")
        counted.wait(5)
        process.do("rest")
    instants = [before_ns, *(sample.at_ns for sample in counted.watch.samples), time.monotonic_ns()]
    assert instants == sorted(instants)
    uses = counted.uses()
    first, last = uses[0], uses[-1]
    assert [use.cpu_ns for use in uses] == sorted(use.cpu_ns for use in uses)
    assert last.cpu_ns > first.cpu_ns
    assert all(use.rss_bytes > 1 << 20 for use in uses)
    assert (first.threads, last.threads) == (2, 5)
    assert first.files is not None
    assert last.files == first.files + 20
    assert (first.busy_threads, first.main) == (0, MainThread.IDLE)
    assert max(use.busy_threads or 0 for use in uses) == 3
    (pool,) = counted.watch.thread_pools
    assert (pool.pid, pool.threads, pool.active, pool.pool) == (process.pid, 5, 3, 3)


def test_a_process_may_vanish(process: Scripted, counted: Counted) -> None:
    with counted.watch:
        counted.wait()
        process.process.kill()
        process.process.wait()
        counted.wait()

    assert len(counted.watch.samples[0].server) == 1
    assert counted.watch.samples[-1].server == ()
    assert counted.watch.thread_pools == ()


def test_nothing_that_goes_wrong_reaches_the_block(process: Scripted) -> None:
    def pids() -> tuple[int, ...]:
        raise LookupError("no such server")

    with Watch(pids=pids, port=None, interval_s=OFTEN_S) as failed:
        pass

    assert failed.samples == ()
    assert failed.thread_pools == ()


def test_a_long_watch_keeps_every_other_sample(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.host.watch.MOST_SAMPLES", 5)
    counted = Counted(lambda: (process.pid,))
    with counted.watch:
        counted.wait(10)

    samples = counted.watch.samples
    assert 2 <= len(samples) <= 5
    assert [sample.at_ns for sample in samples] == sorted(sample.at_ns for sample in samples)
    assert samples[-1].at_ns - samples[0].at_ns > 0


@linux
def test_a_process_can_watch_itself_and_does_not_see_the_watch() -> None:
    """One of its own: in this one other tests, and libraries that they called, may have left threads at work."""
    code = (
        "import os, time; from pytest_fileperf.host.watch import Watch\n"
        "with Watch(pids=lambda: (os.getpid(),), port=None, interval_s=0.005) as watch: time.sleep(0.1)\n"
        "print(len(watch.samples), *{sample.server[0].busy_threads for sample in watch.samples})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    samples, *busy = done.stdout.split()
    assert int(samples) > 1
    assert busy == ["0"]


# --- What the threads of another process do

USE = ProcessUse(
    pid=1, cpu_ns=0, main_cpu_ns=0, waiting_ns=0, rss_bytes=0, threads=1, files=0, written_bytes=0, read_bytes=0
)
GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""


@pytest.fixture
def watch(process: Scripted) -> Iterator[ThreadWatch]:
    watch = ThreadWatch(process.pid)
    yield watch
    watch.close()


def seen_after(process: Scripted, watch: ThreadWatch, *orders: str) -> ProcessUse:
    """Returns what was observed while the process did as it was told."""
    for order in orders:
        process.do(order)
    seen = settled(watch)
    process.do("rest")
    until(watch.rest)
    return watch.judged(USE, seen)


@linux
def test_threads_at_work_are_told_from_those_that_wait_for_a_lock_and_for_work(
    process: Scripted, watch: ThreadWatch
) -> None:
    watch.observe()
    assert seen_after(process, watch, "rest").busy_threads == 0
    assert watch.pool() == 0
    seen = seen_after(process, watch, "nap 4")
    assert (seen.busy_threads, seen.lock_threads, seen.storage_threads, seen.main) == (4, 0, 0, MainThread.IDLE)
    assert seen_after(process, watch, "nap 1").busy_threads == 1
    assert watch.active() == watch.pool() == 4  # the thread that sleeps all the time never ran
    seen = seen_after(process, watch, "wait 2", "nap 1")
    assert (seen.busy_threads, seen.lock_threads) == (3, 2)
    assert seen_after(process, watch, "rest").busy_threads == 0


@linux
@pytest.mark.parametrize("order, state", [("spin", MainThread.RUNNING), ("sleep", MainThread.BLOCKED)])
def test_the_main_thread_at_work(process: Scripted, watch: ThreadWatch, order: str, state: MainThread) -> None:
    process.do(order)
    observed = several(watch)
    process.do("rest")
    until(watch.rest)

    assert state in {watch.judged(USE, seen).main for seen in observed}


def several(watch: ThreadWatch) -> list[Observation]:
    observed = []
    for _ in range(20):
        observed.append(watch.observe())
        time.sleep(0.01)
    return observed


@linux
def test_waits_for_storage_are_told(process: Scripted, watch: ThreadWatch) -> None:
    process.do("nap 3")
    process.do("sleep")
    observed = [stalled(seen) for seen in (*several(watch), settled(watch))]
    process.do("rest")
    until(watch.rest)

    assert MainThread.STORAGE in {watch.judged(USE, seen).main for seen in observed}
    assert watch.judged(USE, observed[-1]).storage_threads == 3


def stalled(seen: Observation) -> Observation:
    """Returns the observation as it would be on a disk that makes everybody wait."""
    places, states = seen
    return places, dict.fromkeys(states, True)


@linux
def test_of_many_threads_only_the_main_one_is_judged(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.host.threads.MOST_THREADS", 3)
    with closing(ThreadWatch(process.pid)) as watch:
        assert seen_after(process, watch, "nap 4") == replace(USE, main=MainThread.IDLE)
        assert watch.pool() is None


@linux
@pytest.mark.parametrize("call", ["open", "pread"])
def test_nothing_is_known_of_threads_that_may_not_be_read(
    process: Scripted, watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    process.do("nap 2")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        seen = watch.observe()
    watch.rest()

    assert set(seen[0]) == {None}
    assert watch.judged(USE, seen) == USE
    assert watch.pool() is None


def refuse(*_: object) -> int:
    raise PermissionError


@linux
def test_nothing_is_known_before_the_threads_came_to_rest(process: Scripted, watch: ThreadWatch) -> None:
    process.do("nap 2")
    assert watch.judged(USE, settled(watch)) == USE
    assert watch.pool() is None
    before, _ = watch.observe()
    process.process.kill()
    process.process.wait()
    assert watch.observe()[0] == (None,) * len(before)  # it takes its threads with it


@linux
def test_a_process_that_is_gone_has_no_threads() -> None:
    watch = ThreadWatch(GONE)

    assert watch.observe() == ((), {})
    assert watch.rest()
    assert watch.judged(USE, watch.observe()) == USE
    assert watch.active() == 0


@linux
def test_the_thread_that_observes_is_not_among_those_seen() -> None:
    watch = ThreadWatch(os.getpid())
    seen: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: seen.append((len(watch.observe()[0]), threads_of_this_process())))
    thread.start()
    thread.join()
    watch.close()

    assert seen[0][0] == seen[0][1] - 1


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@linux
def test_its_files_are_closed(process: Scripted) -> None:
    before = files_of_this_process()
    watch = ThreadWatch(process.pid)
    watch.observe()
    during = files_of_this_process()
    watch.close()

    assert during > before
    assert files_of_this_process() == before


def files_of_this_process() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
