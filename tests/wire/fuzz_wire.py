"""Sends damaged answers through real sockets to our connections, and compares what they see with what h11 sees.

    python tests/wire/fuzz_wire.py --answers 100000 --first 0 --loop uvloop

Each answer has a number, and all about it follows from that: `--first 4711 --answers 1` plays one again. It ends with
status 1 after a difference that is not listed here, an exception that is no `httpx.TransportError`, or a hang.

What may differ:

- 101 is handed out by ours also where the client has not asked to switch protocols.
- The value of `Transfer-Encoding` is handed out as it was sent; h11 puts it in small letters.
- A connection of HTTP/1.0 is used again after `Connection: keep-alive` by ours, and never by h11.
- Bytes that follow an answer close our connection. How many had arrived with it is a matter of time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

import h11
import httpx

from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.request import compile_request
from pytest_fileperf.wire.transport import LoadTransport

LIMIT_S = 10
"""An answer that takes longer hangs."""
REPORT_EVERY = 1000
LARGEST_EVENT = 100 * 1024
"""As httpx's own transport sets it."""
LARGE = bytes(range(256)) * 800
SENT_AT_ONCE = 32 * 1024
"""A reset overtakes what the socket could not send at once, so larger answers end without one."""

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TEMPLATES = (
    HELLO,
    HELLO,
    b"HTTP/1.1 200 OK\r\ndate: Mon, 23 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: 11\r\n"
    b"content-type: text/plain; charset=utf-8\r\n\r\nhello world",
    CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    CHUNKED + b"5;a=b\r\nhello\r\n00000\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\nContent-Type: text/plain\n\nab\r\n\r\ncdef",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HELLO,
    b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nX: a\r\n b\r\nConnection: x, close\r\nContent-Length: 9\r\n\r\nnot found",
    HELLO + HELLO,
)
LARGE_TEMPLATES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE) + LARGE,
    CHUNKED + b"%x\r\n" % len(LARGE) + LARGE + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n" + LARGE,
)
TOKENS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\0", b" ", b"\t", b":", b";", b",", b"\x0b", b"\x7f", b"\xff",
    b"0", b"1", b"9",
    b"HTTP/", b"1.0", b"0.9", b"2.0", b"100", b"101", b"099", b"204", b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 05\r\n", b"content-length: 1, 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Upgrade: x\r\n",
    b"A: b\r\n",
    b" folded\r\n", b"00000000000000000000", b"ffffffffffffffff", b"-1", b"+1", b"0x", b"close", b"keep-alive",
    b"\r\nX: y",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One answer, and how it is sent and taken."""

    method: str
    pieces: tuple[bytes, ...]
    reset: bool
    """Whether a reset ends it, and not the end of the stream."""
    how: str
    """`deliver`, `discard`, `known`: on a connection, with or without its body; `client`: through `LoadTransport`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one of the two saw; the default is an error."""

    status: int = 0
    version: bytes = b""
    reason: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes | None = None
    """None where it was thrown away."""
    size_bytes: int = 0
    reused: bool | None = None
    """Whether the connection can be used again; None where that is not compared."""


ERROR = Seen()


def played(number: int) -> Played:
    """Returns the answer of that number."""
    chance = random.Random(number)
    raw = bytearray(chance.choice(LARGE_TEMPLATES if chance.random() < 0.03 else TEMPLATES))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        _mutate(raw, chance)
    cuts = sorted(chance.randrange(len(raw) + 1) for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 4))))
    edges = [0, *cuts, len(raw)]
    pieces = [bytes(raw[start:stop]) for start, stop in itertools.pairwise(edges)]
    return Played(
        method=chance.choice(("GET", "GET", "GET", "HEAD")),
        pieces=tuple(piece for piece in pieces if piece),
        reset=chance.random() < 0.2 and len(raw) < SENT_AT_ONCE,
        how=chance.choice(("deliver", "discard", "known", "client")),
    )


def _mutate(raw: bytearray, chance: random.Random) -> None:
    # Large bodies are random enough: what is damaged lies near the ends.
    place = chance.randrange(len(raw) + 1) if len(raw) < 2000 or chance.random() < 0.2 else chance.randrange(100)
    match chance.randrange(7):
        case 0:
            raw[place : place + 1] = bytes((chance.randrange(256),))
        case 1:
            raw[place:place] = bytes((chance.randrange(256),))
        case 2:
            del raw[place : place + chance.choice((1, 1, 2, 5))]
        case 3 | 4:
            raw[place:place] = chance.choice(TOKENS)
        case 5:
            raw[place : place + chance.randrange(20)] = chance.choice(TOKENS)
        case _:
            start = chance.randrange(len(raw) + 1)
            raw[place:place] = raw[start : start + chance.randrange(40)]


# --- what h11 makes of it


def oracle(case: Played) -> Seen:
    """Returns what h11 sees of an answer."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_EVENT)
    connection.send(h11.Request(method=case.method, target="/", headers=[("Host", "any")]))
    connection.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = bytearray()
    for piece in (*case.pieces, b""):
        if not piece and case.reset:
            return ERROR
        try:
            connection.receive_data(piece)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    break
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    return _seen_by_h11(head, bytes(body), connection, last=piece is case.pieces[-1], ended=not piece)
                elif not isinstance(event, h11.InformationalResponse):
                    return ERROR
        except h11.RemoteProtocolError:
            return ERROR
    return ERROR


