"""Puts a text into a file all at once or not at all; what a failure means is for the caller to say."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ("put_text",)


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
