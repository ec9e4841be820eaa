"""Sentences about one result: reasons of outcomes, and how its figures came to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.in_turn import slowed_by_the_base
from report.samples import CONCURRENCY, recording, result
from report.variants import open_loop

from pytest_fileperf.judge.evidence import OtherAnswers
from pytest_fileperf.judge.verdict import Reason, ReasonKind
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.recording import Failure, Recording, WarmUp
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.figures import load_texts
from pytest_fileperf.report.remarks import findings, notes
from pytest_fileperf.report.wording import limiting_text, sentence

# --- every reason has its sentence


@pytest.mark.parametrize("kind", ReasonKind)
@pytest.mark.parametrize("jump", [None, ((98.5, 0.005), (99.5, 0.025))])
def test_every_kind_is_said_in_one_line_with_its_facts(kind: ReasonKind, jump: tuple[tuple[float, float], ...]) -> None:
    reason = Reason(
        kind=kind,
        metric="p99",
        side="base",
        count=120,
        needed=299,
        total=1200,
        share=0.05,
        tolerance=0.07,
        together=3.0,
        jump=(jump[0], jump[1]) if jump else None,
        differences=("cores was 2, is 4",),
        busy=Busy(server=0.3),
        text="it is so",
        day="2026-01-02",
    )
    text = sentence(reason)
    assert text == text.strip()
    assert len(text) > 5
    assert not set("{}\n") & set(text)


@pytest.mark.parametrize(
    "together, said", [(1.04, "some slow ones"), (2.0, "about 2 slow ones"), (15.3, "about 15 slow ones")]
)
def test_how_many_slow_requests_come_together_is_said_of_several(together: float, said: str) -> None:
    reason = Reason(kind=ReasonKind.PAIRS_CLUSTERED, metric="p99", count=912, together=together)
    assert sentence(reason).startswith(f"p99 cannot be told of 912 requests a side, as {said} come together: ")


def test_no_reason_needs_no_words() -> None:
    assert sentence(None) == ""
    assert sentence(Reason(kind=ReasonKind.SINCE_BASELINE)) == ""


def test_what_a_user_said_is_shown_as_it_is() -> None:
    assert sentence(Reason(kind=ReasonKind.ABSENT, text="{count} of {nothing}")) == "{count} of {nothing}"


# --- what changed how figures came to be


def warmed(recording: Recording, *failures: Failure) -> Recording:
    boots = tuple(replace(boot, warm_up=WarmUp(requests=32, failures=failures)) for boot in recording.boots[:1])
    return replace(recording, boots=(*boots, *recording.boots[1:]))


def test_other_answers_are_said_by_parts() -> None:
    sizes = OtherAnswers(sizes=(11_750.0, 28.0), base_statuses={}, now_statuses={})
    statuses = OtherAnswers(of="page", base_statuses={200: 1.0}, now_statuses={200: 0.5, 304: 0.5})
    assert findings(replace(slowed_by_the_base(), other_answers=(sizes, statuses)))[:2] == (
        "answers have other sizes: 11.5 KiB before, 28 B now",
        "answers of page have other statuses: 200 in 100 % before, 200 in 50 % and 304 in 50 % now",
    )


def test_failed_requests_of_warm_ups_are_said_of_each_side_that_had_them() -> None:
    result = slowed_by_the_base()
    failed = Failure(kind="status 500", count=28, example="")
    (said,) = findings(replace(result, recording=warmed(result.recording, failed)))
    assert said.startswith("28 of 60 warm-up requests of the code here failed")
    assert said.endswith(": 28 × status 500")
    assert findings(replace(result, smoke=True, recording=warmed(result.recording, failed))) == ()


# --- what the lines under a row say of what limited a run and of loads that were due at given times

KEPT_UP = open_loop(500, attack_s=9.98, wait_s=0.02, latency_s=(0.01, 0.02), service_s=(0.01, 0.02))
QUEUED = open_loop(500, attack_s=9.98, wait_s=0.02, latency_s=(0.01, 0.04), service_s=(0.01, 0.02))
BEHIND = open_loop(100, attack_s=9.9, wait_s=40.3, latency_s=(12.9, 44.0), service_s=(12.9, 44.0))
BURST = open_loop(1000, attack_s=0, wait_s=7.6, latency_s=(0.3, 7.6), service_s=(0.3, 0.31))
DROPPED = Failure(kind="dropped", count=7, example="no connection was free for it within 30 s of when it was due")


def with_failures(recorded: Recording, *failures: Failure) -> Recording:
    first, *others = recorded.rounds
    return replace(recorded, rounds=(replace(first, failures=failures), *others))


@pytest.mark.parametrize(
    "recorded,texts",
    [
        (recording(), []),
        (KEPT_UP, []),
        (QUEUED, ["service time p50 15.0 ms, p99 19.9 ms", "475 sent late, 0 dropped"]),
        (BEHIND, ["finished in 50.2 s: attack 9.90 s, wait 40.3 s"]),
        (BURST, ["finished in 7.60 s", "service time p50 305 ms, p99 310 ms", "999 sent late, 0 dropped"]),
        (with_failures(KEPT_UP, DROPPED), ["0 sent late, 7 dropped"]),
        (replace(recording(boots=1, rounds=1), due=1025, attack_ns=490_000_000), ["finished in 505 ms"]),
    ],
    ids=["closed loop", "kept up", "queued", "behind", "burst", "dropped", "fixed count"],
)
def test_only_what_the_row_does_not_say(recorded: Recording, texts: list[str]) -> None:
    assert load_texts(result(recorded=recorded).measurement) == texts


@pytest.mark.parametrize(
    "limit,text",
    [
        (CONCURRENCY, "limited by concurrency: 31 requests in flight on 32 connections, server CPU 23 %"),
        (Limit(kind=LimitKind.DISK, evidence=""), "limited by disk"),
        (Limit(kind=LimitKind.UNCLEAR, evidence="server CPU 80 %"), "not clear what limited it: server CPU 80 %"),
    ],
)
def test_what_limited_a_run(limit: Limit, text: str) -> None:
    assert limiting_text(result(limit=limit)) == text


def test_what_a_server_does_without_saying_so_is_said_with_its_share() -> None:
    recorded = recording(boots=1, rounds=1, requests=5000)
    (first,) = recorded.rounds
    hurt = replace(recorded, rounds=(replace(first, cut_off=1204, out_of_step=1, closed_unsaid=500),))
    assert set(notes(result(recorded=hurt))) - set(notes(result(recorded=recorded))) == {
        "cut off by the server: 1,204 (it answered before it had taken the whole request)",
        "the server sent more than the answer: 1 connection given up and opened anew",
        "the server closed 500 connections without announcing it, after 10 % of the answers",
    }
