"""What is seen of a server under load at one instant: its processes, the generator, the sockets between."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# --- Reads files of Linux's /proc in three system calls: what pathlib adds would cost more than they do


def read_start(path: str, size_bytes: int = 4096) -> bytes:
    """Returns the first bytes of a file; nothing where it cannot be read, as on systems without /proc."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, size_bytes)
    except OSError:  # the process has just ended
        return b""
    finally:
        os.close(file)


# --- What is seen at one instant, and of the threads of a run


class MainThread(StrEnum):
    """What a process's main thread did at one instant; a Python web server's event loop runs on it."""

    IDLE = "idle"
    """It waited for something to do, as it does when there is no load."""
    RUNNING = "running"
    """It was on a core, or waited for one."""
    BLOCKED = "blocked"
    """It waited in the middle of something, such as `time.sleep` or a query in an `async def`."""
    STORAGE = "storage"
    """It waited for storage in the middle of something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """One process at one instant; None where the system does not tell."""

    pid: int
    cpu_ns: int
    """CPU time so far, all threads."""
    main_cpu_ns: int | None
    waiting_ns: int | None
    """Time so far in which its main thread could run but had no core (the scheduler's run-queue delay)."""
    rss_bytes: int
    threads: int
    files: int | None
    """Open files, sockets among them."""
    written_bytes: int | None
    read_bytes: int | None
    """To and from storage, so far."""
    page_faults: int | None = None
    """Minor ones so far: pages of memory that the kernel had to give it, without reading storage."""
    main: MainThread | None = None
    running_threads: int | None = None
    """Threads, the main one among them, that were on a core or waited for one."""
    busy_threads: int | None = None
    """Threads besides the main one that were in the middle of something: computing, sleeping, waiting for an answer.
    Threads of a pool that have nothing to do do not count."""
    storage_threads: int = 0
    """Busy threads that waited for storage; an estimate where there are many."""
    lock_threads: int = 0
    """Busy threads that waited for a lock, or for another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketQueues:
    """Connections between generator and server by where bytes wait: it shows which end has to act."""

    connections: int
    """Connections that are open at both ends."""
    server_unread: int
    """The server's end has bytes that the server has not read."""
    server_unsent: int
    """The server's end has bytes that it wrote and the kernel has not sent yet."""
    client_unread: int
    client_unsent: int
    under_way: int
    """Bytes are unsent at one end, and the other end has read all that arrived: the way between is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTime:
    core: int
    busy_ns: int
    """For any process."""
    stolen_ns: int
    """The host of a virtual machine gave it to others, though there was something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    """Monotonic clock, which all processes of a machine share."""
    server: tuple[ProcessUse, ...]
    generators: tuple[ProcessUse, ...] = ()
    """Those that make the load; empty where it is made in the test process."""
    queues: SocketQueues | None = None
    """None where they were not read, as with very many connections."""
    io_stalled_ns: int | None = None
    """Time so far in which something on the machine waited for storage (pressure stall information)."""
    cores: tuple[CoreTime, ...] = ()
    """All of the machine; empty if the system does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    pid: int
    threads: int
    """At the end."""
    active: int
    """Threads besides the main one that ran at all."""
    pool: int | None = None
    """Active threads that wait for work where the busy ones do: a thread pool, as large as it has become. None where
    the system does not tell."""


# --- How long each core of this machine was busy, for any process, and how long the machine's host gave it to others
#
# Read before and after a load, this tells what other processes did meanwhile: what is left of a core's time without the
# server's own. On Linux only.

_MOST_BYTES = 1 << 18
"""Holds the lines of 2,000 cores, which come first."""


def core_times() -> tuple[CoreTime, ...]:
    """Returns what each core did so far; empty where the system does not tell. Takes some 15 µs with few cores."""
    text = read_start("/proc/stat", _MOST_BYTES)
    return parse_core_times(text, unit_ns=1_000_000_000 // os.sysconf("SC_CLK_TCK")) if text else ()


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
