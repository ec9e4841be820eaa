"""What a session keeps of each measurement is small, and the same as before."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from report.samples import recording, result, watched
from report.stored import one

from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.codec import Encoder
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Packed, histograms_in, kept_small, pack_histograms

RESULTS: Mapping[str, Callable[[], Result]] = {
    "alone": lambda: result(recorded=recording(boots=1, rounds=2)),
    "open loop": lambda: one("watched", "test_overloaded"),
    "in turn": lambda: one("in_turn", "test_slower"),
}


def full(chance: np.random.Generator) -> Result:
    """Returns a result of 12 rounds of 3,000 requests each, as of four seconds."""
    recorded = recording(boots=1, rounds=12)
    each = [Histogram.of(chance.lognormal(15.4, 0.5, 3_000).astype(np.int64)) for _ in recorded.rounds]
    rounds = (
        replace(round_, latency=latency, ttfb=Histogram.merged([latency]))
        for round_, latency in zip(recorded.rounds, each, strict=True)
    )
    return result(recorded=replace(recorded, rounds=tuple(rounds)))


@pytest.mark.parametrize("name", RESULTS)
def test_no_histogram_is_left_out_and_none_changes(name: str) -> None:
    made = RESULTS[name]()
    encoder = Encoder()
    encoder.encode(made, Result)
    assert {histogram.encode() for histogram in histograms_in(made)} >= {text for text, *_ in encoder.histograms}
    before = pickle.loads(pickle.dumps(made))
    pack_histograms([made])
    assert made == before


def test_samples_are_kept_small_and_equal() -> None:
    recorded = watched(recording(), looks=40)
    small = kept_small(recorded)
    assert small == recorded
    assert recorded == small
    assert isinstance(small.boots[0].samples, Packed)
    assert small.boots[0].samples[1:] == recorded.boots[0].samples[1:]
    assert len(pickle.dumps(small)) < 0.5 * len(pickle.dumps(recorded))


def test_a_measurement_is_kept_in_some_ten_kilobytes() -> None:
    chance = np.random.default_rng(1)
    pack_histograms([full(chance)])  # what is made once is there
    tracemalloc.start()
    try:
        kept = full(chance)
        pack_histograms([kept])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.measurement.requests
    assert size < 60_000
