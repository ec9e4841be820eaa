"""Charts of a result: latencies, figures over time, and how start-ups of the old and new code differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import TypeAlias

import numpy as np

from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.unit import units_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.capacity import Capacity, RateTried
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.measure.recording import LeadTimes, Phase, Recording, Round
from pytest_fileperf.report.figures import NOTABLE
from pytest_fileperf.report.page.courses import Timeline, process_charts, timeline_of
from pytest_fileperf.report.page.drawing import (
    BAD,
    FIRST,
    FOURTH,
    MOST_POINTS,
    QUIET,
    SECOND,
    THIRD,
    Axis,
    Chart,
    Line,
    axis,
    level,
)
from pytest_fileperf.report.text import quantity, time_text
from pytest_fileperf.units import format_change

LEAST_REQUESTS = 20
"""With fewer requests there is no distribution to draw."""
_LEAST_ROUNDS = 3
_MARKS = "Each mark is a part of the measured time"
_SURE = 3
"""Charts shade the percentiles above which there are fewer requests than this, because chance decides them."""
_PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)


def charts_of(result: Result) -> tuple[Chart, ...]:
    recording, pairs = result.recording, result.pairs
    made = [_capacity(result), _percentiles(result), _events(recording)]
    if pairs:
        made += [_changes(METRICS[item.metric], pairs, item) for item in result.verdict.comparisons]
        made += [_changes(METRICS[floor.metric], pairs, None) for floor in result.noise]
    # A search for the capacity makes loads of different rates. No single load's chart would represent them.
    if result.capacity is None:
        made.append(_lead_times(recording))
    if recording.counted():
        timeline = timeline_of(recording, result.base)
        if result.capacity is None:
            made += [_rates(result, timeline), _event_rates(result, timeline), _latencies(result, timeline)]
        made += process_charts(result, timeline)
    return tuple(chart for chart in made if chart is not None)


# --- A search for the capacity: latency over rate, a mark for each load


def _capacity(result: Result) -> Chart | None:
    found, loads, old = result.capacity, _told(result.capacity), _told(result.base_capacity)
    if found is None or not loads:
        return None
    limits = {
        name: limit for name, limit in found.limits.items() if METRICS[name.partition("_")[2]].unit is Unit.SECONDS
    }
    # The axis ends a little beyond the highest rate.
    x = axis([1.05 * max(load.rate for load in (*loads, *old))], Unit.PER_SECOND, ends=True)
    y = axis(
        [*(load.p50 for load in loads), *(load.p99 for load in (*loads, *old)), *limits.values()],
        Unit.SECONDS,
        log=True,
    )
    p50s, p99s, old_p99s = [load.p50 for load in loads], [load.p99 for load in loads], [load.p99 for load in old]
    lines = [*_loads("p50", loads, p50s, FIRST), *_loads("p99", loads, p99s, SECOND)]
    lines += _loads("p99 of the old code", old, old_p99s, QUIET)
    lines += [level(name, limit, x, BAD) for name, limit in limits.items()]
    bands = [(found.low, found.high)] if found.rate and math.isfinite(found.high) else []
    says = "Each mark is a load at one rate. It is hollow if a limit was broken, or the server fell behind."
    says += " The shaded part is the interval of the capacity." * bool(bands)
    return Chart(title="Latency over rate", says=says, lines=lines, x=x, y=y, bands=bands)


def _told(found: Capacity | None) -> list[RateTried]:
    return [load for load in found.tried if load.p99 is not None and not load.by_generator] if found else []


def _loads(name: str, loads: Sequence[RateTried], values: Sequence[float | None], colour: str) -> Iterator[Line]:
    for hollow in (False, True):
        shown = [
            (load.rate, value)
            for load, value in zip(loads, values, strict=True)
            if load.holds is not hollow and value is not None
        ]
        says = [f"{quantity(rate, Unit.PER_SECOND)}: {time_text(value)}" for rate, value in shown]
        if shown:
            yield Line(name=name, points=shown, colour=colour, marks=True, hollow=hollow, says=says)


# --- latency by percentile


def _percentiles(result: Result) -> Chart | None:
    recording, latency = result.recording, result.recording.latency()
    other = result.stored_latency if result.base is None else result.base.latency()
    if latency.count < LEAST_REQUESTS:
        return None
    service, ttfb = recording.merged("service"), recording.merged("ttfb")
    curves = [("latency" if other is None else "latency of the new code", latency, FIRST)]
    says = "99 % of the requests took no longer than the value at p99."
    if service.count and any(latency.percentile_ns(at) > NOTABLE * service.percentile_ns(at) for at in (50, 99)):
        curves.append(("service time", service, SECOND))
        says = "Latency counts from when a request was due, service time from when it was sent."
    if 0 < ttfb.percentile_ns(50) < 0.8 * latency.percentile_ns(50):  # the body takes notable time
        curves.append(("to the first byte", ttfb, THIRD))
    if other is not None and other.count >= LEAST_REQUESTS:
        curves.append(("latency of the old code", other, QUIET))
    says = f"{says} The shaded percentiles rest on at most {_SURE} requests."
    return _by_percentile("Latency by percentile", says, curves, latency)


def _events(recording: Recording) -> Chart | None:
    first, gap = recording.merged("first_event"), recording.merged("event_gap")
    found = (("gap", gap, FIRST), ("first event", first, SECOND))
    if not (curves := [curve for curve in found if curve[1].count >= LEAST_REQUESTS]):
        return None
    longest = max((times for _, times, _ in curves), key=lambda times: times.count)
    says = "The time between two events of a stream, and the time to each stream's first event."
    return _by_percentile("Events by percentile", says, curves, longest)


def _by_percentile(title: str, says: str, curves: Sequence[tuple[str, Histogram, str]], latency: Histogram) -> Chart:
    """Returns a chart of times by percentile, spaced as in HdrHistogram's plots. `latency` decides the axes."""
    count = latency.count
    ticks = [(1 / (1 - at / 100), f"p{at:g}") for at in _PERCENTILES if count * (1 - at / 100) >= 1]
    lines = [Line(name=name, points=_curve(times), colour=colour, steps=True) for name, times, colour in curves]
    stretched = latency.max_ns > 30 * latency.percentile_ns(50)  # only a logarithmic axis shows both
    y = axis([at for line in lines for _, at in line.points], Unit.SECONDS, log=stretched)
    x = Axis(low=1.0, high=float(count), ticks=ticks, log=True)
    return Chart(title=title, says=says, lines=lines, x=x, y=y, bands=((count / _SURE, count),))


