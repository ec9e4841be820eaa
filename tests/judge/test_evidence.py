"""What is taken from a recording for comparisons, and its stored form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf.judge.evidence import BootEvidence, Evidence, evidence_of
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round

SECOND = 1_000_000_000
MS = 1_000_000


def round_of(requests: int, *, boot: int, index: int = 0, phase: Phase = Phase.ROUND) -> Round:
    latency = Histogram.of([5 * MS] * requests)
    return Round(
        boot=boot,
        index=index,
        phase=phase,
        started_ns=index * SECOND,
        ended_ns=(index + 1) * SECOND,
        requests=requests,
        latency=latency,
        ttfb=latency,
        bytes_sent=0,
        bytes_received=1000 * requests,
        server_cpu_ns=None,
    )


def recording_of(*rounds: Round, boots: tuple[Boot, ...]) -> Recording:
    return Recording(rounds=rounds, boots=boots, connections=4, engine="replay")


TWO_BOOTS = recording_of(
    round_of(300, boot=0),
    round_of(200, boot=0, index=1),
    round_of(4, boot=0, index=2, phase=Phase.DRAIN),
    round_of(400, boot=1),
    boots=(
        Boot(index=0, peak_rss_bytes=1000, stabilised=("hash seed", "addresses")),
        Boot(index=1, peak_rss_bytes=2000, stabilised=("addresses",)),
    ),
)


def test_each_boot_has_its_own_rounds_latencies_and_runs() -> None:
    first, second = evidence_of(TWO_BOOTS).boots
    assert [values["rps"] for values in first.turns] == [300, 200]
    assert [values["rps"] for values in second.turns] == [400]
    assert (first.requests, first.latency.count, second.requests) == (504, 504, 400)
    assert (first.runs, second.runs) == ({"rss": 1000}, {"rss": 2000})


def test_a_round_tells_a_percentile_only_from_its_least_number_of_requests_on() -> None:
    first = evidence_of(TWO_BOOTS).boots[0]
    assert ["p99" in values for values in first.turns] == [True, False]
    assert ["p95" in values for values in first.turns] == [True, True]


def test_what_was_not_measured_is_left_out() -> None:
    assert all("cpu_per_request" not in values for boot in evidence_of(TWO_BOOTS).boots for values in boot.turns)


def test_only_what_all_boots_held_equal_is_stabilised() -> None:
    assert evidence_of(TWO_BOOTS).stabilised == ("addresses",)
    assert evidence_of(TWO_BOOTS).requests == 904


def test_a_boot_whose_requests_all_ended_in_the_drain_has_the_rate_of_the_run() -> None:
    late = recording_of(round_of(0, boot=0), round_of(3, boot=0, index=1, phase=Phase.DRAIN), boots=(Boot(index=0),))
    (boot,) = evidence_of(late).boots
    assert boot.runs["rps"] == pytest.approx(1.5)


def test_nothing_measured_is_no_evidence() -> None:
    assert evidence_of(recording_of(boots=())) == Evidence(boots=())


VALUES = st.dictionaries(st.sampled_from(["rps", "p50", "p99", "error_rate"]), st.floats(0, 1e12), max_size=4)
BOOTS = st.builds(
    BootEvidence,
    turns=st.lists(VALUES, max_size=4).map(tuple),
    latency=st.lists(st.integers(0, 10**10), max_size=20).map(Histogram.of),
    runs=VALUES,
)


@settings(deadline=None)
@given(st.builds(Evidence, boots=st.lists(BOOTS, max_size=3).map(tuple), stabilised=st.just(("addresses",))))
def test_the_stored_form_comes_back_to_five_digits(evidence: Evidence) -> None:
    stored = json.loads(json.dumps(evidence.to_json(), allow_nan=False))
    back = Evidence.from_json(Placed(stored))
    assert back.stabilised == evidence.stabilised
    for before, after in zip(evidence.boots, back.boots, strict=True):
        assert after.requests == before.requests
        assert after.latency.steps.tolist() == before.latency.steps.tolist()
        assert after.runs == pytest.approx(dict(before.runs), rel=1e-4)
        told = [values for values in before.turns if values]
        assert [values for values in after.turns if values] == [
            pytest.approx(dict(values), rel=1e-4) for values in told
        ]
    assert back.to_json() == stored


def test_a_stored_form_that_is_not_an_object_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^evidence\.boots\[0\] is not an object$"):
        Evidence.from_json(Placed({"boots": [3], "stabilised": []}, "evidence"))
