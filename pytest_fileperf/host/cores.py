"""Cores for the server and for the load generator, so that neither takes time from the other.

A server's child processes inherit the server's cores. `give_all_cores` lets busy child processes use all cores, so that
they do not slow the server down.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def cores_of(pids: Iterable[int]) -> frozenset[int]:
    """Returns the cores on which any of these processes may run. Empty if a process's cores are unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        return frozenset().union(*map(os.sched_getaffinity, pids))
    except OSError:
        return frozenset()


def split_cores(workers: int, generators: int = 1) -> tuple[frozenset[int], frozenset[int]] | None:
    """Returns (the server's cores, the load generators' cores). The server gets a core for each worker.

    Load generators share cores if there are too few. Separate physical cores come first. Returns None with fewer than
    workers + 1 usable cores, or if the system cannot bind processes to cores.
    """
    cores = sorted(cores_of((0,)), key=lambda core: (_rank_on_its_core(core), core))
    if len(cores) < workers + 1:
        return None
    # The server has the same cores, however many generators there are.
    return frozenset(cores[1 : workers + 1]), frozenset([cores[0], *cores[workers + 1 : workers + generators]])


def give_all_cores(pids: Iterable[int]) -> None:
    """Lets processes, with all their threads, use each core that this process may use. Skips ended processes."""
    cores = cores_of((0,))
    for pid in pids if cores else ():
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 # pathlib is slow
                os.sched_setaffinity(int(thread), cores)


def _rank_on_its_core(core: int) -> int:
    """Returns 0 for a physical core's first hardware thread, and 1 for the second. If unknown, returns 0."""
    path = CPUS / f"cpu{core}" / "topology" / "thread_siblings_list"
    threads: set[int] = set()
    try:
        for part in path.read_text(encoding="ascii").strip().split(","):  # such as `0-1,4`
            first, _, last = part.partition("-")
            threads.update(range(int(first), int(last or first) + 1))
        return sorted(threads).index(core)
    except (OSError, ValueError):
        return 0
