"""A load over several generators: together they make exactly what one would make."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, count, islice, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.feed import Order
from pytest_fileperf.plan.load import Alternation, LoadPlan, Ramp, Side, generators_used, split
from pytest_fileperf.plan.pacing import Stage
from pytest_fileperf.plan.work import exponential, turns

MS = 1_000_000
PLAN = LoadPlan(connections=32, warmup_ns=50 * MS, round_ns=200 * MS, rounds=2, timeout_ns=1000 * MS, generators=4)
OPEN = {
    "rate": replace(PLAN, rate=333.0),
    "random arrivals": replace(PLAN, rate=333.0, seed=5),
    "ramp of a rate": replace(
        PLAN, ramp=Ramp(stages=(Stage(duration_ns=200 * MS, target=400), Stage(duration_ns=0, target=90)), of_rate=True)
    ),
}
UP_AND_DOWN = Ramp(stages=(Stage(duration_ns=10 * MS, target=13), Stage(duration_ns=7 * MS, target=2)), of_rate=False)


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


def test_one_generator_has_the_plan_itself() -> None:
    plan = replace(PLAN, generators=1)
    assert split(plan) == (plan,)
    assert split(replace(PLAN, connections=1))[0].connections == 1


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("generators", [2, 4, 7])
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
    plan = Alternation(
        connections=9,
        generators=4,
        warmup_ns=MS,
        turns_ns=(MS, MS),
        handover_ns=0,
        firsts=(Side.BASE, Side.NOW),
        timeout_ns=MS,
    )
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
