"""The table of all measurements: a row for each, with the verdict under it, and groups in order of rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.result import Result
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.comparisons import compared
from pytest_fileperf.report.details import reasons
from pytest_fileperf.report.page.gates import badge, gate_list
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.table import metric_text, row_names
from pytest_fileperf.report.text import plain

__all__ = ("PageEntry", "entries_of", "link", "overview")

_METRICS = ("rps", "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEntry:
    """A result with its place on the page."""

    result: Result
    name: str
    """A name that no other result has."""
    anchor: str
    group: str
    """The title of the ranked group it is in; empty for none."""


def entries_of(record: SessionRecord) -> tuple[PageEntry, ...]:
    """Returns all results in the order of the page: first those in no ranked group, then each group, best first."""
    names = {id(result): name for result, name in zip(record.results, row_names(record.results), strict=True)}
    placed = [(result, "") for result in record.alone]
    placed += [(result, plain(group.title)) for group in record.groups for result, _ in group.ordered()]
    return tuple(
        PageEntry(result=result, name=names[id(result)], anchor=f"test-{number}", group=group)
        for number, (result, group) in enumerate(placed, 1)
    )


def link(entry: PageEntry, name: str = "") -> Markup:
    """Returns a link to the section of a test, by its name or another one."""
    return element("a", name or entry.name, class_="name", href=f"#{entry.anchor}")


def overview(entries: Sequence[PageEntry]) -> Markup:
    """Returns the table."""
    headings = ("test", *(f">{METRICS[name].title}" for name in _METRICS), ">errors", "limited by", "outcome")
    rows: list[Markup] = []
    for group, members in groupby(entries, key=lambda entry: entry.group):
        if group:
            title = element("th", group, colspan=str(len(headings)), scope="rowgroup")
            rows.append(element("tr", title, class_="group"))
        for entry in members:
            rows += _rows(entry, len(headings))
    few = any(metric_text(name, entry.result).startswith("~") for entry in entries for name in _METRICS)
    foot = element("p", "~ of fewer requests than the percentile needs", class_="quiet") if few else Markup("")
    return element("section", element("h2", "Results"), table(headings, rows, class_="overview"), foot, id="results")


def _rows(entry: PageEntry, columns: int) -> list[Markup]:
    result = entry.result
    cells = [
        element("td", link(entry), element("div", plain(result.work), class_="quiet")),
        *(_number(METRICS[name].title, metric_text(name, result)) for name in _METRICS),
        _number("errors", f"{result.measurement.errors:,}"),
        element(
            "td",
            "-" if result.smoke or not result.measurement.requests else result.measurement.limit.kind.value,
            data_heading="limited by",
        ),
        element("td", badge(result.standing)),
    ]
    said = [*gate_list(result), *_unjudged(result)]
    below = element("tr", element("td", element("ul", *said, class_="says"), colspan=str(columns)), class_="below")
    return [element("tr", *cells), *([below] if said else [])]


def _number(heading: str, text: str) -> Markup:
    return element("td", text, class_="number", data_heading=heading)


def _unjudged(result: Result) -> list[Markup]:
    """Returns why metrics without a comparison have the outcome they have."""
    if compared(result):
        return []
    return [element("li", text) for _, text in reasons(result)]
