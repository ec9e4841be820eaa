"""The lines under a test in the result table: gates, limits, failures, notes, and with verbosity every figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.verdict import Comparison, LimitCheck, Outcome
from pytest_fileperf.measure.measurement import LatencySummary
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.report.result import Result, Standing
from pytest_fileperf.report.text import (
    Style,
    amount,
    cells,
    change,
    exact,
    flow,
    pad,
    paint,
    percent,
    plain,
    quantity,
    shorten,
    words,
)
from pytest_fileperf.units import format_share

__all__ = (
    "STYLES",
    "compared",
    "failure_lines",
    "figure_lines",
    "gate_lines",
    "limit_lines",
    "notes",
    "reason_lines",
    "reasons",
    "setting",
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
STABILISERS = ("hash seed", "addresses", "allocator")
"""What `Boot.stabilised` can name."""
_INDENT = 2
_HANGING = 4
_EXAMPLE_KINDS = 3
_EXAMPLE_CELLS = 160


def compared(result: Result) -> tuple[Comparison, ...]:
    """Returns the comparisons that have figures of both sides."""
    return tuple(item for item in result.verdict.comparisons if item.base is not None and item.now is not None)


def gate_lines(comparisons: Sequence[Comparison], *, width: int, colour: bool) -> list[str]:
    """Returns a line for each comparison: metric, baseline → now, change and interval, tolerance, outcome."""
    rows = [_gate_cells(comparison) for comparison in comparisons]
    sizes = [max((cells(row[column]) for row in rows), default=0) for column in range(4)]
    aligned = _INDENT + sum(sizes) + 8 + max((cells(row[4]) for row in rows), default=0) <= width
    lines = []
    for row, comparison in zip(rows, comparisons, strict=True):
        if aligned:
            row = [pad(text, size) for text, size in zip(row, sizes, strict=False)] + row[4:]
        styles = [Style.NONE] * 4 + [STYLES[Standing(comparison.outcome.value)]]
        lines += flow(zip(row, styles, strict=True), width=width, indent=_INDENT, hanging=_HANGING, colour=colour)
    return [line.rstrip() for line in lines]


def _gate_cells(comparison: Comparison) -> list[str]:
    unit = METRICS[comparison.metric].unit
    assert comparison.base is not None
    assert comparison.now is not None
    moved = change(comparison.change) if comparison.change is not None else "?"
    if comparison.low is not None and comparison.high is not None:
        moved += f" [{change(comparison.low, unit=False)}, {change(comparison.high, unit=False)}]"
    return [
        comparison.metric,
        f"{quantity(comparison.base, unit)} → {quantity(comparison.now, unit)}",
        moved,
        f"tolerance {percent(comparison.tolerance)}",
        comparison.outcome.value,
    ]


def reasons(result: Result) -> tuple[tuple[Outcome, str], ...]:
    """Returns why metrics have the outcome they have, where the judge says so; equal reasons are one."""
    groups: dict[tuple[Outcome, str], list[Comparison]] = {}
    for comparison in result.verdict.comparisons:
        remedied = comparison.outcome is Outcome.NEW and result.baseline_written
        if comparison.reason and not remedied:
            reason = _unfit_reason(result) if comparison.outcome is Outcome.NEW else ""
            groups.setdefault((comparison.outcome, reason or plain(comparison.reason)), []).append(comparison)
    found = []
    for (outcome, reason), members in groups.items():
        text = f"{', '.join(member.metric for member in members)}: {reason}"
        unsaid = [_could_show(member) for member in members if _detectable_unsaid(member)]
        if unsaid:
            text += f" ({', '.join(unsaid)})"
        found.append((outcome, text))
    return tuple(found)


def _unfit_reason(result: Result) -> str:
    """Returns why a NEW run does not become a baseline: to ask for it would be no help."""
    return f"there is no baseline, and {result.unfit} does not become one" if result.unfit else ""


def _detectable_unsaid(comparison: Comparison) -> bool:
    """Returns whether the reader must still be told how small a change could have been seen."""
    if comparison.outcome is not Outcome.INCONCLUSIVE or comparison.detectable is None:
        return False
    return format_share(comparison.detectable) not in comparison.reason


def reason_lines(found: Iterable[tuple[Outcome, str]], *, indent: int, width: int, colour: bool) -> list[str]:
    """Returns the lines for some `reasons`."""
    lines = []
    for outcome, text in found:
        lead = (outcome.value, STYLES[Standing(outcome.value)])
        lines += _prose(text, lead=lead, indent=indent, width=width, colour=colour)
    return lines


def _prose(
    text: str, *, width: int, colour: bool, lead: tuple[str, Style] | None = None, indent: int = _INDENT
) -> list[str]:
    pieces = [lead, *words(text)] if lead else words(text)
    return flow(pieces, width=width, indent=indent, hanging=indent + 2, gap=1, colour=colour)


def limit_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns a line for each absolute limit that does not hold."""
    lines = []
    for check in result.verdict.limits:
        if not check.holds:
            reason = f"; {plain(check.reason)}" if check.reason else ""
            lead = (Standing.LIMIT.value, STYLES[Standing.LIMIT])
            lines += _prose(f"{_limit_text(check)}{reason}", lead=lead, width=width, colour=colour)
    return lines


