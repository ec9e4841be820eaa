"""From settings to the load of each boot."""

from __future__ import annotations

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.alternation import Side
from pytest_fileperf.session.planning import (
    alternation_plan,
    boots_wanted,
    contest_title,
    load_identity,
    load_plan,
    load_title,
    turn_plan,
)
from pytest_fileperf.settings.resolve import Settings, resolve

SECOND = 1_000_000_000


def settings(**keys: object) -> Settings:
    return resolve(verb=keys, marker={}, options={}, ini={})


@pytest.mark.parametrize(
    "keys,boots",
    [
        ({}, 3),
        ({"boots": 5}, 5),
        ({"rate": 10}, 3),
        ({"gate": "none"}, 1),
        ({"gate": "none", "boots": 4}, 4),
        ({"requests": 10}, 1),
        ({"burst": 10}, 1),
        ({"ramp": "1s:10"}, 1),
    ],
)
def test_how_many_boots_share_a_run(keys: dict[str, object], boots: int) -> None:
    assert boots_wanted(settings(**keys), smoke=False) == boots
    assert boots_wanted(settings(**keys), smoke=True) == 1


@pytest.mark.parametrize(
    "keys,boots,title,identity",
    [
        ({}, 3, "32 connections, 6.00 s", {"connections": 32}),
        ({"requests": 10}, 1, "10 connections, 10 requests", {"connections": 10, "requests": 10}),
        (
            {"burst": 1000, "connections": 200},
            1,
            "1000 requests at once, 200 connections",
            {"connections": 200, "burst": 1000},
        ),
        ({"rate": 10}, 3, "10.0/s, at most 1000 connections, 6.00 s", {"connections": 1000, "rate": 10.0}),
        (
            {"ramp": "0s:50/s, 2s:50/s"},
            1,
            "ramp 0 → 50.0 → 50.0/s, at most 1000 connections, 2.00 s",
            {"connections": 1000, "ramp of rate": [[0.0, 50.0], [2.0, 50.0]]},
        ),
        (
            {"ramp": "2s:50"},
            1,
            "ramp 0 → 50.0 connections, 2.00 s",
            {"connections": 50, "ramp of connections": [[2.0, 50.0]]},
        ),
    ],
    ids=["closed", "requests", "burst", "rate", "rates", "connections"],
)
def test_a_load_in_words_and_values(
    keys: dict[str, object], boots: int, title: str, identity: dict[str, object]
) -> None:
    plan = load_plan(settings(**keys), boots, smoke=False)
    assert load_title(plan, boots) == title
    assert load_identity(plan) == identity


@pytest.mark.parametrize("keys", [{}, {"requests": 1000}, {"burst": 1000}, {"rate": 1000}, {"ramp": "9s:10/s"}])
def test_a_smoke_run_makes_a_few_requests_whatever_the_shape(keys: dict[str, object]) -> None:
    plan = load_plan(settings(**keys), 1, smoke=True)
    assert (plan.requests, plan.connections, plan.burst, plan.rate, plan.ramp) == (8, 4, None, None, None)


def test_the_duration_is_shared_by_boots_and_rounds() -> None:
    plan = load_plan(settings(duration="6s", rounds=12), 3, smoke=False)
    assert (plan.rounds, plan.round_ns, plan.warmup_ns) == (4, SECOND // 2, SECOND // 2)


def test_a_ramp_takes_its_own_time_and_has_no_warm_up() -> None:
    plan = load_plan(settings(ramp="3s:10, 1s:0", duration="60s", rounds=8), 1, smoke=False)
    assert (plan.rounds, plan.round_ns, plan.warmup_ns) == (8, SECOND // 2, 0)


def test_a_burst_may_take_its_time() -> None:
    """Its requests are due at once; each of them has the time limit, and the duration is none."""
    plan = load_plan(settings(burst=10, duration="1s", timeout="20s"), 1, smoke=False)
    assert plan.longest_ns == 3 * 20 * SECOND


def test_a_rate_too_low_for_a_single_request_is_told() -> None:
    assert load_plan(settings(rate=0.5, duration="6s"), 3, smoke=False).rate == 0.5
    with pytest.raises(PlanError, match=r"rate: at .*/s less than one request is due in 6.00 s on 3 boots"):
        load_plan(settings(rate=0.3, duration="6s"), 3, smoke=False)


@pytest.mark.parametrize(
    "latency_ms, max_duration, turn_ms, handover_ms, cycles",
    [
        (0, "60s", 50, 5, 9),
        (1, "60s", 50, 5, 9),
        (6, "60s", 63, 7.5, 7),
        (50, "60s", 525, 62.5, 1),
        (1000, "60s", 5000, 1250, 1),  # three pairs fit into the time
        (200, "6s", 750, 250, 1),
        (5000, "60s", 18_750, 6250, 1),  # or as few as there can be
    ],
)
def test_turns_are_as_long_as_requests_need(
    latency_ms: int, max_duration: str, turn_ms: int, handover_ms: float, cycles: int
) -> None:
    plan = alternation_plan(settings(max_duration=max_duration), pair=0, latency_ns=latency_ms * SECOND // 1000)
    assert (plan.turn_ns, plan.handover_ns) == (turn_ms * SECOND // 1000, handover_ms * SECOND // 1000)
    assert len(plan.firsts) == cycles
    assert plan.warmup_ns >= plan.handover_ns * len(plan.warm_firsts)
    assert len(plan.warm_firsts) == max(1, min(4, int(200 / handover_ms)))
    assert (plan.connections, plan.timeout_ns) == (32, 30 * SECOND)


def test_later_pairs_are_longer_and_whose_turn_is_first_is_up_to_chance() -> None:
    first, later = (alternation_plan(settings(), pair=pair, latency_ns=0) for pair in (0, 3))
    assert (len(first.firsts), len(later.firsts)) == (9, 30)
    orders = {alternation_plan(settings(), pair=3, latency_ns=0).firsts for _ in range(20)}
    assert len(orders) > 1
    assert {first for order in orders for first in order} == set(Side)


@pytest.mark.parametrize(
    "keys, turn",
    [
        ({}, None),
        ({"rate": 10}, 2 * SECOND),  # 20 requests
        ({"rate": 1000}, SECOND),
        ({"requests": 10}, 6 * SECOND),
        ({"burst": 10, "timeout": "3s"}, 3 * SECOND),
    ],
)
def test_loads_that_are_no_plain_closed_loop_are_whole_turns(keys: dict[str, object], turn: int | None) -> None:
    plan = turn_plan(settings(**keys))
    assert (None if plan is None else plan.rounds * plan.round_ns) == turn


@pytest.mark.parametrize(
    "keys, title",
    [
        ({}, "32 connections in turn, 8 pairs of boots, 33.0 s"),
        ({"requests": 10}, "10 connections, 10 requests in turn, 8 pairs of boots, 33.0 s"),
    ],
)
def test_what_a_comparison_is_called(keys: dict[str, object], title: str) -> None:
    assert contest_title(settings(**keys), 8, 33.4) == title
