"""What the threads of another process do, seen from outside."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from serve.processes import Scripted, scripted, settled, until

from pytest_fileperf.host import threads
from pytest_fileperf.host.sample import MainThread, ProcessUse
from pytest_fileperf.host.threads import Observation, ThreadWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
USE = ProcessUse(
    pid=1, cpu_ns=0, main_cpu_ns=0, waiting_ns=0, rss_bytes=0, threads=1, files=0, written_bytes=0, read_bytes=0
)
GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""


@pytest.fixture
def process() -> Iterator[Scripted]:
    with scripted() as process:
        yield process


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


def test_running_threads_are_counted_with_the_main_one(process: Scripted, watch: ThreadWatch) -> None:
    assert seen_after(process, watch, "spin").running_threads == 1


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
    return seen._replace(states=tuple((index, True) for index, _ in seen.states))


def test_of_many_threads_only_the_main_one_is_judged(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 3)
    with closing(ThreadWatch(process.pid)) as watch:
        assert seen_after(process, watch, "nap 4") == replace(USE, main=MainThread.IDLE)
        assert watch.pool() is None


@pytest.mark.parametrize("call", ["open", "pread"])
def test_nothing_is_known_of_threads_that_may_not_be_read(
    process: Scripted, watch: ThreadWatch, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    process.do("nap 2")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        seen = watch.observe()
    watch.rest()

    assert set(seen.places) == {None}
    assert watch.judged(USE, seen) == USE
    assert watch.pool() is None


def refuse(*_: object) -> int:
    raise PermissionError


def test_nothing_is_known_before_the_threads_came_to_rest(process: Scripted, watch: ThreadWatch) -> None:
    process.do("nap 2")
    assert watch.judged(USE, settled(watch)) == USE
    assert watch.pool() is None
    before = watch.observe()
    process.process.kill()
    process.process.wait()
    assert watch.observe().places == (None,) * len(before.places)  # it takes its threads with it


def test_a_pool_is_known_only_of_threads_that_were_seen_busy(process: Scripted, watch: ThreadWatch) -> None:
    watch.observe()
    process.do("nap 4")
    process.do("rest")
    until(watch.rest)
    assert (watch.active(), watch.pool()) == (4, 0)


def test_where_a_thread_waits_for_work_is_unknown_if_it_never_came_to_rest(
    process: Scripted, watch: ThreadWatch
) -> None:
    process.do("spin")
    until(lambda: not watch.rest())
    process.do("rest")
    assert watch.judged(USE, settled(watch)).main is None


def test_a_process_that_is_gone_has_no_threads() -> None:
    watch = ThreadWatch(GONE)

    assert watch.observe() == Observation((), ())
    assert watch.rest()
    assert watch.judged(USE, watch.observe()) == USE
    assert watch.active() == 0


def test_the_thread_that_observes_is_not_among_those_seen() -> None:
    watch = ThreadWatch(os.getpid())
    seen: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: seen.append((len(watch.observe().places), threads_of_this_process())))
    thread.start()
    thread.join()
    watch.close()

    assert seen[0][0] == seen[0][1] - 1


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


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
