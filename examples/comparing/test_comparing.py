"""Limits, gates and variants, on the quickstart's app."""

from __future__ import annotations

import pytest

from pytest_fileperf import Uvicorn


@pytest.mark.fileperf(min_rps=20, max_p99="2s")
def test_limits_and_gate(fileperf):
    fileperf.get("/download", expect_bytes="256KiB")


@pytest.mark.fileperf(gate=("rps", "p95"), tolerance={"rps": "5%", "p95": "20%"})
def test_other_metrics(fileperf):
    fileperf.get("/health")


def test_limits_only(fileperf):
    result = fileperf.get("/health", gate="none")
    assert result.latency.p50 < 1.0  # plain asserts: seconds, bytes and counts


@pytest.mark.fileperf(group="event loops", gate="none")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_variants(fileperf, loop):
    fileperf.get("/health", server=Uvicorn(loop=loop))
