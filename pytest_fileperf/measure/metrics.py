"""The catalogue of metrics. Settings import it early, so it imports nothing large."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.measure.histogram import Histogram
    from pytest_fileperf.measure.recording import Recording, Round

# --- Little's law: requests under way = requests/s × latency. It gives the rate of short runs, and checks other runs
#
# A run with time for many requests on each connection counts answers ÷ time. In a shorter run answers come in bunches,
# or began in a queue that still had to grow. Then chance decides how many of them end in time. So a short run's rate is
# the mean number of requests under way ÷ their mean time. Only requests that began while the run was measured count.
# These requests are followed to their end, so slow ones count. But the first requests may be far slower than all later
# ones: in a cold pool, or after a login. So the law moves counts by at most one request per connection and start-up.

_MANY = 50
"""A run is short if each connection has time for fewer requests in a row. In a longer run, one bunch of answers changes
the rate by at most 2 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LittlesLaw:
    in_flight: float
    """The mean number of successful requests under way."""
    latency: float
    """The mean latency of successful requests, in seconds."""
    rps: float
    """Requests/s as reported."""
    error: float
    """`rps` and `by_law` may differ by this share: 3 %, or three standard errors of `latency` if these are more."""
    is_short: bool
    """Whether requests take longer, on average, than the time for which each start-up was measured."""

    @property
    def by_law(self) -> float:
        return self.in_flight / self.latency

    @property
    def agrees(self) -> bool:
        """Whether `rps` matches `by_law`, within `error`. False in a short run."""
        return not self.is_short and abs(self.rps / self.by_law - 1) <= self.error


def rate_of(recording: Recording, count: Callable[[Round], float]) -> float | None:
    """Returns the sum of `count` over the rounds, per second. Little's law corrects short runs. None without rounds."""
    counted = recording.counted()
    seconds = sum(round_.duration_ns for round_ in counted) / 1e9
    if seconds <= 0:
        return None
    return sum(map(count, counted)) / seconds * _correction(recording)


def littles_law(recording: Recording) -> LittlesLaw | None:
    """Returns a check by Little's law for a closed loop that ends by time. None for other loads."""
    if not _is_closed(recording):
        return None
    latency, measured = recording.latency(), recording.measured()
    seconds = sum(round_.duration_ns for round_ in measured) / 1e9
    in_flight = sum(round_.busy_ns for round_ in measured) / 1e9 / seconds
    mean = latency.mean_ns()
    return LittlesLaw(
        in_flight=in_flight,
        latency=mean / 1e9,
        rps=rate_of(recording, lambda round_: round_.done) or 0.0,
        error=max(0.03, 3 * latency.stdev_ns() / mean / math.sqrt(latency.count)),
        is_short=_each_ns(recording) < mean,
    )


def _is_closed(recording: Recording) -> bool:
    """Returns whether the load was a closed loop that ended by time, on one server, with a successful request."""
    if recording.open_loop or recording.due is not None:
        return False
    if any(round_.phase == "handover" for round_ in recording.rounds):
        return False
    return any(round_.busy_ns > 0 for round_ in recording.measured())


def _each_ns(recording: Recording) -> float:
    """Returns each load's mean measured time in ns, without warm-up and drain."""
    measured_ns = sum(round_.duration_ns for round_ in recording.measured())
    return measured_ns / max(1, sum(round_.phase == "drain" for round_ in recording.rounds))


def _correction(recording: Recording) -> float:
    """Returns the factor that corrects a short run's rate by Little's law; 1.0 for other runs."""
    if not _is_closed(recording):
        return 1.0
    measured = recording.measured()
    done, busy_ns = sum(round_.done for round_ in measured), sum(round_.busy_ns for round_ in measured)
    requests = sum(round_.requests for round_ in recording.rounds)
    took_ns = sum(round_.latency.sum_ns for round_ in recording.rounds)
    each_ns, mean_ns = _each_ns(recording), took_ns / requests
    if not done or each_ns >= _MANY * mean_ns:
        return 1.0
    early = sum(round_.carried.early for round_ in recording.rounds)
    if requests > early and each_ns >= mean_ns:  # else only requests from the warm-up are known
        requests -= early
        took_ns -= sum(round_.carried.early_ns for round_ in recording.rounds)
    loads = sum(round_.phase == "drain" for round_ in recording.rounds)
    off = max(1, loads) * recording.connections
    return max(done - off, min(busy_ns * requests / took_ns, done + off)) / done


