"""Which cores the server gets and which the load generator, so that neither takes time from the other.

Only while nothing is loaded may a server boot on the generator's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_fileperf.serve.running import RunningServer

__all__ = ("boot_cores", "is_on", "keep_to", "split_cores")

_CPUS = Path("/sys/devices/system/cpu")
_PROC = Path("/proc")
_MOVES = 10
"""How often it is looked for threads that are not moved yet; two or three looks find none that are left."""


def split_cores(workers: int) -> tuple[frozenset[int], frozenset[int]] | None:
    """Returns the server's cores, one for each worker, and the generator's one.

    None where this process may use fewer cores than workers + 1, or where the system has no affinity. Two threads of
    one physical core are used only when there is no other way.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_rank_on_its_core(core), core))
    if len(cores) < workers + 1:
        return None
    return frozenset(cores[1 : workers + 1]), frozenset(cores[:1])


def boot_cores(server: frozenset[int], generator: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """Returns where two servers boot side by side that will share the server's cores: one of them on the generator's.

    Both on the server's where it has several, as an app may look how many there are when it is imported, where the two
    have not the same memory beside them, or where processes cannot be moved with their threads.
    """
    can_move = (_PROC / "self" / "task").is_dir()
    alike = len(server) == len(generator) == 1 and _nodes_of(server) == _nodes_of(generator)
    return server, (generator if alike and can_move else server)


def is_on(cores: frozenset[int], server: RunningServer) -> bool:
    """Returns whether all threads of a server's processes are kept to these cores. On Linux only."""
    try:
        return not any(_elsewhere(cores, server))
    except OSError:
        return False


def keep_to(cores: frozenset[int], server: RunningServer) -> bool:
    """Moves a server's processes, with their threads, to these cores; what they start later stays there too.

    Returns whether all of them are there: one may not be ours to move, or there are none. What the server has left
    behind in the background is not found, nor what a thread starts that ends while it is looked for. On Linux only.
    """
    try:
        for _ in range(_MOVES):  # one of them may have started another before it was moved
            if not (threads := list(_elsewhere(cores, server))):
                return bool(server.pids)
            for thread in threads:
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, cores)
    except OSError:
        pass
    return False


def _elsewhere(cores: frozenset[int], server: RunningServer) -> Iterator[int]:
    """Yields the threads of a server's processes that are not kept to these cores; none of those that are gone."""
    for pid in server.pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in [int(task.name) for task in (_PROC / str(pid) / "task").iterdir()]:
                with suppress(ProcessLookupError):
                    if os.sched_getaffinity(thread) != cores:
                        yield thread


def _nodes_of(cores: Iterable[int]) -> set[str]:
    """Returns the NUMA nodes of cores; none where the system has no such thing."""
    return {node.name for core in cores for node in (_CPUS / f"cpu{core}").glob("node[0-9]*")}


def _rank_on_its_core(core: int) -> int:
    """0 for the first hardware thread of a physical core, 1 for the second; 0 where the system does not tell."""
    path = _CPUS / f"cpu{core}" / "topology" / "thread_siblings_list"
    try:
        return sorted(_parse_core_list(path.read_text(encoding="ascii"))).index(core)
    except (OSError, ValueError):
        return 0


def _parse_core_list(text: str) -> set[int]:
    """Returns the cores of a list as Linux writes it, such as `0-1,4`."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores
