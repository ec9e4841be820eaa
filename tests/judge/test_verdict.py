"""What a result stands for, whether it may be a baseline, and absolute limits on the plain figures of one run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measure.recordings import alike, recording_of, round_of
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

from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import Note, NoteKind, Verdict, check_limits
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.wording import sentence

IN_TURN = Note(kind=NoteKind.IN_TURN, texts=("1a2b3c4",))


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
    "shown, standing",
    [
        # A saturated generator and a run without an answer are never a pass.
        (result(verdict=Verdict(comparisons=(TAIL_INCONCLUSIVE,)), saturated=True), Standing.INCONCLUSIVE),
        (result(verdict=Verdict(comparisons=(PASSED,)), saturated=True), Standing.SATURATED),
        (result(saturated=True), Standing.SATURATED),
        (result(recorded=recording(requests=0), verdict=Verdict(comparisons=(PASSED,))), Standing.FAILED),
        # A smoke run judges nothing but failed requests.
        (result(smoke=True), Standing.UNGATED),
        (result(saturated=True, smoke=True), Standing.UNGATED),
        (result(recorded=recording(failures=FAILURES), smoke=True), Standing.FAILED),
        # A slower world is not the verdict on the code.
        (result(verdict=Verdict(comparisons=(PASSED,), world=(REGRESSED,), code_notes=(IN_TURN,))), Standing.PASS),
    ],
)
def test_what_else_there_is_to_a_run(shown: Result, standing: Standing) -> None:
    assert shown.standing is standing


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


# --- Absolute limits on the plain figures of one run


def one_round(requests: int, *, events: int | None = None) -> Recording:
    gaps = alike(50, events or 0)
    return recording_of(round_of(latency=alike(20, requests), events=events, event_gap=gaps))


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


@pytest.mark.parametrize(
    "name, limit, recorded, holds, value, said",
    [
        ("max_p99", 0.030, one_round(120), True, 0.020, "p99 of only 120 requests: it takes 299"),
        ("max_p99", 0.010, one_round(120), False, 0.020, "p99 of only 120 requests: it takes 299"),
        ("max_p99", 1.0, one_round(0), False, None, "p99 was not measured in this run"),
        ("max_rss", 1e12, one_round(400), False, None, "server peak RSS was not measured in this run"),
        ("max_cpu_per_request", 1.0, one_round(400), False, None, "server CPU/request was not measured in this run"),
        ("min_event_rate", 1.0, one_round(400), False, None, "was not measured"),
        ("max_event_gap_p99", 0.060, one_round(400, events=100), True, 0.050, "p99 of only 100 events: it takes 299"),
        ("max_event_gap_p99", 0.060, one_round(400, events=400), True, 0.050, ""),
    ],
)
def test_what_few_requests_or_none_tell_of_a_limit(
    name: str, limit: float, recorded: Recording, holds: bool, value: float | None, said: str
) -> None:
    rate, check = check_limits({"min_rps": 0, name: limit}, recorded)
    assert (rate.metric, check.holds, check.value) == ("rps", holds, value)
    assert said in sentence(check.reason)
    assert bool(said) is bool(check.reason)


@pytest.mark.parametrize("limit,holds", [(60.0, True), (70.0, False)])
def test_a_capacity_of_which_only_the_least_is_known_is_checked_by_it(limit: float, *, holds: bool) -> None:
    (check,) = check_limits({"min_capacity": limit}, one_round(400), 65.0)

    assert (check.value, check.holds) == (65.0, holds)
    assert sentence(check.reason).startswith("no load broke a limit, so the capacity is at least this")
