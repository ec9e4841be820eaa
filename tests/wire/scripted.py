"""A server that does to each connection exactly what a script says: bytes, pauses, ends and resets.

    server = ScriptedServer(((Request(), Send(b"HTTP/1.1 200 OK\\r\\n…"), Fin()),))

The nth connection follows the nth script; further connections follow the last. A script is over when its steps are, or
when the client has closed the connection; then the server waits for the client to close.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.I)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.I)


class Step(Protocol):
    """One thing that the server does."""

    async def play(self, peer: Peer) -> None: ...


@dataclass(eq=False, slots=True)
class Peer:
    """One accepted connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    """What was received, as far as the script asked for it."""


@dataclass(frozen=True, slots=True)
class Request:
    """Reads one whole request: its head, and its body by length or by chunks."""

    async def play(self, peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        body = b""
        if length := _CONTENT_LENGTH.search(head):
            body = await peer.reader.readexactly(int(length[1]))
        elif _CHUNKED.search(head):
            while not body.endswith(b"\r\n0\r\n\r\n") and body != b"0\r\n\r\n":
                line = await peer.reader.readuntil(b"\r\n")
                body += line + await peer.reader.readexactly(int(line, 16) + 2)
        peer.requests.append(head + body)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Reads only the head of a request."""

    async def play(self, peer: Peer) -> None:
        peer.requests.append(await peer.reader.readuntil(b"\r\n\r\n"))


@dataclass(frozen=True, slots=True)
class Send:
    """Sends bytes, in pieces of `step` bytes when that is given, so that the client reads each piece by itself."""

    data: bytes
    step: int = 0

    async def play(self, peer: Peer) -> None:
        step = self.step or max(len(self.data), 1)
        for start in range(0, len(self.data), step):
            peer.writer.write(self.data[start : start + step])
            await peer.writer.drain()
            if self.step:
                for _ in range(3):
                    await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Pause:
    """Does nothing for a moment; so short that only the order of events changes."""

    seconds: float = 0.01

    async def play(self, peer: Peer) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class Drain:
    """Reads and throws away so many bytes."""

    size_bytes: int

    async def play(self, peer: Peer) -> None:
        await peer.reader.readexactly(self.size_bytes)


@dataclass(frozen=True, slots=True)
class Fin:
    """Closes the server's side, and reads what the client still sends."""

    async def play(self, peer: Peer) -> None:
        if peer.writer.can_write_eof():
            peer.writer.write_eof()
        else:
            peer.writer.close()
        while await peer.reader.read(1 << 16):
            pass


@dataclass(frozen=True, slots=True)
class Reset:
    """Ends the connection with a TCP reset, right behind these bytes: the client hears of both at once."""

    after: bytes = b""

    async def play(self, peer: Peer) -> None:
        sock = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self.after:
            _send_and_close(sock, self.after)
        peer.writer.transport.abort()


def _send_and_close(sock: socket.socket, data: bytes) -> None:
    """Does both before the event loop looks at any socket again: transports write or close only later."""
    with socket.socket(fileno=os.dup(sock.fileno())) as same:
        same.sendall(data)
    for end in socket.socketpair():
        with end:
            os.dup2(end.fileno(), sock.fileno(), inheritable=False)  # something for the transport to close


Script = tuple[Step, ...]


class ScriptedServer:
    """An async context manager; `url` is where to ask, `peers` are the connections in the order of their coming."""

    def __init__(
        self,
        scripts: tuple[Script, ...],
        *,
        host: str = "127.0.0.1",
        uds: Path | None = None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._scripts = scripts
        self._host = host
        self._uds = uds
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: list[Peer] = []
        self.port = 80

    @property
    def authority(self) -> str:
        """Host and port as in the URL."""
        if self._uds is not None:
            return "localhost"
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"{'https' if self._tls else 'http'}://{self.authority}"

    async def __aenter__(self) -> Self:
        if self._uds is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._uds)
        else:
            self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        script = self._scripts[min(len(self.peers), len(self._scripts) - 1)]
        self.peers.append(peer)
        try:
            async with _ended_by_client():
                for step in script:
                    await step.play(peer)
                while await reader.read(1 << 16):
                    pass
        finally:
            writer.close()
            self._tasks.discard(task)


@contextlib.asynccontextmanager
async def _ended_by_client() -> AsyncIterator[None]:
    with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
        yield
