"""A load's result, as the methods of the `fileperf` fixture return it: figures in SI units, for plain asserts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Histogram
from pytest_fileperf.measure.limiting import Limit, limit_of
from pytest_fileperf.measure.metrics import METRICS, LittlesLaw, littles_law, rate_of
from pytest_fileperf.measure.recording import LATE_NS, Failure, Phase, Recording, Round
from pytest_fileperf.measure.usage import Busy, GeneratorUse, Usage, busiest_share, busy_of, generator_uses
from pytest_fileperf.units import format_count, format_duration, format_rate, format_share

SATURATED_CPU_SHARE = 0.90
"""Above this share of a core, the generator limits the load (wrk and locust warn at the same share)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """A distribution of durations in seconds; all 0.0 if no request succeeded.

    At least 99 % of the durations are no longer than `p99` (nearest rank). Percentiles have three significant digits.
    """

    count: int
    min: float
    mean: float
    stdev: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float
    within_one_stdev: float
    """Share of requests within one standard deviation of the mean (wrk's `+/- Stdev`)."""
    # Empty if the figures were read from a file: their recording has it.
    histogram: Histogram = field(default=EMPTY, repr=False, compare=False)

    @classmethod
    def of(cls, histogram: Histogram) -> LatencySummary:
        mean_ns, stdev_ns = histogram.mean_ns(), histogram.stdev_ns()
        shares = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}
        return cls(
            count=histogram.count,
            min=histogram.min_ns / 1e9,
            mean=mean_ns / 1e9,
            stdev=stdev_ns / 1e9,
            **{name: histogram.percentile_ns(percent) / 1e9 for name, percent in shares.items()},
            max=histogram.max_ns / 1e9,
            within_one_stdev=histogram.share_within(mean_ns - stdev_ns, mean_ns + stdev_ns),
            histogram=histogram,
        )

    def percentile(self, percent: float) -> float:
        """Returns a percentile in seconds. Raises ValueError outside 0 to 100, and for figures read from a file."""
        if self.count and not self.histogram.count:
            raise ValueError(
                "figures that were read from a file have no percentile(). Use p50, p75, p90, p95, p99 or p999"
            )
        return self.histogram.percentile_ns(percent) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUse:
    """CPU and memory of all the server's processes. A figure is None if the platform does not report it."""

    cpu_per_request: float | None
    """CPU seconds per successful request."""
    cpu_share: float | None
    """CPU seconds per second of the rounds: 1.0 is one core."""
    worker_cpu_shares: tuple[float, ...]
    """CPU seconds per second of each worker, the busiest first. Empty if the workers are unknown."""
    children_cpu_share: float | None = None
    """CPU seconds per second of the workers' child processes, such as a pool's. `cpu_share` includes it."""
    cores: int | None = None
    """How many cores the server's processes may use together."""
    peak_rss: int | None
    """Bytes: the sum of the server processes' peaks. With several start-ups, the highest sum."""
    startup: float | None = None
    """Seconds from the start of the server's process to its first answer, with the app's import and lifespan. The
    median of several starts. None unless `gate` or `max_startup` asks for it."""
    queries: float | None = None
    """Mean database queries per HTTP request, without the 5 % of requests with the most and with the fewest queries.
    None unless `gate`, `max_queries` or `--fileperf-queries` asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUse:
    cpu_share: float
    """CPU seconds per second of the rounds, of all generators together: 1.0 is a whole core."""
    cpu_per_request: float | None
    """CPU seconds per successful request."""
    engine: str
    """How requests were sent: `replay`, `client`, `http2` or `in-process`."""
    why_engine: str
    """Why the engine isn't replay; empty for replay."""
    generators: tuple[GeneratorUse, ...] = ()
    """Each generator's figures; empty if a single generator made the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSummary:
    """The events of streams: server-sent events, lines, or pieces of a given size. All 0 without streams."""

    count: int
    """Events of all streams, even of streams that failed later."""
    rate: float
    """Events per second of the rounds, from all streams together."""
    first: LatencySummary
    """Time to each stream's first event, from the same start as the stream's latency."""
    gap: LatencySummary
    """Time between two events of a stream; 0.0 if both came together."""


_SAME = (
    "requests", "failures", "http_requests", "cut_off", "out_of_step", "closed_unsaid", "closed_said", "opened",
    "bytes_sent", "bytes_received",
)  # fmt: skip
"""Fields that a measurement copies from the sum of all rounds."""
NO_EVENTS = EventSummary(count=0, rate=0.0, first=LatencySummary.of(EMPTY), gap=LatencySummary.of(EMPTY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One load's figures: counts, rates per second, bytes and seconds."""

    rps: float
    """Successful requests per second. A journey's call counts as one request. In an open loop, the time includes the
    wait for the last answers. In a closed loop, a request that lies only partly in the measured time counts in part.
    With time for only a few requests, Little's law gives the rate: requests under way ÷ mean latency."""
    requests: int
    """Successful requests, including requests that were answered after the last round. A journey's call counts as
    one."""
    errors: int
    """Failed requests."""
    success_ratio: float
    """The share of requests that succeeded; 0.0 if there were none."""
    error_kinds: Mapping[str, int]
    """Failed requests by kind, most frequent first."""
    failures: tuple[Failure, ...] = field(repr=False)
    """Failed requests by kind, each with its first example, most frequent first."""
    statuses: Mapping[int, int]
    """All answers by status code."""
    http_requests: int
    """HTTP requests that were answered, good or failed. Journeys, redirects and auth make several for one of
    `requests`."""
    http_rps: float
    """HTTP requests that were answered per second, over the same time as `rps`."""
    latency: LatencySummary
    """How long successful requests took, in seconds."""
    ttfb: LatencySummary
    """The time to the answer's first byte, in seconds."""
    service: LatencySummary
    """Open loop: times from when requests began, while `latency` counts from when they were due. The opening of a
    connection counts."""
    send_delay: LatencySummary
    """Open loop: times from when requests were due to when they began."""
    events: EventSummary = NO_EVENTS
    """The events of streams, from `fileperf.stream` or from journeys that read streams."""
    open_loop: bool
    """Whether requests were due at given times (`rate`, `burst`), however slow the server was."""
    due: int | None
    """How many requests were due after the warm-up. None in a closed loop that ends by time."""
    late: int
    """Open loop: requests sent more than a millisecond after they were due."""
    dropped: int
    """Open loop: requests never sent, because no connection was free within the time limit. They count as failed."""
    cut_off: int = 0
    """Answers that came before the server had taken the whole request."""
    out_of_step: int = 0
    """Connections that were given up because the server sent more than the answer."""
    closed_unsaid: int = 0
    """Connections that the server closed without announcing it in its last answer."""
    closed_said: int = 0
    """Connections that the server closed after announcing it with `Connection: close`."""
    opened: int = 0
    """Connections opened after the warm-up."""
    most_open: int = 0
    """The most connections that were open at one time. 0 if unknown, as for a part of a load."""
    duration: float
    """Seconds of all rounds together, without the warm-up."""
    attack: float
    """Seconds from the first to the last request that was due. In a closed loop, the length of the rounds."""
    wait: float
    """Seconds from the end of `attack` to the last answer."""
    bytes_sent: int
    """Body bytes of successful requests, without headers."""
    bytes_received: int
    """Body bytes of the answers to successful requests, without headers."""
    bytes_sent_per_second: float
    """Bytes sent per second."""
    bytes_received_per_second: float
    """Bytes received per second."""
    server: ServerUse
    """The server's CPU time, memory, start-up and queries."""
    client: ClientUse
    """The load generator's CPU time and engine."""
    connections: int
    """How many connections made requests at the same time."""
    limit: Limit
    """The bottleneck of the load, with evidence. `limit.kind` is `unclear` if nothing is sure."""
    saturated: bool
    """Whether a load generator used nearly all of its core. Then the figures show the generator's limit, not the
    server's."""
    busy: Busy
    """How much other processes used the cores of server and generator. If `busy.is_busy`, these processes may have
    changed the figures."""
    law: LittlesLaw | None = None
    """A check of `rps` by Little's law, in a closed loop that ends by time. None for other loads."""

    parts: Mapping[str, Measurement] = field(default_factory=dict, repr=False, compare=False)
    """Each part's figures by name. CPU figures and `limit` are the whole load's."""
    steps: Mapping[str, Measurement] = field(default_factory=dict, repr=False, compare=False)
    """Figures of a journey's steps by name. A step's `latency` leaves out pauses. CPU figures and `limit` are the whole
    load's. A part has its own steps: `parts["visit"].steps`."""

    def __str__(self) -> str:
        if not self.requests:
            return f"no request succeeded, {self.errors:,} failed"
        p99 = format_duration(self.latency.p99 * 1e9)
        return f"{format_rate(self.rps)} requests/s, p99 {p99}, {format_count(self.errors, 'error')}"

    def __repr__(self) -> str:
        return f"<Measurement: {self}>"

    @property
    def throughput(self) -> float:
        """Bytes sent and received per second."""
        return self.bytes_sent_per_second + self.bytes_received_per_second

    @property
    def elapsed(self) -> float:
        """Seconds between the first request's due time and the last answer."""
        return self.attack + self.wait

    @property
    def due_rate(self) -> float | None:
        """Requests due per second. None if unknown, or if all were due at once."""
        return self.due / self.attack if self.due is not None and self.attack else None

    @property
    def done_rate(self) -> float | None:
        """Successful requests per second of `elapsed` (vegeta's throughput). None if `elapsed` is 0."""
        return self.requests / self.elapsed if self.elapsed else None


