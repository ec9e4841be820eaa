"""Answers that come in pieces: events, lines, long downloads."""

from __future__ import annotations

import httpx
import httpx2
import pytest
from httpx_ws import aconnect_ws

pytestmark = pytest.mark.fileperf(app="streams.app:app")


def test_events(fileperf):
    result = fileperf.stream("/events", events=20, connections=100, max_event_gap_p99="500ms")
    assert result.events.count >= 20 * result.requests
    assert result.events.gap.p50 > 0.010  # seconds


def test_first_event(fileperf):
    fileperf.stream("/events?per_second=100", events=1, connections=8, gate="first_event_p50")


def test_listening_for_a_time(fileperf):
    fileperf.stream("/events", listen_for="1s", connections=100, requests=100, gate="none")


def test_words_of_a_language_model(fileperf):
    fileperf.stream("/complete", method="POST", json={"text": "all work and no play"}, each="line", connections=8)


def test_long_download(fileperf):
    result = fileperf.stream("/film", each="256KiB", expect_bytes="4MiB", connections=4, gate="event_rate")
    assert result.events.count == 16 * (result.requests + result.errors)


async def follow(client: httpx.AsyncClient) -> None:
    """Waits for the third tick, with httpx's own stream."""
    async with client.stream("GET", "/events?per_second=100") as response:
        async for line in response.aiter_lines():
            if line == "data: 3":
                return


async def watch_film(client: httpx.AsyncClient) -> None:
    await client.get("/film?pieces=8", extensions={"fileperf_each": "64KiB"})


def test_events_in_a_journey(fileperf):
    result = fileperf.run(follow, connections=8, gate="none", max_first_event_p50="1s")
    assert result.events.count >= 3 * result.requests


def test_pieces_in_a_journey(fileperf):
    result = fileperf.run(watch_film, connections=4, gate="none")
    assert result.events.gap.count > 0


async def chat(client: httpx.AsyncClient) -> None:
    """Opens a WebSocket, and sends ten messages that come back."""
    async with aconnect_ws("/echo", client) as socket:
        for number in range(10):
            await socket.send_text(f"message {number}")
            assert await socket.receive_text() == f"message {number}"


def test_websocket(fileperf):
    fileperf.run(chat, connections=4, gate="none")


async def follow_and_chat(client: httpx2.AsyncClient) -> None:
    """Waits for the third tick, and says so."""
    async with client.sse("/events?per_second=100") as events:
        async for event in events:
            if event.data == "3":
                break
    async with client.websocket("/echo") as socket:
        await socket.send_text("three")
        assert await socket.receive_text() == "three"


def test_httpx2(fileperf):
    result = fileperf.run(follow_and_chat, connections=4, gate="none")
    assert result.events.count > result.requests
