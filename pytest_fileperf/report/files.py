"""Writes report files: all at once or not at all."""

from __future__ import annotations

from pathlib import Path

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.files import put_text

__all__ = ("write_text",)


def write_text(path: Path, text: str) -> None:
    """Writes the text as UTF-8 in the place of what was there; missing directories are made.

    Raises FilePerfError, naming path and reason, when it cannot be written; what was there before is then unchanged.
    """
    try:
        put_text(path, text)
    except OSError as error:
        raise FilePerfError(f"cannot write {path}: {error.strerror or error}") from error