def measurement_of(
    recording: Recording,
    *,
    limit: Limit | None = None,
    saturated: bool | None = None,
    busy: Busy | None = None,
    client: ClientUse | None = None,
    cpu_share: float | None = None,
    worker_cpu_shares: tuple[float, ...] | None = None,
) -> Measurement:
    """Returns a recording's figures. Other arguments replace figures of the recording."""
    total, counted = recording.total, recording.counted()
    kinds = {failure.kind: failure.count for failure in total.failures}
    made = total.requests + total.failed
    counted_seconds = sum(round_.duration_ns for round_ in counted) / 1e9
    in_counted = sum(round_.requests for round_ in counted)
    client_cpu = sum(round_.client_cpu_ns for round_ in counted) / 1e9
    late_share = total.send_delay.share_within(LATE_NS, HIGHEST_NS)
    rps, peak = METRICS["rps"].of_run(recording) or 0.0, METRICS["rss"].of_run(recording)
    if total.requests:  # failed requests also made this many on average
        http_rps = total.http_requests / total.requests * rps
    else:
        answered = sum(round_.http_requests for round_ in counted)
        http_rps = answered / counted_seconds if counted_seconds else 0.0
    same: dict[str, Any] = {name: getattr(total, name) for name in _SAME}
    use = Usage(recording)
    ran = None if recording.processes_changed else use.server_ran
    return Measurement(
        **same,
        latency=LatencySummary.of(total.latency),
        ttfb=LatencySummary.of(total.ttfb),
        service=LatencySummary.of(total.service),
        send_delay=LatencySummary.of(total.send_delay),
        rps=rps,
        errors=total.failed,
        success_ratio=total.requests / made if made else 0.0,
        error_kinds=kinds,
        statuses=dict(total.statuses),
        http_rps=http_rps,
        events=EventSummary(
            count=total.events or 0,
            rate=METRICS["event_rate"].of_run(recording) or 0.0,
            first=LatencySummary.of(total.first_event),
            gap=LatencySummary.of(total.event_gap),
        ),
        open_loop=recording.open_loop,
        due=recording.due,
        late=round(total.send_delay.count * late_share),
        dropped=kinds.get("dropped", 0),
        most_open=recording.most_open,
        duration=sum(round_.duration_ns for round_ in recording.measured()) / 1e9,
        attack=recording.attack_ns / 1e9,
        wait=recording.wait_ns / 1e9,
        bytes_sent_per_second=rate_of(recording, lambda round_: round_.sent) or 0.0,
        bytes_received_per_second=rate_of(recording, lambda round_: round_.received) or 0.0,
        server=ServerUse(
            cpu_per_request=METRICS["cpu_per_request"].of_run(recording),
            cpu_share=ran if cpu_share is None else cpu_share,
            worker_cpu_shares=tuple(own.ran for own in use.workers) if worker_cpu_shares is None else worker_cpu_shares,
            children_cpu_share=None if ran is None else use.children_ran,
            cores=max((len(boot.cores) for boot in recording.boots), default=0) or None,
            peak_rss=int(peak) if peak is not None else None,
            startup=METRICS["startup"].of_run(recording),
            queries=METRICS["queries"].of_run(recording),
        ),
        client=client
        or ClientUse(
            cpu_share=client_cpu / counted_seconds if counted_seconds else 0.0,
            cpu_per_request=client_cpu / in_counted if in_counted else None,
            engine=recording.engine,
            why_engine=recording.why_engine,
            generators=generator_uses(recording),
        ),
        connections=recording.connections,
        limit=limit or limit_of(use),
        saturated=recording.engine != "in-process" and busiest_share(counted) > SATURATED_CPU_SHARE
        if saturated is None
        else saturated,
        busy=busy or busy_of(recording),
        law=littles_law(recording),
    )


