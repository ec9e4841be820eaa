"""Verdicts as markup: outcomes, gates with a picture of their interval, and limits."""

from __future__ import annotations

import math

from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison, Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report import wording
from pytest_fileperf.report.page.markup import Markup, element, table
from pytest_fileperf.report.story import STYLES
from pytest_fileperf.report.text import Style, plain
from pytest_fileperf.units import format_count

_CLASSES = {Style.GOOD: "good", Style.BAD: "bad", Style.WARNING: "warning", Style.NEWS: "news"}
_HALF = 100.0
"""Half of the picture's width; no change is in its middle."""
_HEIGHT = 20.0


def badge(standing: Standing | Outcome, text: str = "", *, of: str = "") -> Markup:
    """Returns the standing or outcome, or a text about it, in its colour.

    It is filled for a test (`of="whole"`), outlined for a part (`of="part"`), and tinted for a gate or a limit.
    """
    style = _CLASSES.get(STYLES[standing], "")
    return element("span", text or wording.word_of(standing), class_=" ".join(filter(None, ("outcome", style, of))))


def world_items(result: Result) -> tuple[Markup, ...]:
    """Returns how the baseline's own code runs in this environment: a list item, or nothing if unknown."""
    outcome = wording.world_outcome(result.verdict)
    if outcome is None:
        return ()
    return (element("li", element("b", "environment"), f": {wording.world_text(result.verdict)} ", badge(outcome)),)


def limit_list(result: Result) -> Markup:
    limits = result.verdict.limits
    return element("ul", *map(_limit, limits), class_="says") if limits else Markup()


def _limit(check: LimitCheck) -> Markup:
    outcome = element("span", "holds", class_="outcome good") if check.holds else badge(Standing.LIMIT)
    return element("li", f"{wording.limit_text(check)} ", outcome, f" {wording.sentence(check.reason)}".rstrip())


def gate_table(result: Result) -> Markup:
    """Returns the comparisons with figures of both versions and drawn intervals, below the other version's name."""
    comparisons = wording.compared(result)
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
    how = f", measured alternately, with {format_count(result.verdict.pairs, 'start-up')} of each"
    said = element("p", "Against ", element("b", plain(against)), how) if against else ""
    judged = table(("gate", f">{base}", ">new", ">change", "", ">tolerance", "outcome"), rows, class_="judged")
    return Markup(said + judged)


def _picture(comparison: MetricComparison) -> Markup:
    """Returns the interval of a change as a drawing, with the side beyond the tolerance in another colour.

    worse ░░░░░┊      │ ━━━●━━      better is on the other side of the middle
    """
    ends = [x for x in (comparison.low, comparison.change, comparison.high) if x is not None and math.isfinite(x)]
    if len(ends) < 3:
        return Markup()
    # It shows two tolerances to either side, or as much as the interval needs.
    reach = max(2 * abs(comparison.edge), 1.1 * abs(ends[0]), 1.1 * abs(ends[2]), 1e-9)
    low, now, high, edge = (_HALF * (1 + value / reach) for value in (*ends, comparison.edge))
    more_is_worse = METRICS[comparison.metric].worse_sign > 0
    worse_from, worse_to = (edge, 2 * _HALF) if more_is_worse else (0.0, edge)
    tolerance, width = wording.tolerance_text(comparison), _at(worse_to - worse_from)
    worse = element("rect", class_="worse", x=_at(worse_from), y="0", width=width, height=_at(_HEIGHT))
    return element(
        "svg",
        worse if tolerance else Markup(),
        _upright(_HALF, "zero"),
        _upright(edge, "edge") if tolerance else Markup(),
        element("line", class_="range", x1=_at(low), x2=_at(high), y1=_at(_HEIGHT / 2), y2=_at(_HEIGHT / 2)),
        element("circle", class_="now", cx=_at(now), cy=_at(_HEIGHT / 2), r="5"),
        viewBox=f"0 0 {_at(2 * _HALF)} {_at(_HEIGHT)}",
        role="img",
        aria_label=f"{wording.change_and_interval(comparison)}{f', tolerance {tolerance}' * bool(tolerance)}",
    )


def _upright(x: float, class_: str) -> Markup:
    return element("line", class_=class_, x1=_at(x), x2=_at(x), y1="0", y2=_at(_HEIGHT))


def _at(value: float) -> str:
    return f"{value:.4g}"
