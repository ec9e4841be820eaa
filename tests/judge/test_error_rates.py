"""How often the stored gate is right, simulated on machines that deviate from session to session. Seeded."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from judge.sides import Noise, TailNoise

from pytest_fileperf.judge.evidence import level_of
from pytest_fileperf.judge.gate import ErrorBudget, Spread, compare
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.metrics import METRICS

RPS, P99 = METRICS["rps"], METRICS["p99"]
GATES = 10
TOLERANCE = 0.03


def stored_runs(runs: int, *, session_sd: float, slower: float = 0.0, seed: int = 11) -> list[MetricComparison]:
    """Returns comparisons with stored figures.

    The level of a session deviates as Student's t with four degrees of freedom does, so that unchanged code changes by
    `session_sd` from one session to another. `slower` is the share by which a request takes longer.
    """
    rng, noise = np.random.default_rng(seed), Noise(rounds=6, far_off=0.0)
    found = []
    for _ in range(runs):
        base, now = session_sd / 2 * rng.standard_t(4, 2)
        comparison = compare(
            RPS,
            base=noise.rates(rng, 7.6 + base),
            now=noise.rates(rng, 7.6 + now - math.log1p(slower)),
            tolerance=TOLERANCE,
            alpha=ErrorBudget(GATES).level(1),
            spread=Spread(sd=RULES.environment_sd, df=math.inf),
        )
        found.append(comparison)
    return found


def share(found: list[MetricComparison], outcome: Outcome) -> float:
    return sum(comparison.outcome is outcome for comparison in found) / len(found)


@pytest.mark.parametrize("session_sd", [0.01, 0.05, 0.15, 0.25])
def test_stored_figures_are_hardly_ever_wrong_on_machines_that_deviate(session_sd: float) -> None:
    same = stored_runs(250, session_sd=session_sd)
    assert share(same, Outcome.REGRESSED) <= 0.016
    assert share(same, Outcome.PASS) <= 0.1, "only what seems far faster"
    assert share(stored_runs(250, session_sd=session_sd, slower=0.10), Outcome.PASS) <= 0.05
    assert share(stored_runs(250, session_sd=session_sd, slower=4.0), Outcome.REGRESSED) >= 0.95


def tail_runs(runs: int, *, base: TailNoise, now: TailNoise, seed: int) -> Counter[Outcome]:
    """Returns what p99 is said to be on a machine whose sessions are known to deviate by 5 %."""
    rng, known = np.random.default_rng(seed), Spread(sd=0.05, df=20)
    return Counter(
        compare(
            P99,
            base=base.latencies(rng),
            now=now.latencies(rng),
            tolerance=0.25,
            alpha=ErrorBudget(GATES).level(1),
            spread=known,
        ).outcome
        for _ in range(runs)
    )


def part(outcomes: Counter[Outcome], outcome: Outcome) -> float:
    return outcomes[outcome] / outcomes.total()


@pytest.mark.parametrize("round_sd,passes", [(0.05, 0.97), (0.15, 0.9), (0.25, 0.7), (0.35, 0.3)])
def test_p99_of_identical_code_does_not_regress_and_mostly_passes(round_sd: float, passes: float) -> None:
    """Rounds whose p99 varies by 12, 19, 28 and 38 %."""
    noise = TailNoise(round_sd=round_sd)
    outcomes = tail_runs(200, base=noise, now=noise, seed=21)
    assert part(outcomes, Outcome.REGRESSED) <= 0.02
    assert part(outcomes, Outcome.PASS) >= passes


def test_one_in_fifty_requests_delayed_by_50_ms_regresses_p99() -> None:
    outcomes = tail_runs(100, base=TailNoise(), now=TailNoise(slow_share=0.02), seed=22)
    assert part(outcomes, Outcome.REGRESSED) == 1.0


def test_p99_of_few_requests_is_inconclusive_rather_than_wrong() -> None:
    outcomes = tail_runs(200, base=TailNoise(requests=30), now=TailNoise(requests=30), seed=23)
    assert part(outcomes, Outcome.REGRESSED) <= 0.01


def test_the_simulated_history_is_as_exact_as_what_it_stands_for() -> None:
    """What a measured level deviates by is drawn directly in `stored_runs`: as boots and rounds would make it."""
    rng, noise = np.random.default_rng(5), Noise(rounds=6, far_off=0.0)
    levels = [level.mean for _ in range(300) if (level := level_of(RPS, noise.rates(rng, 0.0))) is not None]
    expected = math.hypot(noise.boot_sd, noise.round_sd / math.sqrt(noise.rounds)) / math.sqrt(noise.boots)
    assert float(np.std(levels)) == pytest.approx(expected, rel=0.12)
