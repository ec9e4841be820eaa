"""Texts about one result that all reports share: comparisons, reasons, setting, notes and every figure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_fileperf.judge.evidence import OtherAnswers
from pytest_fileperf.judge.history import Trend, trend_of
from pytest_fileperf.judge.paired import NoiseFloor
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison, Outcome, ReasonKind
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Failure, Growth, Recording, merged_warm_up
from pytest_fileperf.measure.usage import CHILDREN_WORK
from pytest_fileperf.report.text import Style, exact, plain, quantity
from pytest_fileperf.report.wording import (
    NO_BASELINE,
    base_name,
    breach_texts,
    capacity_text,
    code_text,
    not_stored_text,
    saturated_share,
    sentence,
    typical_text,
)
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import format_bytes, format_count, format_duration, format_share

__all__ = (
    "INDENT",
    "NOTABLE",
    "STYLES",
    "Why",
    "busy_text",
    "could_show",
    "findings",
    "growth_texts",
    "has_more_http",
    "is_notable",
    "iterations_text",
    "left_text",
    "limit_text",
    "noise_texts",
    "notes",
    "one_core_text",
    "other_kinds",
    "processes_text",
    "reasons",
    "saturated_text",
    "setting",
    "traced_text",
    "word_of",
)


# --- What a reader must not miss about how figures came to be: every report and the message of a failed test say it

_KINDS = 3
_UNLIKE = 1.5
"""From this ratio on it is said how many more requests one side has answered than the other."""


def findings(result: Result) -> tuple[str, ...]:
    """Returns sentences about a result, without a full stop."""
    if result.smoke:
        return ()
    return (
        *map(_other_answers, result.other_answers),
        *_warm_ups(result),
        *_restarts(result),
        *_trends(result),
        *_memory(result),
    )


def _other_answers(other: OtherAnswers) -> str:
    whose = f"answers of {plain(other.of)}" if other.of else "answers"
    texts = []
    if other.sizes:
        base, now = map(_size, other.sizes)
        texts.append(f"{whose} have other sizes: {base} before, {now} now")
    if other.base_statuses or other.now_statuses:
        base, now = map(_statuses, (other.base_statuses, other.now_statuses))
        texts.append(f"{whose} have other statuses: {base} before, {now} now")
    return "; ".join(texts)


def _size(size: float) -> str:
    return format_bytes(round(size))


def _statuses(shares: Mapping[int, float]) -> str:
    return " and ".join(f"{status} in {format_share(share)}" for status, share in shares.items())


def _warm_ups(result: Result) -> Iterator[str]:
    """Yields what failed in the warm-up, of each side."""
    for recording, whose in _sides(result):
        warm_up = merged_warm_up(boot.warm_up for boot in recording.boots)
        if not warm_up.failed:
            continue
        kinds = [f"{failure.count:,} × {plain(failure.kind)}" for failure in warm_up.failures[:_KINDS]]
        if rest := sum(failure.count for failure in warm_up.failures[_KINDS:]):
            kinds.append(f"{rest:,} others")
        boots = f", in {format_count(len(recording.boots), 'start-up')}" if len(recording.boots) > 1 else ""
        counts = f"{warm_up.failed:,} of {warm_up.made:,} warm-up requests{whose} failed{boots}"
        yield f"{counts}: {', '.join(kinds)}"


def _restarts(result: Result) -> Iterator[str]:
    """Yields how many processes of each side ended during the load."""
    for recording, whose in _sides(result):
        if ended := sum(boot.processes_ended for boot in recording.boots):
            yield f"{ended:,} process{'es' * (ended != 1)} of the server{whose} ended during the load"


def _sides(result: Result) -> list[tuple[Recording, str]]:
    """Returns the recordings of a result, and whose they are if there are two."""
    if result.base is None:
        return [(result.recording, "")]
    return [(result.base, f" of the {base_name(result.verdict)}"), (result.recording, " of the code here")]


def _trends(result: Result) -> Iterator[str]:
    """Yields that start-ups got slower or faster one after another; of both sides in one sentence."""
    if result.test.own or result.capacity is not None:
        return
    now = trend_of(result.recording)
    base = None if result.base is None else trend_of(result.base)
    trends = [trend for trend in (base, now) if trend is not None]
    if not trends:
        return
    first = trends[0]
    if len(trends) == 2 and base is not None and now is not None and base.falls == now.falls:
        where, courses = " on both sides", f"{_course(base)} before, {_course(now)} now"
    else:
        whose = f"the {base_name(result.verdict)}" if first is base else "the code here"
        where, courses = "" if result.base is None else f" of {whose}", _course(first)
    moved = "fell" if first.falls else "rose" if first.of_rate else "grew"
    why = "something is kept between start-ups" + (", or the machine changed" if first.by_machine else "")
    yield f"{'requests/s' if first.of_rate else 'latency'} {moved} from start-up to start-up{where} ({courses}): {why}"


def _course(trend: Trend) -> str:
    unit = Unit.PER_SECOND if trend.of_rate else Unit.SECONDS
    return f"{quantity(trend.levels[0], unit)} → {quantity(trend.levels[-1], unit)} over {len(trend.levels)} start-ups"


def _memory(result: Result) -> Iterator[str]:
    """Yields after how many requests memory was compared."""
    for comparison in result.verdict.comparisons:
        if comparison.after_requests is None:
            continue
        text = f"{comparison.metric} is memory after {comparison.after_requests:,} requests each"
        if result.base is not None:
            reached = [_reached(recording) for recording in (result.base, result.recording)]
            if min(reached) * _UNLIKE < max(reached):
                text += f", though start-ups answered up to {reached[0]:,} before and {reached[1]:,} now"
        yield text


def _reached(recording: Recording) -> int:
    return max((boot.memory[-1][0] for boot in recording.boots if boot.memory), default=0)


# --- details

STYLES = {
    Standing.PASS: Style.GOOD,
    Standing.IMPROVED: Style.GOOD,
    Standing.REGRESSED: Style.BAD,
    Standing.LIMIT: Style.BAD,
    Standing.FAILED: Style.BAD,
    Standing.INCONCLUSIVE: Style.WARNING,
    Standing.SATURATED: Style.WARNING,
    Standing.NEW: Style.NEWS,
    Standing.UNGATED: Style.NONE,
}
_GROWING = {"open_files": "open files", "threads": "threads", "memory_bytes": "memory"}
"""How to call what a server may hold more and more of."""
INDENT = 2
"""Cells before a line that stands under a row."""
NOTABLE = 1.1
"""Ratio from which two times are worth showing apart."""
_EXPECTED_LIMITS = (LimitKind.SERVER_CPU, LimitKind.RATE, LimitKind.UNCLEAR)


class Why(NamedTuple):
    """Why gates have an outcome."""

    outcome: Outcome
    text: str
    """It begins with the metrics."""
    metrics: tuple[str, ...]


def reasons(result: Result, *, but: Collection[ReasonKind] = ()) -> tuple[Why, ...]:
    """Returns outcomes with the reasons that the judge gave, without some kinds of them.

    Metrics with equal reasons share one text.
    """
    groups: dict[tuple[Outcome, str], list[MetricComparison]] = {}
    for comparison in result.verdict.comparisons:
        remedied = comparison.outcome is Outcome.NEW and result.baseline_written
        if comparison.reason and comparison.reason.kind not in but and not remedied:
            reason = _unfit_reason(result) if comparison.reason.kind in NO_BASELINE else ""
            groups.setdefault((comparison.outcome, reason or plain(sentence(comparison.reason))), []).append(comparison)
    found = []
    for (outcome, reason), members in groups.items():
        metrics = tuple(member.metric for member in members)
        text = f"{', '.join(metrics)}: {reason}"
        unsaid = [could_show(member) for member in members if _detectable_unsaid(member)]
        if unsaid:
            text += f" ({', '.join(unsaid)})"
        found.append(Why(outcome, text, metrics))
    return tuple(found)


def _unfit_reason(result: Result) -> str:
    """Returns why a NEW run did not become a baseline, or cannot; empty where it can."""
    if result.not_stored:
        return f"there is no baseline, and nothing was stored: {plain(result.not_stored)}"
    if not result.unfit:
        return ""
    anyway = "" if result.never_fit else "; --fileperf-update=all stores it all the same"
    return f"there is no baseline, and {result.unfit} does not become one{anyway}"


def _detectable_unsaid(comparison: MetricComparison) -> bool:
    """Returns whether the reason leaves out how small a change could have been seen."""
    if comparison.outcome is not Outcome.INCONCLUSIVE or comparison.detectable is None:
        return False
    return format_share(comparison.detectable) not in sentence(comparison.reason)


def word_of(standing: Standing) -> str:
    """Returns the standing in a word that says something without its column."""
    return "not gated" if standing is Standing.UNGATED else standing.value


def other_kinds(failures: Sequence[Failure]) -> str:
    """Returns `and 3 more of 2 other kinds`: the failures that are not shown."""
    count = sum(failure.count for failure in failures)
    return f"and {count:,} more of {format_count(len(failures), 'other kind')}"


def setting(result: Result) -> tuple[str, ...]:
    """Returns server, load and what was held equal between boots, in words. It is often equal for a whole session."""
    stabilised = _stabilised(result.recording)
    # Which code of a stored baseline it is, is said with what there is to know about it.
    is_named = result.verdict.against and not result.verdict.code
    words = [f"against {result.verdict.against}"] if is_named else []
    words += [result.server, result.load]
    if stabilised:
        words.append(f"boots stabilised: {', '.join(stabilised)}")
    return tuple(plain(word) for word in words if word)


def _stabilised(recording: Recording) -> tuple[str, ...]:
    """Returns what was held equal in every boot."""
    return tuple(name for name in STABILISERS if recording.boots and all(name in b.stabilised for b in recording.boots))


def noise_texts(result: Result) -> tuple[str, ...]:
    """Returns for each gate what it could have seen, where the code was compared with itself."""
    return tuple(map(_noise_text, result.noise))


def _noise_text(floor: NoiseFloor) -> str:
    if floor.smallest is None:
        return f"{floor.metric}: too little was measured to tell what could be seen"
    needs = (f"{format_share(slower)} needs {_whole_seconds(seconds)}" for slower, seconds in floor.seconds_for.items())
    seen = f"{format_share(floor.smallest)} slower shows in {_whole_seconds(floor.seconds)}"
    return f"{floor.metric}: {seen}; {', '.join(needs)}"


def _whole_seconds(seconds: float) -> str:
    return format_duration(round(seconds) * 1_000_000_000)


def notes(result: Result) -> tuple[str, ...]:
    """Returns what a reader must know to judge the figures, as sentences without a full stop."""
    recording = result.recording
    found: list[str] = [*findings(result)]
    found += breach_texts(result.measurement)
    if capacity := capacity_text(result):
        found.append(capacity)
    if saturated := saturated_text(result):
        found.append(saturated)
    if law := law_text(result):
        found.append(law)
    found += filter(None, map(typical_text, result.verdict.comparisons))
    if iterations := iterations_text(result):
        found.append(iterations)
    if result.lost:
        found.append(f"a part of the load is missing: {plain(result.lost)}")
    found += (*result.server_notes, *result.load_notes)
    if recording.engine != "replay" and recording.why_engine:
        found.append(f"engine {recording.engine}: {plain(recording.why_engine)}")
    if recording.engine != "in-process" and not recording.pinned and not result.smoke:
        found.append("server and generator shared cores")
    held = _stabilised(recording)
    missing = [name for name in STABILISERS if name not in held]
    if held and missing:
        found.append(f"boots stabilised in part, without: {', '.join(missing)}")
    if changed := processes_text(result):
        found.append(changed)
    if one_core := one_core_text(result):
        found.append(one_core)
    found += growth_texts(result)
    if traced := traced_text(result):
        found.append(traced)
    if busy := busy_text(result):
        found.append(busy)
    if left := left_text(result):
        found.append(left)
    elif background := str(result.background or ""):
        found.append(background)
    if code := code_text(result.verdict, with_title=True):
        found.append(code)
    if result.baseline_written:
        found.append("stored as the new baseline")
    if not_stored := not_stored_text(result):
        found.append(not_stored)
    return tuple(dict.fromkeys(found))


def law_text(result: Result) -> str:
    """Returns that requests/s do not agree with requests in flight ÷ latency; empty where they do."""
    law = result.measurement.law
    if law is None or law.agrees or result.smoke or result.test.step or result.test.part:
        return ""
    if law.is_short:
        return (
            f"requests/s are rough: a request takes {quantity(law.latency, Unit.SECONDS)}, longer than each start-up"
            " was measured. Give it a longer duration"
        )
    by_law, shown = (quantity(value, Unit.PER_SECOND) for value in (law.by_law, law.rps))
    return (
        f"requests/s are rough: {law.in_flight:.1f} requests in flight ÷ {quantity(law.latency, Unit.SECONDS)}"
        f" of latency are {by_law}, not {shown}. Give it a longer duration"
    )


def saturated_text(result: Result) -> str:
    """Returns that the generator set the pace; empty where it did not."""
    if result.smoke or not (result.measurement.saturated or result.verdict.saturated):
        return ""
    if result.capacity is not None:
        return ""  # what the capacity says of it: these figures are of loads that the generator could make
    return f"generator saturated: {saturated_share(result.measurement.client)}"


def traced_text(result: Result) -> str:
    """Returns what traced the server, so that it was slower; empty where nothing did."""
    recording = result.recording
    if not recording.tracer:
        return ""
    where = ", as the app ran in the pytest process" if recording.engine == "in-process" else ""
    return (
        f"traced by {recording.tracer}{where}: the figures are slower than untraced ones, and never compared with those"
    )


def processes_text(result: Result) -> str:
    """Returns that the server's processes changed during the run; empty where they did not."""
    changed = result.recording.processes_changed or (result.base.processes_changed if result.base else "")
    return f"processes of the server changed during the run ({changed}): what they used is unknown" if changed else ""


