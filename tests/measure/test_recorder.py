"""Samples become rounds, and histograms: what belongs to which, what leaves no trace, several generators as one."""

from __future__ import annotations

import base64
import math
import pickle
import random
import sys
import tracemalloc
import zlib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measure.recordings import SECOND

from pytest_fileperf.measure.histogram import HIGHEST_NS, Histogram, ends_of, middle_of, step_of
from pytest_fileperf.measure.recorder import Recorder, merged_leads, merged_rounds
from pytest_fileperf.measure.recording import Boot, GeneratorProcess, Phase, Recording, Round
from pytest_fileperf.measure.tally import Durations

HANDOVER, ROUND, DRAIN = Phase.HANDOVER, Phase.ROUND, Phase.DRAIN
TENTH = SECOND // 10


def recorder(*, rounds: int = 2, of_ns: int = SECOND) -> Recorder:
    """Rounds of a second from 10 s on."""
    made = Recorder(boot=3, stretches=[(end * of_ns, ROUND) for end in range(1, rounds + 1)], server_cpu=lambda: None)
    made.begin(10 * SECOND)
    return made


def in_turn(connections: int = 0) -> Recorder:
    """Two turns of a second from 10.5 s and from 13 s, the first tenth of each handover."""
    stretches = [(tenth * TENTH, phase) for tenth, phase in ((6, HANDOVER), (15, ROUND), (31, HANDOVER), (40, ROUND))]
    made = Recorder(boot=3, stretches=stretches, server_cpu=lambda: None, connections=connections)
    made.begin(10 * SECOND)
    return made


