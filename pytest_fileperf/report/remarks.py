"""Sentences on how one result's figures came to be. `story` chooses among these sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_fileperf.judge.evidence import OtherAnswers
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.unit import may_be_machine, trend_of
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.growth import Growth
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Recording, WarmUp
from pytest_fileperf.measure.usage import CHILDREN_WORK
from pytest_fileperf.report.text import amount, plain, quantity, queries_text, rate_text, time_text
from pytest_fileperf.report.wording import change_text
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import format_bytes, format_change, format_count, format_rate, format_share

_SLOW_S = 0.25
"""With slower requests, the 30 s of a comparison have fewer than six cycles (a turn on each version)."""
_FEW_CONNECTIONS = 8


def stabilised_text(recording: Recording) -> str:
    names = _stabilised(recording)
    return f"not left to chance in start-ups: {', '.join(names)}" if names else ""


def unstabilised_text(recording: Recording) -> str:
    """Returns the properties that differ by chance between start-ups, unless all differ."""
    names = _stabilised(recording)
    missing = [name for name in STABILISERS if name not in names]
    return f"start-ups differ by chance in: {', '.join(missing)}" if names and missing else ""


def _stabilised(recording: Recording) -> list[str]:
    boots = recording.boots
    return [name for name in STABILISERS if boots and all(name in boot.stabilised for boot in boots)]


def engine_text(recording: Recording) -> str:
    """Returns why the fastest engine, `replay`, did not send the requests; empty if `replay` sent them."""
    is_usual = recording.engine == "replay" or not recording.why_engine
    return "" if is_usual else f"engine {recording.engine}: {plain(recording.why_engine)}"


def event_texts(run: Measurement) -> list[str]:
    """Returns the rate of a stream's events, and the times to the first event and between events."""
    events = run.events
    if not events.count:
        return []
    times = (("first event", events.first), ("gap", events.gap))
    return [
        f"{amount(events.rate, Unit.PER_SECOND)} events/s",
        *(f"{name} p50 {time_text(of.p50)}, p99 {time_text(of.p99)}" for name, of in times if of.count),
    ]


def query_texts(run: Measurement) -> list[str]:
    return [] if run.server.queries is None else [queries_text(run.server.queries)]


def release_texts(result: Result, *, only_losses: bool = False) -> Iterator[str]:
    """Yields each metric's change since the last release, if there is a history.

    With `only_losses`, yields only changes that are certainly worse.
    """
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


# --- How the server treats connections


def breach_texts(run: Measurement) -> tuple[str, ...]:
    given_up, closed = (format_count(count, "connection") for count in (run.out_of_step, run.closed_unsaid))
    share = format_share(min(1.0, run.closed_unsaid / max(1, run.requests + run.errors)))
    cut_off = f"the server answered {format_count(run.cut_off, 'request')} before it had read the whole request"
    return (
        cut_off * bool(run.cut_off),
        f"the server sent more bytes than its answer has, so {given_up} had to be opened anew" * bool(run.out_of_step),
        f"the server closed {closed} without announcing it, after {share} of its answers" * bool(run.closed_unsaid),
        reconnect_text(run),
    )


def reconnect_text(run: Measurement) -> str:
    """Returns how often the server closed a connection after an answer. Empty if this was rare."""
    share = run.closed_said / max(1, run.http_requests)
    if share < 0.01:  # many servers close a connection from time to time, for example after 1,000 requests
        return ""
    if share < 0.95:
        closed = format_count(run.closed_said, "connection")
        return f"the server closed {closed}, each after an answer ({format_share(share)} of all answers)"
    opened, requests = format_count(run.opened, "connection"), format_count(run.http_requests, "request")
    return f"the server closed the connection after each answer: {opened} for {requests}"


def new_reconnect_text(result: Result) -> str:
    """Returns `reconnect_text` if the old version kept its connections open, so that opening them may be the cause."""
    text, rounds = reconnect_text(result.measurement), () if result.base is None else result.base.measured()
    closed, answered = sum(one.closed_said for one in rounds), sum(one.requests for one in rounds)
    return f"{text}. The old code kept them open" if text and closed < 0.01 * answered else ""


# --- Answers, the warm-up, and changes from start-up to start-up


def other_answers_text(other: OtherAnswers) -> str:
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


def warm_up_texts(result: Result) -> Iterator[str]:
    for recording, whose in _sides(result):
        warm_up = sum((boot.warm_up for boot in recording.boots), WarmUp())
        if not warm_up.failed:
            continue
        kinds = [f"{failure.count:,} × {plain(failure.kind)}" for failure in warm_up.failures[:3]]
        if rest := sum(failure.count for failure in warm_up.failures[3:]):
            kinds.append(f"{rest:,} others")
        boots = f" in {format_count(len(recording.boots), 'start-up')}" if len(recording.boots) > 1 else ""
        of = whose and f" of {whose}"
        yield f"{warm_up.failed:,} of {warm_up.made:,} warm-up requests{of} failed{boots}: {', '.join(kinds)}"


