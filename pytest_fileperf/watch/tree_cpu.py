"""The CPU time of a whole process tree, with children that begin and end meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_fileperf.watch.cpu import cpu_times_ns
from pytest_fileperf.watch.procfs import read_start

__all__ = ("TreeCpu", "tree_pids")

_MOST_BYTES = 1 << 16
_UNSEEN_NS = 30_000_000
"""What a process may have used that ended uncounted: Linux tells the time of ended children to 10 ms, twice."""
_MOST_READINGS = 5
"""Of processes with children, until two agree: a child that ends between its reading and its parent's counts twice."""


class _Use(NamedTuple):
    """A process, with its CPU time so far in ns."""

    parent: int
    own: int
    ended: int
    """Of its children that have ended, and that it has waited for."""


class TreeCpu:
    """Reads the CPU time of some processes and of all below them; a reading takes some 30 µs for each process.

    Who waits for a child gets its CPU time, so none is lost between two readings. It is lost only where nobody waits,
    as where SIGCHLD is ignored: `is_complete` is False from then on.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = tuple(roots)
        self.is_complete = True
        """Whether somebody has waited for all processes that ended."""
        self.pids: tuple[int, ...] = ()
        """The processes of the last reading, the roots first."""
        self.ended_ns = 0
        """What processes used that have ended since the first reading."""
        self.total_ns: int | None = None
        """What the last reading returned."""
        self._last: dict[int, _Use] = {}
        self._kept_ns = 0

    def spent_ns(self) -> int | None:
        """Returns the CPU time so far, to be compared with a later one; None where it is not known any more."""
        found = self._read()
        for _ in range(_MOST_READINGS if len(found) > len(self.roots) else 0):
            before, found = found, self._read()
            if all(use.ended == before[pid].ended for pid, use in found.items() if pid in before):
                break
        self.pids = tuple(found)
        self._account(found)
        self._last = found
        known = bool(found) and self.is_complete
        self.total_ns = self._kept_ns + sum(use.own + use.ended for use in found.values()) if known else None
        return self.total_ns

    def own_ns(self) -> dict[int, int]:
        """Returns the CPU time so far of each process of the last reading, without its children."""
        return {pid: use.own for pid, use in self._last.items()}

    def above(self, pids: Iterable[int]) -> frozenset[int]:
        """Returns the processes of the last reading that are above any of these."""
        found: set[int] = set()
        for pid in pids:
            while (use := self._last.get(pid)) is not None and use.parent in self._last and use.parent not in found:
                pid = use.parent
                found.add(pid)
        return frozenset(found)

    def _read(self) -> dict[int, _Use]:
        pids = dict.fromkeys((*tree_pids(self.roots), *self._last))
        uses = ((pid, _use_of(pid)) for pid in reversed(pids))  # children first: who ends now is found in its parent
        found = {pid: use for pid, use in uses if use is not None}
        return {pid: found[pid] for pid in pids if pid in found}

    def _account(self, found: dict[int, _Use]) -> None:
        """Looks where the time of processes went that are gone."""
        gone = [use for pid, use in self._last.items() if pid not in found or found[pid].own < use.own]
        taken_ns = sum(max(0, found[pid].ended - use.ended) for pid, use in self._last.items() if pid in found)
        missing_ns = sum(use.own + use.ended for use in gone) - taken_ns
        self.ended_ns += taken_ns
        if missing_ns > _UNSEEN_NS * len(gone):
            self.is_complete = False
        elif gone and missing_ns > 0:
            self._kept_ns += missing_ns


if sys.platform == "linux":
    _TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def tree_pids(roots: Iterable[int]) -> tuple[int, ...]:
        """Returns the processes and all below them, each once, parents before children."""
        found = dict.fromkeys(roots)
        waiting = list(found)
        for pid in waiting:
            children = [child for child in _children_of(pid) if child not in found]
            found.update(dict.fromkeys(children))
            waiting += children
        return tuple(found)

    def _children_of(pid: int) -> list[int]:
        """Returns its children; each belongs to the thread that started it."""
        try:
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 # pathlib is slow
        except OSError:
            return []
        children: list[int] = []
        for thread in threads:
            try:
                children += map(int, read_start(f"/proc/{pid}/task/{thread}/children", _MOST_BYTES).split())
            except OSError:  # the thread has ended
                continue
        return children

    def _use_of(pid: int) -> _Use | None:
        own_ns = cpu_times_ns((pid,)).get(pid)
        try:
            fields = read_start(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            return None
        if own_ns is None or len(fields) < 15:
            return None
        return _Use(parent=int(fields[1]), own=own_ns, ended=(int(fields[13]) + int(fields[14])) * _TICK_NS)

else:

    def tree_pids(roots: Iterable[int]) -> tuple[int, ...]:
        """Returns the processes and all below them, each once, parents before children."""
        import psutil

        found = dict.fromkeys(roots)
        for pid in tuple(found):
            try:
                found.update(dict.fromkeys(child.pid for child in psutil.Process(pid).children(recursive=True)))
            except psutil.Error:
                continue
        return tuple(found)

    def _use_of(pid: int) -> _Use | None:
        import psutil

        try:
            process = psutil.Process(pid)
            parent, times = process.ppid(), process.cpu_times()
        except psutil.Error:
            return None
        return _Use(
            parent=parent,
            own=round((times.user + times.system) * 1e9),
            ended=round((times.children_user + times.children_system) * 1e9),
        )
