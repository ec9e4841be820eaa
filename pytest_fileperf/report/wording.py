"""The sentence of each reason: why an outcome is what it is, and what to do about it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pytest_fileperf.judge.record import FailedTest, Result
from pytest_fileperf.judge.verdict import MetricComparison, NoiseOf, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.capacity import Capacity, CapacityEnd
from pytest_fileperf.measure.codec import named
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import ClientUse, Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.usage import GeneratorUse
from pytest_fileperf.report.text import plain, quantity
from pytest_fileperf.units import format_change, format_count, format_duration, format_rate, format_share

__all__ = (
    "FIGURES_ONLY",
    "NOT_YOUR_CODE",
    "NO_BASELINE",
    "SATURATED",
    "base_name",
    "breach_texts",
    "capacity_json",
    "capacity_text",
    "change_text",
    "code_text",
    "compared",
    "failed_count",
    "failed_lines",
    "first_line",
    "generator_figures",
    "generator_rows",
    "generator_texts",
    "interval_text",
    "is_same_code",
    "is_world_notable",
    "names_package",
    "not_stored_text",
    "reconnect_text",
    "saturated_share",
    "sentence",
    "sides_text",
    "typical_text",
    "where_failed",
    "world_outcome",
    "world_text",
)


# --- What servers did to connections, in words

_EACH, _FEW = 0.95, 0.01
"""Shares of answers: a server that closes from time to time, as after 1,000 requests, is usual."""


def breach_texts(run: Measurement) -> list[str]:
    """Returns a sentence for each kind, with how often; nothing for a server that keeps to what it says."""
    texts = []
    if run.cut_off:
        texts.append(f"cut off by the server: {run.cut_off:,} (it answered before it had taken the whole request)")
    if run.out_of_step:
        given_up = format_count(run.out_of_step, "connection")
        texts.append(f"the server sent more than the answer: {given_up} given up and opened anew")
    if run.closed_unsaid:
        share = run.closed_unsaid / max(1, run.requests + run.errors)
        texts.append(
            f"the server closed {format_count(run.closed_unsaid, 'connection')} without announcing it, "
            f"after {format_share(min(1.0, share))} of the answers"
        )
    if reconnects := reconnect_text(run):
        texts.append(reconnects)
    return texts


def reconnect_text(run: Measurement) -> str:
    """Returns how often the server closed a connection that was then opened anew; empty if that was seldom."""
    share = run.closed_said / max(1, run.http_requests)
    if share < _FEW:
        return ""
    if share < _EACH:
        closed = format_count(run.closed_said, "connection")
        return f"the server closed {closed}, after {format_share(share)} of the answers: new ones were opened"
    opened, requests = format_count(run.opened, "connection"), format_count(run.http_requests, "request")
    return f"the server closed the connection after each answer: {opened} were opened for {requests}"


# --- The capacity of a result in words and as JSON values


def capacity_text(result: Result) -> str:
    """Returns the capacity in one line: its interval, the limits, and what sets it; empty where none was sought."""
    found = result.capacity
    if found is None or found.ended is CapacityEnd.SMOKE:
        return ""
    limits = ", ".join(
        f"{name} {quantity(limit, METRICS[name.partition('_')[2]].unit)}"
        for name, limit in found.limits.items()
        if limit > 0
    )
    if found.ended is CapacityEnd.NO_RATE:
        return f"capacity: no rate that was tried holds {limits}; the lowest was {_rate(found.high)}"
    said = [f"capacity {_rate_with_interval(found)} with {limits}"]
    if found.ended is CapacityEnd.GENERATOR:
        said.append("the load generator could not send faster, so the server's own capacity is not known")
    elif not found.broken:
        said.append("no load broke a limit in the time there was: give it a longer max_duration")
    else:
        said.append(f"{found.broken} breaks first")
    if found.closed_rps:
        said.append(f"closed loop {_rate(found.closed_rps)}")
    if found.ended is CapacityEnd.FOUND and found.broken:
        unclear = found.limit.kind is LimitKind.UNCLEAR
        evidence = f": {found.limit.evidence}" if found.limit.evidence else ""
        said.append(f"not clear what limits it beyond{evidence}" if unclear else f"limited beyond by {found.limit}")
    return "; ".join(said)


def _rate_with_interval(found: Capacity) -> str:
    if math.isinf(found.high):
        return f"at least {_rate(found.rate)}"
    return f"{_rate(found.rate)} [{format_rate(found.low)}, {format_rate(found.high)}]"


def _rate(rate: float) -> str:
    return quantity(rate, Unit.PER_SECOND)


def capacity_json(found: Capacity | None) -> dict[str, object] | None:
    """Returns the capacity as JSON values; None where none was sought. What is infinite or not known is null."""
    if found is None:
        return None
    columns = ("rate", "boot", "seconds", "requests", "failed", "beyond", "holds", "by_generator", "p50", "p99")
    return {
        **named(found, "rate", "low", "high", "confidence", "limits", "broken", "closed_rps", "ended"),
        "limit": named(found.limit, "kind", "evidence"),
        "tried": {name: [getattr(load, name) for load in found.tried] for name in columns},
    }


# --- reasons

SATURATED = (
    "the load generator was saturated, so this is its own speed and not the server's: use fewer connections, or more"
    " generators"
)
_LONGER = "give it a longer max_duration"
_IN_TURN = (
    "this machine differs from session to session, so more boots do not help:"
    " compare in turn, with a baseline whose code is found or with --fileperf-against"
)
_APART = "measure with the packages of then, by --fileperf-base-packages=stored, to see what they cost"
_AGAIN = "find what changed, or store a new baseline with --fileperf-update=all"
_SIDES = {"base": "the baseline", "now": "this run"}
_PAIR_SIDES = {"base": "the base", "now": "this side"}
_SENTENCES: Mapping[ReasonKind, str] = {
    ReasonKind.NO_BASELINE: "there is no baseline: store one with --fileperf-update",
    ReasonKind.NO_BASELINE_SATURATED: f"there is no baseline, and this run makes none: {SATURATED}",
    ReasonKind.SATURATED: SATURATED,
    ReasonKind.LOST: "a part of the load is missing, as {text}: measure again",
    ReasonKind.LEFT_WORK: "{whose} still used {share} of a core after its last answer, so it cannot sustain this",
    ReasonKind.OTHER_MACHINE: "the baseline is of another machine ({differences}){because}:"
    " store one of this machine with --fileperf-update",
    ReasonKind.OTHER_WORK: "the baseline is of something else ({differences}):"
    " store a new baseline with --fileperf-update",
    ReasonKind.MEMORY_COURSE: "the baseline does not say after how many requests it had this memory:"
    " store a new one with --fileperf-update=all",
    ReasonKind.OTHER_ROWS: "the rows of the feed are others than those of the baseline: give the same rows each time,"
    " or let setup make them; for these rows, store a new baseline with --fileperf-update",
    ReasonKind.OTHER_ANSWERS: "better, but its answers are other ones than before: check them",
    ReasonKind.SAME_CODE: "the code is that of {side}",
    ReasonKind.SAME_FILES: "both sides ran {differences}, which Git does not have, so a change of it cannot be seen:"
    " commit it, or compare with a directory that has the old one (--fileperf-against=DIR)",
    ReasonKind.NO_CODE: "stored figures alone do not tell it on this machine, and the baseline's code was not measured"
    " again: {text}",
    ReasonKind.WORLD: "{metric} of the baseline's own code is {ratio:.2f} times what is stored: the machine, the"
    " packages or the environment changed, not your code{changed}",
    ReasonKind.WORLD_UNCLEAR: "{metric} of the baseline's own code is {ratio:.2f} times what is stored, which may be"
    " how sessions differ on this machine{changed}",
    ReasonKind.ENVIRONMENT: "the baseline's own code runs at {ratio:.2f} of what was stored ({metric}), more than"
    " sessions differ: packages, files that Git ignores, or the machine changed{changed}; {apart}",
    ReasonKind.ABSENT: "{text}",
    ReasonKind.BASE_FAILED: "{count:,} of {total:,} requests failed on {side}: its good ones alone are no measure",
    ReasonKind.BUSY: "worse, but {busy}, which may be why: measure again with nothing else running",
    ReasonKind.BUSY_FIGURES: "{busy} when the baseline was stored, so as fast as then shows nothing: store a new"
    " baseline with nothing else running",
    ReasonKind.IMPROVED: "better than its baseline: store the new level with --fileperf-update=all",
    ReasonKind.NOISE: "may be worse by more than its tolerance of {share}, but the noise hides it: {remedy}",
    ReasonKind.UNSEEN: "only a worsening of {share} could have been seen: {remedy}, or use a tolerance of {tolerance}",
    ReasonKind.NOTHING_TOLD: "nothing can be told, as even a worsening of {share} could not have been seen: {remedy}",
    ReasonKind.FEW_REQUESTS: "{metric} needs {needed:,} requests and {side} has {count:,}: use a longer duration"
    " or gate a lower percentile",
    ReasonKind.NO_REQUEST: "{side} has no successful request",
    ReasonKind.WAS_ZERO: "{metric} was 0 in {side}, and a change from or to 0 has no ratio: set a limit instead",
    ReasonKind.NOT_MEASURED: "{metric} was not measured in {side}{why}",
    ReasonKind.FEW_FOR_PERCENTILE: "{metric} of only {count:,} requests: it takes {needed:,} to tell it from the"
    " maximum",
    ReasonKind.FEW_EVENTS: "{metric} of only {count:,} events: it takes {needed:,} to tell it from the maximum",
    ReasonKind.PAIRS_NO_RATIO: "{metric} was 0 or not measured on {pair_side}, and a change from or to 0 has no ratio",
    ReasonKind.PAIRS_FEW: "it takes {needed} pairs of boots with answers on both sides, and there were {count}:"
    f" {_LONGER}",
    ReasonKind.PAIRS_FEW_REQUESTS: "{metric} needs {needed:,} requests a side, and there were {count:,}:"
    f" {_LONGER}, or gate a lower percentile",
    ReasonKind.PAIRS_CLUSTERED: "{metric} cannot be told of {count:,} requests a side, as {bunches} slow ones come"
    f" together: {_LONGER}, or gate a lower percentile",
    ReasonKind.PAIRS_CALM_WORSE: "shown by the requests that do not wait together with many others:"
    " worse by at least {share}",
    ReasonKind.PAIRS_STALLS: "the typical turn is not worse, the total over all turns is: it stalls now and then",
    ReasonKind.PAIRS_CALM_UNCLEAR: "not shown to be worse, but requests that do not wait together with many others"
    " may be, by {share}: {more_time}",
    ReasonKind.PAIRS_TOTAL_UNCLEAR: "the typical turn is not worse, but the total over all turns may be, by {share}:"
    " {more_time}",
    ReasonKind.PAIRS_TOTAL_UNSEEN: "the typical turn is not worse, but the total over all turns may be,"
    " by up to {share}: {more_time}",
    ReasonKind.PAIRS_NEARLY: "most likely worse by more than {share}, but a failure takes more certainty than the"
    " interval shows, so that it is no false alarm: {more_time}",
    ReasonKind.PAIRS_NOISE: "may be worse by more than {share}, but the noise hides it: {more_time}",
    ReasonKind.PAIRS_UNSEEN: "only a worsening of {share} could have been seen in the time there was: {more_time}",
}


def sentence(reason: Reason | None) -> str:
    """Returns the reason in words, without a full stop; empty for None."""
    if reason is None:
        return ""
    if reason.kind is ReasonKind.SINCE_BASELINE:
        return _since_baseline(reason)
    return _SENTENCES[reason.kind].format(
        metric=METRICS[reason.metric].title if reason.metric else "",
        side=_SIDES.get(reason.side, reason.side),
        pair_side=_PAIR_SIDES.get(reason.side, ""),
        whose={"base": "the old code", "now": "the code here"}.get(reason.side, ""),
        count=reason.count,
        needed=reason.needed,
        total=reason.total,
        share=format_share(reason.share),
        tolerance=format_share(reason.tolerance),
        bunches=f"about {reason.together:.2g}" if reason.together >= 2 else "some",
        ratio=reason.ratio,
        differences="; ".join(reason.differences),
        changed=f"; {'; '.join(reason.differences)}" if reason.differences else "",
        because=f", and its code was not measured again: {reason.text}" if reason.text else "",
        apart=_APART if any(map(names_package, reason.differences)) else _AGAIN,
        busy=reason.busy,
        text=reason.text,
        why=f": processes of the server changed ({reason.text})" if reason.text else "",
        remedy=_remedy(reason),
        more_time=_more_time(reason),
    )


def names_package(difference: str) -> bool:
    """Returns whether a difference of two environments is of a package, and not of Python or the machine."""
    return not difference.startswith(("CPU limit ", "Python ", "python was "))


def _since_baseline(reason: Reason) -> str:
    parts = [
        f"{reason.busy}, which explains less than this" if reason.busy else "",
        f"since the baseline, {'; '.join(reason.differences)}" if reason.differences else "",
        f"the baseline of {reason.day} was stored because: {reason.text}" if reason.text else "",
    ]
    return "; ".join(filter(None, parts))


def _remedy(reason: Reason) -> str:
    """Returns what helps against the noise that hides an answer."""
    if reason.noise_of is NoiseOf.SESSIONS:
        return _IN_TURN
    return _more_time(reason) if reason.noise_of is NoiseOf.TURNS else "use more boots or a longer duration"


def _more_time(reason: Reason) -> str:
    """Returns what helps to decide a comparison in turn that was not decided in the time there was."""
    if reason.jump is None:
        return f"{_LONGER}, or a quieter machine"
    before, after = (f"{format_duration(seconds * 1e9)} at p{percentile:g}" for percentile, seconds in reason.jump)
    return (
        f"latency jumps there, from {before} to {after}, and chance decides on which side it is:"
        " gate a percentile beside it"
    )


# --- Texts about comparisons: both sides, the change and its interval, and what the world did to unchanged code
#
# A change of the code and a change of the world are never said in one breath:
#
#     rps  5,010/s → 5,001/s  −0.2 % [−1.1, +0.7]  tolerance 3 %  PASS
#     the world: your baseline's own code runs at 0.83 of what was stored (rps −16.8 % from 6,021/s): …

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


# --- Tests that failed for another reason than a figure, in words

_WHERE = {"setup": "before it ran", "teardown": "after it ran"}
"""In pytest's words a fixture's part before the test is its setup; a load test has a setup of its own."""


def failed_count(failed: Sequence[FailedTest], *, measured: bool) -> str:
    """Returns how many tests failed: `2 tests failed for other reasons`; empty for none."""
    count = len({test.nodeid for test in failed})
    if not count:
        return ""
    said = f"{format_count(count, 'test')} failed"
    if not measured:
        return said
    return f"{said} for another reason" if count == 1 else f"{said} for other reasons"


def where_failed(test: FailedTest) -> str:
    """Returns when it failed: `failed before it ran`."""
    return f"failed {_WHERE.get(test.phase, '')}".rstrip()


def first_line(test: FailedTest) -> str:
    """Returns the first line of what it said; with the error where that follows it, after the place in the code."""
    lines = test.message.strip().splitlines()
    if not lines:
        return ""
    error = next((line for line in lines[1:] if re.match(r"  \S", line)), "") if lines[0].endswith(":") else ""
    return plain(f"{lines[0]} {error.strip()}".rstrip())


def failed_lines(failed: Sequence[FailedTest]) -> list[str]:
    """Returns the lines for a terminal on which pytest did not tell them."""
    lines = []
    for test in failed:
        place = f" ({plain(test.module)}:{test.line})" if test.line is not None else ""
        lines.append(f"{plain(test.name)}{place} {where_failed(test)}")
        lines += [f"  {_indented(line)}".rstrip() for line in test.message.strip().splitlines()]
    return lines


def _indented(line: str) -> str:
    """Returns the line without control characters; its spaces at the beginning stay."""
    return " " * (len(line) - len(line.lstrip(" "))) + plain(line)


# --- Texts about the load generators: what one did, or each of several


def saturated_share(use: ClientUse) -> str:
    """Returns how busy the generator was that set the pace, and what that means."""
    if len(use.generators) < 2:
        return f"{use.cpu_share * 100:.0f} % of its core; these figures are the generator's own"
    busiest = max(use.generators, key=lambda own: own.cpu_share)
    who = f"generator {busiest.number} of {len(use.generators)}"
    return f"{who} at {busiest.cpu_share * 100:.0f} % of its core; these figures are the generators' own"


def generator_figures(use: ClientUse) -> list[str]:
    """Returns how requests were sent, and the CPU that it took, of all generators together."""
    of = f"a core, all {len(use.generators)} generators together" if len(use.generators) > 1 else "its core"
    texts = [f"engine {use.engine}", f"CPU {use.cpu_share * 100:.0f} % of {of}"]
    if use.cpu_per_request is not None:
        texts.append(f"{quantity(use.cpu_per_request, Unit.SECONDS)}/request")
    return texts


def generator_texts(use: GeneratorUse) -> tuple[str, ...]:
    """Returns what a generator did: core or worker, connections, rate, failures, CPU, clock, or why it is missing."""
    return (
        use.worker or (f"core {', '.join(map(str, use.cores))}" if use.cores else "any core"),
        format_count(use.connections, "connection"),
        quantity(use.rps, Unit.PER_SECOND),
        format_count(use.errors, "error"),
        f"CPU {use.cpu_share * 100:.0f} %",
        *_distance_texts(use),
        *([f"lost: it{use.lost}".replace("it's process", "its process")] if use.lost else []),
    )


def _distance_texts(use: GeneratorUse) -> list[str]:
    """Returns how far away a generator on a worker of a cluster is, and how well its clock is known."""
    if not use.distance:
        return []
    clock = f"clock known to {quantity(use.clock_error, Unit.SECONDS)}" if use.clock_error else "same clock"
    return [f"{quantity(use.distance, Unit.SECONDS)} away", clock]


def generator_rows(run: Measurement) -> list[tuple[str, list[str]]]:
    """Returns a row for each generator, where there are several or they are elsewhere."""
    return [(f"generator {use.number}", list(generator_texts(use))) for use in run.client.generators]
