"""Sentences about verdicts: outcomes, reasons, notes, comparisons and limits. `story` chooses among them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.paired import NoiseFloor
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.rules import RULES
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
from pytest_fileperf.units import format_change, format_count, format_names, format_share


def noise_text(floor: NoiseFloor) -> str:
    if floor.smallest is None:
        return f"{floor.metric}: too little was measured to know how small a change would show"
    needs = (f"{format_share(slower)} needs {time_text(round(s))}" for slower, s in floor.seconds_for.items())
    seen = f"a change of {format_share(floor.smallest)} shows in {time_text(round(floor.seconds))}"
    return f"{floor.metric}: {seen}; {', '.join(needs)}"


def would_show(comparisons: Iterable[MetricComparison]) -> str:
    """Returns a sentence on the smallest change that this measurement can detect. Empty if it is unknown."""
    shares = {item.metric: format_share(item.detectable) for item in comparisons if item.detectable is not None}
    if len(set(shares.values())) == 1:
        return f"A change of {next(iter(shares.values()))} or more would have shown"
    told = format_names([f"{share} in {metric}" for metric, share in shares.items()])
    return f"Changes of {told} or more would have shown" if shares else ""


def limit_text(check: LimitCheck) -> str:
    """Returns a text such as `min_rps 800/s, measured 612/s`."""
    unit = METRICS[check.metric].unit
    limit = quantity(check.limit, unit)
    if check.value is None:
        return f"{check.name} {limit}, not measured"
    value = quantity(check.value, unit)
    if check.reason is not None and check.reason.kind is ReasonKind.CAPACITY_BOUND:
        return f"{check.name} {limit}, at least {value}"
    # A broken limit must look different from the measured value.
    if value == limit and not check.holds:
        limit, value = exact(check.limit, unit), exact(check.value, unit)
    return f"{check.name} {limit}, measured {value}"


def limiting_text(result: Result) -> str:
    limit = result.measurement.limit
    is_unclear = limit.kind is LimitKind.UNCLEAR
    return f"unclear what limited the load: {limit.evidence}" if is_unclear else f"limited by {limit}"


def limited_by(kind: LimitKind, which: str = "all") -> str:
    """Returns what limited several tests. `which` says how many: `all`, or for example `2 of 3`."""
    return f"unclear what limited {which} tests" if kind is LimitKind.UNCLEAR else f"{which} limited by {kind}"


def lost_text(result: Result) -> str:
    return f"part of the load is missing: {plain(result.lost)}"


def word_of(standing: Standing | Outcome) -> str:
    """Returns a word for sentences. UNGATED's own value, `-`, makes sense only in a table."""
    return "not gated" if standing is Standing.UNGATED else standing.value


DONE = {
    Standing.REGRESSED: "got worse",
    Standing.LIMIT: "broke a limit",
    Standing.FAILED: "failed",
    Standing.INCONCLUSIVE: "stayed undecided",
    Standing.SATURATED: "needed a faster load generator",
    Standing.NEW: "had no baseline",
    Standing.ACCEPTED: "got worse and became the new baseline",
    Standing.IMPROVED: "got better",
    Standing.PASS: "passed",
    Standing.UNGATED: "passed without a gate",
}
"""The end of a sentence about tests, by their outcome."""


def other_kinds(failures: Sequence[Failure]) -> str:
    return f"and {sum(failure.count for failure in failures):,} more of {format_count(len(failures), 'other kind')}"


NO_REQUEST = "no request was made"
COUNTING = "queries were counted, which costs a small endpoint with one query about 1 % of its CPU time"
"""The figure is from `examples/databases`, measured with SQLAlchemy on SQLite in memory."""

# --- Reasons of outcomes and limits: what happened, and what to do about it

