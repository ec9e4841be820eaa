"""Which cores the server gets and which the load generator, so that neither takes time from the other.

Children that do work for a server inherit its cores, and would share one with it: they get all cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ("give_all_cores", "split_cores")

CPUS = Path("/sys/devices/system/cpu")


def split_cores(
    workers: int, generators: int = 1, *, cpus: Path = CPUS
) -> tuple[frozenset[int], frozenset[int]] | None:
    """Returns the server's cores, one for each worker, and one for each generator.

    None where this process may use fewer cores than workers + 1, or where the system has no affinity. Several
    generators share what the server leaves where that is less than one for each. Two hardware threads of one physical
    core are used only when there is no other way. `cpus` is where Linux describes them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_rank_on_its_core(core, cpus), core))
    if len(cores) < workers + 1:
        return None
    # The server has the same cores, however many generators there are.
    return frozenset(cores[1 : workers + 1]), frozenset([cores[0], *cores[workers + 1 : workers + generators]])


def give_all_cores(pids: Iterable[int]) -> None:
    """Lets processes use all cores that this one may, with all their threads. Those that are gone are left out."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = os.sched_getaffinity(0)
    for pid in pids:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 # pathlib is slow
                os.sched_setaffinity(int(thread), cores)


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
