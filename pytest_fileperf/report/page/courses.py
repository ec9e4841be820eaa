"""Charts of two versions that were measured in turn: the change by pair of boots, and the speed of both sides.

Speed is what was counted on each side. The change of a pair is that of typical moments, which follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, pairwise
from statistics import fmean
from typing import TypeAlias

from pytest_fileperf.host.sample import Sample
from pytest_fileperf.judge.evidence import BootEvidence, Pair
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.unit import PairValue, units_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.measure.recording import Boot
from pytest_fileperf.report.page.drawing import (
    BAD,
    COLOURS,
    DASHES,
    FIRST,
    MOST_POINTS,
    QUIET,
    SECOND,
    THIRD,
    Chart,
    Scale,
    Timeline,
    Trace,
    level,
    line,
    marks,
    scale_for,
    thinned,
)

_PERCENT = Scale(name="%", size=0.01)


def pair_charts(result: Result) -> tuple[Chart, ...]:
    """Returns the charts that have something to show; none where nothing was measured in turn."""
    pairs = result.pairs
    if not pairs:
        return ()
    made = [_changes(METRICS[item.metric], pairs, item) for item in result.verdict.comparisons]
    made += [_changes(METRICS[floor.metric], pairs, None) for floor in result.noise]
    made += [_latencies(pairs)] if result.capacity else [_rates(pairs), _latencies(pairs)]
    return tuple(chart for chart in made if chart is not None)


def _changes(metric: Metric, pairs: Sequence[Pair], comparison: MetricComparison | None) -> Chart | None:
    """Returns a mark for each pair of boots, or for several where a percentile needs their requests together."""
    units = _units(metric, pairs)
    if not units:
        return None
    found = [unit.changes(metric) for _, _, unit in units]
    points = [(place, change) for (place, _, _), (change, _, _) in zip(units, found, strict=True)]
    bars = {
        "type": "data",
        "color": FIRST,
        "thickness": 1.5,
        "width": 3,
        "array": [round(abs(high - change) / _PERCENT.size, 3) for change, _, high in found],
        "arrayminus": [round(abs(low - change) / _PERCENT.size, 3) for change, low, _ in found],
        "symmetric": False,
    }
    end = len(pairs) + 1
    traces = [marks("pair", points, _PERCENT, FIRST, error_y=bars), level("no change", 0.0, end, _PERCENT, QUIET)]
    if comparison is not None and comparison.change is not None:
        traces.append(level("all pairs", comparison.change, end, _PERCENT, FIRST))
    if comparison is not None and comparison.outcome is not Outcome.WATCHED:
        traces.append(level("tolerance", comparison.edge, end, _PERCENT, BAD))
    better = "lower" if metric.worse_sign > 0 else "higher"
    together = ", or of some together" * any(len(own) > 1 for _, own, _ in units)
    mark = f"a fresh boot of both sides{together}, with what is uncertain within it"
    says = f"Now against base: {better} is better. Each mark is {mark}."
    return _by_pair(f"Change of {metric.title}", says, traces, pairs, _PERCENT)


def _units(metric: Metric, pairs: Sequence[Pair]) -> list[tuple[float, list[Pair], PairValue]]:
    """Returns what pairs, or several together, show by themselves, each with its place on the axis."""
    found, before = [], 0
    for own, unit in units_of(metric, pairs):
        if unit is not None:
            found.append((before + (len(own) + 1) / 2, own, unit))
        before += len(own)
    return found


def _rates(pairs: Sequence[Pair]) -> Chart:
    scale = Scale(name="/s")
    traces = _both_sides("", METRICS["rps"], pairs, lambda sides: sides[0].rate("rps"), scale, FIRST)
    says = "What was counted on each boot. Both sides together rise and fall with the machine."
    return _by_pair("Requests per second", says, traces, pairs, scale)


def _latencies(pairs: Sequence[Pair]) -> Chart | None:
    highest_ns = max((side.latency.percentile_ns(99) for pair in pairs for side in (pair.base, pair.now)), default=0)
    if not highest_ns:
        return None
    scale = scale_for(highest_ns / 1e9, Unit.SECONDS)
    traces: list[Trace] = []
    for percent, colour, symbol in ((50, FIRST, "circle"), (99, SECOND, "diamond")):

        def reached(sides: Sequence[BootEvidence], percent: int = percent) -> float | None:
            latency = Histogram.merged(side.latency for side in sides)
            return latency.percentile_ns(percent) / 1e9 if latency.count else None

        traces += _both_sides(f"p{percent} ", METRICS[f"p{percent}"], pairs, reached, scale, colour, symbol)
    says = "The median and p99 of each boot, or of some together that have enough requests."
    return _by_pair("Latency", says, traces, pairs, scale)


def _both_sides(
    name: str,
    metric: Metric,
    pairs: Sequence[Pair],
    value: Callable[[Sequence[BootEvidence]], float | None],
    scale: Scale,
    colour: str,
    symbol: str = "circle",
) -> tuple[Trace, ...]:
    """Returns a mark for each change that is shown, or for each boot where none is; those of base are hollow."""
    groups: list[tuple[float, list[Pair]]] = [(place, own) for place, own, _ in _units(metric, pairs)]
    groups = groups or [(number, [pair]) for number, pair in enumerate(pairs, 1)]
    base = [(place, value([pair.base for pair in own])) for place, own in groups]
    now = [(place, value([pair.now for pair in own])) for place, own in groups]
    sides = (("base", base, f"{symbol}-open"), ("now", now, symbol))
    return tuple(marks(f"{name}{side}", points, scale, colour, size=8, symbol=shown) for side, points, shown in sides)


def _by_pair(title: str, says: str, traces: Sequence[Trace], pairs: Sequence[Pair], scale: Scale) -> Chart:
    axis: dict[str, object] = {"range": [0.5, len(pairs) + 0.5], "tickformat": "d"}
    if len(pairs) <= 20:  # each pair has a tick
        axis["dtick"] = 1
    layout = {"xaxis": axis, "yaxis": scale.axis(), "hovermode": "x unified"}
    return Chart(title=f"{title} by pair of boots", says=says, traces=traces, layout=layout)


# --- Charts of what the server's processes and the generator used while a load ran

MOST_WORKERS = len(COLOURS)
"""With more workers, lines would cover each other."""
_Use: TypeAlias = tuple[Sequence[float | None], float, float | None]
"""CPU seconds per second of each worker, of the server's other processes, and of the busiest generator."""
_Course = list[tuple[float, float | None]]