SATURATED = "the load generator was saturated, so the figures show its speed and not the server's"
_UNSATURATED = "Use fewer connections or more generators"
_LONGER, _MORE = "Try a longer max_duration", "Give it more time with --fileperf-budget"
_LIGHTER = "Try fewer connections, a lower rate or a larger tolerance"
_TOO_LONG_S = 300.0
"""Nobody wants to wait longer for one test. Texts then advise a lighter load or a larger tolerance instead."""
_REMEDIES = {
    NoiseOf.BOOTS: "Use a longer duration",
    NoiseOf.SESSIONS: "More start-ups do not help, because runs at different times differ by some 25 %."
    " Compare with a baseline whose code can be found, or with --fileperf-against",
}
_APART = "To measure the old code with its old packages, add --fileperf-base-packages=stored"
_AGAIN = "Find what changed, or store a new baseline with --fileperf-update=all"
_UNKNOWN = {"queries": ": only queries of SQLAlchemy and Django are counted, in servers that fileperf starts"}
_SIDES = {"base": "the baseline", "now": "this run"}
_PAIR_SIDES = {"base": "the old code", "now": "the new code"}
_SENTENCES: Mapping[ReasonKind, tuple[str, str]] = {
    ReasonKind.NO_BASELINE: ("no baseline yet", "Store one with --fileperf-update=new"),
    ReasonKind.NO_BASELINE_SATURATED: (f"no baseline yet, and this run cannot become one: {SATURATED}", _UNSATURATED),
    ReasonKind.SATURATED: (SATURATED, _UNSATURATED),
    ReasonKind.LOST: ("part of the load is missing: {text}", "Measure again"),
    ReasonKind.LEFT_WORK: ("{whose} used {share} of a core after its last answer, so it cannot sustain this load", ""),
    ReasonKind.OTHER_MACHINE: (
        "the baseline comes from another machine ({differences}){because}",
        "Store a baseline for this machine with --fileperf-update",
    ),
    ReasonKind.OTHER_WORK: (
        "the baseline was measured in another way ({differences})",
        "Store a new baseline with --fileperf-update",
    ),
    ReasonKind.MEMORY_COURSE: (
        "the baseline does not say after how many requests its memory was measured",
        "Store a new baseline with --fileperf-update=all",
    ),
    ReasonKind.OTHER_ROWS: (
        "the feed's rows differ from the baseline's rows",
        "Give the same rows each time, or let setup make them."
        " To keep these rows, store a new baseline with --fileperf-update",
    ),
    ReasonKind.OTHER_ANSWERS: ("better, but the answers differ from before", "Check whether they are right"),
    ReasonKind.SAME_CODE: ("the code is the same as {side}", ""),
    ReasonKind.SAME_FILES: (
        "both versions ran the same files, because Git does not have them: {differences}",
        "Commit them, or compare with a directory that has the old ones (--fileperf-against=DIR)",
    ),
    ReasonKind.NO_CODE: (
        "stored figures alone cannot decide, and the baseline's code was not measured again: {text}",
        "",
    ),
    ReasonKind.WORLD: (
        "the baseline's own code now has {ratio:.2f} times the stored {metric}."
        " The machine, the packages or the settings changed, not your code{changed}",
        "",
    ),
    ReasonKind.WORLD_UNCLEAR: (
        "the baseline's own code now has {ratio:.2f} times the stored {metric}."
        " Runs at different times may differ as much{changed}",
        "",
    ),
    ReasonKind.ENVIRONMENT: (
        "the baseline's own code now has {ratio:.2f} times the stored {metric}. Runs rarely differ that "
        "much. Packages, files that Git ignores, or the machine changed{changed}",
        "{apart}",
    ),
    ReasonKind.ABSENT: ("{text}{details}", ""),
    ReasonKind.NO_APP: ("{text}{details}", ""),
    ReasonKind.INCOMPARABLE: ("{text}{details}", ""),
    ReasonKind.BASE_FAILED: (
        "{count:,} of {total:,} requests failed on {side}, so its successful ones alone prove nothing",
        "",
    ),
    ReasonKind.BUSY: ("worse, but {busy}, which may be the reason", "Measure again with nothing else running"),
    ReasonKind.BUSY_FIGURES: (
        "{busy} when the baseline was stored, so a result as good as the baseline's proves nothing",
        "Store a new baseline with nothing else running",
    ),
    ReasonKind.IMPROVED: ("better than its baseline", "Store the new figures with --fileperf-update=all"),
    ReasonKind.NOISE: ("too noisy to decide. It may be worse by more than the tolerance of {share}", "{remedy}"),
    ReasonKind.UNSEEN: (
        "only a change of {share} or more would have shown",
        "{remedy}, or use a tolerance of {tolerance}",
    ),
    ReasonKind.NOTHING_TOLD: ("too noisy to decide. Even a change of {share} would not have shown", "{remedy}"),
    ReasonKind.FEW_REQUESTS: (
        "{metric} needs {needed:,} requests, but {side} has {count:,}",
        "Use a longer duration or gate a lower percentile",
    ),
    ReasonKind.NO_REQUEST: ("{side} has no successful request", ""),
    ReasonKind.WAS_ZERO: ("{metric} was 0 in {side}, so its change in % cannot be computed", "Set a limit instead"),
    ReasonKind.NOT_MEASURED: ("{metric} was not measured in {side}{why}", ""),
    ReasonKind.FEW_FOR_PERCENTILE: (
        "{metric} of {count:,} requests is nearly their maximum. It needs {needed:,} requests",
        "",
    ),
    ReasonKind.CAPACITY_BOUND: ("no load broke a limit, so the {metric} is at least this", ""),
    ReasonKind.FEW_EVENTS: ("{metric} of {count:,} events is nearly their maximum. It needs {needed:,} events", ""),
    ReasonKind.COUNTS_VARY: (
        "the count may have grown by more than the tolerance, because requests differ by chance",
        "Use a longer duration",
    ),
    ReasonKind.STATEMENT: ("{often}{text}{at}", ""),
    ReasonKind.PAIRS_NO_RATIO: (
        "{metric} was 0 or not measured in {pair_side}, so its change in % cannot be computed",
        "Set a limit instead",
    ),
    ReasonKind.PAIRS_FEW: (
        "at least {needed} start-ups of each version must answer, but {count} did",
        "{longer}, fewer connections or a lower rate",
    ),
    ReasonKind.PAIRS_FEW_REQUESTS: (
        "{metric} needs {needed:,} requests of each version, but there were {count:,}",
        "{longer}, or gate a lower percentile",
    ),
    ReasonKind.PAIRS_CLUSTERED: (
        "{count:,} requests of each version are too few to decide {metric}, because slow ones come in groups{bunches}",
        "{longer}, or gate a lower percentile",
    ),
    ReasonKind.PAIRS_CALM_WORSE: (
        "without stalls, in which many requests wait at once, it is worse by at least {share}",
        "",
    ),
    ReasonKind.PAIRS_STALLS: ("not worse most of the time, but it stalls now and then, so it is worse in total", ""),
    ReasonKind.PAIRS_CALM_UNCLEAR: (
        "too noisy to decide. Without stalls, in which many requests wait at once, it may be worse by {share}",
        "{more_time}",
    ),
    ReasonKind.PAIRS_TOTAL_UNCLEAR: ("not worse most of the time, but in total it may be, by {share}", "{more_time}"),
    ReasonKind.PAIRS_TOTAL_UNSEEN: (
        "not worse most of the time, but in total it may be, by up to {share}",
        "{more_time}",
    ),
    ReasonKind.PAIRS_NEARLY: (
        "most likely worse by more than {share}, but not certain enough to fail the test",
        "{more_time}",
    ),
    ReasonKind.PAIRS_NOISE: ("too noisy to decide. It may be worse by more than {share}", "{more_time}"),
    ReasonKind.PAIRS_PASS: (
        "the whole measurement is worse by more than {tolerance}, but its start-ups do not confirm that",
        "Measure again with nothing else running",
    ),
    ReasonKind.SINCE_BASELINE: ("{since_baseline}", ""),
    ReasonKind.PAIRS_UNSEEN: ("only a change of {share} or more would have shown in this time", "{more_time}"),
}


