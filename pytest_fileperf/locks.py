"""Locks between processes: of an open file, which the system gives back when a process ends, however it does."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ("is_held", "locked", "take")

_PAUSE_S = 0.002
"""Between two tries: short, so that who waits gets its turn beside one who stores a lot."""
_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
"""Errors of a lock that somebody else has. With others the file system has no locks."""


@contextmanager
def locked(path: Path, *, within_s: float) -> Iterator[None]:
    """Holds the lock of this file, which is made and stays, against other processes and threads.

    The system gives it back when a process ends, however it does. Where the file system has no locks there is none.
    Raises TimeoutError where somebody else holds it for longer than this, and OSError where the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        until_s = time.monotonic() + within_s
        while not take(file.fileno()):
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has held {path} for {within_s:g} s")
            time.sleep(_PAUSE_S)
        yield


def take(descriptor: int) -> bool:
    """Takes the lock, which ends when the file is closed; returns False where somebody else has it."""
    try:
        _take(descriptor)
    except OSError as error:
        return error.errno not in _HELD
    return True


def is_held(descriptor: int) -> bool:
    """Returns whether somebody else has the lock, or may have it: some file systems have none. Else it is taken."""
    try:
        _take(descriptor)
    except OSError:
        return True
    return False


def _take(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
