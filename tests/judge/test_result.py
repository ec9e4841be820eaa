from __future__ import annotations

from dataclasses import replace

import pytest
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
from pytest_fileperf.judge.verdict import Note, NoteKind, Verdict
from pytest_fileperf.measure.usage import Busy


@pytest.mark.parametrize(
    "verdict, standing",
    [
        (Verdict(), Standing.UNGATED),
        (Verdict(limits=(NO_ERRORS,)), Standing.UNGATED),
        (Verdict(comparisons=(PASSED, TAIL_IMPROVED)), Standing.PASS),
        (Verdict(comparisons=(TAIL_IMPROVED,)), Standing.IMPROVED),
        (Verdict(comparisons=NEW), Standing.NEW),
        (Verdict(comparisons=(PASSED, TAIL_INCONCLUSIVE)), Standing.INCONCLUSIVE),
        (Verdict(comparisons=(TAIL_INCONCLUSIVE,), saturated=True), Standing.INCONCLUSIVE),
        (Verdict(comparisons=(PASSED,), saturated=True), Standing.SATURATED),
        (Verdict(saturated=True), Standing.SATURATED),
        (Verdict(comparisons=(PASSED,), limits=(ERRORS,)), Standing.LIMIT),
        (Verdict(comparisons=(REGRESSED,), limits=(ERRORS,)), Standing.REGRESSED),
    ],
)
def test_the_worst_of_everything_is_shown(verdict: Verdict, standing: Standing) -> None:
    assert result(verdict=verdict).standing is standing


def test_no_successful_request_is_never_a_pass() -> None:
    nothing = result(recorded=recording(requests=0), verdict=Verdict(comparisons=(PASSED,)))
    assert nothing.standing is Standing.FAILED


def test_a_smoke_run_judges_nothing_but_failed_requests() -> None:
    assert result(smoke=True).standing is Standing.UNGATED
    assert result(verdict=Verdict(saturated=True), smoke=True).standing is Standing.UNGATED
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
    assert result(verdict=Verdict(saturated=True)).unfit == "a run of a saturated generator"


def test_a_slower_world_is_not_the_verdict_on_the_code() -> None:
    told = Verdict(
        comparisons=(PASSED,), world=(REGRESSED,), code_notes=(Note(kind=NoteKind.IN_TURN, texts=("1a2b3c4",)),)
    )
    assert result(verdict=told).standing is Standing.PASS
