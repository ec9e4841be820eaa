"""How much server and generator use cores, threads and storage, from samples during the load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TypeAlias

import numpy as np

from pytest_fileperf.host.sample import CoreTime, MainThread, ProcessUse, Sample, SocketQueues
from pytest_fileperf.measure.metrics import Metric, Unit
from pytest_fileperf.measure.recording import Boot, GeneratorProcess, Recording, Round

# --- How several generators shared a load, and how busy each was


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUse:
    number: int
    """The generator's number, from 1 on."""
    cores: tuple[int, ...]
    """Cores that the generator ran on; empty if unknown."""
    connections: int
    rps: float
    """The generator's successful requests per second."""
    errors: int
    cpu_share: float
    """CPU seconds per second of the rounds: 1.0 is a whole core."""
    lost: str = ""
    """Why the generator's results are missing; else empty."""
    worker: str = ""
    """The address of the generator's Dask worker; empty for a process of this machine."""
    clock_error: float = 0.0
    """The generator's start time may be wrong by this many seconds; 0.0 on this machine's clock."""
    distance: float = 0.0
    """Seconds of the shortest round trip of a message to the generator; 0.0 if unknown."""


def busiest_share(rounds: Sequence[Round]) -> float:
    """Returns the busiest generator's CPU seconds per second; 0.0 without rounds."""
    duration_ns = sum(round_.duration_ns for round_ in rounds)
    if not duration_ns:
        return 0.0
    shares = _shares_of_cores(rounds)
    return max(shares.values()) if shares else sum(round_.client_cpu_ns for round_ in rounds) / duration_ns


def busiest_title(recording: Recording) -> str:
    """Returns the busiest generator, as in `generator 2 of 4`. Empty if there is only one."""
    shares = _shares_of_cores(recording.counted())
    if len(shares) < 2:
        return ""
    of = max((own.of for boot in recording.boots for own in boot.generators), default=len(shares))
    return f"generator {max(shares, key=lambda number: shares[number])} of {of}"


def generator_uses(recording: Recording) -> tuple[GeneratorUse, ...]:
    """Returns each generator's figures, sorted by number. Empty if there is only one."""
    rounds, shares = recording.counted(), _shares_of_cores(recording.counted())
    seconds = sum(round_.duration_ns for round_ in rounds) / 1e9
    on_boots: dict[int, list[GeneratorProcess]] = {}
    for own in (own for boot in recording.boots for own in boot.generators):
        on_boots.setdefault(own.number, []).append(own)
    known = {number: next((one for one in each[::-1] if one.lost), each[0]) for number, each in on_boots.items()}
    requests, errors = Counter[int](), Counter[int]()
    for round_ in rounds:
        requests.update({done.number: done.requests for done in round_.generators})
    for round_ in recording.rounds:
        errors.update({done.number: done.failed for done in round_.generators})
    return tuple(
        GeneratorUse(
            number=number,
            cores=tuple(sorted(own.cores)),
            connections=own.connections,
            rps=requests[number] / seconds if seconds else 0.0,
            errors=errors[number],
            cpu_share=shares.get(number, 0.0),
            lost=own.lost,
            worker=own.worker,
            clock_error=max(one.clock_error_ns for one in on_boots[number]) / 1e9,
            distance=min(one.distance_ns for one in on_boots[number]) / 1e9,
        )
        for number, own in sorted(known.items())
    )


def _shares_of_cores(rounds: Sequence[Round]) -> dict[int, float]:
    """Returns each generator's CPU seconds per second, by its number."""
    cpu_ns, duration_ns = Counter[int](), Counter[int]()
    for round_ in rounds:
        cpu_ns.update({own.number: own.cpu_ns for own in round_.generators})
        duration_ns.update({own.number: round_.duration_ns for own in round_.generators})
    return {number: cpu_ns[number] / length_ns for number, length_ns in duration_ns.items() if length_ns}


# --- usage

