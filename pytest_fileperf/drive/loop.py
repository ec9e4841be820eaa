"""The load loop: gives each free slot its next piece of work when the load's schedule (`Pacing`) says so.

A slot does one piece of work at a time: one request, or one call of a user's function.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import Protocol

from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.units import format_duration

# --- A timer that is accurate to a few microseconds; the event loop's own timers are accurate to a millisecond

# `os.timerfd_create` exists from Python 3.13 on.
_LIBC: ctypes.CDLL | None = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME, <sys/timerfd.h>
_MONOTONIC = 1  # CLOCK_MONOTONIC, <time.h>
_TimerSpec = ctypes.c_long * 4  # struct itimerspec: interval and value, both in seconds and nanoseconds


class Timer:
    """Calls `callback` at a given instant. Close the timer before its event loop ends.

    Event loops round their timers to milliseconds. Linux has a kernel timer that is not rounded (timerfd). Other
    systems get the event loop's timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1 if _LIBC is None else _LIBC.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expired)

    def set(self, instant_ns: int) -> None:
        """Sets the timer to this instant of the monotonic clock, in place of any earlier one."""
        if self._fd >= 0 and _LIBC is not None:
            seconds, nanoseconds = divmod(max(1, instant_ns), 1_000_000_000)  # all zero would switch it off
            _LIBC.timerfd_settime(self._fd, _ABSOLUTE, _TimerSpec(0, 0, seconds, nanoseconds), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0, instant_ns - monotonic_ns()) / 1e9, self._callback)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew in the same turn of the event loop
            return
        self._callback()


# --- loop


class Turns(Protocol):
    """The part of a load that slots use. A free slot calls `next` with itself to get its next piece of work."""

    timeout_ns: int
    too_late: str
    at_once: bool

    def next(self, slot: Slot, /) -> None: ...


class Slot(Protocol):
    def start(self, due_ns: int | None) -> None:
        """Begins a piece of work. When the work has ended, the slot calls `LoadLoop.next` with itself.

        `due_ns` is the instant for which the work was scheduled; None if the load has no timetable (a closed loop).
        """

    def expire(self, started_before_ns: int) -> None:
        """Fails the current piece of work if it began before `started_before_ns`."""


