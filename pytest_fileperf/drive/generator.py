"""The generator process, `python -m pytest_fileperf.drive`: makes run after run until its input ends.

It has a process of its own so that its CPU time is its own, and so that nothing in the test process can delay it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import shutil
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import BinaryIO, NoReturn

import httpx

from pytest_fileperf.drive.alternating import run_alternating
from pytest_fileperf.drive.messages import Alive, Begin, Late, LoadOrder, Ready, Setup, read_message, write_message
from pytest_fileperf.drive.run import RunProgress, RunResult, at_once, run_load
from pytest_fileperf.errors import FileLimitError, FilePerfError, GeneratorError, LoadError, PlanError
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.watch.tree_cpu import TreeCpu
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

__all__ = ("main",)

_SPARE_FILES = 128
"""Open files a generator needs besides its connections."""
_SUPERVISED_S = 2.0
_LEAST_WAIT_S = 0.05
_SURE_S = 0.002
"""Timers of event loops are good to a millisecond, and the sleep of a thread to some hundredths of one."""


def main() -> None:
    """Reads jobs from standard input and writes answers to standard output, until the input ends."""
    commands, answers = _take_pipes()
    jobs: queue.SimpleQueue[object] = queue.SimpleQueue()
    write_message(answers, os.getpid())
    setup = read_message(commands)
    assert isinstance(setup, Setup)
    lease = _Lease(setup.scratch)
    threading.Thread(target=_read_all, args=(commands, jobs, lease), daemon=True).start()
    sys.path[:] = setup.path
    anywhere = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
    with closing(PayloadFiles(Path(setup.scratch))) as files:
        while True:
            job = jobs.get()
            assert isinstance(job, LoadOrder)
            begin = partial(_together, jobs, answers, job.most_late_ns) if job.together else at_once
            with lease.of(job.lease_s):
                answer = _answer(job, files, answers, anywhere, begin)
            write_message(answers, answer)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Returns the two pipes. A journey reads nothing from them, and prints to the log instead."""
    commands = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return commands, answers


class _Lease:
    """Ends this process where nothing is heard for too long in a run: whoever has ordered it may hang, or be gone."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._heard_s = monotonic()

    def renew(self) -> None:
        """Something was heard."""
        self._heard_s = monotonic()

    @contextmanager
    def of(self, seconds: float | None) -> Iterator[None]:
        """Looks after it within the block."""
        over = threading.Event()
        if seconds is not None:
            self.renew()
            threading.Thread(target=self._watch, args=(seconds, over), daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def end(self) -> NoReturn:
        """Ends this process at once, and removes its files."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)

    def _watch(self, seconds: float, over: threading.Event) -> None:
        while not over.wait(max(_LEAST_WAIT_S, self._heard_s + seconds - monotonic())):
            if monotonic() > self._heard_s + seconds:
                self.end()


def _read_all(commands: BinaryIO, jobs: queue.SimpleQueue[object], lease: _Lease) -> None:
    """Passes messages on. Ends this process where the test process has closed the pipe, or is gone.

    A supervisor ends it sooner, and removes its files: one that saw this process end first would take that for all.
    """
    while (message := read_message(commands)) is not None:
        lease.renew()
        if not isinstance(message, Alive):
            jobs.put(message)
    if os.name == "posix":
        sleep(_SUPERVISED_S)
    lease.end()


async def _together(jobs: queue.SimpleQueue[object], answers: BinaryIO, most_late_ns: int | None) -> int:
    """Waits for the instant at which all generators begin, and returns it; raises _LateError where it is long past."""
    write_message(answers, Ready())
    message = await asyncio.get_running_loop().run_in_executor(None, jobs.get)
    assert isinstance(message, Begin)
    late_ns = monotonic_ns() - message.origin_ns
    if most_late_ns is not None and late_ns > most_late_ns:
        raise _LateError(late_ns)
    await asyncio.sleep((message.origin_ns - monotonic_ns()) / 1e9 - _SURE_S)
    sleep(max(0, message.origin_ns - monotonic_ns()) / 1e9)  # noqa: ASYNC251 - nothing else is to be done yet
    return message.origin_ns


class _LateError(Exception):
    """All others have begun."""

    def __init__(self, by_ns: int) -> None:
        super().__init__(by_ns)
        self.by_ns = by_ns


def _answer(
    job: LoadOrder,
    files: PayloadFiles,
    answers: BinaryIO,
    anywhere: frozenset[int],
    begin: Callable[[], Awaitable[int]],
) -> tuple[RunResult, ...] | Late | Exception:
    """Makes the run; returns what it found, that it was told too late, or the error that the test process raises.

    `anywhere` are the cores of a run that names none: the run before it may have had fewer.
    """
    try:
        _allow_files(job.plan.connections * len(job.targets))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, job.cores or anywhere)
        works = _unpacked(job.works)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_made(job, works, files, lambda progress: write_message(answers, progress), begin))
    except _LateError as error:
        return Late(by_ns=error.by_ns)
    except (FileLimitError, PlanError) as error:
        return error
    except FilePerfError as error:  # a subclass may not survive the way to the test process
        return LoadError(str(error))
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return httpx.ConnectError(str(error))
    except Exception:  # the rim of the process: the test process shows it
        return GeneratorError(f"the load generator failed:\n{traceback.format_exc()}")


def _unpacked(works: bytes) -> tuple[Work, ...]:
    """Returns the works; raises LoadError where what they import is not here, or fails."""
    try:
        each: tuple[Work, ...] = pickle.loads(works)  # noqa: S301 - from our own process
    except ImportError as error:
        raise LoadError(
            f"the journey cannot be loaded where the generator runs: {error}: install it there, or write what the "
            "journey needs of it into the test module"
        ) from error
    except Exception as error:  # modules that are imported may raise anything
        what = f"{type(error).__name__}: {error}"
        raise LoadError(f"the journey cannot be loaded where the generator runs: {what}") from error
    return each


async def _made(
    job: LoadOrder,
    works: tuple[Work, ...],
    files: PayloadFiles,
    progress: Callable[[RunProgress], None],
    begin: Callable[[], Awaitable[int]],
) -> tuple[RunResult, ...]:
    server_cpu = [TreeCpu(pids).spent_ns for pids in job.pids]
    if isinstance(job.plan, Alternation):
        return await run_alternating(
            works, job.plan, job.targets, files=files, server_cpu=server_cpu, progress=progress, begin=begin
        )
    (work,), (target,), (cpu,) = works, job.targets, server_cpu
    return (await run_load(work, job.plan, target, files=files, server_cpu=cpu, progress=progress, begin=begin),)


def _allow_files(connections: int) -> None:
    """Raises the limit of open files as far as needed; raises FileLimitError where that is not allowed."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise FileLimitError(connections=connections, limit=hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
