"""Connections without a client: answers known by their bytes end an exchange unparsed; bodies that nobody wants."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc

import httpx
import pytest
from wire import cases_responses
from wire.conformance import Answer, Case, chunked, http, in_chunks, once
from wire.scripted import Drain, Fin, Pause, Request, RequestHead, Script, ScriptedServer, Send

from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.framing import HeadCache, ResponseHead
from pytest_fileperf.wire.request import compile_request

pytestmark = pytest.mark.anyio

HELLO = http("Content-Length: 5", body=b"hello")
JELLO = http("Content-Length: 5", body=b"jello")
LARGE = bytes(16 << 20)


class Told:
    """Notes what it is told of one answer; takes every answer for a good one, or none."""

    def __init__(self, good: bool) -> None:
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.good = good
        self.body = b""

    def on_head(self, head: ResponseHead) -> bool:
        return True

    def on_body(self, data: memoryview) -> None:
        self.body += data

    def on_end(self, repeated: bool) -> bool:
        self.done.set_result(repeated)
        return self.good

    def on_failure(self, error: httpx.TransportError) -> None:
        self.done.set_exception(error)


async def ask(script: Script, times: int, *, content: bytes = b"", good: bool = True) -> list[tuple[bool, int, int]]:
    """Returns of each answer: whether it was known, its status and the length of its body."""
    seen = []
    known = KnownAnswers()
    async with ScriptedServer((script,), tls=None) as server:
        origin = Origin("http", "127.0.0.1", server.port)
        request = compile_request(httpx.Request("POST", server.url, content=content))
        assert request is not None
        connection: Connection | None = None
        for _ in range(times):
            if connection is None or connection.closed:
                sock = await open_socket(origin, timeout_s=5)
                connection = Connection(asyncio.get_running_loop(), sock, Scratch(), known)
            told = Told(good)
            connection.start(request, told)
            repeated = await asyncio.wait_for(told.done, 5)
            await asyncio.sleep(0.005)  # what the server does after its answer has arrived
            seen.append((repeated, connection.status, connection.body_bytes))
        assert connection is not None
        connection.close()
    return seen


async def test_the_same_bytes_are_known_from_the_second_time_on() -> None:
    assert await ask((Request(), Send(HELLO)) * 3, 3) == [(False, 200, 5), (True, 200, 5), (True, 200, 5)]


async def test_a_chunked_answer_is_known_too() -> None:
    raw = in_chunks(chunked(b"hel", b"lo"))
    assert await ask((Request(), Send(raw)) * 2, 2) == [(False, 200, 5), (True, 200, 5)]


async def test_another_body_under_the_same_head_is_not_known() -> None:
    script = (Request(), Send(HELLO), Request(), Send(JELLO), Request(), Send(HELLO))
    assert [known for known, _, _ in await ask(script, 3)] == [False, False, True]


async def test_an_answer_that_was_not_good_is_judged_each_time() -> None:
    assert [known for known, _, _ in await ask((Request(), Send(HELLO)) * 3, 3, good=False)] == [False] * 3


async def test_an_answer_in_parts_is_put_together_each_time() -> None:
    parts = (Request(), Send(HELLO[:-2]), Pause(), Send(HELLO[-2:]))
    assert await ask((Request(), Send(HELLO), *parts, Request(), Send(HELLO)), 3) == [
        (False, 200, 5),
        (False, 200, 5),
        (True, 200, 5),
    ]


async def test_a_known_answer_with_more_behind_it_is_not_that_answer() -> None:
    """The connection is out of step and must not be used again, so each script has one request."""
    script = (Request(), Send(HELLO + b"x"))
    assert await ask(script, 2) == [(False, 200, 5)] * 2


async def test_an_answer_that_closes_the_connection_is_never_known() -> None:
    closing = http("Content-Length: 5", "Connection: close", body=b"hello")
    assert await ask((Request(), Send(closing)), 3) == [(False, 200, 5)] * 3


async def test_a_known_answer_to_a_request_that_is_not_sent_yet_closes_the_connection() -> None:
    """The rest of the upload would be taken for the next request."""
    script = (Request(), Send(HELLO), RequestHead(), Drain(1000), Send(HELLO))
    assert await ask(script, 3, content=LARGE) == [(False, 200, 5), (False, 200, 5), (True, 200, 5)]


async def test_closed_connections_are_gone_without_the_garbage_collector() -> None:
    async with ScriptedServer(((Request(), Send(HELLO)),), tls=None) as server:
        gc.collect()
        gc.disable()
        try:
            sock = await open_socket(Origin("http", "127.0.0.1", server.port), timeout_s=5)
            connection = Connection(asyncio.get_running_loop(), sock, Scratch())
            connection.close()
            del connection, sock
            left = sum(isinstance(one, Connection) for one in gc.get_objects())
        finally:
            gc.enable()
    assert left == 0


async def test_what_is_known_of_ten_minutes_takes_less_than_a_megabyte() -> None:
    """A `date` header makes another answer in each second."""
    heads, known = HeadCache(), KnownAnswers()
    tracemalloc.start()
    try:
        for second in range(600):
            raw = http(f"Date: {second:029}", "Content-Type: text/plain", f"Server: {'x' * 20}", "Content-Length: 3900")
            known.keep(raw + bytes(3900), heads.get(raw), 3900)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < kept < 1_000_000


# --- Bodies that nobody wants: the same ends, counts and errors as when they are handed out


NINE_MIB = bytes(9 << 20)
CASES = (
    *(case for case in cases_responses.CASES if case.name != "101 that nobody asked for"),
    once("9 MiB", http(f"Content-Length: {len(NINE_MIB)}", body=NINE_MIB), Answer(200, NINE_MIB)),
    once(
        "9 MiB and bytes after it",
        http(f"Content-Length: {len(NINE_MIB)}", body=NINE_MIB + b"x"),
        Answer(200, NINE_MIB),
    ),
    once("9 MiB in one chunk", in_chunks(chunked(NINE_MIB)), Answer(200, NINE_MIB)),
    once(
        "9 MiB in chunks of 70 kB",
        in_chunks(chunked(*[NINE_MIB[:70_000]] * 130)),
        Answer(200, NINE_MIB[:70_000] * 130),
    ),
    once("9 MiB until the end", http(body=NINE_MIB), Answer(200, NINE_MIB), Fin()),
    once(
        "9 MiB cut short", http(f"Content-Length: {len(NINE_MIB) + 1}", body=NINE_MIB), httpx.RemoteProtocolError, Fin()
    ),
    once("9 MiB cut short in a chunk", in_chunks(chunked(NINE_MIB)[:-7]), httpx.RemoteProtocolError, Fin()),
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


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": sys.platform != "win32"})], ids=["one loop"])
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
