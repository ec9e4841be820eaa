from __future__ import annotations

import random
import sys
import tracemalloc
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Histogram
from pytest_fileperf.measure.recorder import Recorder, merged_leads, merged_rounds, paced
from pytest_fileperf.measure.recording import Boot, GeneratorProcess, Phase, Recording, Round
from pytest_fileperf.measure.tally import Durations

SECOND = 1_000_000_000


class ServerCpu:
    """CPU time of one server process, set by the test."""

    def __init__(self) -> None:
        self.spent_ns = 0

    def __call__(self) -> int:
        return self.spent_ns


def recorder(*, round_ns: int | None = SECOND, rounds: int = 2, cpu: ServerCpu | None = None) -> Recorder:
    ends = () if round_ns is None else range(1, rounds + 1)
    stretches = [(end * (round_ns or 0), Phase.ROUND) for end in ends]
    made = Recorder(boot=3, stretches=stretches, server_cpu=cpu or ServerCpu())
    made.begin(10 * SECOND)
    return made


def in_turn(connections: int = 0) -> Recorder:
    """Two turns of a second from 10.5 s and from 13 s, the first tenth of each handover."""
    tenths = ((6, Phase.HANDOVER), (15, Phase.ROUND), (31, Phase.HANDOVER), (40, Phase.ROUND))
    stretches = [(tenth * SECOND // 10, phase) for tenth, phase in tenths]
    made = Recorder(boot=3, stretches=stretches, server_cpu=ServerCpu(), connections=connections)
    made.begin(10 * SECOND)
    return made


def good(into: Recorder, ended_s: float, latency_ns: int = 1000) -> None:
    ended_ns = round(ended_s * SECOND)
    into.tallies[0].success(ended_ns - latency_ns, ended_ns - latency_ns // 2, ended_ns, 200, 7, 11)


def test_a_request_belongs_to_the_round_it_ends_in() -> None:
    taken = recorder()
    for ended_s in (9.9, 10.0, 10.999, 11.0, 11.5, 12.0, 12.3):
        good(taken, ended_s, latency_ns=SECOND)

    rounds = taken.finish(13 * SECOND)

    assert [(r.phase, r.index, r.requests) for r in rounds] == [
        (Phase.ROUND, 0, 2),
        (Phase.ROUND, 1, 2),
        (Phase.DRAIN, 2, 2),
    ]
    assert [(r.started_ns // SECOND, r.ended_ns // SECOND) for r in rounds] == [(10, 11), (11, 12), (12, 13)]
    assert {r.boot for r in rounds} == {3}


def test_the_warm_up_leaves_no_trace() -> None:
    taken = recorder()
    good(taken, 9.5)
    taken.tallies[0].failure("size", "too short", round(9.6 * SECOND), 200)

    assert taken.phase == "warm-up"
    rounds = taken.finish(12 * SECOND)

    assert [(r.requests, r.failed, r.statuses, r.latency.count) for r in rounds] == [(0, 0, (), 0)] * 3


def test_a_silent_stretch_gives_empty_rounds_not_fewer() -> None:
    taken = recorder(rounds=4)
    good(taken, 13.5)

    rounds = taken.finish(14 * SECOND)

    assert [r.requests for r in rounds if r.phase is Phase.ROUND] == [0, 0, 0, 1]


def test_a_fixed_count_is_one_round_up_to_the_last_answer() -> None:
    taken = recorder(round_ns=None, rounds=1)
    good(taken, 10.2)
    good(taken, 15.5)

    (only,) = taken.finish(round(15.5 * SECOND))

    assert (only.phase, only.requests, only.duration_ns) == (Phase.ROUND, 2, round(5.5 * SECOND))


def test_counts_bytes_statuses_and_durations() -> None:
    taken = recorder()
    good(taken, 10.1, latency_ns=4000)
    good(taken, 10.2, latency_ns=2000)

    first = taken.finish(12 * SECOND)[0]

    assert (first.bytes_sent, first.bytes_received, first.statuses) == (14, 22, ((200, 2),))
    assert (first.latency.min_ns, first.latency.max_ns, first.latency.sum_ns) == (2000, 4000, 6000)
    assert (first.ttfb.min_ns, first.ttfb.max_ns) == (1000, 2000)


def test_failures_stay_out_of_the_histograms_and_keep_their_first_example() -> None:
    taken = recorder()
    good(taken, 10.1)
    for number in range(3):
        taken.tallies[0].failure("status 500", f"body {number}", round(10.2 * SECOND), 500)
    taken.tallies[0].failure("timeout", "too late", round(10.3 * SECOND))

    first = taken.finish(12 * SECOND)[0]

    assert [(f.kind, f.count, f.example) for f in first.failures] == [
        ("status 500", 3, "body 0"),
        ("timeout", 1, "too late"),
    ]
    assert first.statuses == ((200, 1), (500, 3))
    assert (first.requests, first.latency.count, first.failed) == (1, 1, 4)


def test_more_samples_than_a_block_are_all_counted() -> None:
    taken = recorder()
    for number in range(20_000):
        taken.tallies[0].success(0, 500, 10 * SECOND + number, 200, 1, 1)

    first = taken.finish(12 * SECOND)[0]

    assert (first.requests, first.latency.count, first.bytes_sent) == (20_000, 20_000, 20_000)
    assert first.latency.max_ns == 10 * SECOND + 19_999


def test_many_failures_do_not_pile_up() -> None:
    taken = recorder()
    examples = [bytes(100_000).decode() for _ in range(20)]
    for number in range(30_000):
        taken.tallies[0].failure("connect", examples[number % 20], 10 * SECOND)
    held = sys.getrefcount(examples[1])

    first = taken.finish(12 * SECOND)[0]

    assert [(f.kind, f.count) for f in first.failures] == [("connect", 30_000)]
    assert held <= 3, "only the first example of a kind is kept"


def test_server_cpu_is_what_was_spent_inside_the_round() -> None:
    cpu = ServerCpu()
    taken = recorder(cpu=cpu)
    cpu.spent_ns = 5000
    good(taken, 10.1)
    cpu.spent_ns = 7000
    good(taken, 11.1)
    cpu.spent_ns = 7500

    rounds = taken.finish(12 * SECOND)

    assert [r.server_cpu_ns for r in rounds] == [2000, 500, 0]


def answered(into: Recorder, due_s: float, sent_s: float, ended_s: float) -> None:
    due_ns, sent_ns, ended_ns = (round(instant * SECOND) for instant in (due_s, sent_s, ended_s))
    into.tallies[0].success(sent_ns, sent_ns, ended_ns, 200, 0, 0, due_ns)


def test_latency_in_an_open_loop_counts_from_when_a_request_was_due() -> None:
    taken = recorder()
    answered(taken, 10.0, 10.25, 10.5)

    (round_, *_) = taken.finish(12 * SECOND)

    assert round_.latency.max_ns == SECOND // 2
    assert round_.service.max_ns == SECOND // 4
    assert round_.send_delay.max_ns == SECOND // 4
    assert round_.ttfb.max_ns == SECOND // 4


def test_a_closed_loop_has_no_service_time_of_its_own() -> None:
    taken = recorder()
    good(taken, 10.5)

    (round_, *_) = taken.finish(12 * SECOND)

    assert (round_.latency.count, round_.service.count, round_.send_delay.count) == (1, 0, 0)
    assert taken.leads.taken() is None


def test_what_is_due_after_the_warm_up_is_counted() -> None:
    taken = recorder()
    for due_s in (9, 10, 11):
        assert taken.due(due_s * SECOND, due_s * SECOND, SECOND)

    assert (taken.due_count, taken.first_due_ns, taken.last_due_ns) == (2, 10 * SECOND, 11 * SECOND)


def test_what_is_due_for_too_long_is_dropped_and_has_failed() -> None:
    taken = recorder()
    assert taken.due(10 * SECOND, 11 * SECOND, SECOND)
    assert not taken.due(10 * SECOND, 11 * SECOND + 1, SECOND)

    rounds = taken.finish(12 * SECOND)

    assert [failure.kind for round_ in rounds for failure in round_.failures] == ["dropped"]
    assert taken.due_count == 2


def test_what_was_due_in_the_warm_up_leaves_no_trace_whenever_it_ends() -> None:
    taken = recorder()
    assert taken.due(9 * SECOND, 9 * SECOND, SECOND)
    assert not taken.due(9 * SECOND, 11 * SECOND, SECOND)
    answered(taken, 9, 9, 11)
    taken.tallies[0].failure("timeout", "too late", 11 * SECOND, due_ns=9 * SECOND)

    rounds = taken.finish(12 * SECOND)

    assert [(round_.requests, round_.failed, round_.statuses) for round_ in rounds] == [(0, 0, ())] * len(rounds)
    assert (taken.due_count, taken.leads.taken()) == (0, None)


def test_few_requests_are_each_a_point_of_the_lead_times() -> None:
    taken = recorder(rounds=10)
    for at in range(20):
        answered(taken, 10 + at / 2, 10 + at / 2, 11 + at)
    answered(taken, 9.9, 9.9, 10.1)  # due in the warm-up

    leads = taken.leads.taken()

    assert leads is not None
    assert leads.due_ns == tuple(at * SECOND // 2 for at in range(20))
    assert leads.counts == (1,) * 20
    assert leads.mean_ns == leads.max_ns == tuple(SECOND + at * SECOND // 2 for at in range(20))


def test_many_requests_share_a_bounded_number_of_points() -> None:
    taken = recorder(rounds=10)
    for at in range(20_000):
        answered(taken, 10 + at / 2000, 10 + at / 2000, 10.5 + at / 2000 + (at % 2) / 10)

    leads = taken.leads.taken()

    assert leads is not None
    assert len(leads.due_ns) == 500
    assert sum(leads.counts) == 20_000
    assert all(abs(mean - 550_000_000) < 1000 for mean in leads.mean_ns)
    assert all(abs(most - 600_000_000) < 1000 for most in leads.max_ns)


def test_turns_are_rounds_and_what_lies_between_them_is_handover() -> None:
    taken = in_turn()
    for ended_s in (9.9, 10.55, 10.6, 11.0, 11.6, 13.05, 13.1, 13.5, 14.1):
        good(taken, ended_s)

    rounds = taken.finish(15 * SECOND)

    assert [(r.phase, r.requests, r.started_ns * 10 // SECOND, r.ended_ns * 10 // SECOND) for r in rounds] == [
        (Phase.HANDOVER, 1, 100, 106),
        (Phase.ROUND, 2, 106, 115),
        (Phase.HANDOVER, 2, 115, 131),
        (Phase.ROUND, 2, 131, 140),
        (Phase.DRAIN, 1, 140, 150),
    ]
    assert [r.index for r in rounds] == [0, 1, 2, 3, 4]
    assert sum(r.latency.count for r in rounds) == 8


def test_a_server_that_is_silent_has_its_turns_all_the_same() -> None:
    rounds = in_turn().finish(15 * SECOND)
    assert [(r.phase, r.requests) for r in rounds if r.phase is Phase.ROUND] == [(Phase.ROUND, 0)] * 2


def test_a_stall_has_no_hold_on_the_typical_rate_of_a_turn() -> None:
    taken = in_turn(connections=4)
    steady = [10.61 + 0.01 * place for place in range(40)]
    for ended_s in (*steady, *(13.11 + 0.01 * place + (0.4 if place > 35 else 0) for place in range(40))):
        good(taken, ended_s)

    turns = [r for r in taken.finish(15 * SECOND) if r.phase is Phase.ROUND]

    assert [r.requests for r in turns] == [40, 40]
    assert [r.typical_rps for r in turns] == pytest.approx([100, 100])


def test_requests_that_wait_for_something_else_do_not_change_the_typical_rate() -> None:
    """One in ten of them takes long, and as many answers come in the same time as before."""
    taken = in_turn(connections=4)
    for place in range(40):
        good(taken, 10.61 + 0.01 * place, latency_ns=SECOND if place % 10 == 0 else SECOND // 25)

    assert [r.typical_rps for r in taken.finish(15 * SECOND) if r.phase is Phase.ROUND] == [pytest.approx(100), None]


@pytest.mark.parametrize("answers, known", [(31, False), (32, True)])
def test_a_few_answers_have_no_typical_rate(answers: int, known: bool) -> None:
    taken = in_turn(connections=16)
    for place in range(answers):
        good(taken, 10.61 + 0.01 * place)

    turn = next(r for r in taken.finish(15 * SECOND) if r.phase is Phase.ROUND)
    assert (turn.typical_rps is not None) is known


@pytest.mark.parametrize("together, bunches", [(1, 9), (1, 10), (3, 9), (3, 10), (3, 12), (3, 14)])
def test_how_many_bunches_end_in_a_turn_does_not_change_its_rate(together: int, bunches: int) -> None:
    taken = in_turn(connections=together)
    for place in range(bunches):
        for _ in range(together):
            good(taken, 10.61 + 0.06 * place)

    turn = next(r for r in taken.finish(15 * SECOND) if r.phase is Phase.ROUND)
    assert turn.requests == bunches * together
    assert turn.typical_rps == pytest.approx(together / 0.06)


@pytest.mark.parametrize("answers, known", [(5, False), (6, True)])
def test_a_single_bunch_has_no_typical_rate(answers: int, known: bool) -> None:
    taken = in_turn(connections=3)
    for place in range(answers):
        good(taken, 10.61 + 0.01 * place)

    turn = next(r for r in taken.finish(15 * SECOND) if r.phase is Phase.ROUND)
    assert (turn.typical_rps is not None) is known


def test_outside_of_turns_there_is_no_typical_rate() -> None:
    for taken in (in_turn(), in_turn(connections=4)):
        for place in range(40):
            good(taken, 10.1 + 0.01 * place)
        assert all(r.typical_rps is None for r in taken.finish(15 * SECOND))


def test_the_newest_round_is_no_handover() -> None:
    taken = in_turn()
    for ended_s in (10.7, 10.8, 13.2):
        good(taken, ended_s)

    assert taken.last_round is not None
    assert (taken.last_round.phase, taken.last_round.requests) == (Phase.ROUND, 2)


def test_there_is_no_newest_round_before_the_first_has_ended() -> None:
    taken = in_turn()
    good(taken, 10.7)
    assert taken.last_round is None


def test_events_belong_to_the_round_they_come_in_and_are_known_from_the_first_one_on() -> None:
    taken = recorder()
    taken.tallies[0].first_event(round(10.1 * SECOND), round(9.8 * SECOND))
    taken.tallies[0].next_event(round(10.6 * SECOND), SECOND // 2)
    taken.tallies[0].next_event(round(12.1 * SECOND), SECOND)

    rounds = taken.finish(13 * SECOND)

    assert [round_.events for round_ in rounds] == [2, 0, 1]
    assert [round_.first_event.sum_ns for round_ in rounds] == [round(0.3 * SECOND), 0, 0]
    assert [round_.event_gap.sum_ns for round_ in rounds] == [SECOND // 2, 0, SECOND]


def test_a_load_without_streams_has_no_events() -> None:
    taken = recorder()
    good(taken, 10.5)
    assert [round_.events for round_ in taken.finish(12 * SECOND)] == [None] * 3


def test_the_first_event_counts_from_when_its_stream_was_due() -> None:
    taken = recorder()
    taken.tallies[0].first_event(11 * SECOND, round(10.9 * SECOND), due_ns=round(10.5 * SECOND))
    taken.tallies[0].first_event(
        round(11.1 * SECOND), round(9.9 * SECOND), due_ns=round(9.5 * SECOND)
    )  # of the warm-up

    times = [round_.first_event for round_ in taken.finish(12 * SECOND)]

    assert [(found.count, found.sum_ns) for found in times] == [(0, 0), (1, SECOND // 2), (0, 0)]


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


def test_nothing_is_left_after_a_histogram_was_taken() -> None:
    made = Durations()
    for more in (made.block.extend, made.block.extend):
        more([5, 7])
        assert made.take().count == 2
        assert made.take() is EMPTY


def test_no_sample_is_beyond_the_highest() -> None:
    assert gathered([HIGHEST_NS + 5]).max_ns == gathered([HIGHEST_NS + 5], []).max_ns == HIGHEST_NS


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
    assert taken.held.size_bytes < Histogram.of(samples).held.size_bytes / 4


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

    merged = merged_rounds({number: of_one for number, (_, of_one) in enumerate(several, start=1)})
    merged = paced(merged, [each.ends for each, _ in several], 4)

    assert plain(merged) == plain(rounds)
    found = merged_leads([part for each, _ in several if (part := each.leads.taken()) is not None], span_ns=3 * SECOND)
    leads = one.leads.taken()
    assert (found is None) is (leads is None)
    if found is not None and leads is not None:
        assert replace(found, mean_ns=()) == replace(leads, mean_ns=())
        # Each generator has rounded its own.
        assert all(abs(mine - own) <= 1 for mine, own in zip(found.mean_ns, leads.mean_ns, strict=True))


@pytest.mark.parametrize("is_open", [False, True])
def test_ten_thousand_samples_through_one_and_through_seven_generators_are_the_same(is_open: bool) -> None:
    chance = random.Random(7)
    own = [
        (
            chance.randrange(10_000) * TICK_NS,
            chance.randrange(9 * SECOND, END_NS),
            chance.randrange(999),
            place % 50 == 0,
            place % 3 == 0,
        )
        for place in range(10_000)
    ]
    _, rounds = measured(own, keeps_ends=False, is_open=is_open)
    several = [measured(own[place::7], keeps_ends=True, is_open=is_open) for place in range(7)]

    merged = merged_rounds({number: of_one for number, (_, of_one) in enumerate(several, start=1)})
    merged = paced(merged, [each.ends for each, _ in several], 4)

    assert plain(merged) == plain(rounds)
    assert all(round_.typical_rps for round_ in merged if round_.phase is Phase.ROUND)


def test_who_did_what_in_a_round_is_kept() -> None:
    rounds = [measured([(5, 11 * SECOND, 1, False, False)] * times, keeps_ends=True, is_open=True) for times in (1, 3)]
    shares = {
        number: tuple(replace(round_, client_cpu_ns=10 * number, server_cpu_ns=7) for round_ in of_one)
        for number, (_, of_one) in zip((2, 4), rounds, strict=True)
    }
    second = merged_rounds(shares)[1]
    assert [(own.number, own.requests, own.cpu_ns) for own in second.generators] == [(2, 1, 20), (4, 3, 40)]
    assert (second.requests, second.client_cpu_ns, second.server_cpu_ns) == (4, 60, 7)


def test_the_last_answer_of_any_generator_ends_a_drain_and_says_what_the_server_used() -> None:
    early, late = (
        replace(measured([], keeps_ends=True, is_open=True)[1][-1], ended_ns=ended_s * SECOND, server_cpu_ns=cpu)
        for ended_s, cpu in ((20, 5), (21, 6))
    )
    (drain,) = merged_rounds({1: [late], 2: [early]})
    assert (drain.phase, drain.ended_ns, drain.server_cpu_ns) == (Phase.DRAIN, 21 * SECOND, 6)


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
    for boot in (ended.and_then(fine), fine.and_then(ended)):
        recording = Recording(rounds=(), boots=(boot,), connections=5, engine="replay")
        assert recording.lost == ("generator 2 of 2's process ended with exit code 7",)
