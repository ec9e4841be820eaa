"""Cases about connections: how long they live, how they fail, how long the client waits, and over what they run."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
from wire.conformance import (
    Answer,
    Ask,
    Case,
    Difference,
    Over,
    Seen,
    chunked,
    http,
    in_chunks,
    observe,
    once,
    replies,
    seen,
    shortened,
    twice,
)
from wire.scripted import Drain, Fin, Pause, Request, RequestHead, Reset, ScriptedServer, Send

HELLO = http("Content-Length: 5", body=b"hello")
CHUNKED = in_chunks(chunked(b"hel", b"lo"))
REFUSED = http("Content-Length: 3", status="413 Content Too Large", body=b"no!")
REFUSED_AND_CLOSED = http("Content-Length: 3", "Connection: close", status="413 Content Too Large", body=b"no!")
BROKEN = httpx.RemoteProtocolError
LARGE = bytes(16 << 20)
"""More than socket buffers on both sides take."""
SHORT_S = 0.05
SILENT = httpx.Timeout(5, read=SHORT_S)
"""For answers that never come: a busy machine may take longer than that to connect, which is another error."""
OLD_KEEP_ALIVE = Difference(
    reason="HTTP/1.0 with keep-alive (RFC 9112, C.2.2) is used again by ours, h11 never does",
    served=(2,),
)

KEEP_ALIVE = (
    *(
        twice(
            f"connection: {option}",
            http("Content-Length: 5", f"Connection: {option}", body=b"hello"),
            Answer(200, b"hello"),
            reused=option == "keep-alive",
        )
        for option in ("close", "x, Close", "keep-alive")
    ),
    twice(
        "connection: close, chunked",
        http("Transfer-Encoding: chunked", "Connection: close", body=chunked(b"hi")),
        Answer(200, b"hi"),
        reused=False,
    ),
    twice(
        "HTTP/1.0",
        http("Content-Length: 5", version="HTTP/1.0", body=b"hello"),
        Answer(200, b"hello", b"OK", "HTTP/1.0"),
        reused=False,
    ),
    twice(
        "HTTP/1.0 until the end", http(version="HTTP/1.0", body=b"hello"), Answer(200, b"hello"), Fin(), reused=False
    ),
    twice(
        "HTTP/1.0 with keep-alive",
        http("Content-Length: 5", "Connection: keep-alive", version="HTTP/1.0", body=b"hello"),
        Answer(200, b"hello"),
        reused=False,
        difference=OLD_KEEP_ALIVE,
    ),
    *(
        twice(
            f"{version} with connection: {option}",
            http("Content-Length: 5", f"Connection: {option}", version=version, body=b"hello"),
            Answer(200, b"hello", version=version),
            reused=False,
        )
        for version, option in (
            ("HTTP/1.0", "keep-alive, close"),
            ("HTTP/1.1", "keep-alive, close"),
            ("HTTP/0.9", "keep-alive"),
            ("HTTP/0.8", "x"),
        )
    ),
    twice(
        "client asks for close",
        HELLO,
        Answer(200, b"hello"),
        reused=False,
        ask=Ask(more={"headers": {"Connection": "close"}}),
    ),
    twice("server closes the idle connection", HELLO, Answer(200, b"hello"), Fin(), reused=False),
    twice("server resets the idle connection", HELLO, Answer(200, b"hello"), Reset(), reused=False),
    twice(
        "server says something on the idle connection",
        HELLO,
        Answer(200, b"hello"),
        Pause(0.002),
        Send(http("Connection: close", status="408 Request Timeout")),
        reused=False,
    ),
    Case(
        name="server closes the connection as the second request comes",
        scripts=((Request(), Send(HELLO), Request(), Fin()),),
        asks=(Ask(), Ask()),
        expect=(Answer(200, b"hello"), BROKEN),
        served=(2,),
    ),
    Case(
        name="an error on one connection leaves the client usable",
        scripts=((Request(), Send(b"garbage\r\n\r\n")), (Request(), Send(HELLO))),
        asks=(Ask(), Ask()),
        expect=(BROKEN, Answer(200, b"hello")),
        served=(1, 1),
    ),
    Case(
        name="different answers on one connection",
        scripts=replies(HELLO, CHUNKED, http(status="204 No Content"), HELLO),
        asks=(Ask(), Ask(method="POST", content=b"x"), Ask(method="DELETE"), Ask(method="HEAD")),
        expect=(Answer(200, b"hello"), Answer(200, b"hello"), Answer(204), Answer(200)),
        served=(4,),
    ),
)

UPLOAD, STREAMED = (Ask(method="POST", content=content) for content in (LARGE, lambda: _blocks(64, 1 << 18)))

EARLY = (
    *(
        Case(
            name=name,
            scripts=((RequestHead(), Drain(1000), Send(REFUSED_AND_CLOSED), Fin()), (Request(), Send(HELLO))),
            asks=(upload, Ask()),
            expect=(Answer(413, b"no!"), Answer(200, b"hello")),
            served=(1, 1),
        )
        for name, upload in (
            ("413 with close while the client sends", UPLOAD),
            ("413 while the client streams its body", STREAMED),
        )
    ),
    Case(
        name="413 without close while the client sends, body then read",
        scripts=((RequestHead(), Send(REFUSED), Drain(len(LARGE)), Request(), Send(HELLO)), (Request(), Send(HELLO))),
        asks=(UPLOAD, Ask()),
        expect=(Answer(413, b"no!"), Answer(200, b"hello")),
        served=(2,),
        difference=Difference(
            reason="once the answer is there the rest of the body is not sent, and the connection is closed",
            served=(1, 1),
        ),
        same_bytes=False,
    ),
    Case(
        name="413 and reset while the client sends",
        scripts=((RequestHead(), Drain(1000), Send(REFUSED_AND_CLOSED), Pause(), Reset()), (Request(), Send(HELLO))),
        asks=(UPLOAD, Ask()),
        expect=(httpx.ReadError, Answer(200, b"hello")),
        served=(1, 1),
        difference=Difference(
            reason="httpx reads after it has sent, when asyncio has thrown the answer away; ours has read it by then",
            expect=(Answer(413, b"no!"), Answer(200, b"hello")),
        ),
    ),
    *(
        Case(
            name=name,
            scripts=((RequestHead(), Drain(1000), Reset(raw)), (Request(), Send(HELLO))),
            asks=(upload, Ask()),
            expect=(httpx.ReadError, Answer(200, b"hello")),
            served=(1, 1),
        )
        for name, raw, upload in (
            ("reset without an answer while the client sends", b"", UPLOAD),
            ("part of an answer and a reset at once while the client sends", REFUSED[:-1], UPLOAD),
            ("part of an answer and a reset at once while the client streams its body", REFUSED[:-1], STREAMED),
        )
    ),
    Case(
        name="answer before a small body was read",
        scripts=((RequestHead(), Send(REFUSED), Drain(10), Request(), Send(HELLO)),),
        asks=(Ask(method="POST", content=b"0123456789"), Ask()),
        expect=(Answer(413, b"no!"), Answer(200, b"hello")),
        served=(2,),
    ),
)


async def _blocks(count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(size)


async def _connect_to_a_full_backlog(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(4)]
    try:
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        await asyncio.sleep(0.01)
        return [await observe(client, Ask(path=f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=SHORT_S))]
    finally:
        for sock in (listener, *waiting):
            sock.close()


async def _handshake_without_an_answer(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    ask = Ask(path=f"https://{server.authority}/", timeout=SHORT_S)
    return [await observe(client, ask)]


async def _connect_to_a_closed_port(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return [await observe(client, Ask(path=f"http://127.0.0.1:{port}/"))]


async def _wait_for_a_place(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    late = httpx.Timeout(5, pool=SHORT_S)
    async with client.stream("GET", "/") as response:
        blocked = await observe(client, Ask(timeout=late))
        await response.aread()
    return [blocked, seen(response), await observe(client, Ask(timeout=late))]


async def _asked(server: ScriptedServer) -> None:
    """Waits until the server has read a request, or the head of one."""
    async with asyncio.timeout(10):
        while not any(peer.requests for peer in server.peers):  # noqa: ASYNC110 - a script has no event for it
            await asyncio.sleep(0.001)


async def _cancel_in_the_body(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        reading = asyncio.ensure_future(response.aread())
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait((reading,))
    return ["cancelled" if reading.cancelled() else "not", await observe(client, Ask())]


async def _cancel_before_the_head(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    asking = asyncio.ensure_future(client.get("/"))
    await _asked(server)
    asking.cancel()
    await asyncio.wait((asking,))
    return ["cancelled" if asking.cancelled() else "not", await observe(client, Ask())]


async def _cancel_while_sending(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    asking = asyncio.ensure_future(client.post("/", content=LARGE))
    await _asked(server)
    asking.cancel()
    await asyncio.wait((asking,))
    return ["cancelled" if asking.cancelled() else "not", await observe(client, Ask())]


class cancelled(Exception):  # noqa: N801, N818
    """Stands in the table for a request that was cancelled: its name is what is observed."""


async def _fifty_at_once(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    asks = [Ask(method="POST", content=b"%d" % number * 100) for number in range(50)]
    answers = list(await asyncio.gather(*(observe(client, ask) for ask in asks)))
    return [*answers, await observe(client, Ask())]


async def _stream_and_close(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        await anext(response.aiter_raw(2))
    return [await observe(client, Ask())]


async def _close_the_client_under_way(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/"):
        pass
    await client.aclose()
    return []


async def _close_the_client_while_one_waits(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    waiting = asyncio.ensure_future(observe(client, Ask()))
    await _asked(server)
    await client.aclose()
    return [await asyncio.wait_for(waiting, 3)]


LATE = (
    *(
        once(f"read timeout {where}", raw, httpx.ReadTimeout, ask=Ask(timeout=SILENT))
        for where, raw in (
            ("before the head", b""),
            ("in the head", b"HTTP/1.1 200 OK\r\nX:"),
            ("in the body", HELLO[:-2]),
            ("in a chunk", CHUNKED[:-6]),
            ("after 100", http(status="100 Continue")),
        )
    ),
    *(
        once(
            f"read timeout counts silence{where}",
            b"",
            Answer(200, b"hello"),
            *(step for part in parts for step in (Pause(0.25), Send(part))),
            ask=Ask(timeout=httpx.Timeout(5, read=0.6)),
        )
        for where, parts in (
            (", not the whole answer", (HELLO[:-4], HELLO[-4:-2], HELLO[-2:])),
            (" in the head too", (HELLO[:9], HELLO[9:20], HELLO[20:])),
        )
    ),
    Case(
        name="a read timeout leaves the client usable",
        scripts=((Request(),), (Request(), Send(HELLO))),
        asks=(Ask(timeout=SILENT), Ask()),
        expect=(httpx.ReadTimeout, Answer(200, b"hello")),
        served=(1, 1),
    ),
    *(
        Case(
            name=f"write timeout{what}",
            scripts=((RequestHead(), Pause(3)),),
            asks=(replace(upload, timeout=httpx.Timeout(5, write=0.1)),),
            expect=(httpx.WriteTimeout,),
            served=(1,),
        )
        for what, upload in (("", UPLOAD), (" of a streamed body", STREAMED))
    ),
    Case(
        name="connect timeout in the TLS handshake",
        scripts=((Pause(3),),),
        act=_handshake_without_an_answer,
        expect=(httpx.ConnectTimeout,),
    ),
    Case(
        name="pool timeout",
        scripts=((Request(), Send(HELLO[:-1]), Pause(0.15), Send(HELLO[-1:]), Request(), Send(HELLO)),),
        act=_wait_for_a_place,
        max_connections=1,
        expect=(httpx.PoolTimeout, Answer(200, b"hello"), Answer(200, b"hello")),
    ),
    *(
        (Case(name="connect timeout", scripts=((),), act=_connect_to_a_full_backlog, expect=(httpx.ConnectTimeout,)),)
        if sys.platform == "linux"
        else ()
    ),
)

CANCELLED = (
    Case(
        name="cancelled before the head",
        scripts=((Request(),), (Request(), Send(HELLO))),
        act=_cancel_before_the_head,
        expect=(cancelled, Answer(200, b"hello")),
        served=(1, 1),
    ),
    Case(
        name="cancelled in the body",
        scripts=((Request(), Send(HELLO[:-2])), (Request(), Send(HELLO))),
        act=_cancel_in_the_body,
        expect=(cancelled, Answer(200, b"hello")),
        served=(1, 1),
    ),
    Case(
        name="cancelled while sending",
        scripts=((RequestHead(), Pause(0.05)), (Request(), Send(HELLO))),
        act=_cancel_while_sending,
        expect=(cancelled, Answer(200, b"hello")),
        served=(1, 1),
    ),
    Case(
        name="partly read and closed",
        scripts=((Request(), Send(HELLO[:-1])), (Request(), Send(HELLO))),
        act=_stream_and_close,
        expect=(Answer(200, b"hello"),),
        served=(1, 1),
    ),
    Case(
        name="client closed under way",
        scripts=((Request(), Send(HELLO[:-1])),),
        act=_close_the_client_under_way,
        expect=(),
        served=(1,),
    ),
    Case(
        name="client closed while a request waits",
        scripts=((Request(),),),
        act=_close_the_client_while_one_waits,
        expect=(httpx.ReadError,),
        served=(1,),
    ),
    *(
        Case(
            name=f"50 requests at once, connections: {most or 'any'}",
            scripts=replies(*[CHUNKED] * each),
            act=_fifty_at_once,
            max_connections=most,
            expect=(Answer(200, b"hello"),) * 51,
            same_bytes=False,
        )
        for most, each in ((None, 2), (5, 60))
    ),
)


async def _refused_then_fine(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    return [*await _connect_to_a_closed_port(client, server), await observe(client, Ask())]


async def _cancel_one_who_waits(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        waiting = asyncio.ensure_future(client.get("/"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await response.aread()
    return [seen(response), await observe(client, Ask())]


async def _two_names_in_turn(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    names = ("127.0.0.1", "localhost", "127.0.0.1")
    return [await observe(client, Ask(path=f"http://{name}:{server.port}/")) for name in names]


PLACES = (
    Case(
        name="errors give their place back",
        scripts=((Request(), Send(b"garbage\r\n\r\n")), (Request(),), (Request(), Reset()), (Request(), Send(HELLO))),
        asks=(Ask(), Ask(timeout=SILENT), Ask(), Ask()),
        expect=(BROKEN, httpx.ReadTimeout, httpx.ReadError, Answer(200, b"hello")),
        served=(1, 1, 1, 1),
        max_connections=1,
    ),
    Case(
        name="connections to two origins are no more than one together",
        scripts=((Request(), Send(HELLO)) * 3,),
        act=_two_names_in_turn,
        expect=(Answer(200, b"hello"),) * 3,
        served=(1, 1, 1),
        max_connections=1,
        same_bytes=False,
    ),
    Case(
        name="a refused connection gives its place back",
        scripts=((Request(), Send(HELLO)),),
        act=_refused_then_fine,
        expect=(httpx.ConnectError, Answer(200, b"hello")),
        served=(1,),
        max_connections=1,
    ),
    Case(
        name="one who is cancelled in the queue takes no place",
        scripts=((Request(), Send(HELLO[:-1]), Pause(0.05), Send(HELLO[-1:]), Request(), Send(HELLO)),),
        act=_cancel_one_who_waits,
        expect=(Answer(200, b"hello"), Answer(200, b"hello")),
        served=(2,),
        max_connections=1,
    ),
)


async def _read_slowly(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    body = bytearray()
    async with client.stream("GET", "/") as response:
        async for block in response.aiter_raw():
            body += block
            await asyncio.sleep(0.0005)
    return [Seen(response.status_code, "", b"", (), shortened(bytes(body))), await observe(client, Ask())]


EIGHT_MIB = bytes(range(256)) * (1 << 15)


def _slow(over: Over) -> Case:
    return Case(
        name=f"8 MiB read slowly over {over}",
        scripts=((Request(), Send(http(f"Content-Length: {len(EIGHT_MIB)}", body=EIGHT_MIB)), Request(), Send(HELLO)),),
        act=_read_slowly,
        expect=(Answer(200, EIGHT_MIB), Answer(200, b"hello")),
        served=(2,),
        over=over,
    )


async def _read_late(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        await asyncio.sleep(0.05)
        await response.aread()
    return [seen(response), await observe(client, Ask())]


def _late(size: int, over: Over) -> Case:
    return Case(
        name=f"{size} bytes that have all arrived before they are read, over {over}",
        scripts=((Request(), Send(http(f"Content-Length: {size}", body=EIGHT_MIB[:size])), Request(), Send(HELLO)),),
        act=_read_late,
        expect=(Answer(200, EIGHT_MIB[:size]), Answer(200, b"hello")),
        served=(2,),
        over=over,
    )


BOTH: tuple[Over, ...] = ("tcp", "tls")
SIZES = (1_000_000, 1_049_000, 1_100_000, 1_300_000)
"""Around what our transport keeps of a body before it stops reading."""
SLOW = (_slow("tcp"), _slow("tls"), *(_late(size, over) for size in SIZES for over in BOTH))

CERTIFICATES: tuple[tuple[str, Over], ...] = (
    ("of an unknown authority", "tls untrusted"),
    ("for another name", "tls wrong name"),
)
REFUSED_ASKS = (
    Case(
        name="connection refused", scripts=((),), act=_connect_to_a_closed_port, expect=(httpx.ConnectError,), served=()
    ),
    *(
        Case(name=name, scripts=((),), asks=(Ask(path=url),), expect=(error,), served=())
        for name, url, error in (
            ("name that does not resolve", f"http://{'long-label.' * 30}invalid/", httpx.ConnectError),
            ("scheme ftp", "ftp://127.0.0.1/", httpx.UnsupportedProtocol),
        )
    ),
    Case(
        name="TLS spoken to a server without",
        scripts=((Send(b"plain text, sorry\r\n"), Fin()),),
        act=_handshake_without_an_answer,
        expect=(httpx.ConnectError,),
    ),
    *(
        Case(name=f"certificate {name}", scripts=replies(HELLO), over=over, expect=(httpx.ConnectError,))
        for name, over in CERTIFICATES
    ),
)


def idle_end(over: Over) -> Case:
    """Returns the case of a server that closes an idle connection."""
    name = f"server closes the idle connection over {over}"
    case = twice(name, HELLO, Answer(200, b"hello"), Fin(), reused=False, over=over)
    if over != "tls":
        return case
    difference = Difference(
        reason="under TLS httpx does not see that the server has closed; ours does, and connects again",
        expect=case.expect,
        served=(1, 1),
    )
    return replace(case, expect=(Answer(200, b"hello"), BROKEN), served=(1,), same_bytes=False, difference=difference)


def _everywhere(over: Over) -> tuple[Case, ...]:
    """Returns the basic cases over another kind of connection."""
    return (
        twice(f"content-length over {over}", HELLO, Answer(200, b"hello"), reused=True, over=over),
        twice(f"chunked over {over}", CHUNKED, Answer(200, b"hello"), reused=True, over=over),
        once(f"byte by byte over {over}", CHUNKED, Answer(200, b"hello"), step=1, over=over),
        once(f"body until the end over {over}", http(body=b"hello"), Answer(200, b"hello"), Fin(), over=over),
        once(
            f"1 MiB over {over}",
            http(f"Content-Length: {1 << 20}", body=LARGE[: 1 << 20]),
            Answer(200, LARGE[: 1 << 20]),
            over=over,
        ),
        once(
            f"1 MiB until the end over {over}",
            http(body=LARGE[: 1 << 20]),
            Answer(200, LARGE[: 1 << 20]),
            Fin(),
            over=over,
        ),
        once(f"end in the body over {over}", HELLO[:-1], BROKEN, Fin(), over=over),
        *(
            Case(
                name=f"{name} over {over}",
                scripts=replies(HELLO, HELLO),
                asks=(Ask(method="POST", content=content), Ask()),
                expect=(Answer(200, b"hello"),) * 2,
                served=(2,),
                over=over,
            )
            for name, content in (
                ("4 MiB upload", LARGE[: 4 << 20]),
                ("streamed upload", lambda: _blocks(9, 200_000)),
            )
        ),
        idle_end(over),
        once(f"read timeout over {over}", HELLO[:-1], httpx.ReadTimeout, ask=Ask(timeout=SILENT), over=over),
    )


UNIX = _everywhere("unix") if hasattr(socket, "AF_UNIX") else ()
OVER = _everywhere("tls") + _everywhere("ipv6") + UNIX

CASES: tuple[Case, ...] = KEEP_ALIVE + EARLY + LATE + CANCELLED + PLACES + SLOW + REFUSED_ASKS + OVER
