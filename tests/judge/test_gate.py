"""One metric against its baseline: the outcome, the figures and the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.sides import MS, boot, side

from pytest_fileperf.judge.baseline import Entry, Found
from pytest_fileperf.judge.difference import Difference, Threshold, as_share
from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.judge.gate import (
    ErrorBudget,
    Spread,
    compare,
    judge_same_code,
    judge_stored,
    judge_world,
    unless_environment,
    unless_unsteady,
)
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, unless_far_worse
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.wording import sentence

SPREAD = Spread(sd=0.02, df=30)


def gate(
    base: Evidence, now: Evidence, *, metric: str = "rps", tolerance: float = 0.05, spread: Spread = SPREAD
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
        assert "runs at other times differ by some 25 %, so more start-ups do not help: compare in turn" in said


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


NO_ANSWER = Evidence(boots=(BootEvidence(turns=({"rps": 0.0},), latency=Histogram.of([]), runs={}),))


@pytest.mark.parametrize(
    "metric,base,now,reason",
    [
        ("rps", BASE, NO_ANSWER, "this run has no successful request"),
        ("p99", NO_ANSWER, BASE, "the baseline has no successful request"),
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
        compare(METRICS["rps"], base=BASE, now=now, tolerance=0.0, alpha=ErrorBudget(gates).level(1), spread=SPREAD)
        for now in (side(1900, 1910, 1890), side(1820, 1830, 1810))
        for gates in (1, 500)
    ]
    undecided, regressed = Outcome.INCONCLUSIVE, Outcome.REGRESSED
    assert [item.outcome for item in found] == [undecided, undecided, regressed, undecided]


# --- All comparisons of a test with what the store found


PACKAGES = {"app": "1.0", "uvicorn": "0.54.0"}
IDENTITY = {"load": {"connections": 32}, "server": {"stabilised": ("addresses",)}}
FAST, SLOW, NOTHING = side(2000, 2010, 1990), side(300, 302, 298), Evidence(boots=())
STORED = Entry(
    identity={"load": {"connections": 32}, "server": {"stabilised": ["addresses"]}},
    evidence=FAST,
    captured="2026-01-02T03:04:05+00:00",
    packages=PACKAGES,
)
QUIET = Busy()
OTHER_MACHINE = ("cores was 4, is 2", "cpu was A, is B")


def found(entry: Entry = STORED, *differences: str) -> Found:
    return Found(entry=entry, differences={text.split()[0]: text for text in differences})


def judged(
    entry: Entry | Found | None = STORED,
    *,
    now: Evidence = FAST,
    identity: Mapping[str, object] = IDENTITY,
    saturated: bool = False,
    tolerances: Mapping[str, float] | None = None,
    busy: Busy = QUIET,
    no_code: str = "",
) -> MetricComparison:
    (comparison,) = judge_stored(
        tolerances={"rps": 2.0} if tolerances is None else tolerances,  # sessions differ by more than small ones
        alpha=0.01,
        found=found(entry) if isinstance(entry, Entry) else entry,
        now=now,
        identity=identity,
        packages=PACKAGES,
        saturated=saturated,
        busy=busy,
        no_code=no_code,
    )
    return comparison


def test_the_same_again_passes() -> None:
    assert judged().outcome is Outcome.PASS


def test_slower_regresses_unless_the_test_allows_it() -> None:
    assert judged(now=SLOW).outcome is Outcome.REGRESSED
    assert judged(now=SLOW, tolerances={"rps": 20.0}).outcome is Outcome.PASS
    assert judged(now=side(1500, 1510, 1490), tolerances={"rps": 0.05}).outcome is Outcome.INCONCLUSIVE


def test_the_metrics_come_in_the_gate_s_order_with_their_tolerances() -> None:
    comparisons = judge_stored(
        tolerances={"p99": 0.15, "rps": 0.2},
        alpha=0.01,
        found=found(),
        now=FAST,
        identity=IDENTITY,
        packages=PACKAGES,
        saturated=False,
        busy=QUIET,
    )
    assert [(item.metric, item.tolerance) for item in comparisons] == [("p99", 0.15), ("rps", 0.2)]


def test_no_baseline_is_new() -> None:
    seen = judged(None)
    assert (seen.outcome, seen.base, seen.change) == (Outcome.NEW, None, None)
    assert seen.now == pytest.approx(2000, rel=1e-3)
    assert sentence(seen.reason) == "there is no baseline: store one with --fileperf-update"


def test_another_machine_s_baseline_is_inconclusive() -> None:
    other = judged(found(STORED, *OTHER_MACHINE))
    assert (other.outcome, other.base) == (Outcome.INCONCLUSIVE, None)
    assert sentence(other.reason) == (
        "the baseline is of another machine (cores was 4, is 2; cpu was A, is B):"
        " store one of this machine with --fileperf-update"
    )
    assert sentence(judged(found(STORED, *OTHER_MACHINE), no_code="there is no Git here").reason) == (
        "the baseline is of another machine (cores was 4, is 2; cpu was A, is B), and its code was not measured again:"
        " there is no Git here: store one of this machine with --fileperf-update"
    )


def test_a_baseline_of_something_else_is_inconclusive() -> None:
    seen = judged(identity={"load": {"connections": 64}, "server": {"stabilised": ()}})
    assert (seen.outcome, seen.base) == (Outcome.INCONCLUSIVE, None)
    assert sentence(seen.reason) == (
        "the baseline is of something else (load.connections was 32, is 64; server.stabilised was addresses, is none):"
        " store a new baseline with --fileperf-update"
    )


@pytest.mark.parametrize("count", [2, 3])
def test_other_rows_of_a_feed_are_named_as_such(count: int) -> None:
    def identity(count: int, sha256: str) -> dict[str, object]:
        return {"work": {"requests": ["GET /{id}"], "rows": {"count": count, "sha256": sha256}}}

    seen = judged(found(replace(STORED, identity=identity(2, "91"))), identity=identity(count, "ab"))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "the rows of the feed are others than those of the baseline: give the same rows each time, or let setup make"
        " them; for these rows, store a new baseline with --fileperf-update"
    )


def test_a_regression_says_which_packages_changed() -> None:
    older = replace(STORED, packages={"app": "1.0", "h11": "0.14.0", "uvicorn": "0.34.0"})
    assert sentence(judged(older, now=SLOW).reason) == "since the baseline, removed h11 0.14.0; uvicorn 0.34.0 → 0.54.0"
    assert sentence(judged(older).reason) == ""
    assert sentence(judged(now=SLOW).reason) == ""


def test_a_regression_says_why_its_baseline_was_stored() -> None:
    explained = replace(STORED, reason="responses are signed now")
    why = "the baseline of 2026-01-02 was stored because: responses are signed now"
    assert sentence(judged(explained, now=SLOW).reason) == why
    older = replace(explained, packages={"app": "1.0", "uvicorn": "0.34.0"})
    assert sentence(judged(older, now=SLOW).reason) == f"since the baseline, uvicorn 0.34.0 → 0.54.0; {why}"
    assert sentence(judged(explained).reason) == ""


@pytest.mark.parametrize("base", [FAST, SLOW])
def test_a_saturated_generator_never_passes_or_improves(base: Evidence) -> None:
    seen = judged(replace(STORED, evidence=base), saturated=True)
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "the load generator was saturated, so this is its own speed and not the server's: use fewer connections,"
        " or more generators"
    )


def test_a_regression_that_a_busy_machine_explains_is_inconclusive() -> None:
    seen = judged(now=SLOW, busy=Busy(server=0.6))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "worse, but others had the server's core for 60 % of the time, which may be why:"
        " measure again with nothing else running"
    )
    assert seen.low is not None


@pytest.mark.parametrize("busy", [QUIET, Busy(server=0.029)])
def test_on_a_quiet_machine_nothing_explains_a_regression(busy: Busy) -> None:
    seen = judged(now=SLOW, busy=busy)
    assert (seen.outcome, sentence(seen.reason)) == (Outcome.REGRESSED, "")


def test_a_regression_beyond_what_a_busy_machine_explains_stays_one() -> None:
    halved = replace(STORED, evidence=side(3000, 3010, 2990), packages={"app": "1.0", "uvicorn": "0.34.0"})
    seen = judged(halved, now=SLOW, busy=Busy(server=0.08))
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason) == (
        "others had the server's core for 8 % of the time, which explains less than this;"
        " since the baseline, uvicorn 0.34.0 → 0.54.0"
    )


def test_a_busy_machine_leaves_what_passes_and_improves() -> None:
    assert judged(busy=Busy(server=0.3)).outcome is Outcome.PASS
    assert judged(replace(STORED, evidence=SLOW), busy=Busy(server=0.3)).outcome is Outcome.IMPROVED


def test_a_saturated_generator_is_not_asked_to_store_a_baseline() -> None:
    seen = judged(None, saturated=True)
    assert seen.outcome is Outcome.NEW
    assert sentence(seen.reason).startswith(
        "there is no baseline, and this run makes none: the load generator was saturated"
    )


def test_a_saturated_generator_still_regresses() -> None:
    assert judged(now=SLOW, saturated=True).outcome is Outcome.REGRESSED


@pytest.mark.parametrize("metric,edge", [("rps", -0.2), ("p99", 0.25)])
def test_a_tolerance_ends_at_a_factor_of_the_worse_value(metric: str, edge: float) -> None:
    comparison = MetricComparison(metric=metric, outcome=Outcome.PASS, tolerance=0.25)
    assert comparison.edge == pytest.approx(edge)


# --- the baseline's code was not measured again


def test_what_stored_figures_leave_undecided_says_why_the_code_was_not_measured_again() -> None:
    seen = judged(tolerances={"rps": 0.05}, no_code="this clone has no commit of it: fetch with fetch-depth: 0")
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "stored figures alone do not tell it, and the baseline's code was not measured again:"
        " this clone has no commit of it: fetch with fetch-depth: 0"
    )


def test_what_they_decide_does_not_need_the_code() -> None:
    seen = judged(no_code="there is no Git here")
    assert (seen.outcome, seen.reason) == (Outcome.PASS, None)
    assert judged(now=SLOW, no_code="there is no Git here").outcome is Outcome.REGRESSED


def test_figures_of_other_work_say_so_rather_than_where_the_code_is() -> None:
    seen = judged(identity={"load": {"connections": 64}}, no_code="there is no Git here")
    assert "the baseline is of something else" in sentence(seen.reason)


# --- the code is that of the baseline


def same(now: Evidence = FAST, *differences: str, saturated: bool = False) -> MetricComparison:
    return same_for(IDENTITY, now, *differences, saturated=saturated)


def same_for(
    identity: Mapping[str, object], now: Evidence, *differences: str, saturated: bool = False
) -> MetricComparison:
    (comparison,) = judge_same_code(
        found(STORED, *differences),
        now,
        tolerances={"rps": METRICS["rps"].tolerance},
        identity=identity,
        saturated=saturated,
    )
    return comparison


def test_the_same_code_cannot_be_slower() -> None:
    seen = same(SLOW)
    assert seen.outcome is Outcome.PASS
    assert (seen.base, seen.now, seen.change) == pytest.approx((2000, 300, -0.85), rel=1e-3)
    assert (seen.low, seen.high) == (None, None)
    assert sentence(seen.reason) == "the code is that of the baseline"


def test_the_same_code_on_another_machine_has_no_figures_to_compare() -> None:
    seen = same(SLOW, *OTHER_MACHINE)
    assert (seen.outcome, seen.base, seen.change) == (Outcome.PASS, None, None)


@pytest.mark.parametrize("differences", [(), OTHER_MACHINE])
@pytest.mark.parametrize("now", [FAST, NOTHING])
def test_the_same_code_is_not_green_where_the_baseline_is_of_other_work(
    now: Evidence, differences: tuple[str, ...]
) -> None:
    seen = same_for({"load": {"connections": 64}, "server": {"stabilised": ("addresses",)}}, now, *differences)
    assert (seen.outcome, seen.base, seen.change) == (Outcome.INCONCLUSIVE, None, None)
    assert sentence(seen.reason) == (
        "the baseline is of something else (load.connections was 32, is 64): store a new baseline with"
        " --fileperf-update"
    )


def test_the_same_code_passes_where_start_ups_were_held_alike_in_another_way() -> None:
    seen = same_for({**IDENTITY, "server": {"stabilised": ("addresses", "hash seed")}}, SLOW)
    assert (seen.outcome, seen.base, seen.change) == (Outcome.PASS, None, None)


def test_the_same_code_is_not_green_where_nothing_was_measured() -> None:
    assert (same(NOTHING).outcome, sentence(same(NOTHING).reason)) == (
        Outcome.INCONCLUSIVE,
        "this run has no successful request",
    )
    assert same(saturated=True).outcome is Outcome.INCONCLUSIVE


# --- the world


def world(
    now: Evidence,
    *,
    base: Found | None = None,
    identity: Mapping[str, object] = IDENTITY,
    packages: Mapping[str, str] = PACKAGES,
    conditions: Mapping[str, str] | None = None,
    busy: Busy = QUIET,
    saturated: bool = False,
) -> tuple[MetricComparison, ...]:
    return judge_world(
        base or found(),
        now,
        tolerances={"rps": 0.05},
        alpha=0.01,
        identity=identity,
        packages=packages,
        conditions=conditions or {},
        busy=busy,
        saturated=saturated,
    )


def test_a_world_as_it_was_passes() -> None:
    (seen,) = world(FAST)
    assert (seen.outcome, seen.reason) == (Outcome.PASS, None)


def test_a_world_that_is_far_slower_regresses_and_names_changed_packages() -> None:
    (seen,) = world(SLOW, packages={"app": "1.0", "uvicorn": "0.55.0"})
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason) == (
        "requests/s of the baseline's own code is 0.15 times what is stored: the machine, the packages or the"
        " environment changed, not your code; uvicorn 0.54.0 → 0.55.0"
    )


def test_a_slower_world_is_unclear_as_sessions_differ() -> None:
    (seen,) = world(side(1500, 1510, 1490))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "requests/s of the baseline's own code is 0.75 times what is stored, which may be how runs at"
        " other times differ"
    )


def test_a_busy_machine_is_no_slower_world() -> None:
    (seen,) = world(SLOW, busy=Busy(server=0.6))
    assert seen.outcome is Outcome.INCONCLUSIVE
    (seen,) = world(SLOW, busy=Busy(server=0.08))
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason).startswith("requests/s of the baseline's own code is 0.15 times what is stored")


def test_a_saturated_generator_shows_no_world_that_is_as_it_was() -> None:
    assert [item.outcome for item in world(FAST, saturated=True)] == [Outcome.INCONCLUSIVE]
    assert [item.outcome for item in world(SLOW, saturated=True)] == [Outcome.REGRESSED]


def test_there_is_no_world_to_compare_of_another_machine_or_other_work_or_without_figures() -> None:
    assert world(SLOW, base=found(STORED, *OTHER_MACHINE)) == ()
    assert world(SLOW, identity={"load": {"connections": 64}}) == ()
    assert world(NOTHING) == ()
    assert world(FAST, base=found(replace(STORED, evidence=NOTHING))) == ()


@pytest.mark.parametrize(
    "rps,outcome",
    [(1600, Outcome.PASS), (1000, Outcome.INCONCLUSIVE), (400, Outcome.REGRESSED), (60, Outcome.REGRESSED)],
)
def test_code_is_no_pass_in_an_environment_in_which_it_is_far_slower(rps: float, outcome: Outcome) -> None:
    now, packages = side(rps, rps * 1.005, rps * 0.995), {"app": "1.0", "uvicorn": "0.55.0"}
    code = judge_same_code(found(), now, tolerances={"rps": 0.05}, identity=IDENTITY, saturated=False)
    (seen,) = unless_environment(code, world(now, packages=packages), QUIET)
    assert seen.outcome is outcome
    if outcome is not Outcome.PASS:
        assert sentence(seen.reason) == (
            f"the baseline's own code runs at {rps / 2000:.2f} of what was stored (requests/s), more than sessions"
            " differ: packages, files that Git ignores, or the machine changed; uvicorn 0.54.0 → 0.55.0; measure with"
            " the packages of then, by --fileperf-base-packages=stored, to see what they cost"
        )


def test_an_environment_in_which_no_session_is_fails_what_could_not_be_compared_too() -> None:
    code = MetricComparison(metric="rps", outcome=Outcome.INCONCLUSIVE, tolerance=0.05)
    (failed,) = unless_environment([code], world(side(60, 60.3, 59.7)), QUIET)
    assert failed.outcome is Outcome.REGRESSED
    assert "runs at 0.03 of what was stored" in sentence(failed.reason)
    assert unless_environment([code], world(side(1000, 1005, 995)), QUIET) == (code,)


def test_an_environment_fails_unchanged_code_only_by_the_whole_interval() -> None:
    code = judge_same_code(found(), FAST, tolerances={"rps": 0.05}, identity=IDENTITY, saturated=False)
    (seen,) = unless_environment(code, world(side(100, 900, 150)), QUIET)
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert "the baseline's own code runs at 0.12 of what was stored" in sentence(seen.reason)


def test_a_limit_of_cpu_and_another_python_are_named() -> None:
    entry = replace(STORED, conditions={"CPU limit": "none", "Python": "3.11.7"})
    conditions = {"CPU limit": "0.5 cores", "Python": "3.11.7", "new": "fact"}
    (seen,) = world(side(400, 402, 398), base=found(entry), conditions=conditions)
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason).endswith("not your code; CPU limit none → 0.5 cores")
    (seen,) = world(side(400, 402, 398), base=found(entry, "python was CPython 3.11, is CPython 3.12"))
    assert sentence(seen.reason).endswith("; python was CPython 3.11, is CPython 3.12")


@pytest.mark.parametrize("rps,outcome", [(1000, Outcome.PASS), (400, Outcome.INCONCLUSIVE)])
def test_a_machine_that_is_busy_is_no_slower_environment(rps: float, outcome: Outcome) -> None:
    now, busy = side(rps, rps * 1.005, rps * 0.995), Busy(server=0.7)
    code = judge_same_code(
        found(), now, tolerances={"rps": METRICS["rps"].tolerance}, identity=IDENTITY, saturated=False
    )
    (seen,) = unless_environment(code, world(now, busy=busy), busy)
    assert seen.outcome is outcome
    if outcome is not Outcome.PASS:
        assert "measure again with nothing else running" in sentence(seen.reason)


def test_figures_that_a_busy_machine_stored_do_not_show_that_code_is_no_worse() -> None:
    seen = judged(replace(STORED, busy=Busy(server=0.6)))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason).startswith("others had the server's core for 60 % of the time when the baseline was")
    assert judged(replace(STORED, busy=Busy(server=0.01))).outcome is Outcome.PASS
    assert judged(replace(STORED, busy=Busy(server=0.6)), tolerances={"rps": 9.0}).outcome is Outcome.PASS
    assert judged(replace(STORED, busy=Busy(server=0.6)), now=SLOW).outcome is Outcome.REGRESSED


@pytest.mark.parametrize("metric,low,high", [("rps", -0.78, -0.57), ("rps", -1.0, -0.9), ("p99", 2.0, 9.0)])
def test_an_interval_that_is_far_beyond_the_tolerance_is_a_regression(metric: str, low: float, high: float) -> None:
    seen = MetricComparison(metric=metric, outcome=Outcome.INCONCLUSIVE, tolerance=0.03, low=low, high=high)
    assert unless_far_worse(seen).outcome is Outcome.REGRESSED
    reached = replace(seen, high=-0.2) if metric == "rps" else replace(seen, low=0.25)
    assert unless_far_worse(reached) == reached


@pytest.mark.parametrize(
    "total,server,outcome",
    [
        ((-0.10, 0.01), 0.2, Outcome.INCONCLUSIVE),
        ((-0.10, 0.01), 0.01, Outcome.REGRESSED),
        ((-0.30, -0.10), 0.2, Outcome.REGRESSED),
        (None, 0.2, Outcome.REGRESSED),
    ],
)
def test_beside_others_a_worse_pace_has_to_show_in_the_counts_too(
    total: tuple[float, float] | None, server: float, outcome: Outcome
) -> None:
    item = MetricComparison(metric="rps", outcome=Outcome.REGRESSED, tolerance=0.03, low=-0.1, high=-0.06, total=total)
    (seen,) = unless_unsteady([item], Busy(server=server))
    assert seen.outcome is outcome


def test_a_loss_of_everything_on_a_busy_machine_is_a_regression() -> None:
    assert judged(now=side(1e-12, 1e-12, 1e-12), busy=Busy(server=0.2)).outcome is Outcome.REGRESSED


def test_many_changed_packages_are_counted() -> None:
    many = {f"package{number:02}": "1" for number in range(11)}
    (seen,) = world(SLOW, packages={**PACKAGES, **many})
    assert sentence(seen.reason).endswith("added package07 1; and 3 more")


def test_packages_that_the_first_schema_did_not_store_did_not_change() -> None:
    first = replace(STORED, packages={"uvicorn": "0.34.0"})
    assert sentence(judged(first, now=SLOW).reason) == "since the baseline, uvicorn 0.34.0 → 0.54.0"


# --- Bounds and thresholds


KNOWN = Difference(worse=0.10, error=0.02, df=10)
LIMIT = math.log1p(0.05)


def test_bounds_are_those_of_student_s_t() -> None:
    """The quantile of 95 % with ten degrees of freedom is 1.8125."""
    assert KNOWN.margin(0.05) == pytest.approx(1.8125 * 0.02, rel=1e-4)
    assert [KNOWN.low(0.05), KNOWN.high(0.05)] == pytest.approx([0.10 - 0.03625, 0.10 + 0.03625], rel=1e-3)
    assert KNOWN.is_above(0.06, 0.05)
    assert not KNOWN.is_above(0.07, 0.05)
    assert KNOWN.is_below(0.14, 0.05)
    assert not KNOWN.is_below(0.13, 0.05)


@pytest.mark.parametrize(
    "threshold, shown",
    [
        (Threshold(limit=LIMIT, alpha=0.01, bound_error=0.05), True),
        (Threshold(limit=LIMIT, alpha=0.0001, bound_error=0.05), False),
        (Threshold(limit=LIMIT, alpha=0.01, bound_error=0.01), False),
    ],
)
def test_a_regression_is_beyond_0_and_beyond_the_tolerance(threshold: Threshold, shown: bool) -> None:
    better = Difference(worse=-KNOWN.worse, error=KNOWN.error, df=KNOWN.df)
    assert KNOWN.is_worse(threshold) is better.is_better(threshold) is shown
    assert (KNOWN.worse > KNOWN.least_shown(threshold)) is shown
    assert not KNOWN.is_better(threshold)


def test_a_part_of_a_threshold_has_that_part_of_both_errors() -> None:
    part = Threshold(limit=LIMIT, alpha=0.01, bound_error=0.05).part(0.2)
    assert [part.limit, part.alpha, part.bound_error] == pytest.approx([LIMIT, 0.002, 0.01])


@pytest.mark.parametrize("ratio, share", [(math.log(1.05), 0.05), (-800.0, -1.0), (0.0, 0.0)])
def test_a_log_ratio_as_a_share(ratio: float, share: float) -> None:
    assert as_share(ratio) == pytest.approx(share)
    assert math.isfinite(as_share(1e6))
