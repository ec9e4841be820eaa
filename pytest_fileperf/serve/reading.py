"""Notes which files an app reads while it is imported and started: its data is part of what is compared."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ("FilesRead",)

_WRITES = frozenset("wax+")


class FilesRead:
    """What stands for `open` meanwhile. It is no function: as an attribute of a class it would become a method."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._open = io.open

    def __call__(self, file: object, mode: str = "r", *args: object, **keywords: object) -> object:
        """Opens a file; notes its path if it is only read."""
        opened = self._open(file, mode, *args, **keywords)  # type: ignore[call-overload]  # what `open` takes is passed on
        if not _WRITES.intersection(mode) and isinstance(file, str | os.PathLike):
            self.paths.add(os.path.abspath(os.fsdecode(file)))  # noqa: PTH100 # Path.absolute keeps `..`
        return opened

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes what is read in the block, by Python's `open` and `pathlib`."""
        before = builtins.open, io.open
        builtins.open = io.open = self  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open, io.open = before
