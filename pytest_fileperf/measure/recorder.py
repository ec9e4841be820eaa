"""Collects samples while a load runs: cuts time into rounds, sorts requests into them, hands out frozen rounds.

The hot path is two appends to typed arrays, three in turns; histograms are made from whole blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import process_time_ns

import numpy as np

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Histogram, step_of
from pytest_fileperf.measure.recording import Failure, LeadTimes, Phase, Round, merge_failures
from pytest_fileperf.units import format_duration
from pytest_fileperf.watch.cpu import cpu_spent_ns

__all__ = ("Recorder",)

_BLOCK = 8192
"""Samples kept as they are before they go into the histogram: folding a block takes about 0.1 ms."""
_STEPS = int(step_of(np.array([HIGHEST_NS]))[0]) + 1
_PACES = 2
"""A typical rate needs this many times the answers whose time it is measured by."""
_POINTS = 500
"""Points of a lead-time series: as many as a chart can show."""


class _Durations:
    """A histogram in the making."""

    __slots__ = ("_counts", "_folded", "_max", "_min", "_squares", "_sum", "append", "block")

    def __init__(self) -> None:
        self.block = array("q")
        self.append = self.block.append
        self._counts = np.zeros(_STEPS, dtype=np.int64)
        self._folded = False
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0

    def fold(self) -> None:
        """Moves the block into the counts."""
        if not self.block:
            return
        self._folded = True
        values = np.minimum(np.array(self.block, dtype=np.int64), HIGHEST_NS)
        del self.block[:]
        self._counts += np.bincount(step_of(values), minlength=_STEPS)
        self._min = min(self._min, int(values.min()))
        self._max = max(self._max, int(values.max()))
        self._sum += int(values.sum())
        floats = values.astype(np.float64)
        self._squares += float(floats @ floats)

    def take(self) -> Histogram:
        """Returns the histogram of everything so far and begins anew."""
        self.fold()
        if not self._folded:
            return EMPTY  # there are many short rounds, and a look through all counts takes too long for them
        self._folded = False
        steps = np.flatnonzero(self._counts)
        counts = self._counts[steps]
        histogram = Histogram(
            steps=steps,
            counts=counts,
            count=int(counts.sum()),
            min_ns=self._min,
            max_ns=self._max,
            sum_ns=self._sum,
            sum_squares=self._squares,
        )
        self._counts[steps] = 0
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0
        return histogram


class _Leads:
    """Latencies by when their requests were due, in the making."""

    def __init__(self) -> None:
        self._start_ns = 0
        self._point_ns = 1
        self._due = array("q")
        self._latency = array("q")
        self._first = np.full(_POINTS, HIGHEST_NS, dtype=np.int64)
        self._counts = np.zeros(_POINTS, dtype=np.int64)
        self._sums = np.zeros(_POINTS, dtype=np.float64)
        self._most = np.zeros(_POINTS, dtype=np.int64)

    def begin(self, start_ns: int, span_ns: int) -> None:
        """Says from when to when requests are due."""
        self._start_ns = start_ns
        self._point_ns = max(1, -(-span_ns // _POINTS))

    def append(self, due_ns: int, latency_ns: int) -> None:
        """Takes one latency."""
        self._due.append(due_ns - self._start_ns)
        self._latency.append(latency_ns)
        if len(self._due) >= _BLOCK:
            self._fold()

    def _fold(self) -> None:
        due, latency = np.array(self._due, dtype=np.int64), np.array(self._latency, dtype=np.int64)
        del self._due[:], self._latency[:]
        at = np.minimum(due // self._point_ns, _POINTS - 1)
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


class Recorder:
    """Takes every finished request of one run; `finish` returns the rounds.

    Times are nanoseconds on one monotonic clock. Samples before the instant given to `begin` are warm-up and thrown
    away. From there `stretches` follow, each with its end (since that instant, ascending) and what it is. Samples after
    the last one are the drain. Without any there is one round, up to `finish`. `server_cpu` reads the CPU time of each
    server process, in ns. With `pace_over` rounds have a typical rate: by the time of this many answers, or where
    they have fewer than twice as many, by the time of their whole bunches of `together` answers after the first.
    """

    def __init__(
        self,
        *,
        boot: int,
        stretches: Sequence[tuple[int, Phase]],
        server_cpu: Callable[[], Mapping[int, int]],
        pace_over: int = 0,
        together: int = 0,
    ) -> None:
        self._boot = boot
        self._stretches = stretches
        self._server_cpu = server_cpu
        self._pace_over = pace_over
        self._together = together
        self._ends = array("q")
        self._done: list[Round] = []
        self._index = -1
        """-1 in the warm-up, then the number of the stretch; their count in the drain."""
        self._started_ns = 0
        self._boundary_ns = _NEVER_NS
        self._latency = _Durations()
        self._ttfb = _Durations()
        self._service = _Durations()
        self._send_delay = _Durations()
        self._first_event = _Durations()
        self._event_gap = _Durations()
        self._durations = (
            *(self._latency, self._ttfb, self._service, self._send_delay),
            *(self._first_event, self._event_gap),
        )
        self._leads = _Leads()
        self._measured_from_ns = _NEVER_NS
        self._first = _Durations()
        self._first_end_ns = _NEVER_NS
        self._sent = self._received = 0
        self._events: int | None = None
        self._statuses: dict[int, int] = {}
        self._failures: dict[str, Failure] = {}
        """By kind, with the first example: messages may be long, and failures many."""
        self._server_cpu_mark: Mapping[int, int] = {}
        self._client_cpu_mark = 0
        self.requests = 0
        """Successful requests of the current round."""
        self.failed = 0
        """Failed requests since the warm-up ended."""
        self.finished_requests = 0
        """Successful requests in the rounds that are over."""
        self.due_count = 0
        """Open loop: requests that were due since the warm-up, dropped ones too."""
        self.first_due_ns = self.last_due_ns = 0
        """Open loop: when the first and the last of them were due."""
        self.paused_ns = 0
        """How long journeys paused in all; that is in none of their durations."""
        self.last_end_ns = 0
        """When the last request ended, well or not."""

    def begin(self, first_round_ns: int) -> None:
        """Says when the warm-up ends."""
        self._boundary_ns = self._measured_from_ns = first_round_ns
        self._leads.begin(first_round_ns, self._stretches[-1][0] if self._stretches else 0)

    def due(self, due_ns: int, now_ns: int, patience_ns: int) -> bool:
        """Counts a request that is due in an open loop; returns whether to send it.

        A request that was due more than `patience_ns` ago is dropped: it has failed.
        """
        if due_ns >= self._measured_from_ns:
            self.due_count += 1
            self.first_due_ns = self.first_due_ns or due_ns
            self.last_due_ns = due_ns
        if now_ns - due_ns <= patience_ns:
            return True
        example = f"no connection was free for it within {format_duration(patience_ns)} of when it was due"
        self.failure("dropped", example, now_ns, due_ns=due_ns)
        return False

    def success(
        self,
        started_ns: int,
        first_byte_ns: int,
        ended_ns: int,
        status: int,
        bytes_sent: int,
        bytes_received: int,
        due_ns: int | None = None,
    ) -> None:
        """Takes a good answer; its latency counts from when it was due in an open loop, else from when it was sent.

        A request that was due in the warm-up belongs to it, whenever it ends: so all due requests succeed or fail.
        """
        if ended_ns >= self._boundary_ns:
            self.advance(ended_ns)
        self.last_end_ns = ended_ns
        if started_ns <= self._first_end_ns:
            self._first_end_ns = min(ended_ns, self._first_end_ns)
            self._first.append(ended_ns - started_ns)
        if due_ns is not None:
            if due_ns < self._measured_from_ns:
                return
            self._service.append(ended_ns - started_ns)
            self._send_delay.append(started_ns - due_ns)
            self._leads.append(due_ns, ended_ns - due_ns)
            started_ns = due_ns
        if self._pace_over:
            self._ends.append(ended_ns)
        self._latency.append(ended_ns - started_ns)
        self._ttfb.append(first_byte_ns - started_ns)
        self._sent += bytes_sent
        self._received += bytes_received
        self._statuses[status] = self._statuses.get(status, 0) + 1
        self.requests += 1
        if len(self._latency.block) >= _BLOCK:
            for durations in self._durations:
                durations.fold()

    def failure(
        self,
        kind: str,
        example: str,
        ended_ns: int,
        status: int | None = None,
        *,
        count: int = 1,
        due_ns: int | None = None,
    ) -> None:
        """Takes a failed request, or several alike; with its status when an answer came at all."""
        if ended_ns >= self._boundary_ns:
            self.advance(ended_ns)
        self.last_end_ns = ended_ns
        if due_ns is not None and due_ns < self._measured_from_ns:
            return
        seen = self._failures.get(kind, Failure(kind=kind, count=0, example=example))
        self._failures[kind] = replace(seen, count=seen.count + count)
        if status is not None:
            self._statuses[status] = self._statuses.get(status, 0) + count
        if self._index >= 0:
            self.failed += count

    def first_event(self, at_ns: int, started_ns: int, due_ns: int | None = None) -> None:
        """Takes the first event of a stream; its time counts from where the stream's latency does."""
        if at_ns >= self._boundary_ns:
            self.advance(at_ns)
        self._events = (self._events or 0) + 1
        if due_ns is None or due_ns >= self._measured_from_ns:
            self._first_event.append(at_ns - (started_ns if due_ns is None else due_ns))

    def next_event(self, at_ns: int, gap_ns: int) -> None:
        """Takes a further event, so long after the one before it in its stream."""
        if at_ns >= self._boundary_ns:
            self.advance(at_ns)
        self._events = (self._events or 0) + 1
        self._event_gap.append(gap_ns)
        if len(self._event_gap.block) >= _BLOCK:
            self._event_gap.fold()

    def advance(self, now_ns: int) -> None:
        """Closes the rounds that are over; called by samples and, where there are few, by a timer."""
        while now_ns >= self._boundary_ns:
            if self._index >= 0:
                self._close(self._boundary_ns, self._stretches[self._index][1])
            self._index += 1
            self._open(self._boundary_ns)

    def finish(self, now_ns: int) -> tuple[Round, ...]:
        """Closes the last round, or the drain, and returns all rounds."""
        self.advance(now_ns)
        if self._index >= 0 and not self._stretches:
            self._close(now_ns, Phase.ROUND)
        elif self._index >= len(self._stretches):
            self._close(now_ns, Phase.DRAIN)
        return tuple(self._done)

    def first(self) -> Histogram:
        """Returns how long the requests took that were sent before any answer had come."""
        return self._first.take()

    def leads(self) -> LeadTimes | None:
        """Returns the lead times of an open loop; None for a closed one."""
        return self._leads.taken()

    @property
    def next_boundary_ns(self) -> int | None:
        """When the current round ends; None when nothing ends it but `finish`."""
        return self._boundary_ns if self._boundary_ns < _NEVER_NS else None

    @property
    def last_round(self) -> Round | None:
        """The newest finished round proper."""
        return next((round_ for round_ in reversed(self._done) if round_.phase is Phase.ROUND), None)

    @property
    def phase(self) -> str:
        """`warm-up`, `round` or `drain`."""
        if self._index < 0:
            return "warm-up"
        return "drain" if self._stretches and self._index >= len(self._stretches) else "round"

    def _open(self, start_ns: int) -> None:
        """Begins the next round, or the drain, with empty counts."""
        for durations in self._durations:
            durations.take()
        self._ends = array("q")
        self._sent = self._received = self.requests = 0
        if self._events is not None:
            self._events = 0
        self._statuses = {}
        self._failures = {}
        self._started_ns = start_ns
        ends = self._index < len(self._stretches)
        self._boundary_ns = self._measured_from_ns + self._stretches[self._index][0] if ends else _NEVER_NS
        self._server_cpu_mark = self._server_cpu()
        self._client_cpu_mark = process_time_ns()

    def _typical_rps(self) -> float | None:
        """Returns the rate by the median time that a fixed number of answers took; None where there are too few."""
        many = len(self._ends) >= _PACES * self._pace_over
        answers = self._pace_over if many else self._bunched_answers()
        if answers <= 0:
            return None
        ends = np.array(self._ends, dtype=np.int64)
        taken_ns = float(np.median(ends[answers:] - ends[:-answers]))
        return answers / taken_ns * 1e9 if taken_ns > 0 else None

    def _bunched_answers(self) -> int:
        """Returns the number of answers in the whole bunches after the first; 0 where they do not come in bunches.

        Chance decides whether one bunch more or less ends in a turn, but not how long whole bunches take.
        """
        if not 0 < self._together < self._pace_over:
            return 0
        return (len(self._ends) // self._together - 1) * self._together

    def _close(self, end_ns: int, phase: Phase) -> None:
        """Turns the current counts into a round."""
        self._done.append(
            Round(
                boot=self._boot,
                index=self._index,
                phase=phase,
                started_ns=self._started_ns,
                ended_ns=end_ns,
                requests=self.requests,
                latency=self._latency.take(),
                ttfb=self._ttfb.take(),
                service=self._service.take(),
                send_delay=self._send_delay.take(),
                events=self._events,
                first_event=self._first_event.take(),
                event_gap=self._event_gap.take(),
                typical_rps=self._typical_rps() if phase is Phase.ROUND else None,
                bytes_sent=self._sent,
                bytes_received=self._received,
                statuses=tuple(sorted(self._statuses.items())),
                failures=merge_failures(self._failures.values()),
                server_cpu_ns=cpu_spent_ns(self._server_cpu_mark, self._server_cpu()),
                client_cpu_ns=process_time_ns() - self._client_cpu_mark,
            )
        )
        self.finished_requests += self.requests


_NEVER_NS = 1 << 62
