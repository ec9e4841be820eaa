from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.limiting import limited_by
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.recording import Phase, Recording, Round

SECOND = 1_000_000_000
ROUND = Round(
    boot=0,
    index=0,
    phase=Phase.ROUND,
    started_ns=0,
    ended_ns=SECOND,
    requests=100,
    latency=Histogram.of([1000] * 100),
    ttfb=Histogram.of([1000] * 100),
    bytes_sent=0,
    bytes_received=0,
)


@pytest.mark.parametrize(
    "server_cpu_s, client_cpu_s, workers, said",
    [
        (0.97, 0.30, 1, "server CPU, at 97 % of 1 core"),
        (1.90, 0.30, 2, "server CPU, at 95 % of 2 cores"),
        (0.97, 0.30, 2, ""),  # one of two workers may be busy, or both half
        (0.50, 0.30, 1, ""),
        (0.97, 0.95, 1, "the load generator, at 95 % of its core"),
        (0.97, 0.30, None, ""),
        (None, 0.30, 1, ""),
    ],
)
def test_names_only_what_is_beyond_doubt(
    server_cpu_s: float | None, client_cpu_s: float, workers: int | None, said: str
) -> None:
    server_cpu_ns = None if server_cpu_s is None else round(server_cpu_s * SECOND)
    measured = replace(ROUND, server_cpu_ns=server_cpu_ns, client_cpu_ns=round(client_cpu_s * SECOND))
    recording = Recording(rounds=(measured,), boots=(), connections=1, engine="replay")

    assert limited_by(measurement_of(recording), workers=workers) == said
