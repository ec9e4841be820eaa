"""The CPU time of processes over time, read by this process, for loads whose generators are on other machines."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic_ns
from typing import Self

from pytest_fileperf.watch.tree_cpu import TreeCpu

__all__ = ("CpuSeries",)

_INTERVAL_S = 0.02
"""For what ends at no instant that is known before, such as a fixed number of requests."""


class CpuSeries:
    """Reads the CPU time of process trees within the `with` block, every 20 ms, and at instants it is told.

    Between two of them the time is taken to be spent evenly.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._tree = TreeCpu(roots)
        self._at_ns = array("q")
        self._spent_ns = array("q")
        self._is_known = True
        self._asked_ns: deque[int] = deque()
        """Instants to come at which to read."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf CPU series", daemon=True)

    def __enter__(self) -> Self:
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._read()

    def read_at(self, instants_ns: Iterable[int]) -> None:
        """Also reads at these instants of the monotonic clock, in ascending order; the last that were given count."""
        self._asked_ns = deque(instants_ns)

    def spent_ns(self, from_ns: int, to_ns: int) -> int | None:
        """Returns the CPU time between two instants of the monotonic clock; None where it is not known."""
        before, after = self._until(from_ns), self._until(to_ns)
        return None if before is None or after is None else max(0, round(after - before))

    def _main(self) -> None:
        while self._is_known and not self._over.wait(self._pause_s()):
            self._read()

    def _pause_s(self) -> float:
        """Returns how long it is until the next reading."""
        now_ns, asked_ns = monotonic_ns(), self._asked_ns
        while asked_ns and asked_ns[0] <= now_ns:
            asked_ns.popleft()
        left_s = (asked_ns[0] - now_ns) / 1e9 if asked_ns else _INTERVAL_S
        return min(left_s, _INTERVAL_S)

    def _read(self) -> None:
        now_ns = monotonic_ns()
        spent_ns = self._tree.spent_ns()
        if spent_ns is None:  # there is no process, or one has ended and nobody waited for it
            self._is_known = False
        else:
            self._at_ns.append(now_ns)
            self._spent_ns.append(spent_ns)

    def _until(self, at_ns: int) -> float | None:
        """Returns the CPU time from the first reading until an instant."""
        place = bisect_right(self._at_ns, at_ns)
        if not self._is_known or place == 0:
            return None
        if place == len(self._at_ns):
            return float(self._spent_ns[-1])
        start_ns, end_ns = self._at_ns[place - 1], self._at_ns[place]
        share = (at_ns - start_ns) / (end_ns - start_ns)
        return self._spent_ns[place - 1] + share * (self._spent_ns[place] - self._spent_ns[place - 1])
