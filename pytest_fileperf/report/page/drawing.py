"""Charts as plain values for plotly.js: lines, scales, and the time axis that all charts of a run share.

Nothing here needs escaping, as charts hold no text of a test. Colours are variables of the page (`var(--first)`), which
have other values for light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias, TypeVar

from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.recording import Recording

MOST_POINTS = 300
"""Points of one line: a chart cannot show more."""
COLOURS = ("var(--first)", "var(--second)", "var(--third)", "var(--fourth)")
FIRST, SECOND, THIRD, _ = COLOURS
DASHES = ("solid", "dash", "dot", "longdash")
"""A dash for each colour, as nobody should need to see colours."""
QUIET, BAD, _BAND = "var(--quiet)", "var(--bad)", "var(--band)"
_DASHES = {QUIET: "dot", BAD: "dashdot"}
_SIZES: Mapping[Unit, tuple[tuple[str, float], ...]] = {
    Unit.SECONDS: (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    Unit.BYTES: (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)),
    Unit.SHARE: (("%", 0.01),),
    Unit.PER_SECOND: (("/s", 1.0),),
    Unit.COUNT: (("", 1.0),),
}

Points: TypeAlias = Sequence[tuple[float, float | None]]
"""Coordinates in SI units; None interrupts the line."""
Trace: TypeAlias = Mapping[str, object]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    says: str
    """How to read it."""
    traces: Sequence[Trace]
    layout: Mapping[str, object]
    """What differs from the page's own layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A unit that suits all values of a chart."""

    name: str = ""
    size: float = 1.0
    """The unit's size in the SI unit."""

    @property
    def suffix(self) -> str:
        """What follows a number."""
        return self.name if self.name.startswith("/") else f" {self.name}".rstrip()

    def axis(self, **changes: object) -> dict[str, object]:
        """Returns an axis from 0 that counts in the unit; `changes` are plotly's own attributes of an axis."""
        return {"rangemode": "tozero", "ticksuffix": self.suffix, **changes}


def scale_for(largest: float, unit: Unit) -> Scale:
    """Returns the scale for values up to the largest, which is in the metric's SI unit."""
    sizes = _SIZES[unit]
    name, size = next((named for named in sizes if largest >= named[1]), sizes[-1])
    return Scale(name=name, size=size)


def line(
    name: str,
    points: Points,
    scale: Scale,
    colour: str,
    *,
    width: float = 2,
    dash: str = "solid",
    shape: str = "linear",
    **changes: object,
) -> Trace:
    """Returns a line through the points; `changes` are plotly's own attributes of a trace."""
    return {
        "name": name,
        "x": [_short(x) for x, _ in points],
        "y": [None if y is None else _short(y / scale.size) for _, y in points],
        "mode": "lines",
        "line": {"color": colour, "width": width, "dash": dash, "shape": shape},
        "hovertemplate": f"%{{y:,.4~r}}{scale.suffix}",
        **changes,
    }


def marks(
    name: str, points: Points, scale: Scale, colour: str, *, size: int = 7, symbol: object = "circle", **changes: object
) -> Trace:
    """Returns a mark for each point; `changes` are plotly's own attributes of a trace."""
    marker = {"color": colour, "size": size, "symbol": symbol}
    return {**line(name, points, scale, colour), "mode": "markers", "marker": marker, **changes}


def level(name: str, value: float, end_s: float, scale: Scale, colour: str) -> Trace:
    """Returns a horizontal line to compare others with, which is broken in a way that goes with its colour."""
    dash = _DASHES.get(colour, "dash")
    return line(name, ((0.0, value), (end_s, value)), scale, colour, width=1.5, dash=dash)


def band(start: float, end: float) -> Mapping[str, object]:
    """Returns a band in the background between two places on the horizontal axis, in the axis's unit."""
    edges = {"x0": _short(start), "x1": _short(end), "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "rect", "layer": "below", "fillcolor": _BAND, "line": {"width": 0}, **edges}


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def thinned(items: Sequence[_T], most: int = MOST_POINTS) -> Sequence[_T]:
    """Returns at most `most` of the items: the first, the last, and some between at even distances."""
    if len(items) <= most:
        return items
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The time axis of a run, in seconds since the first thing that was seen of it."""

    origin_ns: int
    end_s: float
    axes: Mapping[str, object]
    """A layout with this axis from left to right, and a band behind rounds of a boot that followed each other."""

    def seconds(self, at_ns: float) -> float:
        """Returns where an instant of the monotonic clock is on the axis."""
        return (at_ns - self.origin_ns) / 1e9

    def chart(
        self, title: str, says: str, traces: Sequence[Trace], yaxis: Mapping[str, object], **layout: object
    ) -> Chart:
        return Chart(title=title, says=says, traces=traces, layout={**self.axes, "yaxis": yaxis, **layout})


def timeline_of(recording: Recording) -> Timeline:
    """Returns the time axis of a recording that has rounds."""
    seen = [sample.at_ns for boot in recording.boots for sample in boot.samples]
    seen += (at_ns for round_ in recording.counted() for at_ns in (round_.started_ns, round_.ended_ns))
    origin_ns, end_s = min(seen), (max(seen) - min(seen)) / 1e9
    rounds = sorted(recording.measured(), key=lambda round_: round_.started_ns)
    # Boots are numbered as they were first loaded: which one is next is drawn by chance.
    numbers = {boot: number for number, boot in enumerate(dict.fromkeys(round_.boot for round_ in rounds), 1)}
    where = {"xanchor": "left", "y": 1, "yanchor": "bottom", "yref": "paper"}
    shapes, names = [], []
    for boot, group in groupby(rounds, key=lambda round_: round_.boot):
        of_boot = list(group)
        start, end = ((at_ns - origin_ns) / 1e9 for at_ns in (of_boot[0].started_ns, of_boot[-1].ended_ns))
        shapes.append(band(start, end))
        names.append({"text": f"boot {numbers[boot]}", "x": _short(start), **where})
    axes = {
        "xaxis": {"range": [0, _short(end_s)], "ticksuffix": " s", "hoverformat": ",.2f"},
        "shapes": shapes,
        "annotations": names if 1 < len(names) <= 6 else [],
        "hovermode": "x unified",
    }
    return Timeline(origin_ns=origin_ns, end_s=end_s, axes=axes)
