"""Loads: the turns of two servers; and several generators, which together make exactly what one would make."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, count, islice, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.feed import Order
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side, SideTurns, generators_used, split
from pytest_fileperf.plan.network import Network
from pytest_fileperf.plan.pacing import ConnectionRamp, RateRamp, Stage
from pytest_fileperf.plan.work import exponential, turns

MS = 1_000_000


def alternation(
    *firsts: Side, warmup_ms: int = 100, warm: tuple[Side, ...] = (Side.BASE,), turn_ms: int = 50, handover_ms: int = 10
) -> Alternation:
    return Alternation(
        connections=4,
        warmup_ns=warmup_ms * MS,
        warm_firsts=warm,
        turns_ns=(turn_ms * MS,) * len(firsts),
        handover_ns=handover_ms * MS,
        firsts=firsts,
        timeout_ns=1000 * MS,
    )


ALTERNATIONS = st.builds(
    lambda cycles, warm_firsts, warmup_ns, handover_ns: Alternation(
        connections=1,
        warm_firsts=tuple(warm_firsts),
        warmup_ns=warmup_ns,
        turns_ns=tuple(turn_ns for _, turn_ns in cycles),
        handover_ns=handover_ns,
        firsts=tuple(first for first, _ in cycles),
        timeout_ns=MS,
    ),
    cycles=st.lists(st.tuples(st.sampled_from(Side), st.integers(20, 1000)), min_size=1, max_size=30),
    warm_firsts=st.lists(st.sampled_from(Side), min_size=1, max_size=5),
    warmup_ns=st.integers(0, 1000),
    handover_ns=st.integers(0, 19),
)


def edges_ms(plan: Alternation, side: Side) -> list[int]:
    return [edge // MS for edge in plan.pacing(side).edges]


@pytest.mark.parametrize(
    "plan, base, now",
    [
        (alternation(Side.BASE, Side.NOW), [0, 100, 200, 250, 350, 400], [100, 200, 250, 300, 300, 350]),
        (alternation(Side.NOW), [0, 100, 250, 300], [100, 200, 200, 250]),
        (alternation(Side.BASE, warmup_ms=0), [0, 50], [50, 100]),
        (
            alternation(Side.BASE, warm=(Side.NOW, Side.BASE)),
            [50, 100, 100, 150, 200, 250],
            [0, 50, 150, 200, 250, 300],
        ),
    ],
)
def test_each_side_warms_up_and_then_has_a_turn_in_each_cycle(
    plan: Alternation, base: list[int], now: list[int]
) -> None:
    assert (edges_ms(plan, Side.BASE), edges_ms(plan, Side.NOW)) == (base, now)


@pytest.mark.parametrize(
    "elapsed, due",
    [(0, 0), (9, 9), (10, 30), (29, 30), (30, 30), (39, 39), (40, 40), (49, 49), (50, None), (10**9, None)],
)
def test_a_request_is_due_now_within_a_turn_else_when_the_next_begins(elapsed: int, due: int | None) -> None:
    """Two turns that follow each other, those at 30 and 40, are one for the pacing."""
    assert SideTurns(edges=(0, 10, 30, 40, 40, 50)).due(elapsed, started=7, busy=1) == due


def test_a_round_is_a_turn_without_its_handover_in_the_time_of_the_measurement() -> None:
    plan = alternation(Side.BASE, Side.NOW)
    rounds_ms = [[(start // MS, end // MS) for start, end in plan.rounds(side)] for side in Side]
    assert rounds_ms == [[(10, 50), (160, 200)], [(60, 100), (110, 150)]]


def test_it_ends_after_all_cycles_and_a_time_limit() -> None:
    plan = alternation(Side.BASE, Side.NOW, Side.NOW)
    assert (plan.measured_from_ns, plan.duration_ns, plan.longest_ns) == (200 * MS, 500 * MS, 1500 * MS)


@given(ALTERNATIONS, st.data())
def test_at_any_time_it_is_the_turn_of_one_side_until_it_is_over(plan: Alternation, data: st.DataObject) -> None:
    elapsed, beyond = data.draw(st.integers(0, plan.duration_ns - 1)), data.draw(st.integers(0, 10**6))
    dues = [plan.pacing(side).due(elapsed, started=0, busy=0) for side in Side]
    assert sum(due == elapsed for due in dues) == 1
    assert all(due is None or elapsed <= due < plan.duration_ns for due in dues)
    assert [plan.pacing(side).due(plan.duration_ns + beyond, started=0, busy=0) for side in Side] == [None, None]
    edges = [plan.pacing(side).edges for side in Side]
    assert all(list(of_side) == sorted(of_side) for of_side in edges)
    turns = sorted(turn for of_side in edges for turn in zip(of_side[::2], of_side[1::2], strict=True))
    assert [start for start, _ in turns] == [0, *(end for _, end in turns[:-1])]
    assert turns[-1][1] == plan.duration_ns


@given(ALTERNATIONS)
def test_rounds_are_one_a_cycle_equally_long_on_both_sides_and_in_a_turn_of_their_side(plan: Alternation) -> None:
    zero_ns = plan.measured_from_ns
    for side in Side:
        rounds = plan.rounds(side)
        assert len(rounds) == len(plan.firsts)
        for cycle, (start_ns, end_ns) in enumerate(rounds):
            turn_ns, before_ns = plan.turns_ns[cycle], 2 * sum(plan.turns_ns[:cycle])
            assert end_ns - start_ns == turn_ns - plan.handover_ns
            assert start_ns - plan.handover_ns - before_ns in (0, turn_ns)
            for at_ns in (start_ns, end_ns - 1):
                assert plan.pacing(side).due(zero_ns + at_ns, started=0, busy=0) == zero_ns + at_ns
    for first, base, now in zip(plan.firsts, plan.rounds(Side.BASE), plan.rounds(Side.NOW), strict=True):
        assert (base < now) is (first == Side.BASE)


# --- Several generators


PLAN = LoadPlan(connections=32, warmup_ns=50 * MS, round_ns=200 * MS, rounds=2, timeout_ns=1000 * MS, generators=4)
OPEN = {
    "rate": replace(PLAN, rate=333.0),
    "random arrivals": replace(PLAN, rate=333.0, seed=5),
    "ramp of a rate": replace(
        PLAN, ramp=RateRamp(stages=(Stage(duration_ns=200 * MS, target=400), Stage(duration_ns=0, target=90)))
    ),
}
UP_AND_DOWN = ConnectionRamp(stages=(Stage(duration_ns=10 * MS, target=13), Stage(duration_ns=7 * MS, target=2)))


def parts(plan: LoadPlan) -> list[LoadPlan]:
    return [part for part in split(plan) if isinstance(part, LoadPlan)]


def due_times(plan: LoadPlan) -> list[int]:
    """Returns all due times of an open loop, which ends with None or with the end of its time."""
    pacing, end_ns = plan.pacing(), plan.duration_ns if plan.ramp is None else plan.ramp.duration_ns
    asked = (pacing.due(0, started, 0) for started in count())
    return [due_ns for due_ns in takewhile(lambda due_ns: due_ns not in (None, end_ns), asked) if due_ns is not None]


@given(
    st.integers(1, 5000),
    st.integers(1, 70),
    st.one_of(st.none(), st.integers(1, 20_000)),
    st.one_of(st.none(), st.integers(1, 20_000)),
)
def test_the_sums_are_what_was_asked_and_every_share_can_be_made(
    connections: int, generators: int, requests: int | None, burst: int | None
) -> None:
    # A plan has no more connections than requests.
    most = min(number for number in (connections, requests, burst) if number is not None)
    plan = replace(PLAN, connections=most, generators=generators, requests=requests, burst=burst)
    found = parts(plan)
    assert len(found) == generators_used(plan) == min(generators, most)
    assert sum(part.connections for part in found) == most
    for asked, own in ((requests, [part.requests for part in found]), (burst, [part.burst for part in found])):
        known = [number for number in own if number is not None]
        assert (sum(known) if known else None) == asked
        assert not known or (min(known) >= 1 and max(known) - min(known) <= 1)
    assert min(part.connections for part in found) >= 1
    assert split(plan) == tuple(found)


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("generators", [1, 4, 7])
def test_all_due_times_are_those_of_one_generator(name: str, generators: int) -> None:
    plan = replace(OPEN[name], generators=generators)
    each = [due_times(part) for part in parts(plan)]
    assert sorted(chain.from_iterable(each)) == due_times(replace(plan, generators=1))
    assert [own[0] for own in each] == due_times(plan)[:generators]


def test_no_two_requests_are_due_at_one_instant_by_splitting() -> None:
    plan = replace(PLAN, rate=1000.0, generators=4, round_ns=1000 * MS, rounds=1, warmup_ns=0)
    due_ns = sorted(chain.from_iterable(map(due_times, parts(plan))))
    assert len(due_ns) == 1000
    assert {later - before for before, later in pairwise(due_ns)} == {MS}


def test_a_ramp_of_connections_has_as_many_at_work_as_one_generator_would_have() -> None:
    plan = replace(PLAN, connections=13, ramp=UP_AND_DOWN)

    def allowed(part: LoadPlan, elapsed_ns: int) -> int:
        pacing = part.pacing()
        return sum(pacing.due(elapsed_ns, 0, busy) == elapsed_ns for busy in range(part.connections))

    for elapsed_ns in range(0, 17 * MS, MS // 3):
        wanted = allowed(replace(plan, generators=1), elapsed_ns)
        assert sum(allowed(part, elapsed_ns) for part in parts(plan)) == wanted


def test_generators_take_the_same_turns_of_two_servers() -> None:
    plan = replace(alternation(Side.BASE, Side.NOW), connections=9, generators=4)
    found = split(plan)
    assert [part.connections for part in found] == [3, 2, 2, 2]
    assert {part.pacing(Side.NOW) for part in found if isinstance(part, Alternation)} == {plan.pacing(Side.NOW)}


@given(st.integers(1, 500), st.integers(1, 9), st.integers(1, 60))
def test_a_fixed_number_of_requests_goes_through_the_rows_as_one_generator_would(
    requests: int, generators: int, rows: int
) -> None:
    plan = replace(PLAN, connections=min(9, requests), generators=generators, requests=requests)
    seen = Counter(
        chain.from_iterable(
            islice(Order().places(rows, first=part.share.first(rows)), part.requests) for part in parts(plan)
        )
    )
    assert seen == Counter(islice(Order().places(rows), requests))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(1, 300), st.integers(1, 9))
def test_a_fixed_number_of_requests_has_the_mix_that_one_generator_would_have(
    weights: list[float], requests: int, generators: int
) -> None:
    plan = replace(PLAN, connections=min(9, requests), generators=generators, requests=requests)
    seen = Counter(chain.from_iterable(islice(turns(weights, part.share), part.requests) for part in parts(plan)))
    assert seen == Counter(islice(turns(weights), requests))


def test_generators_of_a_load_for_a_time_begin_at_equal_distances_and_keep_the_weights() -> None:
    found = parts(replace(PLAN, generators=4))
    assert [part.share.first(100) for part in found] == [0, 25, 50, 75]
    # Every generator has both parts: were its turns every fourth of all, some would never have the second one.
    assert all(Counter(islice(turns([3, 1], part.share), 400)) == {0: 300, 1: 100} for part in found)


def test_every_user_has_its_own_pauses_whichever_generator_it_belongs_to() -> None:
    pause = exponential("1s")
    alone = [next(user) for user in islice(pause.of_users(), 8)]
    found = [[next(user) for user in islice(pause.of_users(part.share), 2)] for part in parts(PLAN)]
    assert sorted(chain.from_iterable(found)) == sorted(alone)
    assert len(set(alone)) == 8


# --- where load may go


@pytest.mark.parametrize(
    "host, allowed, looked_up",
    [
        ("127.0.0.1", True, False),
        ("localhost", True, False),
        ("10.0.0.5", True, False),
        ("10.0.0.6", False, False),
        ("fd00::0:1", True, False),
        ("files.test", False, True),
    ],
)
def test_load_may_go_to_what_is_named(host: str, allowed: bool, looked_up: bool) -> None:
    network = Network(addresses=frozenset({"10.0.0.5", "fd00::1"}))
    assert (network.allows(host), network.looks_up(host)) == (allowed, looked_up)
    assert not Network().looks_up(host)


def test_another_machine_s_own_services_are_not_named_by_anybody() -> None:
    there = Network(addresses=frozenset({"10.0.0.5"}), loopback=False)
    assert [there.allows(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.5")] == [False, False, False, True]
