"""Settings of a search for the capacity: what it takes over, what it cannot use, and what is its own."""

from __future__ import annotations

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.settings.plans import Plan, capacity_title
from pytest_fileperf.settings.settings import Settings, for_capacity, for_one_load, resolve

SECOND = 1_000_000_000


def settings(**verb: object) -> Settings:
    return resolve(verb={"app": "app:app", **verb})


def searching(**verb: object) -> Settings:
    return for_capacity(settings(max_p99="100ms", **verb))


def planned(settings: Settings, *, smoke: bool = False) -> Plan:
    test = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
    return Plan(test=test, work=Operation(method="GET", url="/"), settings=settings, app=None, smoke=smoke)


def test_the_gate_is_that_of_the_capacity_or_none() -> None:
    assert searching().gate == ("capacity",)
    assert searching(gate="rps, p50").gate == ("capacity",)
    assert searching(gate="none").gate == ()


@pytest.mark.parametrize("tolerance,expected", [("10%", 0.1), ("capacity=10%", 0.1), ("rps=10%", None)])
def test_its_tolerance_is_that_of_all_metrics_or_its_own(tolerance: str, expected: float | None) -> None:
    assert searching(tolerance=tolerance).tolerances.get("capacity") == expected


@pytest.mark.parametrize(
    "verb,says",
    [
        ({"max_error_rate": "1%"}, 'none is given: say max_p99="100ms"'),
        ({"max_mean": "10ms"}, 'none is given: say max_p99="100ms"'),
        ({"max_p99": "1s", "rate": 10}, "rate: a capacity is searched for at rates that the search chooses"),
        ({"max_p99": "1s", "burst": 10}, "burst: a capacity is searched for"),
        ({"max_p99": "1s", "requests": 10}, "requests: a capacity is searched for"),
        ({"max_p99": "1s", "ramp": "1s:10"}, "ramp: a capacity is searched for"),
        ({"max_p99": "1s", "pause": "1s"}, "pause is what users do who wait for answers"),
        ({"max_p99": "1s", "max_error_rate": "100%"}, "every request may fail"),
    ],
)
def test_what_no_search_can_use_is_refused(verb: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError) as raised:
        for_capacity(settings(**verb))
    assert says in str(raised.value)


@pytest.mark.parametrize("verb", [{"gate": "capacity"}, {"min_capacity": 10}])
def test_a_load_that_searches_for_nothing_has_no_capacity(verb: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"goes with a search only: write fileperf\.capacity\.get"):
        for_one_load(settings(**verb))


def test_it_takes_a_minute_on_three_boots_unless_told_otherwise() -> None:
    plan = planned(searching())
    assert plan.capacity is not None
    assert (plan.boots, plan.capacity.total_ns) == (3, 60 * SECOND)
    assert planned(searching(gate="none")).boots == 3
    shorter = planned(searching(max_duration="20s", boots=2))
    assert shorter.capacity is not None
    assert (shorter.boots, shorter.capacity.total_ns) == (2, 20 * SECOND)


def test_in_turn_each_side_has_that_time() -> None:
    plan = planned(searching(max_duration="20s"))
    assert plan.max_duration_ns == 40 * SECOND
    assert 4 * plan.pair_ns(0) < 40 * SECOND < 5 * plan.pair_ns(9)


def test_only_limits_of_latency_and_errors_are_searched_by() -> None:
    plan = planned(searching(max_error_rate="0.1%", max_rss="1GiB", min_capacity=10)).capacity
    assert plan is not None
    assert dict(plan.limits) == {"max_p99": 0.1, "max_error_rate": 0.001}
    assert capacity_title(plan) == "the highest rate with max_error_rate 0.1 %, max_p99 100 ms"


def test_a_request_that_takes_far_too_long_has_failed() -> None:
    usual, slow = planned(searching()).capacity, planned(for_capacity(settings(max_p99="1s"))).capacity
    assert usual is not None
    assert slow is not None
    assert (usual.timeout_ns, slow.timeout_ns) == (5 * SECOND, 20 * SECOND)


def test_a_smoke_run_searches_for_nothing() -> None:
    plan = planned(searching(), smoke=True)
    assert plan.capacity is None
    assert plan.load.requests == 8
