"""What a conformance case is, and how one is run through a transport."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx
from families import FAMILIES
from wire.scripted import Pause, Request, Script, ScriptedServer, Send

from pytest_fileperf import Client

_WHOLE_BODY_BYTES = 200
"""Longer bodies are compared by length and digest."""

Over = Literal["tcp", "ipv6", "unix", "tls", "tls untrusted", "tls wrong name"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client has to see; what is None is compared between the transports only."""

    status: int = 200
    body: bytes = b""
    reason: bytes | None = None
    version: str | None = None
    headers: tuple[tuple[bytes, bytes], ...] | None = None


Expected = Answer | type[Exception]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one request."""

    status: int
    version: str
    reason: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What there was to see of a case: answers or error classes, and what the server got on each connection."""

    answers: tuple[Seen | str, ...]
    served: tuple[int, ...]
    """Complete requests on each connection, as far as the script read them."""
    requests: tuple[bytes, ...]
    """The requests themselves, with the server's address made neutral."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of a sequence: arguments of `AsyncClient.request`."""

    method: str = "GET"
    path: str = "/"
    content: Callable[[], AsyncIterator[bytes]] | bytes | None = None
    timeout: float | httpx.Timeout = 5.0
    more: Mapping[str, Any] = field(default_factory=dict)


