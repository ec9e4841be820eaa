"""A load's recording: its time in rounds, each with counts and histograms. The module `recorder` makes it."""

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
    """Corrects a round's counts for requests that began in an earlier round.

    A round counts the requests that end in it. These figures divide a request among its rounds by time. With 3 s in one
    round and 1 s in the next, it counts as 0.75 and 0.25 there.
    """

    parts: int = 0
    """Billionths of requests. Whole numbers add up exactly, in any order."""
    sent: int = 0
    """Billionths of bytes, as is `received`."""
    received: int = 0
    busy_ns: int = 0
    """A correction in ns to the sum of the latencies (see `Round.busy_ns`)."""
    early: int = 0
    """How many of the round's requests began in the warm-up."""
    early_ns: int = 0
    """The sum of the latencies of these requests."""

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
    """One of several load generators that loaded the server together."""

    number: int
    """The generator's number, from 1 on."""
    of: int
    """How many generators there were."""
    connections: int = 0
    pid: int | None = None
    cores: frozenset[int] = frozenset()
    """Cores that the generator may run on; empty if unknown."""
    lost: str = ""
    """Why the generator's results are missing; else empty."""
    worker: str = ""
    """The address of the generator's Dask worker; empty for a process of this machine."""
    clock_error_ns: int = 0
    """The generator's start time may be wrong by this much; 0 on this machine's clock."""
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
    """If two servers are loaded alternately: the time between one server's slices of load. A closed loop's rates leave
    it out."""
    DRAIN = "drain"
    """The time after the last round, until requests in flight have ended. A closed loop's rates leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: str
    """`connect`, `timeout`, `disconnected`, `protocol`, `status 500`, `size`, `digest`, `assertion`, `cancelled`,
    `stream`, `not sent`, `dropped`, or an exception's class. `stream` is an unexpected stream. `dropped` means that no
    connection was free in time."""
    count: int
    example: str
    """The first such failure's message, with the start of the answer's body."""

    def more(self, count: int) -> Failure:
        return Failure(kind=self.kind, count=self.count + count, example=self.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A stretch of a load's time, with the figures of the requests that ended in it."""

    boot: int
    index: int
    phase: Phase
    started_ns: int
    """`started_ns` and `ended_ns` are on the generator's monotonic clock."""
    ended_ns: int
    requests: int
    """Successful requests. Histograms contain only these."""
    latency: Histogram
    """Nanoseconds to the answer's last byte, from when a request began (closed loop) or was due (open loop). The
    opening of a connection counts."""
    ttfb: Histogram
    """Nanoseconds to the answer's first byte, from the same start as `latency`."""
    bytes_sent: int
    """Body bytes of successful requests, without headers."""
    bytes_received: int
    """Body bytes of the answers to successful requests, without headers."""
    statuses: tuple[tuple[int, int], ...] = ()
    """How many answers had each status code: (code, count), sorted."""
    failures: tuple[Failure, ...] = ()
    server_cpu_ns: int | None = None
    """CPU time of all the server's processes in the round; None if it cannot be read."""
    client_cpu_ns: int = 0
    """CPU time of all load generators in the round."""
    code_ns: int = 0
    """How long journeys (users' functions) and httpx ran in the generators' event loops. If this exceeds the CPU time,
    this code blocks the loops."""
    generators: tuple[GeneratorRound, ...] = ()
    """Each generator's part; empty if there was only one generator."""
    service: Histogram = EMPTY
    """Open loop only: nanoseconds from when a request began to the last byte of its answer."""
    send_delay: Histogram = EMPTY
    """Open loop only: nanoseconds from when a request was due to when it began."""
    events: int | None = None
    """Events (or pieces) of streams, even of streams that failed later. None without streams."""
    first_event: Histogram = EMPTY
    """Nanoseconds to each stream's first event, from the same start as `latency`."""
    event_gap: Histogram = EMPTY
    """Nanoseconds between two events of a stream; 0 if they were read together."""
    answers: int | None = None
    """HTTP requests that were answered, good or failed. None if `statuses` counts them all."""
    typical_rps: float | None = None
    """Requests/s without the effect of stalls (see `tally.typical_rps`). None with too few answers, or if only one
    server is loaded."""

    cut_off: int = 0
    """Answers that came before the server had taken the whole request. The request's rest was not sent."""
    out_of_step: int = 0
    """Connections that the generator gave up because the server sent more than the answer."""
    closed_unsaid: int = 0
    """Connections that the server closed without announcing it in its last answer."""
    closed_said: int = 0
    """Connections that the server closed after announcing it with `Connection: close`."""
    opened: int = 0
    """Connections that were opened in the round; 0 for a part of a load, for which nobody counts them."""
    most_open: int = 0
    """The most connections that were open at one time, summed over generators; 0 for a part of a load."""
    carried: Carried = NOTHING_CARRIED
    """Corrections that rates add to the round's counts."""

    @classmethod
    def summed(cls, parts: Sequence[Round], **own: Any) -> Round:
        """Returns one round for several: a load's parts, several generators' rounds, or consecutive rounds.

        Counts, bytes and histograms add up. `server_cpu_ns` is one round's value and not a sum, because all generators
        read the same server's time. `own` replaces fields of the result.
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
        """The number of successful requests. A request that lies only partly in the round counts in part."""
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
        """HTTP requests that were answered, good or failed."""
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
    kept = {name: getattr(round_, name) for name in ("boot", "index", "phase", "started_ns", "ended_ns")}
    return Round(**kept, **_NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadTimes:
    """An open loop's latencies over time. Each field has one value per stretch of time."""

    due_ns: tuple[int, ...]
    """When each stretch's first request was due, in ns since the warm-up's end; ascending."""
    counts: tuple[int, ...]
    """Successful requests that were due in each stretch."""
    mean_ns: tuple[int, ...]
    max_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootCapacity:
    """The highest rate at which one start-up of the server met its limits."""

    rate: float
    variance: float
    """The variance of the rate's natural logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One start-up of the server."""

    index: int
    pids: tuple[int, ...] = ()
    peak_rss_bytes: int | None = None
    """The sum of the server processes' peaks; None if unknown."""
    memory: tuple[tuple[int, int], ...] = ()
    """Points over time: (requests answered so far, peak memory so far in bytes). Empty if unknown."""
    startup_ns: int | None = None
    """Time from the start of the server's process to its first answer; None unless the test asks for it."""
    queries: Queries | None = None
    """Database queries after the warm-up; None if nobody counted them."""
    stabilised: tuple[str, ...] = ()
    """Random differences between start-ups that are switched off in the server: `hash seed`, `addresses`."""
    tracer: str = ""
    """A tracer that runs in the server or load generator, such as `coverage`."""
    left_share: float = 0.0
    """CPU seconds per second that the server still used after its last answer, beyond its use before the load."""
    was_at_work: bool = False
    """Whether the server was still busy with an earlier load's work when this load began."""
    worker_pids: tuple[int, ...] = ()
    """The processes that answer requests; empty if unknown."""
    cores: frozenset[int] = frozenset()
    """Cores that the server's processes may run on; empty if unknown."""
    children_share: float = 0.0
    """Share of the server's CPU time that its workers' child processes used."""
    generator_cores: frozenset[int] = frozenset()
    """Cores that the generators may run on; empty if unknown, or if the test process makes the load."""
    generators: tuple[GeneratorProcess, ...] = ()
    """The generators of the load; empty if there was only one."""
    samples: Sequence[Sample] = ()
    """States of server, generator and sockets, taken a few times a second."""
    alone: Histogram = EMPTY
    """Durations (ns) of requests that were sent one by one after the load; empty if none were sent."""
    core_delay: float = 1.0
    """Other programs on the same cores slowed the server's work by this factor. Only comparisons measure it; else
    1.0."""
    leads: LeadTimes | None = None
    """Only for an open loop with due requests; else None."""
    thread_pools: tuple[ThreadUse, ...] = ()
    """The threads of each server process, over the rounds."""
    capacity: BootCapacity | None = None
    """The capacity that a search found; None without a search."""
    warm_up: WarmUp = WarmUp()
    """The requests before the rounds."""
    growth: Growth | None = None
    """The growth of memory, threads and open files per request; None if unknown."""
    processes_ended: int = 0
    """How many of the server's processes ended during the load, for example workers that restart."""
    processes_changed: str = ""
    """How the server's processes changed, so that CPU time and memory are unknown. Empty if they are known."""

    def and_then(self, later: Boot, *, memory: tuple[tuple[int, int], ...]) -> Boot:
        """Returns one `Boot` for this load and a later load on the same server; `memory` covers both loads."""
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
        """Returns a copy that also counts the earlier load's lost generators as lost."""
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
    """How requests were sent: `replay` (compiled in advance), `client` (through httpx), `http2` or `in-process`."""
    why_engine: str = ""
    """Why the engine is not `replay`; empty for `replay`."""
    wait_ns: int = 0
    """Time after the rounds until the last answer, added up over all start-ups."""
    open_loop: bool = False
    """Whether requests were due at given instants, however slow the server was."""
    due: int | None = None
    """How many requests were due after the warm-up; None if a closed loop ended by time."""
    attack_ns: int = 0
    """Time from the first to the last due request, added up over all start-ups (vegeta's attack). In a closed loop, the
    rounds' length."""
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
        return max((boot.left_share for boot in self.boots), default=0.0)

    @property
    def processes_changed(self) -> str:
        return "; ".join(dict.fromkeys(boot.processes_changed for boot in self.boots if boot.processes_changed))

    @property
    def total(self) -> Round:
        """The sum of all rounds, even handovers and drains."""
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
        """Returns the rounds that count for rates such as requests/s.

        In a closed loop, handovers and drains do not count. In an open loop all rounds count, because the drain's
        requests were due earlier.
        """
        measured = self.measured()
        return measured if not self.open_loop and any(round_.done for round_ in measured) else self.rounds

    def latency(self) -> Histogram:
        return self.merged("latency")

    def merged(self, name: str) -> Histogram:
        """Returns the joint histogram of all rounds for a field such as `latency`."""
        return Histogram.merged(getattr(round_, name) for round_ in self.rounds)


def merge_failures(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Returns one failure per kind, with its total count, most frequent first."""
    merged: dict[str, Failure] = {}
    for failure in failures:
        seen = merged.get(failure.kind)
        merged[failure.kind] = failure if seen is None else seen.more(failure.count)
    return tuple(sorted(merged.values(), key=lambda one: (-one.count, not one.kind.startswith("status "), one.kind)))


# --- Packs the measurements that a session keeps: before the reports, hardly any code reads them


def pack(values: Iterable[object]) -> None:
    """Compresses the histograms and samples in the values. Equal histograms then share memory."""
    known: dict[bytes, bytes] = {}
    for held in packable_in(tuple(values)):
        if isinstance(held, Samples):
            held.pack()
        else:
            held.held.pack(known)


def packable_in(value: object) -> Iterator[Histogram | Samples]:
    """Yields all histograms and samples in nested dataclasses, tuples and mappings."""
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
    """One start-up's samples. After `pack` they take much less memory."""

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
