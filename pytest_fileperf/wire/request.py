"""Turns a request of httpx into bytes: a head, and a body from memory and files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast
from uuid import uuid4

import httpx

from pytest_fileperf.plan.payload import Payload
from pytest_fileperf.wire.family import FamilyClient, kind
from pytest_fileperf.wire.payload_files import FileSegment, PayloadFiles

_IN_ONE_PIECE_BYTES = 8 * 1024 * 1024
"""A body of at most this size is joined with its head, so that a small request is one `send`."""
_ILLEGAL_IN_VALUE = re.compile(rb"[\x00\r\n]")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_BLOCK_BYTES = 256 * 1024
_LONGEST_FORM_BYTES = 16 << 20


class SegmentStream(httpx.AsyncByteStream, httpx.SyncByteStream):
    """A request body with pieces from memory and from files.

    Any httpx transport can send this body, but only `LoadTransport` uses `sendfile` for files.
    """

    def __init__(self, segments: tuple[bytes | FileSegment, ...]) -> None:
        self.segments = segments

    def __iter__(self) -> Iterator[bytes]:
        for segment in self.segments:
            if isinstance(segment, bytes):
                yield segment
                continue
            rest: FileSegment | None = segment
            while rest is not None:
                block = rest.read(_BLOCK_BYTES)
                if not block:
                    raise httpx.ReadError(f"{rest.path} became shorter while it was sent")
                yield block
                rest = rest.after(len(block)) if len(block) < rest.size_bytes else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for block in self:
            yield block


class WireRequest:
    """A request as bytes, which can be sent any number of times.

    If the request has fields such as `{id}`, it gets new values each time.
    """

    __slots__ = ("body_bytes", "is_head", "is_last", "segments", "whole")

    def __init__(self, *, is_head: bool = False, is_last: bool = False, body_bytes: int = 0) -> None:
        self.is_head = is_head
        """Whether the answer has no body, because the method is HEAD."""
        self.is_last = is_last
        """Whether the request asks for the connection to be closed."""
        self.whole: bytes | memoryview | None = None
        """Head and body in one piece, or None if the request is very large or contains a file."""
        self.segments: tuple[memoryview | FileSegment, ...] = ()
        """Head and body in pieces, if there is no `whole`."""
        self.body_bytes = body_bytes


def head_of(request: httpx.Request) -> bytes:
    """Returns the request line and headers. Raises httpx.LocalProtocolError if they are not valid HTTP."""
    method = request.method.encode("ascii", "replace")
    target = request.extensions.get("target", request.url.raw_path)
    target = target.encode() if isinstance(target, str) else bytes(target)
    lines = [method + b" " + target + b" HTTP/1.1"]
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise httpx.LocalProtocolError(f"Illegal request line {lines[0]!r}")
    for name, value in request.headers.raw:
        if not _TOKEN.fullmatch(name):
            raise httpx.LocalProtocolError(f"Illegal header name {name!r}")
        if _ILLEGAL_IN_VALUE.search(value):
            raise httpx.LocalProtocolError(f"Illegal header value {value!r}")
        line = name + b": " + value
        # RFC 9112, section 3.2: Host goes first; httpx puts a user's own at the end.
        if len(lines) > 1 and name.lower() == b"host":
            lines.insert(1, line)
        else:
            lines.append(line)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def asks_for_close(request: httpx.Request) -> bool:
    return "close" in request.headers.get("Connection", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesOfRequest:
    is_head: bool
    is_last: bool
    head: bytes
    body: tuple[bytes | FileSegment, ...]
    body_bytes: int


def bytes_of(request: httpx.Request, family: ModuleType = httpx) -> BytesOfRequest | None:
    """Returns the request's head and body, or None if the body has to be streamed.

    Raises httpx.LocalProtocolError if the request is not valid HTTP, for example with a wrong content-length.
    """
    if "Transfer-Encoding" in request.headers:
        return None
    if isinstance(request.stream, SegmentStream):
        segments = request.stream.segments
    elif isinstance(request.stream, family.ByteStream):
        segments = (request.read(),)
    elif _is_short_form(request):
        segments = whole_body(request, family)
    else:
        return None
    head = head_of(request)
    size = sum(_size(segment) for segment in segments)
    declared = request.headers.get("Content-Length", "0")
    if declared != str(size):
        raise httpx.LocalProtocolError(f"the body has {size} bytes, but Content-Length declares {declared}")
    return BytesOfRequest(
        is_head=request.method == "HEAD", is_last=asks_for_close(request), head=head, body=segments, body_bytes=size
    )


def _is_short_form(request: httpx.Request) -> bool:
    """Returns whether the request is a form with files that fit into memory."""
    # httpx streams every form with files.
    length = request.headers.get("Content-Length", "")
    is_form = request.headers.get("Content-Type", "").startswith("multipart/form-data")
    return is_form and length.isdecimal() and int(length) <= _LONGEST_FORM_BYTES


def whole_body(request: httpx.Request, family: ModuleType = httpx) -> tuple[bytes | FileSegment, ...]:
    """Returns a body's pieces, or an empty tuple for an asynchronous body."""
    if isinstance(request.stream, SegmentStream):
        return request.stream.segments
    stream: object = request.stream
    return (b"".join(stream),) if isinstance(stream, family.SyncByteStream) else ()