# --- Background work: a version is busy while the other version has the load. On a shared core, this slows the other

_FELT = 0.02
"""Background work is reported from this share of a core on. The other version then loses as much of its rate."""
_DOUBT = 0.02
"""Accepted chance of a false report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The share of a core that each version used while the other one was loaded; None if unknown."""

    base: float | None
    now: float | None
    surely_base: float = 0.0
    """A lower bound: the old version surely used at least this share."""
    surely_now: float = 0.0

    def __str__(self) -> str:
        """Returns a sentence that says whose work slows the other version. Empty if neither does."""
        sides = (("the old code", self.base, self.surely_base), ("the new code", self.now, self.surely_now))
        told = [
            f"{whose} used {format_share(round(share or 0.0, 2))}" for whose, share, surely in sides if surely > _FELT
        ]
        if not told:
            return ""
        used = f"{' and '.join(told)} of a core during the other version's measurement"
        return f"{used}, so its background work slows the other version"


def background_of(base: Recording, now: Recording) -> Background:
    (of_base, surely_base), (of_now, surely_now) = _shares(base, now), _shares(now, base)
    return Background(base=of_base, now=of_now, surely_base=surely_base, surely_now=surely_now)


def _shares(own: Recording, other: Recording) -> tuple[float | None, float]:
    """Returns (share of a core that `own` used during the load on `other`, its lower bound). None if unknown."""
    starts = [turn.started_ns for turn in other.measured()]
    ends = [turn.ended_ns for turn in other.measured()]

    def is_in_a_turn(round_: Round) -> bool:
        last = bisect_right(starts, round_.started_ns) - 1
        return last >= 0 and round_.ended_ns <= ends[last]

    known = [round_ for round_ in own.rounds if round_.server_cpu_ns is not None]
    turns = [round_ for round_ in known if round_.phase is Phase.ROUND]
    idle = [round_ for round_ in known if round_.phase is Phase.HANDOVER and is_in_a_turn(round_)]
    idle = [round_ for round_ in idle if round_.duration_ns > 0]
    turns_cpu_ns, answers = _cpu_and_answers(turns)
    if not idle or answers == 0:
        return None, 0.0
    # CPU time for answers that came late, in those turns, does not count.
    beyond_ns = [cpu_ns - late * turns_cpu_ns / answers for cpu_ns, late in map(_cpu_and_answers, zip(idle))]
    mean = sum(beyond_ns) / sum(round_.duration_ns for round_ in idle)
    surely = _least_median([ns / round_.duration_ns for ns, round_ in zip(beyond_ns, idle, strict=True)])
    return max(0.0, mean), min(surely, mean)


def _least_median(values: Sequence[float]) -> float:
    """Returns a lower bound of the median, by the sign test; 0.0 if the values are too few to tell."""
    count, below, chance = len(values), 0, 0.0
    while below < count and (chance := chance + comb(count, below) / 2**count) <= _DOUBT:
        below += 1
    return max(0.0, sorted(values)[below - 1]) if below else 0.0


def _cpu_and_answers(rounds: Sequence[Round]) -> tuple[int, int]:
    return sum(each.server_cpu_ns or 0 for each in rounds), sum(each.requests + each.failed for each in rounds)
