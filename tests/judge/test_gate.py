"""One metric against its baseline: the outcome, the figures and the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.sides import MS, boot, side

from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.judge.gate import ErrorBudget, Spread, compare
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.wording import sentence

STEADY = Spread(sd=0.02, df=30)


def gate(
    base: Evidence, now: Evidence, *, metric: str = "rps", tolerance: float = 0.05, spread: Spread = STEADY
) -> MetricComparison:
    return compare(METRICS[metric], base=base, now=now, tolerance=tolerance, alpha=0.01, spread=spread)


BASE = side(2000, 2010, 1990)


@pytest.mark.parametrize(
    "now,outcome",
    [
        (side(2000, 2005, 1995), Outcome.PASS),
        (side(1990, 2000, 1980), Outcome.PASS),
        (side(1930, 1940, 1920), Outcome.INCONCLUSIVE),
        (side(1860, 1870, 1850), Outcome.INCONCLUSIVE),
        (side(1700, 1710, 1690), Outcome.REGRESSED),
        (side(2300, 2310, 2290), Outcome.IMPROVED),
    ],
)
def test_more_requests_a_second_are_better(now: Evidence, outcome: Outcome) -> None:
    assert gate(BASE, now).outcome is outcome


@pytest.mark.parametrize(
    "levels,outcome",
    [((0.0115, 0.0116, 0.0114), Outcome.REGRESSED), ((0.0087, 0.0086, 0.0088), Outcome.IMPROVED)],
)
def test_less_cpu_a_request_is_better(levels: tuple[float, ...], outcome: Outcome) -> None:
    base = side(0.01, 0.0101, 0.0099, metric="cpu_per_request")
    assert gate(base, side(*levels, metric="cpu_per_request"), metric="cpu_per_request").outcome is outcome


def test_the_figures_of_a_regression() -> None:
    found = gate(BASE, side(1700, 1710, 1690))
    assert found.base == pytest.approx(2000, rel=1e-3)
    assert found.now == pytest.approx(1700, rel=1e-3)
    assert found.change == pytest.approx(-0.15, abs=1e-3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.15 < found.high < 1 / 1.05 - 1
    assert found.confidence == pytest.approx(0.90)
    assert found.detectable == pytest.approx(0.11, abs=0.02)
    assert sentence(found.reason) == ""


def test_a_suspicion_says_what_to_do() -> None:
    quiet = Spread(sd=0.005, df=30)
    assert sentence(gate(BASE, side(1880, 1890, 1870), spread=quiet).reason) == (
        "may be worse by more than its tolerance of 5 %, but the noise hides it: use more boots or a longer duration"
    )


def test_more_boots_are_not_advised_where_sessions_are_what_differs() -> None:
    for now, spread, what in (
        (side(1860, 1870, 1850), Spread(sd=0.05, df=20), "may be worse by more than its tolerance of 5 %, but the noise"
         " hides it: "),
        (BASE, Spread(sd=0.1, df=20), "only a worsening of "),
        (BASE, Spread(sd=0.05, df=1), "nothing can be told, as even a worsening of 50 % could not have been seen: "),
    ):  # fmt: skip
        said = sentence(gate(BASE, now, spread=spread).reason)
        assert said.startswith(what)
        assert "this machine differs from session to session, so more boots do not help: compare in turn" in said


def test_beyond_half_nothing_can_be_told() -> None:
    wild = side(2000, 3000, 1300)
    found = gate(wild, wild)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason) == (
        "nothing can be told, as even a worsening of 50 % could not have been seen: use more boots or a longer duration"
    )
    far = Spread(sd=0.5, df=20)
    assert sentence(gate(wild, wild, tolerance=0.4, spread=far).reason).startswith(
        "nothing can be told, as even a worsening of 80 % could"
    )


def test_an_improvement_says_how_to_keep_it() -> None:
    assert sentence(gate(BASE, side(2300, 2310, 2290)).reason) == (
        "better than its baseline: store the new level with --fileperf-update=all"
    )


def test_many_boots_are_no_proof_where_sessions_differ() -> None:
    """What moves the machine between sessions is in no number of boots of one session."""
    boots = [2000.0, 2010.0, 1990.0] * 5
    for sd, outcome in ((0.01, Outcome.REGRESSED), (0.1, Outcome.INCONCLUSIVE)):
        slower = side(*(0.8 * boot for boot in boots))
        assert gate(side(*boots), slower, spread=Spread(sd=sd, df=20)).outcome is outcome


def test_noise_that_would_hide_a_regression_is_inconclusive_and_says_which_tolerance_it_carries() -> None:
    noisy = side(2000, 2300, 1750)
    found = gate(noisy, noisy)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason) == (
        "only a worsening of 35.3 % could have been seen: use more boots or a longer duration,"
        " or use a tolerance of 14 %"
    )
    assert gate(noisy, noisy, tolerance=0.14).outcome is Outcome.PASS
    assert gate(noisy, noisy, tolerance=0.13).outcome is Outcome.INCONCLUSIVE


def test_one_boot_that_was_not_stabilised_proves_little() -> None:
    """A pair of boots of the same code differed by a steady 4 to 5 %."""
    base, now = side(2000, stabilised=()), side(1820, stabilised=())
    assert gate(base, base).outcome is Outcome.INCONCLUSIVE
    assert gate(base, now).outcome is Outcome.INCONCLUSIVE


def test_stabilised_boots_are_worth_more_than_partly_stabilised_ones_and_these_more_than_others() -> None:
    detectable = []
    for held in (("hash seed", "addresses"), ("hash seed",), ()):
        same = side(2000, 2010, 1990, stabilised=held)
        found = gate(same, same).detectable
        assert found is not None
        detectable.append(found)
    assert detectable == sorted(detectable)


def test_what_only_one_side_held_equal_does_not_count() -> None:
    free = replace(BASE, stabilised=())
    assert gate(BASE, free).detectable == gate(free, free).detectable


def test_a_far_off_round_hardly_matters() -> None:
    hit = Evidence(
        boots=(boot(1200, 2000, 2010, 1990), *side(2000, 2000).boots),
        stabilised=BASE.stabilised,
    )
    found = gate(BASE, hit)
    assert found.outcome is Outcome.PASS
    assert found.change == pytest.approx(0, abs=0.01)


def test_a_round_in_which_nothing_ended_counts_with_the_others() -> None:
    found = gate(Evidence(boots=(boot(4, 0, 2, 2),) * 3), Evidence(boots=(boot(2, 2, 2, 2),) * 3))
    assert found.base == pytest.approx(2)
    assert found.now == pytest.approx(2)


@pytest.mark.parametrize(
    "base,now,whose,count",
    [(298, 5000, "the baseline", 298), (5000, 120, "this run", 120), (100, 100, "this run", 100)],
)
def test_too_few_requests_for_a_percentile(base: int, now: int, whose: str, count: int) -> None:
    found = gate(Evidence(boots=(boot(requests=base),)), Evidence(boots=(boot(requests=now),)), metric="p99")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason) == (
        f"p99 needs 299 requests and {whose} has {count}: use a longer duration or gate a lower percentile"
    )
    assert [found.base, found.now] == pytest.approx([0.005, 0.005])
    assert found.change == 0.0
    assert found.detectable is None


NOTHING = Evidence(boots=(BootEvidence(turns=({"rps": 0.0},), latency=Histogram.of([]), runs={}),))


@pytest.mark.parametrize(
    "metric,base,now,reason",
    [
        ("rps", BASE, NOTHING, "this run has no successful request"),
        ("p99", NOTHING, BASE, "the baseline has no successful request"),
        ("rps", Evidence(boots=()), BASE, "the baseline has no successful request"),
        ("rss", BASE, BASE, "server peak RSS was not measured in the baseline"),
        (
            "error_rate",
            side(0.1, metric="error_rate"),
            Evidence(boots=(boot(0.0, metric="error_rate"),)),
            "error rate was 0 in this run, and a change from or to 0 has no ratio: set a limit instead",
        ),
    ],
)
def test_what_has_no_level_is_inconclusive(metric: str, base: Evidence, now: Evidence, reason: str) -> None:
    found = gate(base, now, metric=metric)
    assert (found.outcome, sentence(found.reason)) == (Outcome.INCONCLUSIVE, reason)


def test_a_metric_of_whole_runs_is_compared_by_boots() -> None:
    def with_rss(*sizes: float, reached: int = 1000) -> Evidence:
        courses = (((0, round(size) - 10_000 * reached), (reached, round(size))) for size in sizes)
        boots = tuple(replace(boot(), memory=course) for course in courses)
        return Evidence(boots=boots, stabilised=BASE.stabilised)

    base = with_rss(1e8, 1.01e8, 0.99e8)
    assert gate(base, base, metric="rss", tolerance=0.1).outcome is Outcome.PASS
    assert gate(base, with_rss(1.4e8, 1.41e8, 1.39e8), metric="rss", tolerance=0.1).outcome is Outcome.REGRESSED
    faster = gate(base, with_rss(1.9e8, 1.91e8, 1.89e8, reached=10_000), metric="rss", tolerance=0.1)
    assert (faster.outcome, faster.after_requests) == (Outcome.PASS, 1000)
    old = replace(base, boots=tuple(replace(one, memory=(), runs={"rss": 1e8}) for one in base.boots))
    assert gate(old, old, metric="rss", tolerance=0.1).outcome is Outcome.INCONCLUSIVE


def test_p99_from_10_to_60_ms_regresses() -> None:
    def with_tail(slowest_ms: int) -> Evidence:
        latency = Histogram.of([4 * MS] * 980 + [slowest_ms * MS] * 20)
        one = BootEvidence(turns=(), latency=latency, runs={})
        return Evidence(boots=(one,) * 3, stabilised=BASE.stabilised)

    found = gate(with_tail(10), with_tail(60), metric="p99", tolerance=0.25)
    assert found.outcome is Outcome.REGRESSED
    assert found.change == pytest.approx(5, rel=1e-2)


def test_a_boot_with_a_far_off_tail_is_no_regression() -> None:
    calm = Histogram.of([4 * MS] * 950 + [10 * MS] * 50)
    hit = Histogram.of([4 * MS] * 950 + [80 * MS] * 50)
    base = Evidence(boots=(BootEvidence(turns=(), latency=calm, runs={}),) * 3)
    now = Evidence(boots=(*base.boots[:2], BootEvidence(turns=(), latency=hit, runs={})))
    assert gate(base, now, metric="p99", tolerance=0.25).outcome is Outcome.INCONCLUSIVE


def test_rounds_that_differ_more_than_their_requests_explain_widen_a_percentile() -> None:
    latency = Histogram.of([step * MS // 100 for step in range(100, 1100)])

    def with_rounds(*p99: float) -> Evidence:
        one = BootEvidence(turns=tuple({"p99": value} for value in p99), latency=latency, runs={})
        return Evidence(boots=(one,) * 3, stabilised=BASE.stabilised)

    steady, wild = with_rounds(0.010, 0.0101), with_rounds(0.006, 0.016)
    widths = []
    for same in (steady, wild):
        found = gate(same, same, metric="p99", tolerance=0.25)
        assert found.low is not None
        assert found.high is not None
        widths.append(found.high - found.low)
    assert widths[0] < widths[1] / 1.3


@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4),
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4),
    st.floats(1e-3, 1e6),
)
def test_units_do_not_matter_and_swapping_the_sides_mirrors_the_outcome(
    base: list[float], now: list[float], unit: float
) -> None:
    found = gate(side(*base), side(*now))
    scaled = gate(side(*(value * unit for value in base)), side(*(value * unit for value in now)))
    swapped = gate(side(*now), side(*base))
    assert scaled.outcome is found.outcome
    assert scaled.detectable == pytest.approx(found.detectable)
    mirror = {Outcome.REGRESSED: Outcome.IMPROVED, Outcome.IMPROVED: Outcome.REGRESSED}
    if found.outcome in mirror:
        assert swapped.outcome is mirror[found.outcome]


@given(st.floats(0.3, 3.0), st.floats(0.0, 1.0))
def test_the_interval_holds_the_change_and_a_regression_lies_beyond_the_tolerance(
    ratio: float, tolerance: float
) -> None:
    found = gate(BASE, side(*(2000 * ratio * offset for offset in (1, 1.005, 0.995))), tolerance=tolerance)
    assert found.low is not None
    assert found.high is not None
    assert found.change is not None
    assert -1 < found.low < found.change < found.high
    if found.outcome is Outcome.REGRESSED:
        assert found.high < 1 / (1 + tolerance) - 1
    if found.outcome is Outcome.IMPROVED:
        assert found.low > tolerance


def test_more_gates_ask_for_more_evidence_of_each() -> None:
    found = [
        compare(METRICS["rps"], base=BASE, now=now, tolerance=0.0, alpha=ErrorBudget(gates).level(1), spread=STEADY)
        for now in (side(1900, 1910, 1890), side(1820, 1830, 1810))
        for gates in (1, 500)
    ]
    undecided, regressed = Outcome.INCONCLUSIVE, Outcome.REGRESSED
    assert [item.outcome for item in found] == [undecided, undecided, regressed, undecided]
