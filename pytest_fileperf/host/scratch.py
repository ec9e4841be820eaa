"""Temporary directories for a test run. They are marked, and if a run is killed, the next run removes them.

    TMPDIR/fileperf-2x9a/         one for each test process that needs any
        .pytest-fileperf          the mark, which this process keeps locked
        server-k31b/  base-p0qe/  one for each use

The test process removes the whole with its last use, or as it exits, even after Ctrl-C. If programs still run below a
supervisor, the supervisor removes it once the test process is gone. Without a supervisor the next run does so: if
nobody keeps the lock, nobody needs the directory.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_fileperf.host import supervisor

# --- Locks between processes, on an open file: the system releases them however a process ends

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


_PAUSE_S = 0.002
"""Between two tries. Short, so that a waiting process gets the lock beside one that stores a lot."""
_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
"""Errors if somebody else has the lock. After others, the file system has no locks."""


@contextmanager
def locked(path: Path, *, within_s: float) -> Iterator[None]:
    """Locks this file, which is made and stays. Raises TimeoutError if others keep it for longer, and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        until_s = time.monotonic() + within_s
        while not take(file.fileno()):
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has locked {path} for {within_s:g} s")
            time.sleep(_PAUSE_S)
        yield


def take(descriptor: int, *, without_locks: bool = True) -> bool:
    """Locks a file until it is closed; returns False if somebody else has the lock.

    Returns `without_locks` on file systems that have no locks.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return without_locks and error.errno not in _HELD
    return True


# --- Marked directories, and programs below a supervisor that removes them

IS_SUPERVISED = os.name == "posix"
"""Whether programs run below a supervisor."""
_PREFIX = "fileperf-"
_BESIDE = ".fileperf-"
_RANDOM = re.compile(r"-[a-z0-9_]{8}$")
"""`tempfile` adds this to a prefix."""
_UNMARKED_S = 600.0
"""A directory without a mark is left alone for so long: its run may be about to mark it."""
_CONTENT = b"pytest-fileperf made this directory, and removes it\n"


class _Top:
    """A marked directory whose lock this process keeps. Making it raises OSError."""

    def __init__(self, parent: Path, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        mark = None
        try:
            self._mark = mark = (self.path / supervisor.MARK).open("xb")
            take(mark.fileno())
            mark.write(_CONTENT)  # only now: without it nobody takes the directory for one of ours
            mark.flush()
        except BaseException:  # even Ctrl-C
            if mark is not None:
                with suppress(OSError):  # the disk may still be full, as closing writes the rest
                    mark.close()
            remove_directory(self.path)
            raise

    def is_empty(self) -> bool:
        """Returns whether it contains nothing but the mark, or was removed."""
        try:
            return os.listdir(self.path) == [supervisor.MARK]  # noqa: PTH208 # names
        except OSError:
            return True

    def discard(self) -> None:
        self._mark.close()  # Windows does not remove an open file
        remove_directory(self.path)


_tops: dict[tuple[int, str], _Top] = {}
"""By process and TMPDIR: a fork makes its own."""
_guard = threading.Lock()


def make(use: str) -> Path:
    """Returns a new directory whose name begins with its use, to `remove` later. Raises OSError."""
    temporary = tempfile.gettempdir()
    key = (os.getpid(), temporary)
    with _guard:
        top = _tops.get(key)
        if top is not None and not top.path.exists():
            top.discard()
            top = None
        if top is None:
            atexit.unregister(_remove_all)  # once is enough
            atexit.register(_remove_all)
            _sweep(Path(temporary).resolve(), _PREFIX)
            top = _tops[key] = _Top(Path(temporary).resolve(), _PREFIX)
        return Path(tempfile.mkdtemp(prefix=f"{use}-", dir=top.path))


def remove(directory: Path) -> None:
    """Removes a directory from `make`, and with the last one the marked directory around it. Can be repeated."""
    remove_directory(directory)
    with _guard:
        for key, top in list(_tops.items()):
            if key[0] == os.getpid() and top.path == directory.parent and top.is_empty():
                del _tops[key]
                top.discard()


def supervising(directory: Path) -> tuple[str, str]:
    """Returns the supervisor's first arguments: this process, and the marked directory around one from `make`."""
    assert (directory.parent / supervisor.MARK).is_file(), f"{directory} is not for a while"
    return str(os.getpid()), str(directory.parent)