def _seen_by_h11(head: h11.Response, body: bytes, connection: h11.Connection, *, last: bool, ended: bool) -> Seen:
    reused: bool | None = connection.our_state is h11.DONE and connection.their_state is h11.DONE
    if ended:
        reused = False
    elif connection.trailing_data[0] or (reused and not last):
        reused = None
    return Seen(
        status=head.status_code,
        version=b"HTTP/" + bytes(head.http_version),
        reason=bytes(head.reason),
        headers=tuple((bytes(name), bytes(value)) for name, value in head.headers.raw_items()),
        body=body,
        size_bytes=len(body),
        reused=reused,
    )


# --- what ours makes of it


class Told:
    """Notes what a connection says of one answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, body: bool) -> None:
        self.done: asyncio.Future[bool] = loop.create_future()
        self.connection: Connection | None = None
        self.head: ResponseHead | None = None
        self.body = bytearray()
        self._wants_body = body
        self.reused = False

    def on_head(self, head: ResponseHead) -> bool:
        """Takes the head."""
        self.head = head
        return self._wants_body

    def on_body(self, data: memoryview) -> None:
        """Takes a piece of the body."""
        self.body += data

    def on_end(self, repeated: bool) -> bool:
        """Takes the end."""
        assert self.connection is not None
        self.reused = not self.connection.closed
        self.done.set_result(repeated)
        return True

    def on_failure(self, error: httpx.TransportError) -> None:
        """Takes the end without an answer."""
        self.done.set_exception(error)


@dataclass(slots=True, kw_only=True)
class Ours:
    """Plays answers to our connections and transports."""

    loop: asyncio.AbstractEventLoop
    listener: socket.socket
    scratch: Scratch = field(default_factory=Scratch)
    known: dict[str, KnownAnswers] = field(default_factory=lambda: {"GET": KnownAnswers(), "HEAD": KnownAnswers()})
    repeated: int = 0
    """Answers that were known by their bytes."""

    async def see(self, case: Played) -> Seen:
        """Returns what ours sees of an answer; raises what is no `httpx.TransportError`."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return await (self._by_client(case) if case.how == "client" else self._by_connection(case))
        except httpx.TransportError:
            return ERROR

    async def _by_connection(self, case: Played) -> Seen:
        sock = socket.create_connection(self.listener.getsockname())
        sock.setblocking(False)
        connection = Connection(self.loop, sock, self.scratch, self.known[case.method] if case.how == "known" else None)
        told = Told(self.loop, body=case.how == "deliver")
        told.connection = connection
        request = compile_request(httpx.Request(case.method, "http://any/"))
        assert request is not None
        connection.start(request, told)
        try:
            await self._answer(case, self.listener.accept()[0])
            repeated = await told.done
        finally:
            connection.close()
            told.connection = None
        if repeated:
            self.repeated += 1
            return Seen(status=connection.status, size_bytes=connection.body_bytes, reused=told.reused)
        assert told.head is not None
        return Seen(
            status=told.head.status,
            version=told.head.version,
            reason=told.head.reason,
            headers=told.head.headers,
            body=bytes(told.body) if case.how == "deliver" else None,
            size_bytes=connection.body_bytes,
            reused=told.reused,
        )

    async def _by_client(self, case: Played) -> Seen:
        host, port = self.listener.getsockname()
        transport = LoadTransport(scratch=self.scratch)
        request = httpx.Request(case.method, f"http://{host}:{port}/")
        asked = asyncio.ensure_future(transport.handle_async_request(request))
        try:
            sock, _ = await self.loop.sock_accept(self.listener)
            await self._answer(case, sock)
            response = await asked
            assert isinstance(response.stream, httpx.AsyncByteStream)
            body = b"".join([block async for block in response.stream])
        finally:
            asked.cancel()
            await transport.aclose()
        return Seen(
            status=response.status_code,
            version=response.extensions["http_version"],
            reason=response.extensions["reason_phrase"],
            headers=tuple(response.headers.raw),
            body=body,
            size_bytes=len(body),
        )

    async def _answer(self, case: Played, sock: socket.socket) -> None:
        """Reads the request, sends the pieces and ends the connection."""
        with sock:
            sock.setblocking(False)
            try:
                await self.loop.sock_recv(sock, 4096)
                for number, piece in enumerate(case.pieces):
                    if number:
                        await asyncio.sleep(0)
                    await self.loop.sock_sendall(sock, piece)
                if case.reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass  # the client has seen enough


