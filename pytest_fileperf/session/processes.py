"""The CPU time and memory that a server's processes use in a load. Children may begin and end meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic, monotonic_ns, sleep
from typing import Self

from pytest_fileperf.host.cores import cores_of, give_all_cores
from pytest_fileperf.host.cpu import TreeCpu, peak_rss_bytes, process_use, reset_peak_rss
from pytest_fileperf.serve.running import RunningServer

_SLICE_S = 0.05
STILL = 0.2
"""A server is still at work if it uses this many more cores than without a load."""
_MOST_LEFT_S = 3.0
"""How many seconds a server is observed after its load, at most."""


class ServerTree:
    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.cpu = TreeCpu(server.roots)
        self._began_ns = self.cpu.spent_ns()
        self._most_bytes = 0
        self._own = self._found_own()
        """Process ids of the server's workers and their parents. All other processes count as children."""
        self._before_ns = self.cpu.own_ns()
        self._first = frozenset(self.pids)
        self._seen = set(self._first)
        reset_peak_rss(self.pids)

    @property
    def pids(self) -> tuple[int, ...]:
        if not self.cpu.roots:
            return self._server.pids
        return tuple(pid for pid in self.cpu.pids if pid != self._server.supervisor)

    @property
    def children(self) -> tuple[int, ...]:
        return tuple(pid for pid in self.pids if pid not in self._own)

    @property
    def is_watched(self) -> bool:
        return self._began_ns is not None

    def look(self) -> None:
        if not self.is_watched:
            return
        self.cpu.spent_ns()
        self._seen.update(self.pids)
        if not self._own <= set(self.pids):
            self._own = self._found_own()
        uses = filter(None, map(process_use, self.pids)) if self.cpu.ended_ns else ()
        self._most_bytes = max(self._most_bytes, sum(use.rss_bytes for use in uses))

    def spent_ns(self) -> int:
        """Returns the CPU time of the server's processes so far; 0 if unknown."""
        return (self.cpu.spent_ns() or 0) if self.is_watched else 0

    @property
    def ended(self) -> int:
        """How many processes ended during the load. 0 if all processes from the load's begin still run."""
        now = set(self.pids)
        return len(self._seen - now) if self._first - now else 0

    @property
    def has_passing_children(self) -> bool:
        """Whether children that have ended did at least a tenth of the work."""
        return self.cpu.ended_ns >= max(50_000_000, self._grown_ns() / 10)

    @property
    def is_lost(self) -> bool:
        """Whether some processes ended before their CPU time was known."""
        return self.is_watched and not self.cpu.is_complete

    @property
    def children_share(self) -> float:
        """The share of the server's CPU time that its children used; 0.0 if unknown."""
        grown_ns = self._grown_ns()
        if not grown_ns:
            return 0.0
        now_ns = self.cpu.own_ns()
        own_ns = sum(now_ns[pid] - self._before_ns.get(pid, 0) for pid in self._own & now_ns.keys())
        return min(1.0, max(0.0, 1 - own_ns / grown_ns))

    @property
    def peak_rss_bytes(self) -> int | None:
        """Peak memory of the processes, including children that have ended. None if unknown."""
        lasting = peak_rss_bytes(self.pids)
        return None if lasting is None or self.is_lost else max(lasting, self._most_bytes)

    @property
    def cores(self) -> frozenset[int]:
        return cores_of(self.pids)

    def _grown_ns(self) -> int:
        now_ns = self.cpu.total_ns
        return 0 if now_ns is None or self._began_ns is None else now_ns - self._began_ns

    def _found_own(self) -> frozenset[int]:
        workers = set(self._server.worker_pids)
        self.cpu.ended_ns = 0  # a process that ended before this was a worker, not a child that does work
        return frozenset(workers | self.cpu.above(workers)) & set(self.pids)


class TreeWatch:
    """Observes servers' processes within the `with` block, in a thread.

    With `all_cores`, the workers' child processes get all of the test run's cores, and the workers keep their own. If
    children end too soon for this, all servers get all cores.
    """

    def __init__(self, servers: Sequence[RunningServer], *, all_cores: bool) -> None:
        self.trees = tuple(map(ServerTree, servers))
        self._all_cores = all_cores
        self._given: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf process trees", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        if any(tree.is_watched for tree in self.trees):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._look()

    def _main(self) -> None:
        began_s = monotonic()
        # Until a look, a child has its parent's cores.
        while not self._over.wait(0.02 if monotonic() < began_s + 1 else 0.1):
            self._look()

    def idle(self) -> tuple[float, ...]:
        """Returns how many cores each server uses without a load. To be called before the `with` block."""
        return self._used(0.1)

    def left(self, idle: Sequence[float], load_s: float) -> tuple[float, ...]:
        """Returns how many cores beyond `idle` each server uses after the `with` block; 0.0 if its work soon ends."""
        # Work counts if it takes a twentieth of the load's time: it costs so many answers. A moment after its last
        # answer, a server may close connections.
        least_s = min(_MOST_LEFT_S, max(0.15, load_s / 20))
        still, looks = set(range(len(self.trees))), list[tuple[float, ...]]()
        while still and len(looks) * _SLICE_S < _MOST_LEFT_S:
            spent_s = [_SLICE_S * (sum(used[place] for used in looks) - idle[place] * len(looks)) for place in still]
            if len(looks) * _SLICE_S >= least_s and min(spent_s) >= 0.1:  # more than the last requests' rest
                break
            looks.append(self._used(_SLICE_S))
            still = {place for place in still if looks[-1][place] >= idle[place] + STILL}
        return tuple(
            sum(used[place] for used in looks) / len(looks) - idle[place] if place in still else 0.0
            for place in range(len(self.trees))
        )

    def _used(self, seconds: float) -> tuple[float, ...]:
        began_ns, before = monotonic_ns(), [tree.spent_ns() for tree in self.trees]
        if any(before):
            sleep(seconds)
        length_ns, after = max(1, monotonic_ns() - began_ns), [tree.spent_ns() for tree in self.trees]
        return tuple((later - earlier) / length_ns for earlier, later in zip(before, after, strict=True))

    def _look(self) -> None:
        for tree in self.trees:
            tree.look()
        if not self._all_cores:
            return
        # Children begin with their parent's cores. All servers get them, because all servers are compared.
        with_servers = any(tree.has_passing_children for tree in self.trees)
        wanted = {pid for tree in self.trees for pid in (tree.pids if with_servers else tree.children)}
        give_all_cores(wanted - self._given)
        self._given |= wanted