def sentence(reason: Reason | None, *, seen: str = "") -> str:
    """Returns what happened, then `seen` (a further sentence), then what to do. The text lacks the last full stop."""
    if reason is None:
        return ""
    happened, to_do = _SENTENCES[reason.kind]
    return ". ".join(filter(None, (_filled(reason, happened), seen, _filled(reason, to_do))))


def brief_sentence(reason: Reason | None) -> str:
    """Returns what happened, on one line, without details."""
    if reason is None:
        return ""
    return plain(_filled(reason, re.split(r": |\. | \(|\{details|\{why", _SENTENCES[reason.kind][0])[0]))


def _filled(reason: Reason, words: str) -> str:
    since_baseline = [
        f"{reason.busy}, which explains only part of this" if reason.busy else "",
        f"packages changed since the baseline: {'; '.join(reason.packages)}" if reason.packages else "",
        f'reason given for the baseline of {reason.day}: "{reason.text}"' if reason.text else "",
    ]
    longer = _MORE if reason.budgeted else _LONGER
    if reason.seconds and not reason.budgeted:
        # A fifth more than the computed time, rounded up to a multiple of 5 s.
        longer = f'Try max_duration="{math.ceil(1.2 * reason.seconds / 5) * 5}s" or more'
    more_time = longer
    if reason.seconds > _TOO_LONG_S:
        minutes = math.ceil(reason.seconds / 60)
        took = f"about {minutes} min" if minutes <= 60 else "more than an hour"
        more_time = f"To decide would take {took}. {_LIGHTER}"
    if reason.jump is not None:
        before, after = (f"{time_text(seconds)} at p{percentile:g}" for percentile, seconds in reason.jump)
        more_time = f"Chance decides, because latency jumps from {before} to {after}. Gate another percentile"
    often = ""
    if reason.times:
        *old, now = (quantity(value, Unit.COUNT) for value in reason.times)
        often = f"{now} time{'s' * (now != '1')} a request{''.join(f', {value} before' for value in old)}: "
    return words.format(
        **named(reason, "count", "needed", "total", "ratio", "busy", "text"),
        metric=METRICS[reason.metric].title if reason.metric else "",
        side=_SIDES.get(reason.side, reason.side),
        pair_side=_PAIR_SIDES.get(reason.side, ""),
        whose=_PAIR_SIDES.get(reason.side, ""),
        often=often,
        at=f" ({reason.place})" if reason.place else "",
        share=format_share(reason.share),
        tolerance=format_share(reason.tolerance),
        since_baseline="; ".join(filter(None, since_baseline)),
        bunches=f" of about {reason.together:.2g}" if reason.together >= 2 else "",
        differences="; ".join(reason.differences),
        details="".join(f": {one}" for one in reason.differences),
        changed=_changes_text((*reason.differences, *reason.packages)),
        because=f", and its code was not measured again: {reason.text}" if reason.text else "",
        apart=_APART if reason.packages else _AGAIN,
        why=f": processes of the server changed ({reason.text})" if reason.text else _UNKNOWN.get(reason.metric, ""),
        longer=longer,
        remedy=_REMEDIES.get(reason.noise_of, more_time),
        more_time=more_time,
    )