def _limit_text(check: LimitCheck) -> str:
    """Returns `min_rps 800/s, measured 612/s`; with all digits where rounding would make them look equal."""
    unit = METRICS[check.metric].unit
    limit = quantity(check.limit, unit)
    if check.value is None:
        return f"{check.name} {limit}, not measured"
    value = quantity(check.value, unit)
    if value == limit and not check.holds:
        limit, value = exact(check.limit, unit), exact(check.value, unit)
    return f"{check.name} {limit}, measured {value}"


def failure_lines(result: Result, *, width: int, colour: bool, all_kinds: bool = False) -> list[str]:
    """Returns the failed requests by kind with the first example of each: the most frequent kinds, or `all_kinds`."""
    if result.measurement.requests == 0 and not result.measurement.failures:
        return _prose("no request was made", lead=("FAILED", Style.BAD), width=width, colour=colour)
    failures = result.measurement.failures
    shown = failures if all_kinds else failures[:_EXAMPLE_KINDS]
    lines = []
    for failure in shown:
        example = plain(failure.example)
        if not all_kinds:
            example = shorten(example, _EXAMPLE_CELLS)
        text = f"{failure.kind}: {example}" if example and example != failure.kind else failure.kind
        lines += _prose(text, lead=(f"{failure.count:,}× failed:", Style.BAD), width=width, colour=colour)
    rest = failures[len(shown) :]
    if rest:
        count = sum(failure.count for failure in rest)
        lines += _prose(
            f"and {count:,} more of {len(rest)} other kind{'s' * (len(rest) != 1)} (-v shows all)",
            width=width,
            colour=colour,
        )
    return lines


def setting(result: Result) -> tuple[str, ...]:
    """Returns server, load and what was held equal between boots, in words: often the same for a whole session."""
    stabilised = _stabilised(result.recording)
    words = [result.server, result.load]
    if stabilised:
        words.append(f"boots stabilised: {', '.join(stabilised)}")
    return tuple(plain(word) for word in words if word)


def _stabilised(recording: Recording) -> tuple[str, ...]:
    """Returns what every boot held equal."""
    return tuple(name for name in STABILISERS if recording.boots and all(name in b.stabilised for b in recording.boots))


def notes(result: Result) -> tuple[str, ...]:
    """Returns what a reader must know to judge the figures, as sentences without a full stop."""
    recording, measurement = result.recording, result.measurement
    found = []
    if measurement.saturated or result.verdict.saturated:
        share = f"{measurement.client.cpu_share * 100:.0f} % of its core"
        found.append(f"generator saturated: {share}; these figures are the generator's own")
    if recording.engine != "replay" and recording.why_engine:
        found.append(f"engine {recording.engine}: {plain(recording.why_engine)}")
    if recording.engine != "in-process" and not recording.pinned and not result.smoke:
        found.append("server and generator shared cores")
    held = _stabilised(recording)
    missing = [name for name in STABILISERS if name not in held]
    if held and missing:
        found.append(f"boots stabilised in part, without: {', '.join(missing)}")
    if result.baseline_written:
        found.append("stored as the new baseline")
    found += [plain(note) for note in recording.notes]
    return tuple(dict.fromkeys(found))


