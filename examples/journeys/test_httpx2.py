"""A journey on a client of httpx2, on the quickstart's app."""

from __future__ import annotations

import httpx2


async def check_health(client: httpx2.AsyncClient) -> None:
    """Fails with the address of what did not answer."""
    try:
        (await client.get("/health", timeout=httpx2.Timeout(5))).raise_for_status()
    except httpx2.HTTPError as error:
        raise AssertionError(f"{error.request.url} is not well") from error


def test_health(fileperf):
    fileperf.run(check_health, connections=8)
