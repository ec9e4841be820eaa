"""How often comparisons of two versions are right, simulated. Seeded: the same every time.

`benchmarks/simulate.py` gives the same rates from thousands of sessions.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from judge.pairs import PairNoise

from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.paired import Sequential
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.settings.settings import DEFAULT_MAX_DURATION_NS

pytestmark = pytest.mark.timeout(300)

TESTS = 5
GATES = {"rps": 0.01, "p99": 0.10}
DEFAULTS = {name: METRICS[name].tolerance for name in GATES}
ALPHA = RULES.session_alpha / (TESTS * len(GATES))
PAIR_S, LIMIT_S = 5.0, 60.0
DEFAULT_LIMIT_S = DEFAULT_MAX_DURATION_NS / 1e9


def compared(
    rng: np.random.Generator, noise: PairNoise, *, slower: float = 0.0, by_default: bool = False
) -> tuple[Outcome, ...]:
    """Returns the outcomes of a test's gates, looked at as the session does."""
    tolerances, limit_s = (DEFAULTS, DEFAULT_LIMIT_S) if by_default else (GATES, LIMIT_S)
    gates = Sequential(tolerances, alpha=ALPHA, limit_s=limit_s)
    pairs: list[Pair] = []
    while True:
        pairs.append(noise.drawn(rng, slower=slower))
        found = gates.look(pairs, elapsed_s=PAIR_S * len(pairs), next_s=PAIR_S)
        if found is not None:
            return tuple(comparison.outcome for comparison in found)


def sessions_with_a_regression(count: int, noise: PairNoise, *, seed: int) -> int:
    rng = np.random.default_rng(seed)
    sessions = ([compared(rng, noise, by_default=True) for _ in range(TESTS)] for _ in range(count))
    return sum(any(Outcome.REGRESSED in outcomes for outcomes in tests) for tests in sessions)


def rps_outcomes(count: int, *, slower: float, seed: int, by_default: bool = False) -> Counter[Outcome]:
    rng = np.random.default_rng(seed)
    return Counter(compared(rng, PairNoise(), slower=slower, by_default=by_default)[0] for _ in range(count))


def test_identical_code_hardly_ever_regresses() -> None:
    """Were it 8 of 100 sessions, more than one of 60 would be seen 19 times of 20."""
    assert sessions_with_a_regression(60, PairNoise(), seed=31) <= 1


def test_so_it_does_where_boots_are_not_stabilised() -> None:
    noise = PairNoise(boot_sd=0.07, stabilised=())
    assert sessions_with_a_regression(30, noise, seed=32) <= 1


def test_five_percent_slower_regresses_in_nineteen_of_twenty() -> None:
    outcomes = rps_outcomes(60, slower=0.05, seed=33)
    assert outcomes[Outcome.REGRESSED] >= 0.95 * 60
    assert outcomes[Outcome.PASS] == 0


def test_five_percent_faster_never_regresses() -> None:
    """It passes, or is IMPROVED: whichever is sure first."""
    outcomes = rps_outcomes(60, slower=1 / 1.05 - 1, seed=34)
    assert outcomes[Outcome.PASS] + outcomes[Outcome.IMPROVED] == 60


@pytest.mark.parametrize(
    "slower, outcome, least",
    [(0.0, Outcome.PASS, 0.9), (0.1, Outcome.REGRESSED, 0.95)],
)
def test_the_defaults_decide_in_half_a_minute(slower: float, outcome: Outcome, least: float) -> None:
    assert rps_outcomes(60, slower=slower, seed=35, by_default=True)[outcome] >= least * 60


def test_five_percent_slower_hardly_passes_by_default() -> None:
    assert rps_outcomes(60, slower=0.05, seed=36, by_default=True)[Outcome.PASS] <= 0.05 * 60
