"""The section of one measurement: its load, verdict, failures, charts and figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.details import (
    noise_texts,
    notes,
    reasons,
    setting,
)
from pytest_fileperf.report.figures import SPREAD, figure_lines, spread
from pytest_fileperf.report.generators import generator_texts
from pytest_fileperf.report.page.causes import explanation, failed_requests
from pytest_fileperf.report.page.drawing import Chart
from pytest_fileperf.report.page.gates import badge, gate_table, limit_list, world_items
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.page.overview import PageEntry
from pytest_fileperf.report.text import amount, plain

__all__ = ("facts_list", "section")

_SHOWN_ELSEWHERE = (
    "work",
    "latency",
    "service",
    "ttfb",
    "first event",
    "event gap",
    "failures",
    "limits",
    "limited by",
)


def section(entry: PageEntry, charts: Sequence[Chart], first_chart: int) -> Markup:
    """Returns the section; `first_chart` is the number of its first chart on the page."""
    result = entry.result
    return element(
        "article",
        element("header", element("h3", entry.name, class_="name"), badge(result.standing)),
        element("p", "; ".join((plain(result.work), *setting(result))), class_="quiet"),
        Markup("") if result.smoke or result.test.own else _limiting(result.measurement.limit),
        gate_table(result),
        limit_list(result),
        _sentences(result),
        *explanation(result),
        *failed_requests(result),
        element("div", *map(_figure, charts, range(first_chart, first_chart + len(charts))), class_="charts"),
        _latencies(result.measurement),
        Markup("") if result.test.part else _generators(result.measurement),
        facts_list(_figures(result)),
        id=entry.anchor,
        data_test=entry.anchor,
        data_outcome=entry.outcome,
    )


def _limiting(limit: Limit) -> Markup:
    if limit.kind is LimitKind.UNCLEAR:
        return element("p", f"Not clear what limited it{': ' * bool(limit.evidence)}{limit.evidence}")
    return element("p", "Limited by ", element("b", limit.kind.value), f": {limit.evidence}" if limit.evidence else "")


def facts_list(facts: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    """Returns terms with their texts; terms without a text are left out."""
    pairs = (
        (element("dt", term), element("dd", *(element("span", text) for text in texts)))
        for term, texts in facts
        if texts
    )
    return element("dl", *(part for pair in pairs for part in pair), class_="facts")


def _sentences(result: Result) -> Markup:
    """Returns the reasons of outcomes, and what a reader must know to judge the figures."""
    items = [*world_items(result)]
    items += [element("li", badge(Standing(outcome.value)), f" {text}") for outcome, text, _ in reasons(result)]
    items += [element("li", text) for text in (*noise_texts(result), *notes(result))]
    return element("ul", *items, class_="says") if items else Markup("")


def _figure(chart: Chart, number: int) -> Markup:
    caption = element("figcaption", element("b", chart.title), " ", element("span", chart.says, class_="quiet"))
    place = element("div", class_="chart", role="img", aria_label=chart.title, data_chart=str(number))
    return element("figure", caption, place)


def _latencies(run: Measurement) -> Markup:
    """Returns a row for each latency that was measured, with its distribution."""
    timed = (
        *(("latency", run.latency), ("service time", run.service), ("first byte", run.ttfb)),
        *(("first event", run.events.first), ("event gap", run.events.gap)),
    )
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            *(
                element("td", text, class_="number")
                for text in (amount(seconds, Unit.SECONDS) for seconds in spread(summary).values())
            ),
        )
        for name, summary in timed
        if summary.count
    ]
    return table(("time", *(f">{name}" for name in SPREAD)), rows, title="Times of requests") if rows else Markup("")


def _generators(run: Measurement) -> Markup:
    """Returns a row for each generator, where there are several or they are elsewhere."""
    rows = [
        element(
            "tr",
            element("th", f"{use.number}", scope="row"),
            *(element("td", text, class_="number") for text in generator_texts(use)[:5]),
            element("td", " · ".join(generator_texts(use)[5:])),
        )
        for use in run.client.generators
    ]
    place = ">worker" if any(use.worker for use in run.client.generators) else ">core"
    heads = ("generator", place, ">connections", ">rate", ">errors", ">CPU", "")
    return table(heads, rows, title="Load generators") if rows else Markup("")


def _figures(result: Result) -> list[tuple[str, list[str]]]:
    """Returns the figures that the terminal shows with `-v`, by subject; the latencies have a table of their own."""
    rows = (re.split(" {2,}", line.strip()) for line in figure_lines(result, width=100_000, colour=False))
    return [
        (subject, texts)
        for subject, *texts in rows
        if subject not in _SHOWN_ELSEWHERE and not subject.startswith("generator ")
    ]
