"""Child processes: how one is started, what runs below it, how it ends. Whoever starts one ends it, on Ctrl-C too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import psutil

__all__ = ("Child", "LogFile", "ask_to_end", "close_input", "end", "ended", "is_alive", "process_tree", "run", "start")

_KILL_WAIT_S = 5.0


class Child(Protocol):
    """What `subprocess.Popen` has of a process that leads a group."""

    pid: int
    stdin: IO[bytes] | None

    @property
    def returncode(self) -> int | None:
        """How it ended, once that was waited for."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Returns how it ended; raises subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Asks it to end."""


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.PIPE,
    stdout: int | BinaryIO,
    stderr: int | BinaryIO = subprocess.STDOUT,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, so that a terminal's Ctrl-C reaches only pytest, which then ends it.

    A pipe to its standard input ends when this process does. It inherits the `descriptors`. Raises OSError.
    """
    if sys.platform == "win32":
        flags, apart = subprocess.CREATE_NEW_PROCESS_GROUP, False
    else:
        flags, apart = 0, True
    return subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=apart,
        creationflags=flags,
        pass_fds=descriptors,
    )


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    given: bytes = b"",
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a tool to its end, and returns what it wrote. Raises OSError, and subprocess.TimeoutExpired.

    A tool that takes too long is killed with all that it has started, such as Git's filters.
    """
    with start(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr) as process:
        try:
            said, complaint = process.communicate(given, timeout=timeout_s)
        finally:
            end(process)
    return subprocess.CompletedProcess(command, process.returncode, said, complaint)


def ask_to_end(process: Child) -> None:
    """Asks a process to end, and does not wait for it."""
    if os.name == "posix":
        process.terminate()
    else:
        close_input(process)  # terminate() is a kill there, without the end of the app's lifespan


def close_input(process: Child) -> None:
    """Closes our end of the pipe to its standard input."""
    if process.stdin is not None:
        process.stdin.close()


def ended(process: Child, *, wait_s: float = 0) -> int | None:
    """Returns how a process ended, or None when it still runs after the time to wait.

    The rest of its group is killed when the end is first seen. Later the number may be another group's.
    """
    if process.returncode is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            _kill_group(process.pid)
    return process.returncode


def end(process: Child, *, patience_s: float = 0, ask: bool = False) -> bool:
    """Waits so long for a process to end, and kills it then with everything below it. Returns whether it was in time.

    With `ask` it is asked to end first.
    """
    if process.returncode is not None:
        return True
    tree, in_time = process_tree(process.pid), True
    try:
        if ask:
            ask_to_end(process)
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        in_time = False
    finally:
        if process.returncode is None:  # meanwhile it may have started others, in sessions of their own
            tree = (*tree, *process_tree(process.pid))
        _kill_group(process.pid)
        _kill(tree)
        process.wait()
    return in_time


def process_tree(root: int) -> tuple[psutil.Process, ...]:
    """Returns the live processes of the tree, root first; empty when the root is gone."""
    try:
        process = psutil.Process(root)
        return tuple(one for one in (process, *process.children(recursive=True)) if is_alive(one))
    except psutil.Error:
        return ()


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: it is not gone, no zombie, and its number is not that of a new process."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _kill_group(group: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # macOS says PermissionError for zombies
            os.killpg(group, signal.SIGKILL)


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kills the processes that still run, and waits until they are gone."""
    remaining = [process for process in processes if is_alive(process)]
    for process in remaining:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(remaining, timeout=_KILL_WAIT_S)


# --- What a process writes to its standard output and error: a file of which only the end is kept

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
