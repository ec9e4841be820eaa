from __future__ import annotations

from dataclasses import replace

from report.in_turn import slowed_by_the_base

from pytest_fileperf.judge.evidence import OtherAnswers
from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.recording import Failure, Recording, WarmUp
from pytest_fileperf.report.remarks import findings


def warmed(recording: Recording, *failures: Failure) -> Recording:
    boots = tuple(replace(boot, warm_up=WarmUp(requests=32, failures=failures)) for boot in recording.boots[:1])
    return replace(recording, boots=(*boots, *recording.boots[1:]))


def plain_result() -> Result:
    return slowed_by_the_base()


def test_other_answers_are_said_by_parts() -> None:
    sizes = OtherAnswers(sizes=(11_750.0, 28.0), base_statuses={}, now_statuses={})
    statuses = OtherAnswers(of="page", base_statuses={200: 1.0}, now_statuses={200: 0.5, 304: 0.5})
    assert findings(replace(plain_result(), other_answers=(sizes, statuses)))[:2] == (
        "answers have other sizes: 11.5 KiB before, 28 B now",
        "answers of page have other statuses: 200 in 100 % before, 200 in 50 % and 304 in 50 % now",
    )


def test_failed_requests_of_warm_ups_are_said_of_each_side_that_had_them() -> None:
    result = plain_result()
    failed = Failure(kind="status 500", count=28, example="")
    (said,) = findings(replace(result, recording=warmed(result.recording, failed)))
    assert said.startswith("28 of 60 warm-up requests of the code here failed")
    assert said.endswith(": 28 × status 500")
    assert findings(replace(result, smoke=True, recording=warmed(result.recording, failed))) == ()