class LoadLoop:
    """Gives work to slots until the load's schedule (`pacing`) ends."""

    def __init__(
        self,
        *,
        pacing: Pacing,
        recorder: Recorder,
        timeout_ns: int,
        pauses: Iterator[Iterator[int]] | None = None,
        alone_s: float = 0.0,
    ) -> None:
        """`pauses` yields an iterator for each slot. That iterator yields the pauses before the slot's work, in ns.

        With `alone_s`, a single slot begins. The others follow when its first work has ended, or after this time.
        """
        self.pacing = pacing
        self._pauses = pauses
        self._pauses_of: dict[Slot, Iterator[int]] = {}
        self._pausing: dict[Slot, asyncio.TimerHandle] = {}
        self._recorder = recorder
        self.timeout_ns = timeout_ns
        """Time limit for a piece of work. Its wait for a free slot has the same limit."""
        self.too_late = f"no complete answer within the time limit of {format_duration(timeout_ns)}"
        self._loop = asyncio.get_running_loop()
        self._origin_ns = 0
        self.started = 0
        """How many pieces of work have been due so far, both begun and dropped ones."""
        self._alone_s = alone_s
        self._followers: Sequence[Slot] = ()
        self._free: deque[Slot] = deque()
        self.at_once = False
        """Whether `next` begins work before it returns. True for a single slot in a closed loop without pauses."""
        # If slots may rest, the slot that was used last gets the next work.
        self._take = self._free.pop if pacing.slots_rest else self._free.popleft
        self._woken = False
        self._is_over = False
        self._timer: Timer | None = None
        self._slots = 0
        """How many slots may still get work."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.last_start_ns = 0

    async def run(self, slots: Sequence[Slot], *, origin_ns: int) -> None:
        """Runs until all work has ended. `origin_ns` is when the load begins, on the monotonic clock."""
        self._origin_ns = origin_ns
        self._slots = len(slots)
        self.at_once = self._slots == 1 and not self.pacing.open_loop and self._pauses is None
        sweeper = asyncio.create_task(self._sweep(slots))
        self._timer = Timer(self._loop, self._start_free)
        try:
            at_once = slots[:1] if self._alone_s else slots
            for slot in at_once:
                self.next(slot)
            self._followers = slots[len(at_once) :]
            if self._followers:
                self._loop.call_later(self._alone_s, self._follow)
            await self._ended
        finally:
            self._followers = ()
            self._is_over = True  # slots that are cut off become free, and must not begin anything
            sweeper.cancel()
            self._timer.close()
            self._woken_for_nothing()

    def next(self, slot: Slot) -> None:
        """Gives a free slot its next piece of work as soon as work is due."""
        if self._followers:
            self._follow()
        if self._pauses is not None:
            self._pause(slot, self._pauses)
            return
        if self.at_once and self._has_begun(slot):
            return
        self._free.append(slot)
        if self._slots == 1:
            self._start_free()
            return
        # First, the event loop handles all answers that arrived together. Otherwise large writes would push unread
        # answers out of the CPU's cache.
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._start_free)

    def _follow(self) -> None:
        followers, self._followers = self._followers, ()
        for follower in followers:
            self.next(follower)

    def _has_begun(self, slot: Slot) -> bool:
        """With a single slot: begins its next work if that is due. Returns whether it was due."""
        now_ns = monotonic_ns()
        elapsed_ns = now_ns - self._origin_ns
        due_ns = self.pacing.due(elapsed_ns, self.started, 0)
        if due_ns is None or due_ns > elapsed_ns or self._is_over:
            return False
        self.started += 1
        self.last_start_ns = now_ns
        slot.start(None)
        return True

    def _has_paused(self, slot: Slot) -> None:
        del self._pausing[slot]
        self._free.append(slot)
        self._start_free()

    def _pause(self, slot: Slot, pauses: Iterator[Iterator[int]]) -> None:
        """Lets a slot pause. If no work will be left after the pause, the slot ends."""
        if slot not in self._pauses_of:
            self._pauses_of[slot] = next(pauses)
        pause_ns = next(self._pauses_of[slot])
        elapsed_ns, due = monotonic_ns() - self._origin_ns, self.pacing.due
        if due(elapsed_ns + pause_ns, self.started, self._slots - 1) is not None:
            self._pausing[slot] = self._loop.call_later(pause_ns / 1e9, self._has_paused, slot)
        elif due(elapsed_ns, self.started, self._slots - 1) is not None:
            self._retire(1)
        else:
            self._retire(1 + self._woken_for_nothing())

    def _start_free(self) -> None:
        """Starts due work on free slots, and sets the timer for later work. If no work is left, the slots end."""
        self._woken = False
        if self._is_over:
            return
        free, due, open_loop = self._free, self.pacing.due, self.pacing.open_loop
        # At most 64 requests are dropped at once. The rest goes on after other work of the event loop.
        for _ in range(len(free) + 64):
            if not free:
                return
            now_ns = monotonic_ns()
            elapsed_ns = now_ns - self._origin_ns
            due_ns = due(elapsed_ns, self.started, self._slots - len(free))
            if due_ns is None:
                count = len(free) + self._woken_for_nothing()
                free.clear()
                self._retire(count)
                return
            if due_ns > elapsed_ns:
                assert self._timer is not None
                self._timer.set(self._origin_ns + due_ns)
                return
            self.started += 1
            self.last_start_ns = now_ns
            if not open_loop:
                self._take().start(None)
            elif self._recorder.due(self._origin_ns + due_ns, now_ns, self.timeout_ns):
                self._take().start(self._origin_ns + due_ns)
        if free and not self._woken:
            self._woken = True
            self._loop.call_soon(self._start_free)

    def _woken_for_nothing(self) -> int:
        """Ends all pauses, because no work is left. Returns how many slots paused."""
        count = len(self._pausing)
        for timer in self._pausing.values():
            timer.cancel()
        self._pausing.clear()
        return count

    def _retire(self, count: int) -> None:
        self._slots -= count
        if self._slots == 0 and not self._ended.done():
            self._ended.set_result(None)

    def abort(self, error: BaseException) -> None:
        """Makes `run` raise `error`."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _sweep(self, slots: Sequence[Slot]) -> None:
        # Looking at 10,000 connections takes a millisecond. A slot itself refuses an answer that comes too late.
        pause_s = min(1.0, max(0.1, self.timeout_ns / 1e9 / 50))
        while True:
            await asyncio.sleep(pause_s)
            now_ns = monotonic_ns()
            self._recorder.advance(now_ns)
            for slot in slots:
                slot.expire(now_ns - self.timeout_ns)
