"""How long each core of this machine was busy, for any process, and how long the machine's host gave it to others.

Read before and after a load, this tells what other processes did meanwhile: what is left of a core's time without the
server's own. On Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from pytest_fileperf.watch.procfs import read_start
from pytest_fileperf.watch.sample import CoreTime

__all__ = ("core_times", "cores_of", "parse_core_times")

_MOST_BYTES = 1 << 18
"""Holds the lines of 2,000 cores, which come first."""


def core_times() -> tuple[CoreTime, ...]:
    """Returns what each core did so far; empty where the system does not tell. Takes some 15 µs with few cores."""
    try:
        text = read_start("/proc/stat", _MOST_BYTES)
    except OSError:
        return ()
    return parse_core_times(text, unit_ns=1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def parse_core_times(text: bytes, *, unit_ns: int) -> tuple[CoreTime, ...]:
    """Returns the cores of a `/proc/stat`, whose numbers count so many nanoseconds each.

    Kernels differ in what they do with time in interrupts. One that measures it leaves it out of every process's CPU
    time. One that samples what a core does counts it for the process that was interrupted, and never sees hard
    interrupts. So here it is busy time only where hard interrupts are 0: busy time less the CPU time of a process is
    then that of other processes.
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
