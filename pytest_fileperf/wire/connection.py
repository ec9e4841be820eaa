"""One HTTP/1.1 connection: a raw non-blocking socket with one request at a time.

There is no asyncio transport in between: the event loop's callback reads an answer and parses it. The code that uses
the connection decides when to send, how long to wait and whether the answer is good.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from time import monotonic_ns

import httpx

from pytest_fileperf.wire.chunks import ChunkedReader
from pytest_fileperf.wire.connect import breach_of_idle
from pytest_fileperf.wire.exchange import SKIP_AT_LEAST_BYTES, SKIP_BYTES, Breach, Exchange, KnownAnswers, Scratch
from pytest_fileperf.wire.framing import CHUNKED, SWITCHED, UNTIL_CLOSE, HeadReader, ResponseHead
from pytest_fileperf.wire.request import WireRequest, asks_for_close, head_of
from pytest_fileperf.wire.sending import NOT_NOW, Sender


class Connection:
    """A connected socket. `start` sends a request, and its `Exchange` is called with the parts of the answer."""

    __slots__ = (
        "_body",
        "_chunks",
        "_discard",
        "_error_code",
        "_exchange",
        "_fd",
        "_getsockopt",
        "_head",
        "_heads",
        "_known",
        "_last",
        "_left",
        "_loop",
        "_method_is_head",
        "_paused",
        "_plain",
        "_raw",
        "_recv_into",
        "_scratch",
        "_send",
        "_sender",
        "_sock",
        "_streaming",
        "body_bytes",
        "breach",
        "closed",
        "ended_ns",
        "first_byte_ns",
        "started_ns",
        "switched",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        scratch: Scratch,
        known: KnownAnswers | None = None,
    ) -> None:
        self._loop, self._sock, self._fd = loop, sock, sock.fileno()
        self._scratch, self._known = scratch, known
        self._raw = b""
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._getsockopt = sock.getsockopt
        self._sender = Sender(loop, sock, self.fail, self._cannot_send)
        self._plain = not isinstance(sock, ssl.SSLSocket)
        self._exchange: Exchange | None = None
        self._head: ResponseHead | None = None
        self._heads = HeadReader(scratch.heads)
        self._chunks: ChunkedReader | None = None
        self._left = self._body = self._error_code = 0
        self._discard = True
        self._method_is_head = self._last = self._streaming = self._paused = self.closed = False
        self.switched = False
        """Whether the server has switched to another protocol. All further bytes then count as a body."""
        self.started_ns = 0
        """When the first byte of the current request was written. All times are from `time.monotonic_ns`."""
        self.first_byte_ns = 0
        self.ended_ns = 0
        self.body_bytes = 0
        """How many bytes of the current answer's body have arrived. The size lines of chunks do not count."""
        self.breach: Breach | None = None
        """How the server broke the protocol; None if it did not. After a breach, the connection is not used again."""
        self.unsent_bytes = 0
        """How many bytes of the request were still unsent when it was answered or failed."""
        scratch.sockets.add()
        loop.add_reader(self._fd, self._readable)

    # --- sending

    def start(self, request: WireRequest, exchange: Exchange) -> None:
        """Sends a request. The connection must be free. If the socket is full, the rest of the bytes follows later."""
        self._begin(request.is_head, request.is_last, exchange)
        whole = request.whole
        if whole is not None:
            try:
                sent = self._send(whole)
            except NOT_NOW:
                sent = 0
            except OSError as error:
                self._cannot_send(error, len(whole))
                return
            if sent < len(whole):
                self._sender.send_later(memoryview(whole)[sent:])
            return
        self._sender.send(request.segments)

    def start_streamed(self, request: httpx.Request, exchange: Exchange) -> None:
        """Sends a request's head. Then the caller sends the body by `write`, and calls `finish_stream`."""
        head = head_of(request)
        self._begin(request.method == "HEAD", asks_for_close(request), exchange)
        self._streaming = True
        self._sender.send((memoryview(head),))

    def _begin(self, is_head: bool, is_last: bool, exchange: Exchange) -> None:
        self._exchange = exchange
        self._method_is_head = is_head
        self._last = is_last
        self._streaming = False
        self._head = None
        self._left = self.body_bytes = self.first_byte_ns = 0
        self.started_ns = monotonic_ns()

    async def write(self, data: bytes, timeout_s: float | None) -> None:
        if self._exchange is not None:
            self._sender.send((memoryview(data),))
            await self._sender.drained(timeout_s)

    def finish_stream(self) -> None:
        """Notes that a streamed body is complete. Without this call, the connection is not used again."""
        self._streaming = False

    async def drained(self, timeout_s: float | None) -> None:
        """Waits until all bytes are sent, or the server takes no more.

        Raises httpx.WriteTimeout if the socket takes nothing for `timeout_s`.
        """
        await self._sender.drained(timeout_s)

    # --- receiving

    def _readable(self) -> None:
        skips = self._left > SKIP_AT_LEAST_BYTES and self._discard and self._plain
        try:
            if skips:
                received = self._recv_into(self._scratch.nowhere, min(self._left, SKIP_BYTES), socket.MSG_TRUNC)
            else:
                received = self._recv_into(self._scratch.buffer)
        except NOT_NOW:
            return
        except OSError as error:
            self.breach = None if self.busy else Breach.CLOSED_UNSAID
            self.fail(httpx.ReadError(str(error)))
            return
        if received == 0:
            self._at_eof()
            return
        self.ended_ns = monotonic_ns()
        if self._exchange is None:
            self.breach = Breach.OUT_OF_STEP
            self.close()
            return
        try:
            if skips:
                self._skipped(received)
            elif self._head is None:
                if self._known is None or received > KnownAnswers.LONGEST_BYTES or self._heads.partial:
                    self._take_head(received)
                else:
                    self._take_start(received, self._known)
            else:
                self._take_body(self._scratch.view[:received])
        except httpx.RemoteProtocolError as error:
            self.fail(error)
            return
        # The kernel is asked only about an incomplete answer. A next request that was just sent has no first byte yet.
        if self.first_byte_ns and self.busy and (code := self._getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self._error_code = code
            self._read_to_the_end()
        elif not self._plain and not self.closed and self._sock.pending():  # type: ignore[attr-defined]
            self._loop.call_soon(self._readable_again)

    def _read_to_the_end(self) -> None:
        """Reads all bytes that came before the server reset the connection."""
        # For such bytes and the reset, uvloop calls the reader only once.
        while self._exchange is not None and not self._paused:
            before_ns, self.ended_ns = self.ended_ns, 0
            self._readable()
            if not self.ended_ns:
                self.ended_ns = before_ns
                self.fail(httpx.ReadError(os.strerror(self._error_code)))

    def _cannot_send(self, error: OSError, unsent_bytes: int) -> None:
        self._error_code = error.errno or errno.ECONNRESET
        self.unsent_bytes = unsent_bytes
        self._known = None
        # As in httpx, the connection still reads, because an answer may be there.
        self._loop.call_soon(self._read_to_the_end)

    def _readable_again(self) -> None:
        """Reads bytes that TLS has already decrypted. For such bytes, the socket does not become readable."""
        if not self.closed and not self._paused:
            self._readable()

    def _skipped(self, received: int) -> None:
        self.body_bytes += received
        self._left -= received
        if self._chunks is not None:
            self._chunks.skip(received)
        elif self._left == 0:
            self._end()

    def _take_start(self, received: int, known: KnownAnswers) -> None:
        """Takes the first bytes of an answer. If they equal a known good answer, the answer is complete."""
        raw = bytes(self._scratch.view[:received])
        answer = known.get(raw)
        if answer is not None and not self._sender.unfinished:
            exchange, self._exchange = self._exchange, None
            assert exchange is not None
            self._head, self.body_bytes = answer
            self.first_byte_ns = self.ended_ns
            exchange.on_end(True)
            return
        self._raw = raw  # becomes known if it is a whole good answer
        self._take_head(received)
        self._raw = b""

    def _take_head(self, received: int) -> None:
        if not self.first_byte_ns:
            self.first_byte_ns = self.ended_ns
        found = self._heads.feed(self._scratch.buffer, received)
        if found is None:
            return
        head, rest = found
        if head.body != len(rest) or self._method_is_head:
            self._begin_body(head, rest)
            return
        # Most short answers are complete after one read.
        exchange = self._exchange
        assert exchange is not None
        self._head = head
        self._body = self.body_bytes = head.body
        if exchange.on_head(head) and rest:
            exchange.on_body(rest)
        self._end()

    def _begin_body(self, head: ResponseHead, rest: memoryview) -> None:
        self._head = head
        assert self._exchange is not None
        self._discard = not self._exchange.on_head(head)
        length = 0 if self._method_is_head or (head.status == SWITCHED and not self.switched) else head.body
        self._body = length
        self._left = max(0, length)
        self._chunks = ChunkedReader() if length == CHUNKED else None
        if length == 0:
            self._end(leftover=len(rest))
        elif rest:
            self._take_body(rest)

    def _take_body(self, data: memoryview) -> None:
        exchange = self._exchange
        assert exchange is not None
        if self._body >= 0:
            size = min(len(data), self._left)
            self._left -= size
            self.body_bytes += size
            if not self._discard:
                exchange.on_body(data[:size])
            if self._left == 0:
                self._end(leftover=len(data) - size)
            return
        if self._body == UNTIL_CLOSE:
            self.body_bytes += len(data)
            if not self._discard:
                exchange.on_body(data)
            return
        chunks = self._chunks
        assert chunks is not None
        used = chunks.feed(data, None if self._discard else exchange.on_body)
        self._left = chunks.left
        self.body_bytes = chunks.received
        if used >= 0:
            self._end(leftover=len(data) - used)

    def _at_eof(self) -> None:
        self.ended_ns = monotonic_ns()
        if self._exchange is None:
            self.breach = Breach.CLOSED_UNSAID
            self.close()
        elif self._error_code:
            self.fail(httpx.ReadError(os.strerror(self._error_code)))
        elif not self.first_byte_ns:
            self.fail(httpx.RemoteProtocolError("Server disconnected without sending a response."))
        elif self._head is not None and self._body == UNTIL_CLOSE:
            self._end()
        else:
            early = (
                "in the middle of the response head" if self._head is None else "without sending complete message body"
            )
            self.fail(httpx.RemoteProtocolError(f"peer closed connection {early}"))

    # --- ending

    def _end(self, leftover: int = 0) -> None:
        exchange, head = self._exchange, self._head
        assert exchange is not None
        assert head is not None
        self._exchange = None
        if self._paused:
            self.resume()
        if self._sender.unfinished:
            self.unsent_bytes = self._sender.unsent_bytes
        if self._streaming or self.unsent_bytes:
            self.breach = Breach.CUT_OFF
        elif leftover:
            self.breach = Breach.OUT_OF_STEP
        if self.breach is not None or self._last or not head.keep_alive or self._body == UNTIL_CLOSE:
            self._scratch.sockets.closed_said += self.breach is None and not self._last
            self.close()
        raw, body_bytes = b"" if self.closed else self._raw, self.body_bytes
        if exchange.on_end(False) and raw and self._known is not None:
            self._known.keep(raw, head, body_bytes)

    def fail(self, error: httpx.TransportError) -> None:
        """Closes the connection. If a request is under way, its exchange gets the error."""
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.on_failure(error)

    def close(self) -> None:
        """Closes the socket. The exchange is not called."""
        if self.closed:
            return
        self._sender.drop()
        if not self._paused:
            self._loop.remove_reader(self._fd)
        self.abandon()

    def abandon(self) -> None:
        """Closes the socket, but does not use its event loop, which may be gone."""
        self._scratch.sockets.open -= not self.closed
        self.closed = True
        self._exchange = None
        self._sock.close()

    # --- flow control and state

    @property
    def status(self) -> int:
        """The newest answer's status; 0 until its head has arrived."""
        return self._head.status if self._head is not None else 0

    @property
    def content_encoding(self) -> str:
        """The newest answer's `content-encoding`, such as `gzip`. Empty if there is none."""
        return self._head.content_encoding if self._head is not None else ""

    @property
    def busy(self) -> bool:
        return self._exchange is not None

    @property
    def sending(self) -> bool:
        return self._sender.unfinished

    def pause(self) -> None:
        """Stops reading from the socket until `resume`, so that the server has to wait."""
        if not self._paused and not self.closed:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._loop.add_reader(self._fd, self._readable)
            if not self._plain:
                self._loop.call_soon(self._readable_again)

    def stale(self) -> bool:
        """Returns whether a free connection is unusable, because the server closed it or sent a byte."""
        if not self.closed:
            self.breach = breach_of_idle(self._sock)
        return self.closed or self.breach is not None
