"""How long each core of this machine was busy, whoever it worked for, and how long its host kept it from the machine.

Read before and after a load, it tells what others did meanwhile: what is left of a core's time without the server's
own. On Linux only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pytest_fileperf.watch.sample import CoreTime

__all__ = ("core_times", "cores_of", "parse_core_times")

_MOST_BYTES = 1 << 18
"""Lines of 2,000 cores, which come first."""


def core_times() -> tuple[CoreTime, ...]:
    """Returns what each core did so far; empty where the system does not tell. Takes some 15 µs with few cores."""
    if sys.platform != "linux":
        return ()
    try:
        file = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        return parse_core_times(os.read(file, _MOST_BYTES), unit_ns=1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    finally:
        os.close(file)


def parse_core_times(text: bytes, *, unit_ns: int) -> tuple[CoreTime, ...]:
    """Returns the cores of a `/proc/stat`, whose numbers count so many nanoseconds each.

    Time in interrupts goes both ways: where the kernel measures it, it is in no process's CPU time; where it only looks
    now and then what a core does, it is in that of the process that was interrupted, and hard interrupts are never
    seen. So it is busy time exactly where these are 0, and busy time less CPU time is that of other processes.
    """
    cores = []
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith(b"cpu"):
            break
        if name == b"cpu" or len(fields) < 8:
            continue
        user, nice, system, _idle, _iowait, hard, soft, stolen = map(int, fields[:8])
        busy = user + nice + system + (0 if hard else soft)
        cores.append(CoreTime(core=int(name[3:]), busy_ns=busy * unit_ns, stolen_ns=stolen * unit_ns))
    return tuple(cores)


def cores_of(pids: Iterable[int]) -> frozenset[int]:
    """Returns the cores on which any of these processes may run; empty where that is not known of one of them."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        return frozenset().union(*map(os.sched_getaffinity, pids))
    except OSError:
        return frozenset()
