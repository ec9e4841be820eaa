"""What another process uses at this moment, read in microseconds and, on Linux, without psutil."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import islice

from pytest_fileperf.watch.cpu import cpu_times_ns
from pytest_fileperf.watch.procfs import read_start
from pytest_fileperf.watch.sample import ProcessUse

__all__ = ("files_limit", "io_stalled_ns", "open_files", "process_use")

MOST_FILES_LISTED = 1_000
"""Before Linux 6.2 open files are counted by listing them. With more of them the number stays unknown."""


def process_use(pid: int) -> ProcessUse | None:
    """Returns what the process uses, without what its threads do; None when it is gone, or another user's."""
    cpu_ns = cpu_times_ns((pid,)).get(pid)
    return None if cpu_ns is None else _rest_of_use(pid, cpu_ns)


def io_stalled_ns() -> int | None:
    """Returns the time so far in which something on the machine waited for storage; None where it is not told."""
    try:
        some = read_start("/proc/pressure/io").split(b"\n", 1)[0]
    except OSError:
        return None
    return int(some.rpartition(b"total=")[2]) * 1000


def files_limit(pids: Sequence[int]) -> int | None:
    """Returns the least number of files that one of these processes may open; None where that is not told."""
    found = [limit for pid in pids if (limit := _files_limit(pid)) is not None]
    return min(found, default=None)


def _files_limit(pid: int) -> int | None:
    try:
        limits = read_start(f"/proc/{pid}/limits").splitlines()
    except OSError:
        return None
    soft = next((line.split()[3] for line in limits if line.startswith(b"Max open files")), b"")
    return int(soft) if soft.isdigit() else None


def open_files(directory: str, *, most_listed: int = MOST_FILES_LISTED) -> int | None:
    """Returns how many files a directory such as `/proc/PID/fd` lists; None where there are too many to list."""
    try:
        count = os.stat(directory).st_size  # noqa: PTH116 # pathlib is slow; since Linux 6.2, 0 before
        if not count:
            with os.scandir(directory) as files:
                count = sum(1 for _ in islice(files, most_listed + 1))
                return count if count <= most_listed else None
    except OSError:
        return None
    return count


if sys.platform == "linux":
    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

    def _rest_of_use(pid: int, cpu_ns: int) -> ProcessUse | None:
        try:
            memory = read_start(f"/proc/{pid}/statm").split()
            # Two links and one for each thread. pathlib would cost more than the call.
            threads = os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116
        except OSError:
            return None
        main_cpu_ns, waiting_ns = _main_thread_ns(pid)
        read_bytes, written_bytes = _storage_bytes(pid)
        page_faults = _page_faults(pid)
        return ProcessUse(
            pid=pid,
            cpu_ns=cpu_ns,
            main_cpu_ns=main_cpu_ns,
            waiting_ns=waiting_ns,
            rss_bytes=int(memory[1]) * _PAGE_BYTES,
            threads=threads,
            files=open_files(f"/proc/{pid}/fd"),
            written_bytes=written_bytes,
            read_bytes=read_bytes,
            page_faults=page_faults,
        )

    def _main_thread_ns(pid: int) -> tuple[int | None, int | None]:
        """Returns how long the main thread ran, and how long it waited for a core; None where that is not counted."""
        try:
            ran, waited, _ = map(int, read_start(f"/proc/{pid}/schedstat").split())
        except (OSError, ValueError):
            return None, None
        return ran, waited

    def _page_faults(pid: int) -> int | None:
        try:
            return int(read_start(f"/proc/{pid}/stat").rpartition(b") ")[2].split()[7])
        except OSError:
            return None

    def _storage_bytes(pid: int) -> tuple[int | None, int | None]:
        """Returns how many bytes it caused to be read from storage and written to it; None for a process not ours."""
        try:
            fields = dict(line.split(b": ") for line in read_start(f"/proc/{pid}/io").splitlines())
        except OSError:
            return None, None
        return int(fields[b"read_bytes"]), int(fields[b"write_bytes"])

else:

    def _rest_of_use(pid: int, cpu_ns: int) -> ProcessUse | None:
        import psutil

        try:
            process = psutil.Process(pid)
            with process.oneshot():
                return ProcessUse(
                    pid=pid,
                    cpu_ns=cpu_ns,
                    main_cpu_ns=None,
                    waiting_ns=None,
                    rss_bytes=int(process.memory_info().rss),
                    threads=process.num_threads(),
                    files=process.num_fds() if hasattr(process, "num_fds") else None,
                    written_bytes=None,
                    read_bytes=None,
                )
        except psutil.Error:
            return None