def figure_lines(result: Result, *, width: int, colour: bool, said: Sequence[str] = ()) -> list[str]:
    """Returns every figure of the measurement, a titled row a subject, without what was `said` of its setting."""
    rows = (
        ("work", [result.work, *(text for text in setting(result) if text not in said)]),
        ("latency", [*_spread(result.measurement.latency), *_within(result.measurement.latency)]),
        ("ttfb", _spread(result.measurement.ttfb)),
        ("bytes", _bytes(result)),
        ("answers", _answers(result)),
        ("failures", [f"{kind} × {count:,}" for kind, count in result.measurement.error_kinds.items()]),
        ("server", _server(result)),
        ("generator", _generator(result)),
        ("run", _run(result)),
        ("limits", [f"{_limit_text(check)}: holds" for check in result.verdict.limits if check.holds]),
        ("gate", [_could_show(item) for item in result.verdict.comparisons if item.detectable is not None]),
    )
    size = max(len(title) for title, _ in rows)
    lines = []
    for title, texts in rows:
        pieces = [(plain(text), Style.NONE) for text in texts]
        head = " " * _INDENT + paint(pad(title, size), Style.DIM, colour=colour)
        hanging = _INDENT + size + 2
        body = flow(pieces, width=width, indent=hanging, hanging=hanging)
        lines += [head + line[_INDENT + size :] if not at else line for at, line in enumerate(body)]
    return lines


def _spread(latency: LatencySummary) -> list[str]:
    if latency.count == 0:
        return ["no successful request"]
    named = (
        ("min", latency.min),
        ("mean", latency.mean),
        ("stdev", latency.stdev),
        ("p50", latency.p50),
        ("p75", latency.p75),
        ("p90", latency.p90),
        ("p95", latency.p95),
        ("p99", latency.p99),
        ("p99.9", latency.p999),
        ("max", latency.max),
    )
    return [f"{name} {amount(value, Unit.SECONDS)}" for name, value in named]


def _within(latency: LatencySummary) -> list[str]:
    return [f"{latency.within_one_stdev * 100:.0f} % within one stdev of the mean"] if latency.count > 1 else []


def _bytes(result: Result) -> list[str]:
    run = result.measurement
    return [
        f"sent {quantity(run.bytes_sent_per_second, Unit.BYTES_PER_SECOND)}",
        f"received {quantity(run.bytes_received_per_second, Unit.BYTES_PER_SECOND)}",
        f"in all {amount(run.bytes_sent, Unit.BYTES)} and {amount(run.bytes_received, Unit.BYTES)}",
    ]


def _answers(result: Result) -> list[str]:
    run = result.measurement
    ratio = "almost 100 %" if run.errors and run.success_ratio > 0.9995 else percent(run.success_ratio)
    statuses = [f"status {status} × {count:,}" for status, count in run.statuses.items()]
    return [f"{run.requests:,} good ({ratio})", *statuses]


def _server(result: Result) -> list[str]:
    use = result.measurement.server
    texts = []
    if use.cpu_per_request is not None:
        texts.append(f"CPU {quantity(use.cpu_per_request, Unit.SECONDS)}/request")
    if use.cpu_share is not None:
        texts.append(f"{use.cpu_share:.2f} cores busy")
    if use.peak_rss is not None:
        texts.append(f"peak RSS {quantity(use.peak_rss, Unit.BYTES)}")
    return texts or ["CPU and memory not measured"]


def _generator(result: Result) -> list[str]:
    use = result.measurement.client
    texts = [f"engine {use.engine}", f"CPU {use.cpu_share * 100:.0f} % of its core"]
    if use.cpu_per_request is not None:
        texts.append(f"{quantity(use.cpu_per_request, Unit.SECONDS)}/request")
    return texts


def _run(result: Result) -> list[str]:
    run, recording = result.measurement, result.recording
    rounds = len(recording.measured())
    boots = len(recording.boots)
    return [
        f"{run.connections:,} connection{'s' * (run.connections != 1)}",
        f"{boots} boot{'s' * (boots != 1)}",
        f"{rounds} round{'s' * (rounds != 1)} in {quantity(run.duration, Unit.SECONDS)}",
        f"wait {quantity(run.wait, Unit.SECONDS)}",
    ]


def _could_show(comparison: Comparison) -> str:
    assert comparison.detectable is not None
    return f"{comparison.metric}: a worsening of {percent(comparison.detectable)} could have been seen"
