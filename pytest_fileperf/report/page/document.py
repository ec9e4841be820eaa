"""The report as one HTML file, for `--fileperf-html`: tables, and charts that plotly.js draws, without any network.

Needs plotly for its JavaScript, which becomes part of the file. A policy in the file allows only the scripts that are
in it: nothing else runs or is loaded, whatever a test's name or a server's answer contains.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files

from pytest_fileperf.judge.environment import server_packages
from pytest_fileperf.judge.groups import Place, RankedGroup, SessionRecord
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.report import remarks, story, wording
from pytest_fileperf.report.figures import SPREAD, figure_rows, generator_rows, generator_texts, spread
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.drawing import Chart
from pytest_fileperf.report.page.gates import badge, gate_list, gate_table, limit_list, world_items
from pytest_fileperf.report.page.markup import Markup, data_block, document, element, raw_element, table
from pytest_fileperf.report.table import (
    OUTSIDE,
    grid_of,
    is_rough,
    limit_word,
    member_names,
    metric_text,
    rank_text,
    ratio_texts,
    row_names,
    value_text,
)
from pytest_fileperf.report.text import amount, plain
from pytest_fileperf.units import format_share

# --- Causes as markup: which functions made a test slower, what went wrong with requests, and with whole tests

_MOST_FAILURES = 20
_EXAMPLE_LENGTH = 4_000


def _cause_items(result: Result) -> list[Markup]:
    """Returns what made a regressed test slower, and a line for each of the first kinds of failures: list items."""
    found = []
    if result.explanation is not None and result.verdict.outcome is Outcome.REGRESSED:
        found.append(element("li", element("b", _profiled(result)), element("pre", result.explanation.text)))
    shown, rest = story.first_failures(result.measurement.failures, tail=0)  # the section of the test has more of it
    for failure, example in shown:
        count = badge(Standing.FAILED, f"{failure.count:,} ×")
        said = f": {example}" if example else ""
        found.append(element("li", count, " ", element("b", plain(failure.kind)), said))
    return [*found, element("li", rest)] if rest else found


def _profiled(result: Result) -> str:
    """Returns what the profiler was asked: it compares where two versions were measured in turn."""
    return "What costs most CPU" if result.base is None else "What made it slower"


def _failed_requests(result: Result) -> list[Markup]:
    """Returns each kind of failure with its first example, under a heading; nothing where every request succeeded."""
    failures = result.measurement.failures
    if not failures:
        return [element("p", badge(Standing.FAILED), " no request was made")] if not result.measurement.requests else []
    shown: list[Markup] = [element("h4", "Failed requests, with the first of each kind")]
    for failure in failures[:_MOST_FAILURES]:
        shown.append(
            element("p", badge(Standing.FAILED, f"{failure.count:,} ×"), " ", element("b", plain(failure.kind)))
        )
        example = failure.example.strip()
        if example and example != failure.kind:
            shown.append(element("pre", example[:_EXAMPLE_LENGTH] + "…" * (len(example) > _EXAMPLE_LENGTH)))
    rest = failures[_MOST_FAILURES:]
    if rest:
        shown.append(element("p", wording.other_kinds(rest)))
    return shown


def _failed_section(tests: Sequence[FailedTest]) -> Markup:
    if not tests:
        return Markup("")
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

_METRICS = ("rps", "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A result with its place on the page."""

    result: Result
    name: str
    """A name that no other result has."""
    anchor: str
    group: str
    """The title of the ranked group it is in; empty for none."""

    @property
    def outcome(self) -> str:
        """What the filter calls its outcome."""
        return wording.word_of(self.result.standing)


def _entries_of(record: SessionRecord) -> tuple[_Entry, ...]:
    """Returns all results in the order of the page: failures first, then what is undecided; as they ran within each."""
    groups = {id(result): plain(group.title) for group in record.groups for result in group.results}
    named = sorted(zip(record.results, row_names(record.results), strict=True), key=lambda pair: story.urgency(pair[0]))
    return tuple(
        _Entry(result=result, name=name, anchor=f"test-{number}", group=groups.get(id(result), ""))
        for number, (result, name) in enumerate(named, 1)
    )


def _link(entry: _Entry, name: str = "") -> Markup:
    return element("a", name or entry.name, class_="name", href=f"#{entry.anchor}")


def _overview(entries: Sequence[_Entry]) -> Markup:
    if not entries:
        return Markup("")
    headings = ("test", *(f">{METRICS[name].title}" for name in _METRICS), ">errors", "limited by", "outcome")
    rows = [row for entry in entries for row in _rows(entry, len(headings))]
    few = any(is_rough(name, entry.result) for entry in entries for name in _METRICS)
    foot = element("p", "~ of fewer requests than the percentile needs", class_="quiet") if few else Markup("")
    shown = table(headings, rows, class_="overview")
    return element("section", element("h2", "Results"), _filter(entries), shown, foot, id="results")


