"""The table of all measurements, failures first: a row for each, with its verdict and causes under it, and a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.comparisons import compared
from pytest_fileperf.report.details import reasons, word_of
from pytest_fileperf.report.page.causes import cause_items
from pytest_fileperf.report.page.gates import badge, gate_list
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.short_summary import slower_worlds
from pytest_fileperf.report.table import metric_text, row_names
from pytest_fileperf.report.text import plain

__all__ = ("PageEntry", "entries_of", "link", "overview")

_METRICS = ("rps", "p50", "p99")
_WORST_FIRST = (Standing.REGRESSED, Standing.LIMIT, Standing.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEntry:
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
        return word_of(self.result.standing)


def entries_of(record: SessionRecord) -> tuple[PageEntry, ...]:
    """Returns all results in the order of the page: failures first, then what is undecided; as they ran within each."""
    groups = {id(result): plain(group.title) for group in record.groups for result in group.results}
    named = sorted(zip(record.results, row_names(record.results), strict=True), key=lambda pair: _urgency(pair[0]))
    return tuple(
        PageEntry(result=result, name=name, anchor=f"test-{number}", group=groups.get(id(result), ""))
        for number, (result, name) in enumerate(named, 1)
    )


def _urgency(result: Result) -> int:
    """Returns a number that is the smaller the sooner somebody should look."""
    standing = result.standing
    if standing.fails:
        return _WORST_FIRST.index(standing)
    if slower_worlds([result]):
        return len(_WORST_FIRST)  # it fails the session, though not its test
    return len(_WORST_FIRST) + (1 if standing.is_undecided else 2)


def link(entry: PageEntry, name: str = "") -> Markup:
    """Returns a link to the section of a test, by its name or another one."""
    return element("a", name or entry.name, class_="name", href=f"#{entry.anchor}")


def overview(entries: Sequence[PageEntry]) -> Markup:
    """Returns the filter and the table."""
    if not entries:
        return Markup("")
    headings = ("test", *(f">{METRICS[name].title}" for name in _METRICS), ">errors", "limited by", "outcome")
    rows = [row for entry in entries for row in _rows(entry, len(headings))]
    few = any(metric_text(name, entry.result).startswith("~") for entry in entries for name in _METRICS)
    foot = element("p", "~ of fewer requests than the percentile needs", class_="quiet") if few else Markup("")
    shown = table(headings, rows, class_="overview")
    return element("section", element("h2", "Results"), _filter(entries), shown, foot, id="results")


def _filter(entries: Sequence[PageEntry]) -> Markup:
    """Returns a field for words and a box for each outcome, which `filter.js` shows; empty for a single test."""
    if len(entries) == 1:
        return Markup("")
    counts = Counter(entry.result.standing for entry in entries)
    boxes = [
        element(
            "label",
            element("input", type="checkbox", value=word_of(standing)),
            badge(standing, f"{counts[standing]} {word_of(standing)}"),
        )
        for standing in Standing
        if counts[standing]
    ]
    outcomes = element("fieldset", element("legend", "Only"), *boxes) if len(boxes) > 1 else Markup("")
    field = element("label", "Filter ", element("input", type="search", placeholder="name, function, failure …"))
    return element(
        "div", field, outcomes, element("output"), class_="filter", hidden="hidden", id="filter", role="search"
    )


def _rows(entry: PageEntry, columns: int) -> list[Markup]:
    result = entry.result
    about = " · ".join(filter(None, (plain(result.work), entry.group)))
    cells = [
        element("th", link(entry), element("div", about, class_="quiet"), scope="row"),
        *(_number(METRICS[name].title, metric_text(name, result)) for name in _METRICS),
        _number("errors", f"{result.measurement.errors:,}"),
        element(
            "td",
            "-" if result.smoke or not result.measurement.requests else result.measurement.limit.kind.value,
            data_heading="limited by",
        ),
        element("td", badge(result.standing)),
    ]
    said = [*gate_list(result), *_unjudged(result), *cause_items(result)]
    told = element("td", element("ul", *said, class_="says"), colspan=str(columns))
    found = [element("tr", *cells, data_test=entry.anchor, data_outcome=entry.outcome)]
    if said:
        found.append(element("tr", told, class_="below", data_test=entry.anchor, data_outcome=entry.outcome))
    return found


def _number(heading: str, text: str) -> Markup:
    return element("td", text, class_="number", data_heading=heading)


def _unjudged(result: Result) -> list[Markup]:
    """Returns why metrics without a comparison have the outcome they have."""
    if compared(result):
        return []
    return [element("li", said.text) for said in reasons(result)]
