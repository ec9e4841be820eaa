"""The in-process transport and the lifespan, as an app and as a client see them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import httpx
import pytest
from families import module_of
from fastapi import FastAPI, Request

from pytest_fileperf.errors import ServerStartError
from pytest_fileperf.wire.asgi import StreamingASGITransport
from pytest_fileperf.wire.family import FamilyClient
from pytest_fileperf.wire.lifespan import ASGIApp, Lifespan

pytestmark = pytest.mark.anyio

CLIENTS_OWN = ContextVar("CLIENTS_OWN", default="unset")


FAMILY = "httpx"
"""Whose clients there are."""


@pytest.fixture(autouse=True)
def _of_family(family: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request.module, "FAMILY", family)


def client_of(app: ASGIApp, **options: Any) -> httpx.AsyncClient:
    transport = StreamingASGITransport(app, **options)
    return FamilyClient(family=FAMILY, transport=transport, base_url="http://in-process", timeout=5)


async def read_body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    return body


async def start(send: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = await read_body(receive)
    await start(send, headers=((b"X-Digest", hashlib.sha256(body).hexdigest().encode()),))
    await send({"type": "http.response.body", "body": body})


class Numbers:
    """A raw app that sends numbered blocks for ever, and notes how it went."""

    def __init__(self) -> None:
        self.sent = 0
        self.error: BaseException | None = None
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await start(send)
            while True:
                await send({"type": "http.response.body", "body": b"%d" % self.sent, "more_body": True})
                self.sent += 1
        except BaseException as error:
            self.error = error
            self.ended.set()
            raise


# --- requests


async def test_scope_is_what_a_server_gives() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        await echo(scope, receive, send)

    async with client_of(app, state={"pool": 1}, root_path="/api", client=("10.0.0.1", 7)) as client:
        await client.post("https://example.org:8443/a%20b/ü?q=%2F&r", content=b"x", headers={b"X-Upper": "Vé".encode()})
    headers = dict(seen.pop("headers"))
    assert headers[b"x-upper"] == "Vé".encode()
    assert headers[b"host"] == b"example.org:8443"
    assert headers[b"content-length"] == b"1"
    assert seen == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": "/api/a b/ü",
        "raw_path": b"/api/a%20b/%C3%BC",
        "query_string": b"q=%2F&r",
        "root_path": "/api",
        "server": ("example.org", 8443),
        "client": ("10.0.0.1", 7),
        "state": {"pool": 1},
    }


async def test_empty_request_is_one_empty_message() -> None:
    messages: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        messages.append(await receive())
        await start(send, 204)
        await send({"type": "http.response.body"})
        messages.append(await receive())

    async with client_of(app) as client:
        assert (await client.get("/")).content == b""
    assert messages == [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]


async def test_streamed_request_is_read_as_the_app_reads_it() -> None:
    made: list[int] = []
    seen: list[list[int]] = []

    async def blocks() -> AsyncIterator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"%d" % number

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(2):
            await receive()
            seen.append(made.copy())
        await start(send)
        await send({"type": "http.response.body", "body": await read_body(receive)})

    async with client_of(app) as client:
        assert (await client.post("/", content=blocks())).content == b"2"
    assert seen == [[0], [0, 1]]


async def test_error_in_the_clients_body_reaches_the_client_and_disconnects_the_app() -> None:
    seen: list[object] = []

    async def blocks() -> AsyncIterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"]])

    async with client_of(app) as client:
        with pytest.raises(ZeroDivisionError):
            await client.post("/", content=blocks())
    assert seen == ["http.request", "http.disconnect"]


async def test_app_that_gives_up_reading_never_sees_a_body_cut_short() -> None:
    seen: list[object] = []

    async def blocks() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await receive()
        seen.append((await receive())["type"])

    async with client_of(app) as client:
        with pytest.raises(module_of(FAMILY).WriteError):
            await client.post("/", content=blocks())
    assert seen == ["http.disconnect"]


# --- responses


@pytest.mark.parametrize("method, status", [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_answers_without_body(method: str, status: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await start(send, status, headers=((b"content-length", b"5"),))
        for more in (True, False):
            await send({"type": "http.response.body", "body": b"12345", "more_body": more})

    async with client_of(app) as client:
        answer = await client.request(method, "/")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (status, b"", "5")


async def test_first_byte_is_there_before_the_app_ends() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"second"})

    async with client_of(app) as client, client.stream("GET", "/") as answer:
        blocks = answer.aiter_raw()
        assert await anext(blocks) == b"first"
        go_on.set()
        assert [block async for block in blocks] == [b"second"]


async def test_send_waits_until_the_client_took_the_block() -> None:
    app = Numbers()
    async with client_of(app) as client, client.stream("GET", "/") as answer:
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.sent == 0
        blocks = answer.aiter_raw()
        for number in range(3):
            assert await anext(blocks) == b"%d" % number
            for _ in range(20):
                await asyncio.sleep(0)
            assert app.sent == number + 1


async def test_closing_early_is_a_disconnect_for_the_app(caplog: pytest.LogCaptureFixture) -> None:
    app = Numbers()
    async with client_of(app) as client:
        async with client.stream("GET", "/") as answer:
            await anext(answer.aiter_raw())
        await asyncio.wait_for(app.ended.wait(), 5)
    assert isinstance(app.error, OSError)
    assert not caplog.records


async def test_closing_early_wakes_an_app_that_listens() -> None:
    heard = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send)
        both = await asyncio.gather(receive(), receive())
        assert [message["type"] for message in both] == ["http.disconnect"] * 2
        heard.set()

    async with client_of(app) as client:
        async with client.stream("GET", "/"):
            pass
        await asyncio.wait_for(heard.wait(), 5)


# --- failures


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError("before the answer")


async def exits(scope: Any, receive: Any, send: Any) -> None:
    raise SystemExit(3)


async def says_nothing(scope: Any, receive: Any, send: Any) -> None:
    return


async def out_of_order(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("app", [raises, exits, says_nothing, out_of_order])
async def test_failure_before_the_answer_is_a_500(app: ASGIApp, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(app) as client:
        answer = await client.get("/where")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["content-type"].startswith("text/plain")
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    if app is raises:
        assert "/where" in record.getMessage()
        assert record.exc_info


async def raises_late(scope: Any, receive: Any, send: Any) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ZeroDivisionError


async def stops_late(scope: Any, receive: Any, send: Any) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def sends_too_little(scope: Any, receive: Any, send: Any) -> None:
    await start(send, headers=((b"Content-Length", b"5"),))
    await send({"type": "http.response.body", "body": b"half"})


async def sends_too_much(scope: Any, receive: Any, send: Any) -> None:
    await start(send, headers=((b"Content-Length", b"3"),))
    await send({"type": "http.response.body", "body": b"half"})


@pytest.mark.parametrize("app", [raises_late, stops_late, sends_too_little, sends_too_much])
async def test_failure_after_the_start_is_a_protocol_error(app: ASGIApp, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(app) as client:
        with pytest.raises(module_of(FAMILY).RemoteProtocolError):
            await client.get("/")
    assert len(caplog.records) == 1


async def test_exception_after_a_complete_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await echo(scope, receive, send)
        with pytest.raises(RuntimeError, match="complete"):
            await send({"type": "http.response.body", "body": b"more"})
        raise ZeroDivisionError

    async with client_of(app) as client:
        assert (await client.get("/")).status_code == 200
    assert len(caplog.records) == 1


@pytest.mark.parametrize("started", [False, True])
async def test_read_timeout(started: bool) -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if started:
            await start(send)
        await receive()
        ended.set()

    async with client_of(app) as client:
        with pytest.raises(module_of(FAMILY).ReadTimeout):
            await client.get("/", timeout=0.05)
        await asyncio.wait_for(ended.wait(), 5)


async def test_read_timeout_counts_silence_of_the_app_and_not_the_whole_answer() -> None:
    async def slow() -> AsyncIterator[bytes]:
        for _ in range(2):
            await asyncio.sleep(0.25)
            yield b"x"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        await start(send)
        for more in (True, True, False):
            await asyncio.sleep(0.1)
            await send({"type": "http.response.body", "body": b"x", "more_body": more})

    async with client_of(app) as client:
        assert (await client.post("/", content=slow(), timeout=0.2)).text == "xxx"


@pytest.mark.parametrize("started", [False, True])
async def test_cancelling_the_client_disconnects_the_app(started: bool) -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/again":
            await echo(scope, says_end, send)
            return
        if started:
            await start(send)
        reached.set()
        assert (await receive())["type"] == "http.disconnect"
        ended.set()

    async def says_end() -> dict[str, Any]:
        return {"type": "http.request", "body": b"fine", "more_body": False}

    async with client_of(app) as client:
        request = asyncio.ensure_future(client.get("/"))
        await reached.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(ended.wait(), 5)
        assert (await client.get("/again")).text == "fine"


async def test_closing_the_transport_ends_what_is_under_way() -> None:
    reached = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.set()
        await receive()
        await receive()

    transport = StreamingASGITransport(app)
    request = asyncio.ensure_future(transport.handle_async_request(module_of(FAMILY).Request("GET", "http://h/")))
    await reached.wait()
    await transport.aclose()
    with pytest.raises(module_of(FAMILY).ReadError):
        await request


# --- frameworks


# --- lifespan


async def test_lifespan_starts_and_stops_the_app_and_its_state_reaches_requests() -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, object]]:
        told.append("up")
        yield {"pool": "a pool"}
        told.append("down")

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def handler(request: Request) -> str:
        return str(request.state.pool)

    async with Lifespan(app) as started, client_of(app, state=started.state) as client:
        assert told == ["up"]
        assert (await client.get("/")).json() == "a pool"
    assert told == ["up", "down"]


async def refuses_lifespan(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"


@pytest.mark.parametrize("app", [refuses_lifespan, says_nothing])
async def test_app_without_lifespan(app: ASGIApp, caplog: pytest.LogCaptureFixture) -> None:
    async with Lifespan(app) as started:
        assert started.state == {}
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def refuses_to_start(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database at db:5432"})


async def crashes_at_start(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    raise ConnectionError("no database at db:5432")


async def exits_at_start(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    raise SystemExit("no database at db:5432")


@contextlib.asynccontextmanager
async def broken(app: FastAPI) -> AsyncIterator[None]:
    if app.title:
        raise ConnectionError("no database at db:5432")
    yield


@pytest.mark.parametrize(
    "app",
    [refuses_to_start, crashes_at_start, exits_at_start, FastAPI(lifespan=broken)],
    ids=["refuses", "crashes", "exits", "fastapi"],
)
async def test_failing_start_says_the_apps_own_reason(app: ASGIApp) -> None:
    with pytest.raises(ServerStartError, match="no database at db:5432"):
        async with Lifespan(app):
            pytest.fail("it started")


@pytest.mark.parametrize("how", ["says so", "raises"])
async def test_failing_shutdown_is_logged(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if how == "raises":
            raise ZeroDivisionError
        await send({"type": "lifespan.shutdown.failed", "message": "stuck"})

    async with Lifespan(app):
        pass
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
