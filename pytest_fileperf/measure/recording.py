"""What a load leaves behind: rounds with their counts and histograms, in one recording. Frozen; made by `recorder`."""

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

# --- What rounds gain and lose by requests that began before the round in which they ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a round gains and loses by requests that began before the round in which they ended (closed loops).

    Such a request counts in each round with the share of its time that lies there. So slow requests, which end in
    bunches, have the right rate wherever rounds begin and end. Each figure is to be added to that of the round itself.
    """

    parts: int = 0
    """Billionths of requests: whole numbers add up to the same, whichever generator has counted them."""
    sent: int = 0
    received: int = 0
    """Billionths of bytes."""
    busy_ns: int = 0
    """To the sum of the latencies: then it is how long requests were under way within the round, all together."""
    early: int = 0
    """How many requests of the round began in the warm-up."""
    early_ns: int = 0
    """How long these took, all together."""

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
"""Those of a request."""
NOTHING_CARRIED = Carried()


# --- Generators that made one load together, or one on another machine: what each of them did


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRound:
    """What one of several generators did in a round."""

    number: int
    """From 1 on."""
    requests: int
    """Successful ones."""
    failed: int
    cpu_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorProcess:
    """One of several generators that loaded a boot."""

    number: int
    """From 1 on."""
    of: int
    """How many there were."""
    connections: int = 0
    pid: int | None = None
    cores: frozenset[int] = frozenset()
    """Those that it may run on; empty where that is not known."""
    lost: str = ""
    """Why its part of the load is missing; empty where it is there."""
    worker: str = ""
    """The Dask worker that it was beside, by its address; empty for a process of this machine."""
    clock_error_ns: int = 0
    """When it began is known to so much; 0 on the clock of this machine."""
    distance_ns: int = 0
    """The shortest time that a question to it and its answer took; 0 where it was not asked."""

    @property
    def title(self) -> str:
        """`generator 2 of 4`, or `generator 2 of 4 on tcp://10.0.0.2:40331`."""
        return f"generator {self.number} of {self.of}{f' on {self.worker}' if self.worker else ''}"


# --- recording

LATE_NS = 1_000_000
"""A request of an open loop that is sent this long after it was due is late."""


class Phase(StrEnum):
    """Which part of a run a round is."""

    ROUND = "round"
    HANDOVER = "handover"
    """Between the turns of two servers that are loaded in turn: counted and in the latencies, but in no rate."""
    DRAIN = "drain"
    """What was in flight when the last round ended: counted and in the latencies, but in no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of failed request, with its first example."""

    kind: str
    """`connect`, `timeout`, `disconnected`, `protocol`, `status 500`, `size`, `digest`, `assertion`, `cancelled`,
    `stream` (not what it was to be), `not sent`, `dropped` (open loop: no connection was free within the time limit),
    or an exception's class."""
    count: int
    example: str
    """The first one's message, with the start of the body where there is one."""

    def more(self, count: int) -> Failure:
        return Failure(kind=self.kind, count=self.count + count, example=self.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A stretch of time on one boot; a request belongs to the round it ends in, but for rates: see `Carried`."""

    boot: int
    index: int
    phase: Phase
    started_ns: int
    ended_ns: int
    """Both on the generator's monotonic clock."""
    requests: int
    """Successful ones. Failures are counted apart and stay out of the histograms."""
    latency: Histogram
    """Nanoseconds to the last byte read, from when the request began (closed loop) or was due (open). It begins with
    its first byte, or if it needs a new connection, when that is to be opened."""
    ttfb: Histogram
    """Nanoseconds to the first byte of the answer, from the same instant."""
    bytes_sent: int
    """Bodies of successful requests; heads and framing are not counted, so engines and servers compare."""
    bytes_received: int
    statuses: tuple[tuple[int, int], ...] = ()
    """Status code and count, of every answer, sorted."""
    failures: tuple[Failure, ...] = ()
    server_cpu_ns: int | None = None
    """CPU time of the server's whole process tree in the round; None where it cannot be read."""
    client_cpu_ns: int = 0
    """CPU time of the generator's process in the round, or of all generators together."""
    code_ns: int = 0
    """How long the code of journeys, with httpx's, held the event loop of the generator, or of all generators together:
    from where it went on to where it waited again. What is more than the CPU time went into code that blocks."""
    generators: tuple[GeneratorRound, ...] = ()
    """What each generator did; empty where there was one."""
    service: Histogram = EMPTY
    """Open loop: nanoseconds to the last byte read, from when the request began; empty in a closed loop, being the
    latency there."""
    send_delay: Histogram = EMPTY
    """Open loop: nanoseconds from when a request was due to when it began; empty in a closed loop."""
    events: int | None = None
    """Pieces of streams: server-sent events, lines, or so many bytes each. Those of streams that failed later are among
    them. None where no stream had any yet."""
    first_event: Histogram = EMPTY
    """Nanoseconds to the first event of each stream, from the same instant as its latency."""
    event_gap: Histogram = EMPTY
    """Nanoseconds between two events of a stream; 0 for events that were read together."""
    answers: int | None = None
    """HTTP requests that were answered, where one of `requests` may be made of several, as a run of a journey is; those
    of failures too. None where each is one."""
    typical_rps: float | None = None
    """Requests/s by the median time that a fixed number of answers took: as many as there are connections, or the least
    multiple of it from 16 on. A stall does not change it. In a turn of few answers it goes by the time that most of
    them took. None outside the turns of two servers, and in a turn of hardly any answers."""

    cut_off: int = 0
    """Answers that came before the server had taken the whole request: the rest was not sent, and counts nowhere."""
    out_of_step: int = 0
    """Connections that were given up because the server sent more than the answer."""
    closed_unsaid: int = 0
    """Connections that the server closed after an answer that did not announce it."""
    closed_said: int = 0
    """Connections that the server closed after an answer that announced it (`Connection: close`)."""
    opened: int = 0
    """Connections that were opened in the round. This and the next one are not known of the parts of a load."""
    most_open: int = 0
    """The most connections that were open at one time; of several generators the sum of each one's own."""
    carried: Carried = NOTHING_CARRIED
    """What rates add to the counts of this round."""

    @classmethod
    def summed(cls, parts: Sequence[Round], **own: Any) -> Round:
        """Returns these rounds as one: those of all parts of a load, of several generators, or one after the other.

        Counts, bytes, CPU times and histograms add up exactly: a histogram is counts of steps, and the least, the
        greatest and the sum of all values are exact. The CPU time of the server is that of the longest round: all
        generators have read it, and only the last round does not end at one instant. Fields in `own` are as given.
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
        """Successful requests, each by the share of its time that lies within the round."""
        return max(0.0, self.requests + self.carried.parts / PARTS)

    @property
    def sent(self) -> float:
        """Bytes sent, of each request by that share."""
        return max(0.0, self.bytes_sent + self.carried.sent / PARTS)

    @property
    def received(self) -> float:
        """Bytes received, of each request by that share."""
        return max(0.0, self.bytes_received + self.carried.received / PARTS)

    @property
    def busy_ns(self) -> int:
        """How long successful requests were under way within the round, all together."""
        return self.latency.sum_ns + self.carried.busy_ns

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.started_ns

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)

    @property
    def http_requests(self) -> int:
        """Those that were answered, well or not."""
        if self.answers is not None:
            return self.answers
        return sum(count for status, count in self.statuses if status)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What came of the requests of a warm-up: they are in no figure, so what failed among them is counted here."""

    requests: int = 0
    """Successful ones."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: WarmUp | Round) -> WarmUp:
        """Returns both as one; a round may be in no figure, too."""
        return WarmUp(
            requests=self.requests + other.requests, failures=merge_failures((*self.failures, *other.failures))
        )

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)

    @property
    def made(self) -> int:
        """All requests."""
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
    """Latencies by when their requests were due, in equal stretches of time: the lead-time chart of an open loop.

    Where fewer requests than stretches were due, each of them is a stretch of its own.
    """

    due_ns: tuple[int, ...]
    """When the first request of each stretch was due, since the warm-up; ascending, empty stretches left out."""
    counts: tuple[int, ...]
    """Successful requests of each."""
    mean_ns: tuple[int, ...]
    max_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootCapacity:
    """The highest rate at which a boot held its limits, as a search for it found."""

    rate: float
    """Requests per second."""
    variance: float
    """What is uncertain about its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Facts about one boot of the server during its run."""

    index: int
    pids: tuple[int, ...] = ()
    peak_rss_bytes: int | None = None
    """Sum over the process tree of each process's own peak during the run."""
    memory: tuple[tuple[int, int], ...] = ()
    """How its peak grew with the requests that it had answered: `usage.Course`. Empty where that is not known."""
    startup_ns: int | None = None
    """How long it took from the start of its process until it answered; None if that was not to be measured."""
    queries: Queries | None = None
    """Those of its requests after the warm-up; None if nobody counted them."""
    stabilised: tuple[str, ...] = ()
    """What was held equal between boots: `hash seed`, `addresses`."""
    tracer: str = ""
    """What traced the server, or its load generator, such as `coverage`; empty for nothing."""
    left_share: float = 0.0
    """Cores that it went on using after its last answer, beyond what it used before it was loaded: its answers left
    work behind. What only waits cannot be seen."""
    was_at_work: bool = False
    """Whether it was still busy with such work, of an earlier load, when this one began."""
    worker_pids: tuple[int, ...] = ()
    """Those of `pids` that answer requests, each good for about one core; empty where that is not known."""
    cores: frozenset[int] = frozenset()
    """Those that its processes may run on; empty where that is not known."""
    children_share: float = 0.0
    """Share of its CPU time that children used: processes that do not answer requests, and work for those that do."""
    generator_cores: frozenset[int] = frozenset()
    """Those that the generator may run on, or all of them; empty also where that is the test process."""
    generators: tuple[GeneratorProcess, ...] = ()
    """Those that loaded it; empty where there was one."""
    samples: Sequence[Sample] = ()
    """What its processes, the generator and the sockets between them did, a few times a second during the run."""
    alone: Histogram = EMPTY
    """Nanoseconds that requests took one after the other, once the load was over; empty where none were sent."""
    core_delay: float = 1.0
    """How much longer it took for its work than its CPU time, since others had its core meanwhile; in turn only."""
    leads: LeadTimes | None = None
    """Open loop only."""
    thread_pools: tuple[ThreadUse, ...] = ()
    """What the threads of each of its processes did over the rounds."""
    capacity: BootCapacity | None = None
    """Where it was searched for."""
    warm_up: WarmUp = WarmUp()
    """What came of the requests before the rounds, of all runs on this boot."""
    growth: Growth | None = None
    """What it held more of for each request; None where that is not known."""
    processes_ended: int = 0
    """How many of its processes ended during the load, if some of these were there before it: workers that restart."""
    processes_changed: str = ""
    """What happened to the server's processes during a run, so that it is unknown what they used; else empty."""

    def and_then(self, later: Boot, *, memory: tuple[tuple[int, int], ...]) -> Boot:
        """Returns what is known of this boot after a further run on it; `memory` is that of both runs."""
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
        """Returns it with the generators that another run on this boot has lost."""
        lost = {own.number: own.lost for own in earlier.generators}
        return replace(
            self, generators=tuple(replace(own, lost=lost.get(own.number) or own.lost) for own in self.generators)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything measured in one run: all rounds of all boots."""

    rounds: tuple[Round, ...]
    boots: tuple[Boot, ...]
    connections: int
    engine: str
    """`replay` (compiled request), `client` (through httpx's client), `http2` (and its transport) or `in-process`."""
    why_engine: str = ""
    """Why it was not replay; empty for replay."""
    wait_ns: int = 0
    """Time spent waiting for what was in flight after the last rounds, over all runs."""
    open_loop: bool = False
    """Whether requests were due at given instants, however slow the server was."""
    due: int | None = None
    """Open loop and fixed counts: how many requests were due after the warm-up, over all runs."""
    attack_ns: int = 0
    """From the first to the last start that was due, over all runs: vegeta's attack. The rounds in a closed loop."""
    pinned: bool = False
    """Whether server and generator ran on separate cores."""

    @property
    def tracer(self) -> str:
        """What traced the server or its load generator, in any boot; empty for nothing."""
        return ", ".join(dict.fromkeys(boot.tracer for boot in self.boots if boot.tracer))

    @property
    def growth(self) -> Growth | None:
        """What the server held more of for each request, in all boots; None where that is not known."""
        return joined(boot.growth for boot in self.boots)

    @property
    def queries(self) -> Queries | None:
        """Those of the requests of all boots; None if nobody counted them."""
        return Queries.summed(boot.queries for boot in self.boots)

    @property
    def lost(self) -> tuple[str, ...]:
        """Why a generator's part of the load is missing, once for each; empty where all of it is there."""
        found = (own.title + own.lost for boot in self.boots for own in boot.generators if own.lost)
        return tuple(dict.fromkeys(found))

    @property
    def left_share(self) -> float:
        """Cores that the server went on using after its last answer, on the boot with the most; 0.0 for none."""
        return max((boot.left_share for boot in self.boots), default=0.0)

    @property
    def processes_changed(self) -> str:
        """What happened to the server's processes in any boot, so that it is unknown what they used; else empty."""
        return "; ".join(dict.fromkeys(boot.processes_changed for boot in self.boots if boot.processes_changed))

    @property
    def total(self) -> Round:
        """All rounds as one, drains included."""
        if not self.rounds:
            return Round(boot=0, index=0, phase=Phase.ROUND, started_ns=0, ended_ns=0, **_NOTHING)
        return Round.summed(self.rounds)

    def of_boot(self, boot: Boot) -> Recording:
        rounds = tuple(round_ for round_ in self.rounds if round_.boot == boot.index)
        return replace(self, boots=(boot,), rounds=rounds)

    def measured(self) -> tuple[Round, ...]:
        """Returns the rounds proper, without handovers and drains."""
        return tuple(round_ for round_ in self.rounds if round_.phase is Phase.ROUND)

    @property
    def most_open(self) -> int:
        """The most connections that were open at one time."""
        return max((round_.most_open for round_ in self.rounds), default=0)

    def counted(self) -> tuple[Round, ...]:
        """Returns the rounds that the figures of the whole run are over.

        They include the drains in an open loop, where the server was late with requests that were due, and where no
        request was under way before.
        """
        measured = self.measured()
        return measured if not self.open_loop and any(round_.done for round_ in measured) else self.rounds

    def latency(self) -> Histogram:
        """Of all successful requests, drains included."""
        return self.merged("latency")

    def merged(self, name: str) -> Histogram:
        """Returns what all rounds have in one of their histograms, drains included."""
        return Histogram.merged(getattr(round_, name) for round_ in self.rounds)


def merge_failures(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Returns one failure a kind, most frequent first, with the first example of each.

    Of two that are as frequent the answer that tells what failed comes first.
    """
    merged: dict[str, Failure] = {}
    for failure in failures:
        seen = merged.get(failure.kind)
        merged[failure.kind] = failure if seen is None else seen.more(failure.count)
    return tuple(sorted(merged.values(), key=lambda one: (-one.count, not one.kind.startswith("status "), one.kind)))


# --- Makes small what a session keeps of each measurement until its end: nobody reads most of it before the reports


def pack(values: Iterable[object]) -> None:
    """Packs what frozen values hold. It stays what it is, and equal histograms share memory."""
    known: dict[bytes, bytes] = {}
    for held in packable_in(tuple(values)):
        if isinstance(held, Samples):
            held.pack()
        else:
            held.held.pack(known)


_LEAVES = (int, str, float)


def packable_in(value: object) -> Iterator[Histogram | Samples]:
    """Yields the histograms and samples in dataclasses, tuples and mappings, however deep."""
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
        if part is not None and not isinstance(part, _LEAVES):  # nearly all are
            yield from packable_in(part)


class Samples(Sequence[Sample]):
    """What was seen of a boot. Equal to a tuple of the same samples; packed it takes much less memory."""

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


@lru_cache(maxsize=2)
def _unpacked(raw: bytes) -> tuple[Sample, ...]:
    """Who reads one measurement reads it several times."""
    found: tuple[Sample, ...] = pickle.loads(zlib.decompress(raw))  # noqa: S301 - from this process, or another of ours
    return found
