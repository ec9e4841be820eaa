"""How often the gate is right, simulated with the noise that DESIGN measured. Seeded: the same every time."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from judge.sides import Noise, TailNoise

from pytest_fileperf.judge.gate import alpha_each, compare
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.metrics import METRICS

GATES = 5


def rate_sessions(sessions: int, *, slower: float, noise: Noise, seed: int) -> tuple[Counter[Outcome], int]:
    """Returns how often each outcome came in sessions of five gated tests, and in how many sessions any regressed.

    `slower` is the share by which a request takes longer. The level of a session is common to its tests.
    """
    rng = np.random.default_rng(seed)
    outcomes: Counter[Outcome] = Counter()
    regressed = 0
    for _ in range(sessions):
        drift = noise.session_sd * rng.standard_normal(2)
        found = [
            compare(
                METRICS["rps"],
                base=noise.rates(rng, 7.6 + drift[0]),
                now=noise.rates(rng, 7.6 + drift[1] - math.log1p(slower)),
                tolerance=0.05,
                alpha=alpha_each(GATES),
            ).outcome
            for _ in range(GATES)
        ]
        outcomes.update(found)
        regressed += Outcome.REGRESSED in found
    return outcomes, regressed


def share(outcomes: Counter[Outcome], outcome: Outcome) -> float:
    return outcomes[outcome] / outcomes.total()


def test_identical_code_regresses_in_at_most_one_of_a_hundred_sessions_and_mostly_passes() -> None:
    outcomes, regressed = rate_sessions(2000, slower=0.0, noise=Noise(), seed=11)
    assert regressed / 2000 <= 0.01
    assert share(outcomes, Outcome.PASS) >= 0.95


def test_fifteen_percent_slower_regresses_in_nineteen_of_twenty_and_hardly_ever_passes() -> None:
    outcomes, _ = rate_sessions(500, slower=0.15, noise=Noise(), seed=12)
    assert share(outcomes, Outcome.REGRESSED) >= 0.95
    assert share(outcomes, Outcome.PASS) <= 0.01


def test_ten_percent_slower_regresses_in_about_half() -> None:
    outcomes, _ = rate_sessions(300, slower=0.10, noise=Noise(), seed=13)
    assert 0.4 <= share(outcomes, Outcome.REGRESSED) <= 0.7


def test_as_slow_as_the_tolerance_regresses_in_about_one_of_twenty() -> None:
    outcomes, _ = rate_sessions(300, slower=0.05, noise=Noise(), seed=14)
    assert share(outcomes, Outcome.REGRESSED) <= 0.08


def test_twice_the_usual_noise_is_inconclusive_and_not_wrong() -> None:
    outcomes, regressed = rate_sessions(300, slower=0.0, noise=Noise(boot_sd=0.03, round_sd=0.08), seed=15)
    assert regressed / 300 <= 0.02
    assert share(outcomes, Outcome.INCONCLUSIVE) >= 0.5


def tail_runs(runs: int, *, base: TailNoise, now: TailNoise, seed: int) -> Counter[Outcome]:
    rng = np.random.default_rng(seed)
    return Counter(
        compare(
            METRICS["p99"],
            base=base.latencies(rng),
            now=now.latencies(rng),
            tolerance=0.25,
            alpha=alpha_each(2 * GATES),
        ).outcome
        for _ in range(runs)
    )


@pytest.mark.parametrize("round_sd,passes", [(0.05, 0.99), (0.15, 0.95), (0.25, 0.6), (0.35, 0.1)])
def test_p99_of_identical_code_does_not_regress_and_mostly_passes(round_sd: float, passes: float) -> None:
    """Rounds whose p99 varies by 12, 19, 28 and 38 %."""
    noise = TailNoise(round_sd=round_sd)
    outcomes = tail_runs(300, base=noise, now=noise, seed=21)
    assert share(outcomes, Outcome.REGRESSED) <= 0.02
    assert share(outcomes, Outcome.PASS) >= passes


def test_one_in_fifty_requests_delayed_by_50_ms_regresses_p99() -> None:
    outcomes = tail_runs(100, base=TailNoise(), now=TailNoise(slow_share=0.02), seed=22)
    assert share(outcomes, Outcome.REGRESSED) == 1.0


def test_p99_of_few_requests_is_inconclusive_rather_than_wrong() -> None:
    outcomes = tail_runs(200, base=TailNoise(requests=30), now=TailNoise(requests=30), seed=23)
    assert share(outcomes, Outcome.REGRESSED) <= 0.01
