"""Calls an ASGI app in this process as a server would.

Unlike `httpx.ASGITransport`, this streams bodies both ways, and collects none. So memory and times to the first byte
are as with a real server.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping
from contextvars import Context
from types import ModuleType
from typing import Any, cast

import httpx

from pytest_fileperf.wire.family import error_of, family_of, kind
from pytest_fileperf.wire.framing import BODYLESS_STATUSES
from pytest_fileperf.wire.lifespan import ASGI_VERSION, CLOSE_GRACE_S, ASGIApp, Message, ended

_BLOCK_BYTES = 64 * 1024
"""A larger block of a request body reaches the app in pieces of this size, as from a server."""
_ERROR_BODY = b"Internal Server Error"
_ERROR_HEADERS = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", str(len(_ERROR_BODY)).encode()),
    (b"connection", b"close"),
)
_LOGGED_KINDS = 20
"""At most this many kinds of exceptions are logged, each once."""
_HTTP_SPEC = "2.4"
"""The version of ASGI's HTTP part. Since 2.4, `send` raises OSError after a disconnect, so frameworks need no second
task to notice it."""

_log = logging.getLogger(__name__)


class StreamingASGITransport(httpx.AsyncBaseTransport):
    """Sends the requests of an `httpx.AsyncClient` or `httpx2.AsyncClient` to an app on the running event loop.

    `state` is the app's lifespan state: each request gets a copy. If the app raises before it has answered, the client
    gets a response 500. If the app raises later, the client gets httpx.RemoteProtocolError. In both cases, a traceback
    is logged. The read timeout limits how long the app may be silent. Connect and write timeouts have no effect.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        state: dict[str, Any] | None = None,
        root_path: str = "",
        client: tuple[str, int] = ("127.0.0.1", 123),
    ) -> None:
        self._app = app
        self._state = state if state is not None else {}
        self._root_path = root_path
        self._raw_root_path = root_path.encode("ascii")
        self._client = client
        self._running: dict[asyncio.Task[None], _Exchange] = {}
        self._logged: set[tuple[type[BaseException], str]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Calls the app with the request, and returns once the app has begun its response."""
        loop, family = asyncio.get_running_loop(), family_of(request)
        own = kind(family, _Exchange, "AsyncByteStream")
        exchange = own(loop, request, family, self._scope(request), self._logged)
        # An empty context: a server's handlers do not see the context variables of its clients.
        task = loop.create_task(exchange.run(self._app), context=Context())
        self._running[task] = exchange
        task.add_done_callback(self._running.pop)
        try:
            return await exchange.response()
        except BaseException:
            exchange.disconnect()
            raise

    async def aclose(self) -> None:
        """Disconnects the requests under way. The app may go on for `CLOSE_GRACE_S`, then its tasks are cancelled."""
        for exchange in tuple(self._running.values()):
            exchange.disconnect()
        tasks = tuple(self._running)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_GRACE_S)
            await ended(*late)

    def _scope(self, request: httpx.Request) -> dict[str, Any]:
        url = request.url
        raw_path, _, query = url.raw_path.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": ASGI_VERSION, "spec_version": _HTTP_SPEC},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": self._root_path + url.path,
            "raw_path": self._raw_root_path + raw_path,
            "query_string": query,
            "root_path": self._root_path,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (url.host, url.port or (443 if url.scheme == "https" else 80)),
            "client": self._client,
            "state": self._state.copy(),
        }


class _Exchange(httpx.AsyncByteStream):
    """One request and its response. At most one block of the response's body waits for the client."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request: httpx.Request,
        family: ModuleType,
        scope: dict[str, Any],
        logged: set[tuple[type[BaseException], str]],
    ) -> None:
        self._loop = loop
        self._family = family
        self._logged = logged
        self._scope = scope
        self._timeout_s: float | None = request.extensions.get("timeout", {}).get("read")
        self._rest = memoryview(b"")  # from a block of the request body that is larger than one message
        self._source: AsyncIterator[bytes] | None = None  # for further blocks
        stream: object = request.stream
        if isinstance(stream, family.ByteStream):
            self._rest = memoryview(request.read())
        else:
            assert isinstance(stream, family.AsyncByteStream)
            self._source = aiter(stream)
        self._request_read = False
        self._start: Message | None = None
        self._discard = scope["method"] == "HEAD"
        self._left_bytes: int | None = None  # according to the response's content-length
        self._block = b""
        self._complete = False
        self._failure: BaseException | None = None
        self._over: asyncio.Event | None = None
        self._taken: asyncio.Future[None] | None = None
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since_s = loop.time()

    # --- for the app

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._lose(httpx.RemoteProtocolError("the app was cancelled before it had sent its response"))
            raise
        except (Exception, SystemExit) as error:
            if self._failure is None:
                self._log_once(error)
            else:
                _log.debug("the ASGI app raised after the client had gone", exc_info=True)
        else:
            if self._failure is None and not self._complete:
                what = "starting" if self._start is None else "completing"
                _log.error("the ASGI app returned without %s the response", what)
        if self._start is None and self._failure is None:
            self._on_start({"status": 500, "headers": _ERROR_HEADERS})
            self._on_block(_ERROR_BODY, last=True)
        else:
            self._lose(httpx.RemoteProtocolError("the app ended without sending its complete response"))

    def _log_once(self, error: BaseException) -> None:
        """Logs the first exception of each kind, because a broken handler raises thousands under load."""
        kind = (type(error), str(error))
        if kind not in self._logged and len(self._logged) < _LOGGED_KINDS:
            self._logged.add(kind)
            _log.exception("exception in the ASGI app at %s %s", self._scope["method"], self._scope["path"])

    async def receive(self) -> Message:
        """Returns the request's next piece. After the last, waits for the response's end and returns a disconnect."""
        if not self._request_read and not self._complete and self._failure is None:
            return await self._next_part()
        if not self._complete and self._failure is None:
            if self._over is None:
                self._over = asyncio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def _next_part(self) -> Message:
        while not self._rest and self._source is not None:
            self._silent_since_s = math.inf  # now the client is late
            try:
                self._rest = memoryview(await anext(self._source))
            except StopAsyncIteration:
                self._source = None
            except BaseException as error:
                # Even if the app gives up waiting: the loss of the rest must not look like the body's end.
                self._lose(error if isinstance(error, Exception) else httpx.WriteError("the app gave up reading"))
                if isinstance(error, Exception):
                    return {"type": "http.disconnect"}
                raise
        self._silent_since_s = self._loop.time()
        block, self._rest = self._rest[:_BLOCK_BYTES], self._rest[_BLOCK_BYTES:]
        self._request_read = not self._rest and self._source is None
        return {"type": "http.request", "body": bytes(block), "more_body": not self._request_read}

    async def send(self, message: Message) -> None:
        """Passes the app's message on. Raises OSError if the client has gone, RuntimeError for a bad message."""
        if self._failure is not None:
            raise OSError("the client has disconnected")
        expected = "http.response.start" if self._start is None else "http.response.body"
        if message["type"] != expected or self._complete:
            after = "after the response was complete" if self._complete else f"instead of {expected!r}"
            raise RuntimeError(f"ASGI message {message['type']!r} {after}")
        if self._start is None:
            self._on_start(message)
            return
        more = message.get("more_body", False)
        block = message.get("body", b"")
        self._count(len(block), last=not more)
        await self._until_taken()  # a block is left only if the app sends from several tasks
        self._on_block(block if isinstance(block, bytes) else bytes(block), last=not more)
        if more:
            await self._until_taken()

    def _count(self, size_bytes: int, *, last: bool) -> None:
        if self._left_bytes is None:
            return
        self._left_bytes -= size_bytes
        if self._left_bytes < 0 or (last and self._left_bytes):
            than = "longer" if self._left_bytes < 0 else "shorter"
            raise RuntimeError(f"the response's content is {than} than its content-length")

    async def _until_taken(self) -> None:
        """Waits until the client has taken the last block. Raises OSError if the client is gone."""
        while self._block:
            if self._taken is None or self._taken.done():
                self._taken = self._loop.create_future()
            await self._taken
        if self._failure is not None:
            raise OSError("the client has disconnected")

    def _on_start(self, message: Mapping[str, Any]) -> None:
        if message["status"] in BODYLESS_STATUSES:
            self._discard = True
        if not self._discard:
            for name, value in message.get("headers", ()):
                if name.lower() == b"content-length":
                    self._left_bytes = int(value)
        self._start = {"status": message["status"], "headers": list(message.get("headers", ()))}
        _wake(self._news)

    def _on_block(self, block: bytes, *, last: bool) -> None:
        if not self._discard:
            self._block = block
        if last:
            self._complete = True
            self._end()
        _wake(self._news)

    # --- for the client

    async def response(self) -> httpx.Response:
        """Returns the response once the app has begun it. If the request fails before, raises the error."""
        while self._start is None:
            if self._failure is not None:
                raise self._failure
            await self._wait()
        status, headers = self._start["status"], self._start["headers"]
        return cast(httpx.Response, self._family.Response(status, headers=headers, stream=self))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                if self._block:
                    block, self._block = self._block, b""
                    _wake(self._taken)
                    yield block
                elif self._failure is not None:
                    raise self._failure
                elif self._complete:
                    return
                else:
                    self._silent_since_s = max(self._silent_since_s, self._loop.time())
                    await self._wait()
        except BaseException:
            self.disconnect()
            raise

    async def aclose(self) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        self._lose(httpx.ReadError("the response was closed before its end"))

    async def _wait(self) -> None:
        news = self._news = self._loop.create_future()
        if self._timeout_s is not None:
            self._timer = self._loop.call_later(self._timeout_s, self._look_at_silence, self._timeout_s)
        try:
            await news
        finally:
            self._news = None
            if self._timer is not None:
                self._timer.cancel()

    def _look_at_silence(self, timeout_s: float) -> None:
        left_s = min(timeout_s, self._silent_since_s + timeout_s - self._loop.time())
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look_at_silence, timeout_s)
        else:
            self._lose(httpx.ReadTimeout(f"the app sent nothing for {timeout_s} s"))

    def _lose(self, error: BaseException) -> None:
        """Ends an incomplete request. The client gets the error, and the app gets a disconnect."""
        if self._complete or self._failure is not None:
            return
        self._failure = error_of(self._family, error)
        self._block = b""
        self._end()
        _wake(self._news)
        _wake(self._taken)

    def _end(self) -> None:
        if self._over is not None:
            self._over.set()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