def restart_texts(result: Result) -> Iterator[str]:
    for recording, whose in _sides(result):
        if ended := sum(boot.processes_ended for boot in recording.boots):
            of = whose and f" of {whose}"
            yield f"{ended:,} process{'es' * (ended != 1)} of the server{of} ended during the load"


def _sides(result: Result) -> list[tuple[Recording, str]]:
    """Returns each version's recording and name, the old one first. A single version has an empty name."""
    if result.base is None:
        return [(result.recording, "")]
    return [(result.base, "the old code"), (result.recording, "the new code")]


def drift_text(result: Result) -> str:
    """Returns how requests/s or latency moved from start-up to start-up. Empty if chance explains it."""
    if result.test.own or result.capacity is not None:
        return ""
    recording, now = result.recording, trend_of(result.recording, result.base)
    base: tuple[float, ...] = ()
    if result.base is not None and (base := trend_of(result.base, result.recording)):
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
    why = "Start-ups share something, such as a database or files"
    why += ", or the machine changed" if may_be_machine(recording, levels) else ""
    return f"{'requests/s' if of_rate else 'latency'} {moved} from start-up to start-up{where} ({courses}). {why}"


def _course(levels: Sequence[float], of_rate: bool) -> str:
    unit = Unit.PER_SECOND if of_rate else Unit.SECONDS
    return f"{quantity(levels[0], unit)} → {quantity(levels[-1], unit)} over {len(levels)} start-ups"


def memory_texts(result: Result) -> Iterator[str]:
    for comparison in result.verdict.comparisons:
        if comparison.after_requests is None:
            continue
        text = f"{comparison.metric} is compared after {comparison.after_requests:,} requests"
        if result.base is not None:
            reached = [
                max((boot.memory[-1][0] for boot in recording.boots if boot.memory), default=0)
                for recording in (result.base, result.recording)
            ]
            if min(reached) * 1.5 < max(reached):  # one version has answered many more
                text += (
                    ", because each start-up answered at least so many. "
                    f"The old code answered up to {reached[0]:,}, the new code up to {reached[1]:,}"
                )
        yield text


# --- The bottleneck, and other use of the machine


def law_text(result: Result) -> str:
    law = result.measurement.law
    if law is None or law.agrees or result.smoke or result.test.step or result.test.part:
        return ""
    if law.is_short:
        return (
            f"requests/s are rough, because a request takes {time_text(law.latency)}. That is longer than the time for"
            " which each start-up was measured. Use a longer duration"
        )
    return (
        f"requests/s are rough: {law.in_flight:.1f} requests in flight ÷ {time_text(law.latency)}"
        f" of latency = {rate_text(law.by_law)}, not {rate_text(law.rps)}. Use a longer duration"
    )


def saturated_text(result: Result) -> str:
    # After a search for the capacity, `capacity_text` reports this. The capacity's figures come only from loads that
    # the generator could make.
    if result.smoke or not result.measurement.saturated or result.capacity is not None:
        return ""
    use, who = result.measurement.client, "the load generator"
    share = use.cpu_share
    if len(use.generators) > 1:
        busiest = max(use.generators, key=lambda own: own.cpu_share)
        who, share = f"load generator {busiest.number} of {len(use.generators)}", busiest.cpu_share
    return f"{who} used {share * 100:.0f} % of its core, so these figures show its speed and not the server's"


def traced_text(result: Result) -> str:
    recording = result.recording
    if not recording.tracer:
        return ""
    where = ", because the app ran in the pytest process" if recording.engine == "in-process" else ""
    return f"traced by {recording.tracer}{where}. Traced code is slower, and never compared with untraced code"


def processes_text(result: Result) -> str:
    changed = result.recording.processes_changed or (result.base.processes_changed if result.base else "")
    return f"the server's processes changed ({changed}), so their CPU and memory are unknown" if changed else ""


def left_text(result: Result) -> str:
    said = [
        f"{whose or 'the server'} still used {format_share(round(recording.left_share, 2))} of a core after its last"
        " answer. It cannot sustain these requests/s, and CPU per request leaves that work out"
        for recording, whose in _sides(result)
        if recording.left_share
    ]
    if not said and any(boot.was_at_work for boot in result.recording.boots):
        return "the server was still busy with an earlier load when this one began"
    return "; ".join(said)


def background_text(result: Result) -> str:
    """Returns how much CPU time each version's server used while the other version was loaded.

    Empty if `left_text` already says that a server was still at work.
    """
    return "" if left_text(result) else str(result.background or "")


