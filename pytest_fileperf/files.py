"""Writes a file all at once or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from pytest_fileperf.errors import FilePerfError

__all__ = ("MAKE_ROOM", "put_text", "write_text")

MAKE_ROOM = "make room in the temporary directory, or name another with TMPDIR"
"""What to do where a temporary file cannot be written."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a file system that has no more room, for anybody or for this user."""


def put_text(path: Path, text: str) -> None:
    """Writes the text as UTF-8 to a temporary file beside `path`, then renames it; missing directories are made.

    Raises OSError when it cannot be written; what was there before is then unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A directory of our own, as mkstemp's file would be readable for its owner alone; open() honours the umask.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fileperf-") as temporary:
        fresh = Path(temporary) / path.name
        with fresh.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)


def write_text(path: Path, text: str) -> None:
    """Does what `put_text` does; raises FilePerfError, naming path, reason and what to do, when it cannot be."""
    try:
        put_text(path, text)
    except OSError as error:
        remedy = "make room there, or name another path" if error.errno in _FULL else "name another path"
        raise FilePerfError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error
