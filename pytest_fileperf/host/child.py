"""A process with everything below it: which processes those are, how they ended, how to kill them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import psutil

__all__ = ("Child", "LogFile", "collect", "end", "is_alive", "kill_all", "kill_group", "process_tree")


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


# --- process_tree

_KILL_WAIT_S = 5.0


class Child(Protocol):
    """What `subprocess.Popen` has of a process."""

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


def collect(process: Child, *, wait_s: float = 0) -> int | None:
    """Returns how the leader of a process group ended, or None when it still runs after the time to wait.

    The rest of the group is killed when the end is first seen. Later the number may be another group's.
    """
    if process.returncode is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            kill_group(process.pid)
    return process.returncode


def kill_group(group: int) -> None:
    """Kills every process of the group; does nothing where the system has no groups, or this one is empty."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):  # macOS says PermissionError for zombies
            os.killpg(group, signal.SIGKILL)


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kills the processes that still run, and waits until they are gone."""
    remaining = [process for process in processes if is_alive(process)]
    for process in remaining:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(remaining, timeout=_KILL_WAIT_S)


# --- Ends a tool, Git or pip, with all that it has started


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs, and its group: it was started in a session of its own."""
    if process.poll() is not None:
        return
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
