"""A timer that is exact to a few microseconds, where the event loop's own timers are good to a millisecond."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from time import monotonic_ns

__all__ = ("Timer",)


class Timer:
    """Calls back at an instant, one at a time. Close it before its event loop ends.

    uvloop rounds timers to whole milliseconds, and asyncio waits in them. A timer of the kernel that is read like a
    socket (timerfd, Linux) is not rounded; elsewhere it is the loop's own timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _timerfd()
        if self._fd is not None:
            loop.add_reader(self._fd, self._expired)

    def set(self, instant_ns: int) -> None:
        """Calls back at this instant of the monotonic clock, and no more at the one that was set before."""
        if self._fd is not None:
            _set_timerfd(self._fd, instant_ns)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0, instant_ns - monotonic_ns()) / 1e9, self._callback)

    def close(self) -> None:
        """Calls back no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _expired(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew in the same turn of the event loop
            return
        self._callback()


if sys.platform == "linux":
    import ctypes

    # `os.timerfd_create` is there from Python 3.13 only.
    _libc = ctypes.CDLL(None, use_errno=True)
    _ABSOLUTE = 1  # TFD_TIMER_ABSTIME, <sys/timerfd.h>
    _MONOTONIC = 1  # CLOCK_MONOTONIC, <time.h>

    class _Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    class _TimerSpec(ctypes.Structure):
        _fields_ = (("interval", _Timespec), ("value", _Timespec))

    def _timerfd() -> int | None:
        fd: int = _libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        return fd if fd >= 0 else None

    def _set_timerfd(fd: int, instant_ns: int) -> None:
        seconds, nanoseconds = divmod(max(1, instant_ns), 1_000_000_000)  # all zero would switch it off
        spec = _TimerSpec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        _libc.timerfd_settime(fd, _ABSOLUTE, ctypes.byref(spec), None)

else:

    def _timerfd() -> int | None:
        return None

    def _set_timerfd(fd: int, instant_ns: int) -> None:
        raise AssertionError("there are no timers to set where none was made")
