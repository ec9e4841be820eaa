"""The state of a server under load at one instant: processes, threads, connections, cores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum


def read_start(path: str, size_bytes: int = 4096) -> bytes:
    """Returns a file's first bytes, much faster than pathlib. Empty if the file cannot be read."""
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


class MainThread(StrEnum):
    """The state of a process's main thread, which runs a Python web server's event loop."""

    IDLE = "idle"
    """Waits for work, as it does without load."""
    RUNNING = "running"
    """Runs on a core, or waits for a core."""
    BLOCKED = "blocked"
    """Waits in the middle of work, such as `time.sleep` or a query in an `async def`."""
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """A process at one instant. Times and bytes count from its start. None stands for unknown on this system."""

    pid: int
    cpu_ns: int
    main_cpu_ns: int | None
    waiting_ns: int | None
    """How long the main thread could run but had no core (the scheduler's run-queue delay)."""
    rss_bytes: int
    threads: int
    files: int | None
    written_bytes: int | None
    read_bytes: int | None
    page_faults: int | None = None
    """Minor page faults: the kernel gave the process a page of memory without reading storage."""
    main: MainThread | None = None
    running_threads: int | None = None
    """Threads that run on a core or wait for a core, including the main thread."""
    busy_threads: int | None = None
    """Threads in the middle of work, without the main thread. A pool's idle threads do not count."""
    storage_threads: int = 0
    """Busy threads that wait for storage. An estimate if there are many."""
    lock_threads: int = 0
    """Busy threads that wait for a lock, or for another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketQueues:
    """Counts connections between load generator and server. Their waiting bytes show which end has to act next."""

    connections: int
    server_unread: int
    """Connections on which the server has not read all arrived bytes."""
    server_unsent: int
    client_unread: int
    client_unsent: int
    under_way: int
    """Connections with unsent bytes at one end, whose other end has read everything. The network is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTime:
    """A core's time since the machine's start. `busy_ns` minus the server's CPU time is the use by other processes."""

    core: int
    busy_ns: int
    stolen_ns: int
    """How long a virtual machine's host gave the core to others, though this machine had work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_ns: int
    """The instant, by the monotonic clock, which all processes of a machine share."""
    server: tuple[ProcessUse, ...]
    generators: tuple[ProcessUse, ...] = ()
    """Empty if the test process makes the load."""
    queues: SocketQueues | None = None
    """None if the queues were not read, as with very many connections."""
    io_stalled_ns: int | None = None
    """How long at least one process waited for storage since the machine's start (Linux's pressure information)."""
    cores: tuple[CoreTime, ...] = ()
    """Every core of the machine. Empty outside of Linux."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    pid: int
    threads: int
    """How many threads the process had at the end of the load."""
    active: int
    """Threads, without the main thread, that ran at all under load."""
    pool: int | None = None
    """Active threads in pools with at least one busy thread. None if unknown."""


def core_times() -> tuple[CoreTime, ...]:
    """Returns every core's times. Empty outside of Linux. Takes some 15 µs with few cores."""
    text = read_start("/proc/stat", 1 << 18)  # enough for 2,000 cores, which come first
    return parse_core_times(text, unit_ns=1_000_000_000 // os.sysconf("SC_CLK_TCK")) if text else ()


def parse_core_times(text: bytes, *, unit_ns: int) -> tuple[CoreTime, ...]:
    """Returns each core's times from the text of `/proc/stat`. The numbers in the text count steps of `unit_ns`."""
    cores = []
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith(b"cpu"):
            break
        if name == b"cpu" or len(fields) < 8:
            continue
        user, nice, system, _idle, _iowait, hard, soft, stolen = map(int, fields[:8])
        # A kernel that reports hard interrupts leaves all interrupts out of processes' CPU time. Another kernel counts
        # interrupts as the interrupted process's CPU time. Only then are they busy time.
        busy = user + nice + system + (0 if hard else soft)
        cores.append(CoreTime(core=int(name[3:]), busy_ns=busy * unit_ns, stolen_ns=stolen * unit_ns))
    return tuple(cores)
