"""Where an HTTP/1.1 response begins and ends: its head, and a body by length, by chunks or until the connection closes.

Knows bytes only; sockets belong to `connection`. Heads are parsed by httptools, once for each distinct head: the heads
of a load differ only when the server's `date` moves on, so a replayed request costs one dictionary look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import httptools
import httpx

__all__ = (
    "BODYLESS_STATUSES",
    "CHUNKED",
    "UNTIL_CLOSE",
    "ChunkedReader",
    "DisconnectedError",
    "HeadCache",
    "ResponseHead",
    "checked_partial_head",
    "head_end",
)

CHUNKED = -1
UNTIL_CLOSE = -2
"""Body lengths that are not a number of bytes."""

_MAX_HEAD_BYTES = 100 * 1024
"""Longer heads and chunk lines are refused, at the limit that httpx's own transport has."""

_CACHED_HEADS = 1024
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r")
_CONTENT_LENGTH = re.compile(rb"[0-9]{1,19}")
BODYLESS_STATUSES = frozenset((204, 304))


class DisconnectedError(httpx.RemoteProtocolError):
    """The server closed the connection before its answer was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status line and headers of one response."""

    status: int
    reason: bytes
    version: bytes
    """As the server says it: `HTTP/1.1`, `HTTP/1.0`."""
    headers: tuple[tuple[bytes, bytes], ...]
    """As received, in order, names in their own case."""
    body: int
    """Length of the body in bytes, `CHUNKED` or `UNTIL_CLOSE`, unless the request was a HEAD."""
    keep_alive: bool
    """Whether the server keeps the connection open; it cannot where the body ends with the connection."""

    @property
    def informational(self) -> bool:
        """Whether another head follows (100 to 199, but not 101)."""
        return 100 <= self.status < 200 and self.status != 101

    @property
    def content_type(self) -> str:
        """What the content is: `text/event-stream`; empty where it does not say."""
        return b", ".join(_values(self.headers, b"content-type")).decode("latin-1")

    @property
    def content_encoding(self) -> str:
        """How the content is packed: `gzip`; empty where it is as it is."""
        return b", ".join(_values(self.headers, b"content-encoding")).decode("ascii", "replace")


