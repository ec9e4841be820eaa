"""A connection whose bodies nobody wants: the same ends, counts and errors as when they are handed out."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from wire import cases_responses
from wire.conformance import Answer, Case, chunked, http, once
from wire.scripted import Fin, ScriptedServer

from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import Scratch
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.request import compile_request

pytestmark = pytest.mark.anyio

LARGE = bytes(9 << 20)

CASES = (
    *(case for case in cases_responses.CASES if case.name != "101 that nobody asked for"),
    once("9 MiB", http(f"Content-Length: {len(LARGE)}", body=LARGE), Answer(200, LARGE)),
    once("9 MiB and bytes after it", http(f"Content-Length: {len(LARGE)}", body=LARGE + b"x"), Answer(200, LARGE)),
    once("9 MiB in one chunk", http("Transfer-Encoding: chunked", body=chunked(LARGE)), Answer(200, LARGE)),
    once(
        "9 MiB in chunks of 70 kB",
        http("Transfer-Encoding: chunked", body=chunked(*[LARGE[:70_000]] * 130)),
        Answer(200, LARGE[:70_000] * 130),
    ),
    once("9 MiB until the end", http(body=LARGE), Answer(200, LARGE), Fin()),
    once("9 MiB cut short", http(f"Content-Length: {len(LARGE) + 1}", body=LARGE), httpx.RemoteProtocolError, Fin()),
    once(
        "9 MiB cut short in a chunk",
        http("Transfer-Encoding: chunked", body=chunked(LARGE)[:-7]),
        httpx.RemoteProtocolError,
        Fin(),
    ),
)


class Counted:
    """An exchange that wants no body."""

    def __init__(self) -> None:
        self.done: asyncio.Future[ResponseHead] = asyncio.get_running_loop().create_future()
        self.head: ResponseHead | None = None

    def on_head(self, head: ResponseHead) -> bool:
        self.head = head
        return False

    def on_body(self, data: memoryview) -> None:
        raise AssertionError("nobody asked for the body")

    def on_end(self, repeated: bool) -> bool:
        assert self.head is not None
        self.done.set_result(self.head)
        return False

    def on_failure(self, error: httpx.TransportError) -> None:
        self.done.set_exception(error)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_body_is_counted_and_thrown_away(case: Case) -> None:
    expect = (case.difference.expect if case.difference else None) or case.expect
    async with ScriptedServer(case.scripts, tls=None) as server:
        sock = await open_socket(Origin("http", "127.0.0.1", server.port), timeout_s=5)
        connection = Connection(asyncio.get_running_loop(), sock, Scratch())
        request = compile_request(httpx.Request(case.asks[0].method, server.url))
        assert request is not None
        exchange = Counted()
        try:
            connection.start(request, exchange)
            if isinstance(expect[0], type):
                with pytest.raises(expect[0]):
                    await asyncio.wait_for(exchange.done, 5)
                assert connection.closed
            else:
                head = await asyncio.wait_for(exchange.done, 5)
                assert (head.status, connection.body_bytes) == (expect[0].status, len(expect[0].body))
        finally:
            connection.close()