# --- metrics

RATE_TOLERANCE = 0.03
"""The default tolerance of rates. Within half a minute a test then finds a loss of 10 %, and passes unchanged code."""


class Unit(StrEnum):
    PER_SECOND = "1/s"
    SECONDS = "s"
    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    SHARE = "share"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    title: str
    """Column heading."""
    unit: Unit
    worse_sign: int = +1
    """+1 if more is worse, -1 if less is worse."""
    of_round: Callable[[Round], float | None] = lambda _: None
    """Returns the metric's value in one round; None if single rounds do not have it."""
    of_run: Callable[[Recording], float | None]
    """Returns the metric's value over the whole load; None if it was not measured."""
    tolerance: float = 0.05
    """The share by which the metric may get worse by default."""
    least_requests: int = 1
    """The metric needs at least this many requests of each version."""
    least_events: int = 0
    """The metric needs at least this many events of streams."""
    events: Callable[[Recording], int] | None = None
    """For a metric of streams' events: returns the number of events. None for other metrics."""
    percentile: float | None = None
    """For a latency percentile: 99.0 for `p99`. None for other metrics."""
    of_processes: bool = False
    """Whether the value comes from the server's processes. It is unknown if these processes changed."""
    of_start: bool = False
    """Whether each start-up has one value, which is measured before any load."""
    is_counted: bool = False
    """Whether the value is an exact count, which neither time nor the machine changes."""

    @property
    def limit_key(self) -> str:
        """The name of the setting with the metric's absolute limit: `min_rps`, `max_p99`."""
        return f"{'max' if self.worse_sign > 0 else 'min'}_{self.name}"


def _rate(name: str, title: str, unit: Unit, count: Callable[[Round], float]) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        worse_sign=-1,
        of_round=lambda round_: _per_second(round_, count(round_)),
        of_run=lambda recording: rate_of(recording, count),
        tolerance=RATE_TOLERANCE,
    )


def _time(
    name: str,
    title: str,
    ns_of: Callable[[Histogram], float],
    tolerance: float,
    least: int = 1,
    *,
    of: str = "latency",
    percentile: float | None = None,
) -> Metric:
    """Returns a metric that `ns_of` computes from the histogram `of`, such as `latency`. It needs `least` durations."""
    is_of_events = of != "latency"

    def seconds(histogram: Histogram, least: int = 1) -> float | None:
        return ns_of(histogram) / 1e9 if histogram.count >= least else None

    return Metric(
        name=name,
        title=title,
        unit=Unit.SECONDS,
        of_round=lambda round_: seconds(getattr(round_, of), least if is_of_events else 1),
        of_run=lambda recording: seconds(recording.merged(of)),
        tolerance=tolerance,
        least_requests=1 if is_of_events else least,
        least_events=least if is_of_events else 0,
        events=(lambda recording: recording.merged(of).count) if is_of_events else None,
        percentile=None if is_of_events else percentile,
    )


def _percentile(percent: float, tolerance: float, least: int, *, of: str = "latency") -> Metric:
    prefix = "" if of == "latency" else f"{of}_"
    name, title = f"{prefix}p{percent:g}".replace(".", ""), f"{prefix}p{percent:g}".replace("_", " ")
    return _time(name, title, lambda times: times.percentile_ns(percent), tolerance, least, of=of, percentile=percent)


def _run_cpu_per_request(recording: Recording) -> float | None:
    if recording.processes_changed:
        return None
    counted = recording.counted()
    # If no request ended while it was measured, all requests count.
    return _cpu_per_request(counted if any(round_.requests for round_ in counted) else recording.rounds)


def _cpu_per_request(rounds: tuple[Round, ...]) -> float | None:
    known = [(round_.server_cpu_ns, round_.requests) for round_ in rounds if round_.server_cpu_ns is not None]
    requests = sum(count for _, count in known)
    return sum(cpu for cpu, _ in known) / 1e9 / requests if requests else None


def _peak_rss(recording: Recording) -> float | None:
    known = [float(boot.peak_rss_bytes) for boot in recording.boots if boot.peak_rss_bytes is not None]
    return None if recording.processes_changed else max(known, default=None)


def _startup(recording: Recording) -> float | None:
    """Returns the median start-up time in seconds, because a busy machine may delay single starts."""
    known = [boot.startup_ns / 1e9 for boot in recording.boots if boot.startup_ns is not None]
    return median(known) if known else None


