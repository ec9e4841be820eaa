"""How often gates are right, simulated, and how the error of a session is shared out among them. Seeded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.sides import Noise, PairNoise, TailNoise

from pytest_fileperf.judge.evidence import Evidence, Pair
from pytest_fileperf.judge.gate import ErrorBudget, compare
from pytest_fileperf.judge.paired import Sequential
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.settings.settings import DEFAULT_MAX_DURATION_NS

pytestmark = pytest.mark.timeout(300)

GATES = 10
ALPHA = RULES.session_alpha / GATES


def share(found: Counter[Outcome], outcome: Outcome) -> float:
    return found[outcome] / found.total()


# --- Two versions that are measured in turn; benchmarks/simulate.py gives the same rates from thousands of sessions

NARROW = {"rps": 0.01, "p99": 0.10}
DEFAULTS = {name: METRICS[name].tolerance for name in NARROW}
PAIR_S, LIMIT_S = 5.0, 60.0
DEFAULT_LIMIT_S = DEFAULT_MAX_DURATION_NS / 1e9


def compared(
    rng: np.random.Generator, noise: PairNoise, tolerances: Mapping[str, float], *, limit_s: float, slower: float = 0.0
) -> list[Outcome]:
    """Returns the outcomes of a test's gates, looked at as the session does."""
    gates = Sequential(tolerances, alpha=ALPHA, limit_s=limit_s)
    pairs: list[Pair] = []
    while True:
        pairs.append(noise.drawn(rng, slower=slower))
        found = gates.look(pairs, elapsed_s=PAIR_S * len(pairs), next_s=PAIR_S)
        if found is not None:
            return [comparison.outcome for comparison in found]


@pytest.mark.parametrize(
    "noise, sessions",
    [(PairNoise(requests=500), 22), (PairNoise(requests=500, boot_sd=0.07, stabilised=()), 11)],
    ids=["stabilised", "not stabilised"],
)
def test_identical_code_hardly_ever_regresses(noise: PairNoise, sessions: int) -> None:
    """Five tests with two gates a session. Were it 1 of 8, one of 22 would be seen 19 times of 20."""
    rng = np.random.default_rng(31)
    wrong = 0
    for _ in range(sessions):
        tests = [compared(rng, noise, DEFAULTS, limit_s=DEFAULT_LIMIT_S) for _ in range(5)]
        wrong += any(Outcome.REGRESSED in outcomes for outcomes in tests)
    assert wrong == 0


@pytest.mark.parametrize(
    "slower, by_default, outcome, least",
    [
        (0.05, False, Outcome.REGRESSED, 0.95),
        (0.0, True, Outcome.PASS, 0.9),
        (0.1, True, Outcome.REGRESSED, 0.95),
    ],
)
def test_a_rate_is_judged_right_in_nineteen_of_twenty_tests(
    slower: float, by_default: bool, outcome: Outcome, least: float
) -> None:
    rng = np.random.default_rng(35)
    tolerance, limit_s = (DEFAULTS["rps"], DEFAULT_LIMIT_S) if by_default else (NARROW["rps"], LIMIT_S)
    found = Counter(
        compared(rng, PairNoise(), {"rps": tolerance}, limit_s=limit_s, slower=slower)[0] for _ in range(60)
    )
    assert share(found, outcome) >= least
    assert slower == 0 or found[Outcome.PASS] == 0


def test_five_percent_slower_hardly_passes_by_default_and_five_percent_faster_never_regresses() -> None:
    rng = np.random.default_rng(36)
    slower, faster = (
        Counter(
            compared(rng, PairNoise(), {"rps": DEFAULTS["rps"]}, limit_s=DEFAULT_LIMIT_S, slower=by)[0]
            for _ in range(60)
        )
        for by in (0.05, 1 / 1.05 - 1)
    )
    assert share(slower, Outcome.PASS) <= 0.05
    assert faster[Outcome.PASS] + faster[Outcome.IMPROVED] == 60


# --- Stored figures, on machines that deviate from session to session