BUSY_CORE = 0.90
"""A process that runs for this share of the time is saturated, because waking up takes the rest."""
CHILDREN_WORK = 0.05
"""If child processes use fewer CPU seconds per second, their work is ignored."""
_NEARLY_ALL = 0.95
"""A thread pool is full if this share of its threads is busy. The others may be about to take work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """A process's use of cores, as shares of the time."""

    ran: float
    """Share of the time in which its threads ran, added up over all threads."""
    main_ran: float = 0.0
    """Share of the time in which its main thread ran; 0.0 if the system does not report it."""
    main_waited: float = 0.0
    """Share of the time in which its main thread waited for a core; 0.0 if not reported."""

    @property
    def wanted(self) -> float:
        """Share of the time in which the process ran or waited for a core. The true share may be higher."""
        return max(self.ran, self.main_ran + self.main_waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadShares:
    """States of the server's worker threads, from samples (looks)."""

    looks: int
    idle: float
    """Share of the looks in which a worker's main thread waited for work."""
    blocked: float
    """Share of the looks in which a main thread had work, but waited for something other than storage."""
    storage: float
    """Share of the looks in which a main thread had work but waited for storage."""
    running: float
    """Share of the looks in which any thread of a worker was on a core or waited for one."""
    pool: float
    """How many threads the thread pools of all workers have."""
    pool_full: float
    """Share of the looks in which nearly all threads of the pools were busy."""
    pool_busy: float
    """How many threads besides the main ones were busy on average."""
    pool_storage: float
    """How many of the busy threads waited for storage, on average."""
    pool_lock: float
    """How many of the busy threads waited for a lock or for another thread, on average."""

    @property
    def stuck(self) -> float:
        return self.blocked + self.storage


class Span:
    """The rounds of one start-up, and the samples during them."""

    def __init__(self, boot: Boot, rounds: Sequence[Round]) -> None:
        self.boot = boot
        self.start_ns = min(round_.started_ns for round_ in rounds)
        self.end_ns = max(round_.ended_ns for round_ in rounds)
        self.cpu_ns = sum(round_.server_cpu_ns or 0 for round_ in rounds)
        """CPU time of the whole server, including processes that ended; 0 if unknown."""
        self.samples = [sample for sample in boot.samples if self.start_ns <= sample.at_ns <= self.end_ns]

    def is_worker(self, pid: int) -> bool:
        """If workers are unknown, every process counts as a worker."""
        return not self.boot.worker_pids or pid in self.boot.worker_pids

    def workers_in(self, sample: Sample) -> tuple[ProcessUse, ...]:
        return tuple(use for use in sample.server if self.is_worker(use.pid))

    def growth(self, value: Callable[[Sample], int | None]) -> float | None:
        """Returns a value's growth per ns over the rounds; None with too few samples."""
        seen = [(sample.at_ns, known) for sample in self.boot.samples if (known := value(sample)) is not None]
        if len(seen) < 2:
            return None
        times = [at_ns for at_ns, _ in seen]
        start_ns, end_ns = max(self.start_ns, times[0]), min(self.end_ns, times[-1])
        if start_ns >= end_ns:
            return None
        start, end = map(float, np.interp((start_ns, end_ns), times, [known for _, known in seen]))
        return (end - start) / (end_ns - start_ns)


def spans_of(recording: Recording) -> Iterator[Span]:
    """Yields a span for each start-up that has rounds."""
    rounds = recording.counted()
    for boot in recording.boots:
        if own := [round_ for round_ in rounds if round_.boot == boot.index]:
            yield Span(boot, own)


class Usage:
    """How busy server and generator were, in the rounds that count for rates. A figure is None or empty if unknown."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._rounds = recording.counted()
        self._duration_ns = sum(round_.duration_ns for round_ in self._rounds)
        self._spans = tuple(spans_of(recording)) if self._duration_ns else ()

    @cached_property
    def rps(self) -> float:
        return sum(round_.done for round_ in self._rounds) / self._duration_ns * 1e9 if self._duration_ns else 0.0

    @cached_property
    def in_flight(self) -> float:
        """Requests under way on average: their total time ÷ the rounds' time (Little's law)."""
        is_open = self.recording.open_loop
        busy_ns = sum(round_.service.sum_ns if is_open else round_.busy_ns for round_ in self._rounds)
        return min(self.recording.connections, busy_ns / self._duration_ns) if self._duration_ns else 0.0

    @cached_property
    def generator(self) -> CoreUse:
        """The load generator's use of cores. Of several generators, the busiest one's."""
        busiest = []
        for span in self._spans:
            pids = dict.fromkeys(use.pid for sample in span.boot.samples for use in sample.generators)
            if found := _uses(span, lambda sample: sample.generators, pids):
                busiest.append(max(found, key=lambda use: use.wanted))
        mean = _mean_use(busiest)
        return CoreUse(ran=busiest_share(self._rounds), main_ran=mean.main_ran, main_waited=mean.main_waited)

    @cached_property
    def code_blocked(self) -> float:
        """Share of the time in which journeys' code blocked the event loop without using a core; a lower bound."""
        held_ns = sum(round_.code_ns - round_.client_cpu_ns for round_ in self._rounds)
        looked_ns = sum(round_.duration_ns * max(1, len(round_.generators)) for round_ in self._rounds)
        return max(0.0, held_ns / looked_ns - self.generator.main_waited) if looked_ns else 0.0

    @cached_property
    def server_ran(self) -> float | None:
        """CPU seconds per second of all the server's processes."""
        known = [round_.server_cpu_ns for round_ in self._rounds if round_.server_cpu_ns is not None]
        return sum(known) / self._duration_ns if self._duration_ns and len(known) == len(self._rounds) else None

    @cached_property
    def workers(self) -> tuple[CoreUse, ...]:
        """Each worker's use of cores, the busiest first; the mean over start-ups."""
        count, *others = {len(span.boot.worker_pids) for span in self._spans} or {0}
        if others or not count:
            return ()
        boots = [
            sorted(_uses(span, _of_server, span.boot.worker_pids), key=lambda worker: -worker.wanted)
            for span in self._spans
        ]
        if any(len(workers) < count for workers in boots):
            return () if self.server_ran is None else (CoreUse(ran=self.server_ran / count),) * count
        return tuple(map(_mean_use, zip(*boots, strict=True)))

    @cached_property
    def children_ran(self) -> float:
        """CPU seconds per second of the workers' child processes; `server_ran` includes them."""
        return _mean([span.boot.children_share * (self.server_ran or 0.0) for span in self._spans])

    @cached_property
    def busiest_children(self) -> tuple[float, ...]:
        """CPU seconds per second of each busy child process in the last start-up, the busiest first."""
        if self.children_ran < CHILDREN_WORK:
            return ()
        *_, span = self._spans
        seen = dict.fromkeys(use.pid for sample in span.boot.samples for use in sample.server)
        uses = _uses(span, _of_server, [pid for pid in seen if pid not in span.boot.worker_pids])
        return tuple(sorted((use.ran for use in uses if use.ran >= CHILDREN_WORK), reverse=True))

    @cached_property
    def cores(self) -> int:
        """How many cores the server may use; 1 if unknown."""
        return max((len(span.boot.cores) for span in self._spans), default=0) or 1

    @cached_property
    def cores_used(self) -> float:
        """Share of `cores` that the server used, together with a generator on the same cores."""
        beside = any(span.boot.cores & span.boot.generator_cores for span in self._spans)
        return ((self.server_ran or 0.0) + (self.generator.ran if beside else 0.0)) / self.cores

    @cached_property
    def threads(self) -> ThreadShares | None:
        """States of the workers' threads; None if unknown, or with fewer than five samples."""
        each = [[span.workers_in(sample) for sample in span.samples] for span in self._spans]
        looks = [look for of_span in each for look in of_span]
        # While another thread runs, a waiting main thread may be waiting for the interpreter's lock.
        mains = Counter(
            MainThread.RUNNING if use.main is MainThread.BLOCKED and use.running_threads else use.main
            for look in looks
            for use in look
            if use.main is not None
        )
        seen = [look for look in looks if look and all(process.busy_threads is not None for process in look)]
        if not mains or len(seen) < 5:  # fewer say nothing about shares of the time
            return None
        pools = [
            sum(use.pool or 0 for use in span.boot.thread_pools if span.is_worker(use.pid)) for span in self._spans
        ]
        full = [
            0 < pool * _NEARLY_ALL <= sum(process.busy_threads or 0 for process in look)
            for pool, of_span in zip(pools, each, strict=True)
            for look in of_span
        ]
        return ThreadShares(
            looks=len(seen),
            idle=mains[MainThread.IDLE] / mains.total(),
            blocked=mains[MainThread.BLOCKED] / mains.total(),
            storage=mains[MainThread.STORAGE] / mains.total(),
            running=_mean([bool(process.running_threads) for look in seen for process in look]),
            pool=_mean(pools),
            pool_full=_mean(full),
            pool_busy=_mean([sum(process.busy_threads or 0 for process in look) for look in seen]),
            pool_storage=_mean([sum(process.storage_threads for process in look) for look in seen]),
            pool_lock=_mean([sum(process.lock_threads for process in look) for look in seen]),
        )

    @cached_property
    def queues(self) -> list[SocketQueues]:
        return [sample.queues for span in self._spans for sample in span.samples if sample.queues is not None]

    @cached_property
    def under_way(self) -> float:
        """Average number of connections with bytes that were sent but not yet read, in either direction."""
        return _mean([queues.under_way for queues in self.queues])

    @cached_property
    def storage_used(self) -> bool:
        """Whether the server used storage; if unknown, whether anything on the machine waited for storage."""
        return any(map(_used_storage, self._spans))

    @cached_property
    def storage_stalled(self) -> float:
        """Share of the time in which something on the machine waited for storage; 0.0 if unknown."""
        return _mean([_storage_stalled(span) for span in self._spans])