def one_core_text(result: Result) -> str:
    use = result.measurement.server
    if use.cores != 1 or (use.children_cpu_share or 0.0) < CHILDREN_WORK:
        return ""
    return "the server and its child processes shared one core. On more cores they may be faster"


_GROWING = {"open_files": "open files", "threads": "threads", "memory_bytes": "memory"}
"""Names for the fields of `Growth`. A server may use more of these resources with each request."""


def growth_texts(result: Result) -> tuple[str, ...]:
    """Returns whether the server ran out of open files, and how its use of each resource grew."""
    if result.smoke:
        return ()
    now, base = result.recording.growth, result.base.growth if result.base else None
    limit = max((own.files_limit for own in (now, base) if own and own.files_limit), default=0)
    ran_out = f"the server used all {limit:,} open files that its shell allows (`ulimit -n`)" if limit else ""
    return (ran_out, *(_grew_text(name, what, now, base) for name, what in _GROWING.items()))


def _grew_text(name: str, what: str, now: Growth | None, base: Growth | None) -> str:
    """Returns how a resource grows with each request, in the new version or only in the old one."""
    by_now, by_base = (None if own is None else getattr(own, name) for own in (now, base))
    lasts_now, lasts_base = (own is not None and name in own.lasting for own in (now, base))
    if lasts_now and by_now is not None:
        by, other, of, whose = by_now, by_base, "", "with the old code"
    elif lasts_base and by_base is not None and by_now is not None:
        by, other, of, whose = by_base, by_now, " of the old code", "now"
    else:
        return ""
    text = f"{what}{of} grew by {_each(name, by)} per request"
    if other is None or 0.1 * by < other < 0.5 * by:  # nothing is certain about the other version
        return text
    return f"{text}, and did not {whose}" if other <= 0.1 * by else f"{text}, and by {_each(name, other)} {whose}"


def _each(name: str, value: float) -> str:
    return format_bytes(value) if name == "memory_bytes" else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def busy_text(result: Result) -> str:
    busy = result.measurement.busy
    return f"the machine was busy: {busy}" if busy.is_busy and not result.smoke else ""


def iterations_text(result: Result) -> str:
    """Returns the rates of iterations and of HTTP requests, if an iteration makes several requests."""
    run = result.measurement
    if result.smoke or result.test.step or run.http_requests <= run.requests + run.errors:
        return ""
    iterations = f"{format_count(run.requests + run.errors, 'iteration')}, {rate_text(run.rps)}"
    http = f"{run.http_requests:,} HTTP requests, {rate_text(run.http_rps)}"
    return f"requests/s counts iterations: {iterations}. They made {http}"


def slow_text(result: Result) -> str:
    """Returns advice for a new baseline whose requests wait for each other, so that comparisons would take long."""
    run, connections = result.measurement, result.recording.connections
    is_queue = run.limit.kind in (LimitKind.SERVER_CPU, LimitKind.THREAD_POOL, LimitKind.EVENT_LOOP)
    is_slow = run.latency.mean >= _SLOW_S and connections > _FEW_CONNECTIONS
    if not (result.baseline_written and is_queue and is_slow) or result.recording.open_loop or result.test.own:
        return ""
    return (
        f"a request takes {time_text(run.latency.mean)}, because {connections} connections wait for each other. With "
        f"fewer, such as connections={_FEW_CONNECTIONS}, a comparison decides sooner"
    )


# --- The capacity


def capacity_text(result: Result) -> str:
    """Returns the capacity with its interval, its limits and the bottleneck."""
    found = result.capacity
    if found is None or found.ended is CapacityEnd.SMOKE:
        return ""
    limits = ", ".join(
        f"{name} {quantity(limit, METRICS[name.partition('_')[2]].unit)}"
        for name, limit in found.limits.items()
        if limit > 0
    )
    if found.ended is CapacityEnd.NO_RATE:
        return f"capacity: every rate breaks {limits}, even the lowest one tried, {rate_text(found.high)}"
    interval = f"{rate_text(found.rate)} [{format_rate(found.low)}, {format_rate(found.high)}]"
    said = [f"capacity {f'at least {rate_text(found.rate)}' if math.isinf(found.high) else interval} with {limits}"]
    if found.ended is CapacityEnd.GENERATOR:
        said.append("the load generator could not send faster, so the server's own capacity is not known")
    elif not found.broken:
        said.append("no load broke a limit in this time, try a longer max_duration")
    else:
        said.append(f"{found.broken} breaks first")
    if found.closed_rps:
        said.append(f"closed loop reached {rate_text(found.closed_rps)}")
    if found.ended is CapacityEnd.FOUND and found.broken:
        unclear = found.limit.kind is LimitKind.UNCLEAR
        evidence = f": {found.limit.evidence}" if found.limit.evidence else ""
        known = f"higher rates are limited by {found.limit}"
        said.append(f"unclear what limits higher rates{evidence}" if unclear else known)
    return "; ".join(said)
