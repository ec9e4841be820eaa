"""Charts of a result: how long requests took, and how latency and rate changed over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.capacity import Capacity, RateTried
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import LeadTimes, Phase, Recording, Round
from pytest_fileperf.report.figures import NOTABLE
from pytest_fileperf.report.page.courses import pair_charts, process_charts
from pytest_fileperf.report.page.drawing import (
    BAD,
    FIRST,
    MOST_POINTS,
    QUIET,
    SECOND,
    THIRD,
    Chart,
    Scale,
    Timeline,
    Trace,
    band,
    level,
    line,
    marks,
    scale_for,
    timeline_of,
)
from pytest_fileperf.report.wording import base_name

# --- The chart of a search for the capacity: latency over rate, a mark for each load


def capacity_chart(result: Result) -> Chart | None:
    """Returns the chart; None where nothing was searched for, or no load had a good answer."""
    found, loads, base = result.capacity, _told(result.capacity), _told(result.base_capacity)
    if found is None or not loads:
        return None
    scale = scale_for(max(load.p99 or 0.0 for load in (*loads, *base)), Unit.SECONDS)
    end = 1.05 * max(load.rate for load in (*loads, *base))  # the axis ends a little beyond the highest rate
    traces: list[Trace] = [
        _step_latencies("p50", loads, scale, FIRST, "circle"),
        _step_latencies("p99", loads, scale, SECOND, "diamond"),
    ]
    if base:
        traces.append(_step_latencies("p99 of the other side", base, scale, QUIET, "diamond"))
    traces += [
        level(name, limit, end, scale, BAD)
        for name, limit in found.limits.items()
        if METRICS[name.partition("_")[2]].unit is Unit.SECONDS
    ]
    shapes = [band(found.low, found.high)] if found.rate and math.isfinite(found.high) else []
    says = "Each mark is a load of some seconds; hollow: a limit did not hold, or the server fell behind."
    return Chart(
        title="Latency over rate",
        says=says + " Shaded: the interval of the capacity." * bool(shapes),
        traces=traces,
        layout={
            "xaxis": {"range": [0, end], "ticksuffix": "/s"},
            "yaxis": scale.axis(type="log", dtick=1),
            "shapes": shapes,
            "hovermode": "closest",
        },
    )


def _told(found: Capacity | None) -> list[RateTried]:
    return [load for load in found.tried if load.p99 is not None and not load.by_generator] if found else []


def _step_latencies(name: str, loads: Sequence[RateTried], scale: Scale, colour: str, symbol: str) -> Trace:
    points = [(load.rate, load.p50 if name == "p50" else load.p99) for load in loads]
    symbols = [symbol if load.holds else f"{symbol}-open" for load in loads]
    return marks(name, points, scale, colour, symbol=symbols)


# --- All charts of one result

LEAST_REQUESTS = 20
"""With fewer requests there is no distribution to draw."""
LEAST_ROUNDS = 3
"""With fewer rounds there is no course to draw."""
SURE = 3
"""Requests that a percentile needs beyond it: about as many as a metric's `least_requests` leaves there."""
_PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


def charts_of(result: Result) -> tuple[Chart, ...]:
    """Returns the charts that have something to show, in the order to read them."""
    recording = result.recording
    made = [capacity_chart(result), _percentiles(result), _events(recording)]
    # The loads of a search for the capacity have different rates: that of the last one would stand for all.
    made += [*pair_charts(result)] if result.capacity else [_lead_times(recording), *pair_charts(result)]
    if recording.counted():
        timeline = timeline_of(recording)
        # In a comparison the charts of pairs tell more: turns are many and short, and the base's would be missing.
        if result.base is None and result.capacity is None and len(recording.counted()) >= LEAST_ROUNDS:
            made += [_rates(result, timeline), _event_rates(result, timeline), _latencies(result, timeline)]
        made += process_charts(result, timeline)
    return tuple(chart for chart in made if chart is not None)


# --- latency by percentile