def _mean_use(uses: Sequence[CoreUse]) -> CoreUse:
    columns = {name: [getattr(use, name) for use in uses] for name in ("ran", "main_ran", "main_waited")}
    return CoreUse(**{name: _mean(column) for name, column in columns.items()})


def _of_server(sample: Sample) -> Iterable[ProcessUse]:
    return sample.server


def _uses(span: Span, of: Callable[[Sample], Iterable[ProcessUse]], pids: Iterable[int]) -> list[CoreUse]:
    def share(pid: int, name: str) -> float | None:
        return span.growth(lambda sample: next((getattr(use, name) for use in of(sample) if use.pid == pid), None))

    return [
        CoreUse(ran=ran, main_ran=share(pid, "main_cpu_ns") or 0.0, main_waited=share(pid, "waiting_ns") or 0.0)
        for pid in pids
        if (ran := share(pid, "cpu_ns")) is not None
    ]


def _used_storage(span: Span) -> bool:
    def moved(sample: Sample) -> int | None:
        known = [
            use.read_bytes + use.written_bytes
            for use in sample.server
            if use.read_bytes is not None and use.written_bytes is not None
        ]
        return sum(known) if known else None

    if (moving := span.growth(moved)) is not None:
        return moving > 0
    return _storage_stalled(span) >= 0.10  # less is the machine that writes its own logs


