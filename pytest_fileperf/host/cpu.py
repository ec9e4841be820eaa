"""Reads other processes' CPU time and memory, on Linux without psutil."""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple, Self, TypeVar

from pytest_fileperf.host.sample import ProcessUse, read_start

MOST_FILES_LISTED = 1_000
"""Before Linux 6.2, `open_files` has to list the files, and gives up after this many."""


def reset_peak_rss(pids: Iterable[int]) -> bool:
    """Resets each process's peak memory in the kernel. Returns whether that worked for all processes."""
    found = True
    for pid in pids:
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # see proc_pid_clear_refs(5)
        except OSError:
            found = False
    return found


def peak_rss_bytes(pids: Iterable[int]) -> int | None:
    """Returns the sum of the processes' peak resident memory since `reset_peak_rss`.

    Outside of Linux, it is their current memory. None without processes, or if a process's memory is unknown.
    """
    sizes = [_peak_rss_bytes(pid) for pid in pids]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def io_stalled_ns() -> int | None:
    """Returns how long at least one process waited for storage since the machine's start. None if not reported."""
    some = read_start("/proc/pressure/io").split(b"\n", 1)[0]
    return int(some.rpartition(b"total=")[2]) * 1000 if some else None


def files_limit(pids: Sequence[int]) -> int | None:
    """Returns the lowest limit of open files among these processes. None on systems that do not report it."""
    lines = (line for pid in pids for line in read_start(f"/proc/{pid}/limits").splitlines())
    soft = (line.split()[3] for line in lines if line.startswith(b"Max open files"))
    return min((int(limit) for limit in soft if limit.isdigit()), default=None)


def open_files(directory: str) -> int | None:
    """Returns how many files a directory such as `/proc/PID/fd` has. None if unknown (see `MOST_FILES_LISTED`)."""
    try:
        if count := os.stat(directory).st_size:  # noqa: PTH116 # pathlib is slow; since Linux 6.2, 0 before
            return count
        with os.scandir(directory) as files:
            count = sum(1 for _ in islice(files, MOST_FILES_LISTED + 1))
    except OSError:
        return None
    return count if count <= MOST_FILES_LISTED else None


# --- One process, and the processes below it: from /proc on Linux, elsewhere from psutil


class _Use(NamedTuple):
    """A process's parent id, and its CPU times so far in ns."""

    parent: int
    own: int
    ended: int
    """CPU time of ended children for which this process has waited."""