def _percentiles(result: Result) -> Chart | None:
    recording, latency = result.recording, result.recording.latency()
    other = result.stored_latency if result.base is None else result.base.latency()
    if latency.count < LEAST_REQUESTS:
        return None
    scale = scale_for(latency.max_ns / 1e9, Unit.SECONDS)
    service, ttfb = recording.merged("service"), recording.merged("ttfb")
    traces = [_curve("latency" if other is None else "latency now", latency, scale, FIRST)]
    says = "The value at p99 is one that 99 % of the requests did not exceed."
    if service.count and any(latency.percentile_ns(at) > NOTABLE * service.percentile_ns(at) for at in (50, 99)):
        traces.append(_curve("service time", service, scale, SECOND, dash="dash"))
        says = "Latency counts from when a request was due, service time from when it was sent."
    if 0 < ttfb.percentile_ns(50) < 0.8 * latency.percentile_ns(50):  # the body takes notable time
        traces.append(_curve("to the first byte", ttfb, scale, THIRD, dash="dot"))
    if other is not None and other.count >= LEAST_REQUESTS:
        traces.append(_curve(f"latency of {base_name(result.verdict)}", other, scale, QUIET, dash="dashdot"))
    says = f"{says} Shaded: where {SURE} requests or fewer decide."
    return _by_percentile("Latency by percentile", says, traces, latency, scale)


def _events(recording: Recording) -> Chart | None:
    first, gap = recording.merged("first_event"), recording.merged("event_gap")
    drawn = [(name, times) for name, times in (("gap", gap), ("first event", first)) if times.count >= LEAST_REQUESTS]
    if not drawn:
        return None
    longest = max((times for _, times in drawn), key=lambda times: times.count)
    scale = scale_for(max(times.max_ns for _, times in drawn) / 1e9, Unit.SECONDS)
    traces = [_curve(name, times, scale, colour) for (name, times), colour in zip(drawn, (FIRST, SECOND), strict=False)]
    says = "The gaps between two events of a stream, and the times to the first one of each."
    return _by_percentile("Events by percentile", says, traces, longest, scale)


def _by_percentile(title: str, says: str, traces: Sequence[Trace], latency: Histogram, scale: Scale) -> Chart:
    """Returns curves over percentiles, on the axes that suit one of them."""
    count = latency.count
    shares = [share for share in _PERCENTILES if count * (1 - share / 100) >= 1]
    xaxis = {
        "type": "log",
        "range": [0, math.log10(count)],
        "tickangle": 0,
        "tickvals": [1 / (1 - share / 100) for share in shares],
        "ticktext": [f"p{share:g}" for share in shares],
    }
    stretched = latency.max_ns > 30 * latency.percentile_ns(50)  # only a logarithmic axis shows both
    yaxis = scale.axis(**({"type": "log", "dtick": 1} if stretched else {}))
    return Chart(
        title=title,
        says=says,
        traces=traces,
        layout={"xaxis": xaxis, "yaxis": yaxis, "shapes": [band(count / SURE, count)], "hovermode": "x"},
    )


def _curve(name: str, latency: Histogram, scale: Scale, colour: str, *, dash: str = "solid") -> Trace:
    """Returns the percentiles of a histogram over 1 / (1 - share), as HdrHistogram's plots show them."""
    count, values_ns = latency.count, latency.values_ns()
    # A value stands for every percentile after the share of requests below it.
    before = np.cumsum(latency.counts) - latency.counts
    places = count / (count - before)
    columns = (np.log(places) / max(math.log(count), 1e-9) * MOST_POINTS).astype(int)
    _, shown = np.unique(columns, return_index=True)
    points = [(float(places[at]), float(values_ns[at]) / 1e9) for at in shown]
    points.append((float(count), latency.max_ns / 1e9))
    return line(
        name,
        points,
        scale,
        colour,
        dash=dash,
        shape="hv",
        text=[_percentile_name(place) for place, _ in points],
        hovertemplate=f"%{{text}}: %{{y:,.4~r}}{scale.suffix}",
    )


