"""Finds the processes that listen on a port, and the bytes that wait on its loopback connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import Container, Iterable, Iterator
from typing import TypeAlias

import psutil

from pytest_fileperf.host.sample import SocketQueues
from pytest_fileperf.units import is_loopback

Endpoint: TypeAlias = tuple[str, int]
"""Address and port."""
_ANY_ADDRESS = ("0.0.0.0", "::", "*", "")  # noqa: S104 # texts that a listener may show, nothing is bound here


def listeners(host: str, port: int) -> tuple[int, ...]:
    """Returns the ids of processes that listen at this host and port. Empty if only an administrator may know."""
    try:
        hosts = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        found = psutil.net_connections(kind="tcp")
    except (OSError, psutil.Error):
        return ()
    if not any(map(is_loopback, hosts)):
        own = {one.address.partition("%")[0] for each in psutil.net_if_addrs().values() for one in each}
        if hosts.isdisjoint(own):
            return ()
    addresses = {(ip, port) for ip in (*hosts, *_ANY_ADDRESS)}
    listening = (one for one in found if one.status == psutil.CONN_LISTEN and tuple(one.laddr) in addresses)
    return tuple(sorted({_topmost(one.pid, addresses) for one in listening if one.pid is not None}))


def having_unix_socket(path: str) -> tuple[int, ...]:
    """Returns the ids of processes that have the socket `path` open. Empty if only an administrator may know."""
    try:
        found = psutil.net_connections(kind="unix")
    except (OSError, psutil.Error):
        return ()
    return tuple(sorted({one.pid for one in found if str(one.laddr) == path and one.pid is not None}))


def endpoints_of(processes: Iterable[psutil.Process]) -> frozenset[Endpoint] | None:
    """Returns the endpoints at which the processes listen. None if the system hides a process's endpoints."""
    endpoints: set[Endpoint] = set()
    for process in processes:
        try:
            found = process.net_connections(kind="tcp")
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            return None
        endpoints.update((one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN)
    return frozenset(endpoints)


def is_reached(endpoints: Iterable[Endpoint], host: str, port: int) -> bool:
    return any(ip in (host, *_ANY_ADDRESS) and number == port for ip, number in endpoints)


def _topmost(pid: int, addresses: Container[tuple[object, ...]]) -> int:
    """Returns the id of the outermost parent that shares the process's listening socket, or else `pid`.

    psutil names only one of the processes that share a socket, by chance.
    """
    try:
        parent = psutil.Process(pid).parent()
        found = parent.net_connections(kind="tcp") if parent is not None else []
    except psutil.Error:
        return pid
    shares = any(one.status == psutil.CONN_LISTEN and tuple(one.laddr) in addresses for one in found)
    return _topmost(parent.pid, addresses) if parent is not None and shares else pid


# --- Bytes that wait on the connections to a port, at both ends
#
# From Linux's socket diagnostics (see sock_diag(7)). /proc/net/tcp lists every connection of the machine, and mixes
# unsent bytes with sent ones that only wait for an acknowledgement.

MOST_CONNECTIONS = 1_000
"""With more connections, the queues are not read, because each connection costs 5 to 10 microseconds."""
_SOCK_DIAG = 4
"""This number and the next ones come from the kernel's netlink.h, sock_diag.h, inet_diag.h and tcp.h."""
_BY_FAMILY = 20
_ERROR, _DONE = 2, 3
_REQUEST_DUMP = 0x301
_INFO = 2
_MAY_HOLD_BYTES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""Bits of the states in which a connection may have waiting bytes: established, fin-wait 1 and 2, close-wait."""
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_PORTS = struct.Struct(">HH")
_UNREAD = struct.Struct("=I")
_MESSAGE_BYTES = 72
_PORTS_AT, _UNREAD_AT, _NOTSENT_AT = 4, 56, 144
"""Offsets in bytes. `_NOTSENT_AT` is an offset in a message's tcp_info (since Linux 4.6)."""


def read_queues(port: int) -> SocketQueues | None:
    """Returns the queues of connections to a local port. None outside of Linux, and with too many connections."""
    # By the client's port: the unread and unsent bytes at this end.
    server: dict[int, tuple[int, int]] = {}
    client: dict[int, tuple[int, int]] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as diag:
            diag.settimeout(0.2)
            for family in (socket.AF_INET, socket.AF_INET6):
                for ends, is_server in ((server, True), (client, False)):
                    local, remote = (port, 0) if is_server else (0, port)
                    for own, other, end in _answers(diag, family, local, remote):
                        ends[other if is_server else own] = end
                        if len(ends) > MOST_CONNECTIONS:
                            return None
                if server.keys() & client.keys():
                    break  # a question takes 0.2 ms, as the kernel goes through all connections
    except (AttributeError, OSError):  # other systems have no such sockets
        return None
    pairs = [(*server[port], *client[port]) for port in server.keys() & client.keys()]
    return SocketQueues(
        connections=len(pairs),
        server_unread=sum(unread > 0 for unread, _, _, _ in pairs),
        server_unsent=sum(unsent > 0 for _, unsent, _, _ in pairs),
        client_unread=sum(unread > 0 for _, _, unread, _ in pairs),
        client_unsent=sum(unsent > 0 for _, _, _, unsent in pairs),
        under_way=sum(
            (our_unsent > 0 and their_unread == 0) or (their_unsent > 0 and our_unread == 0)
            for our_unread, our_unsent, their_unread, their_unsent in pairs
        ),
    )


def _answers(diag: socket.socket, family: int, local: int, remote: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yields (own port, other end's port, (unread, unsent bytes at the own end)) of each connection.

    `local` and `remote` select connections by their ports; 0 means any port.
    """
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _MAY_HOLD_BYTES)
    body += _PORTS.pack(local, remote) + bytes(36) + b"\xff" * 8
    diag.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + body)
    while True:
        block = diag.recv(1 << 16)
        start = 0
        while start < len(block):
            length, kind, *_ = _HEAD.unpack_from(block, start)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError("the kernel has no socket diagnostics")
            message = start + _HEAD.size
            own, other = _PORTS.unpack_from(block, message + _PORTS_AT)
            (unread,) = _UNREAD.unpack_from(block, message + _UNREAD_AT)
            yield own, other, (unread, _unsent(block, message + _MESSAGE_BYTES, start + length))
            start += length + 3 & ~3


def _unsent(block: bytes, start: int, end: int) -> int:
    """Returns the unsent bytes from the attributes at `start` to `end`. 0 if the kernel does not report them."""
    while start < end:
        length, kind = _ATTRIBUTE.unpack_from(block, start)
        if kind == _INFO and length >= _ATTRIBUTE.size + _NOTSENT_AT + 4:
            (unsent,) = _UNREAD.unpack_from(block, start + _ATTRIBUTE.size + _NOTSENT_AT)
            return int(unsent)
        start += length + 3 & ~3
    return 0
