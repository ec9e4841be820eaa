"""Profiles server processes from outside: one py-spy for each, which reads its memory as it runs.

py-spy pauses a process at each sample, so that its stacks are of one moment: at 200 samples a second an async server
loses some 5 % of its requests, and its CPU per request stays as it is. But a pause wakes every thread: a server with a
pool of 34 threads falls to a fifth. A process with many threads is therefore not paused. py-spy then reads one function
after the other while they go on: the innermost is right, those around it may be of a moment later.

A sample has the threads that run or wait for a core. If several compute, threads that wait for Python's lock are among
them, and calls that are shorter than a pause are missing. `by_lock` looks at the thread that holds the lock, and pauses
nothing: of four threads with 0.2 ms of Python each it saw 1.42 s when they had 1.47 s, and paused looks had one sample
of 400. It does not see C code that lets go of the lock.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

import psutil

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import Child, Invocation
from pytest_fileperf.host.cpu import TreeCpu, cpu_time_ns
from pytest_fileperf.host.sample import read_start

RATE_HZ = 200
"""Takes a fifth of the generator's core, and gives 400 samples in two seconds of a busy worker."""
MOST_PAUSED_THREADS = 8
"""A process with more threads is not paused: each takes 0.3 ms to stop, and then has to come to rest again."""
MOST_LOOKED_AT = 4
"""So many processes are looked at if children of the server's workers are among them."""
LEAST_CHILD_NS = 50_000_000
"""A child with less CPU time has only started, as the resource tracker of `multiprocessing`."""
START_S = 15.0
"""It reads the symbols of the interpreter first: half a second, or more on a busy machine."""
CHILD_START_S = 1.0
"""Children that take longer are left out: each takes as long as a worker, and begins at the same time."""
TAIL_S = 2.0
"""It samples for so much longer than asked, so that we end it, and not in the middle of the load."""
END_S = 10.0
LET_GO_S = 2.0
"""For letting go of a process that it has paused, once it is asked to end."""
_POLL_S = 0.01
_SAMPLING = "Sampling process"
CpuTime: TypeAlias = tuple[float, float]
"""Of the main thread of a process, and of all its others, in seconds."""
_ERROR = "Error: "
"""How the line begins that tells what is wrong. Causes and a backtrace come after it."""


def find_py_spy() -> str | None:
    """Returns the path of py-spy: beside the Python that runs the tests, or on PATH; None where it is not installed."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return shutil.which("py-spy", path=os.pathsep.join(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    collapsed: tuple[str, ...]
    """Per process, in the form of `py-spy record --format raw --threads`: a line for each stack, with its number of
    samples."""
    cpu_s: tuple[CpuTime | None, ...]
    """Per process, what it had meanwhile; None if that is unknown."""
    torn: bool
    """Whether a process was not paused for its samples: its stacks may be of more than one moment."""
    by_lock: bool = False
    """Whether stacks of threads beside the main one are those of a look by Python's lock, and so torn."""
    unseen_share: float = 0.0
    """The share of the CPU time that child processes had meanwhile whose functions were not seen."""
    notes: tuple[str, ...] = ()
    """What kept single processes from being sampled, a line each; the others were."""


class ProfilerUnavailableError(FilePerfError):
    """Nothing can be seen; its message is why, in one line."""