if sys.platform == "linux":
    _TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
    _MOST_BYTES = 1 << 16

    def cpu_time_ns(pid: int) -> int | None:
        """Returns the process's CPU time. None if the process has ended, or belongs to another user."""
        try:
            return time.clock_gettime_ns((~pid << 3) | 2)  # as clock_getcpuclockid(3): 2 for user and system time
        except OSError:
            return None

    def _peak_rss_bytes(pid: int) -> int | None:
        for line in read_start(f"/proc/{pid}/status", _MOST_BYTES).splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
        return None  # a zombie has no memory left

    def process_use(pid: int) -> ProcessUse | None:
        """Returns a process's figures, without threads' activity. None for ended and other users' processes."""
        cpu_ns, memory = cpu_time_ns(pid), read_start(f"/proc/{pid}/statm").split()
        try:
            # Two links and one for each thread. pathlib would cost more than the call.
            threads = os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116
        except OSError:
            return None
        if cpu_ns is None or not memory:
            return None
        # The main thread's CPU time and wait for a core, which some kernels do not count.
        ran_ns, waited_ns, *_ = (*map(int, read_start(f"/proc/{pid}/schedstat").split()), None, None)
        # Empty for another user's process.
        storage = dict(line.split(b": ") for line in read_start(f"/proc/{pid}/io").splitlines())
        about = read_start(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        return ProcessUse(
            pid=pid,
            cpu_ns=cpu_ns,
            main_cpu_ns=ran_ns,
            waiting_ns=waited_ns,
            rss_bytes=int(memory[1]) * _PAGE_BYTES,
            threads=threads,
            files=open_files(f"/proc/{pid}/fd"),
            written_bytes=int(storage[b"write_bytes"]) if storage else None,
            read_bytes=int(storage[b"read_bytes"]) if storage else None,
            page_faults=int(about[7]) if about else None,
        )

    def tree_pids(roots: Iterable[int]) -> tuple[int, ...]:
        """Returns the ids of the processes and their descendants, parents before children."""
        found = dict.fromkeys(roots)
        waiting = list(found)
        for pid in waiting:
            try:
                threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 # pathlib is slow
            except OSError:
                continue
            # Each child belongs to the thread that started it.
            lists = (read_start(f"/proc/{pid}/task/{thread}/children", _MOST_BYTES) for thread in threads)
            children = [child for each in lists for child in map(int, each.split()) if child not in found]
            found.update(dict.fromkeys(children))
            waiting += children
        return tuple(found)

    def _use_of(pid: int) -> _Use | None:
        own_ns = cpu_time_ns(pid)
        fields = read_start(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if own_ns is None or len(fields) < 15:
            return None
        return _Use(parent=int(fields[1]), own=own_ns, ended=(int(fields[13]) + int(fields[14])) * _TICK_NS)

else:
    import psutil

    _T = TypeVar("_T")

    def _told(pid: int, tell: Callable[[psutil.Process], _T]) -> _T | None:
        try:
            return tell(psutil.Process(pid))
        except psutil.Error:
            return None

    def _ns(*seconds: float) -> int:
        return round(sum(seconds) * 1e9)

    def cpu_time_ns(pid: int) -> int | None:
        return _told(pid, lambda process: _ns(*process.cpu_times()[:2]))

    def _peak_rss_bytes(pid: int) -> int | None:
        return _told(pid, lambda process: int(process.memory_info().rss))

    def process_use(pid: int) -> ProcessUse | None:
        def tell(process: psutil.Process) -> ProcessUse:
            with process.oneshot():
                return ProcessUse(
                    pid=pid,
                    cpu_ns=_ns(*process.cpu_times()[:2]),
                    main_cpu_ns=None,
                    waiting_ns=None,
                    rss_bytes=int(process.memory_info().rss),
                    threads=process.num_threads(),
                    files=process.num_fds() if hasattr(process, "num_fds") else None,
                    written_bytes=None,
                    read_bytes=None,
                )

        return _told(pid, tell)

    def tree_pids(roots: Iterable[int]) -> tuple[int, ...]:
        found = dict.fromkeys(roots)
        for pid in tuple(found):
            below = _told(pid, lambda process: [child.pid for child in process.children(recursive=True)])
            found.update(dict.fromkeys(below or ()))
        return tuple(found)

    def _use_of(pid: int) -> _Use | None:
        def tell(process: psutil.Process) -> _Use:
            user, system, children_user, children_system, *_ = process.cpu_times()
            return _Use(parent=process.ppid(), own=_ns(user, system), ended=_ns(children_user, children_system))

        return _told(pid, tell)


# --- The CPU time of a whole process tree, with children that begin and end meanwhile


class TreeCpu:
    """Reads the CPU time of processes and their descendants. A reading takes some 30 µs for each process.

    The kernel adds an ended child's CPU time to the parent that waits for the child. If nobody waits, as with an
    ignored SIGCHLD, the time is lost.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = tuple(roots)
        self.is_complete = True
        """Whether no CPU time has been lost so far."""
        self.pids: tuple[int, ...] = ()
        self.ended_ns = 0
        """CPU time of the processes that have ended since the first reading."""
        self.total_ns: int | None = None
        self._last: dict[int, _Use] = {}
        self._kept_ns = 0

    def spent_ns(self) -> int | None:
        """Reads the processes' CPU time. Only differences between results have a meaning. None if time was lost."""
        found = self._read()
        # Reads until two readings agree, because a child that ends between its own reading and its parent's counts
        # twice.
        for _ in range(5 if len(found) > len(self.roots) else 0):
            before, found = found, self._read()
            if all(use.ended == before[pid].ended for pid, use in found.items() if pid in before):
                break
        self.pids = tuple(found)
        gone = [use for pid, use in self._last.items() if pid not in found or found[pid].own < use.own]
        taken_ns = sum(max(0, found[pid].ended - use.ended) for pid, use in self._last.items() if pid in found)
        missing_ns = sum(use.own + use.ended for use in gone) - taken_ns
        self.ended_ns += taken_ns
        # Linux reports ended children's time in steps of 10 ms, twice. So up to 30 ms of each may only seem lost.
        self.is_complete = self.is_complete and missing_ns <= 30_000_000 * len(gone)
        self._kept_ns += max(0, missing_ns)
        self._last = found
        known = bool(found) and self.is_complete
        self.total_ns = self._kept_ns + sum(use.own + use.ended for use in found.values()) if known else None
        return self.total_ns

    def own_ns(self) -> dict[int, int]:
        """Returns each process's own CPU time in the last reading, by process id."""
        return {pid: use.own for pid, use in self._last.items()}

    def above(self, pids: Iterable[int]) -> frozenset[int]:
        """Returns the ids of these processes' ancestors in the last reading."""
        found: set[int] = set()
        for pid in pids:
            while (use := self._last.get(pid)) is not None and use.parent in self._last and use.parent not in found:
                pid = use.parent
                found.add(pid)
        return frozenset(found)

    def _read(self) -> dict[int, _Use]:
        pids = dict.fromkeys((*tree_pids(self.roots), *self._last))
        uses = ((pid, _use_of(pid)) for pid in reversed(pids))  # a child that ends now counts in its parent
        found = {pid: use for pid, use in uses if use is not None}
        return {pid: found[pid] for pid in pids if pid in found}


# --- The CPU time of processes over time, for loads whose generators are on other machines

_INTERVAL_S = 0.02


class CpuSeries:
    """Reads a process tree's CPU time in its `with` block, every 20 ms and at requested instants."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._tree = TreeCpu(roots)
        self._at_ns = array("q")
        self._spent_ns = array("q")
        self._is_known = True
        self._asked_ns: deque[int] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf CPU series", daemon=True)

    def __enter__(self) -> Self:
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._read()

    def read_at(self, instants_ns: Iterable[int]) -> None:
        """Requests readings at these ascending instants of the monotonic clock. Replaces earlier requests."""
        self._asked_ns = deque(instants_ns)

    def spent_ns(self, from_ns: int, to_ns: int) -> int | None:
        """Returns the tree's CPU time between two instants, interpolated. None if some CPU time was lost."""
        before, after = self._until(from_ns), self._until(to_ns)
        return None if before is None or after is None else max(0, round(after - before))

    def _main(self) -> None:
        while self._is_known and not self._over.wait(self._pause_s()):
            self._read()

    def _pause_s(self) -> float:
        now_ns, asked_ns = monotonic_ns(), self._asked_ns
        while asked_ns and asked_ns[0] <= now_ns:
            asked_ns.popleft()
        left_s = (asked_ns[0] - now_ns) / 1e9 if asked_ns else _INTERVAL_S
        return min(left_s, _INTERVAL_S)

    def _read(self) -> None:
        now_ns = monotonic_ns()
        spent_ns = self._tree.spent_ns()
        if spent_ns is None:  # every process is gone, or one ended and nobody waited for it
            self._is_known = False
        else:
            self._at_ns.append(now_ns)
            self._spent_ns.append(spent_ns)

    def _until(self, at_ns: int) -> float | None:
        place = bisect_right(self._at_ns, at_ns)
        if not self._is_known or place == 0:
            return None
        if place == len(self._at_ns):
            return float(self._spent_ns[-1])
        start_ns, end_ns = self._at_ns[place - 1], self._at_ns[place]
        share = (at_ns - start_ns) / (end_ns - start_ns)
        return self._spent_ns[place - 1] + share * (self._spent_ns[place] - self._spent_ns[place - 1])
