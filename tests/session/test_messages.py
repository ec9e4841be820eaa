"""The errors that fail a test, message by message."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from report.samples import result

from pytest_fileperf.errors import (
    LimitExceededError,
    NotMeasuredError,
    PerformanceError,
    RegressionError,
    RequestsFailedError,
)
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.recording import Failure, Recording
from pytest_fileperf.report.message import headline, raise_for, raise_for_failed_requests

PASSED = MetricComparison(
    metric="p99",
    outcome=Outcome.PASS,
    tolerance=0.25,
    base=0.0310,
    now=0.0350,
    change=0.129,
    low=-0.032,
    high=0.317,
    confidence=0.9,
)
REGRESSED = MetricComparison(
    metric="rps",
    outcome=Outcome.REGRESSED,
    tolerance=0.05,
    base=2050.0,
    now=1740.0,
    change=-0.1512,
    low=-0.188,
    high=-0.1131,
    confidence=0.9,
    reason=Reason(kind=ReasonKind.SINCE_BASELINE, packages=("uvicorn 0.34.0 → 0.54.0",)),
)
NEW = MetricComparison(
    metric="rps",
    outcome=Outcome.NEW,
    tolerance=0.05,
    now=2050.0,
    reason=Reason(kind=ReasonKind.NO_BASELINE),
)
IMPROVED = replace(
    REGRESSED,
    outcome=Outcome.IMPROVED,
    now=2500.0,
    change=0.2195,
    low=0.17,
    high=0.27,
    reason=Reason(kind=ReasonKind.IMPROVED),
)
UNCLEAR = replace(
    PASSED,
    outcome=Outcome.INCONCLUSIVE,
    reason=Reason(kind=ReasonKind.UNSEEN, share=1.2, tolerance=0.44),
)
SLOW_P99 = LimitCheck(name="max_p99", metric="p99", limit=0.030, value=0.035, holds=False)
FAST_RPS = LimitCheck(name="min_rps", metric="rps", limit=1500.0, value=1740.0, holds=True)
NO_RSS = LimitCheck(
    name="max_rss",
    metric="rss",
    limit=256 << 20,
    value=None,
    holds=False,
    reason=Reason(kind=ReasonKind.NOT_MEASURED, metric="rss", side="now"),
)


def error_of(call: Callable[[], None]) -> PerformanceError | None:
    """Returns the error that the call raises, or None."""
    try:
        call()
    except PerformanceError as error:
        return error
    return None


def judged(verdict: Verdict, *, saturated: bool = False) -> Result:
    """Returns a result with this verdict, whose figures stay as they are here."""
    limit = Limit(kind=LimitKind.THREAD_POOL, evidence="40 threads busy")
    return replace(result(limit=limit, saturated=saturated), verdict=verdict)


def message_of(
    error: type[PerformanceError],
    verdict: Verdict,
    *,
    saturated: bool = False,
    strict: bool = False,
    ci: bool = False,
    explained: str = "",
) -> str:
    shown = replace(judged(verdict, saturated=saturated), explanation=Explanation(text=explained))
    with pytest.raises(PerformanceError) as caught:
        raise_for(shown, strict=strict, ci=ci)
    assert type(caught.value) is error
    text = str(caught.value)
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


def test_a_further_measurement_of_a_test_is_named() -> None:
    first = judged(Verdict(comparisons=(REGRESSED,)))
    second = replace(first, test=replace(first.test, nodeid=f"{first.test.nodeid}#2"))
    with pytest.raises(RegressionError) as caught:
        raise_for(second, strict=False, ci=False)
    assert headline(str(caught.value)).startswith("#2: rps −")


def test_the_message_of_a_regression_with_limits() -> None:
    """What got worse and by how much, since which baseline, why, and what to do."""
    since = "its baseline of 2026-11-20"
    verdict = Verdict(comparisons=(REGRESSED, UNCLEAR), limits=(FAST_RPS, SLOW_P99, NO_RSS), since=since)
    explained = "CPU per request grew by 209 µs (+61.5 %), of it\n  209 µs in slow_digest (app.py:60)"
    assert message_of(RegressionError, verdict, strict=True, ci=True, explained=explained) == (
        """\
rps −15.1 % [−18.8, −11.3], worse than its baseline of 2026-11-20;
  max_p99 30.0 ms, measured 35.0 ms; max_rss 256 MiB, not measured

metric  baseline      now    change in % [90 %]  tolerance  outcome
rps      2,050/s  1,740/s  −15.1 [−18.8, −11.3]        5 %  REGRESSED
p99      31.0 ms  35.0 ms   +12.9 [−3.2, +31.7]       25 %  INCONCLUSIVE

CPU per request grew by 209 µs (+61.5 %), of it
  209 µs in slow_digest (app.py:60)

rps: since the baseline, uvicorn 0.34.0 → 0.54.0
p99: only a worsening of 120 % could have been seen: use more boots or a
  longer duration, or use a tolerance of 44 %
max_rss: server peak RSS was not measured in this run
limited by: thread pool: 40 threads busy
if the new level is meant to stay, store it with --fileperf-update=all"""
    )


NEW_MESSAGE = """\
rps, p99: not compared, which fails {where}

metric  baseline      now  change in %  tolerance  outcome
rps            –  2,050/s            –        5 %  NEW
p99            –        –            –        5 %  NEW

