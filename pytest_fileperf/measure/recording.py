"""The recording of a load: rounds with counts and histograms, frozen. `recorder` makes it."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, overload

from pytest_fileperf.host.sample import Sample, ThreadUse
from pytest_fileperf.measure.growth import Growth, joined
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.serve.databases import Queries

# --- Requests that began before the round in which they ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Corrects a closed loop's round for requests that began in an earlier round.

    A round counts the requests that end in it. With these figures added, the round has the share of each request's time
    that lies within it. So rates are right even if slow requests end in bunches.
    """

    parts: int = 0
    """Billionths of requests. They are whole numbers, so their sum does not depend on how generators share a load."""
    sent: int = 0
    received: int = 0
    """`sent` and `received` are billionths of bytes."""
    busy_ns: int = 0
    """Added to the sum of the latencies, this is the total time that requests were under way within the round."""
    early: int = 0
    """How many requests of the round began in the warm-up."""
    early_ns: int = 0
    """The sum of these requests' latencies."""

    def __add__(self, other: Carried) -> Carried:
        return Carried(
            parts=self.parts + other.parts,
            sent=self.sent + other.sent,
            received=self.received + other.received,
            busy_ns=self.busy_ns + other.busy_ns,
            early=self.early + other.early,
            early_ns=self.early_ns + other.early_ns,
        )


PARTS = 1_000_000_000
"""One whole request has this many `Carried.parts`."""
NOTHING_CARRIED = Carried()


# --- Generators that made one load together, or one on another machine


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRound:
    number: int
    requests: int
    """Successful requests."""
    failed: int
    cpu_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorProcess:
    """One of several generators that loaded a start-up."""

    number: int
    """The generator's number, from 1 on."""
    of: int
    """How many generators there were."""
    connections: int = 0
    pid: int | None = None
    cores: frozenset[int] = frozenset()
    """Cores that the generator may run on; empty if unknown."""
    lost: str = ""
    """Why the generator's part of the load is missing; empty if it is there."""
    worker: str = ""
    """The address of the Dask worker beside the generator; empty for a process of this machine."""
    clock_error_ns: int = 0
    """Uncertainty of the generator's start time; 0 on this machine's clock."""
    distance_ns: int = 0
    """Shortest round trip of a message to the generator; 0 if unknown."""

    @property
    def title(self) -> str:
        """`generator 2 of 4`, or `generator 2 of 4 on tcp://10.0.0.2:40331`."""
        return f"generator {self.number} of {self.of}{f' on {self.worker}' if self.worker else ''}"


# --- recording

LATE_NS = 1_000_000
"""An open loop's request is late if it is sent this long after it was due."""


