"""Connections go to this machine and to addresses that are allowed, and to no other, whatever name leads there."""

from __future__ import annotations

import asyncio
import socket
from typing import NoReturn

import httpx
import pytest

from pytest_fileperf.plan.network import Network
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.transport import LoadTransport

SENT: list[object] = []


async def connect(host: str, allowed: frozenset[str]) -> None:
    network = Network(addresses=allowed)
    sock = await open_socket(Origin("http", host, 80), timeout_s=5, only_to=network)
    sock.close()


@pytest.fixture(autouse=True)
def _nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(httpx.ConnectError, match="load only goes to this machine"):
        asyncio.run(connect(host, frozenset(allowed)))
    assert (SENT, asked) == ([], [])


@pytest.mark.parametrize(
    "host, allowed", [("127.0.0.1", ()), ("127.1.2.3", ()), ("::1", ()), ("10.0.0.1", ("10.0.0.1",))]
)
def test_allowed_addresses_are_connected_to(host: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(connect(host, frozenset(allowed)))
    assert [host] == SENT


def test_a_name_is_taken_for_where_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "10.0.0.1", "10.0.0.2")
    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(connect("files.test", frozenset({"10.0.0.2"})))
    assert SENT == ["10.0.0.2"]  # and never the other one
    with pytest.raises(httpx.ConnectError, match=r"files\.test leads to 10\.0\.0\.1: load only goes"):
        asyncio.run(connect("files.test", frozenset({"10.0.0.3"})))
    assert SENT == ["10.0.0.2"]


def test_a_name_of_this_machine_that_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "10.0.0.1")
    with pytest.raises(httpx.ConnectError, match=r"localhost leads to 10\.0\.0\.1"):
        asyncio.run(connect("localhost", frozenset()))
    assert SENT == []


def test_a_transport_without_limits_goes_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get() -> None:
        async with httpx.AsyncClient(transport=LoadTransport()) as client:
            await client.get("http://10.0.0.1")

    with pytest.raises(httpx.ConnectError, match="noted"):
        asyncio.run(get())
    assert SENT == ["10.0.0.1"]