class Profiler:
    """Samples processes, and child processes of theirs that work, from its start to `stop`.

    A context manager: leaving it ends all that it started. Both entering it and `stop` raise ProfilerUnavailableError
    if nothing can be seen. It samples for at most `seconds` and a little longer, even if nobody ends it. Each stack
    begins with its thread. With `all_time` threads that wait are seen too, with `by_lock` only the one that
    holds Python's lock.
    """

    def __init__(
        self,
        pids: Sequence[int],
        *,
        seconds: float,
        all_time: bool = False,
        by_lock: bool = False,
        cores: frozenset[int] | None = None,
    ) -> None:
        self._pids = tuple(pids)
        self._seconds = seconds
        self._all_time = all_time
        self._by_lock = by_lock
        self._cores = cores
        self._spies: list[_Spy] = []
        self._tree = TreeCpu(self._pids)
        self._began_ns: int | None = None
        self._own_ns: Mapping[int, int] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def stop(self) -> Sampled:
        """Ends the sampling and returns what was seen; to be called once. Raises ProfilerUnavailableError."""
        deadline_s = time.monotonic() + END_S
        cpu_s = {spy.pid: spy.cpu_s() for spy in self._spies}
        ended_ns = self._tree.spent_ns()
        for spy in self._spies:
            spy.ask_to_end()
        seen = [(spy, text) for spy in self._spies if (text := spy.collected(deadline_s)) is not None]
        notes = tuple(spy.problem for spy in self._spies if spy.problem and spy.pid in self._pids)
        self._end()
        if not any(spy.pid in self._pids for spy, _ in seen):
            raise ProfilerUnavailableError(notes[0])
        return Sampled(
            collapsed=tuple(text for _, text in seen),
            cpu_s=tuple(cpu_s[spy.pid] for spy, _ in seen),
            torn=not all(spy.pauses for spy, _ in seen),
            unseen_share=self._unseen_share([spy.pid for spy, _ in seen], ended_ns),
            notes=notes,
        )

    def _unseen_share(self, seen: Sequence[int], ended_ns: int | None) -> float:
        """Returns the share of the CPU time that other processes had than those that were seen, and the workers."""
        if self._began_ns is None or ended_ns is None or ended_ns <= self._began_ns:
            return 0.0
        now_ns = self._tree.own_ns()
        looked = {*seen, *self._pids}
        seen_ns = sum(now_ns[pid] - self._own_ns.get(pid, 0) for pid in looked & now_ns.keys())
        return min(1.0, max(0.0, 1 - seen_ns / (ended_ns - self._began_ns)))

    def _start(self) -> None:
        program = find_py_spy()
        if program is None:
            raise ProfilerUnavailableError('py-spy is not installed: pip install "pytest-fileperf[profile]"')
        if not self._pids:
            raise ProfilerUnavailableError("the server has no process that could be looked at")
        if os.getpid() in self._pids:
            raise ProfilerUnavailableError("the app runs in the test process, together with the load")
        # Threads that wait are asked for to see what an event loop does: a child that rests is no part of that.
        children = () if self._all_time else self._working_children()
        for pid in (*self._pids, *children):
            self._spies.append(_Spy(pid, may_pause=not self._by_lock))
        duration_s = math.ceil(self._seconds + TAIL_S)
        which = {"--idle": self._all_time, "--gil": self._by_lock}
        options = ("--duration", str(duration_s), *(option for option, asked in which.items() if asked))
        for spy in self._spies:
            spy.start(program, options, self._cores)
        deadline_s = time.monotonic() + START_S
        workers, others = self._spies[: len(self._pids)], self._spies[len(self._pids) :]
        if not [spy for spy in workers if spy.has_begun(deadline_s)]:
            raise ProfilerUnavailableError(workers[0].problem)
        deadline_s = time.monotonic() + CHILD_START_S
        for spy in others:  # the time of the workers' own goes on
            spy.has_begun(deadline_s)
        for spy in self._spies:
            spy.cpu_before = _cpu_ns(spy.pid)
        self._began_ns = self._tree.spent_ns()
        self._own_ns = self._tree.own_ns()

    def _working_children(self) -> list[int]:
        """Returns the child processes that have had most CPU time, as many as the generator's core can take."""
        self._tree.spent_ns()
        had_ns = self._tree.own_ns()
        children = [pid for pid in had_ns if pid not in self._pids and had_ns[pid] >= LEAST_CHILD_NS]
        return sorted(children, key=lambda pid: -had_ns[pid])[: max(0, MOST_LOOKED_AT - len(self._pids))]

    def _end(self) -> None:
        """Ends every py-spy and removes its files. Can be repeated."""
        for spy in self._spies:
            spy.ask_to_end()
        for spy in self._spies:
            spy.close()


