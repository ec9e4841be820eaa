"""Turns a verdict, or failed requests, into the error that fails the test."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fileperf.errors import (
    LimitExceededError,
    NotMeasuredError,
    PerformanceError,
    RegressionError,
    RequestsFailedError,
    log_block,
)
from pytest_fileperf.judge.verdict import Outcome, Verdict
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.report.reasons import SATURATED
from pytest_fileperf.report.verdict_text import failures_text, verdict_text

__all__ = ("raise_for", "raise_for_failed_requests")


def raise_for(
    verdict: Verdict,
    *,
    strict: bool,
    ci: bool,
    title: str,
    limiting: str = "",
    background: str = "",
    explanation: str = "",
) -> None:
    """Raises the error that the verdict asks for; returns when the test may pass.

    RegressionError for a regression, else LimitExceededError for a limit that does not hold, else NotMeasuredError for
    NEW (with `strict`, or in CI), INCONCLUSIVE and a saturated generator (with `strict`). The message shows
    everything that was judged, whichever comes first. `limiting` names what limited the run, `background` says which
    side of a comparison slowed the other one, `explanation` are lines about where its CPU went.
    """
    failure = _failure_of(verdict, strict=strict, ci=ci)
    if failure is not None:
        error, head = failure
        saturated = SATURATED if verdict.saturated and not verdict.comparisons else ""
        notes = tuple(filter(None, (saturated, background)))
        text = verdict_text(verdict, title=title, head=head, limiting=limiting, explanation=explanation, notes=notes)
        raise error(text)


def _failure_of(verdict: Verdict, *, strict: bool, ci: bool) -> tuple[type[PerformanceError], str] | None:
    outcomes = {comparison.outcome for comparison in verdict.comparisons}
    broken = [check.name for check in verdict.limits if not check.holds]
    limits = f"{', '.join(broken)} {'does' if len(broken) == 1 else 'do'} not hold"
    if Outcome.REGRESSED in outcomes:
        in_turn = ", whose code was measured in turn" if verdict.against and verdict.code else ""
        return RegressionError, f"worse than {verdict.against or 'its baseline'}{in_turn}" + (
            f", and {limits}" if broken else ""
        )
    if broken:
        return LimitExceededError, limits
    if Outcome.NEW in outcomes and (strict or ci):
        return NotMeasuredError, f"not compared, which fails {'under --fileperf-strict' if strict else 'in CI'}"
    if strict and (Outcome.INCONCLUSIVE in outcomes or verdict.saturated):
        return NotMeasuredError, "inconclusive, which fails under --fileperf-strict"
    return None


def raise_for_failed_requests(
    measurement: Measurement, max_error_rate: float, title: str, *, log: Sequence[str] = (), hint: str = ""
) -> None:
    """Raises RequestsFailedError when no request succeeded, or a greater share failed than `max_error_rate`.

    `log` are the last lines of the server's log, where they may say why; `hint` is a sentence that may.
    """
    requests, errors = measurement.requests, measurement.errors
    if requests == 0 or errors > max_error_rate * (requests + errors):
        text = failures_text(measurement.failures, title=title, requests=requests, allowed=max_error_rate)
        raise RequestsFailedError(text + (f"\n{hint}" if hint else "") + log_block(log))
