"""When the next request is due, without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import ClosedLoop, FixedCount, Pacing

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    "pacing,elapsed_ns,started,due_ns",
    [
        (ClosedLoop(duration_ns=SECOND), 0, 0, 0),
        (ClosedLoop(duration_ns=SECOND), 5, 1_000_000, 5),
        (ClosedLoop(duration_ns=SECOND), SECOND - 1, 3, SECOND - 1),
        (ClosedLoop(duration_ns=SECOND), SECOND, 3, None),
        (ClosedLoop(duration_ns=0), 0, 0, None),
        (FixedCount(requests=3, duration_ns=SECOND), 0, 0, 0),
        (FixedCount(requests=3, duration_ns=SECOND), 7, 2, 7),
        (FixedCount(requests=3, duration_ns=SECOND), 7, 3, None),
        (FixedCount(requests=3, duration_ns=SECOND), SECOND, 0, None),
    ],
)
def test_when_the_next_request_is_due(pacing: Pacing, elapsed_ns: int, started: int, due_ns: int | None) -> None:
    assert pacing.due(elapsed_ns, started) == due_ns


@given(st.integers(0, 50), st.integers(1, 1000))
def test_a_fixed_count_starts_exactly_that_many(requests: int, step_ns: int) -> None:
    pacing = FixedCount(requests=requests, duration_ns=SECOND)
    started = 0
    while pacing.due(started * step_ns, started) is not None:
        started += 1
    assert started == requests


def plan(*, requests: int | None = None) -> LoadPlan:
    return LoadPlan(
        connections=4, warmup_ns=SECOND // 2, round_ns=SECOND, rounds=3, timeout_ns=30 * SECOND, requests=requests
    )


def test_a_load_lasts_for_its_warm_up_and_its_rounds() -> None:
    assert plan().duration_ns == 3 * SECOND + SECOND // 2
    assert plan().pacing() == ClosedLoop(duration_ns=plan().duration_ns)


def test_a_number_of_requests_makes_a_fixed_count() -> None:
    assert plan(requests=10).pacing() == FixedCount(requests=10, duration_ns=plan().duration_ns)