class Phase(StrEnum):
    ROUND = "round"
    HANDOVER = "handover"
    """The time between the turns of two servers that are loaded alternately. Requests that end in it count in totals
    and latencies, but only an open loop's rates count them (see `Recording.counted`)."""
    DRAIN = "drain"
    """The time after the last round until requests in flight have ended. These requests count as in a handover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: str
    """`connect`, `timeout`, `disconnected`, `protocol`, `status 500`, `size`, `digest`, `assertion`, `cancelled`,
    `stream` (an unexpected stream), `not sent`, `dropped`, or an exception's class. `dropped`: no connection of an open
    loop was free in time."""
    count: int
    example: str
    """The first such failure's message, with the start of the answer's body if it has one."""

    def more(self, count: int) -> Failure:
        return Failure(kind=self.kind, count=self.count + count, example=self.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A stretch of one start-up's load. A request belongs to the round in which it ends; for rates see `Carried`."""

    boot: int
    index: int
    phase: Phase
    started_ns: int
    """`started_ns` and `ended_ns` are on the generator's monotonic clock."""
    ended_ns: int
    requests: int
    """Successful requests. Histograms contain only these."""
    latency: Histogram
    """Nanoseconds to the last byte read, from when the request began (closed loop) or was due (open loop). A request
    begins with its first byte, or with the opening of the connection that it needs."""
    ttfb: Histogram
    """Nanoseconds to the first byte of the answer, from the same instant as the latency."""
    bytes_sent: int
    """Bodies of successful requests, without heads and framing."""
    bytes_received: int
    """Bodies of successful requests' answers, without heads and framing."""
    statuses: tuple[tuple[int, int], ...] = ()
    """How many answers had each status code: pairs of code and count, sorted."""
    failures: tuple[Failure, ...] = ()
    server_cpu_ns: int | None = None
    """CPU time of the server's whole process tree in the round; None if it cannot be read."""
    client_cpu_ns: int = 0
    """CPU time of the generator's process in the round, or of all generators."""
    code_ns: int = 0
    """How long the event loops of all generators ran journeys' code and httpx. If this exceeds the CPU time, that code
    blocks."""
    generators: tuple[GeneratorRound, ...] = ()
    """Each generator's part; empty if there was only one generator."""
    service: Histogram = EMPTY
    """Open loop: nanoseconds to the last byte read, from when the request began; empty in a closed loop."""
    send_delay: Histogram = EMPTY
    """Open loop: nanoseconds from when a request was due to when it began; empty in a closed loop."""
    events: int | None = None
    """Events or pieces of streams, even of streams that failed later. None if no stream has begun."""
    first_event: Histogram = EMPTY
    """Nanoseconds to the first event of each stream, from the same instant as its latency."""
    event_gap: Histogram = EMPTY
    """Nanoseconds between two events of a stream; 0 for events that were read together."""
    answers: int | None = None
    """Answered HTTP requests, good or failed. None if each of `requests` makes exactly one HTTP request."""
    typical_rps: float | None = None
    """Requests/s by the median time of a fixed number of answers (see `tally.typical_rps`), so a stall does not change
    it. None in a turn (slice of load) with hardly any answers, and if the load has one server only."""

    cut_off: int = 0
    """Answers that came before the server had taken the whole request. The rest of such a request was not sent, and
    counts nowhere."""
    out_of_step: int = 0
    """Connections that were given up because the server sent more than the answer."""
    closed_unsaid: int = 0
    """Connections that the server closed after an answer that did not announce it."""
    closed_said: int = 0
    """Connections that the server closed after an answer that announced it (`Connection: close`)."""
    opened: int = 0
    """Connections that were opened in the round. For parts of a load, this and `most_open` are unknown, and 0."""
    most_open: int = 0
    """The most connections open at one time; with several generators, the sum of each one's most."""
    carried: Carried = NOTHING_CARRIED
    """Corrections that rates add to the round's counts."""

    @classmethod
    def summed(cls, parts: Sequence[Round], **own: Any) -> Round:
        """Returns one round for several: a load's parts, several generators' rounds, or consecutive rounds.

        Counts, bytes and histograms add up. `server_cpu_ns` does not, because all generators read the same server's
        time. It comes from the round that ended last, if possible with a value. So for consecutive rounds it is not
        their total. `own` replaces fields of the result.
        """
        first, *others = parts
        sums: dict[str, Any] = {}
        if others:
            longest = max(parts, key=lambda part: (part.server_cpu_ns is not None, part.ended_ns))
            statuses: Counter[int] = Counter()
            for part in parts:
                statuses.update(dict(part.statuses))
            sums |= {name: sum(getattr(part, name) for part in parts) for name in _SUMS}
            sums |= {name: Histogram.merged(getattr(part, name) for part in parts) for name in HISTOGRAMS}
            sums |= {
                "started_ns": min(part.started_ns for part in parts),
                "ended_ns": max(part.ended_ns for part in parts),
                "statuses": tuple(sorted(statuses.items())),
                "failures": merge_failures(failure for part in parts for failure in part.failures),
                "server_cpu_ns": longest.server_cpu_ns,
                "carried": sum((part.carried for part in parts), NOTHING_CARRIED),
            }
            if any(part.events is not None for part in parts):
                sums["events"] = sum(part.events or 0 for part in parts)
            if any(part.answers is not None for part in parts):
                sums["answers"] = sum(part.http_requests for part in parts)
        return replace(first, **{**sums, **own})

    @property
    def done(self) -> float:
        """Successful requests, each by the share of its time within the round."""
        return max(0.0, self.requests + self.carried.parts / PARTS)

    @property
    def sent(self) -> float:
        """Bytes sent, by the same shares as `done`."""
        return max(0.0, self.bytes_sent + self.carried.sent / PARTS)

    @property
    def received(self) -> float:
        """Bytes received, by the same shares as `done`."""
        return max(0.0, self.bytes_received + self.carried.received / PARTS)

    @property
    def busy_ns(self) -> int:
        """The total time that successful requests were under way within the round."""
        return self.latency.sum_ns + self.carried.busy_ns

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.started_ns

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)

    @property
    def http_requests(self) -> int:
        """How many HTTP requests were answered, good or failed."""
        if self.answers is not None:
            return self.answers
        return sum(count for status, count in self.statuses if status)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The requests of a warm-up. No other figure contains them."""

    requests: int = 0
    """Successful requests."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: WarmUp | Round) -> WarmUp:
        return WarmUp(
            requests=self.requests + other.requests, failures=merge_failures((*self.failures, *other.failures))
        )

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)

    @property
    def made(self) -> int:
        return self.requests + self.failed


