"""Texts about comparisons: both sides, the change and its interval, and what the world did to unchanged code.

A change of the code and a change of the world are never said in one breath:

    rps  5,010/s → 5,001/s  −0.2 % [−1.1, +0.7]  tolerance 3 %  PASS
    the world: your baseline's own code runs at 0.83 of what was stored (rps −16.8 % from 6,021/s): …
"""

from __future__ import annotations

from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, ReasonKind, Verdict
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.reasons import names_package, sentence
from pytest_fileperf.report.text import plain, quantity
from pytest_fileperf.units import format_change

__all__ = (
    "FIGURES_ONLY",
    "NOT_YOUR_CODE",
    "NO_BASELINE",
    "base_name",
    "change_text",
    "code_text",
    "compared",
    "interval_text",
    "is_same_code",
    "is_world_notable",
    "not_stored_text",
    "sides_text",
    "typical_text",
    "world_outcome",
    "world_text",
)

FIGURES_ONLY = "only stored figures compare: "
"""How it begins that the code of a baseline was not measured again, which tells less; why follows."""
NO_BASELINE = (ReasonKind.NO_BASELINE, ReasonKind.NO_BASELINE_SATURATED)
NOT_YOUR_CODE = "the machine, packages or environment changed, not your code"


def base_name(verdict: Verdict) -> str:
    """Returns what the side is called that a run is compared with: another version, or what was stored."""
    return "base" if verdict.against and not verdict.code else "baseline"


def compared(result: Result) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of different code that have figures of both sides."""
    return tuple(
        item
        for item in result.verdict.comparisons
        if item.base is not None and item.now is not None and not is_same_code(item)
    )


def is_same_code(comparison: MetricComparison) -> bool:
    """Returns whether nothing was to compare: what differs from the stored figures is the world's doing."""
    return comparison.reason is not None and comparison.reason.kind is ReasonKind.SAME_CODE


def sides_text(comparison: MetricComparison) -> str:
    """Returns `2,190/s → 2,050/s`: the values of both sides, or of the one that is known."""
    unit = METRICS[comparison.metric].unit
    return " → ".join(quantity(side, unit) for side in (comparison.base, comparison.now) if side is not None)


def change_text(comparison: MetricComparison) -> str:
    """Returns the change, `−6.4 %`; `?` where it is not known."""
    return "?" if comparison.change is None else format_change(comparison.change)


def typical_text(comparison: MetricComparison) -> str:
    """Returns the change of typical moments, where it is not that of the figures; else empty."""
    if comparison.typical is None:
        return ""
    change = format_change(comparison.typical)
    if METRICS[comparison.metric].percentile is not None:
        return f"{comparison.metric}: the verdict compares start-ups with each other, by which the change is {change}"
    return f"{comparison.metric}: in typical moments, without stalls, the change is {change}. The verdict uses both"


def interval_text(comparison: MetricComparison) -> str:
    """Returns the interval of the change in per cent, `[−8.1, −4.7]`; empty where it is not known."""
    if comparison.low is None or comparison.high is None:
        return ""
    return f"[{', '.join(format_change(bound, unit=False) for bound in (comparison.low, comparison.high))}]"


def code_text(verdict: Verdict, *, with_title: bool = False) -> str:
    """Returns what there is to say about the code that was measured again; empty where reasons of outcomes say it.

    Without the title that `against` has, unless `with_title`.
    """
    reasons = (comparison.reason for comparison in verdict.comparisons)
    if any(reason is not None and reason.text and reason.text in verdict.code for reason in reasons):
        return ""
    return plain(verdict.code.partition("; ")[2] if verdict.against and not with_title else verdict.code)


def not_stored_text(result: Result) -> str:
    """Returns why it is no baseline though that was asked for; empty where that is not so, or a reason says it."""
    kinds = {comparison.reason.kind for comparison in result.verdict.comparisons if comparison.reason}
    said = not kinds.isdisjoint(NO_BASELINE)
    return f"nothing was stored: {plain(result.not_stored)}" if result.not_stored and not said else ""


def world_outcome(verdict: Verdict) -> Outcome | None:
    """Returns what the world did to unchanged code; None where that is not known."""
    found = {comparison.outcome for comparison in verdict.world}
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASS)
    return next((outcome for outcome in order if outcome in found), None)


def is_world_notable(verdict: Verdict) -> bool:
    """Returns whether the world is shown without being asked: it is slower, or may be and packages have changed."""
    outcome = world_outcome(verdict)
    changed = any(comparison.outcome is outcome and _changed(comparison) for comparison in verdict.world)
    return outcome is Outcome.REGRESSED or (outcome is Outcome.INCONCLUSIVE and changed)


def world_text(verdict: Verdict) -> str:
    """Returns in a sentence how the baseline's own code runs now; empty where that is not known."""
    outcome = world_outcome(verdict)
    if outcome is None:
        return ""
    lead = next(comparison for comparison in verdict.world if comparison.outcome is outcome)
    figures = ", ".join(map(_from_stored, verdict.world))
    return plain(f"your baseline's own code {_ratio(lead)} ({figures}){_meaning(lead)}{_changed(lead)}")


def _from_stored(comparison: MetricComparison) -> str:
    """Returns `rps −17.0 % from 5,210/s`, without what it is now: the row of the test has its own figure."""
    base = "?" if comparison.base is None else quantity(comparison.base, METRICS[comparison.metric].unit)
    return f"{comparison.metric} {change_text(comparison)} from {base}"


def _ratio(comparison: MetricComparison) -> str:
    ratio = "an unknown share" if comparison.change is None else f"{1 + comparison.change:.2f}"
    if METRICS[comparison.metric].worse_sign < 0:
        return f"runs at {ratio} of what was stored"
    return f"has {ratio} times the stored {METRICS[comparison.metric].title}"


def _meaning(comparison: MetricComparison) -> str:
    kind = None if comparison.reason is None else comparison.reason.kind
    match comparison.outcome:
        case Outcome.REGRESSED:
            return f": {NOT_YOUR_CODE}"
        case Outcome.IMPROVED:
            return ": the machine, packages or environment changed"
        case Outcome.INCONCLUSIVE if kind is ReasonKind.WORLD:
            return ", which was not seen when it was measured once more"
        case Outcome.INCONCLUSIVE if kind in (None, ReasonKind.WORLD_UNCLEAR):
            return ", which may be how sessions differ on this machine"
        case Outcome.INCONCLUSIVE:
            return f": {sentence(comparison.reason)}"
        case _:
            return ""


def _changed(comparison: MetricComparison) -> str:
    if comparison.reason is None or comparison.reason.kind not in (ReasonKind.WORLD, ReasonKind.WORLD_UNCLEAR):
        return ""
    changed = comparison.reason.differences
    label = "changed packages" if all(map(names_package, changed)) else "changed"
    return f"; {label}: {', '.join(changed)}" if changed else ""