def _curve(latency: Histogram) -> list[tuple[float, float]]:
    count, values_ns = latency.count, latency.values_ns()
    # A value is drawn from the percentile that equals the share of requests with smaller values.
    before = np.cumsum(latency.counts) - latency.counts
    places = count / (count - before)
    columns = (np.log(places) / max(math.log(count), 1e-9) * MOST_POINTS).astype(int)
    _, shown = np.unique(columns, return_index=True)
    return [*((float(places[at]), float(values_ns[at]) / 1e9) for at in shown), (float(count), latency.max_ns / 1e9)]


# --- open loops: lead times


def _lead_times(recording: Recording) -> Chart | None:
    boots = [boot.leads for boot in recording.boots if boot.leads is not None and boot.leads.due_ns]
    if sum(len(leads.due_ns) for leads in boots) < LEAST_REQUESTS:
        return None
    single = all(count == 1 for leads in boots for count in leads.counts)
    single = single and all(len(leads.due_ns) <= 3 * MOST_POINTS for leads in boots)
    lines: list[Line] = []
    for leads in boots if single else map(_averaged, boots):
        mean, slowest = (
            [(due_ns / 1e9, value_ns / 1e9) for due_ns, value_ns in zip(leads.due_ns, values_ns, strict=True)]
            for values_ns in (leads.mean_ns, leads.max_ns)
        )
        lines += [] if single else [Line(name="slowest", points=slowest, colour=SECOND)]
        lines.append(Line(name="request" if single else "mean", points=mean, colour=FIRST, marks=single))
    each = " Each start-up has its own line." * (len(boots) > 1 and not single)
    return Chart(
        title="Latency by when a request was due",
        says=f"Latency climbs while the server falls behind, and is flat while the server keeps up.{each}",
        lines=lines,
        x=axis([at for line in lines for at, _ in line.points], Unit.SECONDS, ends=True),
        y=axis([value for line in lines for _, value in line.points], Unit.SECONDS),
    )


