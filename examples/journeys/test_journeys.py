"""Journeys, checked answers, payloads and async tests, on the quickstart's app."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from pytest_fileperf import Client, LoadTransport, exponential, payload, uniform


async def roundtrip(client: httpx.AsyncClient) -> None:
    """Uploads a file, reads it back, and compares."""
    sent = payload("64KiB")
    uploaded = await client.post("/upload", content=sent)
    downloaded = await client.get(f"/download/{uploaded.json()['id']}")
    assert hashlib.sha256(downloaded.content).hexdigest() == sent.sha256()


def test_roundtrip(fileperf):
    fileperf.run(roundtrip, connections=8)


async def visit(client: Client) -> None:
    """Uploads a file, thinks, and downloads it twice."""
    async with client.step("upload"):
        uploaded = (await client.post("/upload", content=payload("64KiB"))).raise_for_status()
    await client.pause("10ms")
    for _ in range(2):
        async with client.step("download"):
            (await client.get(f"/download/{uploaded.json()['id']}")).raise_for_status()


def test_steps(fileperf):
    asked = {"upload": {"max_p99": "10s"}, "download": {"gate": "p50"}}
    result = fileperf.run(visit, connections=4, steps=asked, gate="p50")
    assert result.steps["download"].latency.p50 < result.latency.p50


def test_users_who_think(fileperf):
    result = fileperf.get("/health", connections=50, pause=exponential("0.5s"), gate="p50")
    assert result.latency.p99 < 30  # seconds


async def look_around(client: Client) -> None:
    """Looks at a page, reads it, and goes on to the next."""
    (await client.get("/health")).raise_for_status()
    await client.pause(uniform("50ms", "100ms"))
    (await client.get("/health")).raise_for_status()


def test_pauses_in_a_journey(fileperf):
    result = fileperf.run(look_around, connections=8, pause="0.1s", gate="none")
    assert result.latency.min < 30  # seconds


def test_checked_download(fileperf):
    fileperf.get("/download", expect_status=200, expect_bytes="256KiB")


def test_payloads(fileperf):
    fileperf.post("/upload", content=payload("256KiB"))  # incompressible bytes
    fileperf.post("/upload", content=payload("1MB", kind="text", seed=7), gate="none")  # lines of words
    fileperf.post("/upload", content=payload("1MB", kind="crlf"), gate="none")  # the worst case of a form parser
    fileperf.post("/upload", content=payload(__file__), gate="none")  # a file's content
    fileperf.post("/form", files={"file": payload("64KiB", filename="a.bin", content_type="image/png")}, gate="none")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_async(afileperf):
    result = await afileperf.get("/health", gate="none")
    assert result.errors == 0


@pytest.mark.anyio
async def test_transport_alone(fileperf_server):
    async with httpx.AsyncClient(transport=LoadTransport(), base_url=fileperf_server.url) as client:
        response = await client.get("/health")
    assert response.json() == {"ok": True}
