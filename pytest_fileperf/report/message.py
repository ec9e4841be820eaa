"""The messages of failed tests: the figures and their change, the causes, and the next step.

    rps fell by 33.6 % compared with its baseline (1a2b3c4 of 2026-11-20)

    metric      old      new   change in % [90 %]  tolerance  outcome
    rps     2,189/s  1,453/s  −33.6 [−41.0, −24.1]       3 %  REGRESSED

    CPU per request grew by 209 µs (+61.5 %):
      209 µs in slow_digest (app.py:60)
    If this is intended, accept it with --fileperf-update=all

The first paragraph must make sense alone, in pytest's short summary. With `-v`, the report has the notes that a
message leaves out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from pytest_fileperf.errors import LimitExceededError, NotMeasuredError, RegressionError, RequestsFailedError, log_block
from pytest_fileperf.host.files import full_disk
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report import story, wording
from pytest_fileperf.units import format_change, format_count, format_share, printable

WIDTH = 72
"""Columns of running text: pytest puts up to 8 more before each line of an assertion's message."""
LINES = 12
"""The most lines of a message. Only a table of many metrics makes it longer."""


def headline(message: str) -> str:
    """Returns the message's first paragraph on one line, as pytest's short summary shows it."""
    return " ".join(message.partition("\n\n")[0].split())


def raise_for(result: Result, *, strict: bool, ci: bool) -> None:
    """If the verdict fails the test, raises RegressionError, LimitExceededError or NotMeasuredError.

    If several apply, raises the first in this order. With `strict` or `ci`, a NEW outcome raises NotMeasuredError. With
    `strict`, so do an undecided outcome, a missing part of the load, and a saturated generator.
    """
    verdict = result.verdict
    found = {outcome: [item for item in verdict.comparisons if item.outcome is outcome] for outcome in Outcome}
    broken = "; ".join(map(wording.limit_text, verdict.broken))
    if worse := found[Outcome.REGRESSED]:
        text = wording.regression_text(verdict, worse)
        raise RegressionError(_verdict_text(result, f"{text}; {broken}" if broken else text))
    if broken:
        raise LimitExceededError(_verdict_text(result, broken))
    if (new := found[Outcome.NEW]) and (strict or ci):
        where = "with --fileperf-strict" if strict else "in CI"
        names = ", ".join(item.metric for item in new)
        text = f"{names} could not be compared (NEW), which fails the test {where}"
        raise NotMeasuredError(_verdict_text(result, text))
    undecided = found[Outcome.INCONCLUSIVE]
    if strict and (undecided or result.measurement.saturated or result.lost):
        names = ", ".join(item.metric for item in undecided)
        known = f"{names} could not be decided (INCONCLUSIVE)" if names else result.lost
        what = known or "the load generator was saturated"
        raise NotMeasuredError(_verdict_text(result, f"{what}, which fails the test with --fileperf-strict"))


def _named(head: str, result: Result) -> str:
    """Puts `#2: ` before the text for a test's second measurement, or `#upload: ` for a part of the test's load."""
    return f"{result.test.further}: {head}" if result.test.further else head


def _verdict_text(result: Result, head: str) -> str:
    verdict = result.verdict
    parts = [_wrapped(_named(head, result))]
    if verdict.comparisons:
        parts.append(_comparison_table(verdict.comparisons, base=wording.base_name(verdict)))
    to_do = _wrapped(story.next_step(result)).splitlines()
    room = LINES - sum(part.count("\n") + 2 for part in parts) - len(to_do)
    found = _wrapped(story.surest_cause(result)).splitlines()
    found += [] if result.explanation is None else result.explanation.text.splitlines()
    notes = [_wrapped(note).splitlines() for note in story.why_failed(result)]
    if sum(map(len, [found, *notes])) > room:
        room -= 1  # for the number of the others
    causes = found[: max(room, 0)]
    kept: list[list[str]] = []
    for lines in notes:
        if len(causes) + sum(map(len, kept)) + len(lines) <= room:
            kept.append(lines)
    if (left := len(notes) - len(kept) + (len(causes) < len(found))) and room >= 0:
        kept.append([f"Run the test with -v to see {format_count(left, 'more note')}"])
    parts.append("\n".join([*causes, *(line for lines in kept for line in lines), *to_do]))
    return "\n\n".join(filter(None, parts))