class _Spy:
    def __init__(self, pid: int, *, may_pause: bool) -> None:
        self.pid = pid
        self._child = Child("profile")
        threads = 1  # where it is not known py-spy finds out what is wrong
        with suppress(psutil.Error):
            threads = psutil.Process(pid).num_threads()
        self.pauses = may_pause and threads <= MOST_PAUSED_THREADS
        """Whether the process is paused at each sample."""
        self._output = self._child.directory / f"{pid}.raw"
        self.problem = ""
        """Why it sees nothing."""
        self.cpu_before: tuple[int, int] | None = None
        """The CPU time of the process's main thread and of all, when the sampling had begun."""

    def start(self, program: str, options: Sequence[str], cores: frozenset[int] | None) -> None:
        how = ("--rate", str(RATE_HZ), "--threads", *options, *(() if self.pauses else ("--nonblocking",)))
        form = ("--format", "raw", "--full-filenames", "--function", "--output", str(self._output))
        command = (program, "record", "--pid", str(self.pid), *how, *form)
        supervised = scratch.supervised(command, self._child.directory, cores=cores)
        try:
            self._child.start(Invocation(command=supervised, env=os.environ))
        except OSError as error:
            self.problem = f"py-spy cannot be started: {error}"

    def has_begun(self, deadline_s: float) -> bool:
        while not self.problem and time.monotonic() < deadline_s:
            ended = self._child.ended() is not None
            # Not its last lines alone: the reason is the first one, and a Rust backtrace may follow.
            said = (self._child.directory / "log.txt").read_text(encoding="utf-8", errors="replace")
            if _SAMPLING in said:
                return True
            if ended:
                self.problem = _reason(self.pid, said)
                return False
            time.sleep(_POLL_S)
        self.problem = self.problem or f"py-spy did not find its way into process {self.pid} in {START_S:g} s"
        self.end()
        return False

    def ask_to_end(self) -> None:
        """Asks it to write down what it has seen. Windows has no such signal: there it ends with its time."""
        if os.name == "posix":
            self._child.ask_to_end(signal.SIGINT)

    def collected(self, deadline_s: float) -> str | None:
        """Waits for its end and returns what it has seen; None where it could see nothing."""
        if self.problem:
            return None
        self._child.ended(wait_s=max(0.0, deadline_s - time.monotonic()))
        self.end()
        try:
            return self._output.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self.problem = f"py-spy wrote nothing down of what it saw of process {self.pid}"
            return None

    def cpu_s(self) -> CpuTime | None:
        """Returns the CPU time of the main thread and of all others since the sampling began; None if unknown."""
        before, after = self.cpu_before, _cpu_ns(self.pid)
        if before is None or after is None or after[1] <= before[1]:
            return None
        main_ns, all_ns = after[0] - before[0], after[1] - before[1]
        return main_ns / 1e9, max(0, all_ns - main_ns) / 1e9

    def end(self) -> None:
        """Ends it, at the latest in a moment. Can be repeated."""
        if not self._child.end(patience_s=LET_GO_S if os.name == "posix" else 0, ask=False):
            let_run(self.pid)

    def close(self) -> None:
        self.end()
        self._child.stop(patience_s=0)


def _cpu_ns(pid: int) -> tuple[int, int] | None:
    """Returns the CPU time of a process's main thread and of all; None if it has ended, or there is no /proc."""
    of_main, all_ns = read_start(f"/proc/{pid}/task/{pid}/schedstat").split(), cpu_time_ns(pid)
    return (int(of_main[0]), all_ns) if of_main and all_ns is not None else None


def let_run(pid: int) -> None:
    """Lets a process go on that was paused, or is about to be, as its py-spy was killed."""
    with suppress(psutil.Error):
        psutil.Process(pid).resume()


def _reason(pid: int, said: str) -> str:
    """Returns in one line why py-spy cannot look into a process, from what it said."""
    words = said.lower()
    if "permission denied" in words or "operation not permitted" in words:
        scope = read_start("/proc/sys/kernel/yama/ptrace_scope").decode().strip()
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        return f"this system does not let py-spy look into process {pid}{permission_needed(scope, is_root=is_root)}"
    if "failed to find python version" in words:
        return f"process {pid} is not a Python program that py-spy knows"
    if "check that the process is running" in words or "no such process" in words:
        return f"process {pid} has ended"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    told = next((line for line in lines if line.startswith(_ERROR)), lines[-1])
    return f"py-spy cannot look into process {pid}: {told.removeprefix(_ERROR)}"


def permission_needed(scope: str, *, is_root: bool) -> str:
    """Returns what is in the way, and what helps, for a Linux's `ptrace_scope` (empty where it has none)."""
    if sys.platform == "darwin":
        return ": macOS wants root for that (sudo)"
    if scope == "3":
        return " (ptrace_scope=3, until the machine starts again)"
    if is_root:
        return ": give the container the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
    if scope in ("1", "2"):
        return f" (ptrace_scope={scope}): run as root, or sudo sysctl kernel.yama.ptrace_scope=0"
    return ": it runs as another user, or has privileges of its own"
