"""The trend of a history as one HTML file without scripts: a chart for each test and metric, steps first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from pytest_fileperf.judge.difference import as_share
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.page.drawing import FIRST, SECOND, Axis, Chart, Line, axis, figure, thinned
from pytest_fileperf.report.page.markup import Markup, document, element
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.trend import SURE, Trend, change_text, commit_text, step_text, titles
from pytest_fileperf.units import format_change, format_count

_MOST_MARKS = 250
_LEAST_CHANGE = 0.03
"""An axis goes at least this far up and down, so that noise looks flat."""


def trend_html(trends: Sequence[Trend]) -> str:
    names = titles([trend.series.nodeid for trend in trends])
    order = sorted(trends, key=lambda trend: trend.newest, reverse=True)
    runs = {id(run) for trend in trends for run in trend.series.runs}
    sections = (
        element(
            "section", element("h2", f"{plain(names[trend.series.nodeid])} {trend.series.metric}"), *trend_parts(trend)
        )
        for trend in order
    )
    return document(
        "Trend of load tests",
        element("header", element("h1", "Trend of load tests"), element("p", format_count(len(runs), "run"))),
        element("main", *sections),
    )


def trend_parts(trend: Trend) -> tuple[Markup, ...]:
    """Returns the total change, the steps with their commits, and a chart."""
    steps = [element("li", step_text(step, trend.series)) for step in reversed(trend.steps)]
    total = element("p", f"{change_text(*trend.total)} in all", "" if steps else ", without a step")
    return total, element("ul", *steps) if steps else Markup(), figure(_chart(trend))


def _chart(trend: Trend) -> Chart:
    series, levels = trend.series, trend.course.levels
    marks = [*_marks(trend)]
    # An uncertain mark does not flatten all others.
    ordered = sorted(marks, key=lambda mark: mark[3] - mark[2])[: max(1, round(0.95 * len(marks)))]
    ends = [-_LEAST_CHANGE, _LEAST_CHANGE, *map(as_share, levels), *(end for mark in ordered for end in mark[2:4])]
    begins = [0, *(at for at, (before, level) in enumerate(pairwise(levels), 1) if level != before)]
    steps = [(at - 0.5, as_share(levels[at])) for at in (*begins, len(levels) - 1)]
    run = Line(
        name="run, with its 90 % interval",
        points=[mark[:2] for mark in marks],
        colour=FIRST,
        marks=True,
        bars=[mark[2:4] for mark in marks],
        says=[mark[4] for mark in marks],
    )
    level = Line(name="level", points=[*steps, (len(levels) - 0.5, steps[-1][1])], colour=SECOND, steps=True)
    dates = [(float(at), f"{series.runs[at].time:%Y-%m-%d}") for at in thinned(range(len(series.runs)), 6)]
    return Chart(
        title=f"Trend of {series.metric}",
        says="Each mark is new code over old code, measured alternately. Dotted: another old code or machine.",
        lines=[run, level],
        x=Axis(low=-0.5, high=len(levels) - 0.5, ticks=dates),
        y=axis(ends, Unit.SHARE),
        uprights=[at - 0.5 for at, link in enumerate(series.links) if link],
        wide=True,
    )


def _marks(trend: Trend) -> Iterator[tuple[float, float, float, float, str]]:
    """Yields each run's place, change, interval and text; with very many runs, for neighbours together."""
    series = trend.series
    size = -(-len(series.runs) // _MOST_MARKS)
    for begin in range(0, len(series.runs), size):
        end = min(begin + size, len(series.runs))
        weights = [1 / max(error, 1e-6) ** 2 for error in series.errors[begin:end]]
        ratio, margin = fmean(series.ratios[begin:end], weights), SURE / math.sqrt(sum(weights))
        says = commit_text(series.runs[begin])
        if end - begin > 1:
            says += f" and {format_count(end - begin - 1, 'later run')}"
        low, change, high = map(as_share, (ratio - margin, ratio, ratio + margin))
        yield (begin + end - 1) / 2, change, low, high, f"{says}: {format_change(change)}"
