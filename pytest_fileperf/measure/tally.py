"""Counts the finished requests of one part of a load, or of one step of a journey, round by round.

A request costs only two or three appends to typed arrays. Histograms are made from whole blocks.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Counts, Histogram, step_of
from pytest_fileperf.measure.recording import (
    HISTOGRAMS,
    NOTHING_CARRIED,
    PARTS,
    Carried,
    Failure,
    LeadTimes,
    Round,
    WarmUp,
    merge_failures,
)
from pytest_fileperf.wire.exchange import Breach

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.measure.recorder import Recorder

# --- Collects durations and lead times: typed arrays take single samples, and whole blocks of samples become counts

BLOCK = 8192
"""This many samples go into a histogram at once, which takes about 0.1 ms."""
_POINTS = 500
"""`LeadTimes` has at most this many stretches of time, as many as a chart can show."""
_Ints: TypeAlias = NDArray[np.int64]


class Durations:
    __slots__ = ("_counts", "_folded", "_max", "_min", "_squares", "_sum", "append", "block")

    def __init__(self) -> None:
        self.block = array("q")
        self.append = self.block.append
        self._counts = np.empty(0, dtype=np.int64)
        self._folded = False
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0

    def fold(self) -> None:
        if not self.block:
            return
        self._folded = True
        values = np.minimum(np.array(self.block, dtype=np.int64), HIGHEST_NS)
        del self.block[:]
        found = np.bincount(step_of(values), minlength=self._counts.size)
        found[: self._counts.size] += self._counts
        self._counts = found  # as long as the slowest sample needs: each step of a journey has several
        self._min = min(self._min, int(values.min()))
        self._max = max(self._max, int(values.max()))
        self._sum += int(values.sum())
        floats = values.astype(np.float64)
        self._squares += float(floats @ floats)

    def take(self) -> Histogram:
        """Returns the histogram of all samples so far, and begins anew."""
        if not self._folded:  # rounds may be short, and a pass through all counts takes too long for them
            if not self.block:
                return EMPTY
            values = np.minimum(np.array(self.block, dtype=np.int64), HIGHEST_NS)
            del self.block[:]
            return Histogram.of(values)
        self.fold()
        self._folded = False
        steps = np.flatnonzero(self._counts)
        held = Counts(steps, self._counts[steps])
        held.pack({})  # packing takes less time than two blocks, and it is kept to the end of the load
        histogram = Histogram(held, min_ns=self._min, max_ns=self._max, sum_ns=self._sum, sum_squares=self._squares)
        self._counts[steps] = 0
        self._min, self._max, self._sum, self._squares = HIGHEST_NS, 0, 0, 0.0
        return histogram


class Leads:
    """Collects the latencies of requests that are due from `start_ns` on, within `span_ns`."""

    def __init__(self, start_ns: int = 0, span_ns: int = 0) -> None:
        self._start_ns = start_ns
        self._stretch_ns = max(1, -(-span_ns // _POINTS))
        self._due = array("q")
        self._latency = array("q")
        self._first = np.full(_POINTS, HIGHEST_NS, dtype=np.int64)
        self._counts = np.zeros(_POINTS, dtype=np.int64)
        self._sums = np.zeros(_POINTS, dtype=np.float64)
        self._most = np.zeros(_POINTS, dtype=np.int64)

    def append(self, due_ns: int, latency_ns: int) -> None:
        self._due.append(due_ns - self._start_ns)
        self._latency.append(latency_ns)
        if len(self._due) >= BLOCK:
            self._fold()

    def _fold(self) -> None:
        due, latency = np.array(self._due, dtype=np.int64), np.array(self._latency, dtype=np.int64)
        del self._due[:], self._latency[:]
        self._add(due, np.ones_like(due), latency, latency)

    def add(self, part: LeadTimes) -> None:
        columns = (part.due_ns, part.counts, part.mean_ns, part.max_ns)
        self._add(*(np.array(column, dtype=np.int64) for column in columns))

    def _add(self, due_ns: _Ints, counts: _Ints, mean_ns: _Ints, max_ns: _Ints) -> None:
        at = np.minimum(due_ns // self._stretch_ns, _POINTS - 1)
        np.minimum.at(self._first, at, due_ns)
        np.maximum.at(self._most, at, max_ns)
        self._counts += np.bincount(at, weights=counts, minlength=_POINTS).astype(np.int64)
        self._sums += np.bincount(at, weights=mean_ns * counts, minlength=_POINTS)

    def taken(self) -> LeadTimes | None:
        """Returns the latencies over time so far; None without samples."""
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


# --- tally


class Tally:
    """Counts and times of one part's or step's requests in the current round."""

    def __init__(self, clock: Recorder, name: str) -> None:
        self.name = name
        """The name of the part or step; empty for a load without parts."""
        self._clock = clock
        self._durations = {name: Durations() for name in HISTOGRAMS}
        self._latency = self._durations["latency"]
        self._ttfb = self._durations["ttfb"]
        self._service = self._durations["service"]
        self._send_delay = self._durations["send_delay"]
        self._first_event = self._durations["first_event"]
        self._event_gap = self._durations["event_gap"]
        self._events: int | None = None
        self._answers: int | None = None
        self._carried: dict[int, Carried] = {}
        """The correction of each round, by the round's index."""
        self.failed = 0
        """Failed requests since the warm-up ended."""
        self.last_end_ns = 0
        self.rounds: list[Round] = []
        self._warm_requests = 0
        self._warm_failures: dict[str, Failure] = {}
        """Failures in the warm-up, by kind."""
        self.begin()

    def is_quick(self, ended_ns: int) -> bool:
        """Returns whether `success` is cheap for a request with this end: it closes no round, and fills no block."""
        return ended_ns < self._clock.boundary_ns and len(self._latency.block) < BLOCK - 1

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
        """Counts a good answer. Its latency runs from `due_ns` (open loop) or `started_ns` (closed loop).

        A request that was due in the warm-up counts only there, even if it ends later.
        """
        clock = self._clock
        if ended_ns >= clock.boundary_ns:
            clock.advance(ended_ns)
        self.last_end_ns = ended_ns
        if due_ns is not None:
            if due_ns < clock.measured_from_ns:
                self._warm_requests += 1
                return
            self._service.append(ended_ns - started_ns)
            self._send_delay.append(started_ns - due_ns)
            clock.leads.append(due_ns, ended_ns - due_ns)
            started_ns = due_ns
        elif started_ns < clock.opened_ns:
            self._carry(started_ns, ended_ns, bytes_sent, bytes_received)
        if clock.paces:
            self.ends.append(ended_ns)
        self._latency.append(ended_ns - started_ns)
        self._ttfb.append(first_byte_ns - started_ns)
        self._sent += bytes_sent
        self._received += bytes_received
        self._statuses[status] = self._statuses.get(status, 0) + 1
        self.requests += 1
        if len(self._latency.block) >= BLOCK:
            for durations in self._durations.values():
                durations.fold()

    def _carry(self, started_ns: int, ended_ns: int, sent: int, received: int) -> None:
        """Divides a request among the rounds in which it was under way."""
        took_ns, last = max(1, ended_ns - started_ns), -1
        for index, within_ns in self._clock.overlaps(started_ns, ended_ns):
            parts, sent_part, received_part = (
                round(within_ns / took_ns * whole * PARTS) for whole in (1, sent, received)
            )
            part = Carried(parts=parts, sent=sent_part, received=received_part, busy_ns=within_ns)
            self._carried[index], last = self._carried.get(index, NOTHING_CARRIED) + part, max(last, index)
        early = started_ns < self._clock.measured_from_ns
        whole = Carried(
            parts=-PARTS,
            sent=-sent * PARTS,
            received=-received * PARTS,
            busy_ns=-took_ns,
            early=int(early),
            early_ns=took_ns if early else 0,
        )
        self._carried[last] += whole

    def settle(self) -> None:
        """Corrects all rounds for requests from earlier rounds. Call it once, after the last request."""
        for index, carried in self._carried.items():
            if index < len(self.rounds):  # a load that was cut short leaves its last round open
                self.rounds[index] = replace(self.rounds[index], carried=carried)

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
        """Counts failed requests of one kind. `status` is the answer's code, if an answer came."""
        clock = self._clock
        if ended_ns >= clock.boundary_ns:
            clock.advance(ended_ns)
        self.last_end_ns = ended_ns
        warm = due_ns is not None and due_ns < clock.measured_from_ns
        failures = self._warm_failures if warm else self._failures
        failures[kind] = failures.get(kind, Failure(kind=kind, count=0, example=example)).more(count)
        if warm:
            return
        if status is not None:
            self._statuses[status] = self._statuses.get(status, 0) + count
        if clock.index >= 0:
            self.failed += count

    def breach(self, breach: Breach, count: int = 1) -> None:
        """Counts connections on which the server broke the protocol."""
        self._breaches[breach] += count

    def counts(self, due_ns: int | None) -> bool:
        """Returns whether a request counts. It does not if it was due in the warm-up."""
        return due_ns is None or due_ns >= self._clock.measured_from_ns

    def answers(self, count: int) -> None:
        """Counts the HTTP answers behind one success or failure, because a journey gets several."""
        self._answers = (self._answers or 0) + count

    def step(self, name: str) -> Tally:
        return self._clock.step(self.name, name)

    def uncounted(self, uncounted_ns: int) -> None:
        self._clock.uncounted_ns += uncounted_ns

    def sent(self, request: httpx.Request) -> None:
        """Notes the methods and paths of the first `MOST_PATHS` requests. Each one costs 1 µs."""
        if self._clock.paths_left > 0:
            self._clock.paths_left -= 1
            self._clock.paths.add((request.method, request.url.path))

    def held_loop(self, code_ns: int) -> None:
        self._clock.code_ns += code_ns

    def first_event(self, at_ns: int, started_ns: int, due_ns: int | None = None) -> None:
        """Counts a stream's first event. Its time runs from the same start as the stream's latency."""
        clock = self._clock
        if at_ns >= clock.boundary_ns:
            clock.advance(at_ns)
        self._events = (self._events or 0) + 1
        if due_ns is None or due_ns >= clock.measured_from_ns:
            self._first_event.append(at_ns - (started_ns if due_ns is None else due_ns))

    def next_event(self, at_ns: int, gap_ns: int) -> None:
        """Counts a stream's later event. `gap_ns` is the time since the stream's previous event."""
        clock = self._clock
        if at_ns >= clock.boundary_ns:
            clock.advance(at_ns)
        self._events = (self._events or 0) + 1
        self._event_gap.append(gap_ns)
        if len(self._event_gap.block) >= BLOCK:
            self._event_gap.fold()

    def end_warm_up(self) -> None:
        self._warm_requests += self.requests
        ended = merge_failures((*self._warm_failures.values(), *self._failures.values()))
        self._warm_failures = {failure.kind: failure for failure in ended}

    def warm_up(self) -> WarmUp:
        return WarmUp(requests=self._warm_requests, failures=merge_failures(self._warm_failures.values()))

    def begin(self) -> None:
        for durations in self._durations.values():
            durations.take()
        self.ends = array("q")
        """When successful requests ended; filled only if `Recorder.paces`."""
        self.requests = 0
        """Successful requests."""
        self._sent = self._received = 0
        self._events = None if self._events is None else 0
        self._answers = None if self._answers is None else 0
        self._statuses: dict[int, int] = {}
        self._breaches = Counter[Breach]()
        self._failures: dict[str, Failure] = {}
        """By kind. Only the first example is kept, because failures may be many."""

    def end(self, **own: Any) -> Round:
        """Makes a round from the current counts. `own` are the round's other fields."""
        own |= {name: durations.take() for name, durations in self._durations.items()}
        round_ = Round(
            **own,
            requests=self.requests,
            events=self._events,
            answers=self._answers,
            bytes_sent=self._sent,
            bytes_received=self._received,
            statuses=tuple(sorted(self._statuses.items())),
            failures=merge_failures(self._failures.values()),
            cut_off=self._breaches[Breach.CUT_OFF],
            out_of_step=self._breaches[Breach.OUT_OF_STEP],
            closed_unsaid=self._breaches[Breach.CLOSED_UNSAID],
        )
        self.rounds.append(round_)
        return round_


# --- A turn's typical rate: the median time of a fixed number of answers. Stalls do not change it


def typical_rps(ends: Sequence[array[int]], connections: int) -> float | None:
    """Returns requests/s from the median time of a fixed number of successive answers. None with too few answers.

    Each of `ends` has the instants at which answers ended, in ns, ascending.
    """
    # The time of fewer than 16 answers is more chance than pace. A bunch is one answer per connection. A part of one
    # takes the time of one bunch or two.
    count, answers = sum(map(len, ends)), connections * math.ceil(16 / connections)
    if count < 2 * answers:
        # Chance decides how many bunches end in a turn, but not how long whole bunches take.
        answers = (count // connections - 1) * connections if connections < answers else 0
    if answers <= 0:
        return None
    found = np.fromiter(chain.from_iterable(ends), dtype=np.int64, count=count)
    if len(ends) > 1:
        found.sort()
    taken_ns = float(np.median(found[answers:] - found[:-answers]))
    return answers / taken_ns * 1e9 if taken_ns > 0 else None