def left_text(result: Result) -> str:
    """Returns that a server was still at work after its last answer; empty if it was not."""
    sides = [("the old code", result.base), ("the code here", result.recording)] if result.base else []
    said = [
        f"{whose} still used {format_share(round(recording.left_share, 2))} of a core after its last answer:"
        " it cannot sustain these requests/s, and CPU per request leaves that work out"
        for whose, recording in sides or [("the server", result.recording)]
        if recording.left_share
    ]
    if not said and any(boot.was_at_work for boot in result.recording.boots):
        said.append("the server was still busy with what an earlier load had left when this one began")
    return "; ".join(said)


def one_core_text(result: Result) -> str:
    """Returns that a server had to share one core with its children that work for it; empty if it had not."""
    use = result.measurement.server
    if use.cores != 1 or (use.children_cpu_share or 0.0) < CHILDREN_WORK:
        return ""
    return "the server and its child processes had one core together: on more cores they may be faster"


_AS_WELL, _HARDLY = 0.5, 0.1
"""Parts of a growth that lasts: from the first on the other side grew, too; up to the second it did not."""


def growth_texts(result: Result) -> tuple[str, ...]:
    """Returns that the server had all the open files that it may have, and what it held more of, request by request."""
    if result.smoke:
        return ()
    now, base = result.recording.growth, result.base.growth if result.base else None
    grew = (_grew_text(name, now, base) for name in _GROWING)
    limit = max((own.files_limit for own in (now, base) if own and own.files_limit), default=0)
    ran_out = f"the server had {limit:,} open files, all that its shell allows (`ulimit -n`)" if limit else ""
    return tuple(filter(None, (ran_out, *grew)))