def _percentile_name(place: float) -> str:
    """Returns `p99.9` for 1000: the percentile that one of so many requests is beyond."""
    digits = max(0, math.ceil(math.log10(place) - 1))
    text = f"p{100 - 100 / place:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


# --- open loops: lead times


def _lead_times(recording: Recording) -> Chart | None:
    boots = [boot.leads for boot in recording.boots if boot.leads is not None and boot.leads.due_ns]
    if sum(len(leads.due_ns) for leads in boots) < LEAST_REQUESTS:
        return None
    single = all(count == 1 for leads in boots for count in leads.counts)
    single = single and all(len(leads.due_ns) <= MOST_POINTS for leads in boots)
    boots = boots if single else [_coarser(leads) for leads in boots]
    scale = scale_for(max(max(leads.max_ns) for leads in boots) / 1e9, Unit.SECONDS)
    traces: list[Trace] = []
    for leads in boots:
        named = not traces  # once, whatever the number of boots
        mean = [(due_ns / 1e9, mean_ns / 1e9) for due_ns, mean_ns in zip(leads.due_ns, leads.mean_ns, strict=True)]
        slowest = [(due_ns / 1e9, max_ns / 1e9) for due_ns, max_ns in zip(leads.due_ns, leads.max_ns, strict=True)]
        if single:
            traces.append(marks("request", mean, scale, FIRST, size=5, showlegend=named))
        else:
            traces.append(line("slowest", slowest, scale, SECOND, width=1, showlegend=named))
            traces.append(line("mean", mean, scale, FIRST, showlegend=named))
    boots_said = " A line for each boot." * (len(boots) > 1 and not single)
    return Chart(
        title="Lead time by when a request was due",
        says=f"It climbs while the server falls behind, and is flat while it keeps up.{boots_said}",
        traces=traces,
        layout={
            "xaxis": {"ticksuffix": " s", "rangemode": "tozero", "hoverformat": ",.2f"},
            "yaxis": scale.axis(),
            "hovermode": "closest" if single or len(boots) > 1 else "x unified",
            "showlegend": not single,
        },
    )


def _coarser(leads: LeadTimes) -> LeadTimes:
    """Returns the lead times in fewer stretches, which show their course and not their noise."""
    size = math.ceil(len(leads.due_ns) / 120)  # so many points of a line
    parts = [slice(at, at + size) for at in range(0, len(leads.due_ns), size)]
    counts, means_ns = np.array(leads.counts), np.array(leads.mean_ns, dtype=np.float64)
    return LeadTimes(
        due_ns=tuple(leads.due_ns[part.start] for part in parts),
        counts=tuple(int(counts[part].sum()) for part in parts),
        mean_ns=tuple(int(np.average(means_ns[part], weights=counts[part])) for part in parts),
        max_ns=tuple(max(leads.max_ns[part]) for part in parts),
    )


# --- rounds over time


def _rates(result: Result, timeline: Timeline) -> Chart:
    def failed_per_second(round_: Round) -> float | None:
        return round_.failed / (round_.duration_ns / 1e9) if round_.duration_ns else None

    scale = Scale(name="/s")
    rounds = _drawn_rounds(result.recording)
    traces = [_round_marks("requests/s", rounds, METRICS["rps"].of_round, timeline, scale, FIRST)]
    if result.measurement.errors:
        traces.append(_round_marks("failed/s", rounds, failed_per_second, timeline, scale, BAD))
    load = result.identity.get("load")
    rate = load.get("rate") if isinstance(load, dict) else None
    if isinstance(rate, int | float):
        traces.append(level("due", float(rate), timeline.end_s, scale, QUIET))
    traces += _references("rps", result, timeline, scale, FIRST)
    drained = any(round_.phase is Phase.DRAIN for round_ in rounds)
    ended = " The last mark is what was in flight at the end." * drained
    says = f"Each mark is a round, each shade a boot of the server.{ended}"
    return timeline.chart("Requests per second over time", says, traces, scale.axis())


