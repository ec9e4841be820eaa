"""Charts as static SVG: lines, marks, axes. Colours are classes of the style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.page.markup import Markup, element

MOST_POINTS = 120
"""The most points of a line that a chart can show."""
COLOURS = ("first", "second", "third", "fourth")
"""CSS classes of lines. Each class also has its own dashes, for readers who do not see colours."""
FIRST, SECOND, THIRD, FOURTH = COLOURS
QUIET, BAD = "quiet", "bad"
_SIZES: Mapping[Unit, tuple[tuple[str, float], ...]] = {
    Unit.SECONDS: ((" s", 1.0), (" ms", 1e-3), (" µs", 1e-6)),
    Unit.BYTES: ((" GiB", 2.0**30), (" MiB", 2.0**20), (" KiB", 2.0**10)),
    Unit.SHARE: ((" %", 0.01),),
    Unit.PER_SECOND: (("/s", 1.0),),
}
_WIDTH, _WIDE, _HEIGHT = 800, 2400, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 120, 12, 36, 44
"""Margins: left and below for the labels of the axes, and above for notes."""

Points: TypeAlias = Sequence[tuple[float, float | None]]
"""Coordinates in SI units; None interrupts the line."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()
    log: bool = False

    def share(self, value: float) -> float:
        """Returns a value's place on the axis, from 0 (low end) to 1 (high end). Values beyond an end get 0 or 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through its points, or a mark at each point."""

    name: str
    points: Points
    colour: str
    steps: bool = False
    """Whether the line goes horizontally, then vertically, to its next point."""
    marks: bool = False
    hollow: bool = False
    ends: Sequence[float] = ()
    """The end of each mark on the horizontal axis. If empty, marks are dots."""
    bars: Sequence[tuple[float, float]] = ()
    """The interval of each mark, drawn as a vertical bar."""
    says: Sequence[str] = ()
    """The text of each mark when the mouse is over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    says: str
    """How to read the chart."""
    lines: Sequence[Line]
    x: Axis
    y: Axis
    bands: Sequence[tuple[float, float]] = ()
    """Begin and end of each shaded part on the horizontal axis."""
    notes: Sequence[tuple[float, str]] = ()
    """(place on the horizontal axis, text) of each note above the chart."""
    uprights: Sequence[float] = ()
    wide: bool = False


def axis(values: Iterable[float | None], unit: Unit, *, log: bool = False, ends: bool = False) -> Axis:
    """Returns an axis for all values (in SI units) and 0. It ends at a tick, or with `ends` at the largest value.

    A logarithmic axis ends at powers of 10, and leaves out values that are not above 0.
    """
    known = [value for value in values if value is not None and (value > 0 or not log)]
    if log:
        first, last = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        places = [10.0**at for at in range(first, max(last, first + 1) + 1)]
        return Axis(low=places[0], high=places[-1], ticks=[(at, tick_text(at, at, unit)) for at in places], log=True)
    least, most = min((0.0, *known)), max((0.0, *known))
    most = most if most > least else least + 1.0
    largest = max(abs(least), abs(most))
    _, size = _unit_for(largest, unit)
    about = (most - least) / size / 4  # four steps are enough for a small chart
    power = 10.0 ** math.floor(math.log10(about))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= about * 0.999) * size
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    places = [at * step for at in range(first, last + 1)]
    if not ends:
        least, most = places[0], places[-1]
    ticks = [(at, tick_text(at, largest, unit)) for at in places if least <= at <= most]
    return Axis(low=least, high=most, ticks=ticks)


def tick_text(value: float, largest: float, unit: Unit) -> str:
    """Returns the value in the unit that suits the axis's largest value: `250 ms`, `0.5 s`, `−5 %`."""
    name, size = _unit_for(largest, unit)
    return f"{value / size:,.6g}{name}".replace("-", "\N{MINUS SIGN}")


def _unit_for(largest: float, unit: Unit) -> tuple[str, float]:
    sizes = _SIZES.get(unit, (("", 1.0),))
    return next((named for named in sizes if largest >= named[1]), sizes[-1])


def level(name: str, value: float, x: Axis, colour: str) -> Line:
    """Returns a horizontal line at a value, such as a limit."""
    return Line(name=name, points=((x.low, value), (x.high, value)), colour=f"{colour} level")


