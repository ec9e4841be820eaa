"""All comparisons of a test with what the store found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from judge.sides import side

from pytest_fileperf.judge.baseline import Entry, Found
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.gate import (
    Steadiness,
    judge_same_code,
    judge_stored,
    judge_world,
    unless_environment,
    unless_unsteady,
)
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, unless_far_worse
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.wording import sentence

PACKAGES = {"app": "1.0", "uvicorn": "0.54.0"}
IDENTITY = {"load": {"connections": 32}, "server": {"stabilised": ("addresses",)}}
FAST, SLOW, NOTHING = side(2000, 2010, 1990), side(1500, 1510, 1490), Evidence(boots=())
STORED = Entry(
    identity={"load": {"connections": 32}, "server": {"stabilised": ["addresses"]}},
    evidence=FAST,
    captured="2026-01-02T03:04:05+00:00",
    packages=PACKAGES,
)
QUIET = Busy()
STEADY, UNKNOWN = Steadiness(changes=({"rps": 0.01, "p99": 0.04},) * 20), Steadiness()
OTHER_MACHINE = ("cores was 4, is 2", "cpu was A, is B")


def found(entry: Entry = STORED, *differences: str) -> Found:
    return Found(entry=entry, differences=differences)


def judged(
    entry: Entry | Found | None = STORED,
    *,
    now: Evidence = FAST,
    identity: Mapping[str, object] = IDENTITY,
    saturated: bool = False,
    tolerances: Mapping[str, float] | None = None,
    busy: Busy = QUIET,
    steadiness: Steadiness = STEADY,
    no_code: str = "",
) -> MetricComparison:
    (comparison,) = judge_stored(
        tolerances={"rps": 0.05} if tolerances is None else tolerances,
        alpha=0.01,
        found=found(entry) if isinstance(entry, Entry) else entry,
        now=now,
        identity=identity,
        packages=PACKAGES,
        steadiness=steadiness,
        saturated=saturated,
        busy=busy,
        no_code=no_code,
    )
    return comparison


def test_the_same_again_passes() -> None:
    assert judged().outcome is Outcome.PASS


def test_slower_regresses_unless_the_test_allows_it() -> None:
    assert judged(now=SLOW).outcome is Outcome.REGRESSED
    assert judged(now=SLOW, tolerances={"rps": 0.5}).outcome is Outcome.PASS


def test_the_metrics_come_in_the_gate_s_order_with_their_tolerances() -> None:
    comparisons = judge_stored(
        tolerances={"p99": 0.15, "rps": 0.2},
        alpha=0.01,
        found=found(),
        now=FAST,
        identity=IDENTITY,
        packages=PACKAGES,
        steadiness=STEADY,
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
    seen = judged(now=SLOW, busy=Busy(server=0.12))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "worse, but others had the server's core for 12 % of the time, which may be why:"
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
    seen = judged(steadiness=UNKNOWN, no_code="this clone has no commit of it: fetch with fetch-depth: 0")
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "stored figures alone do not tell it on this machine, and the baseline's code was not measured again:"
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
    assert (seen.base, seen.now, seen.change) == pytest.approx((2000, 1500, -0.25), rel=1e-3)
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
    steadiness: Steadiness = STEADY,
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
        steadiness=steadiness,
        busy=busy,
        saturated=saturated,
    )


def test_a_world_as_it_was_passes() -> None:
    (seen,) = world(FAST)
    assert (seen.outcome, seen.reason) == (Outcome.PASS, None)


def test_a_slower_world_regresses_where_the_machine_is_steady_and_names_changed_packages() -> None:
    (seen,) = world(SLOW, packages={"app": "1.0", "uvicorn": "0.55.0"})
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason) == (
        "requests/s of the baseline's own code is 0.75 times what is stored: the machine, the packages or the"
        " environment changed, not your code; uvicorn 0.54.0 → 0.55.0"
    )


def test_a_slower_world_is_unclear_where_nothing_is_known_of_the_machine() -> None:
    (seen,) = world(SLOW, steadiness=UNKNOWN)
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason) == (
        "requests/s of the baseline's own code is 0.75 times what is stored, which may be how sessions differ on this"
        " machine"
    )


def test_a_busy_machine_is_no_slower_world() -> None:
    (seen,) = world(SLOW, busy=Busy(server=0.2))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert "which may be why" in sentence(seen.reason)
    (seen,) = world(side(900, 905, 895), busy=Busy(server=0.08))
    assert seen.outcome is Outcome.REGRESSED
    assert sentence(seen.reason).startswith("requests/s of the baseline's own code is 0.45 times what is stored")


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
    (seen,) = unless_environment(code, world(now, steadiness=UNKNOWN, packages=packages), QUIET)
    assert seen.outcome is outcome
    if outcome is not Outcome.PASS:
        assert sentence(seen.reason) == (
            f"the baseline's own code runs at {rps / 2000:.2f} of what was stored (requests/s), more than sessions"
            " differ: packages, files that Git ignores, or the machine changed; uvicorn 0.54.0 → 0.55.0; measure with"
            " the packages of then, by --fileperf-base-packages=stored, to see what they cost"
        )


def test_an_environment_fails_unchanged_code_only_by_the_whole_interval() -> None:
    code = judge_same_code(found(), FAST, tolerances={"rps": 0.05}, identity=IDENTITY, saturated=False)
    (seen,) = unless_environment(code, world(side(100, 900, 150), steadiness=UNKNOWN), QUIET)
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
    (seen,) = unless_environment(code, world(now, steadiness=UNKNOWN, busy=busy), busy)
    assert seen.outcome is outcome
    if outcome is not Outcome.PASS:
        assert "measure again with nothing else running" in sentence(seen.reason)


def test_figures_that_a_busy_machine_stored_do_not_show_that_code_is_no_worse() -> None:
    seen = judged(replace(STORED, busy=Busy(server=0.2)))
    assert seen.outcome is Outcome.INCONCLUSIVE
    assert sentence(seen.reason).startswith("others had the server's core for 20 % of the time when the baseline was")
    assert judged(replace(STORED, busy=Busy(server=0.01))).outcome is Outcome.PASS
    assert judged(replace(STORED, busy=Busy(server=0.2)), tolerances={"rps": 0.9}).outcome is Outcome.PASS
    assert judged(replace(STORED, busy=Busy(server=0.2)), now=SLOW).outcome is Outcome.REGRESSED


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