def _grew_text(name: str, now: Growth | None, base: Growth | None) -> str:
    """Returns that one of `_GROWING` grew; empty where it did not, or where that is not known."""
    what, held = _GROWING[name], (now, base)
    by_now, by_base = (None if own is None else getattr(own, name) for own in held)
    lasts_now, lasts_base = (own is not None and name in own.lasting for own in held)
    if lasts_now and by_now is not None:
        old = "" if by_base is None else _than(name, by_base, by_now, "with the old code")
        return f"{what} grew by {_each(name, by_now)} a request{old}"
    if lasts_base and by_base is not None and by_now is not None:
        now_text = _than(name, by_now, by_base, "now")
        return f"{what} of the old code grew by {_each(name, by_base)} a request{now_text}"
    return ""


def _than(name: str, other: float, value: float, whose: str) -> str:
    """Returns how the other side grew, beside one that surely grew by the value; what is between is not told."""
    if other >= _AS_WELL * value:
        return f", and by {_each(name, other)} {whose}"
    return f", and did not {whose}" if other <= _HARDLY * value else ""


def _each(name: str, value: float) -> str:
    return quantity(value, Unit.BYTES) if name == "memory_bytes" else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def busy_text(result: Result) -> str:
    """Returns what others did on the machine; empty where it was quiet."""
    busy = result.measurement.busy
    return f"the machine was busy: {busy}" if busy.is_busy and not result.smoke else ""