def _changes_text(changes: Sequence[str]) -> str:
    return f". Changed: {'; '.join(changes)}" if changes else ""


# --- Notes: the served app, the load, and the measured code of a baseline

_NOTES: Mapping[NoteKind, str] = {
    NoteKind.SET_BY_TEST: "served with the test's own settings on the app: {several}",
    NoteKind.NOT_AS_MADE: "the server's app differs from the test's app: {several}",
    NoteKind.IMPORTS_ANEW: "each start-up imports the app anew: {names}",
    NoteKind.ELSEWHERE: "old and new code share this, because no version contains it: {names}",
    NoteKind.CHANGED_MEANWHILE: "{names} changed during the measurement",
    NoteKind.NEVER_CONFIRMED: "compared with stored figures only, because of fileperf_confirm=never",
    NoteKind.FILES_CHANGED: "compared with stored figures only: {names}",
    NoteKind.FIGURES_ONLY: "compared with stored figures only: {names}",
    NoteKind.SAME_CODE: "the code is the same as {names}",
    NoteKind.IN_TURN: "measured alternately with the code of {names}",
    NoteKind.PACKAGES_HERE: "the packages installed here were used, not the baseline's own: {names}",
    NoteKind.PACKAGES: "changed packages: {names}",
    NoteKind.ROUGHLY_KNOWN: "the machine is noisy, so the stored figures are exact only to ±{share} %. "
    f"The goal is ±{100 * RULES.known_to:g} %",
    NoteKind.PROVISIONAL: "the machine was busy, so the stored figures are rough. Later runs compare with this code",
    NoteKind.NO_CODE_STORED: "stored only figures, because the code cannot be found again: {names}",
    NoteKind.TOLD: "{names}",
}


def note_text(note: Note) -> str:
    return _NOTES[note.kind].format(
        names=", ".join(note.texts), several="; ".join(note.texts), share=f"{100 * note.share:.1f}"
    )


# --- Comparisons in words: both versions, the change and its interval, and the environment
#
# A change of the code and a change of the environment never share a line:
#
#     rps  5,010/s → 5,001/s  −0.2 % [−1.1, +0.7]  tolerance 3 %  PASS
#     environment: the baseline's own code now has rps −16.8 % (stored 6,021/s). …

NO_BASELINE = (ReasonKind.NO_BASELINE, ReasonKind.NO_BASELINE_SATURATED)