def thinned(items: Sequence[_T], most: int = MOST_POINTS) -> Sequence[_T]:
    """Returns at most `most` of the items, at even distances. The first and the last item are always included."""
    if len(items) <= most:
        return items
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def figure(chart: Chart) -> Markup:
    width = _WIDE if chart.wide else _WIDTH
    right, bottom = width - _RIGHT, _HEIGHT - _BOTTOM

    def x(value: float) -> int:
        return round(_LEFT + (right - _LEFT) * chart.x.share(value))

    def y(value: float) -> int:
        return round(bottom - (bottom - _TOP) * chart.y.share(value))

    bands = "".join(f"M{x(begin)} {_TOP}H{x(end)}V{bottom}H{x(begin)}z" for begin, end in chart.bands)
    uprights = "".join(f"M{x(at)} {_TOP}V{bottom}" for at in chart.uprights)
    drawn = element(
        "svg",
        element("path", class_="band", d=bands) if bands else "",
        element("path", class_="rules", d="".join(f"M{_LEFT} {y(at)}H{right}" for at, _ in chart.y.ticks)),
        element("path", class_="upright", d=uprights) if uprights else "",
        *(_text(text, _LEFT - 10, y(at) + 8, "end") for at, text in chart.y.ticks),
        *(_text(text, x(at), _HEIGHT - 8, "end" if x(at) > right - 20 else "middle") for at, text in chart.x.ticks),
        *(_text(text, min(x(at), right - 110), _TOP - 10, "start") for at, text in chart.notes),
        *(part for line in chart.lines for part in _parts(line, x, y)),
        viewBox=f"0 0 {width} {_HEIGHT}",
        role="img",
        aria_label=chart.title,
    )
    says = element("span", chart.says, class_="quiet")
    caption = element("figcaption", element("b", chart.title), " ", says, element("div", *_keys(chart.lines)))
    if chart.wide:  # on a phone it is scrolled, by keys too
        drawn = element("div", drawn, class_="scroll", role="group", tabindex="0", aria_label=chart.title)
    return element("figure", caption, drawn)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", text, x=f"{x}", y=f"{y}", class_=anchor)


def _keys(lines: Sequence[Line]) -> Iterator[Markup]:
    named: dict[str, Line] = {}
    for line in lines:
        named.setdefault(line.name, line)  # one entry for the lines of all start-ups
    for line in named.values() if len(named) > 1 else ():
        width = 20 if line.marks else 40
        points = ((0.5, 0.5),) if line.marks else ((0.0, 0.5), (1.0, 0.5))
        key = Line(name="", points=points, colour=line.colour, marks=line.marks, hollow=line.hollow)
        drawn = _parts(key, partial(_scaled, width), partial(_scaled, 20))
        shown = element("svg", *drawn, viewBox=f"0 0 {width} 20", aria_hidden="true")
        yield element("span", shown, line.name, class_="key")


def _scaled(size: int, share: float) -> int:
    return round(size * share)


def _parts(line: Line, x: Callable[[float], int], y: Callable[[float], int]) -> Iterator[Markup]:
    """Yields the paths of a line or its marks. A dot is a path without length, which the style sheet makes round."""
    if not line.marks:
        yield element("path", class_=f"line {line.colour}", d=_course(line, x, y))
        return
    known = [(x(at), y(value)) for at, value in line.points if value is not None]
    if line.bars:
        ends = zip(known, line.bars, strict=True)
        drawn = "".join(f"M{at} {y(low)}V{y(high)}" for (at, _), (low, high) in ends)
        yield element("path", class_=f"bar {line.colour}", d=drawn)
    until = [x(end) for end, (_, value) in zip(line.ends, line.points, strict=False) if value is not None]
    marks = [f"M{at} {height}H{end}" for (at, height), end in zip(known, until or [at for at, _ in known], strict=True)]
    if line.says:
        shown = (element("path", element("title", says), d=mark) for mark, says in zip(marks, line.says, strict=True))
        yield element("g", *shown, class_=f"mark {line.colour}")
    else:
        yield element("path", class_=f"mark {line.colour}", d="".join(marks))
    if line.hollow:
        yield element("path", class_="core", d="".join(marks))


def _course(line: Line, x: Callable[[float], int], y: Callable[[float], int]) -> str:
    drawn, before = [], None  # relative steps, because they are shorter than absolute ones
    for at, value in line.points:
        if value is None:
            before = None
            continue
        here = x(at), y(value)
        if before is None:
            drawn.append(f"M{here[0]} {here[1]}")
        else:
            right, down = here[0] - before[0], here[1] - before[1]
            drawn.append(f"h{right}v{down}" if line.steps else f"l{right} {down}".replace(" -", "-"))
        before = here
    return "".join(drawn)
