"""A journey over HTTP/2, on the quickstart's app."""

from __future__ import annotations

import asyncio

import httpx

from pytest_fileperf import Granian


async def load_page(client: httpx.AsyncClient) -> None:
    """Asks for three things at once, as a browser does: over HTTP/2 they share a connection."""
    for answer in await asyncio.gather(*(client.get("/health") for _ in range(3))):
        answer.raise_for_status()


def test_http2(fileperf):
    result = fileperf.run(load_page, http2=True, server=Granian(tls=True), connections=4, gate="none")
    assert result.client.why_engine == "HTTP/2, by httpx"