def base_name(verdict: Verdict) -> str:
    """Returns the old figures' heading: `old` if this run measured them, `baseline` if they were stored."""
    return "old" if verdict.against or verdict.pairs else "baseline"


def is_same_code(comparison: MetricComparison) -> bool:
    """Whether the code equals the baseline's code. If so, only the environment can change figures."""
    return comparison.reason is not None and comparison.reason.kind is ReasonKind.SAME_CODE


def both_sides(comparison: MetricComparison) -> tuple[str, str]:
    """Returns the old and the new figure, such as `2,190/s` and `2,050/s`. An unknown figure is an empty text."""
    unit = METRICS[comparison.metric].unit
    base, now = ("" if side is None else quantity(side, unit) for side in (comparison.base, comparison.now))
    return base, now


def sides_text(comparison: MetricComparison) -> str:
    """Returns `2,190/s → 2,050/s`, or the only known figure. For the same code, returns only the new figure."""
    base, now = both_sides(comparison)
    return now if now and is_same_code(comparison) else " → ".join(filter(None, (base, now)))


def change_text(comparison: MetricComparison) -> str:
    """Returns `−6.4 %`, or `?` if unknown."""
    return "?" if comparison.change is None else format_change(comparison.change)


def typical_text(comparison: MetricComparison) -> str:
    """Returns a sentence on the change without stalls, in which many requests wait at once. Empty if not needed."""
    metric = METRICS[comparison.metric]
    if comparison.typical is None or comparison.change is None or comparison.outcome is Outcome.WATCHED:
        return ""
    # If only stalls got worse, a much better change without them would mislead.
    if metric.worse_sign * comparison.typical < -comparison.tolerance and metric.worse_sign * comparison.change >= 0:
        return ""
    change = format_change(comparison.typical)
    if metric.percentile is not None:
        return f"{comparison.metric}: the verdict compares start-ups with each other. By these the change is {change}"
    return f"{comparison.metric}: without stalls the change is {change}. The verdict uses both"


def interval_text(comparison: MetricComparison) -> str:
    if comparison.low is None or comparison.high is None:
        return ""
    if comparison.low == comparison.high and METRICS[comparison.metric].is_counted:
        return ""
    return f"[{', '.join(format_change(bound, unit=False) for bound in (comparison.low, comparison.high))}]"


def change_and_interval(comparison: MetricComparison) -> str:
    """Returns `−6.4 % [−8.1, −4.7]`, or only the change if the interval is unknown."""
    return f"{change_text(comparison)} {interval_text(comparison)}".rstrip()


def tolerance_text(comparison: MetricComparison) -> str:
    """Returns `5 %`, or `2.00 ms (20 %)` for an absolute tolerance. Empty if the metric is never judged."""
    if comparison.outcome is Outcome.WATCHED:
        return ""
    share, unit = format_share(comparison.tolerance), METRICS[comparison.metric].unit
    return f"{quantity(comparison.floor, unit)} ({share})" if comparison.floor else share


def count_text(comparison: MetricComparison) -> str:
    """Returns `12 queries a request, 9 more than before`. Empty for other metrics."""
    base, now = comparison.base, comparison.now
    if not METRICS[comparison.metric].is_counted or base is None or now is None:
        return ""
    if (more := quantity(abs(now - base), Unit.COUNT)) == quantity(0, Unit.COUNT):
        return f"{queries_text(now)}, as many as before"
    return f"{queries_text(now)}, {more} {'more' if now > base else 'fewer'} than before"


def figures_text(comparison: MetricComparison, *, sides: bool = True) -> str:
    """Returns `rps −4.0 % [−9.0, +1.0], 5,210/s → 5,001/s, tolerance 3 %`. Without `sides`, omits both figures."""
    if comparison.change is None and (counted := count_text(comparison)):
        return counted
    both = f"{sides_text(comparison)}, " * sides
    change = change_and_interval(comparison)
    return f"{comparison.metric} {change}, {both}tolerance {tolerance_text(comparison)}"


def regression_text(verdict: Verdict, worse: Sequence[MetricComparison]) -> str:
    """Returns `rps fell by 33.6 %, p99 rose by 12.0 % compared with origin/main (1a2b3c4)`.

    If the code made some metrics worse, leaves out the metrics that the environment made worse.
    """
    by_code = [item for item in worse if not is_by_environment(item)]
    moves = ", ".join(map(_move_text, by_code or worse))
    text = f"{moves} compared with {verdict.against or verdict.since or 'its baseline'}"
    return text if by_code else f"The environment got slower, not your code: {text}"


