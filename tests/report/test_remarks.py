"""What the lines under a row say of what limited a run and of loads that were due at given times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.samples import CONCURRENCY, recording, result
from report.variants import open_loop

from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.recording import Failure, Recording
from pytest_fileperf.report.figures import load_texts
from pytest_fileperf.report.remarks import notes
from pytest_fileperf.report.wording import limiting_text

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