def has_more_http(run: Measurement) -> bool:
    """Returns whether there were more HTTP requests than what was counted, as in journeys."""
    return run.http_requests > run.requests + run.errors


def iterations_text(result: Result) -> str:
    """Returns how requests/s counts where iterations, as of a journey, make several HTTP requests; else empty."""
    run = result.measurement
    if result.smoke or result.test.step or not has_more_http(run):
        return ""
    rate, http_rate = (quantity(value, Unit.PER_SECOND) for value in (run.rps, run.http_rps))
    iterations = format_count(run.requests + run.errors, "iteration")
    return f"requests/s counts iterations: {iterations}, {rate}, made {run.http_requests:,} HTTP requests, {http_rate}"


def is_notable(limit: Limit) -> bool:
    """Returns whether something else than the server's CPU, or the load as it was asked for, set the pace.

    What is unclear tells nothing.
    """
    return limit.kind not in _EXPECTED_LIMITS


def could_show(comparison: MetricComparison) -> str:
    """Returns how small a worsening a comparison could have seen."""
    assert comparison.detectable is not None
    return f"{comparison.metric}: a worsening of {format_share(comparison.detectable)} could have been seen"


def limit_text(check: LimitCheck) -> str:
    """Returns `min_rps 800/s, measured 612/s`; with nine digits where rounding would make both look equal."""
    unit = METRICS[check.metric].unit
    limit = quantity(check.limit, unit)
    if check.value is None:
        return f"{check.name} {limit}, not measured"
    value = quantity(check.value, unit)
    if value == limit and not check.holds:
        limit, value = exact(check.limit, unit), exact(check.value, unit)
    return f"{check.name} {limit}, measured {value}"
