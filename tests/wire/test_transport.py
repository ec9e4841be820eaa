"""Whose answers and errors `LoadTransport` gives, and what it says where it cannot work."""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import Any, NoReturn

import httpx
import pytest
from drive.scripted import hello, scripted
from families import module_of

from pytest_fileperf.plan.network import Network
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.transport import LoadTransport


def post(package: Any, url: str) -> Any:
    """Returns the answer to a form, which a client makes a stream of."""

    async def answered() -> Any:
        async with package.AsyncClient(transport=LoadTransport(), base_url=url) as client:
            return await client.post("/", files={"file": ("a", b"content")})

    return asyncio.run(answered())


def test_answers_and_errors_are_of_the_client_s_package(family: str) -> None:
    package = module_of(family)
    with scripted(hello) as url:
        answer = post(package, url)
    assert (type(answer), answer.text) == (package.Response, "hello")
    with pytest.raises(package.ConnectError) as raised:
        post(package, "http://127.0.0.1:9")
    assert raised.value.request.url.port == 9


def test_without_asyncio_it_says_what_to_use() -> None:
    """So it is under trio, whose tasks are no tasks of asyncio."""
    asked = LoadTransport().handle_async_request(httpx.Request("GET", "http://127.0.0.1/"))
    with pytest.raises(RuntimeError, match=r"Under trio use httpx's own transport, httpx\.AsyncHTTPTransport"):
        asked.send(None)


SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
LARGE = bytes(3 << 20)
"""More than is read ahead."""


def test_what_switches_protocols_is_talked_to_over_the_connection(family: str) -> None:
    package, core = module_of(family), importlib.import_module(family.replace("httpx", "httpcore"))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED + b"first")
        writer.write(await reader.readexactly(len(LARGE)))
        writer.close()

    async def talked() -> bytes:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, limit=1 << 23)
        url, seen = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", b""
        client = package.AsyncClient(transport=LoadTransport(), timeout=package.Timeout(5, read=0.2))
        async with server, client, client.stream("GET", url, headers={"Upgrade": "echo"}) as response:
            stream = response.extensions["network_stream"]
            assert (await stream.read(2), await stream.read(9)) == (b"fi", b"rst")
            await asyncio.sleep(0.3)  # longer than an answer may be silent
            await stream.write(LARGE)
            while block := await stream.read(1 << 16):
                assert len(block) <= 1 << 16
                seen += block
            with pytest.raises(core.WriteError):
                await stream.write(b"more")
        return seen

    assert asyncio.run(talked()) == LARGE


# --- Connections go to this machine and to addresses that are allowed, whatever name leads there

SENT: list[object] = []


async def connect(host: str, allowed: frozenset[str]) -> None:
    network = Network(addresses=allowed)
    sock = await open_socket(Origin("http", host, 80), timeout_s=5, only_to=network)
    sock.close()


@pytest.fixture
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes addresses in place of connecting to them."""
    SENT.clear()

    async def connected(_: object, family: int, address: tuple[str, int]) -> NoReturn:
        SENT.append(address[0])
        raise OSError("noted")

    monkeypatch.setattr("pytest_fileperf.wire.connect._try", connected)


def leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    asked: list[str] = []

    async def getaddrinfo(_: object, host: str, port: int, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.usefixtures("nothing_is_sent")
@pytest.mark.parametrize(
    "host, allowed",
    [
        ("10.0.0.1", ()),
        ("10.0.0.1", ("10.0.0.2",)),
        ("::ffff:10.0.0.1", ("10.0.0.2",)),
        ("fd00::1", ("fd00::2",)),
        ("files.test", ()),
        ("127.0.0.1.example.org", ()),
        ("2130706433", ()),
        ("0", ()),
        ("", ()),
    ],
)
def test_other_addresses_are_refused_before_anything_is_sent(
    host: str, allowed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = leads_to(monkeypatch, "10.0.0.1")
    with pytest.raises(httpx.ConnectError, match="load goes only to this machine"):
        asyncio.run(connect(host, frozenset(allowed)))
    assert (SENT, asked) == ([], [])


@pytest.mark.usefixtures("nothing_is_sent")
@pytest.mark.parametrize(
    "host, allowed", [("127.0.0.1", ()), ("127.1.2.3", ()), ("::1", ()), ("10.0.0.1", ("10.0.0.1",))]
)
def test_allowed_addresses_are_connected_to(host: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(connect(host, frozenset(allowed)))
    assert [host] == SENT


@pytest.mark.usefixtures("nothing_is_sent")
def test_a_name_is_taken_for_where_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "10.0.0.1", "10.0.0.2")
    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(connect("files.test", frozenset({"10.0.0.2"})))
    assert SENT == ["10.0.0.2"]  # and never the other one
    with pytest.raises(httpx.ConnectError, match=r"files\.test leads to 10\.0\.0\.1: load goes only"):
        asyncio.run(connect("files.test", frozenset({"10.0.0.3"})))
    assert SENT == ["10.0.0.2"]


@pytest.mark.usefixtures("nothing_is_sent")
def test_a_name_of_this_machine_that_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "10.0.0.1")
    with pytest.raises(httpx.ConnectError, match=r"localhost leads to 10\.0\.0\.1"):
        asyncio.run(connect("localhost", frozenset()))
    assert SENT == []


@pytest.mark.usefixtures("nothing_is_sent")
def test_a_transport_without_limits_goes_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get() -> None:
        async with httpx.AsyncClient(transport=LoadTransport()) as client:
            await client.get("http://10.0.0.1")

    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(get())
    assert SENT == ["10.0.0.1"]