class HeadCache:
    """Parsed heads by their bytes."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[bytes, ResponseHead] = {}

    def get(self, raw: bytes) -> ResponseHead:
        """Returns the parsed head; `raw` ends with its blank line. Raises httpx.RemoteProtocolError."""
        head = self._heads.get(raw)
        if head is None:
            head = _parse_head(raw)
            if len(self._heads) >= _CACHED_HEADS:
                self._heads.clear()
            self._heads[raw] = head
        return head


class _HeadEvents:
    """Collects what httptools finds in a head."""

    def __init__(self) -> None:
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.strip(b" \t")))


def _parse_head(raw: bytes) -> ResponseHead:
    if not raw.startswith(b"HTTP/"):
        raise httpx.RemoteProtocolError(f"this is no HTTP/1 response: {raw[:40]!r}")
    events = _HeadEvents()
    parser = httptools.HttpResponseParser(events)
    try:
        parser.feed_data(raw)
        version = parser.get_http_version()
        status = parser.get_status_code()
    except httptools.HttpParserUpgrade:
        version, status = "1.1", parser.get_status_code()
    except httptools.HttpParserError:
        # Folded lines, bare LF, a content-length given twice: httptools is strict. What httpx takes, we take.
        return _parse_head_as_httpx_does(raw)
    return _head(status, events.reason, version, tuple(events.headers))


def _parse_head_as_httpx_does(raw: bytes) -> ResponseHead:
    import h11

    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "any")]))
    connection.send(h11.EndOfMessage())
    try:
        connection.receive_data(raw)
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(f"{error} (in the response head {raw[:80]!r})") from error
    if not isinstance(event, h11.Response | h11.InformationalResponse):
        raise httpx.RemoteProtocolError(f"this is no response head: {raw[:80]!r}")
    headers = tuple((bytes(name), bytes(value)) for name, value in event.headers.raw_items())
    return _head(event.status_code, bytes(event.reason), event.http_version.decode(), headers)


def head_end(data: bytes | bytearray, start: int, end: int) -> int:
    """Returns where a head ends, blank line included, between two places of the data; 0 where it goes on after them.

    Its lines may end in LF alone. The earliest end counts: a body may have another one.
    """
    blank = data.find(b"\n\r\n", start, end)
    bare = data.find(b"\n\n", start, blank + 1 if blank >= 0 else end)
    return bare + 2 if bare >= 0 else blank + 3 if blank >= 0 else 0


def checked_partial_head(data: bytes) -> bytes:
    """Returns the start of a head; raises httpx.RemoteProtocolError when it cannot become one."""
    if not data.startswith(b"HTTP/"[: len(data)]):
        raise httpx.RemoteProtocolError(f"this is no HTTP/1 response: {data[:40]!r}")
    if len(data) > _MAX_HEAD_BYTES:
        raise httpx.RemoteProtocolError(f"the response head is longer than {_MAX_HEAD_BYTES} bytes")
    return data


def _head(status: int, reason: bytes, version: str, headers: tuple[tuple[bytes, bytes], ...]) -> ResponseHead:
    return ResponseHead(
        status=status,
        reason=reason,
        version=b"HTTP/" + version.encode(),
        headers=headers,
        body=_body_length(status, headers),
        keep_alive=_keeps_alive(version, headers) and status != 101,
    )


def _values(headers: tuple[tuple[bytes, bytes], ...], wanted: bytes) -> list[bytes]:
    """Returns the comma-separated values of all headers of that lower-case name, in lower case."""
    return [part.strip().lower() for name, value in headers if name.lower() == wanted for part in value.split(b",")]


def _keeps_alive(version: str, headers: tuple[tuple[bytes, bytes], ...]) -> bool:
    options = _values(headers, b"connection")
    return b"close" not in options if version != "1.0" else b"keep-alive" in options


def _body_length(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> int:
    """Returns how the body ends (RFC 9112, section 6.3)."""
    if status < 200 or status in BODYLESS_STATUSES:
        return 0
    if codings := _values(headers, b"transfer-encoding"):
        if codings != [b"chunked"]:
            raise httpx.RemoteProtocolError(
                f"transfer-encoding {b', '.join(codings).decode('ascii', 'replace')!r}: only 'chunked' is supported"
            )
        return CHUNKED
    lengths = set(_values(headers, b"content-length"))
    if not lengths:
        return UNTIL_CLOSE
    length = lengths.pop()
    if lengths or not _CONTENT_LENGTH.fullmatch(length):
        raise httpx.RemoteProtocolError("bad or conflicting content-length headers in the response")
    return int(length)


class ChunkedReader:
    """Finds the end of a chunked body and counts its content; hands out the content only when asked to."""

    __slots__ = ("_after_data", "_line", "_trailers", "left", "received")

    def __init__(self) -> None:
        self.left = 0
        """Bytes of the current chunk still to come."""
        self.received = 0
        """Bytes of content so far."""
        self._line = b""
        self._after_data = False
        self._trailers = False

    def skip(self, size_bytes: int) -> None:
        """Counts so many bytes of the current chunk as received; at most `left`."""
        self.left -= size_bytes
        self.received += size_bytes

    def feed(self, data: memoryview, deliver: Callable[[memoryview], object] | None) -> int:
        """Reads on; returns how many bytes of `data` belonged to the body when it ended in them, or -1 for "more".

        `deliver` is called with each piece of content. Raises httpx.RemoteProtocolError.
        """
        position, end = 0, len(data)
        while position < end:
            if self.left:
                take = min(self.left, end - position)
                if deliver is not None:
                    deliver(data[position : position + take])
                self.skip(take)
                position += take
                continue
            # Lines are short: look at 64 bytes first and at everything only if that was not enough.
            piece = bytes(data[position : position + 64])
            stop = piece.find(b"\n")
            if stop < 0 and end - position > 64:
                piece = bytes(data[position:end])
                stop = piece.find(b"\n")
            if stop < 0:
                self._line += piece
                if len(self._line) > _MAX_HEAD_BYTES:
                    raise httpx.RemoteProtocolError("a line in the chunked body is too long")
                return -1
            line = self._line + piece[:stop]
            self._line = b""
            position += stop + 1
            if self._ends_with(line):
                return position
        return -1

    def _ends_with(self, line: bytes) -> bool:
        """Takes a line without its LF; returns whether it was the body's last."""
        if self._after_data:
            if line != b"\r":
                raise httpx.RemoteProtocolError(f"a chunk is followed by {line[:20]!r} where a line end should be")
            self._after_data = False
            return False
        if self._trailers:
            if line == b"\r":
                return True
            if b":" not in line or line[:1] in b" \t:":
                raise httpx.RemoteProtocolError(f"illegal trailer {line[:40]!r}")
            return False
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise httpx.RemoteProtocolError(f"illegal chunk size line {line[:40]!r}")
        self.left = int(match[1], 16)
        self._trailers = self.left == 0
        self._after_data = self.left > 0
        return False
