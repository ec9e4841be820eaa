"""The messages of failed tests: what got worse and by how much, since which baseline, why, and what to do.

    rps −33.6 % [−41.0, −24.1], worse than its baseline (1a2b3c4 of 2026-11-20)

    metric  baseline      now   change in % [90 %]  tolerance  outcome
    rps      2,189/s  1,453/s  −33.6 [−41.0, −24.1]       3 %  REGRESSED

    CPU per request grew by 209 µs (+61.5 %), of it
      209 µs in slow_digest (app.py:60)

    if the new level is meant to stay, store it with --fileperf-update=all

The first paragraph stands alone where there is room for a line only, as in pytest's short summary (`headline`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from pytest_fileperf.errors import (
    LimitExceededError,
    NotMeasuredError,
    PerformanceError,
    RegressionError,
    RequestsFailedError,
    log_block,
)
from pytest_fileperf.host.files import full_disk
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, Verdict
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.details import limit_text, other_kinds
from pytest_fileperf.report.text import quantity
from pytest_fileperf.report.wording import (
    SATURATED,
    base_name,
    change_text,
    code_text,
    interval_text,
    is_same_code,
    sentence,
    typical_text,
    world_outcome,
    world_text,
)
from pytest_fileperf.units import format_change, format_share

__all__ = (
    "WIDTH",
    "failures_text",
    "headline",
    "limits_head",
    "new_head",
    "raise_for",
    "raise_for_failed_requests",
    "regressed_head",
    "undecided_head",
    "verdict_text",
)

WIDTH = 72
"""Columns of running text: pytest puts up to 8 more before each line of an assertion's message."""
TABLE_WIDTH = 80
EXAMPLE_LENGTH = 300
"""Characters kept of a failure's example: the start of an error page is enough."""
KINDS = 8
"""Kinds of failure that are listed; more are counted."""
_CLOSED, _APP_ERROR = "disconnected", re.compile(r"status 5\d\d")
_CLOSED_AN_ERROR = 1.2
"""Connections that were closed for each answer that is an error: about one."""


def headline(message: str) -> str:
    """Returns the first paragraph of a message as one line."""
    return " ".join(message.partition("\n\n")[0].split())


def regressed_head(verdict: Verdict) -> str:
    """Returns what got worse, by how much, and since when."""
    figures = _figures(item for item in verdict.comparisons if item.outcome is Outcome.REGRESSED)
    text = f"{figures}, worse than {verdict.against or verdict.since or 'its baseline'}"
    broken = any(not check.holds for check in verdict.limits)
    return f"{text}; {limits_head(verdict)}" if broken else text


def limits_head(verdict: Verdict) -> str:
    """Returns the limits that do not hold, each with what was measured."""
    return "; ".join(limit_text(check) for check in verdict.limits if not check.holds)


def new_head(verdict: Verdict, *, where: str) -> str:
    """Returns what was not compared; `where` says in which surroundings that fails."""
    new = [item.metric for item in verdict.comparisons if item.outcome is Outcome.NEW]
    return f"{', '.join(new)}: not compared, which fails {where}"


def undecided_head(verdict: Verdict, lost: str = "") -> str:
    """Returns what is not decided; `lost` says why a part of the load is missing."""
    undecided = [item for item in verdict.comparisons if item.outcome is Outcome.INCONCLUSIVE]
    what = _figures(undecided) or lost or "generator saturated"
    return f"{what}: inconclusive, which fails under --fileperf-strict"


def _figures(comparisons: Iterable[MetricComparison]) -> str:
    """Returns `rps −33.6 % [−41.0, −24.1], p99`: of what has no change only the name."""
    return ", ".join(
        item.metric if item.change is None else f"{item.metric} {change_text(item)} {interval_text(item)}".rstrip()
        for item in comparisons
    )


