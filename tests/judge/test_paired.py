from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.pairs import pair, stalling, swapped
from judge.sides import STABILISED, known

from pytest_fileperf.judge.difference import Difference, Differences
from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.paired import (
    ASKED,
    Sequential,
    compare_pairs,
    is_hopeless,
    noise_floor,
    paired_difference,
    paired_evidence,
    share_of_looks,
    smallest_seen,
    time_to_see,
)
from pytest_fileperf.judge.rules import RULES, ExcludedLoss
from pytest_fileperf.judge.unit import unit_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.units import format_share

RPS, P50, P99, RSS = (METRICS[name] for name in ("rps", "p50", "p99", "rss"))
ALPHA = 0.001
TOLERANCES = {"rps": 0.01, "p50": 0.04, "p99": 0.10, "rss": 0.05}
EVEN = (990, 1010, 1000, 1005, 995, 1000)
"""Turns of a steady server."""


def rates(
    *ratios: float, count: int = 8, base: Sequence[float] = EVEN, stabilised: tuple[str, ...] = STABILISED
) -> list[Pair]:
    """Returns pairs, at least `count`, whose now has so many times the requests/s, one ratio after the other."""
    found = [pair(base, [value * ratio for value in base], stabilised=stabilised) for ratio in ratios]
    return found * -(-count // len(found))


def tails(ratio: float, *, count: int = 8, requests: int = 5000) -> list[Pair]:
    """Returns pairs whose now has so many times the latency, at every percentile."""
    return [pair(EVEN, EVEN, base_ms=[5], now_ms=[5 * ratio], requests=requests)] * count


def compared(metric: str, pairs: Sequence[Pair], *, share: float = 0.4) -> MetricComparison:
    return compare_pairs(METRICS[metric], pairs, tolerance=TOLERANCES[metric], alpha=ALPHA, share=share)


# --- outcomes


@pytest.mark.parametrize(
    "ratio, outcome",
    [
        (1.0, Outcome.PASS),
        (0.995, Outcome.PASS),
        (0.95, Outcome.REGRESSED),
        (0.50, Outcome.REGRESSED),
        (1.05, Outcome.IMPROVED),
        (0.984, Outcome.INCONCLUSIVE),
    ],
)
def test_requests_per_second_of_steady_sides(ratio: float, outcome: Outcome) -> None:
    found = compared("rps", rates(ratio))
    assert found.outcome is outcome
    assert found.change == pytest.approx(ratio - 1, abs=1e-9)
    assert found.low is not None
    assert found.high is not None
    assert found.low < ratio - 1 < found.high
    assert [found.base, found.now, found.pairs] == pytest.approx([1000, 1000 * ratio, 8])


@pytest.mark.parametrize(
    "ratio, outcome",
    [(1.0, Outcome.PASS), (1.05, Outcome.PASS), (1.5, Outcome.REGRESSED), (1 / 1.5, Outcome.IMPROVED)],
)
def test_p99_of_steady_sides(ratio: float, outcome: Outcome) -> None:
    found = compared("p99", tails(ratio))
    assert found.outcome is outcome
    assert found.change == pytest.approx(ratio - 1, abs=0.003)  # a histogram has three digits
    assert found.base == pytest.approx(0.005, rel=0.002)


def test_a_metric_of_whole_boots_is_compared_by_them() -> None:
    grown = [pair(EVEN, EVEN, runs=({"rss": 100.0}, {"rss": 150.0}))] * 8
    found = compared("rss", grown)
    assert (found.outcome, found.base, found.now) == (Outcome.REGRESSED, 100, 150)
    assert found.change == pytest.approx(0.5)


def test_memory_that_grows_in_some_boots_is_no_pass() -> None:
    grown, same = ([pair(EVEN, EVEN, runs=({"rss": 100.0}, {"rss": rss}))] for rss in (135.0, 100.0))
    assert compared("rss", same * 7 + grown * 3).outcome is Outcome.INCONCLUSIVE


def test_where_boots_are_not_stabilised_it_takes_more_to_regress() -> None:
    assert compared("rps", rates(0.95, stabilised=())).outcome is Outcome.INCONCLUSIVE
    assert compared("rps", rates(0.95, stabilised=("hash seed",))).outcome is Outcome.INCONCLUSIVE
    assert compared("rps", rates(0.80, stabilised=())).outcome is Outcome.REGRESSED


def test_one_pair_that_is_not_stabilised_makes_none_of_them_so() -> None:
    mixed = [*rates(0.95), *rates(0.95, stabilised=(), count=1)]
    assert compared("rps", mixed).outcome is Outcome.INCONCLUSIVE


def test_one_pair_of_a_bad_moment_does_not_decide() -> None:
    moment = pair(EVEN, [value * factor for value, factor in zip(EVEN, (0.5, 0.9, 1.1, 0.6, 0.4, 0.5), strict=True)])
    assert compared("rps", [*rates(1.0), moment]).outcome is not Outcome.REGRESSED


@pytest.mark.parametrize("share, outcome", [(0.04, Outcome.INCONCLUSIVE), (0.4, Outcome.REGRESSED)])
def test_an_early_look_has_little_of_the_error_and_asks_for_more(share: float, outcome: Outcome) -> None:
    assert compared("rps", rates(0.98), share=share).outcome is outcome


def test_what_is_undecided_has_a_reason() -> None:
    found = compared("rps", rates(0.984))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "may be worse by more than 1 %, but the noise hides it" in sentence(found.reason)


def test_what_is_worse_by_the_interval_that_is_shown_and_no_failure_says_why() -> None:
    found = compared("rps", rates(0.98), share=0.04)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.high is not None
    assert found.high < -0.01
    assert "most likely worse by more than 1 %, but not certain enough to fail the test" in sentence(found.reason)


def test_noise_that_hides_everything_says_how_much_could_have_been_seen() -> None:
    found = compared("rps", rates(1.15, 0.87, 1.0))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.detectable is not None
    assert found.detectable > 0.03
    assert "could have been seen" in sentence(found.reason)
    assert "longer max_duration" in sentence(found.reason)


def test_beyond_half_nothing_can_be_told() -> None:
    for ratios in ((1.6, 0.65, 1.0), (3.0, 0.4, 1.0)):
        found = compared("rps", rates(*ratios, count=6))
        assert (found.outcome, found.detectable) == (Outcome.INCONCLUSIVE, None)
        assert sentence(found.reason) == (
            "nothing can be told, as even a worsening of 50 % could not have been seen:"
            " give it a longer max_duration, or a quieter machine"
        )


# --- stalls


STALLED = [1000.0] * 90 + [100.0] * 10


def test_stalls_that_no_typical_turn_shows_are_found_by_the_total() -> None:
    found = compared("rps", [pair([1000.0] * 100, STALLED)] * 12)
    assert found.outcome is Outcome.REGRESSED
    assert found.change == pytest.approx(-0.09)
    assert "stalls now and then" in sentence(found.reason)


def test_stalls_of_the_base_are_no_improvement() -> None:
    found = compared("rps", [pair(STALLED, [1000.0] * 100)] * 12)
    assert found.outcome is Outcome.PASS
    assert found.change == pytest.approx(0)


def test_stalls_of_both_sides_are_nobody_s() -> None:
    assert compared("rps", [pair(STALLED, STALLED)] * 12).outcome is Outcome.PASS


def stalled_in_turn(stalls: int) -> list[Pair]:
    """Returns pairs of the same typical pace: in every other one base stalls in so many turns of 100, else now does."""
    steady, stalled = [1000.0] * 100, [1000.0] * (100 - stalls) + [100.0] * stalls
    return [pair(steady, stalled), pair(stalled, steady)] * 3


@pytest.mark.parametrize(
    "worse, is_rate, well",
    [(0.0, True, True), (0.012, True, False), (0.012, False, True), (0.031, True, False), (0.031, False, False)],
)
def test_a_rate_has_to_exclude_less_than_a_percentile(worse: float, is_rate: bool, well: bool) -> None:
    """At 3 %: a rate 5.1 %, a percentile 8.2 %; and neither may look worse than the tolerance."""
    main = Difference(worse=worse, error=0.016, df=10)
    error = RULES.rate_pass_error if is_rate else RULES.bound_error
    evidence = Differences(metric=RPS if is_rate else P99, main=main, pass_error=error)
    assert evidence.seems_well(math.log(1.03)) is well


def test_what_slows_both_turns_of_a_cycle_is_no_doubt_about_the_total() -> None:
    base = [1000, 400, 1000, 700, 200, 1000]
    found = unit_of(RPS, pair(base, [0.9 * value for value in base]), total=True)
    shuffled = unit_of(RPS, pair(base, [0.9 * value for value in reversed(base)]), total=True)
    assert found is not None
    assert shuffled is not None
    assert found.value == shuffled.value == pytest.approx(-math.log(0.9))
    assert found.variance == pytest.approx(0.0)
    assert shuffled.variance > 0.01


def test_a_loss_by_stalls_that_is_not_ruled_out_is_no_pass() -> None:
    """The typical turn is known to be the same, and the total not well enough."""
    pairs = stalled_in_turn(20)
    found, total = compared("rps", pairs), known(paired_difference(RPS, pairs, of_guard=True))
    assert total.worse == pytest.approx(0)
    assert total.high(RULES.rate_pass_error) > RULES.total_excluded.at(math.log(1.01))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.change == pytest.approx(0)
    up_to = format_share(math.expm1(total.high(RULES.rate_pass_error)))
    assert sentence(found.reason).startswith(
        f"the typical turn is not worse, but the total over all turns may be, by up to {up_to}: "
    )


def test_only_a_rate_has_to_rule_out_a_loss_in_the_total() -> None:
    """The sum of durations is no total that a server may lose."""
    pairs = stalled_in_turn(20)
    evidence = {name: paired_evidence(METRICS[name], pairs) for name in ("rps", "p99")}
    assert {name: found.may_lose(math.log(1.01)) for name, found in evidence.items() if found is not None} == {
        "rps": True,
        "p99": False,
    }
    assert evidence["rps"] is not None
    assert not replace(evidence["rps"], metric=METRICS["cpu_per_request"]).may_lose(math.log(1.01))


def test_how_much_loss_a_pass_rules_out_is_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = replace(RULES, total_excluded=ExcludedLoss(tolerances=2.0, more=0.5))
    monkeypatch.setattr("pytest_fileperf.judge.difference.RULES", lenient)
    assert compared("rps", stalled_in_turn(20)).outcome is Outcome.PASS


def test_a_total_that_no_time_left_will_settle_is_hopeless() -> None:
    assert is_hopeless(RPS, stalled_in_turn(30), tolerance=0.01, alpha=ALPHA, at=0.9)
    assert not is_hopeless(RPS, stalled_in_turn(5), tolerance=0.01, alpha=ALPHA, at=0.9)


def typical(base: Sequence[float], now: Sequence[float], *, paced: int) -> Pair:
    """A pair whose first turns, so many, have a typical rate: 1,000/s on both sides."""
    made = pair(base, now)
    paces = tuple({"rps": 1000.0} if place < paced else {} for place in range(len(base)))
    return replace(made, base=replace(made.base, typical=paces), now=replace(made.now, typical=paces))


@pytest.mark.parametrize("paced, outcome", [(6, Outcome.PASS), (3, Outcome.PASS), (2, Outcome.IMPROVED)])
def test_turns_are_compared_by_their_typical_rate_where_half_of_them_have_one(paced: int, outcome: Outcome) -> None:
    assert compared("rps", [typical(EVEN, [1.2 * value for value in EVEN], paced=paced)] * 8).outcome is outcome


@pytest.mark.parametrize("paced", [3, 2])
def test_the_levels_that_are_shown_were_counted(paced: int) -> None:
    found = compared("rps", [typical([500] * 6, [500] * 6, paced=paced)] * 8)
    assert [found.base, found.now] == [500, 500]


def test_one_typical_rate_of_two_turns_is_no_pair_s_rate() -> None:
    assert unit_of(RPS, typical([500, 520], [600, 660], paced=1), total=False) == unit_of(
        RPS, pair([500, 520], [600, 660]), total=False
    )


def test_the_typical_rate_of_a_pair_of_one_cycle_is_its_rate() -> None:
    found = known(unit_of(RPS, typical([9], [10], paced=1), total=False))
    assert [found.value, found.cycles] == [0, 1]


def test_the_total_of_a_pair_of_one_cycle_is_not_taken_for_exact() -> None:
    """Three short pairs that agree by chance, and five longer ones whose cycles differ by as much."""
    cycles = [1000.0, 300.0, 3000.0, 800.0]
    later = pair(cycles, cycles[::-1])
    found = compared("rps", [*[pair([1000], [300])] * 3, *[later] * 5])
    assert found.outcome is Outcome.INCONCLUSIVE


def test_no_pass_while_the_total_says_that_it_is_worse() -> None:
    """By 1.6 %: too little for the total's part of the error, too much to be nothing."""
    found = compared("rps", [typical([1000] * 6, [984] * 6, paced=6)] * 20)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "the total over all turns may be, by 1.6" in sentence(found.reason)


# --- nothing to compare


def test_turns_in_which_nothing_ended_count_as_slow_and_do_not_break_it() -> None:
    found = compared("rps", [pair(EVEN, [0, 500, 0, 500, 500, 500])] * 8)
    assert found.outcome is Outcome.REGRESSED
    assert found.low is not None
    assert found.low > -1


@pytest.mark.parametrize(
    "base, now, whose", [([0] * 6, EVEN, "the base"), (EVEN, [0] * 6, "this side"), ([], [], "the base")]
)
def test_a_side_without_any_answer_has_no_ratio(base: Sequence[float], now: Sequence[float], whose: str) -> None:
    found = compared("rps", [pair(base, now)] * 8)
    assert (found.outcome, found.change) == (Outcome.INCONCLUSIVE, None)
    assert sentence(found.reason).startswith(f"requests/s was 0 or not measured on {whose}")


def test_few_pairs_say_nothing() -> None:
    found = compared("rps", rates(0.5, count=1)[:1] * (RULES.least_pairs - 1))
    assert (found.outcome, found.change) == (Outcome.INCONCLUSIVE, None)
    assert sentence(found.reason) == (
        "it takes 3 pairs of boots with answers on both sides, and there were 2: give it a longer max_duration"
    )


def test_a_percentile_of_too_few_requests_says_what_there_was() -> None:
    found = compared("p99", tails(2, requests=100))
    assert (found.outcome, found.change) == (Outcome.INCONCLUSIVE, None)
    assert sentence(found.reason) == (
        "p99 needs 897 requests a side, and there were 800: give it a longer max_duration, or gate a lower percentile"
    )


def test_a_cliff_is_named() -> None:
    """Around 1 % of the requests have to wait for a pause of 20 ms: a little more or less of them is all of p99."""
    fast, slow = [5.0] * 994 + [25.0] * 6, [5.0] * 986 + [25.0] * 14
    some = [pair(EVEN, EVEN, base_ms=one, now_ms=other) for one, other in ((fast, slow), (slow, fast), (fast, fast))]
    found = compare_pairs(P99, some * 3, tolerance=0.05, alpha=ALPHA, share=0.4)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "latency jumps there, from 5.00 ms at p98.5 to 25.0 ms at p99.5" in sentence(found.reason)
    assert "gate a percentile beside it" in sentence(found.reason)


# --- a percentile between stalls


def test_slow_requests_between_stalls_regress_where_chance_decides_how_many_stalls_there_are() -> None:
    found, whole = compared("p99", stalling(slow=0.01)), paired_difference(P99, stalling(slow=0.01))
    assert found.outcome is Outcome.REGRESSED
    assert whole is not None
    assert found.change == pytest.approx(math.expm1(whole.worse))
    reason = re.fullmatch(
        r"shown by the requests that do not wait together with many others: worse by at least ([\d.]+) %",
        sentence(found.reason),
    )
    assert reason is not None
    assert float(reason[1]) >= 10
    assert (found.detectable or math.inf) <= (found.change or 0.0)


def test_where_all_requests_show_it_nothing_is_said_of_stalls() -> None:
    found = compared("p99", stalling(slow=0.05))
    assert (found.outcome, sentence(found.reason)) == (Outcome.REGRESSED, "")


def test_slow_requests_between_stalls_do_not_regress_a_percentile_that_fewer_stalls_make_no_worse() -> None:
    """Nor does it pass: which of the two goes on is not known."""
    found = compared("p99", stalling(stalls=0.0, base_stalls=0.03, slow=0.008))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert sentence(found.reason).startswith(
        "not shown to be worse, but requests that do not wait together with many others may"
    )


def test_fewer_stalls_improve_whatever_is_between_them() -> None:
    made = stalling(base_stalls=0.03, stalls=0.0, slow=0.005) * 16
    calm = known(paired_difference(P99, made, of_guard=True))
    assert calm.is_above(math.log1p(0.1), 0.05)
    assert compared("p99", made).outcome is Outcome.IMPROVED


def test_what_the_requests_between_stalls_may_still_show_is_not_given_up() -> None:
    made = stalling(base_stalls=0.025, stalls=0.025, slow=0.008)
    calm = [replace(each, base=replace(each.base, stretches=())) for each in made]  # so that nothing is known of it
    assert is_hopeless(P99, calm, tolerance=0.03, alpha=ALPHA, at=0.9)
    assert not is_hopeless(P99, made, tolerance=0.03, alpha=ALPHA, at=0.9)


def test_the_smallest_change_that_can_be_seen_is_smaller_between_stalls() -> None:
    made = stalling(base_stalls=0.025, stalls=0.025)
    whole = [replace(each, base=replace(each.base, stretches=())) for each in made]
    found = (paired_evidence(P99, pairs) for pairs in (made, whole))
    with_calm, without = (smallest_seen(each, 0.1, ALPHA) if each else None for each in found)
    assert with_calm is not None
    assert without is not None
    assert with_calm < without / 2


# --- the mean of the units


def steady(worse: float, stabilised: tuple[str, ...] = STABILISED) -> Pair:
    """A pair whose cycles do not differ: its value is known as exactly as two boots are alike."""
    return pair([1000] * 3, [1000 * math.exp(-worse)] * 3, stabilised=stabilised)


def test_units_that_differ_as_boots_do_have_the_error_of_boots() -> None:
    found = known(paired_difference(RPS, [steady(worse) for worse in (0.01, 0.02, 0.03)]))
    assert [found.worse, found.df] == pytest.approx([0.02, 8 + 2])
    assert found.error == pytest.approx(0.01 / math.sqrt(3))


def test_units_that_differ_by_more_have_a_greater_error_by_birge_s_ratio() -> None:
    found = known(paired_difference(RPS, [steady(worse) for worse in (0.0, 0.03, 0.06)]))
    assert found.worse == pytest.approx(0.03)
    squares = (0.03**2 + 0.03**2) / 0.01**2
    ratio = (8 + squares) / (8 + 2)
    assert found.error == pytest.approx(math.sqrt(ratio * 0.01**2 / 3))


def test_units_that_differ_less_are_not_taken_for_better_than_boots_are() -> None:
    found = known(paired_difference(RPS, [steady(0.02)] * 4))
    assert found.error == pytest.approx(0.01 / 2)


@pytest.mark.parametrize("held, sd", [(STABILISED, 0.01), (("addresses",), 0.035), ((), 0.07)])
def test_the_usual_difference_of_boots_depends_on_what_is_held_equal(held: tuple[str, ...], sd: float) -> None:
    found = known(paired_difference(RPS, [steady(0.0, held)] * 4))
    assert found.error == pytest.approx(sd / 2)


def test_units_count_by_how_exactly_they_are_known() -> None:
    """Logs of the cycles' ratios of the noisy one: -0.25 to 0.15, by hand its estimate -0.05 and its variance 0.025.

    The steady ones' variance is 0, and that of the noisy one is that of five cycles, and ten that do not vary.
    """
    exact = [pair([1000] * 5, [1000] * 5)] * 3
    cycles = [0.25, 0.15, 0.05, -0.05, -0.15]
    noisy = pair([1000] * 5, [1000 * math.exp(-worse) for worse in cycles])
    found = paired_difference(RPS, [*exact, noisy])
    variance = math.pi / 3 * 0.025 / 15
    weights = (3 / 0.01**2, 1 / (0.01**2 + variance))
    assert found is not None
    assert found.worse == pytest.approx(0.05 * weights[1] / sum(weights))


def test_units_of_ten_cycles_or_more_are_known_by_their_median_deviation() -> None:
    """Two of ten cycles are a stall, and do not count: by hand the biweight is 0 and the MAD 0.01."""
    cycles = [-0.01] * 4 + [0.01] * 4 + [-0.7, 0.7]
    unit = known(unit_of(RPS, pair([1000] * 10, [1000 * math.exp(-worse) for worse in cycles]), total=False))
    assert [unit.value, unit.variance] == pytest.approx([0.0, 1.1 * (1.4826 * 0.01) ** 2 / 10])


@pytest.mark.parametrize("cycles", [1, 2, 3, 5])
def test_three_pairs_of_few_cycles_are_not_taken_for_exact_where_these_agree_by_chance(cycles: int) -> None:
    """Cycles that differ by 30 %, as where a machine's host takes its cores away: few more than 0.1 % err."""
    rng, times, wrong = np.random.default_rng(1), 2000, 0
    for _ in range(times):
        pairs = [pair([1000] * cycles, list(1000 * np.exp(rng.normal(0, 0.3, cycles))), requests=1) for _ in range(3)]
        found = known(paired_difference(RPS, pairs))
        wrong += found.is_above(0.0, 0.001)
    assert wrong <= 6


def test_a_base_that_is_always_the_same_boot_leaves_its_luck_in_however_many_pairs() -> None:
    many = [replace(steady(0.05, ()), base_boots_anew=False)] * 400
    found = known(paired_difference(RPS, many))
    assert found.error == pytest.approx(0.07 * math.sqrt(1 / 2 + 1 / 400))
    assert compared("rps", many).outcome is Outcome.INCONCLUSIVE


# --- properties


RATE = st.floats(10, 10_000)
CYCLES = st.lists(st.tuples(RATE, RATE), min_size=1, max_size=8)
MANY_PAIRS = st.lists(
    CYCLES.map(lambda cycles: pair([base for base, _ in cycles], [now for _, now in cycles], requests=10)),
    min_size=RULES.least_pairs,
    max_size=8,
)


@settings(max_examples=50)
@given(MANY_PAIRS)
def test_swapping_the_sides_turns_the_answer_round(pairs: list[Pair]) -> None:
    one, other = known(paired_difference(RPS, pairs)), known(paired_difference(RPS, swapped(pairs)))
    assert other.worse == pytest.approx(-one.worse, abs=1e-9)
    assert other.error == pytest.approx(one.error)


@settings(max_examples=50)
@given(MANY_PAIRS, st.sampled_from([share for _, share in RULES.looks]))
def test_no_outcome_and_its_opposite_at_once(pairs: list[Pair], share: float) -> None:
    one, other = compared("rps", pairs, share=share), compared("rps", swapped(pairs), share=share)
    assert (one.outcome is Outcome.IMPROVED) <= (other.outcome is Outcome.REGRESSED)
    assert not (one.outcome is Outcome.PASS and other.outcome is Outcome.IMPROVED and one.change == 0)


@settings(max_examples=50)
@given(MANY_PAIRS, st.floats(0.01, 100))
def test_how_fast_both_sides_are_does_not_matter(pairs: list[Pair], factor: float) -> None:
    def scaled(each: Pair) -> Pair:
        base, now = ([turn["rps"] * factor for turn in side.turns] for side in (each.base, each.now))
        return pair(base, now, requests=10)

    one, other = known(paired_difference(RPS, pairs)), known(paired_difference(RPS, [scaled(each) for each in pairs]))
    assert other.worse == pytest.approx(one.worse, abs=1e-7)
    assert other.error == pytest.approx(one.error)


@settings(max_examples=50)
@given(MANY_PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter_to_a_rate(pairs: list[Pair], chance: object) -> None:
    shuffled = sorted(pairs, key=lambda each: chance.random())  # type: ignore[attr-defined]
    one, other = known(paired_difference(RPS, pairs)), known(paired_difference(RPS, shuffled))
    assert other.worse == pytest.approx(one.worse, abs=1e-9)
    assert other.error == pytest.approx(one.error)


@settings(max_examples=50)
@given(MANY_PAIRS)
def test_the_interval_holds_the_change_and_comparisons_are_finite(pairs: list[Pair]) -> None:
    found = compared("rps", pairs)
    assert found.change is not None
    assert found.low is not None
    assert found.high is not None
    assert -1 < found.low <= found.change <= found.high < math.inf
    if found.detectable is not None:
        assert found.detectable > found.tolerance
        assert found.detectable <= RULES.most_told(found.tolerance) or found.outcome is Outcome.REGRESSED
    assert (found.outcome is Outcome.INCONCLUSIVE) is bool(sentence(found.reason)) or found.outcome is Outcome.REGRESSED


# --- looks


@given(st.lists(st.floats(0, 1), max_size=30))
def test_all_looks_together_have_the_whole_error_whenever_they_are(times: list[float]) -> None:
    looked_at, shares = 0.0, []
    for time in [*sorted(times), 1.0]:
        shares.append(share_of_looks(looked_at, time))
        looked_at = time
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) >= 0


@pytest.mark.parametrize(
    "before, now, share",
    [(0.0, 0.05, 0.0), (0.0, 0.1, 0.10), (0.0, 0.16, 0.15), (0.1, 0.15, 0.05), (0.3, 0.39, 0.0), (0.75, 1.0, 0.35)],
)
def test_a_look_has_what_is_due_since_the_last_one(before: float, now: float, share: float) -> None:
    assert share_of_looks(before, now) == pytest.approx(share)


# --- what more time would bring


@pytest.mark.parametrize(
    "ratios, at, hopeless",
    [
        ((1.0,), 0.6, False),  # will be clear
        ((0.9,), 0.6, False),  # far worse
        ((1.15, 0.87, 1.0), 0.4, False),  # too early to give up
        ((1.15, 0.87, 1.0), 0.6, True),
    ],
)
def test_what_the_rest_of_the_time_is_unlikely_to_decide_is_given_up(
    ratios: tuple[float, ...], at: float, hopeless: bool
) -> None:
    assert is_hopeless(RPS, rates(*ratios), tolerance=0.015, alpha=ALPHA, at=at) is hopeless


def test_what_cannot_be_told_yet_is_not_given_up() -> None:
    assert not is_hopeless(P99, tails(1.0, requests=10), tolerance=0.1, alpha=ALPHA, at=0.9)


@given(st.floats(0.005, 0.5), st.floats(0.02, 0.3))
def test_in_the_time_that_a_change_needs_it_is_the_smallest_seen(sd: float, change: float) -> None:
    """Errors shrink with the square root of the time; the degrees of freedom are left as they are."""
    found = known(paired_evidence(RPS, [steady(-sd), steady(0.0), steady(sd)]))
    tolerance = math.expm1(change / 3)
    times = time_to_see(found, change, tolerance, ALPHA)
    later = replace(found, main=replace(found.main, error=found.main.error / math.sqrt(times)))
    assert smallest_seen(later, tolerance, ALPHA) == pytest.approx(change)


# --- When a comparison is enough


LIMIT_S = 60.0


def gates(*metrics: str, to_the_end: bool = False) -> Sequential:
    return Sequential(dict.fromkeys(metrics, 0.015), alpha=0.001, limit_s=LIMIT_S, to_the_end=to_the_end)


def repeated(ratios: Sequence[float], count: int = 9) -> list[Pair]:
    made = [pair(EVEN, [value * ratio for value in EVEN], requests=10) for ratio in ratios]
    return (made * count)[:count]


SAME, SLOWER, FASTER, UNCLEAR, NOISE = ((1.0,), (0.8,), (1.2,), (0.98,), (1.2, 0.83, 1.0))


def look(
    sequential: Sequential, ratios: Sequence[float], elapsed_s: float, *, count: int = 9, next_s: float = 3.0
) -> tuple[MetricComparison, ...] | None:
    return sequential.look(repeated(ratios, count), elapsed_s=elapsed_s, next_s=next_s)


def outcomes(found: tuple[MetricComparison, ...] | None) -> list[str] | None:
    return None if found is None else [comparison.outcome.value for comparison in found]


@pytest.mark.parametrize(
    "ratios, elapsed_s, said",
    [
        (SAME, 13.0, ["PASS"]),
        (SLOWER, 13.0, ["REGRESSED"]),
        (FASTER, 13.0, ["IMPROVED"]),
        (UNCLEAR, 13.0, None),
        (NOISE, 13.0, None),
    ],
)
def test_it_ends_early_where_all_is_decided(ratios: Sequence[float], elapsed_s: float, said: list[str] | None) -> None:
    assert outcomes(look(gates("rps"), ratios, elapsed_s)) == said


def test_two_pairs_are_never_enough() -> None:
    assert look(gates("rps"), SLOWER, 13.0, count=2) is None
    assert look(gates("rps"), SLOWER, 62.0, count=2) is None
    assert outcomes(look(gates("rps"), SLOWER, 500.0, count=2)) == ["INCONCLUSIVE"], "the time is over by far"


def test_three_pairs_are_enough_for_a_regression_and_four_for_anything_else() -> None:
    assert outcomes(look(gates("rps"), SLOWER, 13.0, count=3)) == ["REGRESSED"]
    assert look(gates("rps"), SAME, 13.0, count=3) is None
    assert outcomes(look(gates("rps"), SAME, 13.0, count=4)) == ["PASS"]
    assert outcomes(look(gates("rps"), SAME, 58.0, count=3)) == ["PASS"], "where there is no time for a fourth"


def test_before_the_first_look_is_due_nothing_is_said() -> None:
    assert look(gates("rps"), SLOWER, 5.0) is None


def test_what_a_look_has_spent_is_not_there_for_the_next() -> None:
    """The first look at a quarter of the time has 15 % of the error; a second one, before the next is due, none."""
    sequential = gates("rps")
    assert look(sequential, UNCLEAR, 15.0) is None
    assert look(sequential, SLOWER, 17.0) is None
    assert outcomes(look(sequential, SLOWER, 18.0)) == ["REGRESSED"]


@pytest.mark.parametrize("ratios, said", [(UNCLEAR, "INCONCLUSIVE"), (SAME, "PASS"), (SLOWER, "REGRESSED")])
def test_it_ends_where_there_is_no_time_for_another_pair(ratios: Sequence[float], said: str) -> None:
    sequential = gates("rps")
    assert look(sequential, UNCLEAR, 50.0, next_s=9.0) is None
    found = look(sequential, ratios, 55.0, next_s=9.0)
    assert outcomes(found) == [said]
    assert found is not None
    assert (said == "INCONCLUSIVE") is bool(sentence(found[0].reason))


def test_the_time_may_be_over_at_the_first_look() -> None:
    assert outcomes(look(gates("rps"), SLOWER, 200.0, count=3)) == ["REGRESSED"]
    assert outcomes(look(gates("rps"), UNCLEAR, 200.0, count=3)) == ["INCONCLUSIVE"]


def test_one_regression_ends_it_and_the_others_have_reasons() -> None:
    """p99 has too few requests to say anything."""
    found = look(gates("rps", "p99"), SLOWER, 13.0)
    assert outcomes(found) == ["REGRESSED", "INCONCLUSIVE"]
    assert found is not None
    assert sentence(found[0].reason) == ""
    assert "needs 897 requests a side" in sentence(found[1].reason)


def test_it_goes_on_for_what_is_undecided() -> None:
    assert look(gates("rps", "p99"), SAME, 13.0) is None


@pytest.mark.parametrize("elapsed_s, said", [(25.0, None), (34.0, ["INCONCLUSIVE"])])
def test_what_is_hopeless_is_given_up_after_half_of_the_time(elapsed_s: float, said: list[str] | None) -> None:
    found = look(gates("rps"), NOISE, elapsed_s)
    assert outcomes(found) == said
    assert found is None or "could have been seen" in sentence(found[0].reason)


def test_to_the_end_uses_all_of_the_time() -> None:
    sequential = gates("rps", to_the_end=True)
    for elapsed_s in (13.0, 20.0, 34.0, 50.0):
        assert look(sequential, SLOWER, elapsed_s) is None
    assert outcomes(look(sequential, SLOWER, 58.0)) == ["REGRESSED"]


def test_no_gates_are_decided_at_once() -> None:
    assert look(gates(), SAME, 13.0) == ()


# --- What a comparison of the code with itself could see


def spread_pairs(spread: float, count: int = 9) -> list[Pair]:
    """Returns pairs of the same code whose boots differ by so much, in turn in both directions."""
    ratios = (1 - spread, 1.0, 1 + spread)
    return [pair(EVEN, [value * ratios[number % 3] for value in EVEN], requests=500) for number in range(count)]


def test_the_smallest_worsening_is_that_of_the_last_look() -> None:
    floor = noise_floor(RPS, spread_pairs(0.02), tolerance=0.015, alpha=ALPHA, seconds=60)
    last = compare_pairs(RPS, spread_pairs(0.02), tolerance=0.015, alpha=ALPHA, share=RULES.looks[-1][1])
    assert (floor.metric, floor.seconds) == ("rps", 60)
    assert floor.smallest == pytest.approx(last.detectable)


def test_noisier_machines_see_less_and_need_longer() -> None:
    quiet, noisy = (noise_floor(RPS, spread_pairs(at), tolerance=0.015, alpha=ALPHA, seconds=60) for at in (0.01, 0.1))
    assert quiet.smallest is not None
    assert noisy.smallest is not None
    assert quiet.smallest < noisy.smallest
    assert all(quiet.seconds_for[change] < noisy.seconds_for[change] for change in ASKED)


@pytest.mark.parametrize("tolerance", [0.015, 0.05, 0.5])
def test_every_change_has_a_time_whatever_the_tolerance(tolerance: float) -> None:
    floor = noise_floor(RPS, spread_pairs(0.02), tolerance=tolerance, alpha=ALPHA, seconds=60)
    assert set(floor.seconds_for) == set(ASKED)
    assert all(0 < seconds < math.inf for seconds in floor.seconds_for.values())
    assert floor.seconds_for[0.02] > floor.seconds_for[0.05]


def test_the_time_for_the_smallest_worsening_is_the_time_there_was() -> None:
    """By the square root law; found by trying changes, as only those of interest are told."""
    floor = noise_floor(RPS, spread_pairs(0.02), tolerance=0.005, alpha=ALPHA, seconds=60)
    assert floor.smallest is not None
    side_of_change = [floor.smallest < change for change in ASKED]
    assert [floor.seconds_for[change] < 60 for change in ASKED] == side_of_change


def test_too_little_to_tell_has_no_figures() -> None:
    floor = noise_floor(P99, spread_pairs(0.02, count=2), tolerance=0.1, alpha=ALPHA, seconds=7)
    assert (floor.metric, floor.seconds, floor.smallest, floor.seconds_for) == ("p99", 7, None, {})


def test_it_goes_on_while_pairs_would_pass_and_their_figures_are_beyond_the_tolerance() -> None:
    stalled = [value * (0.5 if turn in (0, 7) else 1) for turn, value in enumerate(EVEN * 3)]
    pairs = [pair(EVEN * 3, stalled if number < 4 else EVEN * 3, requests=10) for number in range(9)]
    (last,) = gates("rps").look(pairs, elapsed_s=58.0, next_s=3.0) or ()

    assert last.outcome is Outcome.PASS
    assert (last.base, last.now) == pytest.approx((1000, 975), abs=1)
    assert gates("rps").look(pairs, elapsed_s=13.0, next_s=3.0) is None
