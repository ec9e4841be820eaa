"""A stretch of a file as part of a request body."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ("FileSegment",)


@dataclass(frozen=True, slots=True)
class FileSegment:
    """A stretch of an open file."""

    path: Path
    fd: int
    offset: int
    size_bytes: int

    def after(self, sent_bytes: int) -> FileSegment:
        """Returns the stretch without its first bytes."""
        return FileSegment(self.path, self.fd, self.offset + sent_bytes, self.size_bytes - sent_bytes)

    def read(self, size_bytes: int) -> bytes:
        """Returns the first bytes of the stretch, at most so many."""
        size_bytes = min(size_bytes, self.size_bytes)
        if hasattr(os, "pread"):
            return os.pread(self.fd, size_bytes, self.offset)
        os.lseek(self.fd, self.offset, os.SEEK_SET)
        return os.read(self.fd, size_bytes)
