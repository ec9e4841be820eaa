"""A fast transport for load tests: `httpx.AsyncClient(transport=LoadTransport())`.

`LoadTransport` does what httpx's own transport does for HTTP/1.1: keep-alive, streaming both ways, timeouts, TLS, IPv6,
Unix sockets and WebSockets. It supports neither HTTP/2 nor proxies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from importlib import import_module
from time import monotonic_ns
from types import ModuleType
from typing import Any, cast

import httpx

from pytest_fileperf.plan.network import Network, Reach
from pytest_fileperf.wire.connect import Origin, open_socket, require_allowed, tls_context
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import Breach, Scratch
from pytest_fileperf.wire.family import classes_of, error_of, family_of, kind
from pytest_fileperf.wire.framing import SWITCHED, ResponseHead
from pytest_fileperf.wire.request import compile_request

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_QUEUED_BYTES = 1 << 20
"""If the client leaves more bytes of a body than this unread, the connection stops reading."""
_KEPT_IDLE_NS = 5_000_000_000
"""A connection that had no request for this long is not used again, as in httpx."""
_TIMER_SLACK_S = 0.005
"""Event loops round timers, so a timer may fire this early."""
_NO_HTTP2 = "Does the server support HTTP/2? uvicorn does not, Granian does: see http2 in the reference"


class LoadTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an `httpx.AsyncClient` or `httpx2.AsyncClient`.

    Responses and errors are objects of the client's own package. This text names only httpx's.

    `uds` is the path of a Unix socket, to which all requests go. `verify` is an `ssl.SSLContext`, True for httpx's
    default context, or False for no checks.

    If `max_connections` are in use, further requests wait, or fail with httpx.PoolTimeout. By default no request waits.

    `only_to` contains IP addresses. The transport then connects only to these addresses and to this machine. For any
    other host, even after a redirect, it raises httpx.ConnectError. By default, all hosts are allowed.

    Transports on one event loop may share a `scratch`, which saves memory: it contains their buffers. Needs an asyncio
    event loop with `add_reader`: uvloop, or asyncio's selector loop.
    """

    def __init__(
        self,
        *,
        uds: str | None = None,
        verify: ssl.SSLContext | bool = True,
        max_connections: int | None = None,
        only_to: Collection[str] | Network | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self._uds = uds
        if only_to is not None and not isinstance(only_to, Network):
            only_to = Network(addresses=frozenset(only_to))
        self._only_to = only_to
        self._verify = verify
        self._context: ssl.SSLContext | None = None
        self._max_connections = max_connections
        self._places: asyncio.Semaphore | None = None
        self._under_way = 0
        """How many requests use one of the `max_connections`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scratch = scratch or Scratch()
        self._free: dict[Origin, deque[Connection]] = {}
        self._open: set[Connection] = set()
        self.breaches: Counter[Breach] = Counter()
        """How often servers broke the protocol in each way."""
        self.under_way: Callable[[], Callable[[int], None]] | None = None
        """Called when a request starts. The returned function is called with the instant (ns) of the request's end."""
        self.unsent_bytes = 0
        """How many bytes of requests were still unsent when the server answered."""

    def handle_async_request(self, request: httpx.Request) -> Coroutine[Any, Any, httpx.Response]:
        """Sends the request. Returns the response once its status and headers have arrived."""
        family = family_of(request)
        return self._response(request) if family is httpx else self._foreign(request, family)

    async def _foreign(self, request: httpx.Request, family: ModuleType) -> httpx.Response:
        try:
            return await self._response(request, family)
        except httpx.TransportError as error:
            raise error_of(family, error) from error.__cause__

    async def _response(self, request: httpx.Request, family: ModuleType = httpx) -> httpx.Response:
        self._enter_loop()
        origin, compiled = _origin(request), compile_request(request, family)
        timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        # To look for a connection is the client's own work; to wait for one is not.
        connection = self._free_connection(origin) if self._places is None else None
        ended = None if self.under_way is None else self.under_way()
        if connection is None:
            try:
                connection = await self._connection(origin, timeout)
            except BaseException:
                if ended is not None:
                    ended(monotonic_ns())
                raise
        own = kind(family, _Exchange, "AsyncByteStream")
        exchange = own(self, origin, connection, timeout.get("read"), ended, family)
        try:
            if compiled is None:
                await self._send_stream(request, connection, exchange, timeout.get("write"))
            else:
                connection.start(compiled, exchange)
                if connection.sending:
                    await connection.drained(timeout.get("write"))
            head = await exchange.head()
        except BaseException:
            exchange.close()
            raise
        extensions: dict[str, object] = {"http_version": head.version, "reason_phrase": head.reason}
        if head.status == SWITCHED:
            extensions["network_stream"] = exchange
        made = family.Response(head.status, headers=head.headers, stream=exchange, extensions=extensions)
        return cast(httpx.Response, made)

    async def aclose(self) -> None:
        """Closes all connections. Requests under way fail with httpx.ReadError."""
        for connection in tuple(self._open):
            connection.fail(httpx.ReadError("the client was closed"))
        self._open.clear()
        self._free.clear()

    def release(self, origin: Origin, connection: Connection) -> None:
        """Takes back a connection whose request has ended or failed."""
        self._note(connection)
        if not connection.closed and not connection.busy:
            self._free.setdefault(origin, deque()).append(connection)
        else:
            connection.close()
            self._open.discard(connection)
        self.release_place()

    def _note(self, connection: Connection) -> None:
        if connection.breach is not None:
            self.breaches[connection.breach] += 1
            self.unsent_bytes += connection.unsent_bytes
            connection.breach = None

    def release_place(self) -> None:
        """Lets the next request start if one waits because of `max_connections`."""
        if self._places is not None:
            self._under_way -= 1
            self._places.release()

    def _enter_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "LoadTransport needs a running event loop of asyncio or uvloop. Under trio use httpx's own "
                "transport, httpx.AsyncHTTPTransport()"
            ) from None
        if loop is self._loop:
            return
        if not hasattr(loop, "add_reader") or type(loop).__name__ == "ProactorEventLoop":
            raise RuntimeError(
                "LoadTransport needs an event loop with add_reader. On Windows run asyncio.run(main(), "
                "loop_factory=asyncio.SelectorEventLoop)"
            )
        for connection in self._open:
            connection.abandon()
        self._open.clear()
        self._free.clear()
        self._loop = loop
        self._under_way = 0
        self._places = asyncio.Semaphore(self._max_connections) if self._max_connections is not None else None

    async def _take_place(self, timeout_s: float | None) -> None:
        if self._places is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout(f"no free connection within {timeout_s} s") from error
        self._under_way += 1

    async def _connection(self, origin: Origin, timeout: Mapping[str, float | None]) -> Connection:
        await self._take_place(timeout.get("pool"))
        try:
            return self._free_connection(origin) or await self._connect(origin, timeout.get("connect"))
        except BaseException:
            self.release_place()
            raise

    def _free_connection(self, origin: Origin) -> Connection | None:
        """Returns the most recently used free connection; None if no usable connection is free."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if not connection.stale() and monotonic_ns() - connection.ended_ns < _KEPT_IDLE_NS:
                return connection
            self._note(connection)
            connection.close()
            self._open.discard(connection)
        return None

    def close_rested(self) -> None:
        """Closes free connections that have been idle for too long to be used again."""
        before_ns = monotonic_ns() - _KEPT_IDLE_NS
        for free in self._free.values():
            while free and free[0].ended_ns <= before_ns:
                connection = free.popleft()
                connection.close()
                self._open.discard(connection)

    async def _connect(self, origin: Origin, timeout_s: float | None) -> Connection:
        self._make_room()
        sock = await open_socket(origin, uds=self._uds, tls=self._tls, timeout_s=timeout_s, only_to=self._only_to)
        assert self._loop is not None
        connection = Connection(self._loop, sock, self._scratch)
        self._open.add(connection)
        return connection

    def _make_room(self) -> None:
        """Closes idle connections if a further connection would exceed `max_connections`."""
        if self._max_connections is None:
            return
        idle = [(free, connection) for free in self._free.values() for connection in free]
        for free, connection in idle[: max(0, len(idle) + self._under_way - self._max_connections)]:
            free.remove(connection)
            self._open.discard(connection)
            connection.close()

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            given = self._verify
            self._context = given if isinstance(given, ssl.SSLContext) else tls_context(Reach(trusted=given))
        return self._context

    async def _send_stream(
        self, request: httpx.Request, connection: Connection, exchange: _Exchange, timeout_s: float | None
    ) -> None:
        stream: object = request.stream
        if not isinstance(stream, exchange.family.AsyncByteStream):
            raise RuntimeError("Attempted to send a sync request with an AsyncClient instance.")
        chunked = "chunked" in request.headers.get("Transfer-Encoding", "").lower()
        left = None if chunked else int(request.headers.get("Content-Length", 0))
        connection.start_streamed(request, exchange)
        async for block in stream:
            if not connection.busy:
                self.unsent_bytes += left or 0
                return  # the server has answered early and does not need the rest
            if left is not None:
                left -= len(block)
                if left < 0:
                    raise httpx.LocalProtocolError("Too much data for declared Content-Length")
            if block:
                await connection.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block, timeout_s)
        if left:
            raise httpx.LocalProtocolError("Too little data for declared Content-Length")
        if chunked:
            await connection.write(b"0\r\n\r\n", timeout_s)
        connection.finish_stream()


class Http2Transport(httpx.AsyncBaseTransport):
    """Speaks HTTP/2, by httpx's or httpx2's own transport. Without TLS, it assumes that the server speaks HTTP/2."""

    def __init__(self, family: ModuleType, *, uds: str | None, tls: ssl.SSLContext | None, only_to: Network) -> None:
        self._family, self._only_to = family, only_to
        how: dict[str, Any] = {"uds": uds, "verify": tls or False, "trust_env": False, "http1": tls is not None}
        self._own = family.AsyncHTTPTransport(http2=True, **how)
        self._answered: set[Origin] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Returns the response.

        Raises RemoteProtocolError if the server answers in HTTP/1.1, ConnectError if `only_to` forbids the host.
        """
        origin, broken = _origin(request), self._family.RemoteProtocolError
        try:
            if origin not in self._answered:
                await require_allowed(origin, self._only_to)
            response: httpx.Response = await self._own.handle_async_request(request)
        except httpx.ConnectError as error:
            raise error_of(self._family, error) from error.__cause__
        except broken as error:
            raise error if origin in self._answered else broken(f"{error}. {_NO_HTTP2}") from error
        if (spoken := response.extensions["http_version"]) != b"HTTP/2":
            await response.aclose()
            raise broken(f"the answer is in {spoken.decode()}. {_NO_HTTP2}")
        self._answered.add(origin)
        return response

    async def aclose(self) -> None:
        await self._own.aclose()