def _capacity(recording: Recording) -> float | None:
    """Returns the geometric mean of the start-ups' capacities, because start-ups differ by factors."""
    rates = [boot.capacity.rate for boot in recording.boots if boot.capacity is not None and boot.capacity.rate > 0]
    return math.exp(fmean(map(math.log, rates))) if rates else None


def _error_rate(rounds: tuple[Round, ...]) -> float | None:
    failed = sum(round_.failed for round_ in rounds)
    made = failed + sum(round_.requests for round_ in rounds)
    return failed / made if made else None


def _per_second(round_: Round, count: float | None) -> float | None:
    return None if count is None or round_.duration_ns <= 0 else count / (round_.duration_ns / 1e9)


def _run_event_rate(recording: Recording) -> float | None:
    counted = recording.counted()
    seconds = sum(round_.duration_ns for round_ in counted) / 1e9
    known = any(round_.events is not None for round_ in recording.rounds)
    return sum(round_.events or 0 for round_ in counted) / seconds if known and seconds > 0 else None


_ALL = (
    _rate("rps", "requests/s", Unit.PER_SECOND, lambda round_: round_.done),
    _rate("throughput", "bytes/s", Unit.BYTES_PER_SECOND, lambda round_: round_.sent + round_.received),
    _percentile(50, 0.06, 5),
    _percentile(75, 0.06, 11),
    _percentile(90, 0.09, 29),
    _percentile(95, 0.12, 59),
    _percentile(99, 0.15, 299),
    _percentile(99.9, 0.24, 2995),
    _time("mean", "mean", lambda times: times.mean_ns(), 0.06),
    _time("latency", "max", lambda times: times.max_ns, 0.24),
    Metric(
        name="event_rate",
        title="events/s",
        unit=Unit.PER_SECOND,
        worse_sign=-1,
        of_round=lambda round_: _per_second(round_, round_.events),
        of_run=_run_event_rate,
        tolerance=RATE_TOLERANCE,
        least_events=1,
        events=lambda recording: sum(round_.events or 0 for round_ in recording.rounds),
    ),
    _percentile(50, 0.06, 5, of="first_event"),
    _percentile(99, 0.15, 299, of="first_event"),
    _percentile(50, 0.06, 5, of="event_gap"),
    _percentile(99, 0.15, 299, of="event_gap"),
    Metric(
        name="cpu_per_request",
        title="server CPU/request",
        unit=Unit.SECONDS,
        of_round=lambda round_: _cpu_per_request((round_,)),
        of_run=_run_cpu_per_request,
        tolerance=RATE_TOLERANCE,
        of_processes=True,
    ),
    Metric(name="rss", title="server peak RSS", unit=Unit.BYTES, of_run=_peak_rss, of_processes=True),
    Metric(name="startup", title="start-up", unit=Unit.SECONDS, of_run=_startup, tolerance=0.1, of_start=True),
    Metric(
        name="queries",
        title="queries/request",
        unit=Unit.COUNT,
        of_run=lambda recording: None if (queries := recording.queries) is None else queries.mean()[0],
        tolerance=0.0,
        of_processes=True,
        is_counted=True,
    ),
    Metric(
        name="error_rate",
        title="error rate",
        unit=Unit.SHARE,
        of_round=lambda round_: _error_rate((round_,)),
        of_run=lambda recording: _error_rate(recording.rounds),
    ),
    Metric(name="capacity", title="capacity", unit=Unit.PER_SECOND, worse_sign=-1, of_run=_capacity),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}


# --- Limits that a search for the capacity can use


def searches_by(name: str) -> bool:
    """Returns whether a search for the capacity can use this limit, such as `max_p99`."""
    return name == "max_error_rate" or percent_of(name) is not None


def share_allowed(name: str, limit: float) -> float:
    """Returns the share of requests that may break the limit: 0.01 for `max_p99`."""
    if (percent := percent_of(name)) is not None:
        return 1 - percent / 100
    return max(limit, 1e-4)  # some thousands of requests cannot show that a smaller share fails


def percent_of(name: str) -> float | None:
    """Returns 99.0 for `max_p99`, the percentile that it limits. None for other limits."""
    metric = METRICS.get(name.removeprefix("max_")) if name.startswith("max_") else None
    return None if metric is None else metric.percentile
