"""The peak memory of processes over time, read beside a load, so that it is known at which request it was what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Self

from pytest_fileperf.watch.cpu import peak_rss_bytes

__all__ = ("MemorySeries",)

_INTERVAL_S = 0.05
_MOST_READINGS = 4_000
"""With more, every other one is dropped, and half as many are made from then on."""


class MemorySeries:
    """Reads the peak resident memory of processes, since it was reset, from the `with` to the end of its block."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        """`pids` tells which processes there are now."""
        self._pids = pids
        self.readings: list[tuple[int, int]] = []
        """When, on the monotonic clock, and how many bytes; a peak never falls."""
        self._interval_s = _INTERVAL_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf memory", daemon=True)

    def __enter__(self) -> Self:
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._read()

    def _main(self) -> None:
        while not self._over.wait(self._interval_s):
            self._read()
            if len(self.readings) >= _MOST_READINGS:
                del self.readings[1::2]
                self._interval_s *= 2

    def _read(self) -> None:
        if (size := peak_rss_bytes(self._pids())) is not None:
            self.readings.append((monotonic_ns(), size))
