"""The lines under a row of the result table: gates, limits, what limited the run, failures and notes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.details import INDENT, NOTABLE, STYLES, Why, limit_text, noise_texts, other_kinds, word_of
from pytest_fileperf.report.figures import event_texts
from pytest_fileperf.report.text import Style, cells, flow, pad, plain, quantity, shorten, words
from pytest_fileperf.report.wording import (
    NOT_YOUR_CODE,
    change_text,
    failed_count,
    interval_text,
    sentence,
    sides_text,
    world_outcome,
    world_text,
)
from pytest_fileperf.units import format_count, format_share

__all__ = (
    "SLOWER_WORLD",
    "event_lines",
    "failure_lines",
    "figures_text",
    "gate_lines",
    "hints",
    "limit_lines",
    "limiting_lines",
    "limiting_text",
    "load_lines",
    "noise_lines",
    "note_lines",
    "reason_lines",
    "slower_world_lines",
    "slower_worlds",
    "summary_line",
    "summary_pieces",
    "undecided_lines",
    "undecided_texts",
    "unstored",
    "world_lines",
)


# --- Lines for pytest's short test summary: what is not decided, and what got slower without a change of the code
#
# INCONCLUSIVE tests/test_files.py::test_upload -
#   rps −4.0 % [−9.0, +1.0], tolerance 3 %
# SLOWER WORLD tests/test_files.py::test_form - your baseline's own code runs at
#   0.83 of what was stored (rps −17.0 % from 5,210/s): …

SLOWER_WORLD = "SLOWER WORLD"


def undecided_lines(nodeid: str, results: Iterable[Result], *, width: int, colour: bool) -> list[str]:
    """Returns the lines of one test, with the figures of its measurements that are undecided."""
    found = [text for result in results for text in undecided_texts(result)]
    pieces = [(Outcome.INCONCLUSIVE.value, Style.WARNING), (plain(nodeid), Style.BOLD)]
    if found:
        pieces += [("-", Style.NONE), *((f"{text};", Style.NONE) for text in found[:-1]), (found[-1], Style.NONE)]
    return flow(pieces, width=width, indent=0, hanging=2, gap=1, colour=colour)


def undecided_texts(result: Result) -> Sequence[str]:
    """Returns what was not decided, a text for each metric; empty where all was."""
    if not result.standing.is_undecided:
        return ()
    further = f" ({result.test.further})" * bool(result.test.further)
    if result.lost:
        return (f"{result.lost}: a part of the load is missing{further}",)
    if result.verdict.saturated:
        return (f"generator saturated: the figures are its own{further}",)
    undecided = [item for item in result.verdict.comparisons if item.outcome is Outcome.INCONCLUSIVE]
    unknown: dict[str, list[str]] = {}
    for item in undecided:
        if item.change is None:
            unknown.setdefault(_why_unknown(item), []).append(item.metric)
    return (
        *(figures_text(item, sides=False) + further for item in undecided if item.change is not None),
        *(f"{', '.join(metrics)}: {why}{further}" for why, metrics in unknown.items()),
    )


def _why_unknown(comparison: MetricComparison) -> str:
    """Returns why there is no change to show, without its details and what to do about it: the table has them."""
    return re.split(r": | \(", plain(sentence(comparison.reason)))[0] or "nothing to compare"


def figures_text(comparison: MetricComparison, *, sides: bool = True) -> str:
    """Returns `rps −4.0 % [−9.0, +1.0], 5,210/s → 5,001/s, tolerance 3 %`, or that without both sides."""
    change = f"{comparison.metric} {change_text(comparison)} {interval_text(comparison)}".rstrip()
    both = f"{sides_text(comparison)}, " * sides
    return f"{change}, {both}tolerance {format_share(comparison.tolerance)}"


def slower_worlds(results: Iterable[Result]) -> tuple[Result, ...]:
    """Returns the results whose baseline's own code got slower."""
    return tuple(result for result in results if world_outcome(result.verdict) is Outcome.REGRESSED)