def _averaged(leads: LeadTimes) -> LeadTimes:
    size = math.ceil(len(leads.due_ns) / MOST_POINTS)
    parts = [slice(at, at + size) for at in range(0, len(leads.due_ns), size)]
    counts, means_ns = np.array(leads.counts), np.array(leads.mean_ns, dtype=np.float64)
    return LeadTimes(
        due_ns=tuple(leads.due_ns[part.start] for part in parts),
        counts=tuple(int(counts[part].sum()) for part in parts),
        mean_ns=tuple(int(np.average(means_ns[part], weights=counts[part])) for part in parts),
        max_ns=tuple(max(leads.max_ns[part]) for part in parts),
    )


# --- over time: rounds of the new code, and of the old code if both were measured alternately

_Shown: TypeAlias = Sequence[tuple[float, float, Round]]
"""(begin, end, round) for each round, in seconds on the timeline."""


def _rates(result: Result, timeline: Timeline) -> Chart | None:
    def failed_per_second(round_: Round) -> float | None:
        return round_.failed / (round_.duration_ns / 1e9) if round_.duration_ns else None

    rounds = _rounds(result.recording, timeline)
    if len(rounds) < _LEAST_ROUNDS:
        return None
    lines = _lines_of_both("requests/s", result, timeline, METRICS["rps"], (FIRST, QUIET))
    if result.measurement.errors:
        lines.append(_marks("failed/s", rounds, failed_per_second, BAD))
    load = result.identity.get("load")
    rate = load.get("rate") if isinstance(load, dict) else None
    if isinstance(rate, int | float):
        lines.append(level("due", float(rate), timeline.x, QUIET))
    ended = any(round_.phase is Phase.DRAIN for _, _, round_ in rounds)
    says = f"{_MARKS}." + " The last mark counts the requests that were in flight at the end." * ended
    return _over_time("Requests per second over time", says, lines, result, ("rps",), timeline)


def _event_rates(result: Result, timeline: Timeline) -> Chart | None:
    shown = [each for each in _rounds(result.recording, timeline) if each[2].events is not None]
    if len(shown) < _LEAST_ROUNDS:
        return None
    lines = [_marks("events", shown, METRICS["event_rate"].of_round, FIRST)]
    says = f"The events of all streams together. {_MARKS}."
    return _over_time("Events per second over time", says, lines, result, ("event_rate",), timeline)


def _latencies(result: Result, timeline: Timeline) -> Chart | None:
    least = METRICS["p99"].least_requests
    p50 = _lines_of_both("p50", result, timeline, METRICS["p50"], (FIRST, THIRD))
    p99 = _lines_of_both("p99", result, timeline, METRICS["p99"], (SECOND, FOURTH))
    lines = [line for line in (*p50, *p99) if any(value is not None for _, value in line.points)]
    if not lines or len(p50[0].points) < _LEAST_ROUNDS:
        return None
    says = f"{_MARKS}. It has a p99 if it has at least {least:,} requests."
    return _over_time("Latency over time", says, lines, result, ("p50", "p99"), timeline)


def _over_time(
    title: str, says: str, lines: Sequence[Line], result: Result, metrics: Sequence[str], timeline: Timeline
) -> Chart:
    stored = [
        level(f"baseline {item.metric}", item.base, timeline.x, QUIET)
        for item in result.verdict.comparisons
        if item.metric in metrics and item.base is not None and result.base is None
    ]
    limits = [
        level(check.name, check.limit, timeline.x, BAD) for check in result.verdict.limits if check.metric in metrics
    ]
    return timeline.chart(title, says, [*lines, *stored, *limits], METRICS[metrics[0]].unit)


