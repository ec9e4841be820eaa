"""Texts about one result that all reports share: comparisons, reasons, setting, notes and every figure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pytest_fileperf.judge.noise import NoiseFloor
from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison, Outcome, ReasonKind
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import LatencySummary, Measurement
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import LATE_NS, Failure, Recording
from pytest_fileperf.report.breaches import breach_texts
from pytest_fileperf.report.capacity import capacity_text
from pytest_fileperf.report.comparisons import NO_BASELINE, code_text, not_stored_text
from pytest_fileperf.report.generators import generator_figures, generator_rows, saturated_share
from pytest_fileperf.report.reasons import sentence
from pytest_fileperf.report.text import Style, amount, exact, flow, pad, paint, plain, quantity
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.units import format_count, format_duration, format_share

__all__ = (
    "INDENT",
    "NOTABLE",
    "SPREAD",
    "STYLES",
    "Why",
    "busy_text",
    "event_texts",
    "figure_lines",
    "is_notable",
    "limit_text",
    "noise_texts",
    "notes",
    "other_kinds",
    "reasons",
    "saturated_text",
    "setting",
    "spread",
    "traced_text",
    "word_of",
)

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
INDENT = 2
"""Cells before a line that stands under a row."""
NOTABLE = 1.1
"""Ratio from which two times are worth showing apart."""
SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
"""The figures shown of a latency."""
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
        unsaid = [_could_show(member) for member in members if _detectable_unsaid(member)]
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
        return f"{floor.metric}: too few requests to tell what could be seen"
    needs = (f"{format_share(slower)} needs {_whole_seconds(seconds)}" for slower, seconds in floor.seconds_for.items())
    seen = f"{format_share(floor.smallest)} slower shows in {_whole_seconds(floor.seconds)}"
    return f"{floor.metric}: {seen}; {', '.join(needs)}"


def _whole_seconds(seconds: float) -> str:
    return format_duration(round(seconds) * 1_000_000_000)


def notes(result: Result) -> tuple[str, ...]:
    """Returns what a reader must know to judge the figures, as sentences without a full stop."""
    recording = result.recording
    found: list[str] = []
    found += breach_texts(result.measurement)
    if capacity := capacity_text(result):
        found.append(capacity)
    if saturated := saturated_text(result):
        found.append(saturated)
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
    if traced := traced_text(result):
        found.append(traced)
    if busy := busy_text(result):
        found.append(busy)
    if background := str(result.background or ""):
        found.append(background)
    if code := code_text(result.verdict, with_title=True):
        found.append(code)
    if result.baseline_written:
        found.append("stored as the new baseline")
    if not_stored := not_stored_text(result):
        found.append(not_stored)
    return tuple(dict.fromkeys(found))


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


def busy_text(result: Result) -> str:
    """Returns what others did on the machine; empty where it was quiet."""
    busy = result.measurement.busy
    return f"the machine was busy: {busy}" if busy.is_busy and not result.smoke else ""


def is_notable(limit: Limit) -> bool:
    """Returns whether something else than the server's CPU, or the load as it was asked for, set the pace.

    What is unclear tells nothing.
    """
    return limit.kind not in _EXPECTED_LIMITS


def figure_lines(result: Result, *, width: int, colour: bool, said: Sequence[str] = ()) -> list[str]:
    """Returns every figure of the measurement: a titled row for each subject, without the `said` parts of its setting.

    The figures of an open loop are vegeta's: the rate at which requests were due, the throughput over attack and wait.
    """
    run = result.measurement
    rows = (
        ("work", [result.work, *(text for text in setting(result) if text not in said)]),
        ("requests", _requests(run)),
        ("duration", _duration(run)),
        ("latency", [*_spread_texts(run.latency), *_within(run.latency)]),
        ("service", _spread_texts(run.service) if run.service.count else []),
        ("send delay", _send_delay(run)),
        ("ttfb", _spread_texts(run.ttfb)),
        ("events", [f"{run.events.count:,} in all", *event_texts(run)] if run.events.count else []),
        ("first event", _spread_texts(run.events.first) if run.events.first.count else []),
        ("event gap", _spread_texts(run.events.gap) if run.events.gap.count else []),
        ("bytes", _bytes(run)),
        ("answers", _answers(run)),
        ("failures", [f"{kind} × {count:,}" for kind, count in run.error_kinds.items()]),
        ("server", [] if result.test.part else _server(run)),
        ("generator", [] if result.test.part else generator_figures(run.client)),
        *([] if result.test.part else generator_rows(run)),
        ("run", _run(result)),
        ("limited by", [] if result.smoke or result.test.part else [str(run.limit)]),
        ("limits", [f"{limit_text(check)}: holds" for check in result.verdict.limits if check.holds]),
        ("gate", [_could_show(item) for item in result.verdict.comparisons if item.detectable is not None]),
    )
    size = max(len(title) for title, texts in rows if texts)
    lines = []
    for title, texts in rows:
        pieces = [(plain(text), Style.NONE) for text in texts]
        head = " " * INDENT + paint(pad(title, size), Style.DIM, colour=colour)
        hanging = INDENT + size + 2
        body = flow(pieces, width=width, indent=hanging, hanging=hanging)
        lines += [head + line[INDENT + size :] if not at else line for at, line in enumerate(body)]
    return lines


def _spread_texts(latency: LatencySummary) -> list[str]:
    if latency.count == 0:
        return ["no successful request"]
    return [f"{name} {amount(seconds, Unit.SECONDS)}" for name, seconds in spread(latency).items()]


def event_texts(run: Measurement) -> list[str]:
    """Returns the rate of the events of streams, when the first ones came, and the gaps; nothing without events."""
    events = run.events
    if not events.count:
        return []
    times = (("first event", events.first), ("gap", events.gap))
    return [
        f"{quantity(events.rate, Unit.PER_SECOND).removesuffix('/s')} events/s",
        *(
            f"{name} p50 {quantity(of.p50, Unit.SECONDS)}, p99 {quantity(of.p99, Unit.SECONDS)}"
            for name, of in times
            if of.count
        ),
    ]


def spread(latency: LatencySummary) -> dict[str, float]:
    """Returns the seconds of each of `SPREAD`."""
    return {name: getattr(latency, name.replace(".", "")) for name in SPREAD}


def _within(latency: LatencySummary) -> list[str]:
    return [f"{latency.within_one_stdev * 100:.0f} % within one stdev of the mean"] if latency.count > 1 else []


def _requests(run: Measurement) -> list[str]:
    """Returns how many requests were due, at which rate, and how many good answers came per second."""
    if run.due is None:
        return []
    due = [f"{run.due:,} due"] if run.attack else [f"{run.due:,} due at once"]
    if run.open_loop and run.due_rate is not None:
        due.append(f"rate {quantity(run.due_rate, Unit.PER_SECOND)}")
    if run.done_rate is not None:
        due.append(f"throughput {quantity(run.done_rate, Unit.PER_SECOND)}")
    return due


def _duration(run: Measurement) -> list[str]:
    if run.due is None:
        return []
    parts = (("attack", run.attack), ("wait", run.wait))
    return [
        f"{quantity(run.elapsed, Unit.SECONDS)} in all",
        *(f"{name} {quantity(seconds, Unit.SECONDS)}" for name, seconds in parts if run.attack),
    ]


def _send_delay(run: Measurement) -> list[str]:
    if not run.open_loop:
        return []
    delay = run.send_delay
    named = (("p50", delay.p50), ("p99", delay.p99), ("max", delay.max)) if delay.count else ()
    return [
        *(f"{name} {quantity(seconds, Unit.SECONDS)}" for name, seconds in named),
        f"{run.late:,} sent late (more than {format_duration(LATE_NS)})",
        f"{run.dropped:,} dropped",
    ]


def _bytes(run: Measurement) -> list[str]:
    sent, received = run.bytes_sent, run.bytes_received
    mean = (f"{amount(value / max(1, run.requests), Unit.BYTES)}" for value in (sent, received))
    return [
        f"sent {quantity(run.bytes_sent_per_second, Unit.BYTES_PER_SECOND)}",
        f"received {quantity(run.bytes_received_per_second, Unit.BYTES_PER_SECOND)}",
        f"in all {amount(sent, Unit.BYTES)} and {amount(received, Unit.BYTES)}",
        f"a request {' and '.join(mean)}",
    ]


def _answers(run: Measurement) -> list[str]:
    ratio = "almost 100 %" if run.errors and run.success_ratio > 0.9995 else format_share(run.success_ratio)
    statuses = [f"status {status} × {count:,}" for status, count in run.statuses.items()]
    return [f"{run.requests:,} good ({ratio})", *statuses]


def _server(run: Measurement) -> list[str]:
    use = run.server
    texts = []
    if use.cpu_per_request is not None:
        texts.append(f"CPU {quantity(use.cpu_per_request, Unit.SECONDS)}/request")
    if use.cpu_share is not None:
        texts.append(f"{use.cpu_share:.2f} cores busy")
    if len(use.worker_cpu_shares) > 1:
        busiest, *_, idlest = use.worker_cpu_shares
        texts.append(
            f"its {len(use.worker_cpu_shares)} workers {busiest * 100:.0f} % to {idlest * 100:.0f} % of a core"
        )
    if use.peak_rss is not None:
        texts.append(f"peak RSS {quantity(use.peak_rss, Unit.BYTES)}")
    return texts or ["CPU and memory not measured"]


def _run(result: Result) -> list[str]:
    run, recording = result.measurement, result.recording
    return [
        format_count(run.connections, "connection"),
        format_count(len(recording.boots), "boot"),
        f"{format_count(len(recording.measured()), 'round')} in {quantity(run.duration, Unit.SECONDS)}",
        *([f"wait {quantity(run.wait, Unit.SECONDS)}"] if run.due is None else []),
    ]


def _could_show(comparison: MetricComparison) -> str:
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
