"""The HTML file of `--fileperf-html`: a sentence, tests that need attention, then all others folded.

The page needs no other file. A browser draws a chart only when somebody opens its part of the page.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pytest_fileperf.judge.environment import server_packages
from pytest_fileperf.judge.groups import Place, RankedGroup, SessionRecord
from pytest_fileperf.judge.history import Trend
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.request import without_queries
from pytest_fileperf.report import story, wording
from pytest_fileperf.report.figures import SPREAD, figure_rows, generator_texts, spread
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.drawing import figure
from pytest_fileperf.report.page.gates import badge, gate_table, limit_list, world_items
from pytest_fileperf.report.page.markup import Markup, document, element, table
from pytest_fileperf.report.page.trend import trend_parts
from pytest_fileperf.report.table import (
    RUN_METRICS,
    grid_of,
    is_rough,
    metric_text,
    ranked_rows,
    row_names,
    sides_of,
    value_text,
)
from pytest_fileperf.report.text import plain, time_text
from pytest_fileperf.units import format_count, format_share


def results_html(record: SessionRecord, trends: Sequence[Trend] = ()) -> str:
    """Returns the HTML page. `trends` come from a history of earlier runs."""
    results = record.results
    named = sorted(
        zip(results, row_names(results), strict=True),
        key=lambda each: (not story.is_pressing(each[0]), story.urgency(each[0])),
    )
    anchors = {id(result): f"test-{number}" for number, (result, _) in enumerate(named, 1)}
    urgent, calm = [*map(_failed, record.failed)], list[Markup]()
    for result, name in named:
        shown = _test(result, name, anchors[id(result)], record, trends)
        (urgent if story.is_pressing(result) else calm).append(shown)
    rough = any(is_rough(name, result) for result in results for name in RUN_METRICS)
    return document(
        f"Load tests: {story.summary_line(record)}",
        _header(record),
        element(
            "main",
            _filter(results),
            element("section", element("h2", "Needs attention"), *urgent, id="attention") if urgent else "",
            _group_sections(record.groups, anchors),
            _folded(element("h2", f"{len(calm)} passed"), *calm, open="" if urgent else "open", id="calm")
            if calm
            else "",
            element("p", "~ marks a percentile of too few requests", class_="quiet") if rough else "",
        ),
        script="page.js",
    )


def _folded(title: str, *content: str, **attributes: str) -> Markup:
    return element("details", element("summary", title), *content, **attributes)


# --- The header: the outcome in a sentence, and the command


def _header(record: SessionRecord) -> Markup:
    smoke = bool(record.results) and all(result.smoke for result in record.results)
    hints = "; ".join(story.hints(record.results))
    return element(
        "header",
        element("h1", "Load tests"),
        element("p", story.outcome_sentence(record), class_="lead"),
        element("p", "A smoke run makes a few requests for each test, and judges nothing.") if smoke else "",
        element("p", f"{hints[0].upper()}{hints[1:]}.") if hints else "",
        _folded("About this run", _facts_list(_facts(record)), id="about"),
    )


def _facts(record: SessionRecord) -> list[tuple[str, list[str]]]:
    known = record.environment
    cores = [f"{known['cores']} cores"] if "cores" in known else []
    machine = [str(known[name]) for name in ("cpu", "machine", "system", "python") if name in known]
    packages = known.get("packages")
    shown = server_packages(packages) if isinstance(packages, Mapping) else {}
    return [
        ("made", [f"{datetime.fromisoformat(record.created):%Y-%m-%d %H:%M %Z}".rstrip()] if record.created else []),
        ("by", [_command(record.asked.command)] if record.asked.command else []),
        ("commit", _commit(record.commit) if record.commit else []),
        ("machine", [*machine, *cores]),
        ("packages", [f"{name} {version}" for name, version in shown.items()]),
        ("endpoints", story.endpoint_texts(record, most=1000)),
    ]


def _commit(commit: Mapping[str, object]) -> list[str]:
    named, url = str(commit.get("id"))[:10], commit.get("url")
    if isinstance(url, str) and url.startswith("https://"):
        named = element("a", named, href=url, rel="noreferrer")
    changed = ["with uncommitted changes"] if commit.get("dirty") else []
    return [named, f"branch {commit.get('branch')}", *changed]


def _command(text: str) -> Markup:
    """Returns a command. `page.js` adds a button that copies the command."""
    return element("code", text, class_="command")


def _filter(results: Sequence[Result]) -> Markup:
    """Returns a form that filters tests, hidden until `page.js` runs."""
    if len(results) < 2:
        return Markup()
    boxes = [
        element("label", element("input", type="checkbox", value=wording.word_of(standing)), badge(standing, counted))
        for standing, counted in story.counts(results)
    ]
    outcomes = element("fieldset", element("legend", "Only"), *boxes) if len(boxes) > 1 else ""
    field = element("label", "Filter ", element("input", type="search", placeholder="name, function, failure …"))
    return element(
        "div", field, outcomes, element("output"), class_="filter", hidden="hidden", id="filter", role="search"
    )


# --- One measurement: its figures in a line, and below them verdict, causes, failures, charts and all figures

_SHOWN_ELSEWHERE = (
    *("work", "failures", "limits", "limited by"),
    *("latency", "service", "ttfb", "first event", "event gap"),
)
"""Titles of `figure_rows` that the page shows in another place."""


def _test(result: Result, name: str, anchor: str, record: SessionRecord, trends: Sequence[Trend]) -> Markup:
    elsewhere = {*_SHOWN_ELSEWHERE, *(f"generator {use.number}" for use in result.measurement.client.generators)}
    is_pressing = story.is_pressing(result)
    of_test = (trend for trend in trends if trend.series.nodeid == result.test.nodeid)
    charts = [
        *map(figure, charts_of(result)),
        *(element("div", *trend_parts(trend), class_="wide") for trend in of_test),
    ]
    own = " part" if result.test.own else ""
    summary = element(
        "summary",
        element("h3", name, class_="name"),
        *(element("span", text) for text in _brief(result)),
        badge(result.standing, of="part" if own else "whole"),
    )
    return element(
        "details",
        summary,
        element("p", "; ".join((plain(result.work), *story.setting(result))), class_="quiet"),
        gate_table(result),
        limit_list(result),
        _sentences(result),
        "" if result.smoke or result.test.own else _limiting(result.measurement.limit),
        *_profile(result),
        *_failed_requests(result),
        element("p", "Run it again: ", _command(_again(result, record))) if is_pressing else "",
        _folded(format_count(len(charts), "chart"), element("div", *charts, class_="charts")) if charts else "",
        _folded(
            "All figures",
            _latencies(result.measurement),
            "" if result.test.part else _generators(result.measurement),
            _facts_list(figure for figure in figure_rows(result) if figure[0] not in elsewhere),
        ),
        id=anchor,
        class_=f"test{own}",
        data_outcome=wording.word_of(result.standing),
        open="open" if is_pressing else "",
    )


def _brief(result: Result) -> list[str]:
    run = result.measurement
    shown = {} if result.smoke or not run.requests else {name: metric_text(name, result) for name in RUN_METRICS}
    texts = [f"{text}/s" if name == "rps" else f"{METRICS[name].title} {text}" for name, text in shown.items()]
    return [*texts, f"{run.errors:,} failed"] if run.errors else texts


def _again(result: Result, record: SessionRecord) -> str:
    asked = record.asked
    options = ["--fileperf-smoke" if asked.smoke else "--fileperf"]
    options += [f"--fileperf-against={without_queries(asked.against)}"] if asked.against else []
    options += ["--fileperf-update=new"] if result.standing is Standing.NEW else []
    return shlex.join(("pytest", *options, result.test.item))


def _limiting(limit: Limit) -> Markup:
    if limit.kind is LimitKind.UNCLEAR:
        return element("p", f"Unclear what limited the load{': ' * bool(limit.evidence)}{limit.evidence}")
    return element("p", "Limited by ", element("b", limit.kind.value), f": {limit.evidence}" if limit.evidence else "")


def _sentences(result: Result) -> Markup:
    items = [*world_items(result)]
    items += [element("li", badge(outcome), f" {text}") for outcome, text, _ in story.reasons(result)]
    items += [element("li", text) for text in (*map(wording.noise_text, result.noise), *story.notes(result))]
    return element("ul", *items, class_="says") if items else Markup()


def _profile(result: Result) -> tuple[Markup, ...]:
    if result.explanation is None:
        return ()
    title = "CPU by function" if result.base is None else "Cause"
    return element("h4", title), element("pre", result.explanation.text)


def _failed_requests(result: Result) -> list[Markup]:
    failures = result.measurement.failures
    if not failures:
        return (
            [element("p", badge(Standing.FAILED), f" {wording.NO_REQUEST}")] if not result.measurement.requests else []
        )
    shown = [element("h4", "Failed requests, with the first example of each kind")]
    for failure in failures[:20]:
        counted = badge(Standing.FAILED, f"{failure.count:,} ×")
        shown.append(element("p", counted, " ", element("b", plain(failure.kind))))
        example = failure.example.strip()
        if example and example != failure.kind:
            shown.append(element("pre", example if len(example) <= 4_000 else example[:4_000] + "…"))
    if rest := failures[20:]:
        shown.append(element("p", wording.other_kinds(rest)))
    return shown


def _failed(test: FailedTest) -> Markup:
    place = f"{test.module}:{test.line}" if test.line is not None else test.module
    return element(
        "article",
        element("header", element("h3", plain(test.name), class_="name"), badge(Standing.FAILED, of="whole")),
        element("p", f"{plain(place)}: {wording.where_failed(test)}", class_="quiet"),
        element("pre", test.message) if test.message else "",
    )


def _facts_list(facts: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    known = [(term, [element("span", text) for text in texts]) for term, texts in facts if texts]
    parts = (part for term, spans in known for part in (element("dt", term), element("dd", *spans)))
    return element("dl", *parts, class_="facts")


def _latencies(run: Measurement) -> Markup:
    timed = (
        *(("latency", run.latency), ("service time", run.service), ("first byte", run.ttfb)),
        *(("first event", run.events.first), ("event gap", run.events.gap)),
    )
    rows = [_row(name, map(time_text, spread(summary).values())) for name, summary in timed if summary.count]
    return table(("time", *(f">{name}" for name in SPREAD)), rows, title="Times of requests") if rows else Markup()


def _generators(run: Measurement) -> Markup:
    rows = [
        _row(f"{use.number}", generator_texts(use)[:5], element("td", " · ".join(generator_texts(use)[5:])))
        for use in run.client.generators
    ]
    place = ">worker" if any(use.worker for use in run.client.generators) else ">core"
    heads = ("generator", place, ">connections", ">rate", ">errors", ">CPU", "")
    return table(heads, rows, title="Load generators") if rows else Markup()


def _row(name: str, numbers: Iterable[str], *further: Markup) -> Markup:
    cells = (element("td", text, class_="number") for text in numbers)
    return element("tr", element("th", name, scope="row"), *cells, *further)


# --- Groups: their members ranked, with bars, and the grid that two parameters make


def _group_sections(groups: Sequence[RankedGroup], anchors: Mapping[int, str]) -> Markup:
    if not groups:
        return Markup()
    sure = format_share(groups[0].confidence)
    says = (
        "Tests of equal rank may be equal, and each test with rank 1 may be the best. "
        f"With {sure} confidence, all ranks and intervals of a group are right."
    )
    shown = (_group(group, anchors) for group in groups)
    return element("section", element("h2", "Groups"), element("p", says, class_="quiet"), *shown)


def _group(group: RankedGroup, anchors: Mapping[int, str]) -> Markup:
    metric, best = METRICS[group.metric], group.places[0].value or 0.0
    # The end of the longest bar, or of the farthest interval, in the metric's unit.
    longest = max(max(place.value or 0.0, (place.high or 0.0) * best) for place in group.places)
    rows = [
        element(
            "tr",
            element("td", rank, class_="number"),
            element("th", element("a", name, class_="name", href=f"#{anchors[id(result)]}"), scope="row"),
            element("td", value, class_="number"),
            element("td", _bar(place, best, longest), class_="share"),
            element("td", share + interval, class_="number"),
            element("td", limit),
            class_="best" if place.rank == 1 else "",
        )
        for result, place, (rank, name, value, share, interval, limit) in ranked_rows(group)
    ]
    headings = (">", "test", f">{metric.title}", "", ">of the best", "limited by")
    way = "less is better" if metric.worse_sign > 0 else "more is better"
    pace = " If load generator, journey, network or rate limited a test, its server could do more."
    pace += " The order then says little."
    outside = any(result.measurement.limit.kind in (*story.OUTSIDE, LimitKind.RATE) for result in group.results)
    return element(
        "section",
        element("h3", plain(group.title), class_="name"),
        element("p", f"Ranked by {metric.title}, {way}.{pace * outside}", class_="quiet"),
        table(headings, rows, class_="ranking"),
        _grid(group, anchors),
        class_="group",
    )


def _bar(place: Place, best: float, longest: float) -> Markup:
    """Returns a bar for the place's value, with a mark for its interval. The value `longest` fills the bar."""
    if not place.value or not best or not longest:
        return Markup()
    parts = [element("div", class_="value", style=f"--to: {place.value / longest:.4f}")]
    if place.low is not None and place.high is not None:
        ends = f"--from: {place.low * best / longest:.4f}; --to: {place.high * best / longest:.4f}"
        parts.append(element("div", class_="interval", style=ends))
    return element("div", *parts, class_="bar")


