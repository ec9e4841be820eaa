"""The sentences of verdicts: outcomes, reasons, notes, comparisons, limits. `story` chooses among them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_fileperf.judge.evidence import KNOWN_TO
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.paired import NoiseFloor
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import (
    LimitCheck,
    MetricComparison,
    NoiseOf,
    Note,
    NoteKind,
    Outcome,
    Reason,
    ReasonKind,
    Verdict,
)
from pytest_fileperf.measure.codec import named
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.text import exact, plain, plain_line, quantity, queries_text, time_text
from pytest_fileperf.units import format_change, format_count, format_share


def noise_text(floor: NoiseFloor) -> str:
    if floor.smallest is None:
        return f"{floor.metric}: too little was measured to tell what could be seen"
    needs = (f"{format_share(slower)} needs {time_text(round(s))}" for slower, s in floor.seconds_for.items())
    seen = f"{format_share(floor.smallest)} slower shows in {time_text(round(floor.seconds))}"
    return f"{floor.metric}: {seen}; {', '.join(needs)}"


def could_show(comparison: MetricComparison) -> str:
    assert comparison.detectable is not None
    return f"{comparison.metric}: a worsening of {format_share(comparison.detectable)} could have been seen"


def limit_text(check: LimitCheck) -> str:
    """Returns `min_rps 800/s, measured 612/s`; with nine digits if rounding would make both look equal."""
    unit = METRICS[check.metric].unit
    limit = quantity(check.limit, unit)
    if check.value is None:
        return f"{check.name} {limit}, not measured"
    value = quantity(check.value, unit)
    if check.reason is not None and check.reason.kind is ReasonKind.CAPACITY_BOUND:
        return f"{check.name} {limit}, at least {value}"
    if value == limit and not check.holds:
        limit, value = exact(check.limit, unit), exact(check.value, unit)
    return f"{check.name} {limit}, measured {value}"


def limiting_text(result: Result) -> str:
    limit = result.measurement.limit
    unclear = limit.kind is LimitKind.UNCLEAR
    return f"not clear what limited it: {limit.evidence}" if unclear else f"limited by {limit}"


def limited_by(kind: LimitKind, which: str = "all") -> str:
    if kind is LimitKind.UNCLEAR:
        return f"not clear what limited {'any' if which == 'all' else which} of them"
    return f"{which} limited by {kind}"


def word_of(standing: Standing | Outcome) -> str:
    """Returns a word that makes sense without its column."""
    return "not gated" if standing is Standing.UNGATED else standing.value


def other_kinds(failures: Sequence[Failure]) -> str:
    """Returns `and 3 more of 2 other kinds`, about failures that are not shown."""
    count = sum(failure.count for failure in failures)
    return f"and {count:,} more of {format_count(len(failures), 'other kind')}"


COUNTING = "queries were counted, which costs a small endpoint with one query about 1 % of its CPU time"
"""Measured with SQLAlchemy on SQLite in memory: `examples/databases` has the figures."""

# --- Reasons of outcomes and limits

SATURATED = (
    "the load generator was saturated, so this is its own speed and not the server's: use fewer connections, or more"
    " generators"
)
_LONGER, _MORE = "give it a longer max_duration", "give it more time with --fileperf-budget"
_REMEDIES = {
    NoiseOf.BOOTS: "use more boots or a longer duration",
    NoiseOf.SESSIONS: "runs at other times differ by some 25 %, so more start-ups do not help:"
    " compare in turn, with a baseline whose code is found or with --fileperf-against",
}
_APART = "measure with the packages of then, by --fileperf-base-packages=stored, to see what they cost"
_AGAIN = "find what changed, or store a new baseline with --fileperf-update=all"
_UNKNOWN = {"queries": ": it counts those of SQLAlchemy and Django, in servers that fileperf starts"}
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
    ReasonKind.NO_CODE: "stored figures alone do not tell it, and the baseline's code was not measured again: {text}",
    ReasonKind.WORLD: "{metric} of the baseline's own code is {ratio:.2f} times what is stored: the machine, the"
    " packages or the environment changed, not your code{changed}",
    ReasonKind.WORLD_UNCLEAR: "{metric} of the baseline's own code is {ratio:.2f} times what is stored, no more"
    " than runs at different times may differ{changed}",
    ReasonKind.ENVIRONMENT: "the baseline's own code runs at {ratio:.2f} of what was stored ({metric}), more than"
    " sessions differ: packages, files that Git ignores, or the machine changed{changed}; {apart}",
    ReasonKind.ABSENT: "{text}{details}",
    ReasonKind.NO_APP: "{text}{details}",
    ReasonKind.INCOMPARABLE: "{text}{details}",
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
    ReasonKind.CAPACITY_BOUND: "no load broke a limit, so the {metric} is at least this",
    ReasonKind.FEW_EVENTS: "{metric} of only {count:,} events: it takes {needed:,} to tell it from the maximum",
    ReasonKind.COUNTS_VARY: "it may be more, as requests differ by chance: use a longer duration or more boots",
    ReasonKind.STATEMENT: "{often}{text}{at}",
    ReasonKind.PAIRS_NO_RATIO: "{metric} was 0 or not measured on {pair_side}, and a change from or to 0 has no ratio",
    ReasonKind.PAIRS_FEW: "it takes {needed} pairs of boots with answers on both sides, and there were {count}:"
    " {longer}",
    ReasonKind.PAIRS_FEW_REQUESTS: "{metric} needs {needed:,} requests a side, and there were {count:,}:"
    " {longer}, or gate a lower percentile",
    ReasonKind.PAIRS_CLUSTERED: "{metric} cannot be told of {count:,} requests a side, as {bunches} slow ones come"
    " together: {longer}, or gate a lower percentile",
    ReasonKind.PAIRS_CALM_WORSE: "shown by the requests that do not wait together with many others:"
    " worse by at least {share}",
    ReasonKind.PAIRS_STALLS: "the typical turn is not worse, the total over all turns is: it stalls now and then",
    ReasonKind.PAIRS_CALM_UNCLEAR: "not shown to be worse, but requests that do not wait together with many others"
    " may be, by {share}: {more_time}",
    ReasonKind.PAIRS_TOTAL_UNCLEAR: "the typical turn is not worse, but the total over all turns may be, by {share}:"
    " {more_time}",
    ReasonKind.PAIRS_TOTAL_UNSEEN: "the typical turn is not worse, but the total over all turns may be,"
    " by up to {share}: {more_time}",
    ReasonKind.PAIRS_NEARLY: "most likely worse by more than {share}, but not certain enough to fail the test:"
    " {more_time}",
    ReasonKind.PAIRS_NOISE: "may be worse by more than {share}, but the noise hides it: {more_time}",
    ReasonKind.PAIRS_PASS: "worse by more than {tolerance} over the whole run, but not from start-up to start-up:"
    " measure again with nothing else running",
    ReasonKind.PAIRS_UNSEEN: "only a worsening of {share} could have been seen in the time there was: {more_time}",
}


def sentence(reason: Reason | None) -> str:
    """Returns a sentence without a full stop; empty for None."""
    return "" if reason is None else _filled(reason, _SENTENCES.get(reason.kind, ""))


def brief_sentence(reason: Reason | None) -> str:
    """Returns the reason on one line, without details and remedies."""
    if reason is None:
        return ""
    return plain(_filled(reason, re.split(r": | \(|\{details|\{why", _SENTENCES.get(reason.kind, ""))[0]))


def _filled(reason: Reason, words: str) -> str:
    if reason.kind is ReasonKind.SINCE_BASELINE:
        parts = [
            f"{reason.busy}, which explains less than this" if reason.busy else "",
            f"since the baseline, {'; '.join(reason.packages)}" if reason.packages else "",
            f"the baseline of {reason.day} was stored because: {reason.text}" if reason.text else "",
        ]
        return "; ".join(filter(None, parts))
    # With a fifth more than computed, in steps of 5 s.
    longer = _MORE if reason.budgeted else _LONGER
    if reason.seconds and not reason.budgeted:
        longer = f"give it a max_duration of {math.ceil(1.2 * reason.seconds / 5) * 5} s or more"
    more_time = _more_time(reason)
    return words.format(
        **named(reason, "count", "needed", "total", "ratio", "busy", "text"),
        metric=METRICS[reason.metric].title if reason.metric else "",
        side=_SIDES.get(reason.side, reason.side),
        pair_side=_PAIR_SIDES.get(reason.side, ""),
        whose={"base": "the old code", "now": "the code here"}.get(reason.side, ""),
        often=_often(reason.times),
        at=f" ({reason.place})" if reason.place else "",
        share=format_share(reason.share),
        tolerance=format_share(reason.tolerance),
        bunches=f"about {reason.together:.2g}" if reason.together >= 2 else "some",
        differences="; ".join(reason.differences),
        details="".join(f": {one}" for one in reason.differences),
        changed="".join(f"; {one}" for one in (*reason.differences, *reason.packages)),
        because=f", and its code was not measured again: {reason.text}" if reason.text else "",
        apart=_APART if reason.packages else _AGAIN,
        why=f": processes of the server changed ({reason.text})" if reason.text else _UNKNOWN.get(reason.metric, ""),
        longer=longer,
        remedy=_REMEDIES.get(reason.noise_of, more_time),
        more_time=more_time,
    )


def _often(times: Sequence[float]) -> str:
    """Returns `10 times a request, 1 before: `, or the part that is known."""
    if not times:
        return ""
    *before, now = (quantity(value, Unit.COUNT) for value in times)
    return f"{now} time{'s' * (now != '1')} a request{''.join(f', {value} before' for value in before)}: "


def _more_time(reason: Reason) -> str:
    """Returns what helps to decide a comparison that ran out of time."""
    if reason.jump is None:
        return f"{_MORE if reason.budgeted else _LONGER}, or a quieter machine"
    before, after = (f"{time_text(seconds)} at p{percentile:g}" for percentile, seconds in reason.jump)
    return (
        f"latency jumps there, from {before} to {after}, and chance decides on which side it is:"
        " gate a percentile beside it"
    )


# --- Notes: the served app, the load, and the measured code of a baseline

_NOTES: Mapping[NoteKind, str] = {
    NoteKind.SET_BY_TEST: "served with what the test has set on the app: {several}",
    NoteKind.NOT_AS_MADE: "not as in the test's app: {several}",
    NoteKind.IMPORTS_ANEW: "each start-up imports the app anew: {names}",
    NoteKind.ELSEWHERE: "the same on both sides, as it lies elsewhere: {names}",
    NoteKind.CHANGED_MEANWHILE: "{names} changed while it was measured",
    NoteKind.NEVER_CONFIRMED: "only stored figures compare, as fileperf_confirm=never says",
    NoteKind.FILES_CHANGED: "only stored figures compare: {names}",
    NoteKind.FIGURES_ONLY: "only stored figures compare: {names}",
    NoteKind.SAME_CODE: "the code here is that of {names}",
    NoteKind.IN_TURN: "measured in turn with the code of {names}",
    NoteKind.PACKAGES_HERE: "{names}: it runs with the packages installed here",
    NoteKind.PACKAGES: "changed packages: {names}",
    NoteKind.ROUGHLY_KNOWN: f"the stored level is known to {{share}} % only, not to {100 * KNOWN_TO:g} %:"
    " the machine is noisy",
    NoteKind.NO_CODE_STORED: "only figures were stored, as its code cannot be found again: {names}",
    NoteKind.TOLD: "{names}",
}


def note_text(note: Note) -> str:
    """Returns a sentence without a full stop."""
    return _NOTES[note.kind].format(
        names=", ".join(note.texts), several="; ".join(note.texts), share=f"{100 * note.share:.1f}"
    )


def note_of(text: str) -> Note:
    """Returns the note with this text: older records only have the text."""
    for kind, words in _NOTES.items():
        before, _, after = re.sub("{.*}", "{}", words).partition("{}")
        if text.startswith(before) and text.endswith(after):
            held = text.removeprefix(before).removesuffix(after)
            if kind is NoteKind.ROUGHLY_KNOWN:
                return Note(kind=kind, share=float(held) / 100)
            if kind is not NoteKind.FILES_CHANGED or " changed since the baseline was stored, " in held:
                return Note(kind=kind, texts=(held,) if "{" in words else ())
    raise AssertionError("TOLD has any text")


# --- Comparisons in words: both versions, the change and its interval, and the environment
#
# A change of the code and a change of the environment never share a line:
#
#     rps  5,010/s → 5,001/s  −0.2 % [−1.1, +0.7]  tolerance 3 %  PASS
#     the world: your baseline's own code runs at 0.83 of what was stored (rps −16.8 % from 6,021/s): …

NO_BASELINE = (ReasonKind.NO_BASELINE, ReasonKind.NO_BASELINE_SATURATED)


def base_name(verdict: Verdict) -> str:
    """Returns the name of the compared side: another version, or the stored baseline."""
    return "base" if verdict.against and not verdict.code_notes else "baseline"


def compared(result: Result) -> tuple[MetricComparison, ...]:
    return tuple(
        item
        for item in result.verdict.comparisons
        if item.base is not None and item.now is not None and not is_same_code(item)
    )


def is_same_code(comparison: MetricComparison) -> bool:
    """Returns whether the code is the same, so that the environment causes any difference to the stored figures."""
    return comparison.reason is not None and comparison.reason.kind is ReasonKind.SAME_CODE


def both_sides(comparison: MetricComparison) -> tuple[str, str]:
    """Returns `2,190/s` and `2,050/s`, empty for an unknown side."""
    unit = METRICS[comparison.metric].unit
    base, now = ("" if side is None else quantity(side, unit) for side in (comparison.base, comparison.now))
    return base, now


def sides_text(comparison: MetricComparison) -> str:
    """Returns `2,190/s → 2,050/s`, or the known side. For the same code only the new one: the environment differs."""
    base, now = both_sides(comparison)
    return now if now and is_same_code(comparison) else " → ".join(filter(None, (base, now)))


def change_text(comparison: MetricComparison) -> str:
    """Returns `−6.4 %`, or `?` if unknown."""
    return "?" if comparison.change is None else format_change(comparison.change)


def typical_text(comparison: MetricComparison) -> str:
    """Returns the change of typical moments if the figures show another one; else empty.

    Also empty if typical moments got clearly better and the figures did not: then stalls between them got worse.
    """
    metric = METRICS[comparison.metric]
    if comparison.typical is None or comparison.change is None or comparison.outcome is Outcome.WATCHED:
        return ""
    if metric.worse_sign * comparison.typical < -comparison.tolerance and metric.worse_sign * comparison.change >= 0:
        return ""
    change = format_change(comparison.typical)
    if metric.percentile is not None:
        return f"{comparison.metric}: the verdict compares start-ups with each other, by which the change is {change}"
    return f"{comparison.metric}: in typical moments, without stalls, the change is {change}. The verdict uses both"


def interval_text(comparison: MetricComparison) -> str:
    if comparison.low is None or comparison.high is None:
        return ""
    if comparison.low == comparison.high and METRICS[comparison.metric].is_counted:
        return ""
    return f"[{', '.join(format_change(bound, unit=False) for bound in (comparison.low, comparison.high))}]"


def change_and_interval(comparison: MetricComparison) -> str:
    """Returns `−6.4 % [−8.1, −4.7]`, or the known part."""
    return f"{change_text(comparison)} {interval_text(comparison)}".rstrip()


def tolerance_text(comparison: MetricComparison) -> str:
    """Returns `5 %`, or `2.00 ms (20 %)` if a floor passes; empty for watched metrics."""
    if comparison.outcome is Outcome.WATCHED:
        return ""
    share, unit = format_share(comparison.tolerance), METRICS[comparison.metric].unit
    return f"{quantity(comparison.floor, unit)} ({share})" if comparison.floor else share


def count_text(comparison: MetricComparison) -> str:
    """Returns `12 queries a request, 9 more than before`; empty for other metrics, or an unknown side."""
    base, now = comparison.base, comparison.now
    if not METRICS[comparison.metric].is_counted or base is None or now is None:
        return ""
    if (more := quantity(abs(now - base), Unit.COUNT)) == quantity(0, Unit.COUNT):
        return f"{queries_text(now)}, as many as before"
    return f"{queries_text(now)}, {more} {'more' if now > base else 'fewer'} than before"


def figures_text(comparison: MetricComparison, *, sides: bool = True) -> str:
    """Returns `rps −4.0 % [−9.0, +1.0], 5,210/s → 5,001/s, tolerance 3 %`, or that without both sides."""
    if comparison.change is None and (counted := count_text(comparison)):
        return counted
    change = f"{comparison.metric} {change_and_interval(comparison)}"
    both = f"{sides_text(comparison)}, " * sides
    return f"{change}, {both}tolerance {tolerance_text(comparison)}"


def notes_text(notes: Iterable[Note]) -> str:
    return "; ".join(map(note_text, notes))


def untold_code(verdict: Verdict) -> tuple[Note, ...]:
    """Returns the notes about a stored baseline's code, unless reasons already say why it did not run."""
    told = {comparison.reason.text for comparison in verdict.comparisons if comparison.reason is not None}
    return () if any(note.why_no_code in told - {""} for note in verdict.code_notes) else verdict.code_notes