def compile_request(request: httpx.Request, family: ModuleType = httpx) -> WireRequest | None:
    """Returns the request as bytes to send, or None if the body has to be streamed.

    Raises the same errors as `bytes_of`.
    """
    found = bytes_of(request, family)
    return None if found is None else ready(found)


def ready(found: BytesOfRequest) -> WireRequest:
    request = WireRequest(is_head=found.is_head, is_last=found.is_last, body_bytes=found.body_bytes)
    if found.body_bytes <= _IN_ONE_PIECE_BYTES and all(isinstance(segment, bytes) for segment in found.body):
        joined = b"".join([found.head, *(segment for segment in found.body if isinstance(segment, bytes))])
        request.whole = memoryview(joined)
    else:
        request.segments = tuple(
            memoryview(segment) if isinstance(segment, bytes) else segment
            for segment in (found.head, *found.body)
            if _size(segment)
        )
    return request


class LoadClient(FamilyClient):
    """A client that also takes a `Payload` in `content=` and in `files=`."""

    def __init__(self, *, payload_files: PayloadFiles | None = None, **options: Any) -> None:
        self._payload_files = payload_files or PayloadFiles()
        super().__init__(**options)

    def build_request(self, method: str, url: httpx.URL | str, **arguments: Any) -> httpx.Request:
        placeholders: dict[bytes, Payload] = {}
        for name in ("content", "files"):
            if arguments.get(name) is not None:
                arguments[name] = _with_placeholders(arguments[name], placeholders)
        request = super().build_request(method, url, **arguments)
        return self._filled(request, placeholders) if placeholders else request

    def _filled(self, request: httpx.Request, placeholders: dict[bytes, Payload]) -> httpx.Request:
        of, stream = self.family, cast(object, request.stream)
        if not isinstance(stream, of.SyncByteStream):
            raise TypeError("a payload cannot be combined with an asynchronous body")
        rest = b"".join(stream)
        segments: list[bytes | FileSegment] = []
        for token, content in placeholders.items():
            before, _, rest = rest.partition(token)
            segments += [before, *self._payload_files.segments(content)]
        segments.append(rest)
        own = kind(of, SegmentStream, "AsyncByteStream", "SyncByteStream")
        body = own(tuple(segment for segment in segments if _size(segment)))
        headers = request.headers.copy()
        headers["Content-Length"] = str(sum(map(_size, body.segments)))
        extensions = dict(request.extensions)
        made = of.Request(request.method, request.url, headers=headers, stream=body, extensions=extensions)
        return cast(httpx.Request, made)


def _with_placeholders(value: Any, placeholders: dict[bytes, Payload]) -> Any:
    """Replaces each payload in the value by random bytes. Adds these bytes with the payload to `placeholders`."""
    if isinstance(value, Payload):
        token = b"<" + uuid4().hex.encode() + b">"
        placeholders[token] = value
        return token
    if isinstance(value, Mapping):
        return {name: _file_with_placeholder(item, placeholders) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [(name, _file_with_placeholder(item, placeholders)) for name, item in value]
    return value


def _file_with_placeholder(item: Any, placeholders: dict[bytes, Payload]) -> Any:
    """Replaces the payload in one item of `files=`: a payload, or a tuple (filename, payload, …)."""
    if isinstance(item, Payload):
        return (item.filename, _with_placeholders(item, placeholders), item.content_type)
    if isinstance(item, tuple) and len(item) >= 2 and isinstance(item[1], Payload):
        content_type = item[2:] or (item[1].content_type,)
        return (item[0], _with_placeholders(item[1], placeholders), *content_type)
    return item


def _size(segment: bytes | FileSegment) -> int:
    return len(segment) if isinstance(segment, bytes) else segment.size_bytes