def _grid(group: RankedGroup, anchors: Mapping[int, str]) -> Markup:
    """Returns the grid of a group's two parameters, with better cells in warmer colours."""
    grid = grid_of(group.results)
    if grid is None:
        return Markup()
    (row_name, column_name), members = grid
    rows, columns = sides_of(grid)
    metric, places = METRICS[group.metric], {place.member: place for place in group.places}

    def cell(member: int | None) -> Markup:
        if member is None:
            return element("td")
        place = places[member]
        if place.value is None or not place.ratio:
            return element("td", "-", class_="number")
        text, anchor = value_text(place, metric.unit), anchors[id(group.results[member])]
        shown = element("a", element("b", text) if place.rank == 1 else text, href=f"#{anchor}")
        return element("td", shown, class_="number heat", style=f"--share: {min(place.ratio, 1 / place.ratio):.3f}")

    lines = [
        element("tr", element("th", plain(row), scope="row"), *(cell(members.get((row, column))) for column in columns))
        for row in rows
    ]
    across = element(
        "tr",
        element("td", metric.title, class_="quiet"),
        element("th", plain(column_name), class_="number", colspan=str(len(columns)), scope="colgroup"),
    )
    headings = (plain(row_name), *(f">{plain(column)}" for column in columns))
    return table(headings, lines, class_="grid", above=(across,))
