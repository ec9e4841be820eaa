"""Opens connections over TCP, Unix sockets and TLS, with httpx's error classes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from pytest_fileperf.plan.network import Network, Reach, refusal
from pytest_fileperf.wire.exchange import Breach

_FULL_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    host: str
    port: int


def tls_context(reach: Reach) -> ssl.SSLContext:
    """Returns a TLS context for `reach`. Raises ssl.SSLError if the text `reach.trusted` has no certificates."""
    if isinstance(reach.trusted, bool):
        context = httpx.create_ssl_context(verify=reach.trusted)
    else:
        context = ssl.create_default_context(cadata=reach.trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a trusted certificate need not have signed itself
        if reach.is_own:
            context.check_hostname = False
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    return context


async def open_socket(
    origin: Origin,
    *,
    uds: str | None = None,
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    timeout_s: float | None,
    only_to: Network | None = None,
) -> socket.socket:
    """Returns a connected, non-blocking socket. Raises httpx.ConnectError and httpx.ConnectTimeout."""
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _connected(origin, uds, only_to)
            return await _encrypted(sock, origin, tls()) if origin.scheme in ("https", "wss") else sock
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection to {origin.host}:{origin.port} within {timeout_s} s") from error
    except OSError as error:
        raise httpx.ConnectError(f"{error} ({uds or f'{origin.host}:{origin.port}'})") from error


def dial(origin: Origin, reach: Reach, *, timeout_s: float, address: str = "") -> socket.socket:
    """Returns a connected, blocking socket. `address` is one of the host's addresses, or `""` for any.

    Raises OSError.
    """
    if reach.uds is None:
        sock = socket.create_connection((address or origin.host, origin.port), timeout_s)
    else:
        sock = socket.socket(socket.AF_UNIX)
    try:
        if reach.uds is not None:
            sock.settimeout(timeout_s)
            sock.connect(reach.uds)
        return tls_context(reach).wrap_socket(sock, server_hostname=origin.host) if origin.scheme == "https" else sock
    except BaseException:
        sock.close()
        raise


async def require_allowed(origin: Origin, only_to: Network) -> None:
    """Raises httpx.ConnectError unless `only_to` allows all of the host's addresses."""
    addresses = await _addresses(asyncio.get_running_loop(), origin) if only_to.looks_up(origin.host) else []
    found = [str(each[4][0]) for each in addresses] or [origin.host]
    if refused := [each for each in found if not only_to.allows(each)]:
        raise httpx.ConnectError(f"{origin.host} isn't this machine: {refusal(refused[0])}")


def breach_of_idle(sock: socket.socket) -> Breach | None:
    """Returns a breach if the server closed an idle connection, or sent bytes on it; else None."""
    if isinstance(sock, ssl.SSLSocket):
        return Breach.OUT_OF_STEP if sock.pending() else None
    try:
        more = sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        more = b""
    return Breach.OUT_OF_STEP if more else Breach.CLOSED_UNSAID


async def _connected(origin: Origin, uds: str | None, only_to: Network | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    if uds is not None:
        return await _try(loop, socket.AF_UNIX, uds)
    if only_to is not None and not only_to.allows(origin.host) and not only_to.looks_up(origin.host):
        raise httpx.ConnectError(f"{origin.host} isn't this machine: {refusal(origin.host)}")
    addresses = await _addresses(loop, origin)
    if only_to is not None and addresses:
        found = [str(address[0]) for *_, address in addresses]
        addresses = [each for each in addresses if only_to.allows(str(each[4][0]))]
        if not addresses:
            raise httpx.ConnectError(f"{origin.host} leads to {found[0]}: {refusal(found[0])}")
    for family, _, _, _, address in addresses:
        try:
            sock = await _try(loop, family, address)
        except OSError:
            # A kept error would refer to this frame, and the frame to the error, for each refused connection.
            if address is addresses[-1][4]:
                raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise OSError(f"{origin.host} has no address")


async def _addresses(loop: asyncio.AbstractEventLoop, origin: Origin) -> list[tuple[int, int, int, str, tuple]]:  # type: ignore[type-arg]
    """Returns the host's addresses in getaddrinfo's format."""
    # For an IP address, no thread is needed to call getaddrinfo.
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, origin.host)
        except OSError:
            continue
        return [(family, socket.SOCK_STREAM, 0, "", (origin.host, origin.port))]
    return list(await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM))


async def _try(loop: asyncio.AbstractEventLoop, family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        while family == getattr(socket, "AF_UNIX", None):
            try:
                sock.connect(address)
            except BlockingIOError:  # the server's queue is full, and no event loop tells when there is room
                await asyncio.sleep(_FULL_PAUSE_S)
            else:
                return sock
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _encrypted(sock: socket.socket, origin: Origin, context: ssl.SSLContext) -> ssl.SSLSocket:
    loop = asyncio.get_running_loop()
    try:
        wrapped = context.wrap_socket(sock, server_hostname=origin.host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    try:
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(loop.add_reader, loop.remove_reader, wrapped.fileno())
            except ssl.SSLWantWriteError:
                await _ready(loop.add_writer, loop.remove_writer, wrapped.fileno())
            else:
                return wrapped
    except BaseException:
        wrapped.close()
        raise


async def _ready(add: Callable[..., object], remove: Callable[[int], object], fd: int) -> None:
    """Waits until `fd` is ready. `add` and `remove` are methods of the event loop, such as `add_reader`."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, tell)
    try:
        await ready
    finally:
        remove(fd)