def supervised(
    command: Sequence[str],
    directory: Path,
    *,
    program: str | None = None,
    cores: frozenset[int] | None = None,
    stabilise: bool = False,
) -> tuple[str, ...]:
    """Returns the command below our supervisor, which ends it when this process is gone. Windows has no supervisor.

    The supervisor removes the directory, which `make` has made, with all others of this process. The command keeps to
    its cores, and has fixed addresses if it is stabilised. With `program`, its path, the first word is only a name.
    """
    if not IS_SUPERVISED:
        return tuple(command)
    listed = ",".join(map(str, sorted(cores))) if cores else "-"
    addresses = "FIX" if stabilise else "KEEP"
    above = (sys.executable, "-I", "-S", supervisor.__file__, *supervising(directory), listed, addresses)
    return (*above, program or command[0], *command)


@contextmanager
def beside(parent: Path) -> Iterator[Path]:
    """Gives a new directory in this one, on the same file system, until the block ends. Raises OSError."""
    _sweep(parent, _BESIDE)
    top = _Top(parent, _BESIDE)
    try:
        yield top.path
    finally:
        top.discard()


def remove_directory(directory: Path) -> None:
    """Removes a directory with all its content, even read-only files."""
    for parent, directories, files in os.walk(directory):
        for name in (".", *directories, *(files if os.name == "nt" else ())):
            path = Path(parent, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)


def _remove_all() -> None:
    """Removes the rest at the end of this process: Ctrl-C can come before anybody knows the directory."""
    for key, top in list(_tops.items()):
        with suppress(OSError, KeyboardInterrupt):
            if key[0] != os.getpid() or _supervisors(top.path):
                continue
            for path in top.path.iterdir():
                if path.name != supervisor.MARK:
                    remove_directory(path)
            if top.is_empty():  # otherwise a program still writes: the mark stays, by which the next run finds it
                top.discard()


def _sweep(parent: Path, prefix: str) -> None:
    """Removes directories that this user's killed runs have left. Skips a directory that cannot be removed."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _remove_left_over(Path(entry.path), entry.stat(follow_symlinks=False))


def _remove_left_over(path: Path, about: os.stat_result) -> None:
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        return
    is_old = time.time() - about.st_mtime > _UNMARKED_S
    try:
        with (path / supervisor.MARK).open("r+b") as mark:
            content = mark.read()
            if content not in (_CONTENT, b""):
                return
            # One without content may be about to be locked. A test of the lock takes it for a moment.
            if (content or is_old) and not take(mark.fileno(), without_locks=False):
                return
    except FileNotFoundError:
        content = b""
    if not content:  # its run was killed before it wrote the mark, or had removed it
        if is_old and _RANDOM.search(path.name):
            if os.listdir(path) == [supervisor.MARK]:  # noqa: PTH208 # names
                (path / supervisor.MARK).unlink()
            path.rmdir()  # fails unless it is empty
        return
    supervisors = _supervisors(path)
    for pid in supervisors:  # a stopped supervisor then continues, and ends its programs
        with suppress(OSError):
            os.killpg(os.getpgid(pid), signal.SIGCONT)
    if not supervisors:
        remove_directory(path)


def _supervisors(path: Path) -> list[int]:
    """Returns the process ids of any installation's supervisors that have this directory among their arguments."""
    if not IS_SUPERVISED:
        return []
    import psutil

    found, script = [], Path(supervisor.__file__).name
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = process.cmdline()
            if str(path) in words and any(Path(word).name == script for word in words):
                found.append(process.pid)
    return found