def same(case: Played, seen: Seen, truth: Seen) -> bool:
    """Returns whether both saw the same, but for the differences that are listed above."""
    if seen.status == 101:
        return True
    if seen == ERROR or truth == ERROR:
        # Where bytes follow an answer and then a reset, both is right: the answer is there.
        return seen == truth
    if (seen.status, seen.size_bytes) != (truth.status, truth.size_bytes):
        return False
    if seen.version:  # else it was known by its bytes
        told = (truth.version, truth.reason, _comparable(truth.headers))
        if (seen.version, seen.reason, _comparable(seen.headers)) != told:
            return False
        if seen.body not in (None, truth.body):
            return False
    kept_by_ours = truth.version == b"HTTP/1.0" and seen.reused
    return None in (seen.reused, truth.reused) or seen.reused == truth.reused or bool(kept_by_ours)


def _comparable(headers: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    return [(name, value.lower() if name.lower() == b"transfer-encoding" else value) for name, value in headers]


async def fuzz(first: int, answers: int) -> int:
    """Plays the answers; returns how many were wrong, and prints each of them."""
    loop = asyncio.get_running_loop()
    caught = _Errors()
    loop.set_exception_handler(caught)
    wrong = good = 0
    started_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        ours = Ours(loop=loop, listener=listener)
        for number in range(first, first + answers):
            case = played(number)
            truth = oracle(case)
            listener.setblocking(case.how != "client")
            problem = ""
            try:
                seen = await ours.see(case)
                if not same(case, seen, truth):
                    problem = f"ours saw {_short(seen)}\n    h11 saw  {_short(truth)}"
            except Exception as error:
                problem = f"hangs for {LIMIT_S} s" if isinstance(error, TimeoutError) else f"raises {error!r}"
            if caught.seen:
                problem += f" and the event loop caught {caught.seen.pop()!r}"
            good += truth != ERROR
            if problem:
                wrong += 1
                print(f"{number}: {problem}\n    {_short(case)}", flush=True)
            if (done := number - first + 1) % REPORT_EVERY == 0 or done == answers:
                rate = done / (time.monotonic() - started_s)
                print(
                    f"answers {first} to {number}: {done:,} ({good:,} whole, {ours.repeated:,} known by their bytes), "
                    f"{wrong} wrong, {rate:,.0f}/s",
                    flush=True,
                )
    return wrong


class _Errors:
    """Keeps what the event loop caught."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self.seen.append(context.get("exception") or context["message"])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 800 else f"{text[:500]} … {text[-300:]}"


def main() -> None:
    """Reads the arguments and fuzzes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    arguments = parser.parse_args()
    if arguments.loop == "uvloop":
        import uvloop

        wrong = uvloop.run(fuzz(arguments.first, arguments.answers))
    else:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            wrong = runner.run(fuzz(arguments.first, arguments.answers))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