class _Exchange(httpx.AsyncByteStream):
    """One request under way: gets the answer from the connection, and is the body stream of httpx's response."""

    def __init__(
        self,
        transport: LoadTransport,
        origin: Origin,
        connection: Connection,
        read_timeout_s: float | None,
        ended: Callable[[int], None] | None,
        family: ModuleType,
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection: Connection | None = connection
        self._timeout_s = read_timeout_s
        self._ended = ended
        self.family = family
        self._head: ResponseHead | None = None
        self._blocks: deque[bytes] = deque()
        self._queued_bytes = 0
        self._complete = False
        self._error: BaseException | None = None
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since_ns = 0

    # --- calls from the connection

    def on_head(self, head: ResponseHead) -> bool:
        self._head = head
        if head.status == SWITCHED and self._connection is not None:
            self._connection.switched = True
        self._wake()
        return True

    def on_body(self, data: memoryview) -> None:
        self._blocks.append(bytes(data))
        self._queued_bytes += len(data)
        if self._queued_bytes > _QUEUED_BYTES and self._connection is not None:
            self._connection.pause()
        self._wake()

    def on_end(self, repeated: bool) -> bool:
        self._complete = True
        self._give_back()
        self._wake()
        return False

    def on_failure(self, error: httpx.TransportError) -> None:
        self._error = error_of(self.family, error)
        self._give_back()
        self._wake()

    # --- calls from the client

    async def head(self) -> ResponseHead:
        """Returns the response's head once it has arrived. If the request fails before, raises the error."""
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._head

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._head is not None and self._head.status == SWITCHED:
            return  # another protocol follows, so there is no body
        try:
            while True:
                while self._blocks:
                    block = self._blocks.popleft()
                    self._queued_bytes -= len(block)
                    yield block
                if self._error is not None:
                    raise self._error
                if self._complete:
                    return
                if self._connection is not None:
                    self._connection.resume()
                await self._wait()
        except BaseException:
            self.close()
            raise

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._give_back()

    # --- httpx-ws's and httpx2's `websocket()` need this from a `network_stream`, with errors of httpcore or httpcore2

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._timeout_s = timeout
        while not (self._blocks or self._complete):
            if self._connection is None:
                raise self._of_core(self._error or httpx.ReadError("the connection was closed"))
            self._connection.resume()
            await self._wait()
        block = self._blocks.popleft() if self._blocks else b""
        if rest := block[max_bytes:]:
            self._blocks.appendleft(rest)
        self._queued_bytes -= len(block) - len(rest)
        return block[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            if self._connection is None:
                raise httpx.WriteError("the connection was closed")
            await self._connection.write(buffer, timeout)
        except httpx.TransportError as error:
            raise self._of_core(error) from error

    def _of_core(self, error: BaseException) -> Exception:
        core = import_module("httpcore" if self.family is httpx else "httpcore2")
        return cast(Exception, getattr(core, classes_of(error)[0])(str(error)))

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._ended is not None:
                self._ended(connection.ended_ns if self._complete else monotonic_ns())
            self._transport.release(self._origin, connection)

    async def _wait(self) -> None:
        """Waits until the connection reports something: a part of the answer, or a failure such as a timeout."""
        loop = asyncio.get_running_loop()
        news = self._news = loop.create_future()
        self._silent_since_ns = monotonic_ns()
        if self._timeout_s is not None:
            self._timer = loop.call_later(self._timeout_s, self._check_silence, loop, self._timeout_s)
        try:
            await news
        finally:
            self._news = None
            if self._timer is not None:
                self._timer.cancel()

    def _check_silence(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """Fails the request if the server has sent no byte for `timeout_s`. Otherwise checks again later."""
        if self._connection is None:
            return
        silent_s = (monotonic_ns() - max(self._silent_since_ns, self._connection.ended_ns)) / 1e9
        if silent_s < timeout_s - _TIMER_SLACK_S:
            self._timer = loop.call_later(timeout_s - silent_s, self._check_silence, loop, timeout_s)
        else:
            self._connection.fail(httpx.ReadTimeout(f"the server sent nothing for {timeout_s} s"))

    def _wake(self) -> None:
        news = self._news
        if news is not None and not news.done():
            news.set_result(None)


def _origin(request: httpx.Request) -> Origin:
    url = request.url
    if url.scheme not in _DEFAULT_PORTS:
        raise httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol {url.scheme!r}: use http or https.")
    return Origin(url.scheme, url.host, url.port or _DEFAULT_PORTS[url.scheme])