def world_outcome(verdict: Verdict) -> Outcome | None:
    """Returns how unchanged code fares in this environment; None if unknown."""
    found = {comparison.outcome for comparison in verdict.world}
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASS)
    return next((outcome for outcome in order if outcome in found), None)


def is_world_notable(verdict: Verdict) -> bool:
    """Returns whether to show the environment unasked: it is slower, or may be and packages have changed."""
    outcome = world_outcome(verdict)
    changed = any(comparison.outcome is outcome and _changed(comparison) for comparison in verdict.world)
    return outcome is Outcome.REGRESSED or (outcome is Outcome.INCONCLUSIVE and changed)


def world_text(verdict: Verdict) -> str:
    """Returns a sentence on how the baseline's own code runs now; empty if unknown."""
    outcome = world_outcome(verdict)
    if outcome is None:
        return ""
    lead = next(comparison for comparison in verdict.world if comparison.outcome is outcome)
    metric = METRICS[lead.metric]
    ratio = "an unknown share" if lead.change is None else f"{1 + lead.change:.2f}"
    is_rate = metric.worse_sign < 0
    runs = f"runs at {ratio} of what was stored" if is_rate else f"has {ratio} times the stored {metric.title}"
    # Without the present figure, which the test's row has.
    figures = (f"{item.metric} {change_text(item)} from {both_sides(item)[0] or '?'}" for item in verdict.world)
    return plain(f"your baseline's own code {runs} ({', '.join(figures)}){_meaning(lead)}{_changed(lead)}")


