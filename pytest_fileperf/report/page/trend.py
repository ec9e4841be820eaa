"""The trend of a history as one HTML file without scripts, with a chart for each test and metric."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from pytest_fileperf.judge.history import Trend
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.page.drawing import FIRST, SECOND, Axis, Chart, Line, axis, figure, thinned
from pytest_fileperf.report.page.markup import Markup, document, element
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.trend import LEAST_SCALE, change_text, commit_text, newest_first, shares, step_text, titles
from pytest_fileperf.units import as_share, format_change, format_count

_MOST_MARKS = 250


def trend_html(trends: Sequence[Trend]) -> str:
    names, runs = titles(trends), {id(run) for trend in trends for run in trend.series.runs}
    sections = (
        element("section", element("h2", f"{plain(names[own.series.nodeid])} {own.series.metric}"), *trend_parts(own))
        for own in newest_first(trends)
    )
    return document(
        "Trend of load tests",
        element("header", element("h1", "Trend of load tests"), element("p", format_count(len(runs), "run"))),
        element("main", *sections),
    )


def trend_parts(trend: Trend) -> tuple[Markup, ...]:
    """Returns the total change, the steps (lasting changes) with their commits, and a chart."""
    steps = [element("li", step_text(step, trend.series.runs)) for step in reversed(trend.steps)]
    total = element("p", f"{change_text(*trend.total)} in all", "" if steps else ", without a lasting change")
    return total, element("ul", *steps) if steps else Markup(), figure(_chart(trend))


def _chart(trend: Trend) -> Chart:
    series, levels = trend.series, trend.course.levels
    points, bars, says = list[tuple[float, float]](), list[tuple[float, float]](), list[str]()
    size = -(-len(levels) // _MOST_MARKS)  # of very many runs, neighbours share a mark
    for begin in range(0, len(levels), size):
        end = min(begin + size, len(levels))
        weights = [max(error, 1e-6) ** -2 for error in series.errors[begin:end]]  # files may have tiny errors
        change, *interval = shares(fmean(series.ratios[begin:end], weights), sum(weights) ** -0.5)
        others = f" and {format_count(end - begin - 1, 'later run')}" if end - begin > 1 else ""
        points.append(((begin + end - 1) / 2, change))
        bars.append((interval[0], interval[1]))
        says.append(f"{commit_text(series.runs[begin])}{others}: {format_change(change)}")
    # The 5 % widest intervals do not set the axis: they would flatten all other marks.
    ordered = sorted(bars, key=lambda bar: bar[1] - bar[0])[: max(1, round(0.95 * len(bars)))]
    begins = [0, *(at for at, (before, level) in enumerate(pairwise(levels), 1) if level != before), len(levels) - 1]
    means = [(at - 0.5, as_share(levels[at])) for at in begins]
    dates = [(float(at), f"{series.runs[at].time:%Y-%m-%d}") for at in thinned(range(len(levels)), 6)]
    runs = "run, with its 90 % interval"
    return Chart(
        title=f"Trend of {series.metric}",
        says="Each mark compares new and old code, measured alternately. At dotted lines, old code or machine changed.",
        lines=[
            Line(name=runs, points=points, colour=FIRST, marks=True, bars=bars, says=says),
            Line(name="level", points=[*means, (len(levels) - 0.5, means[-1][1])], colour=SECOND, steps=True),
        ],
        x=Axis(low=-0.5, high=len(levels) - 0.5, ticks=dates),
        y=axis(
            [-LEAST_SCALE, LEAST_SCALE, *map(as_share, levels), *(end for bar in ordered for end in bar)], Unit.SHARE
        ),
        uprights=[at - 0.5 for at, link in enumerate(series.links) if link],
        wide=True,
    )
