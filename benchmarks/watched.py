"""Runs the clients that benchmarks compare, and watches them: on which cores, with how much CPU time and memory.

Each runs in processes of its own, so that what is seen is the client's alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = (
    "MIB",
    "SERVER_CORES",
    "TIMEOUT_S",
    "WARM_UP_S",
    "Case",
    "Figures",
    "Watch",
    "client_cores",
    "finished",
    "on_cores",
)

TIMEOUT_S = 30
POLL_S = 0.05
WARM_UP_S = 0.3
MIB = 1 << 20
SERVER_CORES = frozenset((0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is asked of the server."""

    title: str
    method: str
    path: str
    body: str = ""
    """File with the request's body; empty for none."""
    connections: int = 32
    times_longer: int = 1
    """How much longer than others it must be loaded for enough requests to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one client saw in one run."""

    rps: float
    p50_s: float
    p99_s: float
    cpu_s: float
    """CPU time of the client's process per request."""
    peak_bytes: int = 0
    """Most memory its process ever held."""


@contextmanager
def on_cores(cores: Set[int]) -> Iterator[None]:
    """Starts the processes of the block on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def client_cores(count: int = 1) -> frozenset[int]:
    """Returns a core for each of so many clients, without those of the server; fewer where there are no more."""
    free = sorted(os.sched_getaffinity(0) - SERVER_CORES)
    return frozenset(free[:count])


def finished(command: list[str], limit_s: float, *, cores: int = 1) -> tuple[str, Watch]:
    """Returns the output of a process on so many cores, and what was seen of it; raises when it fails or hangs."""
    with on_cores(client_cores(cores)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    watch.start()
    try:
        output, _ = process.communicate(timeout=limit_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        watch.stop()
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{output}")
    return output, watch


class Watch(threading.Thread):
    """Looks at a process until stopped; at those it has started to do the work, where it has started any."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        """The most memory that they ever held, all together."""
        self._samples: list[tuple[float, float]] = []
        self._started_s = time.perf_counter()
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        """Polls memory's high-water mark (`ru_maxrss` of a child would begin at its parent's) and CPU time."""
        while not self._ended.wait(POLL_S):
            try:
                self._look()
            except (psutil.Error, OSError):
                continue

    def _look(self) -> None:
        working = _working(self._pid)
        cpu_s = sum(times.user + times.system for times in (psutil.Process(pid).cpu_times() for pid in working))
        texts = [Path(f"/proc/{pid}/status").read_text(encoding="ascii") for pid in working]
        peak = sum(int(kib) * 1024 for text in texts for kib in re.findall(r"VmHWM:\s+(\d+) kB", text))
        self._samples.append((time.perf_counter() - self._started_s, cpu_s))
        self.peak_bytes = max(self.peak_bytes, peak)

    def stop(self) -> None:
        """Ends the polling."""
        self._ended.set()
        self.join()

    def cpu_share(self, since_s: float, until_s: float) -> float:
        """Returns CPU seconds per second between two instants, in seconds since the process began."""
        inside = [sample for sample in self._samples if since_s <= sample[0] <= until_s]
        (first_s, first_cpu_s), (last_s, last_cpu_s) = inside[0], inside[-1]
        return (last_cpu_s - first_cpu_s) / (last_s - first_s)


def _working(pid: int) -> list[int]:
    """Returns the processes below this one that have started no others; itself where there are none.

    psutil would read of every process of the machine who has started it, which takes time from what is measured.
    """
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(word) for task in tasks for word in task.read_text(encoding="ascii").split()]
    return [found for child in children for found in _working(child)] or [pid]
