"""CPU time and peak memory of other processes, read in microseconds and, on Linux, without psutil.

The load generator calls this between rounds, in its own process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ("cpu_times_ns", "peak_rss_bytes", "reset_peak_rss")

_CPUCLOCK_SCHED = 2
"""From the kernel's posix-timers: the clock of a whole process that counts the scheduler's time, user and system."""


def cpu_times_ns(pids: Iterable[int]) -> dict[int, int]:
    """Returns the CPU time so far of each process, in ns, without processes that are gone, or that we may not read."""
    times = {pid: _cpu_time_ns(pid) for pid in pids}
    return {pid: time_ns for pid, time_ns in times.items() if time_ns is not None}


def reset_peak_rss(pids: Iterable[int]) -> bool:
    """Starts a new measurement of peak memory in each process; returns whether that worked for all of them."""
    reset = [_reset_peak_rss(pid) for pid in pids]
    return all(reset)


def peak_rss_bytes(pids: Iterable[int]) -> int | None:
    """Returns the sum of each process's peak resident memory since the reset, or since its start.

    On other systems than Linux it is what they have now. None where one of them is unknown, or there are none.
    """
    sizes = [_peak_rss_bytes(pid) for pid in pids]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _reset_peak_rss(pid: int) -> bool:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # see proc_pid_clear_refs(5)
    except OSError:
        return False
    return True


if sys.platform == "linux":

    def _cpu_time_ns(pid: int) -> int | None:
        try:
            return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)  # what clock_getcpuclockid(3) returns
        except OSError:
            return None

    def _peak_rss_bytes(pid: int) -> int | None:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None  # a zombie has no memory any more

else:

    def _cpu_time_ns(pid: int) -> int | None:
        import psutil

        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.Error:
            return None
        return round((times.user + times.system) * 1e9)

    def _peak_rss_bytes(pid: int) -> int | None:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return None
