"""Groups as markup: their members ranked, with bars, and the grid that two parameters make of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_fileperf.judge.groups import RankedGroup
from pytest_fileperf.judge.ranking import Place
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.grid import grid_of
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.page.overview import PageEntry, link
from pytest_fileperf.report.ranking_table import OUTSIDE, member_names, rank_text, ratio_texts
from pytest_fileperf.report.text import amount, plain
from pytest_fileperf.units import format_share

__all__ = ("group_sections",)


def group_sections(groups: Sequence[RankedGroup], entries: Mapping[int, PageEntry]) -> Markup:
    """Returns a section for each group; `entries` has the entry of each result under its `id`."""
    if not groups:
        return Markup("")
    sure = format_share(groups[0].ranking.confidence)
    says = (
        "Tests of equal rank cannot be told apart, and each of the marked ones may be the best. "
        f"Ranks and intervals of a group hold together with {sure} confidence."
    )
    shown = (_group(group, entries) for group in groups)
    return element("section", element("h2", "Groups"), element("p", says, class_="quiet"), *shown)


def _group(group: RankedGroup, entries: Mapping[int, PageEntry]) -> Markup:
    metric = METRICS[group.ranking.metric]
    places = group.ranking.places
    longest = max(_reach(place, places[0].value) for place in places)
    names = member_names([result for result, _ in group.ordered()])
    rows = [
        element(
            "tr",
            element("td", rank_text(place), class_="number"),
            element("th", link(entries[id(result)], name), scope="row"),
            element("td", "-" if place.value is None else amount(place.value, metric.unit), class_="number"),
            element("td", _bar(place, places[0].value, longest), class_="share"),
            element("td", "".join(ratio_texts(place)), class_="number"),
            element("td", result.measurement.limit.kind.value if result.measurement.requests else "-"),
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
    metric = METRICS[group.ranking.metric]
    way = "less is better" if metric.worse_sign > 0 else "more is better"
    pace = (
        " Where generator, journey, network or rate set the pace, the server could do more, and the order says little."
    )
    outside = any(result.measurement.limit.kind in (*OUTSIDE, LimitKind.RATE) for result in group.results)
    return f"Ranked by {metric.title}, {way}.{pace * outside}"


def _reach(place: Place, best: float | None) -> float:
    """Returns where a bar with its interval ends, in the metric's unit."""
    return max(place.value or 0.0, (place.high or 0.0) * (best or 0.0))


def _bar(place: Place, best: float | None, longest: float) -> Markup:
    """Returns the value as a bar. The interval of its ratio to the best lies over its end."""
    if not place.value or not best or not longest:
        return Markup("")
    parts = [element("div", class_="value", style=f"--to: {place.value / longest:.4f}")]
    if place.low is not None and place.high is not None:
        ends = f"--from: {place.low * best / longest:.4f}; --to: {place.high * best / longest:.4f}"
        parts.append(element("div", class_="interval", style=ends))
    return element("div", *parts, class_="bar")


def _grid(group: RankedGroup, entries: Mapping[int, PageEntry]) -> Markup:
    """Returns the grid under its two parameters, with better cells in warmer colours; empty where there is none."""
    grid = grid_of(group.results)
    if grid is None:
        return Markup("")
    places = {place.member: place for place in group.ranking.places}
    rows = []
    for row in grid.rows:
        cells = []
        for column in grid.columns:
            member = grid.members.get((row, column))
            cells.append(element("td") if member is None else _cell(group, places[member], entries))
        rows.append(element("tr", element("th", plain(row), scope="row"), *cells))
    across = element(
        "tr",
        element("td", METRICS[group.ranking.metric].title, class_="quiet"),
        element("th", plain(grid.column_name), class_="number", colspan=str(len(grid.columns)), scope="colgroup"),
    )
    headings = (plain(grid.row_name), *(f">{plain(column)}" for column in grid.columns))
    return table(headings, rows, class_="grid", above=(across,))


def _cell(group: RankedGroup, place: Place, entries: Mapping[int, PageEntry]) -> Markup:
    result = group.results[place.member]
    if place.value is None or not place.ratio:
        return element("td", "-", class_="number")
    text = amount(place.value, METRICS[group.ranking.metric].unit)
    shown = element("a", element("b", text) if place.rank == 1 else text, href=f"#{entries[id(result)].anchor}")
    return element("td", shown, class_="number heat", style=f"--share: {min(place.ratio, 1 / place.ratio):.3f}")
