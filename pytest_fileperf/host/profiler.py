"""Profiles server processes from outside: py-spy reads each process's memory as the process runs.

py-spy pauses a process at each sample, so that the stacks show one moment. At 200 samples a second, an async server
loses about 5 % of its throughput. But a pause wakes every thread: a server with 34 threads loses 80 %. So a process
with many threads is not paused. Then a stack's innermost function is right, but its callers may be wrong.

A sample contains the threads that run or wait for a core, even threads that wait for Python's lock. With `by_lock`,
py-spy looks only at the thread that has the lock. Then it pauses nothing, but misses C code that releases the lock.
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
"""Samples a second. py-spy then takes a fifth of the load generator's core."""
MOST_PAUSED_THREADS = 8
"""A process with more threads is not paused, because each thread takes 0.3 ms to stop."""
MOST_LOOKED_AT = 4
"""If there are more processes, only the workers and their busiest child processes are profiled."""
LEAST_CHILD_NS = 50_000_000
"""A child process with less CPU time is idle, such as `multiprocessing`'s resource tracker. It is not profiled."""
START_S = 15.0
"""The longest time for py-spy to begin. Usually half a second is enough."""
TAIL_S = 2.0
"""py-spy's own time limit is this much longer than the sampling, so that `stop` comes first."""
END_S = 10.0
LET_GO_S = 2.0
"""How long py-spy may take to resume a paused process and end."""
CpuTime: TypeAlias = tuple[float, float]
"""CPU seconds of a process's main thread, and of all its other threads together."""
_ERROR = "Error: "
"""In py-spy's output, the line about the problem begins with this."""


def find_py_spy() -> str | None:
    """Returns py-spy's path. None if py-spy isn't installed."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return shutil.which("py-spy", path=os.pathsep.join(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    collapsed: tuple[str, ...]
    """A text for each process. A line is a thread, its stack and the number of samples (`py-spy --format raw`)."""
    cpu_s: tuple[CpuTime | None, ...]
    """For each process, the CPU time that it used while it was sampled. None if unknown."""
    torn: bool
    """Whether a process was sampled without pauses, so that a stack may mix several moments."""
    by_lock: bool = False
    """Whether stacks of other threads than the main thread come from a profiler with `by_lock`."""
    unseen_share: float = 0.0
    """The share of the server's CPU time in child processes that were not sampled."""
    notes: tuple[str, ...] = ()
    """For each process that could not be sampled, a line with the reason."""


class ProfilerUnavailableError(FilePerfError):
    """No process can be sampled. The message says why, in one line."""


