"""Which cores the server gets and which the load generator, so that neither takes time from the other.

A server may boot on the generator's core, but only while there is no load.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_fileperf.serve.running import RunningServer

__all__ = ("boot_cores", "is_on", "keep_to", "split_cores")

CPUS = Path("/sys/devices/system/cpu")
PROC = Path("/proc")
_MOVES = 10
"""How often threads are searched for that are not moved yet. The second or third search finds none."""


def split_cores(workers: int, *, cpus: Path = CPUS) -> tuple[frozenset[int], frozenset[int]] | None:
    """Returns the server's cores, one for each worker, and the generator's one.

    None where this process may use fewer cores than workers + 1, or where the system has no affinity. Two hardware
    threads of one physical core are used only when there is no other way. `cpus` is where Linux describes them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_rank_on_its_core(core, cpus), core))
    if len(cores) < workers + 1:
        return None
    return frozenset(cores[1 : workers + 1]), frozenset(cores[:1])


def boot_cores(
    server: frozenset[int], generator: frozenset[int], *, cpus: Path = CPUS, proc: Path = PROC
) -> tuple[frozenset[int], frozenset[int]]:
    """Returns where two servers boot side by side that will share the server's cores: one of them on the generator's.

    Both boot on the server's cores where there are several (an app may count them when it is imported), where the two
    cores have different memory near them, or where processes cannot be moved with their threads.
    """
    can_move = (proc / "self" / "task").is_dir()
    alike = len(server) == len(generator) == 1 and _nodes_of(server, cpus) == _nodes_of(generator, cpus)
    return server, (generator if alike and can_move else server)


def is_on(cores: frozenset[int], server: RunningServer) -> bool:
    """Returns whether all threads of a server's processes are kept to these cores. On Linux only."""
    try:
        return not any(_elsewhere(cores, server))
    except OSError:
        return False


def keep_to(cores: frozenset[int], server: RunningServer) -> bool:
    """Moves a server's processes, with their threads, to these cores; what they start later stays there too.

    Returns whether all of them are there: the system may forbid it, or there are none. It does not find what the server
    left behind in the background, and what a thread starts that ends during the search. On Linux only.
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
            for thread in [int(task.name) for task in (PROC / str(pid) / "task").iterdir()]:
                with suppress(ProcessLookupError):
                    if os.sched_getaffinity(thread) != cores:
                        yield thread


def _nodes_of(cores: Iterable[int], cpus: Path) -> set[str]:
    """Returns the NUMA nodes of cores; none where the system has no such thing."""
    return {node.name for core in cores for node in (cpus / f"cpu{core}").glob("node[0-9]*")}


def _rank_on_its_core(core: int, cpus: Path) -> int:
    """Returns 0 for the first hardware thread of a physical core, 1 for the second; 0 where that is not known."""
    path = cpus / f"cpu{core}" / "topology" / "thread_siblings_list"
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
