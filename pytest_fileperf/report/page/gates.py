"""Verdicts as markup: outcomes, gates with a picture of their interval, and limits."""

from __future__ import annotations

import math

from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report import story, wording
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.text import Style, plain
from pytest_fileperf.units import format_count

_CLASSES = {Style.GOOD: "good", Style.BAD: "bad", Style.WARNING: "warning", Style.NEWS: "news"}
_HALF = 100.0
"""Half of a picture's width. The picture's middle stands for no change."""
_HEIGHT = 20


def badge(standing: Standing | Outcome, text: str = "", *, of: str = "") -> Markup:
    """Returns a badge in the outcome's colour, with the outcome or `text`.

    A test's badge (`of="whole"`) is filled, and a part's badge (`of="part"`) is outlined. Other badges are tinted.
    """
    style = _CLASSES.get(story.STYLES[standing], "")
    return element("span", text or wording.word_of(standing), class_=" ".join(filter(None, ("outcome", style, of))))


def world_items(result: Result) -> tuple[Markup, ...]:
    outcome = wording.world_outcome(result.verdict)
    if outcome is None:
        return ()
    return (element("li", element("b", "environment"), f": {wording.world_text(result.verdict)} ", badge(outcome)),)


def limit_list(result: Result) -> Markup:
    items = []
    for check in result.verdict.limits:
        outcome = element("span", "holds", class_="outcome good") if check.holds else badge(Standing.LIMIT)
        why = f" {wording.sentence(check.reason)}".rstrip()
        items.append(element("li", f"{wording.limit_text(check)} ", outcome, why))
    return element("ul", *items, class_="says") if items else Markup()


def gate_table(result: Result) -> Markup:
    comparisons = story.compared(result)
    if not comparisons:
        return Markup()
    against, base = result.verdict.against, wording.base_name(result.verdict)
    rows = [
        element(
            "tr",
            element("th", item.metric, scope="row"),
            *(
                element("td", text, class_="number", data_heading=name)
                for name, text in zip((base, "new"), wording.both_sides(item), strict=True)
            ),
            element("td", element("b", wording.change_text(item)), f" {wording.interval_text(item)}", class_="number"),
            element("td", _picture(item), class_="change"),
            element("td", wording.tolerance_text(item), class_="number", data_heading="tolerance"),
            element("td", badge(item.outcome)),
        )
        for item in comparisons
    ]
    how = f", measured alternately, with {format_count(result.verdict.pairs, 'start-up')} of each version"
    said = element("p", "Against ", element("b", plain(against)), how) if against else ""
    judged = table(("gate", f">{base}", ">new", ">change", "", ">tolerance", "outcome"), rows, class_="judged")
    return Markup(said + judged)


def _picture(comparison: MetricComparison) -> Markup:
    """Returns a picture of the change and its interval. The part beyond the tolerance has another colour.

    worse ░░░░░┊      │ ━━━●━━      better
    """
    ends = [x for x in (comparison.low, comparison.change, comparison.high) if x is not None and math.isfinite(x)]
    if len(ends) < 3:
        return Markup()
    # From its middle, the picture reaches two tolerances to each end, or further if the interval does.
    reach = max(2 * abs(comparison.edge), 1.1 * abs(ends[0]), 1.1 * abs(ends[2]), 1e-9)
    low, now, high, edge = (_HALF * (1 + value / reach) for value in (*ends, comparison.edge))
    more_is_worse = METRICS[comparison.metric].worse_sign > 0
    begin, end = (edge, 2 * _HALF) if more_is_worse else (0.0, edge)
    tolerance, middle = wording.tolerance_text(comparison), _at(_HEIGHT / 2)
    worse = element("rect", class_="worse", x=_at(begin), y="0", width=_at(end - begin), height=_at(_HEIGHT))
    return element(
        "svg",
        worse if tolerance else "",
        _upright(_HALF, "zero"),
        _upright(edge, "edge") if tolerance else "",
        element("line", class_="range", x1=_at(low), x2=_at(high), y1=middle, y2=middle),
        element("circle", class_="now", cx=_at(now), cy=middle, r="5"),
        viewBox=f"0 0 {_at(2 * _HALF)} {_at(_HEIGHT)}",
        role="img",
        aria_label=f"{wording.change_and_interval(comparison)}{f', tolerance {tolerance}' * bool(tolerance)}",
    )


def _upright(x: float, class_: str) -> Markup:
    return element("line", class_=class_, x1=_at(x), x2=_at(x), y1="0", y2=_at(_HEIGHT))


def _at(value: float) -> str:
    return f"{value:.4g}"
