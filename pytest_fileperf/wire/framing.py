"""Parses the heads of HTTP/1.1 responses: the status line and the headers.

Each different head is parsed once. A load's heads differ only in the server's `date`, so most cost one look-up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import httptools
import httpx

CHUNKED = -1
UNTIL_CLOSE = -2
"""`CHUNKED` and `UNTIL_CLOSE` are values of `ResponseHead.body` if the head states no length."""

MAX_HEAD_BYTES = 100 * 1024
"""Longer heads and chunk lines are refused, as in httpx."""

_CACHED_HEADS = 256
"""At most this many parsed heads are kept, of about a KiB each. A `date` header makes a new head each second."""
_INFORMATIONAL_HEADS = 1000
"""At most this many informational heads (1xx) may come before the final head. So no request lasts for ever."""
_CONTENT_LENGTH = re.compile(rb"[0-9]{1,20}")
_ILLEGAL_IN_REASON = re.compile(rb"[\x00\r\n\x0b\x0c]")
_KEPT_TRAILERS = 256
BODYLESS_STATUSES = frozenset((204, 304))
SWITCHED = 101
"""After this status the connection speaks another protocol, such as WebSockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    status: int
    reason: bytes
    version: bytes
    """The version as the server sends it: `HTTP/1.1`, `HTTP/1.0`."""
    headers: tuple[tuple[bytes, bytes], ...]
    """The headers as received, with upper and lower case."""
    body: int
    """The body's length in bytes, `CHUNKED` or `UNTIL_CLOSE`. The answer to a HEAD request has no body, whatever this
    says."""
    keep_alive: bool
    """Whether the server announces that it keeps the connection open."""

    @property
    def informational(self) -> bool:
        """Whether this is an informational head (1xx), which another head follows."""
        return 100 <= self.status < 200 and self.status != SWITCHED

    @property
    def content_type(self) -> str:
        """The header `content-type`, such as `text/event-stream`. Empty without the header."""
        return b", ".join(_values(self.headers, b"content-type")).decode("latin-1")

    @property
    def content_encoding(self) -> str:
        """The header `content-encoding`, such as `gzip`. Empty without the header."""
        return b", ".join(_values(self.headers, b"content-encoding")).decode("ascii", "replace")


class HeadCache:
    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[bytes, ResponseHead] = {}

    def get(self, raw: bytes) -> ResponseHead:
        """Returns the parsed head. `raw` is the head with its blank line. Raises httpx.RemoteProtocolError."""
        head = self._heads.get(raw)
        if head is None:
            head = _parse_head(raw)
            if len(self._heads) >= _CACHED_HEADS:
                self._heads.clear()
            self._heads[raw] = head
        return head


@lru_cache(maxsize=_KEPT_TRAILERS)
def check_trailers(raw: bytes) -> None:
    """Raises httpx.RemoteProtocolError unless `raw` contains valid trailers (headers after the last chunk)."""
    _parse_head_as_httpx_does(b"HTTP/1.1 200 OK\r\n" + raw)


class HeadReader:
    """Finds an answer's final head in bytes that arrive in any pieces. Skips informational heads (1xx)."""

    __slots__ = ("_heads", "_informational", "partial")

    def __init__(self, heads: HeadCache) -> None:
        self._heads = heads
        self.partial = bytearray()
        """The start of a head whose end has not yet arrived."""
        self._informational = 0

    def feed(self, buffer: bytearray, received: int) -> tuple[ResponseHead, memoryview] | None:
        """Takes the first `received` bytes of `buffer`. Returns the final head and the bytes behind it.

        Returns None while the head is incomplete. Raises httpx.RemoteProtocolError if it is invalid.
        """
        data, end, looked_at = buffer, received, 0
        if self.partial:
            # Only new bytes, with at most two earlier ones, can complete the blank line.
            looked_at = max(0, len(self.partial) - 2)
            data = self.partial
            data += memoryview(buffer)[:received]
            end = len(data)
            self.partial = bytearray()
        start, view = 0, memoryview(data)
        while (stop := _head_end(data, looked_at, end)) > 0:
            head = self._heads.get(bytes(view[start:stop]))
            if not head.informational:
                self._informational = 0
                return head, view[stop:end]
            self._informational += 1
            if self._informational > _INFORMATIONAL_HEADS:
                raise httpx.RemoteProtocolError(f"more than {_INFORMATIONAL_HEADS} responses 1xx, and no final one")
            start = looked_at = stop
        self.partial = _checked_start(data if data is not buffer and not start else bytearray(view[start:end]))
        return None


