"""What several generators have measured is merged as if one had measured all of it."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf.measure.recorder import Recorder, merged_leads, merged_rounds, paced
from pytest_fileperf.measure.recording import Boot, GeneratorProcess, Phase, Recording, Round

SECOND = 1_000_000_000
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


def recorder(*, keeps_ends: bool, is_open: bool) -> Recorder:
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
    made = recorder(keeps_ends=keeps_ends, is_open=is_open)
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