def process_charts(result: Result, timeline: Timeline) -> tuple[Chart, ...]:
    boots = sorted(
        (boot for boot in result.recording.boots if len(boot.samples) > 1), key=lambda boot: boot.samples[0].at_ns
    )
    if sum(len(boot.samples) for boot in boots) < 4:  # there is no course to draw
        return ()
    threads = _of_samples(boots, timeline, lambda sample: sum(use.threads for use in sample.server))
    busy = _of_samples(boots, timeline, lambda sample: _sum_known(use.busy_threads for use in sample.server))
    files = _of_samples(boots, timeline, lambda sample: _sum_known(use.files for use in sample.server))
    of_threads = "Busy threads are at work or wait for something; the main threads are not counted among them."
    made = (
        _cpu(boots, timeline),
        _memory(result, boots, timeline),
        _counts("Threads", of_threads, (("threads", threads, FIRST), ("busy threads", busy, SECOND)), timeline),
        _counts("Open files", "Sockets are among them.", (("open files", files, FIRST),), timeline),
    )
    return tuple(chart for chart in made if chart is not None)


# --- CPU


def _cpu(boots: Sequence[Boot], timeline: Timeline) -> Chart:
    stretches = [_stretches(boot, timeline, MOST_POINTS // len(boots)) for boot in boots]
    count = max(len(boot.worker_pids) for boot in boots)

    def course(pick: Callable[[_Use], float | None]) -> _Course:
        return _joined([[(middle_s, pick(use)) for middle_s, use in of_boot] for of_boot in stretches])

    def of_workers(pick: Callable[[Iterable[float]], float], places: slice = slice(None)) -> _Course:
        """Of some of the workers, or all."""

        def picked(use: _Use) -> float | None:
            known = [share for share in use[0][places] if share is not None]
            return pick(known) if known else None

        return course(picked)

    others = course(lambda use: use[1])
    if not count:
        says = "All processes of the server together; 100 % is a whole core."
        lines = [("server", others, FIRST)]
    elif count <= MOST_WORKERS:
        says = "100 % is a whole core: all that one worker can use for Python code."
        names = [f"worker {place + 1}" for place in range(count)] if count > 1 else ["worker"]
        lines = [(name, of_workers(sum, slice(at, at + 1)), COLOURS[at]) for at, name in enumerate(names)]
    else:
        says = f"Of {count} workers; 100 % is a whole core."
        lines = [
            ("busiest worker", of_workers(max), SECOND),
            ("mean of the workers", of_workers(fmean), FIRST),
            ("idlest worker", of_workers(min), THIRD),
        ]
    if count and _highest(others) >= 0.05:  # of a core
        lines.append(("other processes of the server", others, QUIET))
    traces = [
        line(name, points, _PERCENT, colour, dash=dash)
        for (name, points, colour), dash in zip(lines, cycle(DASHES), strict=False)
    ]
    if generator := course(lambda use: use[2]):
        several = any(len(sample.generators) > 1 for boot in boots for sample in boot.samples)
        name = "busiest generator" if several else "generator"
        traces.append(line(name, generator, _PERCENT, QUIET, dash="dashdot"))
    highest = max(_highest(points) for points in (*(points for _, points, _ in lines), generator))
    axis = _PERCENT.axis(range=[0, max(105.0, highest * 105)])
    return timeline.chart("CPU over time, shares of a core", says, traces, axis)


def _stretches(boot: Boot, timeline: Timeline, most: int) -> list[tuple[float, _Use]]:
    """Returns what was used between a boot's samples. CPU time only grows, so no use is lost by leaving samples out."""
    found: list[tuple[float, _Use]] = []
    for before, after in pairwise(thinned(boot.samples, most)):
        if (length_ns := after.at_ns - before.at_ns) > 0:
            used_ns = {use.pid: use.cpu_ns for use in before.server}
            shares = {
                use.pid: (use.cpu_ns - used_ns[use.pid]) / length_ns for use in after.server if use.pid in used_ns
            }
            # Generators stand in their order: the process id of one may be that of a server's process on another boot.
            generators = [
                (now.cpu_ns - then.cpu_ns) / length_ns
                for then, now in zip(before.generators, after.generators, strict=False)
            ]
            workers = [shares.pop(pid, None) for pid in boot.worker_pids]
            middle_s = timeline.seconds(before.at_ns + length_ns / 2)
            found.append((middle_s, (workers, sum(shares.values()), max(generators, default=None))))
    return found


# --- memory, threads, files


def _memory(result: Result, boots: Sequence[Boot], timeline: Timeline) -> Chart:
    used = _of_samples(boots, timeline, lambda sample: sum(use.rss_bytes for use in sample.server))
    scale = scale_for(_highest(used), Unit.BYTES)
    limits = [check for check in result.verdict.limits if check.metric == "rss"]
    traces = [line("memory", used, scale, FIRST)]
    traces += (level(check.name, check.limit, timeline.end_s, scale, BAD) for check in limits)
    says = "Resident memory of all its processes together."
    return timeline.chart("Memory of the server over time", says, traces, scale.axis(), showlegend=bool(limits))


def _counts(title: str, says: str, lines: Sequence[tuple[str, _Course, str]], timeline: Timeline) -> Chart | None:
    """Returns the chart of the counts that are known; None if none of them changes."""
    known = [(name, course, colour) for name, course, colour in lines if any(y is not None for _, y in course)]
    if all(len({y for _, y in course} - {None}) == 1 for _, course, _ in known):
        return None
    traces = [
        line(name, course, Scale(), colour, dash=dash)
        for (name, course, colour), dash in zip(known, DASHES, strict=False)
    ]
    return timeline.chart(f"{title} of the server over time", says, traces, Scale().axis())


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _of_samples(boots: Sequence[Boot], timeline: Timeline, pick: Callable[[Sample], int | None]) -> _Course:
    shown = [thinned(boot.samples, MOST_POINTS // len(boots)) for boot in boots]
    return _joined([[(timeline.seconds(sample.at_ns), pick(sample)) for sample in samples] for samples in shown])


def _joined(courses: Sequence[Sequence[tuple[float, float | None]]]) -> _Course:
    """Returns the courses of all boots as one, interrupted between boots."""
    joined: _Course = []
    for course in courses:
        if joined and course:
            joined.append((course[0][0], None))
        joined += course
    return joined


def _highest(course: _Course) -> float:
    return max((y for _, y in course if y is not None), default=0.0)
