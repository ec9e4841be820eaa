from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.load import Alternation, Side, SideTurns

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
def test_at_any_time_it_is_the_turn_of_one_side(plan: Alternation, data: st.DataObject) -> None:
    elapsed = data.draw(st.integers(0, plan.duration_ns - 1))
    dues = [plan.pacing(side).due(elapsed, started=0, busy=0) for side in Side]
    assert sum(due == elapsed for due in dues) == 1
    assert all(due is None or elapsed <= due < plan.duration_ns for due in dues)


@given(ALTERNATIONS, st.integers(0, 10**6))
def test_nothing_is_due_once_it_is_over(plan: Alternation, beyond: int) -> None:
    assert [plan.pacing(side).due(plan.duration_ns + beyond, started=0, busy=0) for side in Side] == [None, None]


@given(ALTERNATIONS)
def test_turns_of_both_sides_follow_each_other_without_a_gap(plan: Alternation) -> None:
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


@given(ALTERNATIONS)
def test_whose_turn_is_first_is_as_planned(plan: Alternation) -> None:
    for first, base, now in zip(plan.firsts, plan.rounds(Side.BASE), plan.rounds(Side.NOW), strict=True):
        assert (base < now) is (first == Side.BASE)
