"""Think time: how it is written, and what is drawn."""

from __future__ import annotations

from itertools import islice
from statistics import fmean

import pytest

from pytest_fileperf.plan.work import Pause, exponential, parse_pause, uniform

SECOND = 1_000_000_000


def drawn(pause: Pause, users: int, each: int) -> list[list[int]]:
    return [list(islice(pauses, each)) for pauses in islice(pause.of_users(), users)]


@pytest.mark.parametrize(
    "value,text",
    [
        ("1s", "1.00 s"),
        (0.25, "250 ms"),
        (uniform("0.5s", 2), "500 ms to 2.00 s"),
        (exponential("1s"), "1.00 s on average"),
    ],
)
def test_a_pause_is_written_in_several_ways(value: object, text: str) -> None:
    assert str(parse_pause(value)) == text


@pytest.mark.parametrize("value", [0, "0s", uniform(0, 0)])
def test_no_time_is_no_pause(value: object) -> None:
    assert parse_pause(value) is None


@pytest.mark.parametrize(
    "value,said",
    [
        ("soon", "'soon' is not a duration"),
        (-1, "it must be finite and not negative"),
        (["1s"], "is no pause: write seconds"),
    ],
)
def test_nonsense_is_refused(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_pause(value)


def test_a_distribution_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a pause from 2s to 1s ends before it begins"):
        uniform("2s", "1s")
    with pytest.raises(ValueError, match="the mean of a pause must be above 0"):
        exponential(0)


def test_users_begin_within_their_first_pause_and_then_pause_as_asked() -> None:
    pause = parse_pause("1s")
    assert pause is not None
    found = drawn(pause, users=50, each=3)
    firsts = [first for first, *_ in found]
    assert len(set(firsts)) == 50
    assert 0 <= min(firsts) <= max(firsts) <= SECOND
    assert {later for _, *rest in found for later in rest} == {SECOND}


@pytest.mark.parametrize("pause,mean", [(uniform("0.5s", "1.5s"), SECOND), (exponential("2s"), 2 * SECOND)])
def test_what_is_drawn_has_the_mean_that_was_asked_for(pause: Pause, mean: int) -> None:
    times = [time for _, *rest in drawn(pause, users=20, each=500) for time in rest]
    assert pause.mean_ns == mean
    assert fmean(times) == pytest.approx(mean, rel=0.05)
    assert min(times) >= (0 if pause.by_chance else pause.low_ns)


def test_a_seed_makes_the_same_pauses_again_and_another_seed_others() -> None:
    assert drawn(exponential("1s"), 3, 5) == drawn(exponential("1s"), 3, 5)
    assert drawn(exponential("1s"), 3, 5) != drawn(exponential("1s", seed=1), 3, 5)
    assert drawn(exponential("1s"), 2, 5)[0] != drawn(exponential("1s"), 2, 5)[1]


def test_a_pause_is_part_of_what_a_load_is() -> None:
    assert uniform("0.5s", "2s").identity() == {"low": 0.5, "high": 2.0}
    assert exponential("1s").identity() == {"low": 1.0, "high": 1.0, "exponential": True}