def slower_world_lines(nodeid: str, result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns the lines of one measurement whose baseline's own code got slower."""
    pieces = [(SLOWER_WORLD, Style.BAD), (plain(nodeid), Style.BOLD), ("-", Style.NONE)]
    return flow([*pieces, *words(world_text(result.verdict))], width=width, indent=0, hanging=2, gap=1, colour=colour)


# --- How many measurements have which outcome, and what is to be done next


def summary_line(results: Sequence[Result], failed: Sequence[FailedTest] = ()) -> str:
    """Returns the counts in a line: `3 measured: 2 PASS, 1 NEW; store baselines with --fileperf-update=new`."""
    return " ".join(text for text, _ in summary_pieces(results, failed))


def summary_pieces(results: Sequence[Result], failed: Sequence[FailedTest] = ()) -> list[tuple[str, Style]]:
    """Returns the pieces of that line, for `flow`."""
    otherwise = failed_count(failed, measured=bool(results))
    if not results:
        return words("; ".join(filter(None, ("nothing was measured", otherwise))), Style.BAD if failed else Style.NONE)
    if all(result.smoke for result in results):
        bad = sum(result.standing.fails for result in results)
        found = f", {bad} FAILED" if bad else ""
        said = (f"{len(results)} measured{found}", otherwise, "smoke: a few requests each, nothing judged")
        return words("; ".join(filter(None, said)), Style.BAD if bad or failed else Style.NONE)
    counts = Counter(result.standing for result in results)
    found_words = [(f"{counts[each]} {word_of(each)}", STYLES[each]) for each in Standing if counts[each]]
    pieces = [(f"{len(results)} measured:", Style.BOLD)]
    pieces += [(text + ",", style) for text, style in found_words[:-1]]
    slower = len(slower_worlds(results))
    world = f"{format_count(slower, 'slower world')}: {NOT_YOUR_CODE}" if slower else ""
    rest = list(filter(None, (otherwise, *_stored(results), world, _to_do(results))))
    last, style = found_words[-1]
    pieces.append((last + ";" * bool(rest), style))
    return [*pieces, *words("; ".join(rest))] if rest else pieces


def hints(results: Sequence[Result]) -> list[str]:
    """Returns what became of baselines, and how to store those that are missing."""
    return list(filter(None, (*_stored(results), _to_do(results))))


def _stored(results: Sequence[Result]) -> list[str]:
    found = []
    written = sum(result.baseline_written for result in results)
    if written:
        found.append(f"{format_count(written, 'baseline')} stored")
    return [*found, unstored(results)]


def unstored(results: Sequence[Result]) -> str:
    """Returns how many measurements did not become a baseline, or cannot, and why; empty where there are none."""
    why = [result.not_stored for result in results if result.not_stored]
    unfit = [result.unfit for result in results if result.unfit and not result.not_stored and _is_new(result)]
    found = [f"{len(why)} not stored: {'; '.join(dict.fromkeys(why))}"] * bool(why)
    found += [f"{len(unfit)} can be no baseline: {', '.join(dict.fromkeys(unfit))}"] * bool(unfit)
    return "; ".join(found)


def _to_do(results: Sequence[Result]) -> str:
    # Parts are stored with their whole.
    unfit = {result.test.nodeid for result in results if result.unfit and not result.test.part}
    missing = any(
        _is_new(result)
        and not (result.unfit or result.not_stored)
        and result.test.nodeid.removesuffix(f"#{result.test.part}") not in unfit
        for result in results
    )
    return "store baselines with --fileperf-update=new" if missing else ""


def _is_new(result: Result) -> bool:
    """Returns whether it lacks a baseline, and was not stored as one."""
    if result.baseline_written or result.verdict.against:
        return False
    return any(item.outcome is Outcome.NEW for item in result.verdict.comparisons)


# --- remarks

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