def good(into: Recorder, ended_s: float, latency_ns: int = 1000) -> None:
    ended_ns = round(ended_s * SECOND)
    into.tallies[0].success(ended_ns - latency_ns, ended_ns - latency_ns // 2, ended_ns, 200, 7, 11)


def told(rounds: tuple[Round, ...]) -> list[tuple[Phase, int, int, int]]:
    """Returns phase, requests, and tenths of seconds of the beginning and the end."""
    return [(each.phase, each.requests, each.started_ns // TENTH, each.ended_ns // TENTH) for each in rounds]


def test_a_request_belongs_to_the_round_it_ends_in() -> None:
    taken = recorder(rounds=3)
    for ended_s in (9.9, 10.0, 10.999, 12.0, 12.5, 13.0, 13.3):
        good(taken, ended_s, latency_ns=SECOND)
    rounds = taken.finish(14 * SECOND)
    assert told(rounds) == [(ROUND, 2, 100, 110), (ROUND, 0, 110, 120), (ROUND, 2, 120, 130), (DRAIN, 2, 130, 140)]
    assert [(each.boot, each.index) for each in rounds] == [(3, 0), (3, 1), (3, 2), (3, 3)]


def test_turns_are_rounds_and_what_lies_between_them_is_handover() -> None:
    taken = in_turn()
    for ended_s in (9.9, 10.55, 10.6, 11.0, 11.6, 13.05, 13.1, 13.5, 14.1):
        good(taken, ended_s)
    rounds = taken.finish(15 * SECOND)
    expected = [(HANDOVER, 1, 100, 106), (ROUND, 2, 106, 115), (HANDOVER, 2, 115, 131), (ROUND, 2, 131, 140)]
    assert told(rounds) == [*expected, (DRAIN, 1, 140, 150)]
    assert [each.index for each in rounds] == [0, 1, 2, 3, 4]
    silent = in_turn().finish(15 * SECOND)
    assert [requests for phase, requests, *_ in told(silent) if phase is ROUND] == [0, 0]


def test_the_newest_round_is_no_handover_and_there_is_none_before_the_first_has_ended() -> None:
    taken, newest = in_turn(), list[Round | None]()
    for ended_s in (10.7, 10.8, 13.2):
        good(taken, ended_s)
        newest.append(taken.last_round)
    assert [(each.phase, each.requests) for each in newest if each is not None] == [(ROUND, 2)]


def test_what_ended_or_was_due_in_the_warm_up_leaves_no_trace_whenever_it_ends() -> None:
    taken = recorder()
    good(taken, 9.5)
    taken.tallies[0].failure("size", "too short", round(9.6 * SECOND), 200)
    assert taken.phase == "warm-up"
    assert taken.due(9 * SECOND, 9 * SECOND, SECOND)
    assert not taken.due(9 * SECOND, 11 * SECOND, SECOND)
    answered(taken, 9, 9, 11)
    taken.tallies[0].failure("timeout", "too late", 11 * SECOND, due_ns=9 * SECOND)
    rounds = taken.finish(12 * SECOND)
    assert [(r.requests, r.failed, r.statuses, r.latency.count) for r in rounds] == [(0, 0, (), 0)] * 3
    assert (taken.due_count, taken.leads.taken()) == (0, None)


def test_a_fixed_count_is_one_round_up_to_the_last_answer() -> None:
    taken = recorder(rounds=0)
    good(taken, 10.2)
    good(taken, 15.5)
    assert told(taken.finish(round(15.5 * SECOND))) == [(ROUND, 2, 100, 155)]


def test_counts_bytes_statuses_and_durations_and_failures_stay_out_of_them() -> None:
    taken = recorder()
    good(taken, 10.1, latency_ns=4000)
    good(taken, 10.2, latency_ns=2000)
    for number in range(3):
        taken.tallies[0].failure("status 500", f"body {number}", round(10.2 * SECOND), 500)
    taken.tallies[0].failure("timeout", "too late", round(10.3 * SECOND))
    first = taken.finish(12 * SECOND)[0]
    assert (first.bytes_sent, first.bytes_received, first.statuses) == (14, 22, ((200, 2), (500, 3)))
    assert (first.latency.min_ns, first.latency.max_ns, first.latency.sum_ns) == (2000, 4000, 6000)
    assert (first.ttfb.min_ns, first.ttfb.max_ns) == (1000, 2000)
    failures = [(failure.kind, failure.count, failure.example) for failure in first.failures]
    assert failures == [("status 500", 3, "body 0"), ("timeout", 1, "too late")]
    assert (first.requests, first.latency.count, first.failed, first.events) == (2, 2, 4, None)
    assert (first.service.count, first.send_delay.count, taken.leads.taken()) == (0, 0, None), "of a closed loop"


def test_more_samples_than_a_block_are_all_counted_and_many_failures_do_not_pile_up() -> None:
    taken = recorder()
    for number in range(20_000):
        taken.tallies[0].success(0, 500, 10 * SECOND + number, 200, 1, 1)
    examples = [bytes(100_000).decode() for _ in range(20)]
    for number in range(30_000):
        taken.tallies[0].failure("connect", examples[number % 20], 10 * SECOND)
    held = sys.getrefcount(examples[1])
    first = taken.finish(12 * SECOND)[0]
    assert (first.requests, first.latency.count, first.bytes_sent) == (20_000, 20_000, 20_000)
    assert first.latency.max_ns == 10 * SECOND + 19_999
    assert [(f.kind, f.count) for f in first.failures] == [("connect", 30_000)]
    assert held <= 3, "only the first example of a kind is kept"


def test_server_cpu_is_what_was_spent_inside_the_round() -> None:
    spent_ns = [0]
    taken = Recorder(boot=0, stretches=[(SECOND, ROUND), (2 * SECOND, ROUND)], server_cpu=lambda: spent_ns[0])
    taken.begin(10 * SECOND)
    for ended_s, spent_ns[0] in ((10.1, 5000), (11.1, 7000)):
        good(taken, ended_s)
    spent_ns[0] = 7500
    assert [each.server_cpu_ns for each in taken.finish(12 * SECOND)] == [2000, 500, 0]


def answered(into: Recorder, due_s: float, sent_s: float, ended_s: float) -> None:
    due_ns, sent_ns, ended_ns = (round(instant * SECOND) for instant in (due_s, sent_s, ended_s))
    into.tallies[0].success(sent_ns, sent_ns, ended_ns, 200, 0, 0, due_ns)


def test_latency_in_an_open_loop_counts_from_when_a_request_was_due() -> None:
    taken = recorder()
    answered(taken, 10.0, 10.25, 10.5)
    (first, *_) = taken.finish(12 * SECOND)
    durations = (first.latency, first.service, first.send_delay, first.ttfb)
    assert [each.max_ns for each in durations] == [SECOND // 2, SECOND // 4, SECOND // 4, SECOND // 4]


def test_what_is_due_after_the_warm_up_is_counted_and_dropped_if_it_is_due_for_too_long() -> None:
    taken = recorder()
    for due_s in (9, 10, 11):
        assert taken.due(due_s * SECOND, due_s * SECOND, SECOND)
    assert (taken.due_count, taken.first_due_ns, taken.last_due_ns) == (2, 10 * SECOND, 11 * SECOND)
    assert taken.due(10 * SECOND, 11 * SECOND, SECOND)
    assert not taken.due(10 * SECOND, 11 * SECOND + 1, SECOND)
    rounds = taken.finish(12 * SECOND)
    assert [failure.kind for round_ in rounds for failure in round_.failures] == ["dropped"]
    assert taken.due_count == 4


def test_few_requests_are_each_a_point_of_the_lead_times_and_many_share_a_bounded_number() -> None:
    few, many = recorder(rounds=10), recorder(rounds=10)
    for at in range(20):
        answered(few, 10 + at / 2, 10 + at / 2, 11 + at)
    answered(few, 9.9, 9.9, 10.1)  # due in the warm-up
    for at in range(20_000):
        answered(many, 10 + at / 2000, 10 + at / 2000, 10.5 + at / 2000 + (at % 2) / 10)
    each, shared = few.leads.taken(), many.leads.taken()
    assert each is not None
    assert shared is not None
    assert (each.due_ns, each.counts) == (tuple(at * SECOND // 2 for at in range(20)), (1,) * 20)
    assert each.mean_ns == each.max_ns == tuple(SECOND + at * SECOND // 2 for at in range(20))
    assert (len(shared.due_ns), sum(shared.counts)) == (500, 20_000)
    assert all(abs(mean - 550_000_000) < 1000 for mean in shared.mean_ns)
    assert all(abs(most - 600_000_000) < 1000 for most in shared.max_ns)


def test_events_belong_to_the_round_they_come_in_and_the_first_counts_from_when_its_stream_was_due() -> None:
    taken = recorder()
    tally = taken.tallies[0]
    tally.first_event(round(10.1 * SECOND), round(9.8 * SECOND))
    tally.next_event(round(10.6 * SECOND), SECOND // 2)
    tally.first_event(round(11.1 * SECOND), round(10.9 * SECOND), due_ns=round(10.5 * SECOND))
    tally.first_event(round(11.2 * SECOND), round(9.9 * SECOND), due_ns=round(9.5 * SECOND))  # of the warm-up
    tally.next_event(round(12.1 * SECOND), SECOND)
    rounds = taken.finish(13 * SECOND)
    assert [round_.events for round_ in rounds] == [2, 2, 1]
    assert [round_.first_event.sum_ns * 10 // SECOND for round_ in rounds] == [3, 6, 0]
    assert [round_.event_gap.sum_ns for round_ in rounds] == [SECOND // 2, 0, SECOND]


# --- The typical rate of a turn


def typical_of(taken: Recorder) -> list[float | None]:
    return [each.typical_rps for each in taken.finish(15 * SECOND) if each.phase is ROUND]


def test_a_stall_and_requests_that_wait_for_something_else_have_no_hold_on_the_typical_rate() -> None:
    """One in ten of the first turn takes long, and as many answers come in the same time as before."""
    taken = in_turn(connections=4)
    for place in range(40):
        good(taken, 10.61 + 0.01 * place, latency_ns=SECOND if place % 10 == 0 else SECOND // 25)
    for place in range(40):
        good(taken, 13.11 + 0.01 * place + (0.4 if place > 35 else 0))
    assert typical_of(taken) == pytest.approx([100, 100])


@pytest.mark.parametrize(
    "connections, answers, known", [(16, 31, False), (16, 32, True), (3, 5, False), (3, 6, True), (0, 40, False)]
)
def test_a_few_answers_have_no_typical_rate(connections: int, answers: int, known: bool) -> None:
    taken = in_turn(connections)
    for place in range(answers):
        good(taken, 10.61 + 0.01 * place)
    assert (typical_of(taken)[0] is not None) is known


@pytest.mark.parametrize("together, bunches", [(1, 9), (1, 10), (3, 9), (3, 14)])
def test_how_many_bunches_end_in_a_turn_does_not_change_its_rate(together: int, bunches: int) -> None:
    taken = in_turn(connections=together)
    for place in range(bunches):
        for _ in range(together):
            good(taken, 10.61 + 0.06 * place)
    assert typical_of(taken)[0] == pytest.approx(together / 0.06)


# --- Samples become the same histogram in whatever way they are gathered


SAMPLES = st.lists(st.integers(0, 1 << 22), max_size=50)  # small enough for exact sums of squares


def gathered(*blocks: list[int]) -> Histogram:
    """Returns what is taken of the blocks; all but the last are folded before."""
    made = Durations()
    for number, block in enumerate(blocks):
        if number:
            made.fold()
        made.block.extend(block)
    return made.take()


@given(SAMPLES, SAMPLES)
def test_a_histogram_is_the_same_of_one_block_and_of_several(one: list[int], two: list[int]) -> None:
    assert gathered(one + two) == gathered(one, two) == gathered(one, two, []) == Histogram.of(one + two)


def test_a_round_of_few_samples_needs_no_table_of_all_counts() -> None:
    """Making it, and looking through it, is most of what the end of a round takes."""
    tracemalloc.start()
    try:
        gathered(list(range(200)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


def test_a_round_of_many_samples_is_kept_small() -> None:
    """All rounds of a load are kept to its end, in the generator's memory."""
    samples = list(range(1_000_000, 9_000_000, 1_000))
    taken = gathered(samples, [])
    assert taken == Histogram.of(samples)
    assert len(pickle.dumps(taken.held)) < len(pickle.dumps(Histogram.of(samples).held)) / 4


# --- What several generators have measured is merged as if one had measured all of it


BEGIN_NS, END_NS = 10 * SECOND, 15 * SECOND
TICK_NS = 1 << 16
"""Durations are whole ticks. So their sums of squares are exact, which are floats: else the order in which they are
added shows in their last bits."""
OF_ONE = ("client_cpu_ns", "server_cpu_ns", "generators")
"""Fields of a round that tell of the processes themselves."""

Sample = tuple[int, int, int, bool, bool]
"""Latency (ns), when it ended (ns), bytes, whether it failed, whether it is of the second part."""
samples = st.lists(
    st.tuples(
        st.integers(0, 8 * SECOND // TICK_NS).map(lambda ticks: ticks * TICK_NS),
        st.integers(9 * SECOND, END_NS),
        st.integers(0, 1 << 20),
        st.booleans(),
        st.booleans(),
    ),
    max_size=80,
)


def recorder_of_parts(*, keeps_ends: bool, is_open: bool) -> Recorder:
    phases = (Phase.ROUND,) * 3 if is_open else (Phase.HANDOVER, Phase.ROUND, Phase.ROUND)
    made = Recorder(
        boot=3,
        stretches=[(place * SECOND, phase) for place, phase in enumerate(phases, start=1)],
        server_cpu=lambda: None,
        connections=4,
        keeps_ends=keeps_ends,
        parts=("first", "second"),
    )
    made.begin(BEGIN_NS)
    return made


def take(into: Recorder, sample: Sample, *, is_open: bool) -> None:
    latency_ns, ended_ns, size, failed, second = sample
    started_ns, tally = ended_ns - latency_ns, into.tallies[second]
    due_ns = started_ns - TICK_NS if is_open else None
    if failed:
        tally.failure(f"status {500 + size % 3}", "why", ended_ns, 500 + size % 3, due_ns=due_ns)
    else:
        tally.success(
            started_ns, started_ns + latency_ns // TICK_NS // 2 * TICK_NS, ended_ns, 200, size, 2 * size, due_ns
        )


def measured(own: list[Sample], *, keeps_ends: bool, is_open: bool) -> tuple[Recorder, tuple[Round, ...]]:
    made = recorder_of_parts(keeps_ends=keeps_ends, is_open=is_open)
    for sample in sorted(own, key=lambda sample: sample[1]):
        take(made, sample, is_open=is_open)
    return made, made.finish(END_NS)


def plain(rounds: tuple[Round, ...]) -> list[dict[str, object]]:
    """Returns all that samples say."""
    names = [field.name for field in fields(Round) if field.name not in OF_ONE]
    return [{name: getattr(round_, name) for name in names} for round_ in rounds]


@pytest.mark.parametrize("is_open", [False, True])
@given(own=samples, generators=st.integers(2, 7), shift=st.integers(0, 6))
@settings(max_examples=60)
def test_samples_through_one_and_through_several_generators_are_the_same(
    is_open: bool, own: list[Sample], generators: int, shift: int
) -> None:
    one, rounds = measured(own, keeps_ends=False, is_open=is_open)
    several = [
        measured(own[(place + shift) % generators :: generators], keeps_ends=True, is_open=is_open)
        for place in range(generators)
    ]

    merged = merged_rounds(
        {number: of_one for number, (_, of_one) in enumerate(several, start=1)},
        ends=[each.ends for each, _ in several],
        connections=4,
    )

    assert plain(merged) == plain(rounds)
    found = merged_leads([part for each, _ in several if (part := each.leads.taken()) is not None], span_ns=3 * SECOND)
    leads = one.leads.taken()
    assert (found is None) is (leads is None)
    if found is not None and leads is not None:
        assert replace(found, mean_ns=()) == replace(leads, mean_ns=())
        # Each generator has rounded its own.
        assert all(abs(mine - own) <= 1 for mine, own in zip(found.mean_ns, leads.mean_ns, strict=True))


def test_turns_of_many_samples_through_seven_generators_have_their_typical_rates() -> None:
    chance = random.Random(7)
    drawn = ((chance.randrange(10_000) * TICK_NS, chance.randrange(9 * SECOND, END_NS)) for _ in range(3000))
    own = [(*sample, 1, place % 50 == 0, place % 3 == 0) for place, sample in enumerate(drawn)]
    _, rounds = measured(own, keeps_ends=False, is_open=False)
    several = [measured(own[place::7], keeps_ends=True, is_open=False) for place in range(7)]
    merged = merged_rounds(
        {number: of_one for number, (_, of_one) in enumerate(several, start=1)},
        ends=[each.ends for each, _ in several],
        connections=4,
    )
    assert plain(merged) == plain(rounds)
    assert all(round_.typical_rps for round_ in merged if round_.phase is ROUND)


def test_who_did_what_in_a_round_is_kept_and_the_last_answer_of_any_ends_a_drain() -> None:
    rounds = [measured([(5, 11 * SECOND, 1, False, False)] * times, keeps_ends=True, is_open=True) for times in (1, 3)]
    shares = {
        number: tuple(replace(each, client_cpu_ns=10 * number, server_cpu_ns=7) for each in of_one)
        for number, (_, of_one) in zip((2, 4), rounds, strict=True)
    }
    second = merged_rounds(shares)[1]
    assert [(own.number, own.requests, own.cpu_ns) for own in second.generators] == [(2, 1, 20), (4, 3, 40)]
    assert (second.requests, second.client_cpu_ns, second.server_cpu_ns) == (4, 60, 7)
    early, late = (
        replace(measured([], keeps_ends=True, is_open=True)[1][-1], ended_ns=ended_s * SECOND, server_cpu_ns=cpu)
        for ended_s, cpu in ((20, 5), (21, 6))
    )
    (drain,) = merged_rounds({1: [late], 2: [early]})
    assert (drain.phase, drain.ended_ns, drain.server_cpu_ns) == (DRAIN, 21 * SECOND, 6)


def test_a_recording_says_which_generators_were_lost_in_any_run() -> None:
    ended, fine = (
        Boot(
            index=0,
            generators=(
                GeneratorProcess(number=1, of=2, connections=3),
                GeneratorProcess(number=2, of=2, connections=2, lost=why),
            ),
        )
        for why in ("'s process ended with exit code 7", "")
    )
    for boot in (ended.and_then(fine, memory=()), fine.and_then(ended, memory=())):
        recording = Recording(rounds=(), boots=(boot,), connections=5, engine="replay")
        assert recording.lost == ("generator 2 of 2's process ended with exit code 7",)


# --- The histogram keeps three digits, merges in any order, and its stored form is the standard one


DURATIONS = st.one_of(st.integers(0, 5000), st.integers(0, HIGHEST_NS), st.integers(1_000_000, 80_000_000))
VALUES = st.lists(DURATIONS, max_size=120)


def facts(histogram: Histogram) -> tuple[object, ...]:
    return (
        histogram.steps.tolist(),
        histogram.counts.tolist(),
        histogram.count,
        histogram.min_ns,
        histogram.max_ns,
        histogram.sum_ns,
        pytest.approx(histogram.sum_squares, rel=1e-12),
    )


def nearest_rank(values: list[int], percent: float) -> int:
    return sorted(values)[max(1, math.ceil(percent / 100 * len(values) - 1e-9 * len(values))) - 1]


@given(VALUES, VALUES, VALUES)
def test_merging_is_associative_and_commutative(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = map(Histogram.of, (one, two, three))
    whole = facts(Histogram.of(one + two + three))
    assert facts(Histogram.merged([a, b, c])) == whole
    assert facts(Histogram.merged([c, a, b])) == whole
    assert facts(Histogram.merged([Histogram.merged([a, b]), c])) == whole
    assert facts(Histogram.merged([a, Histogram.merged([b, c])])) == whole


@given(st.lists(DURATIONS, min_size=1, max_size=120), st.floats(0, 100))
def test_a_percentile_is_the_nearest_rank_to_three_digits(values: list[int], percent: float) -> None:
    exact = nearest_rank(values, percent)
    found = Histogram.of(values).percentile_ns(percent)
    assert exact <= found <= exact * 1.001


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("percent,rank", [(0, 1), (50, None), (99, None), (99.9, None), (100, None)])
def test_percentiles_of_small_counts(count: int, percent: float, rank: int | None) -> None:
    # 1 to 101 are kept exactly, so the value is the rank.
    assert Histogram.of(range(1, count + 1)).percentile_ns(percent) == (rank or math.ceil(percent * count / 100))
    assert Histogram.of(range(1, 1001)).percentile_ns(99.9) == 999, "no rounding errors"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its ctypes, on Python 3.14
def test_steps_percentiles_and_the_stored_form_are_those_of_the_hdrhistogram_package() -> None:
    """That package rounds the rank to the nearest; ours is never below the share asked for, nor above the maximum."""
    hdrh = pytest.importorskip("hdrh.histogram", reason="hdrhistogram is not installed: its text is not compared")

    @settings(deadline=None)
    @given(st.lists(st.one_of(DURATIONS, st.integers(0, HIGHEST_NS)), max_size=60), st.integers(1, 100))
    def compared(values: list[int], percent: int) -> None:
        histogram, theirs = Histogram.of(values), hdrh.HdrHistogram(1, HIGHEST_NS, 3)
        for value in values:
            theirs.record_value(value)
        text = histogram.encode()
        assert text == theirs.encode().decode("ascii")
        assert Histogram.decode(text).steps.tolist() == histogram.steps.tolist()
        assert hdrh.HdrHistogram.decode(text.encode("ascii")).get_total_count() == len(values)
        for step, value in zip(step_of(np.array(values, dtype=np.int64)).tolist(), values, strict=True):
            assert step == theirs.get_counts_array_index(value)
            assert ends_of(np.array([step]))[0] == theirs.get_highest_equivalent_value(value)
            assert abs(middle_of(np.array([step]))[0] - value) <= value / 2000
        if values:
            share = 100 * math.ceil(percent * len(values) / 100) / len(values)
            expected = theirs.get_value_at_percentile(share)
            assert histogram.percentile_ns(percent) == min(expected, max(values))

    compared()


@settings(deadline=None)
@given(VALUES)
def test_the_stored_form_keeps_steps_and_counts_and_the_rest_to_three_digits(values: list[int]) -> None:
    before = Histogram.of(values)
    after = Histogram.decode(before.encode())
    assert (after.steps.tolist(), after.counts.tolist()) == (before.steps.tolist(), before.counts.tolist())
    assert after.count == before.count
    assert after.min_ns == pytest.approx(before.min_ns, rel=1e-3)
    assert after.max_ns == pytest.approx(before.max_ns, rel=1e-3)
    assert after.mean_ns() == pytest.approx(before.mean_ns(), rel=1e-3)
    assert after.encode() == before.encode()


def test_a_whole_run_s_samples_are_stored_small() -> None:
    values = np.random.default_rng(1).lognormal(15.4, 0.5, 100_000).astype(np.int64)
    text = Histogram.of(values).encode()
    assert len(text) < 6000
    assert Histogram.decode(text).percentile_ns(99) == Histogram.of(values).percentile_ns(99)


GOOD = Histogram.of([1_000_000, 2_000_000, 90_000_000]).encode()


def with_byte_changed(index: int) -> str:
    raw = bytearray(base64.b64decode(GOOD))
    raw[index] ^= 0x55
    return base64.b64encode(raw).decode("ascii")


@pytest.mark.parametrize(
    "text",
    ["", "x", "ü", "AAAA", GOOD[:-8], *(with_byte_changed(index) for index in (0, 2, 5, 8, 12, -3))],
)
def test_a_damaged_stored_form_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an HdrHistogram V2 text: ."):
        Histogram.decode(text)


@settings(deadline=None)
@given(VALUES, st.data())
def test_damaged_counts_are_an_error_or_a_histogram(values: list[int], data: st.DataObject) -> None:
    """What was deflated is damaged: numbers that do not end, that are huge, or that go on beyond the range."""
    raw = base64.b64decode(Histogram.of([*values, 7]).encode())
    content = bytearray(zlib.decompress(raw[8:]))
    content[data.draw(st.integers(40, len(content) - 1))] = data.draw(st.integers(0, 255))
    deflated = zlib.compress(content)
    text = base64.b64encode(raw[:4] + len(deflated).to_bytes(4) + deflated).decode("ascii")
    try:
        assert Histogram.decode(text).counts.min(initial=1) > 0
    except ValueError as error:
        assert str(error).startswith("its counts are damaged: ")  # noqa: PT017 - one of two ends


def test_a_stored_form_of_another_range_is_an_error() -> None:
    other = "HISTFAAAACJ4nJNpmSzMwMDAzAABTFCaEUyavWuw/wAR+MzOBABZygUc"
    with pytest.raises(ValueError, match=r"its range is 1 to 3600000 with 2 digits, not 1 to 14400000000000 with 3"):
        Histogram.decode(other)


def test_mean_and_deviation_are_exact_and_nothing_has_no_figures() -> None:
    histogram, empty = Histogram.of([2_000_001, 4_000_003, 9_000_005]), Histogram.of([])
    assert histogram.mean_ns() == 15_000_009 / 3
    assert histogram.stdev_ns() == pytest.approx(float(np.std([2_000_001, 4_000_003, 9_000_005], ddof=1)))
    assert Histogram.of([5]).stdev_ns() == 0.0
    assert histogram.share_within(0, 5_000_000) == pytest.approx(2 / 3)
    assert (empty.count, empty.percentile_ns(99), empty.mean_ns(), empty.stdev_ns()) == (0, 0, 0.0, 0.0)
    assert (empty.share_within(0, 10), empty.under_way_ns()) == (0.0, 0)
    assert Histogram.merged([]).count == Histogram.merged([empty, empty]).count == 0


@pytest.mark.parametrize(
    "values, under_way",
    [
        pytest.param([7_000] * 9, 7_000, id="all-alike"),
        pytest.param([50_000] * 200 + [50_000_000], 50_000_000, id="few-take-most-of-the-time"),
        pytest.param([50_000] * 2_000 + [50_000_000], 50_000, id="one-stall"),
        pytest.param([0, 0, 0], 0, id="no-time-at-all"),
    ],
)
def test_what_is_under_way_at_a_random_moment_is_what_the_time_goes_into(values: list[int], under_way: int) -> None:
    assert Histogram.of(values).under_way_ns() == pytest.approx(under_way, rel=1e-3)


def test_what_is_no_duration_or_percentile_is_refused() -> None:
    with pytest.raises(ValueError, match="a duration cannot be negative"):
        Histogram.of([3, -1])
    for percent in (-0.1, 100.1, float("nan")):
        with pytest.raises(ValueError, match="must lie between 0 and 100"):
            Histogram.of([1]).percentile_ns(percent)