rps, p99: there is no baseline: store one with --fileperf-update
limited by: thread pool: 40 threads busy"""


@pytest.mark.parametrize(
    "strict,ci,where",
    [(True, False, "under --fileperf-strict"), (False, True, "in CI"), (True, True, "under --fileperf-strict")],
)
def test_the_message_of_a_new_one_where_that_fails(strict: bool, ci: bool, where: str) -> None:
    verdict = Verdict(comparisons=(NEW, replace(NEW, metric="p99", now=None)))
    found = message_of(NotMeasuredError, verdict, strict=strict, ci=ci)
    assert found == NEW_MESSAGE.format(where=where)
    broken = Verdict(comparisons=(NEW, IMPROVED), limits=(SLOW_P99,))
    said = message_of(LimitExceededError, broken, strict=strict, ci=ci)
    assert headline(said) == "max_p99 30.0 ms, measured 35.0 ms"
    assert said.count("\nrps: ") == 2


def test_the_message_of_an_inconclusive_one_under_strict() -> None:
    assert message_of(NotMeasuredError, Verdict(comparisons=(UNCLEAR,)), strict=True) == (
        """\
p99 +12.9 % [−3.2, +31.7]: inconclusive, which fails under
  --fileperf-strict

metric  baseline      now   change in % [90 %]  tolerance  outcome
p99      31.0 ms  35.0 ms  +12.9 [−3.2, +31.7]       25 %  INCONCLUSIVE

p99: only a worsening of 120 % could have been seen: use more boots or a
  longer duration, or use a tolerance of 44 %
limited by: thread pool: 40 threads busy"""
    )


def test_the_message_of_a_saturated_run_with_limits_alone_under_strict() -> None:
    assert message_of(NotMeasuredError, Verdict(limits=(FAST_RPS,)), saturated=True, strict=True) == (
        """\
generator saturated: inconclusive, which fails under --fileperf-strict

limited by: thread pool: 40 threads busy
the load generator was saturated, so this is its own speed and not the
  server's: use fewer connections, or more generators"""
    )


@pytest.mark.parametrize(
    "verdict,saturated,strict,ci",
    [
        (Verdict(), False, True, True),
        (Verdict(comparisons=(PASSED, IMPROVED), limits=(FAST_RPS,)), False, True, True),
        (Verdict(comparisons=(NEW, UNCLEAR)), False, False, False),
        (Verdict(comparisons=(UNCLEAR,)), True, False, True),
    ],
)
def test_what_does_not_fail(verdict: Verdict, saturated: bool, strict: bool, ci: bool) -> None:
    assert error_of(lambda: raise_for(judged(verdict, saturated=saturated), strict=strict, ci=ci)) is None


NO_RUN = measurement_of(Recording(rounds=(), boots=(), connections=1, engine="replay"))
TIMEOUTS = Failure(kind="timeout", count=3, example="no answer within 30 s")
BROKEN = Failure(
    kind="status 500",
    count=1204,
    example="500 Internal Server Error\n\x1b[31mTraceback\x1b[0m (most recent call last):\n" + "x" * 400,
)


def run_of(requests: int, *failures: Failure) -> Result:
    errors = sum(failure.count for failure in failures)
    return replace(result(), measurement=replace(NO_RUN, requests=requests, failures=failures, errors=errors))


def failed_message(shown: Result, max_error_rate: float = 0.0) -> str:
    with pytest.raises(RequestsFailedError) as caught:
        raise_for_failed_requests(shown, max_error_rate)
    return str(caught.value)


def test_the_message_of_failed_requests() -> None:
    assert failed_message(run_of(12_000, BROKEN, TIMEOUTS), 0.01) == (
        """\
1,207 of 13,207 requests failed (9.14 %, allowed 1 %): mostly status 500

1,204 × status 500
        500 Internal Server Error
        �[31mTraceback�[0m (most recent call last):
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    3 × timeout
        no answer within 30 s"""
    )


def test_the_message_when_none_succeeded() -> None:
    assert failed_message(run_of(0), 1.0) == "no request was made"
    assert failed_message(run_of(0, TIMEOUTS), 1.0) == (
        """\
none of 3 requests succeeded: timeout

3 × timeout
    no answer within 30 s"""
    )


@pytest.mark.parametrize("closed, is_said", [(1_204, True), (90, True), (3_000, False)])
def test_connections_that_close_with_the_answers_of_an_app_that_raises_are_explained(
    closed: int, is_said: bool
) -> None:
    message = failed_message(run_of(12_000, BROKEN, Failure(kind="disconnected", count=closed, example="reset")))
    assert ("as uvicorn does: then the next request" in " ".join(message.split())) == is_said
    assert "disconnected" not in failed_message(run_of(12_000, BROKEN))


def test_a_rare_failure_is_shown_and_many_kinds_are_cut_short() -> None:
    first = failed_message(run_of(99_999, replace(TIMEOUTS, count=1))).splitlines()[0]
    assert first == "1 of 100,000 requests failed (0.001 %, allowed 0 %): timeout"
    kinds = [Failure(kind=f"status {500 + index}", count=1, example="") for index in range(11)]
    assert failed_message(run_of(5, *kinds)).splitlines()[-2:] == ["1 × status 507", "and 3 more of 3 other kinds"]


@pytest.mark.parametrize("requests,failed,allowed", [(10, 0, 0.0), (99, 1, 0.01), (1, 99, 1.0)])
def test_as_many_failures_as_allowed_do_not_fail(requests: int, failed: int, allowed: float) -> None:
    failures = (replace(TIMEOUTS, count=failed),) if failed else ()
    assert error_of(lambda: raise_for_failed_requests(run_of(requests, *failures), allowed)) is None


def test_a_disk_without_room_is_named_also_where_no_log_could_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "full" not in failed_message(run_of(0, TIMEOUTS))
    full = SimpleNamespace(free=512)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full)
    said = f"the disk of {tempfile.gettempdir()} is full, 512 bytes are left: make room in the temporary directory, or"
    assert failed_message(run_of(0, TIMEOUTS)).splitlines()[-1].startswith(said)
