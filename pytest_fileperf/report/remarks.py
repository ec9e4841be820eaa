"""The lines under a row of the result table: gates, limits, what limited the run, failures and notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.comparisons import change_text, interval_text, sides_text, world_outcome, world_text
from pytest_fileperf.report.details import (
    INDENT,
    NOTABLE,
    STYLES,
    Why,
    limit_text,
    noise_texts,
    other_kinds,
)
from pytest_fileperf.report.figures import event_texts
from pytest_fileperf.report.reasons import sentence
from pytest_fileperf.report.text import Style, cells, flow, pad, plain, quantity, shorten, words
from pytest_fileperf.units import format_share

__all__ = (
    "event_lines",
    "failure_lines",
    "gate_lines",
    "limit_lines",
    "limiting_lines",
    "limiting_text",
    "load_lines",
    "noise_lines",
    "note_lines",
    "reason_lines",
    "world_lines",
)

_HANGING = 4
_EXAMPLE_KINDS = 3
_EXAMPLE_CELLS = 160


def gate_lines(comparisons: Sequence[MetricComparison], *, width: int, colour: bool) -> list[str]:
    """Returns a line for each comparison: metric, baseline → now, change and interval, tolerance, outcome."""
    rows = [_gate_cells(comparison) for comparison in comparisons]
    sizes = [max((cells(row[column]) for row in rows), default=0) for column in range(4)]
    aligned = INDENT + sum(sizes) + 8 + max((cells(row[4]) for row in rows), default=0) <= width
    lines = []
    for row, comparison in zip(rows, comparisons, strict=True):
        if aligned:
            row = [pad(text, size) for text, size in zip(row, sizes, strict=False)] + row[4:]
        styles = [Style.NONE] * 4 + [STYLES[Standing(comparison.outcome.value)]]
        lines += flow(zip(row, styles, strict=True), width=width, indent=INDENT, hanging=_HANGING, colour=colour)
    return [line.rstrip() for line in lines]


def _gate_cells(comparison: MetricComparison) -> list[str]:
    return [
        comparison.metric,
        sides_text(comparison),
        f"{change_text(comparison)} {interval_text(comparison)}".rstrip(),
        f"tolerance {format_share(comparison.tolerance)}",
        comparison.outcome.value,
    ]


def world_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns what the world did to the baseline's own code; nothing where that is not known."""
    outcome = world_outcome(result.verdict)
    if outcome is None:
        return []
    style = STYLES[Standing(outcome.value)] if outcome in (Outcome.REGRESSED, Outcome.INCONCLUSIVE) else Style.DIM
    lead = [(word, style) for word in ("the", "world:")]
    pieces = [*lead, *words(world_text(result.verdict))]
    return flow(pieces, width=width, indent=INDENT, hanging=_HANGING, gap=1, colour=colour)


def reason_lines(
    found: Iterable[Why], *, indent: int, width: int, colour: bool, above: Iterable[MetricComparison] = ()
) -> list[str]:
    """Returns the lines of reasons, after the outcome, unless that ends the lines of all their gates `above`."""
    shown = {comparison.metric for comparison in above}
    lines = []
    for outcome, text, metrics in found:
        lead = None if shown.issuperset(metrics) else (outcome.value, STYLES[Standing(outcome.value)])
        lines += _prose(text, lead=lead, indent=indent, width=width, colour=colour)
    return lines


def _prose(
    text: str, *, width: int, colour: bool, lead: tuple[str, Style] | None = None, indent: int = INDENT
) -> list[str]:
    pieces = [lead, *words(text)] if lead else words(text)
    return flow(pieces, width=width, indent=indent, hanging=indent + 2, gap=1, colour=colour)


def limit_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns a line for each absolute limit that does not hold."""
    lines = []
    for check in result.verdict.limits:
        if not check.holds:
            reason = f"; {plain(sentence(check.reason))}" if check.reason else ""
            lead = (Standing.LIMIT.value, STYLES[Standing.LIMIT])
            lines += _prose(f"{limit_text(check)}{reason}", lead=lead, width=width, colour=colour)
    return lines


def noise_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns a line for each gate: how small a change it could have seen, where the code was compared with itself."""
    return [line for text in noise_texts(result) for line in _prose(text, width=width, colour=colour)]


def failure_lines(result: Result, *, width: int, colour: bool, all_kinds: bool = False) -> list[str]:
    """Returns the failed requests by kind with the first example of each: the most frequent kinds, or all of them."""
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
        lines += _prose(f"{other_kinds(rest)} (-v shows all)", width=width, colour=colour)
    return lines


def limiting_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns the line that names what limited the run, with its evidence."""
    return note_lines(limiting_text(result), indent=INDENT, width=width, colour=colour)


def limiting_text(result: Result) -> str:
    """Returns what limited the run, with its evidence."""
    limit = result.measurement.limit
    unclear = limit.kind is LimitKind.UNCLEAR
    return f"not clear what limited it: {limit.evidence}" if unclear else f"limited by {limit}"


def load_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns what a row leaves out about a load that was due at given times; nothing where all was sent on time."""
    run = result.measurement
    texts = [_finished(run), _service(run)]
    if run.late or run.dropped:
        texts.append(f"{run.late:,} sent late, {run.dropped:,} dropped")
    pieces = [(text, Style.DIM) for text in texts if text]
    return flow(pieces, width=width, indent=INDENT, hanging=_HANGING, colour=colour)


def event_lines(result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns the line about the events of streams; none without them."""
    pieces = [(text, Style.DIM) for text in event_texts(result.measurement)]
    return flow(pieces, width=width, indent=INDENT, hanging=_HANGING, colour=colour) if pieces else []


def _finished(run: Measurement) -> str:
    """Returns how long a given number of requests took; empty where they kept up with the rate that was asked for."""
    if run.due is None:
        return ""
    finished = f"finished in {_seconds(run.elapsed)}"
    if not run.open_loop or run.attack == 0:
        return finished
    return f"{finished}: attack {_seconds(run.attack)}, wait {_seconds(run.wait)}" * (
        run.elapsed >= run.attack * NOTABLE
    )


def _service(run: Measurement) -> str:
    """Returns the service time, where requests waited long before they were sent."""
    sent, due = run.service, run.latency
    if not sent.count or (due.p50 < sent.p50 * NOTABLE and due.p99 < sent.p99 * NOTABLE):
        return ""
    return f"service time p50 {_seconds(sent.p50)}, p99 {_seconds(sent.p99)}"


def _seconds(value: float) -> str:
    return quantity(value, Unit.SECONDS)


def note_lines(text: str, *, indent: int, width: int, colour: bool) -> list[str]:
    """Returns the lines of a remark."""
    return flow(words(text, Style.DIM), width=width, indent=indent, hanging=indent + 2, gap=1, colour=colour)
