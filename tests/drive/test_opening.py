"""Connections are opened no faster than the server takes them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import httpx
import pytest

from pytest_fileperf.drive.slots import OPENED_AT_ONCE, Openings, open_all, waiting_to_be_accepted

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a listen queue is")
FAMILIES = pytest.mark.parametrize(
    "family,host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"]
)


@linux_only
@FAMILIES
def test_how_many_wait_to_be_accepted_is_known(family: int, host: str) -> None:
    with socket.socket(family) as listener, ExitStack() as stack:
        listener.bind((host, 0))
        listener.listen(100)
        port = listener.getsockname()[1]
        for _ in range(5):
            stack.enter_context(socket.create_connection((host, port)))
        waiting = [waiting_to_be_accepted(port)]
        stack.enter_context(listener.accept()[0])
        waiting.append(waiting_to_be_accepted(port))

    assert waiting == [5, 4]
    assert waiting_to_be_accepted(port) == 0


@linux_only
def test_the_next_connections_wait_until_the_server_has_taken_those_before() -> None:
    """A server that takes a dozen connections every millisecond never has more than two batches in its queue."""
    longest = 0

    async def main() -> int:
        nonlocal longest
        loop = asyncio.get_running_loop()
        with socket.socket() as listener, ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1000)
            listener.setblocking(False)
            address = listener.getsockname()

            openings = Openings(address[1])

            async def opening() -> None:
                await openings.may_open()
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                await loop.sock_connect(sock, address)

            async def accept() -> None:
                nonlocal longest
                while True:
                    longest = max(longest, waiting_to_be_accepted(address[1]))
                    for _ in range(12):
                        stack.enter_context((await loop.sock_accept(listener))[0])
                    await asyncio.sleep(0.001)

            accepting = asyncio.create_task(accept())
            await open_all([opening] * (5 * OPENED_AT_ONCE))
            accepting.cancel()
            return longest

    assert 0 < asyncio.run(main()) <= OPENED_AT_ONCE + OPENED_AT_ONCE // 4


def test_a_connection_that_cannot_be_opened_is_told() -> None:
    async def refused() -> None:
        raise httpx.ConnectError("refused")

    openings: list[Callable[[], Awaitable[None]]] = [refused] * 3
    with pytest.raises(httpx.ConnectError, match="refused"):
        asyncio.run(open_all(openings))


def test_when_one_cannot_be_opened_none_goes_on() -> None:
    """What opened later would belong to nobody, and stay open."""
    ended: list[str] = []

    async def refused() -> None:
        raise httpx.ConnectError("refused")

    async def slow() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("slow")

    async def main() -> None:
        with pytest.raises(httpx.ConnectError, match="refused"):
            await open_all([slow, refused, slow])
        assert ended == ["slow", "slow"]

    asyncio.run(main())