def verdict_text(
    verdict: Verdict, *, head: str, limiting: str = "", explanation: str = "", notes: Sequence[str] = ()
) -> str:
    """Returns the message: the head, the comparisons, where CPU went, reasons, and what to do.

    `explanation` is shown unchanged below the comparisons, `limiting` names what limited the run.
    """
    parts = [_wrapped(head)]
    if verdict.comparisons:
        parts.append(_comparison_table(verdict.comparisons, base=base_name(verdict)))
    if explanation:
        parts.append(explanation)
    lines = _reasons((comparison.metric, comparison.reason) for comparison in verdict.comparisons)
    lines += _reasons((check.name, check.reason) for check in verdict.limits)
    lines += filter(None, map(typical_text, verdict.comparisons))
    lines += [f"limited by: {limiting}"] if limiting else []
    if world_outcome(verdict) is Outcome.REGRESSED:
        lines.append(f"the world: {world_text(verdict)}")
    lines += [code] if (code := code_text(verdict)) else []
    lines += notes
    if (verdict.code or not verdict.against) and any(item.outcome is Outcome.REGRESSED for item in verdict.comparisons):
        lines.append("if the new level is meant to stay, store it with --fileperf-update=all")
    if lines:
        parts.append("\n".join(map(_wrapped, dict.fromkeys(lines))))
    return "\n\n".join(parts)


def failures_text(failures: Sequence[Failure], *, requests: int, allowed: float) -> str:
    """Returns the message for failed requests: how many, which kinds, and the first example of each."""
    failed = sum(failure.count for failure in failures)
    total = requests + failed
    if total == 0:
        return "no request was made"
    kind = f": {'mostly ' * (len(failures) > 1)}{failures[0].kind}" if failures else ""
    if requests == 0:
        head = f"none of {total:,} requests succeeded{kind}"
    else:
        shares = f"{format_share(failed / total)}, allowed {format_share(allowed)}"
        head = f"{failed:,} of {total:,} requests failed ({shares}){kind}"
    widest = max((len(f"{failure.count:,}") for failure in failures), default=0)
    lines = []
    for failure in failures[:KINDS]:
        lines.append(f"{failure.count:>{widest},} × {failure.kind}")
        lines += _example(failure.example, indent=widest + 3)
    if len(failures) > KINDS:
        lines.append(other_kinds(failures[KINDS:]))
    return "\n\n".join([_wrapped(head), "\n".join(lines), *map(_wrapped, _closed_after_errors(failures))])


def _closed_after_errors(failures: Sequence[Failure]) -> Iterator[str]:
    """Yields what may be behind connections that were closed, where about as many answers were errors of the app."""
    counts = {failure.kind: failure.count for failure in failures}
    closed, errors = counts.get(_CLOSED, 0), sum(count for kind, count in counts.items() if _APP_ERROR.match(kind))
    if 0 < closed <= errors * _CLOSED_AN_ERROR:
        yield (
            "a server may close the connection after the answer to a request whose handler raised, without announcing"
            " it, as uvicorn does: then the next request on that connection fails as well"
        )


def _reasons(reasons: Iterable[tuple[str, Reason | None]]) -> list[str]:
    """Returns a line for each reason, after the names that share it."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        names.setdefault(sentence(reason), []).append(name)
    return [f"{', '.join(dict.fromkeys(sharing))}: {text}" for text, sharing in names.items() if text]


def _comparison_table(comparisons: Sequence[MetricComparison], *, base: str) -> str:
    confidences = {comparison.confidence for comparison in comparisons if comparison.confidence is not None}
    at = f" [{100 * confidences.pop():.0f} %]" if len(confidences) == 1 else ""
    rows: list[tuple[str, ...]] = [("metric", base, "now", f"change in %{at}", "tolerance", "outcome")]
    for comparison in comparisons:
        unit = METRICS[comparison.metric].unit
        rows.append(
            (
                comparison.metric,
                *("–" if side is None else quantity(side, unit) for side in _shown(comparison)),
                _change(comparison),
                format_share(comparison.tolerance),
                comparison.outcome.value,
            )
        )
    return _aligned(rows, right=range(1, 5))


def _aligned(rows: Sequence[tuple[str, ...]], *, right: Collection[int]) -> str:
    """Returns the rows with columns two spaces apart, or one space where that would be too wide."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= TABLE_WIDTH else " "
    return "\n".join(
        gap.join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _shown(comparison: MetricComparison) -> tuple[float | None, float | None]:
    """Returns base and now; of the same code only now, as what differs is the world's doing."""
    return (None if is_same_code(comparison) else comparison.base, comparison.now)


def _change(comparison: MetricComparison) -> str:
    if comparison.change is None or is_same_code(comparison):
        return "–"
    return f"{format_change(comparison.change, unit=False)} {interval_text(comparison)}".rstrip()


def _example(example: str, *, indent: int) -> list[str]:
    shown = example if len(example) <= EXAMPLE_LENGTH else example[: EXAMPLE_LENGTH - 1] + "…"
    lines = []
    for raw in shown.splitlines():
        line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in raw.expandtabs())
        lines += textwrap.wrap(
            line, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent, break_on_hyphens=False
        )
    return lines


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


