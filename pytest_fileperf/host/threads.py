"""What another process's threads do: are they in the middle of work, or do they wait for it? On Linux only.

`/proc/PID/task/TID/syscall` shows in which system call a thread waits, and how deep its stack is there. A thread
without work waits at a place of its own, in its event loop or at its pool's queue. Once the load is over, it stands
there. At any other place it was in the middle of work, such as a query or a lock. This needs no
knowledge of languages and pools, and does not count threads that always wait.
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
"""With more, only the main thread is judged: each costs 2 µs a time, and an open file."""
_STATES_EACH_TIME = 8
"""Threads whose state is read in one observation. Over several, they show which share waits for storage."""
_PAGE = 0xFFF
"""Stacks begin at page boundaries. So threads that wait in the same code are at the same place of their page."""

_Place: TypeAlias = tuple[int, int]
"""Number of the system call (-1: a wait outside of one, such as a page fault) and stack pointer."""
RUNNING: _Place = (-2, 0)
"""On a core, or waiting for one."""


Observation: TypeAlias = tuple[tuple[_Place | None, ...], Mapping[int, bool]]
"""Places of threads, the main one first (None: ended, or unreadable), and which wait for storage, by index."""


class ThreadWatch:
    """The threads of one process: `observe` under load, `rest` once after it, then `judged` for each observation."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[int, int] = {}
        """By thread, in the order of discovery; reading an open file costs a quarter of opening it. -1: closed."""
        self._before: dict[int, int] = {}
        """How often each thread had been on a core before its first observation."""
        self._known: dict[_Place, _Place] = {}
        """Every place once: a long watch keeps many references to few of them."""
        self._idle: tuple[_Place | None, ...] = ()
        self._worked: set[int] = set()
        """Indexes of threads that an observation found in the middle of work."""
        self._complete = True

    def observe(self) -> Observation:
        """Returns the threads' places. Empty if the process has ended, or outside of Linux."""
        first = not self._files
        for thread in _threads_of(self._pid):
            if thread in self._files:
                continue
            if len(self._files) > MOST_THREADS:
                self._complete = False
                break
            self._files[thread] = self._open(thread)
            self._before[thread] = _times_on_core(self._pid, thread) if first else 0
        # States first: a call that waits for the disk again and again has often ended when its place is read.
        states = self._states()
        return tuple(self._place(thread, file) for thread, file in self._files.items()), states

    def rest(self) -> bool:
        """Notes the places after the load, where threads wait for work. Returns False if some still run."""
        places, _ = self.observe()
        self._idle = tuple(None if place == RUNNING else place for place in places)
        return RUNNING not in places

    def judged(self, use: ProcessUse, seen: Observation) -> ProcessUse:
        """Returns the process with its threads' activity, if it is known where they wait for work."""
        places, states = seen
        if not places or not self._idle:
            return use
        found: dict[str, Any] = {"main": self._main(places[0], stalled=states.get(0, False))}
        if self._complete:
            # It is unknown where a later thread waits for work.
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
        """Returns how many threads, besides the main one, ran at all since their discovery."""
        return len(self._active())

    def pool(self) -> int | None:
        """Returns how many active threads wait for work at the busy ones' place. None if the place is unknown."""
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
        """Returns, for the main thread and some others, whether they wait for storage, which no signal interrupts."""
        threads = list(self._files)
        if not threads:
            return {}
        some = (0, *random.sample(range(1, len(threads)), min(len(threads) - 1, _STATES_EACH_TIME)))
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
        # An event loop waits at several depths, and nothing else waits in its system call.
        return MainThread.IDLE if place[0] == idle[0] else MainThread.BLOCKED

    def _active(self) -> list[int]:
        return [
            index
            for index, (thread, before) in enumerate(self._before.items())
            if index and _times_on_core(self._pid, thread) > before
        ]

    def _pool_of(self, index: int) -> _Place | None:
        """Returns a value that is equal for threads that wait for work in the same code."""
        place = self._idle[index] if index < len(self._idle) else None
        return None if place is None else (place[0], place[1] & _PAGE)


def _threads_of(pid: int) -> list[int]:
    """Returns the threads, the main one first, without the calling one. Empty on systems without /proc."""
    try:
        threads = {int(name) for name in os.listdir(f"/proc/{pid}/task")}  # noqa: PTH208 # pathlib is slow
    except OSError:
        return []
    return sorted(threads - {get_native_id()}, key=lambda thread: (thread != pid, thread))


def _times_on_core(pid: int, thread: int) -> int:
    """Returns how often the thread got a core; 0 if it has ended."""
    fields = read_start(f"/proc/{pid}/task/{thread}/schedstat").split()
    return int(fields[2]) if len(fields) == 3 else 0