def _meaning(comparison: MetricComparison) -> str:
    outcome, reason = comparison.outcome, comparison.reason
    if outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
        return ": the machine, packages or environment changed" + ", not your code" * (outcome is Outcome.REGRESSED)
    if outcome is not Outcome.INCONCLUSIVE:
        return ""
    if reason is None or reason.kind is ReasonKind.WORLD_UNCLEAR:
        return ", no more than runs at different times may differ"
    return f": {sentence(reason)}"


def _changed(comparison: MetricComparison) -> str:
    if comparison.reason is None or comparison.reason.kind not in (ReasonKind.WORLD, ReasonKind.WORLD_UNCLEAR):
        return ""
    others, packages = comparison.reason.differences, comparison.reason.packages
    label = "changed" if others else "changed packages"
    return f"; {label}: {', '.join((*others, *packages))}" if others or packages else ""


# --- Tests that failed for another reason than a figure, in words

_WHERE = {"setup": "before it ran", "teardown": "after it ran"}
"""pytest calls a fixture's part before the test its setup, but a load test has a setup of its own."""


def failed_count(record: SessionRecord) -> str:
    """Returns `2 tests failed for other reasons`; empty for none."""
    count = len({test.nodeid for test in record.failed})
    why = "" if not record.results else " for another reason" if count == 1 else " for other reasons"
    return f"{format_count(count, 'test')} failed{why}" if count else ""


def where_failed(test: FailedTest) -> str:
    return f"failed {_WHERE.get(test.phase, '')}".rstrip()


def first_line(test: FailedTest) -> str:
    """Returns the first line of its message. If that is a place in the code, the error after it is added."""
    lines = test.message.strip().splitlines()
    if not lines:
        return ""
    error = next((line for line in lines[1:] if re.match(r"  \S", line)), "") if lines[0].endswith(":") else ""
    return plain(f"{lines[0]} {error.strip()}".rstrip())


def failed_lines(failed: Sequence[FailedTest]) -> list[str]:
    """Returns lines for a terminal on which pytest did not print them."""
    lines = []
    for test in failed:
        place = f" ({plain(test.module)}:{test.line})" if test.line is not None else ""
        lines.append(f"{plain(test.name)}{place} {where_failed(test)}")
        lines += [f"  {plain_line(line)}".rstrip() for line in test.message.strip().splitlines()]
    return lines
