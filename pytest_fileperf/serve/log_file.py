"""What a process writes to its standard output and error: a file of which only the end is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

__all__ = ("LogFile",)

LONGEST_BYTES = 16 << 20
"""A longer file is emptied at the next look at it. Between two looks, a process can write some 100 MiB."""
_TAIL_BYTES = 64 << 10
_TAIL_LINES = 40


class LogFile:
    """The log of one process. Whoever looks after the process calls `shorten` now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: tuple[str, ...] = ()
        """The last lines of what is no longer in the file."""

    def open(self) -> BinaryIO:
        """Opens it for a process to write to. Each write goes to the end of the file, also after it was emptied."""
        return self._path.open("ab")

    def lines(self) -> tuple[str, ...]:
        """Returns the last lines; empty where there is no file."""
        try:
            with self._path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - _TAIL_BYTES))
                tail = log.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return ()
        return (*self._before, *tail)[-_TAIL_LINES:]

    def shorten(self) -> None:
        """Empties the file where it has become long, and remembers its last lines: a disk must not fill up with it.

        What is written between reading and emptying is lost.
        """
        try:
            if self._path.stat().st_size > LONGEST_BYTES:
                self._before = self.lines()
                os.truncate(self._path, 0)
        except OSError:  # it is gone, or the system does not let files be shortened that others write to
            return
