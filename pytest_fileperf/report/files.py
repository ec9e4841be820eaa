"""Writes report files: all at once or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytest_fileperf.errors import FilePerfError

__all__ = ("write_text",)


def write_text(path: Path, text: str) -> None:
    """Writes the text as UTF-8 to a temporary file beside `path`, then renames it; missing directories are made.

    Raises FilePerfError, naming path and reason, when it cannot be written; what was there before is then unchanged.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp's 0600 would make a report that only its owner can read; open() honours the umask.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fileperf-") as directory:
            temporary = Path(directory) / path.name
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
    except OSError as error:
        raise FilePerfError(f"cannot write {path}: {error.strerror or error}") from error