Act = Callable[[httpx.AsyncClient, ScriptedServer], Awaitable["list[Seen | str]"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A deliberate difference of our transport from httpx's own."""

    reason: str
    expect: tuple[Expected, ...] | None = None
    """What ours gives; None when it is what httpx's gives."""
    served: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table."""

    name: str
    scripts: tuple[Script, ...]
    expect: tuple[Expected, ...]
    asks: tuple[Ask, ...] = (Ask(),)
    act: Act | None = None
    """What the client does when that is more than a sequence of requests."""
    served: tuple[int, ...] | None = None
    """Requests on each connection; None where it depends on timing."""
    over: Over = "tcp"
    max_connections: int | None = None
    same_bytes: bool = True
    """Whether the requests on the wire are the same; not so where they hold something random."""
    request: bytes | None = None
    """The start of what the server must have received, or None."""
    difference: Difference | None = None


class MakeTransport(Protocol):
    """Makes one of the transports."""

    def __call__(
        self, *, uds: str | None, verify: ssl.SSLContext | bool, max_connections: int | None
    ) -> httpx.AsyncBaseTransport: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """TLS contexts of a throw-away authority: of the server and of clients that trust it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


async def observe(client: httpx.AsyncClient, ask: Ask) -> Seen | str:
    """Returns what the client saw of a request, or the name of the error's class, with its package if that is wrong."""
    content = ask.content() if callable(ask.content) else ask.content
    try:
        return seen(await client.request(ask.method, ask.path, content=content, timeout=ask.timeout, **ask.more))
    except Exception as error:
        kind, packages = type(error), {base.__module__ for base in type(client).__mro__}
        is_foreign = kind.__module__ in FAMILIES and kind.__module__ not in packages
        return f"{kind.__module__}.{kind.__name__}" if is_foreign else kind.__name__


def seen(response: httpx.Response) -> Seen:
    """Returns what is compared of a response that was read."""
    return Seen(
        status=response.status_code,
        version=response.http_version,
        reason=response.extensions.get("reason_phrase", b""),
        headers=tuple(response.headers.raw),
        body=shortened(response.content),
    )


def shortened(body: bytes) -> bytes:
    """Returns a body, or for a long one its length and digest."""
    if len(body) <= _WHOLE_BODY_BYTES:
        return body
    return b"%d bytes, sha256 %s" % (len(body), hashlib.sha256(body).hexdigest().encode())


def matches(got: Seen | str, expected: Expected) -> bool:
    """Returns whether an observation is what the table says."""
    if isinstance(got, str) or isinstance(expected, type):
        return isinstance(expected, type) and got == expected.__name__
    return (
        got.status == expected.status
        and got.body == shortened(expected.body)
        and expected.reason in (None, got.reason)
        and expected.version in (None, got.version)
        and expected.headers in (None, got.headers)
    )


async def run_case(
    case: Case, make_transport: MakeTransport, certificates: Certificates, family: str = "httpx"
) -> Outcome:
    """Plays the case with a server and a client of its own. The case's objects are httpx's, whatever the family."""
    with contextlib.ExitStack() as stack:
        uds = None
        if case.over == "unix":
            uds = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fp"))) / "s"
        tls = case.over.startswith("tls")
        server = ScriptedServer(
            case.scripts,
            host="::1" if case.over == "ipv6" else "127.0.0.1",
            uds=uds,
            tls=certificates.server if tls else None,
        )
        async with server:
            transport = make_transport(
                uds=str(uds) if uds else None,
                verify=certificates.client if tls and case.over != "tls untrusted" else tls,
                max_connections=case.max_connections,
            )
            url = server.url.replace("127.0.0.1", "localhost") if case.over == "tls wrong name" else server.url
            made = Client(family=family, transport=transport, base_url=url, trust_env=False, timeout=5)
            async with made as client:
                if case.act is not None:
                    answers = await case.act(client, server)
                else:
                    answers = await _sequence(client, case.asks)
    neutral = [raw.replace(server.authority.encode(), b"SERVER") for peer in server.peers for raw in peer.requests]
    served = tuple(len(peer.requests) for peer in server.peers)
    return Outcome(answers=tuple(answers), served=served, requests=tuple(neutral))


async def _sequence(client: httpx.AsyncClient, asks: tuple[Ask, ...]) -> list[Seen | str]:
    answers: list[Seen | str] = []
    for number, ask in enumerate(asks):
        if number:
            await asyncio.sleep(0.01)  # what the server does after its answer has arrived
        answers.append(await observe(client, ask))
    return answers


# --- building rows


def http(*headers: str, status: str = "200 OK", version: str = "HTTP/1.1", body: bytes = b"") -> bytes:
    """Returns a response as bytes."""
    return "\r\n".join([f"{version} {status}".rstrip(" "), *headers, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    """Returns a chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


def in_chunks(body: bytes) -> bytes:
    """Returns a response with this chunked body."""
    return http("Transfer-Encoding: chunked", body=body)


def replies(*raws: bytes) -> tuple[Script, ...]:
    """Returns the script of a server that answers so many requests on one connection."""
    return (tuple(step for raw in raws for step in (Request(), Send(raw))),)


def once(
    name: str,
    raw: bytes,
    expect: Expected,
    *ends: Any,
    ask: Ask | None = None,
    step: int = 0,
    difference: Difference | None = None,
    over: Over = "tcp",
    request: bytes | None = None,
) -> Case:
    """Returns a case of one request: the server reads it, sends `raw` and goes on with `ends`."""
    return Case(
        name=name,
        scripts=((Request(), Send(raw, step), *ends),),
        asks=(ask or Ask(),),
        expect=(expect,),
        served=(1,),
        over=over,
        request=request,
        difference=difference,
    )


def twice(
    name: str,
    raw: bytes,
    expect: Expected,
    *ends: Any,
    reused: bool,
    ask: Ask | None = None,
    difference: Difference | None = None,
    over: Over = "tcp",
) -> Case:
    """Returns a case of the same request twice, which says whether the connection is used again."""
    play: Script = (Request(), Send(raw), *ends)
    return Case(
        name=name,
        scripts=((*play, *play),),
        asks=(ask or Ask(),) * 2,
        expect=(expect,) * 2,
        served=(2,) if reused else (1, 1),
        over=over,
        difference=difference,
    )


def pieces(name: str, *parts: bytes, expect: Expected, ends: Script = (), over: Over = "tcp") -> Case:
    """Returns a case of one request whose answer comes in these parts, with a pause between them."""
    steps: list[Any] = [Request()]
    for part in parts:
        steps += [Send(part), Pause()]
    return Case(name=name, scripts=((*steps, *ends),), expect=(expect,), served=(1,), over=over)
