"""A watch on real processes: what it sees, what it survives, what it keeps."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from serve.processes import Scripted, scripted, settled

from pytest_fileperf.host import watch
from pytest_fileperf.host.sample import MainThread, ProcessUse
from pytest_fileperf.host.threads import ThreadWatch
from pytest_fileperf.host.watch import Watch

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
PATIENCE_S = 20.0
OFTEN_S = 0.005


class Counted:
    """A watch of a process, and how many samples it has begun: it asks for the generator each time."""

    def __init__(self, pids: Callable[[], tuple[int, ...]]) -> None:
        self.taken = 0
        self._generators: tuple[int, ...] = ()
        self.watch = Watch(pids=pids, port=None, generators=self._ask, interval_s=OFTEN_S)

    def _ask(self) -> tuple[int, ...]:
        self.taken += 1
        return self._generators

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


@linux
def test_threads_that_were_there_before_and_do_nothing_are_not_active(process: Scripted, counted: Counted) -> None:
    process.do("nap 4")
    process.do("rest")
    settled(ThreadWatch(process.pid))
    with counted.watch:
        counted.wait()

    (pool,) = counted.watch.thread_pools
    assert (pool.threads, pool.active, pool.pool) == (6, 0, 0)


@linux
def test_the_generator_may_start_late(process: Scripted) -> None:
    counted = Counted(lambda: ())
    with counted.watch:
        counted.wait()
        counted._generators = (process.pid,)
        counted.wait()

    generators = [sample.generators for sample in counted.watch.samples]
    assert generators[0] == ()
    (generator,) = generators[-1]
    assert generator.pid == process.pid
    assert generator.main_cpu_ns is not None


def test_a_process_may_vanish(process: Scripted, counted: Counted) -> None:
    with counted.watch:
        counted.wait()
        process.process.kill()
        process.process.wait()
        counted.wait()

    assert len(counted.watch.samples[0].server) == 1
    assert counted.watch.samples[-1].server == ()
    assert counted.watch.thread_pools == ()
    assert counted.watch.failure is None


def test_a_process_may_appear(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PIDS_SHARE", 1.0)
    pids = [process.pid]
    counted = Counted(lambda: tuple(pids))
    with scripted() as other, counted.watch:
        counted.wait()
        pids.append(other.pid)
        counted.wait(5)

    assert [use.pid for use in counted.watch.samples[-1].server] == pids


def test_nothing_that_goes_wrong_reaches_the_block(process: Scripted) -> None:
    def pids() -> tuple[int, ...]:
        raise LookupError("no such server")

    with Watch(pids=pids, port=None, interval_s=OFTEN_S) as failed:
        pass

    assert isinstance(failed.failure, LookupError)
    assert failed.samples == ()
    assert failed.thread_pools == ()


def test_an_error_in_the_block_goes_on_and_the_samples_remain(counted: Counted) -> None:
    with pytest.raises(LookupError, match="of the block"):
        fail_in(counted)

    assert counted.watch.samples


def fail_in(counted: Counted) -> None:
    with counted.watch:
        counted.wait()
        raise LookupError("of the block")


def test_a_long_watch_keeps_every_other_sample(process: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_SAMPLES", 5)
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
