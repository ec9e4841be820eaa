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
from pytest_fileperf.files import full_disk
from pytest_fileperf.judge.verdict import Outcome, Verdict
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.report.reasons import SATURATED
from pytest_fileperf.report.verdict_text import (
    failures_text,
    limits_head,
    new_head,
    regressed_head,
    undecided_head,
    verdict_text,
)

__all__ = ("raise_for", "raise_for_failed_requests")


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
