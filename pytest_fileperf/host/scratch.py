"""Makes temporary directories, which are removed even if this run is killed. Locks files between processes.

    TMPDIR/fileperf-2x9a/         the marked directory, one for each test process that needs any
        .pytest-fileperf          the mark, a file that this process keeps locked
        server-k31b/  base-p0qe/  one directory for each use

The test process removes the marked directory after its last use, or as it exits, even after Ctrl-C. If the test process
is killed, a supervisor process removes it. If that fails, the next run removes it, because nobody locks the mark.
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


_LOCKED = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
"""The errors if another process has locked the file. Any other error means that the file system has no locks."""


@contextmanager
def locked(path: Path, *, within_s: float) -> Iterator[None]:
    """Locks a file within the block, and makes it if it is missing. Raises OSError.

    Raises TimeoutError if another process keeps the lock for longer than `within_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        until_s = time.monotonic() + within_s
        while not take(file.fileno()):
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has locked {path} for {within_s:g} s")
            time.sleep(0.002)  # short, to get the lock beside a process that takes it again and again
        yield


def take(descriptor: int, *, without_locks: bool = True) -> bool:
    """Locks an open file until it is closed. Returns False if another process has locked it.

    Returns `without_locks` if the file system has no locks.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return without_locks and error.errno not in _LOCKED
    return True


# --- Marked directories, and programs below a supervisor that removes them

IS_SUPERVISED = os.name == "posix"
"""Whether programs run below a supervisor process, as on all systems except Windows."""
_PREFIX = "fileperf-"
_BESIDE = ".fileperf-"
_RANDOM = re.compile(r"-[a-z0-9_]{8}$")
_CONTENT = b"pytest-fileperf made this directory, and removes it\n"


class _Marked:
    """A directory with a mark file. While this process locks the mark, other runs do not remove the directory."""

    def __init__(self, parent: Path, prefix: str) -> None:
        """Makes the directory. Raises OSError."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        mark = None
        try:
            self._mark = mark = (self.path / supervisor.MARK).open("xb")
            take(mark.fileno())
            mark.write(_CONTENT)  # only now: without this text another run leaves the directory alone
            mark.flush()
        except BaseException:  # even Ctrl-C
            if mark is not None:
                with suppress(OSError):  # the disk may still be full, as closing writes the rest
                    mark.close()
            remove_directory(self.path)
            raise

    def is_empty(self) -> bool:
        try:
            return os.listdir(self.path) == [supervisor.MARK]  # noqa: PTH208 # names
        except OSError:
            return True

    def discard(self) -> None:
        self._mark.close()  # Windows does not remove an open file
        remove_directory(self.path)


_marked: dict[tuple[int, str], _Marked] = {}
"""Marked directories by process id and TMPDIR. A forked process makes its own directory."""
_guard = threading.Lock()


def make(use: str) -> Path:
    """Makes a directory whose name begins with `use`. The caller must call `remove` later. Raises OSError."""
    temporary = tempfile.gettempdir()
    key = (os.getpid(), temporary)
    with _guard:
        top = _marked.get(key)
        if top is not None and not top.path.exists():
            top.discard()
            top = None
        if top is None:
            atexit.unregister(_remove_all)  # once is enough
            atexit.register(_remove_all)
            _sweep(Path(temporary).resolve(), _PREFIX)
            top = _marked[key] = _Marked(Path(temporary).resolve(), _PREFIX)
        return Path(tempfile.mkdtemp(prefix=f"{use}-", dir=top.path))


def remove(directory: Path) -> None:
    """Removes a directory from `make`. After the last one, also removes the marked directory above."""
    remove_directory(directory)
    with _guard:
        for key, top in list(_marked.items()):
            if key[0] == os.getpid() and top.path == directory.parent and top.is_empty():
                del _marked[key]
                top.discard()


def supervising(directory: Path) -> tuple[str, str]:
    """Returns the arguments of `supervisor.supervise`, for a program that uses a directory from `make`."""
    assert (directory.parent / supervisor.MARK).is_file(), f"{directory} is not from `make`"
    return str(os.getpid()), str(directory.parent)


def supervised(
    command: Sequence[str],
    directory: Path,
    *,
    program: str | None = None,
    cores: frozenset[int] | None = None,
    stabilise: bool = False,
) -> tuple[str, ...]:
    """Returns the command that runs `command` below a supervisor. On Windows it is `command` itself.

    When this process is gone, the supervisor ends the program, and removes all directories from `make`. `directory` is
    such a directory. `stabilise` switches address randomisation off. `program` is the program's path if `command`
    begins only with a name.
    """
    if not IS_SUPERVISED:
        return tuple(command)
    how = (",".join(map(str, sorted(cores))) if cores else "-", "FIX" if stabilise else "KEEP", program or command[0])
    return (sys.executable, "-I", "-S", supervisor.__file__, *supervising(directory), *how, *command)


@contextmanager
def beside(parent: Path) -> Iterator[Path]:
    """Yields a new directory in `parent`, thus on the same file system. Removes it after the block. Raises OSError."""
    _sweep(parent, _BESIDE)
    top = _Marked(parent, _BESIDE)
    try:
        yield top.path
    finally:
        top.discard()


def remove_directory(directory: Path) -> None:
    for parent, directories, files in os.walk(directory):
        for name in (".", *directories, *(files if os.name == "nt" else ())):
            path = Path(parent, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)


def _remove_all() -> None:
    """Removes remaining directories when this process exits, as after Ctrl-C in `make`."""
    for key, top in list(_marked.items()):
        with suppress(OSError, KeyboardInterrupt):
            if key[0] != os.getpid() or _supervisors(top.path):
                continue
            for path in top.path.iterdir():
                if path.name != supervisor.MARK:
                    remove_directory(path)
            if top.is_empty():  # else a program still writes. The next run finds the directory by its mark
                top.discard()


def _sweep(parent: Path, prefix: str) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _remove_left_over(Path(entry.path), entry.stat(follow_symlinks=False))


def _remove_left_over(path: Path, about: os.stat_result) -> None:
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        return
    is_old = time.time() - about.st_mtime > 600  # seconds. A younger one may be about to get its mark
    try:
        with (path / supervisor.MARK).open("r+b") as mark:
            content = mark.read()
            if content not in (_CONTENT, b""):
                return
            # A mark without content may be about to be locked, and a try would take the lock for a moment.
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
    for pid in supervisors:  # a stopped one continues, and then ends its programs
        with suppress(OSError):
            os.killpg(os.getpgid(pid), signal.SIGCONT)
    if not supervisors:
        remove_directory(path)


def _supervisors(path: Path) -> list[int]:
    """Returns the process ids of supervisors that remove this directory, from any installation of this package."""
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
