from __future__ import annotations

from dataclasses import replace

import pytest
from judge.sides import MS, alike, recording_of, round_of
from report.samples import (
    ERRORS,
    FAILURES,
    NEW,
    NO_ERRORS,
    PASSED,
    REGRESSED,
    TAIL_IMPROVED,
    TAIL_INCONCLUSIVE,
    recording,
    result,
)

from pytest_fileperf.judge.record import Standing
from pytest_fileperf.judge.verdict import Note, NoteKind, Verdict, check_limits
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.wording import sentence


@pytest.mark.parametrize(
    "verdict, standing",
    [
        (Verdict(), Standing.UNGATED),
        (Verdict(limits=(NO_ERRORS,)), Standing.UNGATED),
        (Verdict(comparisons=(PASSED, TAIL_IMPROVED)), Standing.PASS),
        (Verdict(comparisons=(TAIL_IMPROVED,)), Standing.IMPROVED),
        (Verdict(comparisons=NEW), Standing.NEW),
        (Verdict(comparisons=(PASSED, TAIL_INCONCLUSIVE)), Standing.INCONCLUSIVE),
        (Verdict(comparisons=(PASSED,), limits=(ERRORS,)), Standing.LIMIT),
        (Verdict(comparisons=(REGRESSED,), limits=(ERRORS,)), Standing.REGRESSED),
    ],
)
def test_the_worst_of_everything_is_shown(verdict: Verdict, standing: Standing) -> None:
    assert result(verdict=verdict).standing is standing


@pytest.mark.parametrize(
    "verdict, standing",
    [
        (Verdict(comparisons=(TAIL_INCONCLUSIVE,)), Standing.INCONCLUSIVE),
        (Verdict(comparisons=(PASSED,)), Standing.SATURATED),
        (Verdict(), Standing.SATURATED),
    ],
)
def test_a_saturated_generator_is_never_a_pass(verdict: Verdict, standing: Standing) -> None:
    assert result(verdict=verdict, saturated=True).standing is standing


def test_no_successful_request_is_never_a_pass() -> None:
    nothing = result(recorded=recording(requests=0), verdict=Verdict(comparisons=(PASSED,)))
    assert nothing.standing is Standing.FAILED


def test_a_smoke_run_judges_nothing_but_failed_requests() -> None:
    assert result(smoke=True).standing is Standing.UNGATED
    assert result(saturated=True, smoke=True).standing is Standing.UNGATED
    assert result(recorded=recording(failures=FAILURES), smoke=True).standing is Standing.FAILED


@pytest.mark.parametrize(
    "nodeid, further", [("t.py::test_a", ""), ("t.py::test_a#12", "#12"), ("t.py::test_a[#2]", "")]
)
def test_further_measurements_of_a_test_are_numbered(nodeid: str, further: str) -> None:
    assert result(nodeid=nodeid).test.further == further


def test_a_run_that_may_mislead_is_no_baseline() -> None:
    good = result()
    assert good.unfit == ""
    busy = replace(good, measurement=replace(good.measurement, busy=Busy(server=0.2)))
    assert (busy.unfit, busy.never_fit) == ("a run on a busy machine", False)
    assert replace(good, measurement=replace(good.measurement, busy=Busy(server=0.02))).unfit == ""
    nothing = result(recorded=recording(requests=0))
    assert (nothing.unfit, nothing.never_fit) == ("a run without a good answer", True)
    assert result(verdict=Verdict(limits=(ERRORS,))).unfit == "a run with broken limits"
    assert result(saturated=True).unfit == "a run of a saturated generator"


def test_a_slower_world_is_not_the_verdict_on_the_code() -> None:
    told = Verdict(
        comparisons=(PASSED,), world=(REGRESSED,), code_notes=(Note(kind=NoteKind.IN_TURN, texts=("1a2b3c4",)),)
    )
    assert result(verdict=told).standing is Standing.PASS


# --- Absolute limits on the plain figures of one run


def one_round(requests: int) -> Recording:
    return recording_of(round_of(requests, latency=alike(20, requests)))


@pytest.mark.parametrize(
    "name,limit,holds",
    [
        ("min_rps", 399, True),
        ("min_rps", 400, True),
        ("min_rps", 401, False),
        ("max_p99", 0.021, True),
        ("max_p99", 0.020, True),
        ("max_p99", 0.019, False),
        ("max_latency", 0.020, True),
        ("max_error_rate", 0.0, True),
    ],
)
def test_a_value_on_its_limit_holds(name: str, limit: float, holds: bool) -> None:
    (check,) = check_limits({name: limit}, one_round(400))
    assert (check.name, check.limit, check.holds, sentence(check.reason)) == (name, limit, holds, "")


def test_checks_come_in_the_order_given() -> None:
    checks = check_limits({"max_p99": 1, "min_rps": 1, "max_cpu_per_request": 1}, one_round(400))
    assert [check.metric for check in checks] == ["p99", "rps", "cpu_per_request"]


@pytest.mark.parametrize("name,title", [("max_rss", "server peak RSS"), ("max_cpu_per_request", "server CPU/request")])
def test_what_was_not_measured_does_not_hold(name: str, title: str) -> None:
    (check,) = check_limits({name: 1e12}, one_round(400))
    assert (check.value, check.holds, sentence(check.reason)) == (None, False, f"{title} was not measured in this run")


@pytest.mark.parametrize("limit,holds", [(0.030, True), (0.010, False)])
def test_a_percentile_of_few_requests_is_judged_and_said(limit: float, holds: bool) -> None:
    (check,) = check_limits({"max_p99": limit}, one_round(120))
    assert check.holds is holds
    assert check.value == 0.020
    assert sentence(check.reason) == "p99 of only 120 requests: it takes 299 to tell it from the maximum"


def test_no_requests_hold_no_latency() -> None:
    (check,) = check_limits({"max_p99": 1}, one_round(0))
    assert not check.holds


@pytest.mark.parametrize("events,said", [(100, "event gap p99 of only 100 events: it takes 299"), (400, "")])
def test_a_percentile_of_few_events_is_checked_and_said(events: int, said: str) -> None:
    (only,) = one_round(400).rounds
    gaps = Histogram.of([50 * MS] * events)
    streams = replace(one_round(400), rounds=(replace(only, events=events, event_gap=gaps),))
    (check,) = check_limits({"max_event_gap_p99": 0.060}, streams)
    assert check.holds
    assert sentence(check.reason).startswith(said)
    assert bool(check.reason) is bool(said)


def test_events_that_nobody_saw_are_not_measured() -> None:
    (check,) = check_limits({"min_event_rate": 1}, one_round(400))
    assert not check.holds
    assert "was not measured" in sentence(check.reason)
