"""Which processes listen on a port of this machine."""

from __future__ import annotations

import socket
from collections.abc import Container, Iterable
from typing import TypeAlias

import psutil

from pytest_fileperf.units import is_loopback

__all__ = ("Endpoint", "endpoints_of", "is_reached", "listeners")

Endpoint: TypeAlias = tuple[str, int]
"""Address and port."""

_ANY_ADDRESS = ("0.0.0.0", "::", "*", "")  # noqa: S104 # what a listener may show, nothing is bound here


def listeners(host: str, port: int) -> tuple[int, ...]:
    """Returns the topmost processes of this machine that listen there.

    Empty where the address is another machine's, and where only an administrator may know.
    """
    try:
        hosts = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        found = psutil.net_connections(kind="tcp")
    except (OSError, psutil.Error):
        return ()
    if not any(map(_is_here, hosts)):
        return ()
    addresses = {(ip, port) for ip in (*hosts, *_ANY_ADDRESS)}
    listening = (one for one in found if one.status == psutil.CONN_LISTEN and tuple(one.laddr) in addresses)
    return tuple(sorted({_topmost(one.pid, addresses) for one in listening if one.pid is not None}))


def endpoints_of(processes: Iterable[psutil.Process]) -> frozenset[Endpoint] | None:
    """Returns where the processes listen; None where the system does not tell of one of them."""
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
    """Returns whether a connection to this address reaches one of the endpoints."""
    return any(ip in (host, *_ANY_ADDRESS) and number == port for ip, number in endpoints)


def _is_here(ip: str) -> bool:
    """Returns whether the address is one of this machine."""
    if is_loopback(ip):
        return True
    own = (each.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses)
    return ip in own


def _topmost(pid: int, addresses: Container[tuple[object, ...]]) -> int:
    """Returns the supervisor of a worker that inherited its listening socket: psutil names only one of the two."""
    try:
        parent = psutil.Process(pid).parent()
        found = parent.net_connections(kind="tcp") if parent is not None else []
    except psutil.Error:
        return pid
    shares = any(one.status == psutil.CONN_LISTEN and tuple(one.laddr) in addresses for one in found)
    return _topmost(parent.pid, addresses) if parent is not None and shares else pid
