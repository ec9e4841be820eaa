"""Durations and latencies in the making: typed arrays that take samples, and counts that whole blocks go into."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Histogram, step_of
from pytest_fileperf.measure.recording import LeadTimes

__all__ = ("BLOCK", "Durations", "Leads", "stretches_of")

BLOCK = 8192
"""Samples kept as they are before they go into the histogram: folding a block takes about 0.1 ms."""
_POINTS = 500
"""Points of a lead-time series: as many as a chart can show."""
_NONE = np.empty(0, dtype=np.int64)


class Durations:
    """A histogram in the making."""

    __slots__ = ("_counts", "_folded", "_max", "_min", "_squares", "_sum", "append", "block")

    def __init__(self) -> None:
        self.block = array("q")
        self.append = self.block.append
        self._counts = _NONE
        self._folded = False
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0

    def fold(self) -> None:
        """Moves the block into the counts."""
        if not self.block:
            return
        self._folded = True
        values = np.minimum(np.array(self.block, dtype=np.int64), HIGHEST_NS)
        del self.block[:]
        found = np.bincount(step_of(values), minlength=self._counts.size)
        found[: self._counts.size] += self._counts
        self._counts = found  # as long as the slowest sample so far needs: each step of a journey has several
        self._min = min(self._min, int(values.min()))
        self._max = max(self._max, int(values.max()))
        self._sum += int(values.sum())
        floats = values.astype(np.float64)
        self._squares += float(floats @ floats)

    def take(self) -> Histogram:
        """Returns the histogram of everything so far and begins anew."""
        if not self._folded:  # as in most rounds, which may be short: a look through all counts takes too long for them
            if not self.block:
                return EMPTY
            values = np.minimum(np.array(self.block, dtype=np.int64), HIGHEST_NS)
            del self.block[:]
            return Histogram.of(values)
        self.fold()
        self._folded = False
        steps = np.flatnonzero(self._counts)
        counts = self._counts[steps]
        histogram = Histogram.counted(
            steps, counts, min_ns=self._min, max_ns=self._max, sum_ns=self._sum, sum_squares=self._squares
        )
        histogram.held.pack({})  # it is kept to the end of the load, and this takes less time than two folds
        self._counts[steps] = 0
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0
        return histogram


def stretches_of(due_ns: NDArray[np.int64], span_ns: int) -> NDArray[np.int64]:
    """Returns the stretch of a lead-time series that each request is in, of requests that are due in such a span."""
    return np.minimum(due_ns // max(1, -(-span_ns // _POINTS)), _POINTS - 1)


class Leads:
    """Latencies by when their requests were due, in the making."""

    def __init__(self) -> None:
        self._start_ns = 0
        self._span_ns = 0
        self._due = array("q")
        self._latency = array("q")
        self._first = np.full(_POINTS, HIGHEST_NS, dtype=np.int64)
        self._counts = np.zeros(_POINTS, dtype=np.int64)
        self._sums = np.zeros(_POINTS, dtype=np.float64)
        self._most = np.zeros(_POINTS, dtype=np.int64)

    def begin(self, start_ns: int, span_ns: int) -> None:
        """Says from when to when requests are due."""
        self._start_ns = start_ns
        self._span_ns = span_ns

    def append(self, due_ns: int, latency_ns: int) -> None:
        """Takes one latency."""
        self._due.append(due_ns - self._start_ns)
        self._latency.append(latency_ns)
        if len(self._due) >= BLOCK:
            self._fold()

    def _fold(self) -> None:
        due, latency = np.array(self._due, dtype=np.int64), np.array(self._latency, dtype=np.int64)
        del self._due[:], self._latency[:]
        at = stretches_of(due, self._span_ns)
        np.minimum.at(self._first, at, due)
        np.maximum.at(self._most, at, latency)
        self._counts += np.bincount(at, minlength=_POINTS)
        self._sums += np.bincount(at, weights=latency, minlength=_POINTS)

    def taken(self) -> LeadTimes | None:
        """Returns the series; None where there was no sample."""
        self._fold()
        at = np.flatnonzero(self._counts)
        if at.size == 0:
            return None
        return LeadTimes(
            due_ns=tuple(self._first[at].tolist()),
            counts=tuple(self._counts[at].tolist()),
            mean_ns=tuple(np.rint(self._sums[at] / self._counts[at]).astype(np.int64).tolist()),
            max_ns=tuple(self._most[at].tolist()),
        )
