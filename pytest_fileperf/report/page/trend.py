"""The trend of a history as one HTML file without scripts: a chart in SVG for each test and metric, steps first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from statistics import fmean
from typing import NamedTuple

from pytest_fileperf.judge.difference import as_share
from pytest_fileperf.report.page.markup import Markup, document, element, raw_element
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.trend import SURE, Trend, change_text, commit_text, step_text, titles
from pytest_fileperf.units import format_change, format_count

_WIDTH, _HEIGHT = 900.0, 220.0
_LEFT, _TOP = 64.0, 12.0
_MOST_MARKS = 250


def trend_html(trends: Sequence[Trend]) -> str:
    names = titles([trend.series.nodeid for trend in trends])
    order = sorted(trends, key=lambda trend: trend.newest, reverse=True)
    runs = {id(run) for trend in trends for run in trend.series.runs}
    says = (
        "Each point is a run: new code over old code, measured alternately, with its 90 % interval. "
        "The line is the level. Dotted: the old code changed."
    )
    style = files("pytest_fileperf.report.page").joinpath("style.css").read_text(encoding="utf-8")
    return document(
        head=(
            element("meta", charset="utf-8"),
            element(
                "meta",
                http_equiv="Content-Security-Policy",
                content="default-src 'none'; style-src 'unsafe-inline'",
            ),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", "Trend of load tests"),
            raw_element("style", style),
        ),
        body=(
            element("header", element("h1", "Trend of load tests"), element("p", format_count(len(runs), "run"))),
            element("main", element("p", says), *(_section(trend, names[trend.series.nodeid]) for trend in order)),
        ),
    )


def _section(trend: Trend, name: str) -> Markup:
    return element("section", element("h2", f"{plain(name)} {trend.series.metric}"), *trend_parts(trend))


def trend_parts(trend: Trend) -> tuple[Markup, ...]:
    """Returns the change in all, the steps with their commits, and a chart."""
    steps = [element("li", step_text(step, trend.series)) for step in reversed(trend.steps)]
    total = element("p", f"{change_text(*trend.total)} in all", "" if steps else ", without a step")
    return total, element("ul", *steps) if steps else Markup(), _chart(trend)


def _chart(trend: Trend) -> Markup:
    series, levels = trend.series, trend.course.levels
    marks = [*_marks(trend)]
    # A mark that says little does not flatten all others.
    ordered = sorted(marks, key=lambda mark: mark.error)[: max(1, round(0.95 * len(marks)))]
    low = min(-0.03, *levels, *(mark.ratio - SURE * mark.error for mark in ordered))
    high = max(0.03, *levels, *(mark.ratio + SURE * mark.error for mark in ordered))

    def x(at: float) -> str:
        return f"{_LEFT + (_WIDTH - _LEFT - 8) * (at + 0.5) / len(levels):.1f}"

    def y(value: float) -> str:
        inside = min(max(value, low), high)
        return f"{_TOP + (_HEIGHT - 2 * _TOP) * (high - inside) / (high - low):.1f}"

    drawn = []
    for value in (low, 0.0, high):
        drawn += [
            element("path", class_="axis", d=f"M{_LEFT:g} {y(value)}H{_WIDTH:g}"),
            element(
                "text",
                format_change(as_share(value)) if value else "0 %",
                x="0",
                y=y(value),
                dominant_baseline="middle",
            ),
        ]
    between = "".join(f"M{x(at - 0.5)} {_TOP:g}V{_HEIGHT:g}" for at, link in enumerate(series.links) if link)
    drawn.append(element("path", class_="link", d=between))
    for mark in marks:
        place, middle = x(mark.at), y(mark.ratio)
        bar = f"M{place} {y(mark.ratio - SURE * mark.error)}V{y(mark.ratio + SURE * mark.error)}"
        hover = element("title", f"{mark.says}: {format_change(as_share(mark.ratio))}")
        drawn.append(element("g", hover, element("path", d=bar), element("circle", cx=place, cy=middle, r="3")))
    steps = "".join(
        f"{'M' if at == 0 else 'L'}{x(at - 0.5)} {y(level)}H{x(at + 0.5)}" for at, level in enumerate(levels)
    )
    drawn.append(element("path", class_="level", d=steps))
    label = f"{series.nodeid} {series.metric}: {change_text(*trend.total)}"
    box = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    return element("svg", *drawn, class_="trend", viewBox=box, role="img", aria_label=plain(label))


class _Mark(NamedTuple):
    at: float
    ratio: float
    error: float
    says: str


def _marks(trend: Trend) -> Iterator[_Mark]:
    """Yields a mark for each run; of very many, for some neighbours at a time."""
    series = trend.series
    size = -(-len(series.runs) // _MOST_MARKS)
    for begin in range(0, len(series.runs), size):
        end = min(begin + size, len(series.runs))
        weights = [1 / max(error, 1e-6) ** 2 for error in series.errors[begin:end]]
        says = commit_text(series.runs[begin])
        if end - begin > 1:
            says += f" and {format_count(end - begin - 1, 'later run')}"
        ratio = fmean(series.ratios[begin:end], weights)
        yield _Mark((begin + end - 1) / 2, ratio, 1 / math.sqrt(sum(weights)), says)
