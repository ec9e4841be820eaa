"""From settings to plans: of a measurement, of a comparison and of a search for the capacity."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.load import Alternation, Side
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.settings.plans import Plan, load_identity, load_title, usual_pair_ns
from pytest_fileperf.settings.settings import Settings, for_capacity, for_one_load, resolve

SECOND = 1_000_000_000
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


def settings(**keys: object) -> Settings:
    return resolve(verb=keys)


def planned(**keys: object) -> Plan:
    return Plan(test=TEST, work=Operation(method="GET", url="/"), settings=settings(**keys), app=None)


def smoked(**keys: object) -> Plan:
    return replace(planned(**keys), smoke=True)


def turns(number: int = 0, latency_ns: int = 0, **keys: object) -> Alternation:
    plan = planned(**keys)
    return plan.alternation(plan.pair_ns(number), latency_ns=latency_ns, chance=random.SystemRandom())


@pytest.mark.parametrize("left_ns", range(2 * SECOND, 40 * SECOND, 700_000_000))
def test_pairs_fill_the_time_that_is_left(left_ns: int) -> None:
    plan, more_ns, usual_ns = planned(), 400_000_000, usual_pair_ns(3)
    while (pair_ns := plan.next_pair_ns(3, left_ns=left_ns, more_ns=more_ns)) + more_ns <= left_ns:
        assert usual_pair_ns(0) <= pair_ns < 1.4 * usual_ns
        left_ns -= pair_ns + more_ns
    assert left_ns < 10
    assert plan.next_pair_ns(2, left_ns=left_ns, more_ns=more_ns) == usual_pair_ns(0)


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
    assert planned(**keys).boots == boots
    assert smoked(**keys).boots == 1


@pytest.mark.parametrize("server", [InProcess(), Uvicorn(port=18_123), Url("http://127.0.0.1:9")])
def test_what_is_there_only_once_makes_the_whole_run(server: ServerSpec) -> None:
    plan = planned(server=server)
    assert (plan.boots, plan.load.rounds) == (1, 12)


@pytest.mark.parametrize(
    "keys, title, identity",
    [
        ({}, "32 connections, 4.00 s", {"connections": 32}),
        ({"requests": 10}, "10 connections, 10 requests", {"connections": 10, "requests": 10}),
        (
            {"burst": 1000, "connections": 200},
            "1000 requests at once, 200 connections",
            {"connections": 200, "burst": 1000},
        ),
        ({"rate": 10}, "10.0/s, at most 1000 connections, 4.00 s", {"connections": 1000, "rate": 10.0}),
        (
            {"ramp": "0s:50/s, 2s:50/s"},
            "ramp 0 → 50.0 → 50.0/s, at most 1000 connections, 2.00 s",
            {"connections": 1000, "ramp of rate": [[0.0, 50.0], [2.0, 50.0]]},
        ),
        (
            {"pause": "1s", "connections": 5, "duration": "3s"},
            "5 connections, 3.00 s, pauses of 1.00 s",
            {"connections": 5, "pause": {"low": 1.0, "high": 1.0}},
        ),
        (
            {"ramp": "2s:50"},
            "ramp 0 → 50.0 connections, 2.00 s",
            {"connections": 50, "ramp of connections": [[2.0, 50.0]]},
        ),
    ],
    ids=["closed", "requests", "burst", "rate", "rates", "pause", "connections"],
)
def test_a_load_in_words_and_values(keys: dict[str, object], title: str, identity: dict[str, object]) -> None:
    plan = planned(**keys)
    assert load_title(plan.load, plan.boots) == title
    assert load_identity(plan.load) == identity


@pytest.mark.parametrize(
    "keys", [{}, {"requests": 1000}, {"burst": 1000}, {"rate": 1000}, {"ramp": "9s:10/s"}, {"pause": "1s"}]
)
def test_a_smoke_run_makes_a_few_requests_whatever_the_shape(keys: dict[str, object]) -> None:
    plan = smoked(**keys).load
    assert (plan.requests, plan.connections) == (8, 4)
    assert (plan.burst, plan.rate, plan.ramp, plan.pause) == (None, None, None, None)


@pytest.mark.parametrize(
    "keys, rounds, round_s, warmup_s, longest_s",
    [
        ({"duration": "6s", "rounds": 12}, 4, 0.5, 0.3, None),  # shared by three boots
        ({"ramp": "3s:10, 1s:0", "duration": "60s", "rounds": 8}, 8, 0.5, 0, None),  # takes its own time
        # Its requests are due at once; each of them has the time limit, and the duration is none.
        ({"burst": 10, "duration": "1s", "timeout": "20s"}, 1, 0, 0.3, 60),
    ],
)
def test_how_long_a_load_takes(
    keys: dict[str, object], rounds: int, round_s: float, warmup_s: float, longest_s: float | None
) -> None:
    plan = planned(**keys).load
    if longest_s is not None:
        assert plan.longest_ns == longest_s * SECOND
        return
    assert (plan.rounds, plan.round_ns, plan.warmup_ns) == (rounds, round_s * SECOND, warmup_s * SECOND)


def test_a_rate_too_low_for_a_single_request_is_told() -> None:
    assert planned(rate=0.5, duration="6s").load.rate == 0.5
    with pytest.raises(PlanError, match=r"rate: at .*/s less than one request is due in 6.00 s on 3 boots"):
        _ = planned(rate=0.3, duration="6s").load


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
    plan = turns(latency_ns=latency_ms * SECOND // 1000, max_duration=max_duration)
    usual_ns = turn_ms * SECOND // 1000
    assert plan.handover_ns == handover_ms * SECOND // 1000
    assert len(plan.turns_ns) == len(plan.firsts) == cycles
    assert all(0.7 * usual_ns <= turn_ns <= 1.3 * usual_ns for turn_ns in plan.turns_ns)
    if turn_ms < 8.4 * handover_ms - 1:  # of the slowest requests
        assert set(plan.turns_ns) == {usual_ns}
    assert plan.warmup_ns >= plan.handover_ns * len(plan.warm_firsts)
    assert len(plan.warm_firsts) == max(1, min(2, int(100 / handover_ms)))
    assert (plan.connections, plan.timeout_ns) == (32, min(30, int(max_duration.removesuffix("s"))) * SECOND)


def test_later_pairs_are_longer_and_chance_draws_whose_turn_is_first_and_how_long_turns_are() -> None:
    first, later = (turns(number) for number in (0, 3))
    assert (len(first.firsts), len(later.firsts)) == (9, 30)
    assert [usual_pair_ns(number) * 10 // SECOND for number in range(5)] == [9, 9, 9, 30, 30]
    drawn = [turns(3) for _ in range(30)]
    assert len({plan.firsts for plan in drawn}) > 1
    assert {first for plan in drawn for first in plan.firsts} == set(Side)
    lengths_ns = [turn_ns for plan in drawn for turn_ns in plan.turns_ns]
    assert len(set(lengths_ns)) == 7
    assert sum(lengths_ns) / len(lengths_ns) == pytest.approx(50 * SECOND // 1000, rel=0.03)


@pytest.mark.parametrize(
    "keys, turn",
    [
        ({}, None),
        ({"rate": 10}, 2 * SECOND),  # 20 requests
        ({"rate": 1000}, SECOND),
        ({"requests": 10}, 4 * SECOND),
        ({"burst": 10, "timeout": "3s"}, 3 * SECOND),
        ({"pause": "2s"}, 6 * SECOND),  # in short turns each user would pause in the other side's
    ],
)
def test_loads_that_are_no_plain_closed_loop_are_whole_turns(keys: dict[str, object], turn: int | None) -> None:
    plan = planned(**keys).turn
    assert (None if plan is None else plan.rounds * plan.round_ns) == turn


def test_a_comparison_has_a_title_tolerances_and_every_load_that_it_makes() -> None:
    plan = planned(connections=4, timeout="3s", gate=["rps", "p99"], tolerance={"rps": "10%"})
    assert plan.title_in_turn(8, 33.4) == "4 connections in turn, 8 pairs of boots, 33.0 s"
    assert plan.tolerances == {"rps": pytest.approx(0.1), "p99": METRICS["p99"].tolerance}
    loads = (plan.probe, plan.limiting, plan.profile())
    assert [load.duration_ns * 1000 // SECOND for load in loads] == [200, 800, 2000]
    assert {load.connections for load in loads} == {4}
    assert {load.timeout_ns for load in loads} == {3 * SECOND}


@pytest.mark.parametrize("keys", [{"requests": 10}, {"burst": 10}, {"ramp": "2s:10"}])
def test_a_load_that_is_whole_is_each_of_them(keys: dict[str, object]) -> None:
    plan = planned(**keys)
    assert plan.probe == replace(plan.limiting, close=False) == plan.profile() == plan.turn
    assert plan.limiting.close


def test_a_rate_is_looked_at_for_longer() -> None:
    plan = planned(rate=1000)
    assert plan.probe == replace(plan.limiting, close=False) == plan.turn
    looked = plan.profile()
    assert (looked.rate, looked.warmup_ns, looked.round_ns) == (1000, 0, 2 * SECOND)


@pytest.mark.parametrize("max_s,spent_s,timeout_s", [(5, 3.2, 2.8), (5, 20, 2.5), (20, 7, 14), (40, 9, 30)])
def test_after_a_comparison_that_was_given_up_no_answer_is_waited_for_beyond_the_time(
    max_s: int, spent_s: float, timeout_s: float
) -> None:
    """One request a connection has its time, not two."""
    found = planned(max_duration=f"{max_s}s").alone(spent_ns=round(spent_s * SECOND)).settings
    assert found.timeout_ns == pytest.approx(timeout_s * SECOND)
    assert found.warmup_ns + found.duration_ns <= found.timeout_ns
    own = planned(max_duration=f"{max_s}s", timeout="7s")
    assert own.alone(spent_ns=SECOND).settings == replace(own.settings, boots=1)


# --- Settings of a search for the capacity: what it takes over, what it cannot use, and what is its own


def searching(**verb: object) -> Settings:
    return for_capacity(settings(max_p99="100ms", **verb))


def searched(settings: Settings, *, smoke: bool = False) -> Plan:
    return replace(planned(), settings=settings, smoke=smoke)


@pytest.mark.parametrize(
    "keys, gate, tolerance",
    [
        ({}, ("capacity",), None),
        ({"gate": "rps, p50", "tolerance": "10%"}, ("capacity",), 0.1),
        ({"tolerance": "capacity=10%"}, ("capacity",), 0.1),
        ({"tolerance": "rps=10%"}, ("capacity",), None),
        ({"gate": "none"}, (), None),
    ],
)
def test_its_gate_is_that_of_the_capacity_or_none_and_its_tolerance_that_of_all_or_its_own(
    keys: dict[str, object], gate: tuple[str, ...], tolerance: float | None
) -> None:
    found = searching(**keys)
    assert found.gate == gate
    assert found.tolerances.get("capacity") == tolerance


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


def test_it_takes_a_minute_on_three_boots_unless_told_otherwise_and_that_on_each_side() -> None:
    plan = searched(searching())
    assert plan.searches
    assert (plan.boots, plan.settings.search_ns) == (3, 60 * SECOND)
    assert searched(searching(gate="none")).boots == 3
    shorter = searched(searching(max_duration="20s", boots=2))
    assert (shorter.boots, shorter.settings.search_ns, shorter.max_duration_ns) == (2, 20 * SECOND, 40 * SECOND)
    assert 4 * shorter.pair_ns(0) < 40 * SECOND < 5 * shorter.pair_ns(9)
    smoke = searched(searching(), smoke=True)
    assert not smoke.searches
    assert smoke.load.requests == 8


def test_only_limits_of_latency_and_errors_are_searched_by() -> None:
    plan = searched(searching(max_error_rate="0.1%", max_rss="1GiB", min_capacity=10))
    assert plan.search_limits == {"max_p99": 0.1, "max_error_rate": 0.001}
    assert plan.search_title == "the highest rate with max_error_rate 0.1 %, max_p99 100 ms"


def test_a_request_that_takes_far_too_long_has_failed() -> None:
    loads = [
        searched(asked).search_load(
            100.0, warmup_s=0.1, seconds=1.0, chance=random.Random(1), place=0.5, busy_rate=200.0
        )
        for asked in (searching(), for_capacity(settings(max_p99="1s")))
    ]
    assert [load.timeout_ns for load in loads] == [5 * SECOND, 20 * SECOND]