class Profiler:
    """Samples processes, and their busy child processes, in its `with` block.

    `seconds` is the longest time to sample. `all_time` includes waiting threads. `by_lock` samples only the thread that
    has Python's lock. If no process can be sampled, entering the block or `stop` raises ProfilerUnavailableError.
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
        """Ends the sampling, and returns the samples. Call it once."""
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
            raise ProfilerUnavailableError("the server's process isn't known")
        if os.getpid() in self._pids:
            raise ProfilerUnavailableError("the app runs in the test process, where samples include the load generator")
        # `all_time` shows what event loops wait for: a resting child isn't part of that.
        children = () if self._all_time else self._working_children()
        for pid in (*self._pids, *children):
            self._spies.append(_Spy(pid, may_pause=not self._by_lock))
        which = {"--idle": self._all_time, "--gil": self._by_lock}
        options = [option for option, asked in which.items() if asked]
        options += ["--duration", str(math.ceil(self._seconds + TAIL_S))]
        for spy in self._spies:
            spy.start(program, options, self._cores)
        deadline_s = time.monotonic() + START_S
        workers, others = self._spies[: len(self._pids)], self._spies[len(self._pids) :]
        if not [spy for spy in workers if spy.has_begun(deadline_s)]:
            raise ProfilerUnavailableError(workers[0].problem)
        # The children's py-spies were started with the workers'. One that takes a second longer is left out.
        deadline_s = time.monotonic() + 1.0
        for spy in others:
            spy.has_begun(deadline_s)
        for spy in self._spies:
            spy.cpu_before = _cpu_ns(spy.pid)
        self._began_ns = self._tree.spent_ns()
        self._own_ns = self._tree.own_ns()

    def _working_children(self) -> list[int]:
        """Returns the ids of the child processes with the most CPU time."""
        self._tree.spent_ns()
        had_ns = self._tree.own_ns()
        children = [pid for pid in had_ns if pid not in self._pids and had_ns[pid] >= LEAST_CHILD_NS]
        return sorted(children, key=lambda pid: -had_ns[pid])[: max(0, MOST_LOOKED_AT - len(self._pids))]

    def _end(self) -> None:
        for spy in self._spies:
            spy.ask_to_end()
        for spy in self._spies:
            spy.close()


class _Spy:
    def __init__(self, pid: int, *, may_pause: bool) -> None:
        self.pid = pid
        self._child = Child("profile")
        threads = 1  # if the number is unknown, py-spy finds out what is wrong
        with suppress(psutil.Error):
            threads = psutil.Process(pid).num_threads()
        self.pauses = may_pause and threads <= MOST_PAUSED_THREADS
        self._output = self._child.directory / f"{pid}.raw"
        self.problem = ""
        """Why the process cannot be sampled; empty if it can."""
        self.cpu_before: tuple[int, int] | None = None
        """The result of `_cpu_ns` when the sampling began."""

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
            output = self._child.whole_log()
            if "Sampling process" in output:
                return True
            if ended:
                self.problem = _reason(self.pid, output)
                return False
            time.sleep(0.01)
        self.problem = self.problem or f"py-spy could not attach to process {self.pid} within {START_S:g} s"
        self.end()
        return False

    def ask_to_end(self) -> None:
        """Asks py-spy to end and write its samples. On Windows, py-spy ends after its `--duration`."""
        if os.name == "posix":
            self._child.ask_to_end(signal.SIGINT)

    def collected(self, deadline_s: float) -> str | None:
        """Waits for the end of py-spy, and returns its samples. None if py-spy could not sample."""
        if self.problem:
            return None
        self._child.ended(wait_s=max(0.0, deadline_s - time.monotonic()))
        self.end()
        try:
            return self._output.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self.problem = f"py-spy wrote no samples of process {self.pid}"
            return None

    def cpu_s(self) -> CpuTime | None:
        before, after = self.cpu_before, _cpu_ns(self.pid)
        if before is None or after is None or after[1] <= before[1]:
            return None
        main_ns, all_ns = after[0] - before[0], after[1] - before[1]
        return main_ns / 1e9, max(0, all_ns - main_ns) / 1e9

    def end(self) -> None:
        """Ends py-spy. If py-spy had to be killed, resumes the process, which may be paused."""
        if not self._child.end(patience_s=LET_GO_S if os.name == "posix" else 0, ask=False):
            let_run(self.pid)

    def close(self) -> None:
        self.end()
        self._child.stop(patience_s=0)


def _cpu_ns(pid: int) -> tuple[int, int] | None:
    """Returns (the main thread's CPU time in ns, all threads' CPU time). None if unknown."""
    of_main, all_ns = read_start(f"/proc/{pid}/task/{pid}/schedstat").split(), cpu_time_ns(pid)
    return (int(of_main[0]), all_ns) if of_main and all_ns is not None else None


def let_run(pid: int) -> None:
    """Resumes a process that a killed py-spy may have paused."""
    with suppress(psutil.Error):
        psutil.Process(pid).resume()


def _reason(pid: int, said: str) -> str:
    words = said.lower()
    if "permission denied" in words or "operation not permitted" in words:
        scope = read_start("/proc/sys/kernel/yama/ptrace_scope").decode().strip()
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        return f"this system does not let py-spy look into process {pid}{permission_needed(scope, is_root=is_root)}"
    if "failed to find python version" in words:
        return f"py-spy finds no Python that it knows in process {pid}. A newer py-spy may know it"
    if "check that the process is running" in words or "no such process" in words:
        return f"process {pid} has ended"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["py-spy gave no reason"]
    told = next((line for line in lines if line.startswith(_ERROR)), lines[-1])
    return f"py-spy cannot look into process {pid}: {told.removeprefix(_ERROR)}"


def permission_needed(scope: str, *, is_root: bool) -> str:
    """Returns a message's end about how to give py-spy access. `scope` is Linux's `ptrace_scope`, or empty."""
    if sys.platform == "darwin":
        return ": macOS allows it only to root (sudo)"
    if scope == "3":
        return " (kernel.yama.ptrace_scope=3). Set it to 0 in the machine's configuration, and restart the machine"
    if is_root:
        return ": give the container the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
    if scope in ("1", "2"):
        return f" (ptrace_scope={scope}). Run pytest as root, or run `sudo sysctl kernel.yama.ptrace_scope=0`"
    return ". It may run as another user. Run pytest as that user, or as root"
