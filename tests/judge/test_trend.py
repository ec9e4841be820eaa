"""Start-ups that get slower one after another are a trend, and chance makes none."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from pytest_fileperf.judge.trend import trend_of
from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round

SECOND = 1_000_000_000


def recorded(rates: Sequence[Sequence[float]], *, cpu_us: float = 100.0) -> Recording:
    rounds = [
        Round(
            boot=boot,
            index=index,
            phase=Phase.ROUND,
            started_ns=0,
            ended_ns=SECOND,
            requests=max(1, round(rate)),
            latency=EMPTY,
            ttfb=EMPTY,
            bytes_sent=0,
            bytes_received=0,
            server_cpu_ns=round(rate * cpu_us * 1000),
        )
        for boot, of_boot in enumerate(rates)
        for index, rate in enumerate(of_boot)
    ]
    boots = tuple(Boot(index=boot) for boot in range(len(rates)))
    return Recording(rounds=tuple(rounds), boots=boots, connections=1, engine="replay")


def test_start_ups_that_get_slower_one_after_another_are_noticed() -> None:
    trend = trend_of(recorded([[1728, 1730, 1700], [1400, 1410, 1390], [992, 990, 1000], [780, 779, 790]]))
    assert trend is not None
    assert trend.falls
    assert trend.of_rate
    assert [round(level, -1) for level in trend.levels] == [1720, 1400, 990, 780]


def test_no_trend_in_few_start_ups_small_changes_or_a_single_jump() -> None:
    assert trend_of(recorded([[1728], [780]])) is None
    assert trend_of(recorded([[1000] * 4, [980] * 4, [960] * 4, [940] * 4])) is None
    assert trend_of(recorded([[1000] * 4, [990] * 4, [500] * 4, [495] * 4])) is None
    assert trend_of(recorded([[1000] * 4, [700] * 4, [800] * 4, [500] * 4])) is None


def test_the_same_code_has_a_trend_by_chance_in_at_most_1_of_200_measurements() -> None:
    """Start-ups differ by 1 to 6 %, rounds by 3 to 9 %, and the machine drifts by up to 4 % a minute."""
    chance, found, trials = random.Random(2026), 0, 3000
    for _ in range(trials):
        of_boots, of_rounds, drift = chance.uniform(0.01, 0.06), chance.uniform(0.03, 0.09), chance.gauss(0, 0.012)
        levels = [chance.gauss(0, of_boots) + drift * boot for boot in range(chance.randint(3, 6))]
        rates = [[2000 * math.exp(level + chance.gauss(0, of_rounds)) for _ in range(4)] for level in levels]
        found += trend_of(recorded(rates)) is not None
    assert found <= 0.005 * trials