def _filter(entries: Sequence[_Entry]) -> Markup:
    """Returns a field for words and a box for each outcome, which `filter.js` shows; empty for a single test."""
    if len(entries) == 1:
        return Markup("")
    boxes = [
        element("label", element("input", type="checkbox", value=wording.word_of(standing)), badge(standing, counted))
        for standing, counted in story.counts(entry.result for entry in entries)
    ]
    outcomes = element("fieldset", element("legend", "Only"), *boxes) if len(boxes) > 1 else Markup("")
    field = element("label", "Filter ", element("input", type="search", placeholder="name, function, failure …"))
    return element(
        "div", field, outcomes, element("output"), class_="filter", hidden="hidden", id="filter", role="search"
    )


def _rows(entry: _Entry, columns: int) -> list[Markup]:
    result = entry.result
    about = " · ".join(filter(None, (plain(result.work), entry.group)))
    cells = [
        element("th", _link(entry), element("div", about, class_="quiet"), scope="row"),
        *(_number(METRICS[name].title, metric_text(name, result)) for name in _METRICS),
        _number("errors", f"{result.measurement.errors:,}"),
        element("td", "-" if result.smoke else limit_word(result), data_heading="limited by"),
        element("td", badge(result.standing)),
    ]
    # Why metrics without a comparison have the outcome they have.
    unjudged = [] if wording.compared(result) else [element("li", why.text) for why in story.reasons(result)]
    said = [*gate_list(result), *unjudged, *_cause_items(result)]
    told = element("td", element("ul", *said, class_="says"), colspan=str(columns))
    found = [element("tr", *cells, data_test=entry.anchor, data_outcome=entry.outcome)]
    if said:
        found.append(element("tr", told, class_="below", data_test=entry.anchor, data_outcome=entry.outcome))
    return found


def _number(heading: str, text: str) -> Markup:
    return element("td", text, class_="number", data_heading=heading)


# --- Groups as markup: their members ranked, with bars, and the grid that two parameters make of one


def _group_sections(groups: Sequence[RankedGroup], entries: Mapping[int, _Entry]) -> Markup:
    """Returns a section for each group; `entries` has the entry of each result under its `id`."""
    if not groups:
        return Markup("")
    sure = format_share(groups[0].confidence)
    says = (
        "Tests of equal rank cannot be told apart, and each of the marked ones may be the best. "
        f"Ranks and intervals of a group hold together with {sure} confidence."
    )
    shown = (_group(group, entries) for group in groups)
    return element("section", element("h2", "Groups"), element("p", says, class_="quiet"), *shown)


def _group(group: RankedGroup, entries: Mapping[int, _Entry]) -> Markup:
    metric = METRICS[group.metric]
    places = group.places
    # Where the bars with their intervals end, in the metric's unit.
    best = places[0].value or 0.0
    longest = max(max(place.value or 0.0, (place.high or 0.0) * best) for place in places)
    names = member_names([result for result, _ in group.ordered()])
    rows = [
        element(
            "tr",
            element("td", rank_text(place), class_="number"),
            element("th", _link(entries[id(result)], name), scope="row"),
            element("td", value_text(place, metric.unit), class_="number"),
            element("td", _bar(place, places[0].value, longest), class_="share"),
            element("td", "".join(ratio_texts(place)), class_="number"),
            element("td", limit_word(result)),
            class_="best" if place.rank == 1 else "",
        )
        for name, (result, place) in zip(names, group.ordered(), strict=True)
    ]
    headings = (">", "test", f">{metric.title}", "", ">of the best", "limited by")
    return element(
        "section",
        element("h3", plain(group.title), class_="name"),
        element("p", _about(group), class_="quiet"),
        table(headings, rows, class_="ranking"),
        _grid(group, entries),
        class_="group",
    )


def _about(group: RankedGroup) -> str:
    metric = METRICS[group.metric]
    way = "less is better" if metric.worse_sign > 0 else "more is better"
    pace = (
        " Where generator, journey, network or rate set the pace, the server could do more, and the order says little."
    )
    outside = any(result.measurement.limit.kind in (*OUTSIDE, LimitKind.RATE) for result in group.results)
    return f"Ranked by {metric.title}, {way}.{pace * outside}"


def _bar(place: Place, best: float | None, longest: float) -> Markup:
    """Returns the value as a bar. The interval of its ratio to the best lies over its end."""
    if not place.value or not best or not longest:
        return Markup("")
    parts = [element("div", class_="value", style=f"--to: {place.value / longest:.4f}")]
    if place.low is not None and place.high is not None:
        ends = f"--from: {place.low * best / longest:.4f}; --to: {place.high * best / longest:.4f}"
        parts.append(element("div", class_="interval", style=ends))
    return element("div", *parts, class_="bar")


