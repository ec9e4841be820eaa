"""Sentences about how one result's figures came to be: a reader needs them to judge the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_fileperf.judge.evidence import OtherAnswers
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.unit import may_be_machine, trend_of
from pytest_fileperf.judge.verdict import NoteKind
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.growth import Growth
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Recording, WarmUp
from pytest_fileperf.measure.usage import CHILDREN_WORK
from pytest_fileperf.report.text import plain, quantity, time_text
from pytest_fileperf.report.wording import (
    COUNTING,
    NO_BASELINE,
    change_text,
    note_text,
    notes_text,
    typical_text,
    untold_code,
)
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import format_bytes, format_change, format_count, format_rate, format_share

_WELL = (Standing.PASS, Standing.IMPROVED, Standing.UNGATED)
_BRIEFLY = (NoteKind.SET_BY_TEST, NoteKind.ELSEWHERE, NoteKind.CHANGED_MEANWHILE)
_OF_FIGURES = (
    NoteKind.NEVER_CONFIRMED,
    NoteKind.FIGURES_ONLY,
    NoteKind.FILES_CHANGED,
    NoteKind.ROUGHLY_KNOWN,
    NoteKind.NO_CODE_STORED,
)


def setting(result: Result) -> tuple[str, ...]:
    """Returns server, load and stabilised properties. They are often the same for a whole session."""
    verdict, held = result.verdict, _stabilised(result.recording)
    # The notes say which code of a stored baseline was measured.
    against = f"against {verdict.against}" if verdict.against and not verdict.code_notes else ""
    found = (against, result.server, result.load, f"start-ups stabilised: {', '.join(held)}" if held else "")
    return tuple(plain(text) for text in found if text)


def findings(result: Result) -> tuple[str, ...]:
    """Returns the most important remarks, which are also in the message of a failed test."""
    if result.smoke:
        return ()
    told = (
        *map(_other_answers_text, result.other_answers),
        *_warm_up_texts(result),
        *_restart_texts(result),
        _trend_text(result),
        *_memory_texts(result),
    )
    return tuple(filter(None, told))


def notes(result: Result) -> tuple[str, ...]:
    """Returns all remarks, as sentences without a full stop."""
    recording, held = result.recording, _stabilised(result.recording)
    missing = [name for name in STABILISERS if name not in held]
    why_engine = "" if recording.engine == "replay" else plain(recording.why_engine)
    shared_cores = recording.engine != "in-process" and not recording.pinned and not result.smoke
    told = (
        *findings(result),
        *_breach_texts(result.measurement),
        capacity_text(result),
        _saturated_text(result),
        _law_text(result),
        *map(typical_text, result.verdict.comparisons),
        _iterations_text(result),
        f"part of the load is missing: {plain(result.lost)}" if result.lost else "",
        *map(note_text, result.notes),
        f"engine {recording.engine}: {why_engine}" if why_engine else "",
        COUNTING if result.measurement.server.queries is not None else "",
        "server and load generator shared cores" * shared_cores,
        f"start-ups stabilised in part, without: {', '.join(missing)}" if held and missing else "",
        _processes_text(result),
        _one_core_text(result),
        *_growth_texts(result),
        *release_texts(result),
        traced_text(result),
        busy_text(result),
        _left_text(result),
        _background(result),
        plain(notes_text(untold_code(result.verdict))),
        "stored as the new baseline" * result.baseline_written,
        _not_stored_text(result),
    )
    return tuple(text for text in dict.fromkeys(told) if text)


def brief_notes(result: Result) -> list[str]:
    """Returns the notes that nobody must miss."""
    code = untold_code(result.verdict)
    # If a test's code or files are not in Git, its stored figures alone compare. That is this test's own news.
    is_told = any(note.kind in (NoteKind.NO_CODE_STORED, NoteKind.FILES_CHANGED) for note in code)
    told = (
        *findings(result),
        plain(result.recording.why_engine) if result.recording.engine == "http2" and not result.test.own else "",
        capacity_text(result),
        _saturated_text(result),
        _iterations_text(result),
        _processes_text(result),
        _one_core_text(result),
        _left_text(result),
        *_growth_texts(result),
        *release_texts(result, only_losses=True),
        *(note_text(note) for note in result.notes if note.kind in _BRIEFLY),
        "" if result.standing in _WELL else _background(result),
        *(plain(note_text(note)) for note in code if is_told and note.kind in _OF_FIGURES),
        _not_stored_text(result),
    )
    return [text for text in told if text]


def _background(result: Result) -> str:
    """Returns the servers' use in each other's turns; empty if one left work behind, which is reported instead."""
    return "" if _left_text(result) else str(result.background or "")


def _stabilised(recording: Recording) -> tuple[str, ...]:
    return tuple(name for name in STABILISERS if recording.boots and all(name in b.stabilised for b in recording.boots))


def _not_stored_text(result: Result) -> str:
    """Returns why it did not become a baseline although the user asked for it, unless a reason says so."""
    said = any(item.reason and item.reason.kind in NO_BASELINE for item in result.verdict.comparisons)
    return f"nothing was stored: {plain(result.not_stored)}" if result.not_stored and not said else ""


def release_texts(result: Result, *, only_losses: bool = False) -> Iterator[str]:
    """Yields changes since a release, if a history tells them; or only losses that are sure."""
    verdict = result.verdict
    old = verdict.against if verdict.against and not verdict.code_notes else "the last baseline"
    for item in verdict.comparisons:
        if item.since_release is None:
            continue
        release, change, *bounds = item.since_release
        if only_losses and min(METRICS[item.metric].worse_sign * bound for bound in bounds) <= 0:
            continue
        low, high = (format_change(bound, unit=False) for bound in bounds)
        since = f"{item.metric} {format_change(change)} since {plain(release)} [90 %: {low}, {high}]"
        yield f"{since}, {change_text(item)} since {plain(old)}"


# --- The server's way with connections

_EACH, _FEW = 0.95, 0.01
"""Shares of answers. A server that closes a connection from time to time, as after 1,000 requests, is usual."""


def _breach_texts(run: Measurement) -> tuple[str, ...]:
    given_up, closed = (format_count(count, "connection") for count in (run.out_of_step, run.closed_unsaid))
    share = format_share(min(1.0, run.closed_unsaid / max(1, run.requests + run.errors)))
    cut_off = f"the server cut off {format_count(run.cut_off, 'request')}: it answered before it had read all of it"
    return (
        cut_off * bool(run.cut_off),
        f"the server sent more than the answer, so {given_up} had to be opened anew" * bool(run.out_of_step),
        f"the server closed {closed} without notice, after {share} of the answers" * bool(run.closed_unsaid),
        reconnect_text(run),
    )


def reconnect_text(run: Measurement) -> str:
    """Returns how often the server closed a connection that was then opened again; empty if that was rare."""
    share = run.closed_said / max(1, run.http_requests)
    if share < _FEW:
        return ""
    if share < _EACH:
        closed = format_count(run.closed_said, "connection")
        return f"the server closed {closed}, after {format_share(share)} of the answers"
    opened, requests = format_count(run.opened, "connection"), format_count(run.http_requests, "request")
    return f"the server closed the connection after each answer: {opened} for {requests}"


# --- How figures came to be: answers, the warm-up, and changes from start-up to start-up

_KINDS = 3


def _other_answers_text(other: OtherAnswers) -> str:
    whose = f"answers of {plain(other.of)}" if other.of else "answers"
    texts = []
    if other.sizes:
        base, now = (format_bytes(round(size)) for size in other.sizes)
        texts.append(f"{whose} have other sizes: {base} before, {now} now")
    if other.base_statuses or other.now_statuses:
        base, now = (
            " and ".join(f"{status} in {format_share(share)}" for status, share in shares.items())
            for shares in (other.base_statuses, other.now_statuses)
        )
        texts.append(f"{whose} have other statuses: {base} before, {now} now")
    return "; ".join(texts)


def _warm_up_texts(result: Result) -> Iterator[str]:
    for recording, whose in _sides(result):
        warm_up = sum((boot.warm_up for boot in recording.boots), WarmUp())
        if not warm_up.failed:
            continue
        kinds = [f"{failure.count:,} × {plain(failure.kind)}" for failure in warm_up.failures[:_KINDS]]
        if rest := sum(failure.count for failure in warm_up.failures[_KINDS:]):
            kinds.append(f"{rest:,} others")
        boots = f" in {format_count(len(recording.boots), 'start-up')}" if len(recording.boots) > 1 else ""
        counts = f"{warm_up.failed:,} of {warm_up.made:,} warm-up requests{whose} failed{boots}"
        yield f"{counts}: {', '.join(kinds)}"


def _restart_texts(result: Result) -> Iterator[str]:
    for recording, whose in _sides(result):
        if ended := sum(boot.processes_ended for boot in recording.boots):
            yield f"{ended:,} process{'es' * (ended != 1)} of the server{whose} ended during the load"


def _sides(result: Result) -> list[tuple[Recording, str]]:
    """Returns the recordings of a result, and whose they are if there are two."""
    if result.base is None:
        return [(result.recording, "")]
    return [(result.base, " of the old code"), (result.recording, " of the new code")]


def _trend_text(result: Result) -> str:
    if result.test.own or result.capacity is not None:
        return ""
    recording, now = result.recording, trend_of(result.recording)
    base: tuple[float, ...] = ()
    if result.base is not None and (base := trend_of(result.base)):
        recording = result.base
    levels = base or now
    if not levels:
        return ""
    of_rate, falls = not recording.open_loop, levels[-1] < levels[0]
    if base and now and falls == (now[-1] < now[0]):
        where, courses = " in both versions", f"{_course(base, of_rate)} before, {_course(now, of_rate)} now"
    else:
        whose = "the old code" if base else "the new code"
        where, courses = "" if result.base is None else f" of {whose}", _course(levels, of_rate)
    moved = "fell" if falls else "rose"
    why = "Something is kept between start-ups"
    why += ", or the machine changed" if may_be_machine(recording, levels) else ""
    return f"{'requests/s' if of_rate else 'latency'} {moved} from start-up to start-up{where} ({courses}). {why}"


def _course(levels: Sequence[float], of_rate: bool) -> str:
    unit = Unit.PER_SECOND if of_rate else Unit.SECONDS
    return f"{quantity(levels[0], unit)} → {quantity(levels[-1], unit)} over {len(levels)} start-ups"


def _memory_texts(result: Result) -> Iterator[str]:
    for comparison in result.verdict.comparisons:
        if comparison.after_requests is None:
            continue
        text = f"{comparison.metric} compares the memory after {comparison.after_requests:,} requests"
        if result.base is not None:
            reached = [
                max((boot.memory[-1][0] for boot in recording.boots if boot.memory), default=0)
                for recording in (result.base, result.recording)
            ]
            if min(reached) * 1.5 < max(reached):  # one version has answered many more
                text += f". Start-ups answered up to {reached[0]:,} before and {reached[1]:,} now"
        yield text


# --- The bottleneck, and other use of the machine


def _law_text(result: Result) -> str:
    law = result.measurement.law
    if law is None or law.agrees or result.smoke or result.test.step or result.test.part:
        return ""
    if law.is_short:
        return (
            f"requests/s are rough, because a request takes {time_text(law.latency)}, longer than each start-up"
            " was measured. Use a longer duration"
        )
    return (
        f"requests/s are rough: {law.in_flight:.1f} requests in flight ÷ {time_text(law.latency)}"
        f" of latency = {_rate(law.by_law)}, not {_rate(law.rps)}. Use a longer duration"
    )


def _saturated_text(result: Result) -> str:
    # A capacity's remarks cover this: its figures come from loads that the generator could make.
    if result.smoke or not result.measurement.saturated or result.capacity is not None:
        return ""
    use = result.measurement.client
    if len(use.generators) < 2:
        who = f"the load generator used {use.cpu_share * 100:.0f} % of its core"
    else:
        busiest = max(use.generators, key=lambda own: own.cpu_share)
        who = (
            f"load generator {busiest.number} of {len(use.generators)} used {busiest.cpu_share * 100:.0f} % of its core"
        )
    return f"{who}, so these figures are its own and not the server's"


def traced_text(result: Result) -> str:
    recording = result.recording
    if not recording.tracer:
        return ""
    where = ", because the app ran in the pytest process" if recording.engine == "in-process" else ""
    return f"traced by {recording.tracer}{where}. Traced code is slower, and never compared with untraced code"


def _processes_text(result: Result) -> str:
    changed = result.recording.processes_changed or (result.base.processes_changed if result.base else "")
    return f"the server's processes changed ({changed}), so their CPU and memory are unknown" if changed else ""


def _left_text(result: Result) -> str:
    sides = [("the old code", result.base), ("the new code", result.recording)] if result.base else []
    said = [
        f"{whose} still used {format_share(round(recording.left_share, 2))} of a core after its last answer."
        " It cannot sustain these requests/s, and CPU per request leaves that work out"
        for whose, recording in sides or [("the server", result.recording)]
        if recording.left_share
    ]
    if not said and any(boot.was_at_work for boot in result.recording.boots):
        said.append("the server was still busy with an earlier load when this one began")
    return "; ".join(said)


def _one_core_text(result: Result) -> str:
    use = result.measurement.server
    if use.cores != 1 or (use.children_cpu_share or 0.0) < CHILDREN_WORK:
        return ""
    return "the server and its child processes shared one core. On more cores they may be faster"


_GROWING = {"open_files": "open files", "threads": "threads", "memory_bytes": "memory"}
"""Names of resources that a server may gather."""
_AS_WELL, _HARDLY = 0.5, 0.1
"""Parts of a lasting growth. From the first on the other version grew too; up to the second it did not."""


def _growth_texts(result: Result) -> tuple[str, ...]:
    """Reports that the server ran out of open files, and resources that it gathered with each request."""
    if result.smoke:
        return ()
    now, base = result.recording.growth, result.base.growth if result.base else None
    limit = max((own.files_limit for own in (now, base) if own and own.files_limit), default=0)
    ran_out = f"the server used all {limit:,} open files that its shell allows (`ulimit -n`)" if limit else ""
    return (ran_out, *(_grew_text(name, what, now, base) for name, what in _GROWING.items()))


def _grew_text(name: str, what: str, now: Growth | None, base: Growth | None) -> str:
    by_now, by_base = (None if own is None else getattr(own, name) for own in (now, base))
    lasts_now, lasts_base = (own is not None and name in own.lasting for own in (now, base))
    if lasts_now and by_now is not None:
        old = "" if by_base is None else _than(name, by_base, by_now, "with the old code")
        return f"{what} grew by {_each(name, by_now)} per request{old}"
    if lasts_base and by_base is not None and by_now is not None:
        now_text = _than(name, by_now, by_base, "now")
        return f"{what} of the old code grew by {_each(name, by_base)} per request{now_text}"
    return ""


def _than(name: str, other: float, value: float, whose: str) -> str:
    """Compares the other version with this growth. Between the two bounds there is nothing certain to say."""
    if other >= _AS_WELL * value:
        return f", and by {_each(name, other)} {whose}"
    return f", and did not {whose}" if other <= _HARDLY * value else ""


def _each(name: str, value: float) -> str:
    return format_bytes(value) if name == "memory_bytes" else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def busy_text(result: Result) -> str:
    busy = result.measurement.busy
    return f"the machine was busy: {busy}" if busy.is_busy and not result.smoke else ""


def _iterations_text(result: Result) -> str:
    """Explains requests/s if an iteration, for example of a journey, makes several HTTP requests; else empty."""
    run = result.measurement
    if result.smoke or result.test.step or run.http_requests <= run.requests + run.errors:
        return ""
    iterations = f"{format_count(run.requests + run.errors, 'iteration')}, {_rate(run.rps)}"
    http = f"{run.http_requests:,} HTTP requests, {_rate(run.http_rps)}"
    return f"requests/s counts iterations: {iterations}. They made {http}"


# --- The capacity


def capacity_text(result: Result) -> str:
    """Returns the capacity in one line: interval, limits and bottleneck; empty if nobody searched for it."""
    found = result.capacity
    if found is None or found.ended is CapacityEnd.SMOKE:
        return ""
    limits = ", ".join(
        f"{name} {quantity(limit, METRICS[name.partition('_')[2]].unit)}"
        for name, limit in found.limits.items()
        if limit > 0
    )
    if found.ended is CapacityEnd.NO_RATE:
        return f"capacity: every rate breaks {limits}, even the lowest one tried, {_rate(found.high)}"
    interval = f"{_rate(found.rate)} [{format_rate(found.low)}, {format_rate(found.high)}]"
    said = [f"capacity {f'at least {_rate(found.rate)}' if math.isinf(found.high) else interval} with {limits}"]
    if found.ended is CapacityEnd.GENERATOR:
        said.append("the load generator could not send faster, so the server's own capacity is not known")
    elif not found.broken:
        said.append("no load broke a limit in this time, try a longer max_duration")
    else:
        said.append(f"{found.broken} breaks first")
    if found.closed_rps:
        said.append(f"closed loop {_rate(found.closed_rps)}")
    if found.ended is CapacityEnd.FOUND and found.broken:
        unclear = found.limit.kind is LimitKind.UNCLEAR
        evidence = f": {found.limit.evidence}" if found.limit.evidence else ""
        said.append(f"the limit above it is unclear{evidence}" if unclear else f"limited above it by {found.limit}")
    return "; ".join(said)


def _rate(rate: float) -> str:
    return quantity(rate, Unit.PER_SECOND)
