"""A process with everything below it: which processes those are, how they ended, how to kill them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Protocol

import psutil

__all__ = ("Child", "collect", "is_alive", "kill_all", "kill_group", "process_tree")

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