def _grid(group: RankedGroup, entries: Mapping[int, _Entry]) -> Markup:
    """Returns the grid under its two parameters, with better cells in warmer colours; empty where there is none."""
    grid = grid_of(group.results)
    if grid is None:
        return Markup("")
    places = {place.member: place for place in group.places}
    rows = []
    for row in grid.rows:
        cells = []
        for column in grid.columns:
            member = grid.members.get((row, column))
            cells.append(element("td") if member is None else _cell(group, places[member], entries))
        rows.append(element("tr", element("th", plain(row), scope="row"), *cells))
    across = element(
        "tr",
        element("td", METRICS[group.metric].title, class_="quiet"),
        element("th", plain(grid.column_name), class_="number", colspan=str(len(grid.columns)), scope="colgroup"),
    )
    headings = (plain(grid.row_name), *(f">{plain(column)}" for column in grid.columns))
    return table(headings, rows, class_="grid", above=(across,))


def _cell(group: RankedGroup, place: Place, entries: Mapping[int, _Entry]) -> Markup:
    result = group.results[place.member]
    if place.value is None or not place.ratio:
        return element("td", "-", class_="number")
    text = amount(place.value, METRICS[group.metric].unit)
    shown = element("a", element("b", text) if place.rank == 1 else text, href=f"#{entries[id(result)].anchor}")
    return element("td", shown, class_="number heat", style=f"--share: {min(place.ratio, 1 / place.ratio):.3f}")


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


def _section(entry: _Entry, charts: Sequence[Chart], first_chart: int) -> Markup:
    """Returns the section; `first_chart` is the number of its first chart on the page."""
    result = entry.result
    return element(
        "article",
        element("header", element("h3", entry.name, class_="name"), badge(result.standing)),
        element("p", "; ".join((plain(result.work), *remarks.setting(result))), class_="quiet"),
        Markup("") if result.smoke or result.test.own else _limiting(result.measurement.limit),
        gate_table(result),
        limit_list(result),
        _sentences(result),
        *([element("h4", _profiled(result)), element("pre", result.explanation.text)] if result.explanation else []),
        *_failed_requests(result),
        element("div", *map(_figure, charts, range(first_chart, first_chart + len(charts))), class_="charts"),
        _latencies(result.measurement),
        Markup("") if result.test.part else _generators(result.measurement),
        _facts_list(_figures(result)),
        id=entry.anchor,
        data_test=entry.anchor,
        data_outcome=entry.outcome,
    )


def _limiting(limit: Limit) -> Markup:
    if limit.kind is LimitKind.UNCLEAR:
        return element("p", f"Not clear what limited it{': ' * bool(limit.evidence)}{limit.evidence}")
    return element("p", "Limited by ", element("b", limit.kind.value), f": {limit.evidence}" if limit.evidence else "")


def _facts_list(facts: Iterable[tuple[str, Sequence[str]]]) -> Markup:
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
    items += [element("li", badge(outcome), f" {text}") for outcome, text, _ in story.reasons(result)]
    items += [element("li", text) for text in (*wording.noise_texts(result), *remarks.notes(result))]
    return element("ul", *items, class_="says") if items else Markup("")


def _figure(chart: Chart, number: int) -> Markup:
    caption = element("figcaption", element("b", chart.title), " ", element("span", chart.says, class_="quiet"))
    place = element("div", class_="chart", role="img", aria_label=chart.title, data_chart=str(number))
    return element("figure", caption, place)


def _latencies(run: Measurement) -> Markup:
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
    """Returns the figures that the terminal shows with `-v`, by subject; some have a table of their own."""
    elsewhere = {*_SHOWN_ELSEWHERE, *(subject for subject, _ in generator_rows(result.measurement))}
    return [(subject, texts) for subject, texts in figure_rows(result) if subject not in elsewhere]


# --- document


def results_html(record: SessionRecord) -> str:
    """Returns the text of the file."""
    from plotly.offline import get_plotlyjs

    entries = _entries_of(record)
    sections: list[Markup] = []
    charts: list[Chart] = []
    for entry in entries:
        own = charts_of(entry.result)
        sections.append(_section(entry, own, len(charts)))
        charts += own
    scripts = (_part("filter.js"), get_plotlyjs(), _part("script.js"))
    return document(
        head=(
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"Load tests: {story.summary_line(record.results, record.failed)}"),
            raw_element("style", _part("style.css")),
        ),
        body=(
            _header(record),
            element("noscript", element("p", "There are no charts without JavaScript; all else is in the tables.")),
            element(
                "main",
                _failed_section(record.failed),
                _overview(entries),
                _group_sections(record.groups, {id(entry.result): entry for entry in entries}),
                element("section", element("h2", "Each test"), *sections) if sections else Markup(""),
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
    failed = wording.failed_count(record.failed, measured=bool(results))
    counts = f"{len(results)} measured" if results else "nothing was measured"
    badges = [badge(standing, counted) for standing, counted in story.counts(results)]
    return element(
        "header",
        element("h1", "Load tests"),
        element("p", counts, *badges, *([badge(Standing.FAILED, failed)] if failed else []), class_="counts"),
        element("p", "A smoke run: a few requests each, nothing judged.") if smoke else Markup(""),
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
    ]