_SUMS = (
    "requests", "bytes_sent", "bytes_received", "client_cpu_ns", "code_ns", "cut_off", "out_of_step", "closed_unsaid",
    "closed_said", "opened", "most_open",
)  # fmt: skip
HISTOGRAMS = ("latency", "ttfb", "service", "send_delay", "first_event", "event_gap")
_NOTHING: Mapping[str, Any] = {"requests": 0, "latency": EMPTY, "ttfb": EMPTY, "bytes_sent": 0, "bytes_received": 0}


def without_samples(round_: Round) -> Round:
    """Returns a round of the same time in which nothing ended."""
    kept = {name: getattr(round_, name) for name in ("boot", "index", "phase", "started_ns", "ended_ns")}
    return Round(**kept, **_NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadTimes:
    """An open loop's latencies over time. Each stretch of time with a due request has one item in every field."""

    due_ns: tuple[int, ...]
    """When each stretch's first request was due, counted from the end of the warm-up; ascending."""
    counts: tuple[int, ...]
    """Successful requests of each stretch."""
    mean_ns: tuple[int, ...]
    max_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootCapacity:
    """The highest rate at which a start-up met its limits, as a search found it."""

    rate: float
    variance: float
    """The variance of the rate's natural logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One start-up of the server."""

    index: int
    pids: tuple[int, ...] = ()
    peak_rss_bytes: int | None = None
    """The sum of the peaks of the server's processes. None if unknown."""
    memory: tuple[tuple[int, int], ...] = ()
    """Points: how many requests were answered, and the peak memory so far in bytes (see `usage.Course`). Empty if
    unknown."""
    startup_ns: int | None = None
    """Time from the start of the server's process to its first answer; None unless the test asks for it."""
    queries: Queries | None = None
    """Queries after the warm-up; None if nobody counted them."""
    stabilised: tuple[str, ...] = ()
    """Which chance differences between start-ups are switched off in the server: `hash seed`, `addresses`."""
    tracer: str = ""
    """The tracer of the server or its load generator, such as `coverage`."""
    left_share: float = 0.0
    """CPU seconds per second that the server used after its last answer, less its use before the load. The load's
    requests left this work behind."""
    was_at_work: bool = False
    """Whether the server was still busy with work of an earlier load when this one began."""
    worker_pids: tuple[int, ...] = ()
    """The processes that answer requests; empty if unknown."""
    cores: frozenset[int] = frozenset()
    """Cores that the server's processes may run on; empty if unknown."""
    children_share: float = 0.0
    """Share of the server's CPU time in child processes that work for its workers."""
    generator_cores: frozenset[int] = frozenset()
    """Cores that the generators may run on; empty if unknown, or if the test process makes the load."""
    generators: tuple[GeneratorProcess, ...] = ()
    """The generators of the load; empty if there was only one."""
    samples: Sequence[Sample] = ()
    """States of the server's processes, the generator and the sockets between them, taken a few times a second."""
    alone: Histogram = EMPTY
    """How long (ns) requests took that were sent one by one after the load; empty if none were sent."""
    core_delay: float = 1.0
    """Time that the server's work took ÷ its CPU time: above 1.0 if other programs used its cores. Always 1.0 outside
    of a comparison."""
    leads: LeadTimes | None = None
    """Only for an open loop with due requests; else None."""
    thread_pools: tuple[ThreadUse, ...] = ()
    """The threads of each of the server's processes, over the rounds."""
    capacity: BootCapacity | None = None
    """The capacity that a search found; None without a search."""
    warm_up: WarmUp = WarmUp()
    """The requests before the rounds, over all loads of this start-up."""
    growth: Growth | None = None
    """The server's growth of resources per request; None if unknown."""
    processes_ended: int = 0
    """How many of the server's processes from before the load ended during it, for example workers that restart."""
    processes_changed: str = ""
    """Which change of the server's processes makes their CPU time and memory unknown; empty if they are known."""

    def and_then(self, later: Boot, *, memory: tuple[tuple[int, int], ...]) -> Boot:
        """Returns one `Boot` for this load and the `later` one; `memory` is the course over both loads."""
        peaks = [peak for peak in (self.peak_rss_bytes, later.peak_rss_bytes) if peak is not None]
        changed = later.processes_changed or self.processes_changed
        return replace(
            later.with_lost(self),
            peak_rss_bytes=None if changed else max(peaks, default=None),
            memory=memory,
            samples=Samples((*self.samples, *later.samples)),
            alone=Histogram.merged((self.alone, later.alone)),
            warm_up=self.warm_up + later.warm_up,
            left_share=max(self.left_share, later.left_share),
            was_at_work=self.was_at_work or later.was_at_work,
            growth=joined((self.growth, later.growth)),
            queries=Queries.summed((self.queries, later.queries)),
            processes_ended=self.processes_ended + later.processes_ended,
            processes_changed=changed,
        )

    def with_lost(self, earlier: Boot) -> Boot:
        """Returns a copy. Generators that an `earlier` load of this start-up lost count as lost in the copy."""
        lost = {own.number: own.lost for own in earlier.generators}
        return replace(
            self, generators=tuple(replace(own, lost=lost.get(own.number) or own.lost) for own in self.generators)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    rounds: tuple[Round, ...]
    boots: tuple[Boot, ...]
    connections: int
    engine: str
    """`replay` (compiled request), `client` (through httpx's client), `http2` (as `client`, by HTTP/2) or
    `in-process`."""
    why_engine: str = ""
    """Why the engine is not `replay`; empty for `replay`."""
    wait_ns: int = 0
    """Time after the last rounds until requests in flight ended, over all start-ups."""
    open_loop: bool = False
    """Whether requests were due at given instants, however slow the server was."""
    due: int | None = None
    """How many requests were due after the warm-up, over all start-ups; None in a closed loop that ends by time."""
    attack_ns: int = 0
    """Time from the first to the last request that was due, over all start-ups (vegeta's attack). In a closed loop, the
    length of the rounds."""
    pinned: bool = False
    """Whether server and generator ran on separate cores."""

    @property
    def tracer(self) -> str:
        return ", ".join(dict.fromkeys(boot.tracer for boot in self.boots if boot.tracer))

    @property
    def growth(self) -> Growth | None:
        return joined(boot.growth for boot in self.boots)

    @property
    def queries(self) -> Queries | None:
        return Queries.summed(boot.queries for boot in self.boots)

    @property
    def lost(self) -> tuple[str, ...]:
        found = (own.title + own.lost for boot in self.boots for own in boot.generators if own.lost)
        return tuple(dict.fromkeys(found))

    @property
    def left_share(self) -> float:
        """The highest `Boot.left_share` of all start-ups."""
        return max((boot.left_share for boot in self.boots), default=0.0)

    @property
    def processes_changed(self) -> str:
        return "; ".join(dict.fromkeys(boot.processes_changed for boot in self.boots if boot.processes_changed))

    @property
    def total(self) -> Round:
        """All rounds as one by `Round.summed`, even handovers and drains."""
        if not self.rounds:
            return Round(boot=0, index=0, phase=Phase.ROUND, started_ns=0, ended_ns=0, **_NOTHING)
        return Round.summed(self.rounds)

    def of_boot(self, boot: Boot) -> Recording:
        rounds = tuple(round_ for round_ in self.rounds if round_.boot == boot.index)
        return replace(self, boots=(boot,), rounds=rounds)

    def measured(self) -> tuple[Round, ...]:
        """Returns the rounds that are neither handovers nor drains."""
        return tuple(round_ for round_ in self.rounds if round_.phase is Phase.ROUND)

    @property
    def most_open(self) -> int:
        return max((round_.most_open for round_ in self.rounds), default=0)

    def counted(self) -> tuple[Round, ...]:
        """Returns the rounds that count for the load's rates.

        In a closed loop these are the rounds of `measured`, or all rounds if no request ended in these. In an open loop
        all rounds count, even drains, because the server was late with their requests.
        """
        measured = self.measured()
        return measured if not self.open_loop and any(round_.done for round_ in measured) else self.rounds

    def latency(self) -> Histogram:
        return self.merged("latency")

    def merged(self, name: str) -> Histogram:
        """Returns the joint histogram of all rounds, even handovers and drains, from their field `name`."""
        return Histogram.merged(getattr(round_, name) for round_ in self.rounds)


def merge_failures(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Returns one failure per kind with its total count, most frequent first. At equal counts, statuses come first."""
    merged: dict[str, Failure] = {}
    for failure in failures:
        seen = merged.get(failure.kind)
        merged[failure.kind] = failure if seen is None else seen.more(failure.count)
    return tuple(sorted(merged.values(), key=lambda one: (-one.count, not one.kind.startswith("status "), one.kind)))


# --- Packs the measurements that a session keeps: before the reports, hardly any code reads them


def pack(values: Iterable[object]) -> None:
    """Makes the histograms and samples in the values smaller. They stay equal, and equal histograms share memory."""
    known: dict[bytes, bytes] = {}
    for held in packable_in(tuple(values)):
        if isinstance(held, Samples):
            held.pack()
        else:
            held.held.pack(known)


def packable_in(value: object) -> Iterator[Histogram | Samples]:
    """Yields the histograms and samples in a value: a dataclass, tuple or mapping, however deeply nested."""
    parts: Iterable[object] = ()
    if isinstance(value, Histogram | Samples):
        yield value
    elif is_dataclass(value):
        parts = (getattr(value, field.name) for field in fields(value))
    elif isinstance(value, tuple):
        parts = value
    elif isinstance(value, Mapping):
        parts = value.values()
    for part in parts:
        if not isinstance(part, int | str | float | None):  # nearly all are
            yield from packable_in(part)


class Samples(Sequence[Sample]):
    """The samples of one start-up; equal to a tuple of the same samples. After `pack` they take much less memory."""

    __slots__ = ("_count", "_held")

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._held: tuple[Sample, ...] | bytes = tuple(samples)
        self._count = len(self._held)

    def pack(self) -> None:
        if isinstance(self._held, tuple):
            self._held = zlib.compress(pickle.dumps(self._held, protocol=pickle.HIGHEST_PROTOCOL), level=1)

    def _all(self) -> tuple[Sample, ...]:
        return self._held if isinstance(self._held, tuple) else _unpacked(self._held)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._all())

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return self._all() == tuple(other) if isinstance(other, Samples | tuple) else NotImplemented


@lru_cache(maxsize=2)  # a reader asks several times
def _unpacked(raw: bytes) -> tuple[Sample, ...]:
    found: tuple[Sample, ...] = pickle.loads(zlib.decompress(raw))  # noqa: S301 - from this process, or another of ours
    return found
