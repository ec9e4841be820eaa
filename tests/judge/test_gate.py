"""One metric against its baseline: the outcome, the figures and the reason; and what the store found, as a test has it.

Sentences of reasons are those of the report: here the kind of a reason is asked for, and the facts that it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.sides import NO_ANSWER, boot, known, side
from measure.recordings import in_ms

from pytest_fileperf.judge.baseline import Entry
from pytest_fileperf.judge.difference import Difference, Threshold
from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.judge.gate import (
    compare,
    judge_same_code,
    judge_stored,
    judge_world,
    unless_environment,
    unless_saturated,
    unless_unsteady,
)
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, unless_far_worse
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.plan.request import Tolerance
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.units import as_share

PASS, REGRESSED, IMPROVED, UNDECIDED = Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE
SPREAD = 0.02
"""By how much sessions deviate."""
BASE = side(2000, 2010, 1990)
NOISY, WILD = side(2000, 2300, 1750), side(2000, 3000, 1300)
NOTHING = Evidence(boots=(NO_ANSWER,))


def gate(
    base: Evidence, now: Evidence, *, metric: str = "rps", tolerance: float = 0.05, spread: float = SPREAD
) -> MetricComparison:
    return compare(METRICS[metric], base=base, now=now, tolerance=tolerance, alpha=0.01, sd=spread)


def around(level: float, metric: str = "rps") -> Evidence:
    return side(level, level * 1.005, level * 0.995, metric=metric)


def boots(*latencies_ms: tuple[tuple[int, int], ...], p99: Sequence[float] = ()) -> Evidence:
    """A side whose boots have so many requests of so many ms each."""
    turns = tuple({"p99": value} for value in p99)
    return Evidence(
        boots=tuple(
            BootEvidence(turns=turns, latency=in_ms(*(ms for count, ms in own for _ in range(count))), runs={})
            for own in latencies_ms
        ),
        stabilised=BASE.stabilised,
    )


def with_memory(*sizes: float, reached: int = 1000) -> Evidence:
    courses = (((0, round(size) - 10_000 * reached), (reached, round(size))) for size in sizes)
    return replace(BASE, boots=tuple(replace(boot(), memory=course) for course in courses))


CALM, HIT = ((950, 4), (50, 10)), ((950, 4), (50, 80))
OLD_MEMORY = replace(BASE, boots=(replace(boot(), runs={"rss": 1e8}),) * 3)


@pytest.mark.parametrize(
    "metric, base, now, outcome",
    [
        ("rps", BASE, side(1990, 2000, 1980), PASS),
        ("rps", BASE, side(1930, 1940, 1920), UNDECIDED),
        ("rps", BASE, side(1860, 1870, 1850), UNDECIDED),
        ("rps", BASE, side(1700, 1710, 1690), REGRESSED),
        ("rps", BASE, side(2300, 2310, 2290), IMPROVED),
        ("cpu_per_request", *(around(at, "cpu_per_request") for at in (10, 11.5)), REGRESSED),
        ("cpu_per_request", *(around(at, "cpu_per_request") for at in (10, 8.7)), IMPROVED),
        # A pair of boots of the same code differed by a steady 4 to 5 %.
        ("rps", side(2000, stabilised=()), side(2000, stabilised=()), UNDECIDED),
        ("rps", side(2000, stabilised=()), side(1820, stabilised=()), UNDECIDED),
        ("rss", with_memory(1e8, 1.01e8), with_memory(1e8, 1.01e8), PASS),
        ("rss", with_memory(1e8, 1.01e8), with_memory(1.4e8, 1.41e8), REGRESSED),
        ("rss", OLD_MEMORY, OLD_MEMORY, UNDECIDED),
        ("p99", boots(((980, 4), (20, 10))), boots(((980, 4), (20, 60))), REGRESSED),
        ("p99", boots(CALM, CALM, CALM), boots(CALM, CALM, HIT), UNDECIDED),
    ],
)
def test_outcomes(metric: str, base: Evidence, now: Evidence, outcome: Outcome) -> None:
    tolerance = {"rss": 0.1, "p99": 0.25}.get(metric, 0.05)
    assert gate(base, now, metric=metric, tolerance=tolerance).outcome is outcome


def test_the_figures_of_a_regression() -> None:
    found = gate(BASE, side(1700, 1710, 1690))
    assert [found.base, found.now, found.change] == pytest.approx([2000, 1700, -0.15], rel=1e-3)
    assert known(found.low) < -0.15 < known(found.high) < 1 / 1.05 - 1
    assert found.confidence == pytest.approx(0.90)
    assert found.detectable == pytest.approx(0.11, abs=0.02)
    assert found.reason is None
    after = gate(with_memory(1e8), with_memory(1.9e8, reached=10_000), metric="rss", tolerance=0.1)
    assert [after.change, after.after_requests] == [pytest.approx(0), 1000]


def test_many_boots_are_no_proof_where_sessions_differ() -> None:
    """What moves the machine between sessions is in no number of boots of one session."""
    levels = [2000.0, 2010.0, 1990.0] * 5
    for sd, outcome in ((0.01, REGRESSED), (0.1, UNDECIDED)):
        slower = side(*(0.8 * level for level in levels))
        assert gate(side(*levels), slower, spread=sd).outcome is outcome


MAY_BE = "too noisy to decide. It may be worse by more than the tolerance of 5 %. "
NONE_CAN = "too noisy to decide. Even a change of 50 % would not have shown. "
IN_TURN = "More start-ups do not help, because runs at different times differ by some 25 %. Compare with a baseline"


@pytest.mark.parametrize(
    "base, now, spread, said",
    [
        (BASE, side(1880, 1890, 1870), 0.005, MAY_BE + "Use a longer duration"),
        (BASE, side(1860, 1870, 1850), 0.05, MAY_BE + IN_TURN),
        (BASE, BASE, 0.1, f"or more would have shown. {IN_TURN}"),
        (BASE, BASE, 0.2, NONE_CAN + IN_TURN),
        (WILD, WILD, SPREAD, NONE_CAN + "Use a longer duration"),
        (
            NOISY,
            NOISY,
            SPREAD,
            "only a change of 35.3 % or more would have shown. Use a longer duration",
        ),
    ],
)
def test_the_advice_is_about_what_the_noise_comes_from(base: Evidence, now: Evidence, spread: float, said: str) -> None:
    found = gate(base, now, spread=spread)
    assert found.outcome is UNDECIDED
    assert said in sentence(found.reason)


def test_noise_that_would_hide_a_regression_says_which_tolerance_it_carries() -> None:
    assert sentence(gate(NOISY, NOISY).reason).endswith("or use a tolerance of 14 %")
    assert [gate(NOISY, NOISY, tolerance=at).outcome for at in (0.13, 0.14)] == [UNDECIDED, PASS]
    far = gate(WILD, WILD, tolerance=0.4, spread=0.5)
    assert "Even a change of 80 % would" in sentence(far.reason)


def test_only_what_both_sides_held_equal_counts() -> None:
    sides = [side(2000, 2010, 1990, stabilised=held) for held in (("hash seed", "addresses"), ("hash seed",), ())]
    detectable = [known(gate(same, same).detectable) for same in sides]
    assert detectable == sorted(detectable)
    assert gate(BASE, sides[-1]).detectable == detectable[-1]


NEEDS = "p99 needs 299 requests, but {} has {}. Use a longer duration or gate a lower percentile"
RATIO = "error rate was 0 in this run, so its change in % cannot be computed. Set a limit instead"


@pytest.mark.parametrize(
    "metric, base, now, reason",
    [
        ("rps", BASE, NOTHING, "this run has no successful request"),
        ("p99", NOTHING, BASE, "the baseline has no successful request"),
        ("rps", Evidence(boots=()), BASE, "the baseline has no successful request"),
        ("rss", BASE, BASE, "server peak RSS was not measured in the baseline"),
        ("error_rate", *(Evidence(boots=(boot(at, metric="error_rate"),)) for at in (0.1, 0.0)), RATIO),
        ("p99", *(Evidence(boots=(boot(requests=at),)) for at in (298, 5000)), NEEDS.format("the baseline", 298)),
        ("p99", *(Evidence(boots=(boot(requests=at),)) for at in (5000, 120)), NEEDS.format("this run", 120)),
    ],
)
def test_what_has_no_level_is_inconclusive(metric: str, base: Evidence, now: Evidence, reason: str) -> None:
    found = gate(base, now, metric=metric)
    assert (found.outcome, found.detectable, sentence(found.reason)) == (UNDECIDED, None, reason)


LEVELS = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4)


@given(LEVELS, LEVELS, st.floats(1e-3, 1e6))
def test_units_do_not_matter_and_swapping_the_sides_mirrors_the_outcome(
    base: list[float], now: list[float], unit: float
) -> None:
    found = gate(side(*base), side(*now))
    scaled = gate(side(*(value * unit for value in base)), side(*(value * unit for value in now)))
    assert scaled.outcome is found.outcome
    assert scaled.detectable == pytest.approx(found.detectable)
    mirror = {REGRESSED: IMPROVED, IMPROVED: REGRESSED}
    if found.outcome in mirror:
        assert gate(side(*now), side(*base)).outcome is mirror[found.outcome]


@given(st.floats(0.3, 3.0), st.floats(0.0, 1.0))
def test_the_interval_holds_the_change_and_a_regression_lies_beyond_the_tolerance(
    ratio: float, tolerance: float
) -> None:
    found = gate(BASE, around(2000 * ratio), tolerance=tolerance)
    assert -1 < known(found.low) < known(found.change) < known(found.high)
    assert found.outcome is not REGRESSED or known(found.high) < 1 / (1 + tolerance) - 1
    assert found.outcome is not IMPROVED or known(found.low) > tolerance


# --- All comparisons of a test with what the store found


PACKAGES = {"app": "1.0", "uvicorn": "0.54.0"}
IDENTITY: Mapping[str, object] = {"load": {"connections": 32}, "server": {"stabilised": ("addresses",)}}
OTHER_WORK: Mapping[str, object] = {"load": {"connections": 64}, "server": {"stabilised": ("addresses",)}}
FAST, SLOW = side(2000, 2010, 1990), side(300, 302, 298)
STORED = Entry(
    identity={"load": {"connections": 32}, "server": {"stabilised": ["addresses"]}},
    evidence=FAST,
    captured="2026-01-02T03:04:05+00:00",
    packages=PACKAGES,
)
QUIET = Busy()
OTHER_MACHINE = ("cores was 4, is 2", "cpu was A, is B")


def found(*differences: str, **changed: Any) -> Entry:
    return replace(STORED, differences={text.split()[0]: text for text in differences}, **changed)


def judged(entry: Entry | None = None, *, tolerance: float = 2.0, is_new: bool = False, **how: Any) -> MetricComparison:
    """Returns what the same run again is told, but for `how`; sessions differ by more than small tolerances."""
    told = {"now": FAST, "identity": IDENTITY, "packages": PACKAGES, "saturated": False, "busy": QUIET, **how}
    base = None if is_new else entry or found()
    (comparison,) = judge_stored(tolerances={"rps": tolerance}, alpha=0.01, found=base, **told)
    return comparison


BETTER = found(evidence=SLOW)
BUSY, ON_BUSY = Busy(server=0.6), found(busy=Busy(server=0.6))
SINCE, WHY = "packages changed since the baseline: {}", 'reason given for the baseline of 2026-01-02: "signed"'
MACHINE = "the baseline comes from another machine (cores was 4, is 2; cpu was A, is B)"
NO_CODE = ", and its code was not measured again: no Git"
FEEDS = [
    {"work": {"requests": ["GET /{id}"], "rows": {"count": count, "sha256": sha}}}
    for count, sha in ((2, "91"), (3, "ab"))
]
OWN_SPEED = (
    "the load generator was saturated, so the figures show its speed and not the server's. Use fewer connections"
)


@pytest.mark.parametrize(
    "how, outcome, said",
    [
        ({}, PASS, ""),
        ({"now": SLOW}, REGRESSED, ""),
        ({"now": SLOW, "tolerance": 20.0}, PASS, ""),
        ({"now": around(1500), "tolerance": 0.05}, UNDECIDED, "Compare with a baseline"),
        ({"is_new": True}, Outcome.NEW, "no baseline yet. Store one"),
        ({"is_new": True, "saturated": True}, Outcome.NEW, "no baseline yet, and this run cannot become one"),
        ({"entry": found(*OTHER_MACHINE)}, UNDECIDED, f"{MACHINE}. Store a"),
        ({"entry": found(*OTHER_MACHINE), "no_code": "no Git"}, UNDECIDED, MACHINE + NO_CODE),
        (
            {"identity": OTHER_WORK, "no_code": "no Git"},
            UNDECIDED,
            "the baseline was measured in another way (load.connections was 32, is 64). Store a new baseline",
        ),
        (
            {"entry": found(identity=FEEDS[0]), "identity": FEEDS[1]},
            UNDECIDED,
            "the feed's rows differ from the baseline's rows. Give the same rows each time",
        ),
        # What was installed and why the baseline is what it is, of a regression alone.
        (
            {"entry": found(packages={**PACKAGES, "h11": "0.14.0", "uvicorn": "0.34.0"}, reason="signed"), "now": SLOW},
            REGRESSED,
            f"{SINCE.format('removed h11 0.14.0; uvicorn 0.34.0 → 0.54.0')}; {WHY}",
        ),
        ({"entry": found(packages={"app": "1.0", "uvicorn": "0.34.0"}, reason="signed")}, PASS, ""),
        # The first schema stored those of the server alone.
        (
            {"entry": found(packages={"uvicorn": "0.34.0"}), "now": SLOW},
            REGRESSED,
            SINCE.format("uvicorn 0.34.0 → 0.54.0"),
        ),
        # A saturated generator never passes or improves.
        ({"saturated": True}, UNDECIDED, OWN_SPEED),
        ({"saturated": True, "entry": BETTER}, UNDECIDED, OWN_SPEED),
        ({"saturated": True, "now": SLOW}, REGRESSED, ""),
        # A busy machine explains what is worse, up to a size.
        (
            {"now": SLOW, "busy": BUSY},
            UNDECIDED,
            "worse, but other programs used the server's core 60 % of the time, which may be the reason. Measure again",
        ),
        ({"now": SLOW, "busy": Busy(server=0.029)}, REGRESSED, ""),
        (
            {
                "now": SLOW,
                "busy": Busy(server=0.08),
                "entry": found(evidence=side(3000, 3010, 2990), packages={"app": "1"}),
            },
            REGRESSED,
            "other programs used the server's core 8 % of the time, which explains only part of this; packages",
        ),
        ({"busy": Busy(server=0.3)}, PASS, ""),
        ({"busy": Busy(server=0.3), "entry": BETTER}, IMPROVED, "better"),
        ({"now": side(*[1e-12] * 3), "busy": Busy(server=0.2)}, REGRESSED, "only part of this"),
        # Figures that a busy machine stored do not show that code is no worse.
        ({"entry": ON_BUSY}, UNDECIDED, "60 % of the time when the baseline was"),
        ({"entry": found(busy=Busy(server=0.01))}, PASS, ""),
        ({"entry": ON_BUSY, "tolerance": 9.0}, PASS, ""),
        ({"entry": ON_BUSY, "now": SLOW}, REGRESSED, ""),
        # The baseline's code was not measured again.
        (
            {"tolerance": 0.05, "no_code": "no Git"},
            UNDECIDED,
            "stored figures alone cannot decide, and the baseline's code was not measured again: no Git",
        ),
        ({"no_code": "no Git"}, PASS, ""),
        ({"no_code": "no Git", "now": SLOW}, REGRESSED, ""),
    ],
)
def test_what_a_test_is_told_of_its_stored_baseline(how: Mapping[str, Any], outcome: Outcome, said: str) -> None:
    seen = judged(**how)
    assert seen.outcome is outcome
    assert said in sentence(seen.reason)
    assert bool(said) is bool(sentence(seen.reason))
    compares = not any(word in said for word in ("another machine", "in another way", "rows", "no baseline"))
    assert (seen.base is not None) is compares


@pytest.mark.parametrize(
    "metric, base, floor, tolerance",
    [
        ("p99", 0.010, 0.002, 0.2),
        ("p99", 0.100, 0.002, 0.05),
        ("rps", 1000.0, 200.0, 0.25),
        ("rps", 100.0, 200.0, 1000.0),
        ("p99", None, 0.002, 0.05),
    ],
)
def test_a_floor_passes_as_the_share_that_it_is_of_the_old_level(
    metric: str, base: float | None, floor: float, tolerance: float
) -> None:
    asked = Tolerance(0.05, floor=floor, unit=METRICS[metric].unit)
    seen = MetricComparison.of(METRICS[metric], asked, base=base)
    assert seen.tolerance == pytest.approx(tolerance)
    assert seen.floor == (floor if tolerance != 0.05 else 0.0)
    if metric == "rps" and tolerance < 1:
        assert (base or 0.0) * (1 + seen.edge) == pytest.approx((base or 0.0) - floor)


def test_what_is_watched_stays_so_whatever_is_found() -> None:
    worse = gate(FAST, SLOW, tolerance=Tolerance(0.05, watched=True))
    assert (worse.outcome, worse.reason, known(worse.high) < 0) == (Outcome.WATCHED, None, True)
    assert unless_saturated([worse], saturated=True) == (worse,)


# --- The code is that of the baseline, and the world in which it runs


def same(now: Evidence = FAST, *differences: str, tolerance: float = 0.05, **how: Any) -> MetricComparison:
    told = {"identity": IDENTITY, "saturated": False, **how}
    (comparison,) = judge_same_code(found(*differences), now, tolerances={"rps": tolerance}, **told)
    return comparison


@pytest.mark.parametrize(
    "seen, outcome, change, said",
    [
        (same(SLOW), PASS, -0.85, "the code is the same as the baseline"),
        (same(SLOW, *OTHER_MACHINE), PASS, None, ""),
        *(
            (same(now, *where, identity=OTHER_WORK), UNDECIDED, None, "load.connections was 32")
            for now in (FAST, NOTHING)
            for where in ((), OTHER_MACHINE)
        ),
        (same(SLOW, identity={**IDENTITY, "server": {"stabilised": ("addresses", "hash seed")}}), PASS, None, ""),
        (same(NOTHING), UNDECIDED, None, "this run has no successful request"),
        (same(saturated=True), UNDECIDED, 0.0, "saturated"),
    ],
)
def test_the_same_code_cannot_be_slower_but_is_not_green_where_nothing_compares(
    seen: MetricComparison, outcome: Outcome, change: float | None, said: str
) -> None:
    assert seen.outcome is outcome
    assert seen.change is None if change is None else seen.change == pytest.approx(change, abs=1e-3)
    assert (seen.low, seen.high) == (None, None) or outcome is UNDECIDED
    assert said in sentence(seen.reason)


def world(now: Evidence, *, base: Entry | None = None, **how: Any) -> tuple[MetricComparison, ...]:
    told = {"identity": IDENTITY, "packages": PACKAGES, "conditions": {}, "busy": QUIET, "saturated": False, **how}
    return judge_world(base or found(), now, tolerances={"rps": 0.05}, alpha=0.01, **told)


NEWER = {"app": "1.0", "uvicorn": "0.55.0"}
TIMES = "the baseline's own code now has {} times the stored requests/s"
CHANGED = ". The machine, the packages or the settings changed, not your code. Changed: "
LIMITS = {"CPU limit": "none", "Python": "3.11.7"}
LIMITED = {"CPU limit": "0.5 cores", "Python": "3.11.7", "new": "fact"}


@pytest.mark.parametrize(
    "now, how, outcome, said",
    [
        (FAST, {}, PASS, ""),
        (SLOW, {"packages": NEWER}, REGRESSED, TIMES.format(0.15) + CHANGED + "uvicorn 0.54.0 → 0.55.0"),
        (around(1500), {}, UNDECIDED, TIMES.format(0.75) + ". Runs at different times may differ as much"),
        (SLOW, {"busy": BUSY}, UNDECIDED, "at different times"),
        (SLOW, {"busy": Busy(server=0.08)}, REGRESSED, TIMES.format(0.15)),
        (FAST, {"saturated": True}, UNDECIDED, "saturated"),
        (SLOW, {"saturated": True}, REGRESSED, TIMES.format(0.15)),
        (
            SLOW,
            {"base": found(conditions=LIMITS), "conditions": LIMITED},
            REGRESSED,
            "Changed: CPU limit none → 0.5 cores",
        ),
        (
            SLOW,
            {"base": found("python was CPython 3.11, is CPython 3.12")},
            REGRESSED,
            "Changed: python was CPython 3.11,",
        ),
        (SLOW, {"packages": PACKAGES | {f"p{at:02}": "1" for at in range(11)}}, REGRESSED, "p07 1; and 3 more"),
        *(
            (now, how, None, "")
            for number, (now, how) in enumerate(
                [
                    (SLOW, {"base": found(*OTHER_MACHINE)}),
                    (SLOW, {"identity": OTHER_WORK}),
                    (NOTHING, {}),
                    (FAST, {"base": found(evidence=NOTHING)}),
                ]
            )
        ),
    ],
)
def test_the_world_in_which_the_baseline_s_code_runs(
    now: Evidence, how: Mapping[str, Any], outcome: Outcome | None, said: str
) -> None:
    seen = world(now, **how)
    assert [each.outcome for each in seen] == ([] if outcome is None else [outcome])
    assert all(said in sentence(each.reason) for each in seen)
    assert outcome is not PASS or seen[0].reason is None


NOT_COMPARED = MetricComparison(metric="rps", outcome=UNDECIDED, tolerance=0.05)


@pytest.mark.parametrize(
    "code, now, busy, outcome, said",
    [
        (same(), around(1500), QUIET, PASS, ""),
        (same(), around(1000), QUIET, UNDECIDED, "has 0.50 times the stored"),
        (same(), around(400), QUIET, REGRESSED, "has 0.20 times the stored"),
        (same(), side(100, 900, 150), QUIET, UNDECIDED, "has 0.12 times the stored"),
        # An environment in which no session is fails what could not be compared too.
        (NOT_COMPARED, around(60), QUIET, REGRESSED, "has 0.03 times the stored"),
        (NOT_COMPARED, around(1000), QUIET, UNDECIDED, ""),
        (same(tolerance=0.03), around(1000), Busy(server=0.7), PASS, ""),
        (same(tolerance=0.03), around(400), Busy(server=0.7), UNDECIDED, "nothing else running"),
    ],
)
def test_code_is_no_pass_in_an_environment_in_which_it_is_far_slower(
    code: MetricComparison, now: Evidence, busy: Busy, outcome: Outcome, said: str
) -> None:
    (seen,) = unless_environment([code], world(now, packages=NEWER, busy=busy), busy)
    assert seen.outcome is outcome
    assert said in sentence(seen.reason)
    assert ("uvicorn 0.54.0 → 0.55.0. To measure the old code" in sentence(seen.reason)) is ("times the" in said)


@pytest.mark.parametrize("metric,low,high", [("rps", -0.78, -0.57), ("rps", -1.0, -0.9), ("p99", 2.0, 9.0)])
def test_an_interval_that_is_far_beyond_the_tolerance_is_a_regression(metric: str, low: float, high: float) -> None:
    seen = MetricComparison(metric=metric, outcome=UNDECIDED, tolerance=0.03, low=low, high=high)
    assert unless_far_worse(seen).outcome is REGRESSED
    reached = replace(seen, high=-0.2) if metric == "rps" else replace(seen, low=0.25)
    assert unless_far_worse(reached) == reached


@pytest.mark.parametrize(
    "total, server, by_others, outcome",
    [
        ((-0.10, 0.01), 0.2, 0.0, UNDECIDED),
        ((-0.10, 0.01), 0.01, 0.0, REGRESSED),
        ((-0.30, -0.10), 0.2, 0.0, REGRESSED),
        (None, 0.2, 0.0, REGRESSED),
        # What others had more of this side's core.
        ((-0.2, -0.07), 0.5, 0.05, UNDECIDED),
        ((-0.2, -0.07), 0.0, 0.05, REGRESSED),
        ((-0.2, -0.07), 0.5, 0.02, REGRESSED),
    ],
)
def test_beside_others_a_worse_pace_has_to_show_in_the_counts_too_and_beyond_what_they_had(
    total: tuple[float, float] | None, server: float, by_others: float, outcome: Outcome
) -> None:
    item = MetricComparison(metric="rps", outcome=REGRESSED, tolerance=0.03, low=-0.13, high=-0.067, total=total)
    (seen,) = unless_unsteady([item], Busy(server=server), by_others=by_others)
    assert seen.outcome is outcome


# --- Bounds and thresholds


KNOWN = Difference(worse=0.10, error=0.02, df=10)
LIMIT = math.log1p(0.05)


def test_bounds_are_those_of_student_s_t() -> None:
    """The quantile of 95 % with ten degrees of freedom is 1.8125."""
    assert KNOWN.margin(0.05) == pytest.approx(1.8125 * 0.02, rel=1e-4)
    assert [KNOWN.low(0.05), KNOWN.high(0.05)] == pytest.approx([0.10 - 0.03625, 0.10 + 0.03625], rel=1e-3)
    assert [KNOWN.is_above(at, 0.05) for at in (0.06, 0.07)] == [True, False]
    assert [KNOWN.is_below(at, 0.05) for at in (0.14, 0.13)] == [True, False]


@pytest.mark.parametrize("alpha, bound_error, shown", [(0.01, 0.05, True), (0.0001, 0.05, False), (0.01, 0.01, False)])
def test_a_regression_is_beyond_0_and_beyond_the_tolerance(alpha: float, bound_error: float, shown: bool) -> None:
    threshold = Threshold(limit=LIMIT, alpha=alpha, bound_error=bound_error)
    better = Difference(worse=-KNOWN.worse, error=KNOWN.error, df=KNOWN.df)
    assert KNOWN.is_worse(threshold) is better.is_better(threshold) is shown
    assert (KNOWN.worse > KNOWN.least_shown(threshold)) is shown
    assert not KNOWN.is_better(threshold)
    part = threshold.part(0.2)
    assert [part.limit, part.alpha, part.bound_error] == pytest.approx([LIMIT, 0.2 * alpha, 0.2 * bound_error])


@pytest.mark.parametrize("ratio, share", [(math.log(1.05), 0.05), (-800.0, -1.0), (0.0, 0.0)])
def test_a_log_ratio_as_a_share(ratio: float, share: float) -> None:
    assert as_share(ratio) == pytest.approx(share)
    assert math.isfinite(as_share(1e6))
