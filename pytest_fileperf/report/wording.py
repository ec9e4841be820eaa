"""All sentences: what a figure, an outcome or a reason is in words. `story` chooses which of them are told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_fileperf.judge.evidence import KNOWN_TO, OtherAnswers
from pytest_fileperf.judge.history import Trend, trend_of
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
from pytest_fileperf.measure.capacity import Capacity, CapacityEnd
from pytest_fileperf.measure.growth import Growth
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import ClientUse, Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Failure, Recording, merged_warm_up
from pytest_fileperf.measure.usage import CHILDREN_WORK, GeneratorUse
from pytest_fileperf.report.text import exact, plain, plain_line, quantity
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import (
    format_bytes,
    format_change,
    format_count,
    format_duration,
    format_rate,
    format_share,
)

__all__ = (
    "NOT_YOUR_CODE",
    "NO_BASELINE",
    "SATURATED",
    "base_name",
    "breach_texts",
    "brief_sentence",
    "busy_text",
    "capacity_text",
    "change_and_interval",
    "change_text",
    "compared",
    "could_show",
    "could_show_unsaid",
    "failed_count",
    "failed_lines",
    "figures_text",
    "first_line",
    "generator_figures",
    "generator_rows",
    "generator_texts",
    "growth_texts",
    "has_more_http",
    "interval_text",
    "is_same_code",
    "is_world_notable",
    "iterations_text",
    "law_text",
    "left_text",
    "limit_text",
    "limiting_text",
    "memory_texts",
    "names_package",
    "noise_texts",
    "not_stored_text",
    "note_of",
    "note_text",
    "notes_text",
    "one_core_text",
    "other_answers_text",
    "other_kinds",
    "processes_text",
    "reconnect_text",
    "restart_texts",
    "saturated_text",
    "sentence",
    "sides_text",
    "stabilised",
    "traced_text",
    "trend_texts",
    "typical_text",
    "untold_code",
    "warm_up_texts",
    "where_failed",
    "word_of",
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


# --- What a reader must not miss about how figures came to be

_KINDS = 3
_UNLIKE = 1.5
"""From this ratio on it is said how many more requests one side has answered than the other."""


def other_answers_text(other: OtherAnswers) -> str:
    """Returns how answers of a part or step differ from those of the other side."""
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


def warm_up_texts(result: Result) -> Iterator[str]:
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


def restart_texts(result: Result) -> Iterator[str]:
    """Yields how many processes of each side ended during the load."""
    for recording, whose in _sides(result):
        if ended := sum(boot.processes_ended for boot in recording.boots):
            yield f"{ended:,} process{'es' * (ended != 1)} of the server{whose} ended during the load"


def _sides(result: Result) -> list[tuple[Recording, str]]:
    """Returns the recordings of a result, and whose they are if there are two."""
    if result.base is None:
        return [(result.recording, "")]
    return [(result.base, f" of the {base_name(result.verdict)}"), (result.recording, " of the code here")]


def trend_texts(result: Result) -> Iterator[str]:
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


def memory_texts(result: Result) -> Iterator[str]:
    """Yields after how many requests memory was compared."""
    for comparison in result.verdict.comparisons:
        if comparison.after_requests is None:
            continue
        text = f"{comparison.metric} is memory after {comparison.after_requests:,} requests each"
        if result.base is not None:
            reached = [
                max((boot.memory[-1][0] for boot in recording.boots if boot.memory), default=0)
                for recording in (result.base, result.recording)
            ]
            if min(reached) * _UNLIKE < max(reached):
                text += f", though start-ups answered up to {reached[0]:,} before and {reached[1]:,} now"
        yield text


# --- What else there is to know about one result


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
    return f"generator saturated: {_saturated_share(result.measurement.client)}"


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


_GROWING = {"open_files": "open files", "threads": "threads", "memory_bytes": "memory"}
"""How to call what a server may hold more and more of."""
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


def could_show(comparison: MetricComparison) -> str:
    """Returns how small a worsening a comparison could have seen."""
    assert comparison.detectable is not None
    return f"{comparison.metric}: a worsening of {format_share(comparison.detectable)} could have been seen"


def could_show_unsaid(comparison: MetricComparison) -> str:
    """Returns `could_show` of a comparison that is not decided, unless its reason says it; else empty."""
    if comparison.outcome is not Outcome.INCONCLUSIVE or comparison.detectable is None:
        return ""
    return "" if format_share(comparison.detectable) in sentence(comparison.reason) else could_show(comparison)


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


def limiting_text(result: Result) -> str:
    """Returns what limited the run, with its evidence."""
    limit = result.measurement.limit
    unclear = limit.kind is LimitKind.UNCLEAR
    return f"not clear what limited it: {limit.evidence}" if unclear else f"limited by {limit}"


def word_of(standing: Standing) -> str:
    """Returns the standing in a word that says something without its column."""
    return "not gated" if standing is Standing.UNGATED else standing.value


def other_kinds(failures: Sequence[Failure]) -> str:
    """Returns `and 3 more of 2 other kinds`: the failures that are not shown."""
    count = sum(failure.count for failure in failures)
    return f"and {count:,} more of {format_count(len(failures), 'other kind')}"


def stabilised(recording: Recording) -> tuple[str, ...]:
    """Returns what was held equal in every boot."""
    return tuple(name for name in STABILISERS if recording.boots and all(name in b.stabilised for b in recording.boots))


# --- The capacity of a result


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


def brief_sentence(reason: Reason | None) -> str:
    """Returns the reason without its details and what to do about it."""
    return re.split(r": | \(", plain(sentence(reason)))[0]


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


# --- Notes: what the server serves, how the load was made, and which code of a baseline was measured

_NOTES: Mapping[NoteKind, str] = {
    NoteKind.SET_BY_TEST: "served with what the test has set on the app: {several}",
    NoteKind.NOT_AS_MADE: "not as in the test's app: {several}",
    NoteKind.IMPORTS_ANEW: "each start-up imports the app anew: {names}",
    NoteKind.ELSEWHERE: "the same on both sides, as it lies elsewhere: {names}",
    NoteKind.CHANGED_MEANWHILE: "{names} changed while it was measured",
    NoteKind.NEVER_CONFIRMED: "only stored figures compare, as fileperf_confirm=never says",
    NoteKind.STEADY: "stored figures decide, as this machine has proven steady",
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
    """Returns the note as a sentence without a full stop."""
    return _NOTES[note.kind].format(
        names=", ".join(note.texts), several="; ".join(note.texts), share=f"{100 * note.share:.1f}"
    )


def note_of(text: str) -> Note:
    """Returns the note that has this text, which is all that older records have of it."""
    for kind, words in _NOTES.items():
        before, _, after = re.sub("{.*}", "{}", words).partition("{}")
        if text.startswith(before) and text.endswith(after):
            held = text.removeprefix(before).removesuffix(after)
            if kind is NoteKind.ROUGHLY_KNOWN:
                return Note(kind=kind, share=float(held) / 100)
            if kind is not NoteKind.FILES_CHANGED or " changed since the baseline was stored, " in held:
                return Note(kind=kind, texts=(held,) if "{" in words else ())
    raise AssertionError("TOLD has any text")


# --- Texts about comparisons: both sides, the change and its interval, and what the world did to unchanged code
#
# A change of the code and a change of the world are never said in one breath:
#
#     rps  5,010/s → 5,001/s  −0.2 % [−1.1, +0.7]  tolerance 3 %  PASS
#     the world: your baseline's own code runs at 0.83 of what was stored (rps −16.8 % from 6,021/s): …

NO_BASELINE = (ReasonKind.NO_BASELINE, ReasonKind.NO_BASELINE_SATURATED)
NOT_YOUR_CODE = "the machine, packages or environment changed, not your code"


def base_name(verdict: Verdict) -> str:
    """Returns what the side is called that a run is compared with: another version, or what was stored."""
    return "base" if verdict.against and not verdict.code_notes else "baseline"


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


def change_and_interval(comparison: MetricComparison) -> str:
    """Returns `−6.4 % [−8.1, −4.7]`, or what is known of it."""
    return f"{change_text(comparison)} {interval_text(comparison)}".rstrip()


def figures_text(comparison: MetricComparison, *, sides: bool = True) -> str:
    """Returns `rps −4.0 % [−9.0, +1.0], 5,210/s → 5,001/s, tolerance 3 %`, or that without both sides."""
    change = f"{comparison.metric} {change_and_interval(comparison)}"
    both = f"{sides_text(comparison)}, " * sides
    return f"{change}, {both}tolerance {format_share(comparison.tolerance)}"


def notes_text(notes: Iterable[Note]) -> str:
    """Returns the notes in a line."""
    return "; ".join(map(note_text, notes))


def untold_code(verdict: Verdict) -> tuple[Note, ...]:
    """Returns the notes about the code of a stored baseline; nothing if reasons of outcomes say why it wasn't run."""
    told = {comparison.reason.text for comparison in verdict.comparisons if comparison.reason is not None}
    return () if any(note.why_no_code in told - {""} for note in verdict.code_notes) else verdict.code_notes


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
        lines += [f"  {plain_line(line)}".rstrip() for line in test.message.strip().splitlines()]
    return lines


# --- Texts about the load generators: what one did, or each of several


def _saturated_share(use: ClientUse) -> str:
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
