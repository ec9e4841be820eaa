"""What is said of failed requests, reasons and logs; which verdicts fail, and whole messages, are in the goldens."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
from report.samples import REGRESSED, recording, result, stored
from report.test_goldens import SESSIONS, message

from pytest_fileperf.errors import RegressionError, RequestsFailedError, ServerDiedError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.recording import Failure, Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.message import LINES, headline, raise_for, raise_for_failed_requests
from pytest_fileperf.report.story import brief_notes, summary_line
from pytest_fileperf.report.wording import sentence


def test_a_regression_that_the_figures_do_not_show_is_no_gain() -> None:
    slower = MetricComparison(
        metric="rps", outcome=Outcome.REGRESSED, tolerance=0.05, base=2050.0, now=2060.0, change=0.005, typical=-0.08
    )
    with pytest.raises(RegressionError) as caught:
        raise_for(replace(result(), verdict=Verdict(comparisons=(slower,))), strict=False, ci=False)
    assert headline(str(caught.value)) == "rps fell by 8.0 % compared with its baseline"


@pytest.mark.parametrize("subject", [("upload", ""), ("", "login"), ("visit", "login")])
def test_a_part_or_step_cannot_be_stored_without_its_load(subject: tuple[str, str]) -> None:
    new = MetricComparison(metric="rps", outcome=Outcome.NEW, tolerance=0.05)
    broken = LimitCheck(name="max_p99", metric="p99", limit=0.030, value=0.035, holds=False)
    part = replace(result(), verdict=Verdict(comparisons=(new,)))
    whole = replace(part, verdict=Verdict(comparisons=(new,), limits=(broken,)))
    said = summary_line(session_record([whole, replace(part, test=part.test.of(subject))]))
    assert said == "2 measured: 1 LIMIT, 1 NEW; 1 measurement cannot become a baseline: a run with broken limits"


@pytest.mark.parametrize("before, said", [(0, True), (1, False)])
def test_connections_that_only_the_new_code_closes_are_said_first(before: int, said: bool) -> None:
    def closing(share: int) -> Recording:
        recorded = recording()
        return replace(
            recorded, rounds=tuple(replace(one, closed_said=share * one.requests) for one in recorded.rounds)
        )

    found = replace(result(recorded=closing(1), verdict=Verdict(comparisons=(REGRESSED,))), base=closing(before))
    lines = " ".join(message(found, strict=False, ci=False).split())
    assert ("the server closed the connection after each answer" in lines) is said
    assert ("The old code kept them open" in lines) is said


@pytest.mark.parametrize("named, times", [(LimitKind.THREAD_POOL, 0), (None, 1)])
def test_a_limit_that_the_cause_names_is_said_once(named: LimitKind | None, times: int) -> None:
    limit = Limit(kind=LimitKind.THREAD_POOL, evidence="2 threads busy")
    explained = Explanation(text="Requests waited for the thread pool", limit=named)
    shown = replace(result(limit=limit, verdict=Verdict(comparisons=(REGRESSED,))), explanation=explained)
    assert message(shown, strict=False, ci=False).count("limited by thread pool") == times


def test_a_cause_that_is_cut_says_that_more_is_left_out() -> None:
    text = "\n".join(f"cause {number}" for number in range(20))
    shown = replace(result(verdict=Verdict(comparisons=(REGRESSED,))), explanation=Explanation(text=text))
    lines = message(shown, strict=False, ci=False).splitlines()
    assert len(lines) <= LINES
    assert "cause 3" in lines
    assert "Run the test with -v to see 1 more note" in lines


@pytest.mark.parametrize("name", SESSIONS)
def test_a_failure_has_at_most_twelve_lines_of_eighty_columns(name: str) -> None:
    for shown in stored(name).results:
        lines = message(shown, strict=True, ci=True).partition(": ")[2].splitlines()
        assert len(lines) <= LINES, lines
        assert all(len(line) <= 80 for line in lines), lines


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
    assert ("as uvicorn does. Then the next request" in " ".join(message.split())) == is_said
    assert "disconnected" not in failed_message(run_of(12_000, BROKEN))


def test_a_rare_failure_is_shown_and_many_kinds_are_cut_short() -> None:
    first = failed_message(run_of(99_999, replace(TIMEOUTS, count=1))).splitlines()[0]
    assert first == "1 of 100,000 requests failed (0.001 %, allowed 0 %): timeout"
    kinds = [Failure(kind=f"status {500 + index}", count=1, example="") for index in range(11)]
    assert failed_message(run_of(5, *kinds)).splitlines()[-2:] == ["1 × status 507", "and 3 more of 3 other kinds"]


@pytest.mark.parametrize("requests,failed,allowed", [(10, 0, 0.0), (99, 1, 0.01), (1, 99, 1.0)])
def test_as_many_failures_as_allowed_do_not_fail(requests: int, failed: int, allowed: float) -> None:
    failures = (replace(TIMEOUTS, count=failed),) if failed else ()
    raise_for_failed_requests(run_of(requests, *failures), allowed)


def test_a_disk_without_room_is_named_also_where_no_log_could_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "full" not in failed_message(run_of(0, TIMEOUTS))
    full = SimpleNamespace(free=512)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full)
    said = f"the disk of {tempfile.gettempdir()} is full, 512 bytes are left. Free some space in the temporary"
    assert failed_message(run_of(0, TIMEOUTS)).splitlines()[-1].startswith(said)


# --- reasons of an outcome, each with its sentence


def test_every_kind_is_said_in_one_line_with_its_facts() -> None:
    every = Reason(
        kind=ReasonKind.NOISE, metric="p99", side="base", count=120, needed=299, total=1200, share=0.05, tolerance=0.07,
        together=3.0, differences=("cores was 2, is 4",), busy=Busy(server=0.3), text="it is so", day="2026-01-02",
    )  # fmt: skip
    texts = {
        (kind, jump): sentence(replace(every, kind=kind, jump=jump))
        for kind in ReasonKind
        for jump in (None, ((98.5, 0.005), (99.5, 0.025)))
    }
    assert [
        why for why, text in texts.items() if text != text.strip() or len(text) <= 5 or set("{}\n") & set(text)
    ] == []


@pytest.mark.parametrize("together, said", [(1.04, "groups"), (2.0, "groups of about 2"), (15.3, "groups of about 15")])
def test_how_many_slow_requests_come_together_is_said_of_several(together: float, said: str) -> None:
    reason = Reason(kind=ReasonKind.PAIRS_CLUSTERED, metric="p99", count=912, together=together)
    text = f"912 requests of each version are too few to decide p99, because slow ones come in {said}. "
    assert sentence(reason).startswith(text)


def test_no_reason_needs_no_words_and_what_a_user_said_is_shown_as_it_is() -> None:
    assert sentence(None) == sentence(Reason(kind=ReasonKind.SINCE_BASELINE)) == ""
    assert sentence(Reason(kind=ReasonKind.ABSENT, text="{count} of {nothing}")) == "{count} of {nothing}"


# --- the log of a server, as it is shown


def test_lines_of_a_log_are_cut_and_cleaned_where_they_are_shown() -> None:
    log = ["\x1b[31mred\x1b[0m", "turned \u202e round\x07\x9b2J", "a\ttab", "x" * 10_000]
    shown = str(ServerDiedError("it ended", log=log)).splitlines()
    assert shown[:5] == [
        "it ended",
        "Last lines of its log:",
        "  | red",
        "  | turned \N{REPLACEMENT CHARACTER} round" + 2 * "\N{REPLACEMENT CHARACTER}" + "2J",
        "  | a       tab",
    ]
    assert shown[5] == f"  | {'x' * 499}…"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: 'a'",
        "sqlite3.OperationalError: database or disk is full",
        "Error: ENOSPC: no space left on device, write",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_a_full_disk_that_a_log_tells_of_is_named(line: str) -> None:
    said = "Its log says that a disk is full. Free some space on that disk"
    assert str(ServerDiedError("it ended", log=["Traceback", line])).splitlines()[1] == said
    assert said not in str(ServerDiedError("it ended", log=["Traceback", "OSError: [Errno 5] Input/output error"]))


@pytest.mark.parametrize(
    "kind, mean_s, said", [("server CPU", 1.2, True), ("server CPU", 0.1, False), ("disk", 1.2, False)]
)
def test_a_new_baseline_whose_requests_wait_for_each_other_is_given_advice(
    kind: str, mean_s: float, said: bool
) -> None:
    found = result(limit=Limit(kind=LimitKind(kind), evidence=""))
    latency = replace(found.measurement.latency, mean=mean_s)
    found = replace(found, baseline_written=True, measurement=replace(found.measurement, latency=latency))
    advice = (
        "a request takes 1.20 s, because 32 connections wait for each other. With fewer, such as connections=8, a "
        "comparison decides sooner"
    )
    assert brief_notes(found) == [advice] * said
    assert advice not in brief_notes(replace(found, baseline_written=False))
