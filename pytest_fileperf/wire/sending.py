"""Sends a connection's bytes, from memory or from files. Bytes that the socket does not take at once follow later."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable

import httpx

from pytest_fileperf.wire.payload_files import FileSegment

NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""A non-blocking socket raises one of these if the call would have to wait."""
_COPY_BYTES = 256 * 1024
"""Without `sendfile` (TLS, Windows), a file is read and sent in blocks of this size."""
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)
"""With this flag, the kernel puts a head and the file behind it into the same packets."""


class Sender:
    """Sends pieces in order, as fast as the socket takes them.

    `on_failure` is called if a file has become too short. `on_refusal` is called with the error and the number of
    unsent bytes, if the socket takes no more bytes.
    """

    __slots__ = (
        "_fd",
        "_gathers",
        "_loop",
        "_on_failure",
        "_on_refusal",
        "_pieces",
        "_plain",
        "_sock",
        "_steps",
        "_waiter",
        "_waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_failure: Callable[[httpx.TransportError], None],
        on_refusal: Callable[[OSError, int], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._plain = not isinstance(sock, ssl.SSLSocket)
        self._gathers = self._plain and hasattr(sock, "sendmsg")
        self._on_failure = on_failure
        self._on_refusal = on_refusal
        self._steps = 0  # how often the socket has taken something
        self._pieces: deque[memoryview | FileSegment] = deque()
        self._waiting = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def unfinished(self) -> bool:
        return bool(self._pieces)

    @property
    def unsent_bytes(self) -> int:
        return sum(piece.size_bytes if isinstance(piece, FileSegment) else len(piece) for piece in self._pieces)

    def send(self, pieces: Iterable[memoryview | FileSegment]) -> None:
        """Sends the pieces after all earlier pieces. Bytes that the socket does not take at once follow later."""
        self._pieces.extend(pieces)
        if not self._waiting:
            self._go_on()

    def send_later(self, piece: memoryview) -> None:
        self._pieces.append(piece)
        self._wait_for_socket()

    async def drained(self, timeout_s: float | None) -> None:
        """Waits until all pieces are sent, or the socket takes no more bytes.

        Raises httpx.WriteTimeout if the socket takes nothing for `timeout_s`.
        """
        while self._pieces:
            steps = self._steps
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            except TimeoutError as error:
                if self._steps == steps:
                    raise httpx.WriteTimeout(f"the server took no data for {timeout_s} s") from error
            finally:
                self._waiter = None

    def drop(self) -> None:
        """Forgets unsent pieces and the callbacks."""
        self._pieces.clear()
        # The callbacks form a reference cycle, and no garbage collector runs during a load.
        self._on_failure = lambda _: None
        self._on_refusal = lambda _, __: None
        self._stop_waiting()

    def _go_on(self) -> None:
        pieces = self._pieces
        try:
            while pieces:
                all_of_it = self._send_memory() if self._gathers else self._send_first()
                self._steps += 1
                if not all_of_it:
                    self._wait_for_socket()
                    return
        except NOT_NOW:
            self._wait_for_socket()
            return
        except EOFError as error:
            self._on_failure(httpx.WriteError(str(error)))
            return
        except OSError as error:
            unsent_bytes = self.unsent_bytes
            pieces.clear()
            self._on_refusal(error, unsent_bytes)
        self._stop_waiting()

    def _send_memory(self) -> bool:
        """Sends all pieces before the first file in one call, and returns whether the socket took them all."""
        pieces = self._pieces
        in_memory: list[memoryview] = []
        for piece in pieces:
            if isinstance(piece, FileSegment):
                break
            in_memory.append(piece)
        if len(in_memory) < 2:
            return self._send_first()
        sent = self._sock.sendmsg(in_memory, (), _MORE_FOLLOWS if len(in_memory) < len(pieces) else 0)
        for piece in in_memory:
            if sent < len(piece):
                pieces[0] = piece[sent:]
                return False
            sent -= len(piece)
            pieces.popleft()
        return True

    def _send_first(self) -> bool:
        """Sends from the first piece, and returns whether the socket took all of it."""
        rest = self._send_once(self._pieces[0], more=len(self._pieces) > 1)
        if rest is None:
            self._pieces.popleft()
            return True
        self._pieces[0] = rest
        return False

    def _send_once(self, piece: memoryview | FileSegment, *, more: bool) -> memoryview | FileSegment | None:
        """Sends bytes from one piece. Returns the piece's unsent rest; None if nothing is left.

        Raises EOFError if a file is too short.
        """
        if not isinstance(piece, FileSegment):
            sent = self._sock.send(piece, _MORE_FOLLOWS if more and self._plain else 0)
            return piece[sent:] if sent < len(piece) else None
        if self._plain and hasattr(os, "sendfile"):
            sent = os.sendfile(self._fd, piece.fd, piece.offset, piece.size_bytes)
        else:
            block = piece.read(_COPY_BYTES)
            sent = self._sock.send(block) if block else 0
        if sent == 0:
            raise EOFError(f"{piece.path} became shorter while it was sent")
        return piece.after(sent) if sent < piece.size_bytes else None

    def _wait_for_socket(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._fd, self._go_on)

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