def _storage_stalled(span: Span) -> float:
    return span.growth(lambda sample: sample.io_stalled_ns) or 0.0


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


# --- How much of the time others had the cores that server and generator wanted, with its consequences
#
# Time counts as taken only if two things agree: something waited for a core, and others ran on it. Waiting alone proves
# nothing, because a server's threads wait for each other. Others' work alone proves nothing either: they may have had a
# core while the server idled. Time that a virtual machine's host took also counts.
#
#     wanted   ├──────── ran ────────┤├── waited ──┤
#     core     ├──────── ran ────────┤├─ others ─┤ idle
#     taken                           ├──────────┤
#
# An app in the test process is its own generator. There only the host counts.

BUSY = 0.03
"""A machine is busy if other programs took a needed core for at least this share of the time. On an idle machine, test
run and kernel take less than 0.01. Above this share, rates may fall by more than 5 %."""
_COLD = 2.0
"""If other programs took 10 % of the time, a rate may lose this many times 10 %. Other programs also make each request
cost more CPU time. Measured in 28 runs of the same code, with 4 to 34 % of the time taken."""
_OF_TIME = (Unit.PER_SECOND, Unit.BYTES_PER_SECOND, Unit.SECONDS)
"""Units of metrics that get worse with less time on a core, unlike memory and error rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Shares of the time in which other programs had cores that server or generator needed; 0.0 if unknown."""

    server: float = 0.0
    """The share of its needed core time that the server lost to others."""
    generator: float = 0.0
    """As `server`, for the load generator."""
    host: float = 0.0
    """The host of a virtual machine took this much of the larger of these two shares."""

    @property
    def is_busy(self) -> bool:
        return max(self.server, self.generator) >= BUSY

    def __str__(self) -> str:
        """Returns `other programs used the server's core 26 % of the time`, or an empty text."""
        shares = (("the server's core", self.server), ("the load generator's core", self.generator))
        told = [f"{whose} {share * 100:.0f} % of the time" for whose, share in shares if share >= BUSY]
        host = f" (the host of this virtual machine {self.host * 100:.0f} %)" if self.host >= BUSY else ""
        return f"other programs used {' and '.join(told)}{host}" if told else ""

    def explains(self, metric: Metric) -> float:
        """Returns how much of a metric's worsening other programs may explain, as a log ratio; may be infinite.

        Let t be the share of the time that other programs took. A rate may lose `_COLD` times t. The slowest requests
        may have lost most of that time. Let r be the share of requests above a percentile, such as 0.01 for p99. By
        Markov's inequality, the percentile may be 1/(1-t/r) times as long.
        """
        if metric.unit not in _OF_TIME or not self.is_busy:
            return 0.0
        taken = min(1.0, self.server + self.generator)
        above = 1.0 if metric.percentile is None else 1 - metric.percentile / 100
        if taken >= above:
            return math.inf
        return -math.log1p(-taken / above) * (_COLD if metric.percentile is None else 1.0)