def _lines_of_both(
    name: str, result: Result, timeline: Timeline, metric: Metric, colours: tuple[str, str]
) -> list[Line]:

    def value(round_: Round) -> float | None:
        is_sure = metric.percentile is None or round_.requests >= metric.least_requests
        return metric.of_round(round_) if is_sure else None

    now = _rounds(result.recording, timeline)
    if result.base is None:
        return [_marks(name, now, value, colours[0])]
    old = _marks(f"{name} of the old code", _rounds(result.base, timeline), value, colours[1], hollow=True)
    return [old, _marks(f"{name} of the new code", now, value, colours[0])]


def _marks(
    name: str, rounds: _Shown, value: Callable[[Round], float | None], colour: str, *, hollow: bool = False
) -> Line:
    return Line(
        name=name,
        points=[(begin, value(round_)) for begin, _, round_ in rounds],
        ends=[end for _, end, _ in rounds],
        colour=colour,
        marks=True,
        hollow=hollow,
    )


def _rounds(recording: Recording, timeline: Timeline) -> _Shown:
    """Returns the rounds to draw. Joins neighbours if there are many, or if they have too few requests for p99."""
    measured = recording.measured()
    shortest_ns = min((round_.duration_ns for round_ in measured), default=0)
    # A drain (the wait for the last answers) needs a round's length, because else its rate means little.
    counted = [
        round_ for round_ in recording.counted() if round_.phase is not Phase.DRAIN or round_.duration_ns >= shortest_ns
    ]
    usual = median([round_.requests for round_ in measured]) if measured else 0
    together = math.ceil(METRICS["p99"].least_requests / usual) if usual else 1
    # Each start-up keeps some marks, even if they have too few requests for p99.
    size = max(math.ceil(len(counted) / MOST_POINTS), min(together, len(measured) // (4 * len(recording.boots)) or 1))
    counted.sort(key=lambda round_: round_.started_ns)
    shown = []
    for _, group in groupby(counted, key=lambda round_: (round_.boot, round_.phase)):
        of_boot = list(group)
        for at in range(0, len(of_boot), size):
            parts = of_boot[at : at + size]
            begin, end = timeline.seconds(parts[0].started_ns), timeline.seconds(parts[-1].ended_ns)
            # Durations are added, because the other code is measured between these rounds.
            whole = Round.summed(parts, started_ns=0, ended_ns=sum(part.duration_ns for part in parts))
            shown.append((begin, end, whole))
    return shown


# --- old and new code measured alternately: the change in each start-up


def _changes(metric: Metric, pairs: Sequence[Pair], comparison: MetricComparison | None) -> Chart | None:
    """Returns a chart with a mark for each start-up of both versions. If requests are few, a mark joins several."""
    points, bars, of, before = [], [], "a fresh start-up", 0
    for own, unit in units_of(metric, pairs):
        if unit is not None:
            change, *ends = unit.changes(metric)
            points.append((before + (len(own) + 1) / 2, change))
            bars.append((ends[0], ends[1]))
            of = "one or more fresh start-ups" if len(own) > 1 else of
        before += len(own)
    if not points:
        return None
    numbers = range(1, len(pairs) + 1, math.ceil(len(pairs) / 10))
    x = Axis(low=0.5, high=len(pairs) + 0.5, ticks=[(number, f"{number}") for number in numbers])
    says = [format_change(change) for _, change in points]
    lines = [
        level("no change", 0.0, x, QUIET),
        Line(name="start-up of both versions", points=points, colour=FIRST, marks=True, bars=bars, says=says),
    ]
    if comparison is not None and comparison.change is not None:
        lines.append(level("in all", comparison.change, x, FIRST))
    if comparison is not None and comparison.outcome is not Outcome.WATCHED:
        lines.append(level("tolerance", comparison.edge, x, BAD))
    better = "Lower" if metric.worse_sign > 0 else "Higher"
    return Chart(
        title=f"Change of {metric.title} by start-up",
        says=f"{better} is better. Each mark is the change in {of} of both versions, with its 90 % interval.",
        lines=lines,
        x=x,
        y=axis(
            [*(value for line in lines for _, value in line.points), *(end for bar in bars for end in bar)], Unit.SHARE
        ),
    )
