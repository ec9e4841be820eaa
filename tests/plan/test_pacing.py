"""When the next request is due, without a clock; and draws of instants, which together are as crowded as on average."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import (
    Arrivals,
    ClosedLoop,
    ConnectionRamp,
    ConstantRate,
    Pacing,
    RateRamp,
    Stage,
    crowding,
    instants,
    place_of,
    random_arrivals,
    spread_seed,
)

SECOND = 1_000_000_000


def stages(*pairs: tuple[float, float]) -> tuple[Stage, ...]:
    """Returns stages of (seconds, target)."""
    return tuple(Stage(duration_ns=round(seconds * SECOND), target=target) for seconds, target in pairs)


UP_AND_DOWN = stages((2, 10), (1, 10), (2, 0))
JUMP = stages((0, 5), (1, 5))
BURST = Arrivals(requests=3)
PAUSE = stages((1, 2), (0, 0), (1, 0), (0, 2), (1, 2))


@pytest.mark.parametrize(
    "pacing,elapsed_ns,started,due_ns",
    [
        (ClosedLoop(duration_ns=SECOND), 0, 0, 0),
        (ClosedLoop(duration_ns=SECOND), 5, 1_000_000, 5),
        (ClosedLoop(duration_ns=SECOND), SECOND - 1, 3, SECOND - 1),
        (ClosedLoop(duration_ns=SECOND), SECOND, 3, None),
        (ClosedLoop(duration_ns=0), 0, 0, None),
        (ClosedLoop(requests=3, duration_ns=SECOND), 0, 0, 0),
        (ClosedLoop(requests=3, duration_ns=SECOND), 7, 2, 7),
        (ClosedLoop(requests=3, duration_ns=SECOND), 7, 3, None),
        (ClosedLoop(requests=3, duration_ns=SECOND), SECOND, 0, None),
        (BURST, 0, 0, 0),
        (BURST, 100 * SECOND, 2, 0),
        (BURST, 0, 3, None),
        (ConstantRate(rate=10, duration_ns=SECOND), 0, 0, 0),
        (ConstantRate(rate=10, duration_ns=SECOND), 0, 9, 9 * SECOND // 10),
        (ConstantRate(rate=3, duration_ns=SECOND), 0, 2, 666_666_667),
        # After the last one the load goes on to its end, so that every round is whole.
        (ConstantRate(rate=10, duration_ns=SECOND), SECOND - 1, 10, SECOND),
        (ConstantRate(rate=10, duration_ns=SECOND), SECOND, 10, None),
        # A late load is asked for what was due, whatever the time.
        (ConstantRate(rate=10, duration_ns=SECOND), 5 * SECOND, 4, 4 * SECOND // 10),
        # 0 to 10/s in 2 s: 5·t²/2 requests are due by t.
        (RateRamp(stages=UP_AND_DOWN), 0, 0, 0),
        (RateRamp(stages=UP_AND_DOWN), 0, 10, 2 * SECOND),
        (RateRamp(stages=UP_AND_DOWN), 0, 15, 2 * SECOND + SECOND // 2),
        (RateRamp(stages=UP_AND_DOWN), 0, 20, 3 * SECOND),
        (RateRamp(stages=UP_AND_DOWN), 0, 29, 4_367_544_468),
        (RateRamp(stages=UP_AND_DOWN), 0, 30, 5 * SECOND),
        (RateRamp(stages=UP_AND_DOWN), 5 * SECOND, 30, None),
        (RateRamp(stages=JUMP), 0, 0, 0),
        (RateRamp(stages=JUMP), 0, 1, SECOND // 5),
        (RateRamp(stages=JUMP), 0, 5, SECOND),
        (RateRamp(stages=PAUSE), 0, 1, 2 * SECOND),
        (RateRamp(stages=PAUSE), 0, 2, 2 * SECOND + SECOND // 2),
    ],
)
def test_when_the_next_request_is_due(pacing: Pacing, elapsed_ns: int, started: int, due_ns: int | None) -> None:
    assert pacing.due(elapsed_ns, started, 0) == due_ns


@pytest.mark.parametrize(
    "elapsed_ns,busy,due_ns",
    [
        (0, 0, SECOND // 5),
        (SECOND // 5, 0, SECOND // 5),
        (SECOND, 4, SECOND),
        (SECOND, 5, 12 * SECOND // 10),
        (2 * SECOND, 9, 2 * SECOND),
        (2 * SECOND + 1, 9, 2 * SECOND + 1),
        # More than there may ever be: nothing until the end.
        (SECOND, 10, 5 * SECOND),
        # On the way down: 5 at 4 s.
        (4 * SECOND, 4, 4 * SECOND),
        (4 * SECOND, 5, 5 * SECOND),
        (5 * SECOND, 0, None),
    ],
)
def test_a_ramp_of_connections_lets_so_many_work(elapsed_ns: int, busy: int, due_ns: int | None) -> None:
    assert ConnectionRamp(stages=UP_AND_DOWN).due(elapsed_ns, 0, busy) == due_ns


@given(st.integers(0, 50), st.integers(1, 1000))
def test_a_fixed_count_starts_exactly_that_many(requests: int, step_ns: int) -> None:
    pacing = ClosedLoop(requests=requests, duration_ns=SECOND)
    started = 0
    while pacing.due(started * step_ns, started, 0) is not None:
        started += 1
    assert started == requests


def dues(pacing: Pacing, end_ns: int) -> list[int]:
    """Returns when requests are due, for a load that is never late."""
    found: list[int] = []
    while (due_ns := pacing.due(found[-1] if found else 0, len(found), 0)) is not None and due_ns < end_ns:
        found.append(due_ns)
    return found


@given(st.floats(0.1, 5000), st.floats(0.01, 2))
def test_a_rate_has_its_number_of_requests_evenly_spread(rate: float, seconds: float) -> None:
    found = dues(ConstantRate(rate=rate, duration_ns=round(seconds * SECOND)), round(seconds * SECOND))
    assert abs(len(found) - rate * seconds) <= 1
    assert all(abs(due_ns - at * SECOND / rate) <= 1 for at, due_ns in enumerate(found))


lengths_and_targets = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 300)), min_size=1, max_size=5)


@given(lengths_and_targets.filter(lambda pairs: sum(seconds for seconds, _ in pairs) > 0.01))
def test_a_ramp_of_rates_has_the_area_under_its_line(pairs: list[tuple[float, float]]) -> None:
    pacing = RateRamp(stages=stages(*pairs))
    end_ns = sum(stage.duration_ns for stage in pacing.stages)
    found = dues(pacing, end_ns)
    levels = [0.0, *(target for _, target in pairs)]
    area = sum(seconds * (levels[at] + levels[at + 1]) / 2 for at, (seconds, _) in enumerate(pairs))
    assert abs(len(found) - area) <= 1.001
    assert found == sorted(found)


def plan(**shape: object) -> LoadPlan:
    values: dict[str, object] = {
        "connections": 4,
        "warmup_ns": SECOND // 2,
        "round_ns": SECOND,
        "rounds": 3,
        "timeout_ns": 30 * SECOND,
    }
    return LoadPlan(**{**values, **shape})  # type: ignore[arg-type]


RATES, CONNECTIONS = RateRamp(stages=UP_AND_DOWN), ConnectionRamp(stages=UP_AND_DOWN)


@pytest.mark.parametrize(
    "load,pacing,longest_ns",
    [
        (plan(), ClosedLoop(duration_ns=7 * SECOND // 2), 67 * SECOND // 2),
        (plan(requests=10), ClosedLoop(requests=10, duration_ns=7 * SECOND // 2), 67 * SECOND // 2),
        (plan(burst=3), BURST, 127 * SECOND // 2),
        (plan(rate=2.5), ConstantRate(rate=2.5, duration_ns=7 * SECOND // 2), 127 * SECOND // 2),
        (plan(ramp=RATES), RATES, 127 * SECOND // 2),
        (plan(ramp=CONNECTIONS), CONNECTIONS, 67 * SECOND // 2),
    ],
)
def test_a_plan_has_its_pacing_and_an_end(load: LoadPlan, pacing: Pacing, longest_ns: int) -> None:
    assert load.pacing() == pacing
    assert load.longest_ns == longest_ns


def test_random_arrivals_come_by_chance_at_the_rate_and_the_load_goes_on_to_its_end() -> None:
    pacing = random_arrivals(1000, 10 * SECOND, 1)
    times = dues(pacing, pacing.duration_ns)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times == sorted(times)
    assert len(times) == pytest.approx(10_000, rel=0.03)
    # The gaps of a Poisson process deviate by as much as they are long.
    assert pstdev(gaps) == pytest.approx(fmean(gaps), rel=0.05)
    assert [pacing.due(at_ns, len(times), 0) for at_ns in (0, 10 * SECOND)] == [10 * SECOND, None]
    random_arrivals.cache_clear()
    assert pacing == random_arrivals(1000, 10 * SECOND, 1) != random_arrivals(1000, 10 * SECOND, 2)
    assert plan(rate=1000, seed=1).pacing() == random_arrivals(1000, 7 * SECOND // 2, 1)


# --- Draws: each alone is as chance has it, several together are as crowded as draws are on average


RATE, LENGTH = 160.0, 2 * SECOND
SERVICE = SECOND / 200


def crowding_of(seed: int) -> float:
    return crowding(instants(RATE, LENGTH, seed), SERVICE)


def spread(chance: random.Random, place: float) -> float:
    return crowding_of(spread_seed(chance, place, rate=RATE, duration_ns=LENGTH, from_ns=0, busy_rate=200.0))


@pytest.mark.parametrize(
    "due,waited",
    [
        pytest.param([], 0.0, id="nothing"),
        pytest.param([0, 10, 20], 0.0, id="just in time"),
        pytest.param([0, 0, 0], 10.0, id="all at once"),
        pytest.param([0, 0, 100], 10 / 3, id="a gap clears the queue"),
    ],
)
def test_crowding_is_the_mean_wait_in_a_queue(due: list[int], waited: float) -> None:
    assert crowding(np.array(due, dtype=np.int64), 10.0) == pytest.approx(waited)
    # A warm-up fills the queue but is not counted.
    assert crowding(np.array([0, 0, 0, 15]), 10.0, from_ns=15) == pytest.approx(15.0)


def test_draws_in_all_places_are_as_crowded_together_as_draws_by_chance() -> None:
    chance = random.Random(1)
    by_chance = [crowding_of(seed) for seed in range(400)]
    in_places = [spread(chance, place_of(number, 0.3)) for number in range(60)]
    error = pstdev(by_chance) / len(in_places) ** 0.5
    assert abs(fmean(in_places) - fmean(by_chance)) < 2 * error
    late, early = (fmean(spread(chance, place) for _ in range(5)) for place in (0.95, 0.05))
    assert late > 1.5 * early


@pytest.mark.parametrize("rate", [0.01, 1e6])
def test_rates_of_any_size_have_a_draw(rate: float) -> None:
    seed = spread_seed(random.Random(1), 0.999, rate=rate, duration_ns=SECOND, from_ns=0, busy_rate=0.5)
    assert abs(len(instants(rate, SECOND, seed)) - rate) <= 5 * rate**0.5 + 1