def busy_of(recording: Recording) -> Busy:
    boots = [_busy_in(span) for span in spans_of(recording)]
    if not boots:
        return Busy()
    server, generator, host = map(fmean, zip(*boots, strict=True))
    return Busy(server=server, generator=generator, host=host)


def _busy_in(span: Span) -> tuple[float, float, float]:
    boot = span.boot
    server_ran = max(_shares(span, _of_server)[0], span.cpu_ns / max(1, span.end_ns - span.start_ns))
    _, server_waited = _shares(span, span.workers_in)
    generator_ran, generator_waited = _shares(span, lambda sample: sample.generators)
    beside = bool(boot.cores & boot.generator_cores)
    server = _taken(span, boot.cores, server_ran, server_waited, generator_ran if beside else 0.0)
    generator = _taken(span, boot.generator_cores, generator_ran, generator_waited, server_ran if beside else 0.0)
    return server[0], generator[0], max(server, generator)[1]


def _taken(span: Span, cores: Collection[int], ran: float, waited: float, other_side_ran: float) -> tuple[float, float]:
    """Returns (share of the time that others took from server or generator, the host's part of it).

    Times are in seconds per second. `other_side_ran` is how long the other of the two ran on the same cores.
    """

    def of_cores(value: Callable[[CoreTime], int]) -> float:
        return span.growth(lambda sample: _sum(value(core) for core in sample.cores if core.core in cores)) or 0.0

    busy = of_cores(lambda core: core.busy_ns)
    others = max(0.0, busy - ran - other_side_ran)
    host = of_cores(lambda core: core.stolen_ns) * min(1.0, ran / busy) if busy else 0.0
    taken = min(waited, others) + host
    wanted = max(1.0, ran + taken)
    return taken / wanted, host / wanted


def _shares(span: Span, processes: Callable[[Sample], Iterable[ProcessUse]]) -> tuple[float, float]:
    """Returns (time that processes ran, time that main threads waited for a core), in seconds per second."""
    return (
        span.growth(lambda sample: _sum(use.cpu_ns for use in processes(sample))) or 0.0,
        span.growth(lambda sample: _sum(use.waiting_ns for use in processes(sample))) or 0.0,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None


# --- Peak memory by answered requests: peaks compare only if both servers have answered equally many

Course: TypeAlias = tuple[tuple[int, int], ...]
"""Points over time: (requests answered so far, peak memory so far in bytes). Failed requests are included."""
_MOST_POINTS = 64


def course_of(
    readings: Sequence[tuple[int, int]], rounds: Sequence[Round], *, warm: Sequence[tuple[int, int]], warmed: int
) -> Course:
    """Returns how the server's peak memory grew with the requests that it answered.

    Each of `readings` is (instant in ns, peak memory so far in bytes). The server answered `warmed` requests in the
    warm-up. `warm` has the warm-up's stretches: (start, end), in ns before the rounds begin.
    """
    if not readings or not rounds:
        return ()
    zero_ns = rounds[0].started_ns
    loaded_ns = [start - end for start, end in warm]
    done = accumulate((warmed * each / max(1, sum(loaded_ns)) for each in loaded_ns), initial=0.0)
    nodes: list[tuple[int, float]] = []
    for (start, end), (before, after) in zip(warm, pairwise(done), strict=True):
        nodes += ((zero_ns - start, before), (zero_ns - end, after))
    ends = [zero_ns, *(round_.ended_ns for round_ in rounds)]
    nodes += zip(ends, accumulate((own.requests + own.failed for own in rounds), initial=warmed), strict=True)
    times, answered = zip(*nodes, strict=True)
    served = np.rint(np.interp([at_ns for at_ns, _ in readings], times, answered)).astype(np.int64).tolist()
    return thinned(zip(served, accumulate((size for _, size in readings), max), strict=True), _MOST_POINTS)


def course_after(earlier: Course, later: Course) -> Course:
    if not earlier or not later:
        return later or earlier
    served, peak = earlier[-1]
    return thinned([*earlier, *((served + count, max(peak, size)) for count, size in later)], _MOST_POINTS)


def thinned(points: Iterable[tuple[int, int]], most: int) -> Course:
    """Drops points within flat stretches, and then keeps at most `most` points."""
    points = tuple(points)
    sizes = [size for _, size in points]
    kept = [
        point
        for at, point in enumerate(points)
        if at in (0, len(points) - 1) or not sizes[at - 1] == sizes[at] == sizes[at + 1]
    ]
    step = (len(kept) - 1) / (most - 1)
    return tuple(kept) if step <= 1 else tuple(kept[round(place * step)] for place in range(most))