def _head_end(data: bytearray, start: int, end: int) -> int:
    """Returns the index after the first blank line between `start` and `end`, or 0 if there is none."""
    blank = data.find(b"\n\r\n", start, end)
    bare = data.find(b"\n\n", start, blank + 1 if blank >= 0 else end)
    return bare + 2 if bare >= 0 else blank + 3 if blank >= 0 else 0


def _checked_start(data: bytearray) -> bytearray:
    """Returns `data`. Raises httpx.RemoteProtocolError if no valid head begins with it."""
    if not data.startswith(b"HTTP/"[: len(data)]):
        raise httpx.RemoteProtocolError(f"this isn't an HTTP/1 response: {bytes(data[:40])!r}")
    if len(data) > MAX_HEAD_BYTES:
        raise httpx.RemoteProtocolError(f"the response head is longer than {MAX_HEAD_BYTES} bytes")
    return data


class _HeadEvents:
    def __init__(self) -> None:
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.strip(b" \t")))


def _parse_head(raw: bytes) -> ResponseHead:
    if not raw.startswith(b"HTTP/"):
        raise httpx.RemoteProtocolError(f"this isn't an HTTP/1 response: {raw[:40]!r}")
    events = _HeadEvents()
    parser = httptools.HttpResponseParser(events)
    try:
        parser.feed_data(raw)
        version = parser.get_http_version()
        status = parser.get_status_code()
    except httptools.HttpParserUpgrade:
        version, status = parser.get_http_version(), parser.get_status_code()
    except httptools.HttpParserError:
        # Folded lines, bare LF, a repeated content-length: httptools is strict, but httpx accepts them, and so do we.
        return _parse_head_as_httpx_does(raw)
    if status < 100 or _ILLEGAL_IN_REASON.search(events.reason):
        return _parse_head_as_httpx_does(raw)  # here httptools is lax
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
        raise httpx.RemoteProtocolError(f"this isn't a response head: {raw[:80]!r}")
    headers = tuple((bytes(name), bytes(value)) for name, value in event.headers.raw_items())
    return _head(event.status_code, bytes(event.reason), event.http_version.decode(), headers)


def _head(status: int, reason: bytes, version: str, headers: tuple[tuple[bytes, bytes], ...]) -> ResponseHead:
    return ResponseHead(
        status=status,
        reason=reason,
        version=b"HTTP/" + version.encode(),
        headers=headers,
        body=_body_length(status, headers),
        keep_alive=_keeps_alive(version, headers) and status != SWITCHED,
    )


def _values(headers: tuple[tuple[bytes, bytes], ...], wanted: bytes) -> list[bytes]:
    """Returns the comma-separated parts of all headers with this name, in lower case."""
    return [part.strip().lower() for name, value in headers if name.lower() == wanted for part in value.split(b",")]


def _keeps_alive(version: str, headers: tuple[tuple[bytes, bytes], ...]) -> bool:
    options = _values(headers, b"connection")
    if b"close" in options or version < "1.0":
        return False
    return version > "1.0" or b"keep-alive" in options


def _body_length(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> int:
    """Returns a value for `ResponseHead.body` (RFC 9112, section 6.3). Raises httpx.RemoteProtocolError."""
    codings = _values(headers, b"transfer-encoding")
    if codings and codings != [b"chunked"]:
        raise httpx.RemoteProtocolError(
            f"transfer-encoding {b', '.join(codings).decode('ascii', 'replace')!r}: only 'chunked' is supported"
        )
    lengths = set(_values(headers, b"content-length"))
    if len(lengths) > 1 or not all(map(_CONTENT_LENGTH.fullmatch, lengths)):
        raise httpx.RemoteProtocolError("bad or conflicting content-length headers in the response")
    if status == SWITCHED:
        return UNTIL_CLOSE
    if status < 200 or status in BODYLESS_STATUSES:
        return 0
    if codings:
        return CHUNKED
    return int(lengths.pop()) if lengths else UNTIL_CLOSE
