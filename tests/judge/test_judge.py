"""All comparisons of a test with what the store found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from judge.sides import side

from pytest_fileperf.judge.baseline import Entry, ForeignProfile
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.judge import judge
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.busy import Busy
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.reasons import sentence

HERE = Environment(
    system="Linux", machine="x86_64", cpu="CPU", cores=2, python="CPython 3.11", packages={"uvicorn": "0.54.0"}
)
IDENTITY = {"load": {"connections": 32}, "server": {"stabilised": ("addresses",)}}
FAST, SLOW = side(2000, 2010, 1990), side(1700, 1710, 1690)
STORED = Entry(
    identity={"load": {"connections": 32}, "server": {"stabilised": ["addresses"]}},
    evidence=FAST,
    captured="2026-01-02T03:04:05+00:00",
    packages={"uvicorn": "0.54.0"},
)


def judged(
    found: Entry | ForeignProfile | None = STORED,
    *,
    now: object = FAST,
    identity: Mapping[str, object] = IDENTITY,
    saturated: bool = False,
    tolerances: Mapping[str, float] | None = None,
    busy: Busy | None = None,
) -> MetricComparison:
    (comparison,) = judge(
        gate=("rps",),
        tolerances=tolerances or {},
        alpha=0.01,
        found=found,
        now=now if now is SLOW else FAST,
        identity=identity,
        environment=HERE,
        saturated=saturated,
        busy=busy,
    )
    return comparison


def test_the_same_again_passes() -> None:
    assert judged().outcome is Outcome.PASS


def test_slower_regresses_unless_the_test_allows_it() -> None:
    assert judged(now=SLOW).outcome is Outcome.REGRESSED
    assert judged(now=SLOW, tolerances={"rps": 0.3}).outcome is Outcome.PASS


def test_the_metrics_come_in_the_gate_s_order_with_their_tolerances() -> None:
    found = judge(
        gate=("p99", "rps"),
        tolerances={"rps": 0.2},
        alpha=0.01,
        found=STORED,
        now=FAST,
        identity=IDENTITY,
        environment=HERE,
        saturated=False,
    )
    assert [(item.metric, item.tolerance) for item in found] == [("p99", METRICS["p99"].tolerance), ("rps", 0.2)]


def test_no_baseline_is_new() -> None:
    found = judged(None)
    assert (found.outcome, found.base, found.change) == (Outcome.NEW, None, None)
    assert found.now == pytest.approx(2000, rel=1e-3)
    assert sentence(found.reason) == "there is no baseline: store one with --fileperf-update"


def test_another_machine_s_baseline_is_inconclusive() -> None:
    found = judged(ForeignProfile(profile="p", differences=("cores was 4, is 2", "cpu was A, is B")))
    assert (found.outcome, found.base) == (Outcome.INCONCLUSIVE, None)
    assert sentence(found.reason) == (
        "the baseline is of another machine (cores was 4, is 2; cpu was A, is B):"
        " store one of this machine with --fileperf-update"
    )


def test_a_baseline_of_something_else_is_inconclusive() -> None:
    found = judged(identity={"load": {"connections": 64}, "server": {"stabilised": ()}})
    assert (found.outcome, found.base) == (Outcome.INCONCLUSIVE, None)
    assert sentence(found.reason) == (
        "the baseline is of something else (load.connections was 32, is 64; server.stabilised was addresses, is none):"
        " store a new baseline with --fileperf-update"
    )


def test_a_regression_says_which_packages_changed() -> None:
    older = replace(STORED, packages={"uvicorn": "0.34.0", "h11": "0.14.0"})
    assert sentence(judged(older, now=SLOW).reason) == "since the baseline, removed h11 0.14.0; uvicorn 0.34.0 → 0.54.0"
    assert sentence(judged(older).reason) == ""
    assert sentence(judged(now=SLOW).reason) == ""


def test_a_regression_says_why_its_baseline_was_stored() -> None:
    explained = replace(STORED, reason="responses are signed now")
    why = "the baseline of 2026-01-02 was stored because: responses are signed now"
    assert sentence(judged(explained, now=SLOW).reason) == why
    older = replace(explained, packages={"uvicorn": "0.34.0"})
    assert sentence(judged(older, now=SLOW).reason) == f"since the baseline, uvicorn 0.34.0 → 0.54.0; {why}"
    assert sentence(judged(explained).reason) == ""


@pytest.mark.parametrize("base", [FAST, SLOW])
def test_a_saturated_generator_never_passes_or_improves(base: object) -> None:
    found = judged(STORED if base is FAST else replace(STORED, evidence=SLOW), saturated=True)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason) == (
        "the load generator was saturated, so this is its own speed and not the server's: use fewer connections"
    )


def test_a_regression_that_a_busy_machine_explains_is_inconclusive() -> None:
    found = judged(now=SLOW, busy=Busy(server=0.08))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason) == (
        "worse, but others had the server's core for 8 % of the time, which may be why:"
        " measure again with nothing else running"
    )
    assert found.low is not None


@pytest.mark.parametrize("busy", [None, Busy(server=0.029)])
def test_on_a_quiet_machine_nothing_explains_a_regression(busy: Busy | None) -> None:
    found = judged(now=SLOW, busy=busy)
    assert (found.outcome, sentence(found.reason)) == (Outcome.REGRESSED, "")


def test_a_regression_beyond_what_a_busy_machine_explains_stays_one() -> None:
    halved = replace(STORED, evidence=side(3400, 3410, 3390), packages={"uvicorn": "0.34.0"})
    found = judged(halved, now=SLOW, busy=Busy(server=0.08))
    assert found.outcome is Outcome.REGRESSED
    assert sentence(found.reason) == (
        "others had the server's core for 8 % of the time, which explains less than this;"
        " since the baseline, uvicorn 0.34.0 → 0.54.0"
    )


def test_a_busy_machine_leaves_what_passes_and_improves() -> None:
    assert judged(busy=Busy(server=0.3)).outcome is Outcome.PASS
    assert judged(replace(STORED, evidence=SLOW), busy=Busy(server=0.3)).outcome is Outcome.IMPROVED


def test_a_saturated_generator_is_not_asked_to_store_a_baseline() -> None:
    found = judged(None, saturated=True)
    assert found.outcome is Outcome.NEW
    assert sentence(found.reason).startswith(
        "there is no baseline, and this run makes none: the load generator was saturated"
    )


def test_a_saturated_generator_still_regresses() -> None:
    assert judged(now=SLOW, saturated=True).outcome is Outcome.REGRESSED


@pytest.mark.parametrize("metric,edge", [("rps", -0.2), ("p99", 0.25)])
def test_a_tolerance_ends_at_a_factor_of_the_worse_value(metric: str, edge: float) -> None:
    comparison = MetricComparison(metric=metric, outcome=Outcome.PASS, tolerance=0.25)
    assert comparison.edge == pytest.approx(edge)
