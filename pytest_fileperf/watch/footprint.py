"""What processes hold over time: open files, threads, memory and its peak, looked at twenty times a second.

It is less than a `Watch` sees, so that it costs a thousandth of a core.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Self

from pytest_fileperf.watch.cpu import peak_rss_bytes
from pytest_fileperf.watch.machine import core_times
from pytest_fileperf.watch.process_use import process_use
from pytest_fileperf.watch.sample import Sample

__all__ = ("Footprint",)

_INTERVAL_S = 0.05
_MOST_SAMPLES = 4_000
"""With more, every other one is dropped, and half as many are taken from then on."""


class Footprint:
    """Looks at processes from the `with` to the end of its block."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        """`pids` tells which processes there are now."""
        self.samples: list[Sample] = []
        """They have nothing but `server` and `cores`."""
        self.peaks: list[tuple[int, int]] = []
        """When, on the monotonic clock, and how many bytes: the sum of the processes' own peaks of memory so far."""
        self._pids = pids
        self._interval_s = _INTERVAL_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf footprint", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _main(self) -> None:
        while not self._over.wait(self._interval_s):
            self._look()
            if len(self.samples) >= _MOST_SAMPLES:
                del self.samples[1::2]
                del self.peaks[1::2]
                self._interval_s *= 2

    def _look(self) -> None:
        pids = self._pids()
        if (size := peak_rss_bytes(pids)) is not None:
            self.peaks.append((monotonic_ns(), size))
        at_ns = monotonic_ns()
        if uses := tuple(filter(None, map(process_use, pids))):
            self.samples.append(Sample(at_ns=at_ns, server=uses, cores=core_times()))