def stored_runs(runs: int, *, session_sd: float, slower: float = 0.0) -> Counter[Outcome]:
    """Returns outcomes of comparisons with stored figures.

    The level of a session deviates as Student's t with four degrees of freedom does, so that unchanged code changes by
    `session_sd` from one session to another. `slower` is the share by which a request takes longer.
    """
    rng, noise = np.random.default_rng(11), Noise(rounds=6, far_off=0.0)
    found = Counter[Outcome]()
    for _ in range(runs):
        base, now = session_sd / 2 * rng.standard_t(4, 2)
        sides = noise.rates(rng, 7.6 + base), noise.rates(rng, 7.6 + now - math.log1p(slower))
        found[outcome_of("rps", sides, tolerance=0.03, sd=RULES.environment_sd)] += 1
    return found


def outcome_of(metric: str, sides: tuple[Evidence, Evidence], *, tolerance: float, sd: float) -> Outcome:
    base, now = sides
    level = ErrorBudget(GATES).level(1)
    return compare(METRICS[metric], base=base, now=now, tolerance=tolerance, alpha=level, sd=sd).outcome


@pytest.mark.parametrize("session_sd", [0.01, 0.15, 0.25])
def test_stored_figures_are_hardly_ever_wrong_on_machines_that_deviate(session_sd: float) -> None:
    same = stored_runs(250, session_sd=session_sd)
    assert share(same, Outcome.REGRESSED) <= 0.016
    assert share(same, Outcome.PASS) <= 0.1, "only what seems far faster"
    assert share(stored_runs(100, session_sd=session_sd, slower=0.10), Outcome.PASS) <= 0.05
    assert share(stored_runs(100, session_sd=session_sd, slower=4.0), Outcome.REGRESSED) >= 0.95


@pytest.mark.parametrize(
    "base, now, most_regress, least_pass",
    [
        (TailNoise(round_sd=0.05), TailNoise(round_sd=0.05), 0.02, 0.97),
        (TailNoise(round_sd=0.25), TailNoise(round_sd=0.25), 0.02, 0.7),
        (TailNoise(round_sd=0.35), TailNoise(round_sd=0.35), 0.02, 0.3),
        (TailNoise(requests=30), TailNoise(requests=30), 0.01, 0.0),
        (TailNoise(), TailNoise(slow_share=0.02), None, 0.0),
    ],
    ids=["p99 varies by 12 %", "by 28 %", "by 38 %", "few requests", "one in fifty takes 50 ms longer"],
)
def test_p99_of_identical_code_does_not_regress_and_that_of_slower_code_does(
    base: TailNoise, now: TailNoise, most_regress: float | None, least_pass: float
) -> None:
    """On a machine whose sessions are known to deviate by 5 %."""
    rng = np.random.default_rng(21)
    sides = ((base.latencies(rng), now.latencies(rng)) for _ in range(60))
    found = Counter(outcome_of("p99", each, tolerance=0.25, sd=0.05) for each in sides)
    regressed = share(found, Outcome.REGRESSED)
    assert regressed == 1.0 if most_regress is None else regressed <= most_regress
    assert share(found, Outcome.PASS) >= least_pass


# --- The error of a session


@pytest.mark.parametrize(
    "gates, regressed, levels",
    [
        (1, (0,) * 3, [0.01] * 3),
        (10, (0,) * 3, [0.001] * 3),
        # What a regression did not need goes to the next test, as long as every test regresses and no longer.
        (10, (2, 2, 1, 0, 0), [0.001, 0.002, 0.003, 0.0025, 0.001]),
        (0, (0,), [0.01]),
    ],
)
def test_each_gate_has_its_part(gates: int, regressed: tuple[int, ...], levels: list[float]) -> None:
    budget = ErrorBudget(gates)
    found = []
    for count in regressed:
        found.append(budget.level(2))
        budget.used(found[-1], count)
    assert found == pytest.approx(levels)


def test_a_test_that_was_not_compared_leaves_its_part_to_the_next() -> None:
    budget = ErrorBudget(4)
    budget.used(budget.level(1), regressed=1)
    assert budget.level(1) == budget.level(1) == pytest.approx(0.005)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_levels_of_gates_that_did_not_regress_never_exceed_the_whole(regressed: list[int]) -> None:
    """The promise: identical code regresses anywhere with at most so much, whatever truly regressed before it."""
    budget = ErrorBudget(2 * len(regressed))
    spent = 0.0
    for count in regressed:
        level = budget.level(2)
        spent += level * (2 - count)
        budget.used(level, count)
    assert spent <= RULES.session_alpha * (1 + 1e-9)