def _move_text(comparison: MetricComparison) -> str:
    base, now, metric = comparison.base, comparison.now, comparison.metric
    if METRICS[metric].is_counted and base is not None and now is not None:
        by = f"{quantity(abs(now - base), Unit.COUNT)}, to {quantity(now, Unit.COUNT)} per request"
        return f"{metric} {'rose' if now > base else 'fell'} by {by}"
    if (moved := comparison.change) is None:
        return f"{metric} got worse"
    if comparison.typical is not None and METRICS[metric].worse_sign * moved <= 0:
        moved = comparison.typical  # the figures of both versions do not show the loss
    change = format_change(abs(moved)).lstrip("+")
    verb = "fell by" if moved < 0 else "rose by" if change.endswith("%") else "rose"
    return f"{metric} {verb} {change}"


def notes_text(notes: Iterable[Note]) -> str:
    return "; ".join(map(note_text, notes))


def world_outcome(verdict: Verdict) -> Outcome | None:
    """Returns the worst change of the baseline's own code since it was stored. None if it was not measured again."""
    found = {comparison.outcome for comparison in verdict.world}
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASS)
    return next((outcome for outcome in order if outcome in found), None)


def is_by_environment(comparison: MetricComparison) -> bool:
    return comparison.reason is not None and comparison.reason.kind is ReasonKind.ENVIRONMENT


def world_text(verdict: Verdict) -> str:
    """Returns `the baseline's own code now has rps −16.8 % (stored 6,021/s)`. Empty if it was not measured again."""
    outcome = world_outcome(verdict)
    if outcome is None:
        return ""
    lead = next(comparison for comparison in verdict.world if comparison.outcome is outcome)
    # The new figure is left out, because the test's row has it.
    figures = (f"{item.metric} {change_text(item)} (stored {both_sides(item)[0] or '?'})" for item in verdict.world)
    return plain(
        f"the baseline's own code now has {', '.join(figures)}{_meaning(lead)}{_changes_text(changes_of(lead))}"
    )


def _meaning(comparison: MetricComparison) -> str:
    outcome, reason = comparison.outcome, comparison.reason
    if outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
        return ". The machine, packages or settings changed" + ", not your code" * (outcome is Outcome.REGRESSED)
    if outcome is not Outcome.INCONCLUSIVE:
        return ""
    if reason is None or reason.kind is ReasonKind.WORLD_UNCLEAR:
        return ". Runs at different times may differ as much"
    return f": {sentence(reason)}"


def changes_of(comparison: MetricComparison) -> tuple[str, ...]:
    """Returns the environment's changes since the baseline, such as other packages. Empty if they explain nothing."""
    reason = comparison.reason
    if reason is None or reason.kind not in (ReasonKind.WORLD, ReasonKind.WORLD_UNCLEAR):
        return ()
    return (*reason.differences, *reason.packages)


# --- Tests that failed for another reason than a figure, in words

_WHERE = {"setup": "before it ran", "teardown": "after it ran"}
"""Texts for pytest's phases. They avoid the word `setup`, because load tests have another `setup`."""


def failed_count(record: SessionRecord) -> str:
    """Returns `2 tests failed for other reasons`."""
    count = len({test.nodeid for test in record.failed})
    why = " for another reason" if count == 1 else " for other reasons"
    return f"{format_count(count, 'test')} failed{why * bool(record.results)}" if count else ""


def where_failed(test: FailedTest) -> str:
    return f"failed {_WHERE.get(test.phase, '')}".rstrip()


def first_line(test: FailedTest) -> str:
    """Returns the message's first line. If that line is only a place in the code, adds the error's line."""
    lines = test.message.strip().splitlines()
    if not lines:
        return ""
    error = next((line for line in lines[1:] if re.match(r"  \S", line)), "") if lines[0].endswith(":") else ""
    return plain(f"{lines[0]} {error.strip()}".rstrip())


def failed_lines(failed: Sequence[FailedTest]) -> list[str]:
    lines = []
    for test in failed:
        place = f" ({plain(test.module)}:{test.line})" if test.line is not None else ""
        lines.append(f"{plain(test.name)}{place} {where_failed(test)}")
        lines += [f"  {plain_line(line)}".rstrip() for line in test.message.strip().splitlines()]
    return lines
