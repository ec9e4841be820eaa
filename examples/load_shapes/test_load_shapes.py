"""Every load shape, on the quickstart's app."""

from __future__ import annotations

from pytest_fileperf import payload


def test_closed_loop(fileperf):
    fileperf.get("/download", connections=32, duration="5s")


def test_number_of_requests(fileperf):
    fileperf.get("/download", requests=500, duration="30s", gate="none")


def test_rate(fileperf):
    result = fileperf.post("/upload", content=payload("64KiB"), rate=200, duration="5s", gate="none")
    assert result.due == result.requests + result.errors
    assert result.latency.p99 >= result.service.p99  # waiting for a connection counts in the latency


def test_burst(fileperf):
    result = fileperf.get("/download", burst=1000, connections=200, gate="none")
    assert result.duration < 60  # seconds until the last answer


def test_ramp_of_rates(fileperf):
    fileperf.get("/download", ramp="2s:200/s, 4s:200/s, 1s:0/s", gate="none")  # rises, stays, falls


def test_ramp_of_connections(fileperf):
    fileperf.get("/download", ramp="0s:20, 3s:20, 0s:50, 3s:50", gate="none")  # 20 connections, then 50


def test_many_connections(fileperf):
    fileperf.get("/health", connections=1000, duration="5s", gate="none")


def test_several_generators(fileperf):
    fileperf.get("/health", connections=64, generators=2, gate="none")  # 32 connections each
