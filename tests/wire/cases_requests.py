"""Cases about what httpx puts on top: bodies of every kind, and auth, redirects, cookies, hooks over the transport."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import httpx
from wire.conformance import Answer, Ask, Case, Seen, chunked, http, in_chunks, observe, once, replies, seen, shortened
from wire.scripted import Request, ScriptedServer, Send

HELLO = http("Content-Length: 5", body=b"hello")
OK = Answer(200, b"hello")
BOUNDARY = {"Content-Type": "multipart/form-data; boundary=fixed"}


async def _blocks() -> AsyncIterator[bytes]:
    for block in (b"one", b"", b"three", bytes(100_000)):
        yield block


async def _failing() -> AsyncIterator[bytes]:
    yield b"one"
    raise ZeroDivisionError


async def _raw(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        raw = b"".join([block async for block in response.aiter_raw()])
    return [Seen(response.status_code, "", b"", (), shortened(raw))]


async def _lines(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    async with client.stream("GET", "/") as response:
        lines = [line async for line in response.aiter_lines()]
    return [Seen(response.status_code, "", b"", (), "|".join(lines).encode())]


async def _hooks(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    told: list[str] = []

    async def on_request(request: httpx.Request) -> None:
        request.headers["X-Hook"] = "set"
        told.append(request.method)

    async def on_response(response: httpx.Response) -> None:
        await response.aread()
        told.append(response.text)

    client.event_hooks = {"request": [on_request], "response": [on_response]}
    return [await observe(client, Ask()), *told]


async def _prebuilt_twice(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    request = client.build_request("POST", "/", content=b"again")
    return [seen(await client.send(request)) for _ in range(2)]


async def _history(client: httpx.AsyncClient, server: ScriptedServer) -> list[Seen | str]:
    response = await client.post("/from", content=b"x", follow_redirects=True)
    return [*(seen(earlier) for earlier in response.history), seen(response)]


def _said_to_have(size_bytes: int) -> Ask:
    return Ask(method="POST", content=_blocks, timeout=3, more={"headers": {"Content-Length": str(size_bytes)}})


def _sent(name: str, ask: Ask, request: bytes | None = None) -> Case:
    return once(name, HELLO, OK, ask=ask, request=request)


BODIES = (
    _sent("GET without a body", Ask(), b"GET / HTTP/1.1\r\n"),
    _sent("POST without a body", Ask(method="POST"), b"POST / HTTP/1.1\r\n"),
    _sent("POST with an empty body", Ask(method="POST", content=b"")),
    _sent("POST with bytes", Ask(method="POST", content=b"\x00\xff body")),
    _sent("PUT with 1 MiB", Ask(method="PUT", content=bytes(range(256)) * 4096)),
    _sent("PUT with 20 MiB", Ask(method="PUT", content=bytes(20 << 20))),
    _sent("streamed body is chunked", Ask(method="POST", content=_blocks)),
    _sent(
        "streamed body with a content-length",
        Ask(method="POST", content=_blocks, more={"headers": {"Content-Length": "100008"}}),
    ),
    _sent("JSON", Ask(method="POST", more={"json": {"ä": [1, None]}})),
    _sent("form", Ask(method="POST", more={"data": {"a": "1 2", "b": ["x", "y"]}})),
    _sent(
        "multipart",
        Ask(
            method="POST",
            more={"files": {"file": ("ä.bin", b"\r\n--x" * 1000)}, "data": {"k": "v"}, "headers": BOUNDARY},
        ),
    ),
    _sent("PATCH", Ask(method="PATCH", content=b"x")),
    _sent("OPTIONS", Ask(method="OPTIONS")),
    _sent("method of its own", Ask(method="PURGE"), b"PURGE / HTTP/1.1\r\n"),
    _sent(
        "path and query keep their escapes",
        Ask(path="/a%2Fb/ü?q=1&r=%20 x"),
        b"GET /a%2Fb/%C3%BC?q=1&r=%20%20x HTTP/1.1\r\n",
    ),
    _sent("fragment is not sent", Ask(path="/a#b"), b"GET /a HTTP/1.1\r\n"),
    _sent("header names and values as given", Ask(more={"headers": [("X-a", "1"), ("x-A", "2"), ("X-Empty", "")]})),
    _sent("host header of the user", Ask(more={"headers": {"Host": "example.org"}})),
    _sent("header of 50 kB", Ask(more={"headers": {"X": "x" * 50_000}})),
    _sent(
        "expect: 100-continue, no 100 comes",
        Ask(method="POST", content=b"body", more={"headers": {"Expect": "100-continue"}}),
    ),
    once(
        "expect: 100-continue, 100 comes",
        http(status="100 Continue") + HELLO,
        OK,
        ask=Ask(method="POST", content=b"body", more={"headers": {"Expect": "100-continue"}}),
    ),
    Case(
        name="streamed body that fails",
        scripts=((), (Request(), Send(HELLO))),
        asks=(Ask(method="POST", content=_failing), Ask()),
        expect=(ZeroDivisionError, OK),
        served=(0, 1),
    ),
    *(
        Case(name=name, scripts=replies(HELLO), asks=(ask,), expect=(httpx.LocalProtocolError,))
        for name, ask in (
            ("header value with a line end", Ask(more={"headers": {"X": "a\r\nY: b"}})),
            ("header name with a space", Ask(more={"headers": {"X Y": "a"}})),
            ("header name empty", Ask(more={"headers": {"": "a"}})),
            ("method with a space", Ask(method="GET /x")),
            ("body shorter than its content-length", _said_to_have(200_000)),
            ("body longer than its content-length", _said_to_have(5)),
        )
    ),
)

ZIPPED = gzip.compress(b"hello" * 1000, mtime=0)

ON_TOP = (
    once(
        "gzip",
        http("Content-Encoding: gzip", f"Content-Length: {len(ZIPPED)}", body=ZIPPED),
        Answer(200, b"hello" * 1000),
    ),
    once(
        "gzip, chunked",
        http("Content-Encoding: gzip", "Transfer-Encoding: chunked", body=chunked(ZIPPED[:9], ZIPPED[9:])),
        Answer(200, b"hello" * 1000),
    ),
    once("gzip that is none", http("Content-Encoding: gzip", "Content-Length: 5", body=b"hello"), httpx.DecodingError),
    Case(
        name="raw bytes of gzip",
        scripts=((Request(), Send(http("Content-Encoding: gzip", f"Content-Length: {len(ZIPPED)}", body=ZIPPED))),),
        act=_raw,
        expect=(Answer(200, ZIPPED),),
        served=(1,),
    ),
    Case(
        name="lines",
        scripts=replies(in_chunks(chunked(b"a\nb", b"c\n", b"d"))),
        act=_lines,
        expect=(Answer(200, b"a|bc|d"),),
        served=(1,),
    ),
    Case(
        name="redirect not followed",
        scripts=((Request(), Send(http("Location: /to", "Content-Length: 0", status="302 Found"))),),
        expect=(Answer(302),),
        served=(1,),
    ),
    Case(
        name="redirect followed on the same connection",
        scripts=replies(http("Location: /to", "Content-Length: 2", status="303 See Other", body=b"go"), HELLO),
        act=_history,
        expect=(Answer(303, b"go"), OK),
        served=(2,),
    ),
    Case(
        name="redirect that keeps method and body",
        scripts=replies(http("Location: /to", "Content-Length: 0", status="307 Temporary Redirect"), HELLO),
        act=_history,
        expect=(Answer(307), OK),
        served=(2,),
    ),
    Case(
        name="redirects without end",
        scripts=((Request(), Send(http("Location: /", "Content-Length: 0", status="302 Found"))) * 30,),
        asks=(Ask(more={"follow_redirects": True}),),
        expect=(httpx.TooManyRedirects,),
        served=(21,),
    ),
    _sent("basic auth", Ask(more={"auth": ("user", "secret")})),
    Case(
        name="digest auth",
        scripts=replies(
            http(
                'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256',
                "Content-Length: 0",
                status="401 Unauthorized",
            ),
            HELLO,
        ),
        asks=(Ask(more={"auth": httpx.DigestAuth("user", "secret")}),),
        expect=(OK,),
        served=(2,),
        same_bytes=False,
    ),
    Case(
        name="cookies",
        scripts=replies(http("Set-Cookie: a=1; Path=/", "Set-Cookie: b=2", "Content-Length: 0"), HELLO),
        asks=(Ask(), Ask()),
        expect=(Answer(200), OK),
        served=(2,),
    ),
    Case(
        name="target of its own",
        scripts=((Request(), Send(HELLO)) * 2,),
        asks=(
            Ask(method="OPTIONS", more={"extensions": {"target": b"*"}}),
            Ask(more={"extensions": {"target": "/a%2Fb?c"}}),
        ),
        expect=(OK, OK),
        served=(2,),
        request=b"OPTIONS * HTTP/1.1\r\n",
    ),
    *(
        Case(
            name=f"target with {bad!a}",
            scripts=((),),
            asks=(Ask(more={"extensions": {"target": b"/a" + bad}}),),
            expect=(httpx.LocalProtocolError,),
        )
        for bad in (b"\r\nX: y", b" b", b"\xff")
    ),
    Case(
        name="event hooks",
        scripts=((Request(), Send(HELLO)),),
        act=_hooks,
        expect=(OK, type("GET", (Exception,), {}), type("hello", (Exception,), {})),
        served=(1,),
    ),
    Case(
        name="prebuilt request sent twice",
        scripts=((Request(), Send(HELLO)) * 2,),
        act=_prebuilt_twice,
        expect=(OK, OK),
        served=(2,),
    ),
)

CASES: tuple[Case, ...] = BODIES + ON_TOP