# --- Turns a verdict, or failed requests, into the error that fails the test


def raise_for(
    verdict: Verdict,
    *,
    strict: bool,
    ci: bool,
    further: str = "",
    limiting: str = "",
    background: str = "",
    capacity: str = "",
    explanation: str = "",
    lost: str = "",
    findings: Sequence[str] = (),
) -> None:
    """Raises the error that the verdict asks for; returns when the test may pass.

    RegressionError for a regression, else LimitExceededError for a limit that does not hold, else NotMeasuredError for
    NEW (with `strict`, or in CI), INCONCLUSIVE and a saturated generator (with `strict`). The message shows
    everything that was judged, whichever comes first. `further` is `#2` for a test's second measurement, and `#upload`
    for a part of its load; `limiting` names what limited the run, `background` says which side of a comparison slowed
    the other one, `capacity` what a search for it has found, `explanation` are lines about where its CPU went.
    `lost` says why a part of the load is missing, which is INCONCLUSIVE. `findings` are further sentences.
    """
    failure = _failure_of(verdict, strict=strict, ci=ci, lost=lost)
    if failure is not None:
        error, head = failure
        saturated = SATURATED if verdict.saturated and not verdict.comparisons else ""
        notes = tuple(filter(None, (lost, capacity, saturated, background, *findings)))
        raise error(
            verdict_text(verdict, head=_named(head, further), limiting=limiting, explanation=explanation, notes=notes)
        )


def _named(head: str, further: str) -> str:
    """Returns the head with which measurement of a test it is, where there are several."""
    return f"{further}: {head}" if further else head


def _failure_of(
    verdict: Verdict, *, strict: bool, ci: bool, lost: str = ""
) -> tuple[type[PerformanceError], str] | None:
    outcomes = {comparison.outcome for comparison in verdict.comparisons}
    if Outcome.REGRESSED in outcomes:
        return RegressionError, regressed_head(verdict)
    if not all(check.holds for check in verdict.limits):
        return LimitExceededError, limits_head(verdict)
    if Outcome.NEW in outcomes and (strict or ci):
        return NotMeasuredError, new_head(verdict, where="under --fileperf-strict" if strict else "in CI")
    if strict and (Outcome.INCONCLUSIVE in outcomes or verdict.saturated or lost):
        return NotMeasuredError, undecided_head(verdict, lost)
    return None


def raise_for_failed_requests(
    measurement: Measurement, max_error_rate: float, *, further: str = "", log: Sequence[str] = (), hint: str = ""
) -> None:
    """Raises RequestsFailedError when no request succeeded, or a greater share failed than `max_error_rate`.

    `log` are the last lines of the server's log, where they may say why; `hint` is a sentence that may. A disk that is
    full is named.
    """
    requests, errors = measurement.requests, measurement.errors
    if requests == 0 or errors > max_error_rate * (requests + errors):
        head, gap, rest = failures_text(measurement.failures, requests=requests, allowed=max_error_rate).partition(
            "\n\n"
        )
        hints = "".join(f"\n{said}" for said in (hint, full_disk()) if said)
        raise RequestsFailedError(_named(head, further) + gap + rest + hints + log_block(log))
