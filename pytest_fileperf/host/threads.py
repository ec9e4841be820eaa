"""Finds out whether another process's threads are in the middle of work or wait for work. On Linux only.

`/proc/PID/task/TID/syscall` shows a thread's place: the system call in which it waits, and how deep its stack is. After
the load, each thread waits for work, in its event loop or at its pool's queue. If the thread had another place under
load, it was in the middle of work, such as a query.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from threading import get_native_id
from typing import Any, TypeAlias

from pytest_fileperf.host.sample import MainThread, ProcessUse, read_start

MOST_THREADS = 128
"""With more threads, only the main thread is judged, because each thread costs 2 µs and an open file."""
_Place: TypeAlias = tuple[int, int]
"""The system call's number (-1 for a wait outside of one, such as a page fault), and the stack pointer."""
RUNNING: _Place = (-2, 0)
"""The place of a thread that runs on a core, or waits for a core."""
Observation: TypeAlias = tuple[tuple[_Place | None, ...], Mapping[int, bool]]
"""The threads' places, the main thread's first. Then, for some threads by index, whether they wait for storage.

A place is None if the thread has ended or cannot be read.
"""


class ThreadWatch:
    """One process's threads. Call `observe` under load, `rest` once after it, then `judged` for each observation."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[int, int] = {}
        """Each thread's open file descriptor, by thread id in the order of discovery; -1 if it is closed."""
        self._before: dict[int, int] = {}
        """How often each thread had been on a core before its first observation."""
        self._known: dict[_Place, _Place] = {}
        self._idle: tuple[_Place | None, ...] = ()
        """The place at which each thread waits for work. None if unknown."""
        self._worked: set[int] = set()
        """Indexes of threads that `judged` found in the middle of work."""
        self._complete = True

    def observe(self) -> Observation:
        """Returns the threads' places now. There are no places if the process has ended, or outside of Linux."""
        first = not self._files
        for thread in _threads_of(self._pid):
            if thread in self._files:
                continue
            if len(self._files) > MOST_THREADS:
                self._complete = False
                break
            self._files[thread] = self._open(thread)
            self._before[thread] = _times_on_core(self._pid, thread) if first else 0
        # States first: calls that wait for the disk have often ended when their place is read.
        states = self._states()
        return tuple(self._place(thread, file) for thread, file in self._files.items()), states

    def rest(self) -> bool:
        """Notes the places at which the threads wait for work. Returns False if a thread still runs."""
        places, _ = self.observe()
        self._idle = tuple(None if place == RUNNING else place for place in places)
        return RUNNING not in places

    def judged(self, use: ProcessUse, seen: Observation) -> ProcessUse:
        """Returns `use` with the threads' activity in the observation `seen`. Call it after `rest`."""
        places, states = seen
        if not places or not self._idle:
            return use
        found: dict[str, Any] = {"main": self._main(places[0], stalled=states.get(0, False))}
        if self._complete:
            # An observation has fewer places than `_idle` if threads began later.
            both = enumerate(zip(places, self._idle, strict=False))
            busy = {index: (place, idle) for index, (place, idle) in both if index and place and idle and place != idle}
            self._worked.update(busy)
            checked = [stalled for index, stalled in states.items() if index in busy]
            found |= {
                "running_threads": places.count(RUNNING),
                "busy_threads": len(busy),
                "storage_threads": round(len(busy) * sum(checked) / len(checked)) if checked else 0,
                # Every pool waits for work in the system call for locks.
                "lock_threads": sum(place[0] == idle[0] for place, idle in busy.values()),
            }
        return replace(use, **found)

    def active(self) -> int:
        """Returns how many threads, without the main thread, have run since the first observation."""
        return len(self._active())

    def pool(self) -> int | None:
        """Returns how many active threads belong to pools with at least one busy thread. None if unknown.

        Threads that wait for work in the same code are a pool.
        """
        if not self._idle or not self._complete:
            return None
        pools = {self._pool_of(index) for index in self._worked} - {None}
        return sum(self._pool_of(index) in pools for index in self._active())

    def close(self) -> None:
        for thread, file in self._files.items():
            self._close(thread, file)

    def _open(self, thread: int) -> int:
        try:
            return os.open(f"/proc/{self._pid}/task/{thread}/syscall", os.O_RDONLY)
        except FileNotFoundError:  # it has ended
            pass
        except OSError:  # another user's thread, or this process has too many open files
            self._complete = False
        return -1

    def _place(self, thread: int, file: int) -> _Place | None:
        if file < 0:
            return None
        try:
            fields = os.pread(file, 256, 0).split()
        except OSError as error:
            self._complete = self._complete and isinstance(error, ProcessLookupError)  # it has ended
            self._close(thread, file)
            return None
        if len(fields) < 3:
            return RUNNING
        place = (int(fields[0]), int(fields[-2], 16))
        return self._known.setdefault(place, place)

    def _close(self, thread: int, file: int) -> None:
        if file >= 0:
            os.close(file)
        self._files[thread] = -1

    def _states(self) -> Mapping[int, bool]:
        """Returns by index whether a thread waits for storage (Linux's state `D`). Checks at most 9 threads."""
        threads = list(self._files)
        if not threads:
            return {}
        some = (0, *random.sample(range(1, len(threads)), min(len(threads) - 1, 8)))
        stats = {index: read_start(f"/proc/{self._pid}/task/{threads[index]}/stat") for index in some}
        return {index: stat.rpartition(b")")[2].split()[:1] == [b"D"] for index, stat in stats.items()}

    def _main(self, place: _Place | None, *, stalled: bool) -> MainThread | None:
        idle = self._idle[0]
        if place is None or idle is None:
            return None
        if stalled:
            return MainThread.STORAGE
        if place == RUNNING:
            return MainThread.RUNNING
        # An event loop waits at several depths, and only event loops wait in its system call.
        return MainThread.IDLE if place[0] == idle[0] else MainThread.BLOCKED

    def _active(self) -> list[int]:
        return [
            index
            for index, (thread, before) in enumerate(self._before.items())
            if index and _times_on_core(self._pid, thread) > before
        ]

    def _pool_of(self, index: int) -> _Place | None:
        """Returns a value that is equal for threads that wait for work in the same code. None if unknown."""
        place = self._idle[index] if index < len(self._idle) else None
        # Stacks begin at page boundaries.
        return None if place is None else (place[0], place[1] & 0xFFF)


def _threads_of(pid: int) -> list[int]:
    """Returns thread ids, the main thread's first, without the calling thread's. Empty without /proc."""
    try:
        threads = {int(name) for name in os.listdir(f"/proc/{pid}/task")}  # noqa: PTH208 # pathlib is slow
    except OSError:
        return []
    return sorted(threads - {get_native_id()}, key=lambda thread: (thread != pid, thread))


def _times_on_core(pid: int, thread: int) -> int:
    fields = read_start(f"/proc/{pid}/task/{thread}/schedstat").split()
    return int(fields[2]) if len(fields) == 3 else 0
