"""Where bytes wait on real connections, seen by the kernel."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from serve.processes import until

from pytest_fileperf.host import sockets
from pytest_fileperf.host.sample import SocketQueues
from pytest_fileperf.host.sockets import read_queues

SO_MAX_PACING_RATE = 47
MORE_THAN_BUFFERS = b"x" * 32_000_000


class Pairs:
    """Connections to one port, both ends in this process."""

    def __init__(self, stack: ExitStack, family: socket.AddressFamily) -> None:
        address = "127.0.0.1" if family == socket.AF_INET else "::1"
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server((address, 0), family=family))
        self.port: int = self._listener.getsockname()[1]

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Returns the client's and the server's end of a new connection."""
        client = self._stack.enter_context(socket.create_connection(self._listener.getsockname()[:2]))
        server = self._stack.enter_context(self._listener.accept()[0])
        client.setblocking(False)
        server.setblocking(False)
        return client, server


def told() -> bool:
    """Whether this system tells: some containers have no socket diagnostics."""
    return sys.platform == "linux" and read_queues(1) is not None


pytestmark = pytest.mark.skipif(not told(), reason="the system has no socket diagnostics")


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def pairs(request: pytest.FixtureRequest) -> Iterator[Pairs]:
    with ExitStack() as stack:
        try:
            made = Pairs(stack, request.param)
        except OSError:
            pytest.skip("this system has no such addresses")
        yield made


def counts(port: int) -> SocketQueues:
    found = read_queues(port)
    assert found is not None
    return found


def test_each_side_has_what_it_has_not_read(pairs: Pairs) -> None:
    client, server = [pairs.connect() for _ in range(3)][-1]
    with ExitStack() as stack:
        Pairs(stack, socket.AF_INET).connect()  # other ports do not count
        assert counts(pairs.port) == SocketQueues(
            connections=3, server_unread=0, server_unsent=0, client_unread=0, client_unsent=0, under_way=0
        )
    client.send(b"GET")
    until(lambda: counts(pairs.port).server_unread == 1)
    assert counts(pairs.port).under_way == 0
    server.send(b"OK")
    until(lambda: counts(pairs.port).client_unread == 1)
    client.recv(10)
    assert counts(pairs.port).server_unsent == 0  # it was read and not acknowledged yet


@pytest.mark.parametrize(
    "sender, unsent, unread", [(0, "client_unsent", "server_unread"), (1, "server_unsent", "client_unread")]
)
def test_what_waits_for_the_other_side_to_read_is_not_under_way(
    pairs: Pairs, sender: int, unsent: str, unread: str
) -> None:
    pairs.connect()[sender].send(MORE_THAN_BUFFERS)

    until(lambda: getattr(counts(pairs.port), unsent) == getattr(counts(pairs.port), unread) == 1)
    assert counts(pairs.port).under_way == 0


def test_an_answer_that_is_held_back_while_the_client_has_read_all_is_under_way(pairs: Pairs) -> None:
    client, server = pairs.connect()
    server.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 100_000)
    server.send(MORE_THAN_BUFFERS)

    def read_all() -> bool:
        try:
            client.recv(1 << 20)
        except BlockingIOError:
            return counts(pairs.port).under_way == 1
        return False

    until(read_all)


def test_very_many_connections_are_not_counted(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MOST_CONNECTIONS", 2)
    for _ in range(3):
        pairs.connect()

    assert read_queues(pairs.port) is None


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_socket(*_: object) -> socket.socket:
        raise OSError("protocol not supported")

    monkeypatch.setattr(socket, "socket", no_such_socket)

    assert read_queues(1) is None