def _event_rates(result: Result, timeline: Timeline) -> Chart | None:
    rounds = [round_ for round_ in _drawn_rounds(result.recording) if round_.events is not None]
    if len(rounds) < LEAST_ROUNDS:
        return None
    metric = METRICS["event_rate"]
    scale = scale_for(max(metric.of_round(round_) or 0.0 for round_ in rounds), metric.unit)
    made = _round_marks("events", rounds, metric.of_round, timeline, scale, FIRST)
    traces = [made, *_references(metric.name, result, timeline, scale, FIRST)]
    says = "Those of all streams together; each mark is a round."
    return timeline.chart("Events per second over time", says, traces, scale.axis())


def _latencies(result: Result, timeline: Timeline) -> Chart | None:
    rounds = [round_ for round_ in _drawn_rounds(result.recording) if round_.requests]
    if len(rounds) < LEAST_ROUNDS:
        return None
    scale = scale_for(max(round_.latency.percentile_ns(99) for round_ in rounds) / 1e9, Unit.SECONDS)
    traces: list[Trace] = []
    for name, colour, symbol in (("p50", FIRST, "circle"), ("p99", SECOND, "diamond")):
        metric = METRICS[name]
        sure = [round_.requests >= metric.least_requests for round_ in rounds]
        traces.append(_round_marks(name, rounds, metric.of_round, timeline, scale, colour, symbol, sure=sure))
        traces += _references(name, result, timeline, scale, colour)
    few = any(round_.requests < METRICS["p99"].least_requests for round_ in rounds)
    says = "The median and p99 of each round." + " Hollow: of fewer requests than the percentile needs." * few
    return timeline.chart("Latency over time", says, traces, scale.axis())


def _round_marks(
    name: str,
    rounds: Sequence[Round],
    value: Callable[[Round], float | None],
    timeline: Timeline,
    scale: Scale,
    colour: str,
    symbol: str = "circle",
    *,
    sure: Sequence[bool] = (),
) -> Trace:
    """Returns a mark for each round, as wide as the round is long. Rounds that are not `sure` are hollow."""
    middles = [timeline.seconds((round_.started_ns + round_.ended_ns) / 2) for round_ in rounds]
    halves = [round(round_.duration_ns / 2e9, 3) for round_ in rounds]
    symbols = [symbol if certain else f"{symbol}-open" for certain in sure] or symbol
    points = [(middle, value(round_)) for middle, round_ in zip(middles, rounds, strict=True)]
    lengths = {"type": "data", "array": halves, "color": colour, "thickness": 2, "width": 0}
    return marks(name, points, scale, colour, symbol=symbols, error_x=lengths)


def _references(metric: str, result: Result, timeline: Timeline, scale: Scale, colour: str) -> Iterator[Trace]:
    """Yields what a metric is compared with: its baseline and its limit."""
    for comparison in result.verdict.comparisons:
        if comparison.metric == metric and comparison.base is not None:
            yield level(f"baseline {metric}", comparison.base, timeline.end_s, scale, colour)
    for check in result.verdict.limits:
        if check.metric == metric:
            yield level(check.name, check.limit, timeline.end_s, scale, BAD)


def _drawn_rounds(recording: Recording) -> list[Round]:
    """Returns the rounds in order of time. Where there are too many to draw, neighbours on a boot become one.

    A drain that is shorter than a round is left out, as its few requests make no rate.
    """
    shortest_ns = min((round_.duration_ns for round_ in recording.measured()), default=0)
    counted = [
        round_ for round_ in recording.counted() if round_.phase is not Phase.DRAIN or round_.duration_ns >= shortest_ns
    ]
    size = math.ceil(len(counted) / MOST_POINTS)
    counted.sort(key=lambda round_: round_.started_ns)
    drawn = []
    for _, group in groupby(counted, key=lambda round_: (round_.boot, round_.phase)):
        of_boot = list(group)
        drawn += [Round.summed(of_boot[at : at + size]) for at in range(0, len(of_boot), size)]
    return drawn
