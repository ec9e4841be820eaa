"""A server under load at one instant: its processes, the generator, the sockets between."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# --- Reads Linux's /proc in three system calls for each file: pathlib would cost more than the calls


def read_start(path: str, size_bytes: int = 4096) -> bytes:
    """Returns a file's first bytes, or nothing if it cannot be read, as on systems without /proc."""
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


# --- Types for one instant, and for the threads of a run


class MainThread(StrEnum):
    """State of a process's main thread at one instant; a Python web server's event loop runs on it."""

    IDLE = "idle"
    """Waits for work, as without load."""
    RUNNING = "running"
    """On a core, or waiting for one."""
    BLOCKED = "blocked"
    """Waits in the middle of work, such as `time.sleep` or a query in an `async def`."""
    STORAGE = "storage"
    """Waits for storage in the middle of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """One process at one instant. Fields are None on systems that do not report them."""

    pid: int
    cpu_ns: int
    """So far, in all threads."""
    main_cpu_ns: int | None
    waiting_ns: int | None
    """Time so far in which its main thread could run but had no core (the scheduler's run-queue delay)."""
    rss_bytes: int
    threads: int
    files: int | None
    """Open files, including sockets."""
    written_bytes: int | None
    read_bytes: int | None
    """From and to storage, so far."""
    page_faults: int | None = None
    """Minor ones so far: the kernel gave it a page of memory without reading storage."""
    main: MainThread | None = None
    running_threads: int | None = None
    """Threads on a core or waiting for one, including the main one."""
    busy_threads: int | None = None
    """Threads besides the main one in the middle of work: computing, sleeping, waiting for an answer.

    A pool's idle threads do not count.
    """
    storage_threads: int = 0
    """Busy threads that wait for storage; an estimate if there are many."""
    lock_threads: int = 0
    """Busy threads that wait for a lock, or for another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketQueues:
    """Counts connections between generator and server by where bytes wait: it shows which end has to act."""

    connections: int
    """Open at both ends."""
    server_unread: int
    """Bytes arrived that the server has not read."""
    server_unsent: int
    """The server wrote bytes that the kernel has not sent."""
    client_unread: int
    client_unsent: int
    under_way: int
    """Bytes are unsent at one end, and the other end has read all that arrived: the network between is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTime:
    core: int
    busy_ns: int
    """For any process."""
    stolen_ns: int
    """The virtual machine's host gave it to others, though this machine had work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    """Monotonic clock, which all processes of a machine share."""
    server: tuple[ProcessUse, ...]
    generators: tuple[ProcessUse, ...] = ()
    """Empty if the test process makes the load."""
    queues: SocketQueues | None = None
    """None if they were not read, as with very many connections."""
    io_stalled_ns: int | None = None
    """Time so far in which anything on the machine waited for storage (pressure stall information)."""
    cores: tuple[CoreTime, ...] = ()
    """Every core of the machine. Empty on systems that do not report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    pid: int
    threads: int
    """At the end."""
    active: int
    """Threads besides the main one that ran at all."""
    pool: int | None = None
    """Active threads that wait for work where the busy ones do: the thread pool's size so far.

    None on systems that do not show threads.
    """


# --- How long each core was busy, for any process, and how long a virtual machine's host gave it to others
#
# Read before and after a load, this shows the other processes' use: all that the server didn't use. On Linux only.

_MOST_BYTES = 1 << 18
"""Enough for the lines of 2,000 cores, which come first."""


def core_times() -> tuple[CoreTime, ...]:
    """Returns what each core did so far. Empty outside of Linux. Takes some 15 µs with few cores."""
    text = read_start("/proc/stat", _MOST_BYTES)
    return parse_core_times(text, unit_ns=1_000_000_000 // os.sysconf("SC_CLK_TCK")) if text else ()


def parse_core_times(text: bytes, *, unit_ns: int) -> tuple[CoreTime, ...]:
    """Returns the cores in a `/proc/stat`, whose numbers count `unit_ns` each.

    Kernels differ in how they count interrupts. One that measures them leaves them out of every process's CPU time. One
    that samples a core counts them for the interrupted process, and never sees hard interrupts. So they are busy time
    here only if hard interrupts are 0. Busy time minus one process's CPU time then belongs to other processes.
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
    """Returns the cores on which any of these processes may run. Empty if one process's cores are unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        return frozenset().union(*map(os.sched_getaffinity, pids))
    except OSError:
        return frozenset()
