"""Writes a regular file all at once or not at all, and a pipe or a device directly."""

from __future__ import annotations

import errno
import os
import select
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.host.scratch import beside

MAKE_ROOM = "Free some space in the temporary directory, or name another one with TMPDIR"
_LEAST_FREE_BYTES = 64 << 10
"""Programs write in pieces of this size, so a disk with less free space counts as full."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READER_S = 10.0
"""The longest wait until somebody reads from a pipe."""


def put_text(path: Path, text: str) -> None:
    r"""Writes UTF-8 as `put_bytes` does. Characters that UTF-8 lacks become escapes, such as `\udc80`."""
    put_bytes(path, text.encode("utf-8", "backslashreplace"))


def put_bytes(path: Path, data: bytes) -> None:
    """Writes to a temporary file beside `path`, then renames it. Makes missing directories.

    If `path` is a link, its target is replaced. A device, a pipe, and this process's own output are written directly.
    If this raises OSError, an older file is unchanged.
    """
    there = None
    with suppress(FileNotFoundError):
        there = path.stat()
    if there is not None:
        # Opening our own output again would overwrite earlier text.
        own = next((output for output in (1, 2) if _is_open_at(there, output)), None)
        if own is not None:
            _write_all(own, data)
            return
        if not stat.S_ISREG(there.st_mode):
            descriptor = _opened(path, waits=stat.S_ISFIFO(there.st_mode))
            try:
                _write_all(descriptor, data)
            finally:
                os.close(descriptor)
            return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A directory and open(), which honours the umask: only the owner could read a file from mkstemp.
    with beside(path.parent) as temporary:
        fresh = temporary / "new"
        with fresh.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)


def not_started(what: str, error: OSError) -> str:
    advice = f". {MAKE_ROOM}" if error.errno in _FULL else ""
    return f"{what} cannot be started from {tempfile.gettempdir()}: {error}{advice}"


def full_disk() -> str:
    """Returns a sentence if the disk of the temporary or the working directory is full, else an empty text."""
    for place, advice in ((Path(tempfile.gettempdir()), MAKE_ROOM), (Path.cwd(), "Free some space there")):
        with suppress(OSError):
            free_bytes = shutil.disk_usage(place).free
            if free_bytes < _LEAST_FREE_BYTES:
                return f"the disk of {place} is full, {free_bytes:,} bytes are left. {advice}"
    return ""


def write_text(path: Path, text: str) -> None:
    """Writes as `put_text` does, but raises FilePerfError."""
    try:
        put_text(path, text)
    except OSError as error:
        remedy = "Free some space there, or name another path" if error.errno in _FULL else "Name another path"
        raise FilePerfError(f"cannot write {path}: {error.strerror or error}. {remedy}") from error


def _is_open_at(there: os.stat_result, descriptor: int) -> bool:
    """Returns whether `descriptor` writes to the file `there`."""
    try:
        return os.path.samestat(there, os.fstat(descriptor))
    except OSError:
        return False


def _opened(path: Path, *, waits: bool) -> int:
    """Opens a device or a pipe for writing. With `waits`, waits until the pipe has a reader. Raises OSError."""
    until_s = time.monotonic() + _READER_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
        except OSError as error:
            if not waits or error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until_s:
                raise _nobody_reads() from error
        time.sleep(0.002)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError as error:
            if not select.select([], [descriptor], [], _READER_S)[1]:
                raise _nobody_reads() from error


def _nobody_reads() -> OSError:
    return OSError(errno.EPIPE, f"it is a pipe that nobody has read from for {_READER_S:g} s")
