"""The chart of a search for the capacity: latency over rate, a mark for each load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_fileperf.judge.result import Result
from pytest_fileperf.measure.capacity import Capacity, RateTried
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.report.page.drawing import (
    BAD,
    FIRST,
    QUIET,
    SECOND,
    Chart,
    Scale,
    Trace,
    band,
    line,
    marks,
    scale_for,
)

__all__ = ("capacity_chart",)

_ROOM = 1.05
"""The axis ends so far beyond the highest rate."""


def capacity_chart(result: Result) -> Chart | None:
    """Returns the chart; None where nothing was searched for, or no load had a good answer."""
    found = result.capacity
    loads = () if found is None else _told(found)
    if found is None or not loads:
        return None
    other = result.base_capacity
    base = () if other is None else _told(other)
    scale = scale_for(max(load.p99 or 0.0 for load in (*loads, *base)), Unit.SECONDS)
    end = _ROOM * max(load.rate for load in (*loads, *base))
    traces: list[Trace] = [
        _latencies("p50", loads, scale, FIRST, "circle"),
        _latencies("p99", loads, scale, SECOND, "diamond"),
    ]
    if base:
        traces.append(_latencies("p99 of the other side", base, scale, QUIET, "diamond"))
    traces += _limits(found.limits, end, scale)
    shapes = [band(found.low, found.high)] if found.rate and math.isfinite(found.high) else []
    return Chart(
        title="Latency over rate",
        says=(
            "Each mark is a load of some seconds; hollow: a limit did not hold."
            f"{' Shaded: the interval of the capacity.' * bool(shapes)}"
        ),
        traces=tuple(traces),
        layout={
            "xaxis": {"range": [0, end], "ticksuffix": "/s"},
            "yaxis": scale.axis(type="log", dtick=1),
            "shapes": shapes,
            "hovermode": "closest",
        },
    )


def _told(found: Capacity) -> tuple[RateTried, ...]:
    """Returns the loads that have latencies and were not limited by the generator."""
    return tuple(load for load in found.tried if load.p99 is not None and not load.by_generator)


def _latencies(name: str, loads: Sequence[RateTried], scale: Scale, colour: str, symbol: str) -> Trace:
    points = [(load.rate, load.p50 if name == "p50" else load.p99) for load in loads]
    symbols = [symbol if load.holds else f"{symbol}-open" for load in loads]
    return marks(name, points, scale, colour, symbol=symbols)


def _limits(limits: Mapping[str, float], end: float, scale: Scale) -> Iterator[Trace]:
    for name, limit in limits.items():
        if METRICS[name.partition("_")[2]].unit is Unit.SECONDS:
            yield line(name, ((0.0, limit), (end, limit)), scale, BAD, width=1.5, dash="dashdot")
