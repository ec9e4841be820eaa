"""Charts of two versions that were measured in turn: the change by pair of boots, and the speed of both sides.

Speed is what was counted on each side. The change of a pair is that of typical moments, which follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pytest_fileperf.judge.pair import Pair, PairSide
from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.unit import Change, changes
from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.report.page.drawing import (
    BAD,
    FIRST,
    QUIET,
    SECOND,
    Chart,
    Points,
    Scale,
    Trace,
    level,
    marks,
    scale_for,
)

__all__ = ("pair_charts",)

_PERCENT = Scale(name="%", size=0.01)
_SPARSE = 20
"""Up to this number, each pair has a tick."""


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
    found = changes(metric, pairs)
    if not found:
        return None
    points = [(each.first + (each.pairs + 1) / 2, each.value) for each in found]
    together = any(each.pairs > 1 for each in found)
    better = "lower" if metric.worse_sign > 0 else "higher"
    return Chart(
        title=f"Change of {metric.title} by pair of boots",
        says=(
            f"Now against base: {better} is better. Each mark is a fresh boot of both sides"
            f"{', or of some together' * together}, with what is uncertain within it."
        ),
        traces=(
            marks("pair", points, _PERCENT, FIRST, error_y=_error_bars(found)),
            level("no change", 0.0, len(pairs) + 1, _PERCENT, QUIET),
            *_levels_of(comparison, len(pairs) + 1),
        ),
        layout=_layout(pairs, _PERCENT),
    )


def _error_bars(found: Sequence[Change]) -> dict[str, object]:
    above, below = (
        [round(abs(end - each.value) / _PERCENT.size, 3) for each, end in ends]
        for ends in ([(each, each.high) for each in found], [(each, each.low) for each in found])
    )
    bars = {"array": above, "arrayminus": below, "symmetric": False}
    return {"type": "data", "color": FIRST, "thickness": 1.5, "width": 3, **bars}


def _levels_of(comparison: MetricComparison | None, end: float) -> Iterator[Trace]:
    if comparison is None:
        return
    if comparison.change is not None:
        yield level("all pairs", comparison.change, end, _PERCENT, FIRST)
    yield level("tolerance", comparison.edge, end, _PERCENT, BAD)


def _rates(pairs: Sequence[Pair]) -> Chart:
    scale = Scale(name="/s")
    return Chart(
        title="Requests per second by pair of boots",
        says=("What was counted on each boot. Both sides together rise and fall with the machine."),
        traces=_both_sides("", METRICS["rps"], pairs, lambda sides: sides[0].rate("rps"), scale, FIRST),
        layout=_layout(pairs, scale),
    )


def _latencies(pairs: Sequence[Pair]) -> Chart | None:
    highest_ns = max((side.latency.percentile_ns(99) for pair in pairs for side in (pair.base, pair.now)), default=0)
    if not highest_ns:
        return None
    scale = scale_for(highest_ns / 1e9, Unit.SECONDS)
    traces: list[Trace] = []
    for percent, colour, symbol in ((50, FIRST, "circle"), (99, SECOND, "diamond")):

        def reached(sides: Sequence[PairSide], percent: int = percent) -> float | None:
            latency = Histogram.merged(side.latency for side in sides)
            return latency.percentile_ns(percent) / 1e9 if latency.count else None

        traces += _both_sides(f"p{percent} ", METRICS[f"p{percent}"], pairs, reached, scale, colour, symbol)
    return Chart(
        title="Latency by pair of boots",
        says="The median and p99 of each boot, or of some together that have enough requests.",
        traces=tuple(traces),
        layout=_layout(pairs, scale),
    )


def _both_sides(
    name: str,
    metric: Metric,
    pairs: Sequence[Pair],
    value: Callable[[Sequence[PairSide]], float | None],
    scale: Scale,
    colour: str,
    symbol: str = "circle",
) -> tuple[Trace, ...]:
    """Returns a mark for each change that is shown, or for each boot where none is; those of base are hollow."""
    base: Points
    now: Points
    if found := changes(metric, pairs):
        places = [each.first + (each.pairs + 1) / 2 for each in found]
        groups = [pairs[each.first : each.first + each.pairs] for each in found]
        base = [(place, value([pair.base for pair in own])) for place, own in zip(places, groups, strict=True)]
        now = [(place, value([pair.now for pair in own])) for place, own in zip(places, groups, strict=True)]
    else:
        base = [(number, value([pair.base])) for number, pair in enumerate(pairs, 1)]
        now = [(number, value([pair.now])) for number, pair in enumerate(pairs, 1)]
    sides = (("base", base, f"{symbol}-open"), ("now", now, symbol))
    return tuple(marks(f"{name}{side}", points, scale, colour, size=8, symbol=shown) for side, points, shown in sides)


def _layout(pairs: Sequence[Pair], scale: Scale) -> dict[str, object]:
    axis: dict[str, object] = {"range": [0.5, len(pairs) + 0.5], "tickformat": "d"}
    if len(pairs) <= _SPARSE:
        axis["dtick"] = 1
    return {"xaxis": axis, "yaxis": scale.axis(), "hovermode": "x unified"}
