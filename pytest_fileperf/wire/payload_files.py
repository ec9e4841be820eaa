"""Prepares payloads for sending: small ones in memory, large ones in files that `sendfile` reads."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_fileperf.errors import LoadError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.files import MAKE_ROOM
from pytest_fileperf.plan.payload import UNIQUE_BYTES, Payload, gone, unique_bytes

IN_MEMORY_BYTES = 1 << 20
"""Larger payloads are sent from a file."""


@dataclass(frozen=True, slots=True)
class FileSegment:
    """A part of an open file, which is sent in a request's body."""

    path: Path
    fd: int
    offset: int
    size_bytes: int

    def after(self, sent_bytes: int) -> FileSegment:
        return FileSegment(self.path, self.fd, self.offset + sent_bytes, self.size_bytes - sent_bytes)

    def read(self, size_bytes: int) -> bytes:
        size_bytes = min(size_bytes, self.size_bytes)
        if hasattr(os, "pread"):
            return os.pread(self.fd, size_bytes, self.offset)
        os.lseek(self.fd, self.offset, os.SEEK_SET)
        return os.read(self.fd, size_bytes)


class PayloadFiles:
    """Makes each payload once. Large payloads become temporary files, which `close` removes."""

    def __init__(self, directory: Path | None = None) -> None:
        self._parent = directory
        self._directory: Path | None = None
        self._remove: Callable[[], object] = int
        self._segments: dict[Payload, tuple[bytes | FileSegment, ...]] = {}
        self._starts: dict[Payload, bytes | FileSegment] = {}
        """For payloads that differ in each request: the first bytes, which all variants share."""

    def segments(self, content: Payload) -> tuple[bytes | FileSegment, ...]:
        """Returns the payload's pieces, in order.

        Raises LoadError if a temporary file cannot be written, PlanError if the payload's own file is gone.
        """
        if content.unique or content.tail:
            return self._start(replace(content, unique=False, tail=b"")), content.tail or unique_bytes()
        known = self._segments.get(content)
        if known is None:
            known = self._segments[content] = self._make(content)
        return known

    def close(self) -> None:
        pieces = [piece for pieces in self._segments.values() for piece in pieces]
        for fd in {piece.fd for piece in pieces if isinstance(piece, FileSegment)}:
            os.close(fd)
        self._segments.clear()
        self._starts.clear()
        self._remove()
        self._directory = None

    def _start(self, content: Payload) -> bytes | FileSegment:
        known = self._starts.get(content)
        if known is None:
            (whole,) = self.segments(content)
            left = content.size_bytes - UNIQUE_BYTES
            known = whole[:left] if isinstance(whole, bytes) else FileSegment(whole.path, whole.fd, whole.offset, left)
            self._starts[content] = known
        return known

    def _make(self, content: Payload) -> tuple[bytes | FileSegment, ...]:
        if content.size_bytes <= IN_MEMORY_BYTES:
            return (b"".join(content.blocks()),)
        if content.path is not None:
            try:
                return (FileSegment(content.path, os.open(content.path, os.O_RDONLY), 0, content.size_bytes),)
            except OSError as error:
                raise gone(content.path, error) from error
        try:
            path = self._written(content)
            return (FileSegment(path, os.open(path, os.O_RDONLY), 0, content.size_bytes),)
        except OSError as error:
            raise LoadError(
                f"cannot make a file for a payload of {content.size_bytes} bytes: {error}. {MAKE_ROOM}"
            ) from error

    def _written(self, content: Payload) -> Path:
        if self._directory is None:
            if self._parent is None:
                self._directory = scratch.make("payloads")
            else:
                self._directory = Path(tempfile.mkdtemp(prefix="payloads-", dir=self._parent))
            self._remove = weakref.finalize(self, scratch.remove, self._directory)
        path = self._directory / f"{len(self._segments)}.bin"
        with path.open("wb") as file:
            for block in content.blocks():
                file.write(block)
        return path