def _comparison_table(comparisons: Sequence[MetricComparison], *, base: str) -> str:
    confidences = {comparison.confidence for comparison in comparisons if comparison.confidence is not None}
    at = f" [{100 * confidences.pop():.0f} %]" if len(confidences) == 1 else ""
    rows = [("metric", base, "new", f"change in %{at}", "tolerance", "outcome")]
    for item in comparisons:
        before, now = wording.both_sides(item)
        change = ""
        if wording.is_same_code(item):  # the environment causes the difference
            before = ""
        elif item.change is not None:
            change = f"{format_change(item.change, unit=False)} {wording.interval_text(item)}".rstrip()
        figures = (before or "–", now or "–", change or "–", wording.tolerance_text(item) or "–")
        rows.append((item.metric, *figures, item.outcome.value))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= 80 else " "
    line = gap.join((f"{{:{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:-1]), "{}"))
    return "\n".join(line.format(*row) for row in rows)


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


# --- Failed requests: how many, which kinds, and the first example of each


def raise_for_failed_requests(
    result: Result, max_error_rate: float, *, log: Sequence[str] = (), hint: str = ""
) -> None:
    """Raises RequestsFailedError if no request succeeded, or if a greater share than `max_error_rate` failed.

    The message ends with `hint` and the last lines of the server's `log`, which may say why.
    """
    requests, errors = result.measurement.requests, result.measurement.errors
    if requests == 0 or errors > max_error_rate * (requests + errors):
        text = _failures_text(result.measurement.failures, requests=requests, allowed=max_error_rate)
        hints = "".join(f"\n{said}" for said in (hint, full_disk()) if said)
        raise RequestsFailedError(_named(text, result) + hints + log_block(log))


def _failures_text(failures: Sequence[Failure], *, requests: int, allowed: float) -> str:
    failed = sum(failure.count for failure in failures)
    total = requests + failed
    if total == 0:
        return wording.NO_REQUEST
    kind = f": {'mostly ' * (len(failures) > 1)}{failures[0].kind}" if failures else ""
    if requests == 0:
        head = f"none of {total:,} requests succeeded{kind}"
    else:
        shares = f"{format_share(failed / total)}, allowed {format_share(allowed)}"
        head = f"{failed:,} of {total:,} requests failed ({shares}){kind}"
    widest = max((len(f"{failure.count:,}") for failure in failures), default=0)
    shown, rest = failures[:8], failures[8:]
    margin, lines = " " * (widest + 3), []
    for failure in shown:
        lines.append(f"{failure.count:>{widest},} × {failure.kind}")
        # Error pages can be long. Their start is enough.
        example = failure.example if len(failure.example) <= 300 else failure.example[:299] + "…"
        for raw in example.splitlines():
            line = printable(raw.expandtabs())
            lines += textwrap.wrap(line, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    if rest:
        lines.append(wording.other_kinds(rest))
    return "\n\n".join([_wrapped(head), "\n".join(lines), *map(_wrapped, _closed_after_errors(failures))])


def _closed_after_errors(failures: Sequence[Failure]) -> Iterator[str]:
    """If the server's errors may explain closed connections, yields a text that says so."""
    counts = {failure.kind: failure.count for failure in failures}
    closed = counts.get("disconnected", 0)
    errors = sum(count for kind, count in counts.items() if re.match(r"status 5\d\d", kind))
    if 0 < closed <= errors * 1.2:  # about one connection for each error
        yield (
            "A server may close the connection without notice after a handler raised, as uvicorn does. Then "
            "the next request on that connection also fails"
        )
