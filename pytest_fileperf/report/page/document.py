"""The report as one HTML file, for `--fileperf-html`: tables, and charts that plotly.js draws, without any network.

Needs plotly for its JavaScript, which becomes part of the file. A policy in the file allows only the scripts that are
in it: nothing else runs or is loaded, whatever a test's name or a server's answer contains.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files

from pytest_fileperf.judge.environment import server_packages
from pytest_fileperf.judge.groups import Place, RankedGroup, SessionRecord
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report import remarks, story, wording
from pytest_fileperf.report.figures import SPREAD, figure_rows, generator_texts, spread
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.drawing import Chart
from pytest_fileperf.report.page.gates import badge, gate_list, gate_table, limit_list, world_items
from pytest_fileperf.report.page.markup import Markup, data_block, document, element, raw_element, table
from pytest_fileperf.report.page.trend import trend_parts
from pytest_fileperf.report.table import (
    OUTSIDE,
    RUN_METRICS,
    grid_of,
    is_rough,
    limit_word,
    metric_text,
    ranked_rows,
    row_names,
    sides_of,
    value_text,
)
from pytest_fileperf.report.text import plain, time_text
from pytest_fileperf.report.trend import Trend
from pytest_fileperf.units import format_share

# --- Causes as markup: which functions made a test slower, what went wrong with requests, and with whole tests

_MOST_FAILURES = 20
_EXAMPLE_LENGTH = 4_000


def _cause_items(result: Result) -> list[Markup]:
    """Returns what made a regressed test slower, and a line for each of the first kinds of failures: list items."""
    profile = _profile(result, "b") if result.verdict.outcome is Outcome.REGRESSED else ()
    found = [element("li", *profile)] if profile else []
    shown, rest = story.first_failures(result.measurement.failures, tail=0)  # the section of the test has more of it
    found += [element("li", *_counted(failure), f": {example}" if example else "") for failure, example in shown]
    return [*found, element("li", rest)] if rest else found


def _profile(result: Result, heading: str) -> tuple[Markup, ...]:
    """Returns what the profiler saw, under what it was asked: it compares where two versions were measured in turn."""
    if result.explanation is None:
        return ()
    asked = "What costs most CPU" if result.base is None else "What made it slower"
    return element(heading, asked), element("pre", result.explanation.text)


def _counted(failure: Failure) -> tuple[str, ...]:
    return badge(Standing.FAILED, f"{failure.count:,} ×"), " ", element("b", plain(failure.kind))


def _failed_requests(result: Result) -> list[Markup]:
    """Returns each kind of failure with its first example, under a heading; nothing if every request succeeded."""
    failures = result.measurement.failures
    if not failures:
        return [element("p", badge(Standing.FAILED), " no request was made")] if not result.measurement.requests else []
    shown = [element("h4", "Failed requests, with the first of each kind")]
    for failure in failures[:_MOST_FAILURES]:
        shown.append(element("p", *_counted(failure)))
        example = failure.example.strip()
        if example and example != failure.kind:
            shown.append(element("pre", example[:_EXAMPLE_LENGTH] + "…" * (len(example) > _EXAMPLE_LENGTH)))
    if rest := failures[_MOST_FAILURES:]:
        shown.append(element("p", wording.other_kinds(rest)))
    return shown


def _failed_section(tests: Sequence[FailedTest]) -> Markup:
    if not tests:
        return Markup()
    shown = []
    for test in tests:
        place = f"{test.module}:{test.line}" if test.line is not None else test.module
        shown += [
            element("p", badge(Standing.FAILED), " ", element("b", plain(test.name), class_="name"), " "),
            element("p", f"{plain(place)}: {wording.where_failed(test)}", class_="quiet"),
            *([element("pre", test.message)] if test.message else []),
        ]
    return element("section", element("h2", "Tests that failed for another reason than a figure"), *shown, id="failed")


# --- The table of all measurements, failures first: a row for each, with its verdict and causes under it, and a filter


def _overview(named: Sequence[tuple[Result, str]], anchors: Mapping[int, str], groups: Sequence[RankedGroup]) -> Markup:
    if not named:
        return Markup()
    titles = {id(result): plain(group.title) for group in groups for result in group.results}
    headings = ("test", *(f">{METRICS[name].title}" for name in RUN_METRICS), ">errors", "limited by", "outcome")
    rows = [row for result, name in named for row in _rows(result, name, anchors, titles.get(id(result), ""))]
    few = any(is_rough(name, result) for result, _ in named for name in RUN_METRICS)
    foot = element("p", "~ of fewer requests than the percentile needs", class_="quiet") if few else ""
    shown = table(headings, rows, class_="overview")
    results = [result for result, _ in named]
    return element("section", element("h2", "Results"), _filter(results), shown, foot, id="results")


def _link(anchor: str, name: str) -> Markup:
    return element("a", name, class_="name", href=f"#{anchor}")


def _filter_keys(result: Result, anchors: Mapping[int, str]) -> dict[str, str]:
    """Returns the attributes by which `filter.js` shows what belongs to a result, or hides it."""
    return {"data_test": anchors[id(result)], "data_outcome": wording.word_of(result.standing)}


def _filter(results: Sequence[Result]) -> Markup:
    """Returns a field for words and a box for each outcome, which `filter.js` shows; empty for a single test."""
    if len(results) == 1:
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


def _rows(result: Result, name: str, anchors: Mapping[int, str], group: str) -> list[Markup]:
    about = " · ".join(filter(None, (plain(result.work), group)))
    cells = [
        element("th", _link(anchors[id(result)], name), element("div", about, class_="quiet"), scope="row"),
        *(_number(METRICS[metric].title, metric_text(metric, result)) for metric in RUN_METRICS),
        _number("errors", f"{result.measurement.errors:,}"),
        element("td", "-" if result.smoke else limit_word(result), data_heading="limited by"),
        element("td", badge(result.standing)),
    ]
    # Why metrics without a comparison have the outcome they have.
    unjudged = [] if wording.compared(result) else [element("li", text) for _, text, _ in story.reasons(result)]
    said = [*gate_list(result), *unjudged, *_cause_items(result)]
    told = element("td", element("ul", *said, class_="says"), colspan=str(len(cells)))
    keys = _filter_keys(result, anchors)
    return [element("tr", *cells, **keys), *([element("tr", told, class_="below", **keys)] if said else [])]


def _number(heading: str, text: str) -> Markup:
    return element("td", text, class_="number", data_heading=heading)


# --- Groups as markup: their members ranked, with bars, and the grid that two parameters make of one


def _group_sections(groups: Sequence[RankedGroup], anchors: Mapping[int, str]) -> Markup:
    if not groups:
        return Markup()
    sure = format_share(groups[0].confidence)
    says = (
        "Tests of equal rank cannot be told apart, and each of the marked ones may be the best. "
        f"Ranks and intervals of a group hold together with {sure} confidence."
    )
    shown = (_group(group, anchors) for group in groups)
    return element("section", element("h2", "Groups"), element("p", says, class_="quiet"), *shown)


def _group(group: RankedGroup, anchors: Mapping[int, str]) -> Markup:
    metric = METRICS[group.metric]
    places = group.places
    # Where the bars with their intervals end, in the metric's unit.
    best = places[0].value or 0.0
    longest = max(max(place.value or 0.0, (place.high or 0.0) * best) for place in places)
    rows = [
        element(
            "tr",
            element("td", rank, class_="number"),
            element("th", _link(anchors[id(result)], name), scope="row"),
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
    pace = (
        " Where generator, journey, network or rate set the pace, the server could do more, and the order says little."
    )
    outside = any(result.measurement.limit.kind in (*OUTSIDE, LimitKind.RATE) for result in group.results)
    return element(
        "section",
        element("h3", plain(group.title), class_="name"),
        element("p", f"Ranked by {metric.title}, {way}.{pace * outside}", class_="quiet"),
        table(headings, rows, class_="ranking"),
        _grid(group, anchors),
        class_="group",
    )


def _bar(place: Place, best: float, longest: float) -> Markup:
    """Returns the value as a bar. The interval of its ratio to the best lies over its end."""
    if not place.value or not best or not longest:
        return Markup()
    parts = [element("div", class_="value", style=f"--to: {place.value / longest:.4f}")]
    if place.low is not None and place.high is not None:
        ends = f"--from: {place.low * best / longest:.4f}; --to: {place.high * best / longest:.4f}"
        parts.append(element("div", class_="interval", style=ends))
    return element("div", *parts, class_="bar")


def _grid(group: RankedGroup, anchors: Mapping[int, str]) -> Markup:
    """Returns the grid under its two parameters, with better cells in warmer colours; empty if there is none."""
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


# --- The section of one measurement: its load, verdict, failures, charts and figures

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


def _section(
    result: Result,
    name: str,
    anchors: Mapping[int, str],
    charts: Sequence[Chart],
    first_chart: int,
    trends: Sequence[Trend],
) -> Markup:
    """Returns the section; `first_chart` is the number of its first chart on the page."""
    elsewhere = {*_SHOWN_ELSEWHERE, *(f"generator {use.number}" for use in result.measurement.client.generators)}
    return element(
        "article",
        element("header", element("h3", name, class_="name"), badge(result.standing)),
        element("p", "; ".join((plain(result.work), *remarks.setting(result))), class_="quiet"),
        "" if result.smoke or result.test.own else _limiting(result.measurement.limit),
        gate_table(result),
        limit_list(result),
        _sentences(result),
        *_profile(result, "h4"),
        *_failed_requests(result),
        element("div", *map(_figure, charts, range(first_chart, first_chart + len(charts))), class_="charts"),
        *(part for trend in trends for part in (element("h4", f"Trend of {trend.series.metric}"), *trend_parts(trend))),
        _latencies(result.measurement),
        "" if result.test.part else _generators(result.measurement),
        _facts_list(figure for figure in figure_rows(result) if figure[0] not in elsewhere),
        id=anchors[id(result)],
        **_filter_keys(result, anchors),
    )


def _limiting(limit: Limit) -> Markup:
    if limit.kind is LimitKind.UNCLEAR:
        return element("p", f"Not clear what limited it{': ' * bool(limit.evidence)}{limit.evidence}")
    return element("p", "Limited by ", element("b", limit.kind.value), f": {limit.evidence}" if limit.evidence else "")


def _facts_list(facts: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    """Returns terms with their texts; terms without a text are left out."""
    parts = []
    for term, texts in facts:
        if texts:
            parts += [element("dt", term), element("dd", *(element("span", text) for text in texts))]
    return element("dl", *parts, class_="facts")


def _sentences(result: Result) -> Markup:
    items = [*world_items(result)]
    items += [element("li", badge(outcome), f" {text}") for outcome, text, _ in story.reasons(result)]
    items += [element("li", text) for text in (*map(wording.noise_text, result.noise), *remarks.notes(result))]
    return element("ul", *items, class_="says") if items else Markup()


def _figure(chart: Chart, number: int) -> Markup:
    caption = element("figcaption", element("b", chart.title), " ", element("span", chart.says, class_="quiet"))
    place = element("div", class_="chart", role="img", aria_label=chart.title, data_chart=str(number))
    return element("figure", caption, place)


def _latencies(run: Measurement) -> Markup:
    timed = (
        *(("latency", run.latency), ("service time", run.service), ("first byte", run.ttfb)),
        *(("first event", run.events.first), ("event gap", run.events.gap)),
    )
    rows = [_row(name, map(time_text, spread(summary).values())) for name, summary in timed if summary.count]
    return table(("time", *(f">{name}" for name in SPREAD)), rows, title="Times of requests") if rows else Markup()


def _generators(run: Measurement) -> Markup:
    """Returns a row for each generator, where there are several or they are elsewhere."""
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


# --- The whole page


def results_html(record: SessionRecord, trends: Sequence[Trend] = ()) -> str:
    """`trends` are those of its tests in a history."""
    from plotly.offline import get_plotlyjs

    # Failures first, then what is undecided; as they ran within each.
    named = sorted(zip(record.results, row_names(record.results), strict=True), key=lambda each: story.urgency(each[0]))
    anchors = {id(result): f"test-{number}" for number, (result, _) in enumerate(named, 1)}
    sections: list[Markup] = []
    charts: list[Chart] = []
    for result, name in named:
        own = charts_of(result)
        of_test = [trend for trend in trends if trend.series.nodeid == result.test.nodeid]
        sections.append(_section(result, name, anchors, own, len(charts), of_test))
        charts += own
    scripts = (_part("filter.js"), get_plotlyjs(), _part("script.js"))
    return document(
        head=(
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"Load tests: {story.summary_line(record)}"),
            raw_element("style", _part("style.css")),
        ),
        body=(
            _header(record),
            element("noscript", element("p", "There are no charts without JavaScript; all else is in the tables.")),
            element(
                "main",
                _failed_section(record.failed),
                _overview(named, anchors, record.groups),
                _group_sections(record.groups, anchors),
                element("section", element("h2", "Each test"), *sections) if sections else "",
            ),
            data_block([{"traces": chart.traces, "layout": chart.layout} for chart in charts], id="charts"),
            *(raw_element("script", script) for script in scripts),
        ),
    )


def _part(name: str) -> str:
    return files("pytest_fileperf.report.page").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Returns a content security policy under which these scripts run, and no others."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # plotly.js styles what it draws in place, and makes pictures for those who save one.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _header(record: SessionRecord) -> Markup:
    results = record.results
    smoke = bool(results) and all(result.smoke for result in results)
    failed = wording.failed_count(record)
    counts = f"{len(results)} measured" if results else "nothing was measured"
    badges = [badge(standing, counted) for standing, counted in story.counts(results)]
    return element(
        "header",
        element("h1", "Load tests"),
        element("p", counts, *badges, *([badge(Standing.FAILED, failed)] if failed else []), class_="counts"),
        element("p", "A smoke run: a few requests each, nothing judged.") if smoke else "",
        _facts_list(_facts(record)),
    )


def _facts(record: SessionRecord) -> list[tuple[str, list[str]]]:
    known = record.environment
    cores = [f"{known['cores']} cores"] if "cores" in known else []
    machine = [str(known[name]) for name in ("cpu", "machine", "system", "python") if name in known]
    packages = known.get("packages")
    shown = server_packages(packages) if isinstance(packages, Mapping) else {}
    versions = [f"{name} {version}" for name, version in shown.items()]
    commit: list[str] = []
    if (of := record.commit) is not None:
        changed = ["with changes not committed"] if of.get("dirty") else []
        commit = [str(of.get("id"))[:10], f"branch {of.get('branch')}", *changed]
    return [
        ("made", [f"{datetime.fromisoformat(record.created):%Y-%m-%d %H:%M %Z}".rstrip()] if record.created else []),
        ("by", [record.asked.command] if record.asked.command else []),
        ("commit", commit),
        ("machine", [*machine, *cores]),
        ("packages", versions),
        ("endpoints", story.endpoint_texts(record, most=1000)),
    ]
