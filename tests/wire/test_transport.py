"""Whose answers and errors `LoadTransport` gives, and what it says where it cannot work."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from drive.scripted import hello, scripted
from families import module_of

from pytest_fileperf.wire.transport import LoadTransport


def post(package: Any, url: str) -> Any:
    """Returns the answer to a form, which a client makes a stream of."""

    async def answered() -> Any:
        async with package.AsyncClient(transport=LoadTransport(), base_url=url) as client:
            return await client.post("/", files={"file": ("a", b"content")})

    return asyncio.run(answered())


def test_answers_and_errors_are_of_the_client_s_package(family: str) -> None:
    package = module_of(family)
    with scripted(hello) as url:
        answer = post(package, url)
    assert (type(answer), answer.text) == (package.Response, "hello")
    with pytest.raises(package.ConnectError) as raised:
        post(package, "http://127.0.0.1:9")
    assert raised.value.request.url.port == 9


def test_without_asyncio_it_says_what_to_use() -> None:
    """So it is under trio, whose tasks are no tasks of asyncio."""
    asked = LoadTransport().handle_async_request(httpx.Request("GET", "http://127.0.0.1/"))
    with pytest.raises(RuntimeError, match=r"under trio use httpx's own transport, httpx\.AsyncHTTPTransport"):
        asked.send(None)
