"""The capacity of three kinds of server, and how it differs from what a closed loop shows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.fileperf(app="capacity.app:app", group="three servers")


def test_download(fileperf):
    found = fileperf.capacity.get("/download", max_p99="100ms", max_error_rate="0.1%")
    assert found.low <= found.rate <= found.high  # requests per second


@pytest.mark.parametrize("path", ["/queue", "/threads"])
def test_others(fileperf, path):
    fileperf.capacity.get(path, max_p99="100ms", max_error_rate="0.1%")


@pytest.mark.fileperf(max_p99="200ms", min_capacity=50, gate="none")
def test_enough_for_our_users(fileperf):
    fileperf.capacity.get("/queue", max_duration="20s")
