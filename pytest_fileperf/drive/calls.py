"""What a slot calls again and again where a request goes through httpx's client, and how its answer is read."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

from pytest_fileperf.drive.client_slot import Sent
from pytest_fileperf.drive.failures import EXCERPT_BYTES, problem_of, shown
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.wire.request import LoadClient

__all__ = ("body_of", "operation_call", "sending")


def operation_call(operation: Operation) -> Callable[[LoadClient, Sent], Awaitable[object]]:
    """Returns a coroutine function that makes the operation's request through httpx's client and checks the answer."""
    send, expect = sending(operation), operation.expect

    async def call(client: LoadClient, sent: Sent) -> None:
        response = await send(client)
        encoding = "" if response.is_stream_consumed else response.headers.get("Content-Encoding", "")
        size = 0
        excerpt = b""
        digest = hashlib.sha256() if expect.sha256 else None
        try:
            async for block in body_of(response):
                size += len(block)
                if digest is not None:
                    digest.update(block)
                if len(excerpt) < EXCERPT_BYTES:
                    excerpt += block[:EXCERPT_BYTES]
        finally:
            await response.aclose()
        if problem := problem_of(expect, response.status_code, size, "" if digest is None else digest.hexdigest()):
            kind, what = problem
            sent.problem = kind, what + shown(kind, excerpt, size, encoding)

    return call


def sending(operation: Operation) -> Callable[[LoadClient], Awaitable[httpx.Response]]:
    """Returns what makes the operation's request, and returns the answer with its body still to be read."""
    arguments = dict(operation.arguments)
    auth = arguments.pop("auth", httpx.USE_CLIENT_DEFAULT)
    follow = arguments.pop("follow_redirects", httpx.USE_CLIENT_DEFAULT)

    async def send(client: LoadClient) -> httpx.Response:
        request = client.build_request(operation.method, operation.url, **arguments)
        return await client.send(request, stream=True, auth=auth, follow_redirects=follow)  # type: ignore[arg-type]

    return send


async def body_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yields the body as it came; where an auth flow has read it already, as httpx keeps it: without compression."""
    if response.is_stream_consumed:
        yield response.content
        return
    async for block in response.aiter_raw():
        yield block
