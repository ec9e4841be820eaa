"""Starts child processes, and ends them with their descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import psutil

from pytest_fileperf.host import scratch

PATIENCE_S = 1.0
"""The longest time for a process to end if it has no work to finish."""
LONGEST_LOG_BYTES = 16 << 20
"""`shorten_log` empties a longer log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None
    descriptors: Sequence[int] = ()


class Process(Protocol):
    """The part of `subprocess.Popen` that `Child` needs. Forked servers implement this without a Popen."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Child:
    """A process with a directory and a log of its own. On POSIX, `scratch.supervised` must have made its command."""

    def __init__(self, use: str) -> None:
        """Makes a directory whose name begins with `use`. Raises OSError."""
        self.directory = scratch.make(use)
        self._log = self.directory / "log.txt"
        self._log.touch()
        self._log_before: tuple[str, ...] = ()
        self._process: Process | None = None
        self._asked_s: float | None = None
        """When the process was first asked to end, by the monotonic clock. None before that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, invocation: Invocation, *, stdout: int | None = None) -> subprocess.Popen[bytes]:
        """Starts the process. Its output goes to the log, but standard output to `stdout` if given. Raises OSError."""
        with self._log.open("ab") as log:  # each write goes to the file's end, even after the log was emptied
            self._process = process = _start(invocation, stdout=log if stdout is None else stdout, stderr=log)
        return process

    def adopt(self, process: Process) -> None:
        """Takes over a running process that writes to the log in this directory."""
        self._process = process

    def release(self) -> Process | None:
        """Returns the process, for another `Child` to adopt. This `Child` keeps only its directory."""
        process, self._process = self._process, None
        return process

    def run(self, invocation: Invocation, *, timeout_s: float) -> int | None:
        """Runs a program to its end. Returns its exit code, or None after `timeout_s`. Raises OSError."""
        self.start(invocation)
        deadline_s = time.monotonic() + timeout_s
        while (returncode := self.ended(wait_s=0.05)) is None and time.monotonic() < deadline_s:
            self.shorten_log()
        return returncode

    @property
    def log(self) -> tuple[str, ...]:
        """The last 40 lines, or 64 KiB, of standard output and error. Empty if the directory was removed."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - (64 << 10)))
                tail = log.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return ()
        return (*self._log_before, *tail)[-40:]

    def whole_log(self) -> str:
        """Returns all output since `shorten_log` last emptied the log."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def shorten_log(self) -> None:
        """Empties a log that has become long. Call it now and then, so that the log does not fill the disk."""
        try:
            if self._log.stat().st_size > LONGEST_LOG_BYTES:
                self._log_before = self.log
                os.truncate(self._log, 0)  # lines written since then are lost
        except OSError:  # the log was removed, or the system refuses to shorten a file that others write to
            return

    def tree(self) -> tuple[psutil.Process, ...]:
        """Returns the program's live process, then its live descendants. The supervisor is left out."""
        tree = () if self._process is None else process_tree(self._process.pid)
        return tuple(process for process in tree if process.pid != self.supervisor)

    @property
    def supervisor(self) -> int | None:
        """The supervisor's process id. None on Windows, which has no supervisor, and before the start."""
        return self._process.pid if scratch.IS_SUPERVISED and self._process is not None else None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself, before anybody asked for its end."""
        return self._asked_s is None and self.ended() is not None

    def ended(self, *, wait_s: float = 0) -> int | None:
        """Returns the exit code. None if the process still runs after `wait_s`, or was never started."""
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
                _kill_group(process.pid)  # now, as another group may get the number later
        return None if process is None else process.returncode

    def ask_to_end(self, number: int = signal.SIGTERM) -> None:
        """Sends the signal `number`, or on Windows ends standard input. Does not wait."""
        if self._process is not None and self.ended() is None:
            if number == signal.SIGTERM:  # SIGINT only asks a profiler for its samples
                self._asked_s = self._asked_s or time.monotonic()
            _ask_to_end(self._process, number)

    def end(self, *, patience_s: float = 0, ask: bool = True) -> bool:
        """Asks the process to end, waits, then kills the process tree. Returns whether the process ended in time.

        Without `ask`, only waits and kills. The wait ends at most `patience_s` after the first request.
        """
        if self._process is None or self.ended() is not None:
            return True
        self._asked_s = self._asked_s or time.monotonic()
        left_s = max(0.0, self._asked_s + patience_s - time.monotonic())
        return _end(self._process, patience_s=left_s, ask=ask)

    def stop(self, *, patience_s: float = PATIENCE_S) -> None:
        try:
            self.end(patience_s=patience_s)
        finally:
            if isinstance(self._process, subprocess.Popen) and self._process.stdin is not None:
                with suppress(BrokenPipeError):  # some input was never sent
                    self._process.stdin.close()
            scratch.remove(self.directory)


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str],
    cwd: Path | None = None,
    given: bytes = b"",
    stdout: int | BinaryIO = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a tool to its end, with `given` as its input. Raises OSError and subprocess.TimeoutExpired.

    After `timeout_s`, the tool is killed with its descendants. If `stdout` is a pipe, this also waits for descendants
    that have the pipe open.
    """
    with _start(Invocation(command=command, env=env, cwd=cwd), stdout=stdout, stderr=stderr) as process:
        try:
            output, errors = process.communicate(given, timeout=timeout_s)
        finally:
            _end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def process_tree(root: int) -> tuple[psutil.Process, ...]:
    """Returns the process `root` and its live descendants. Empty if the root has ended."""
    try:
        top = psutil.Process(root)
        return tuple(filter(is_alive, (top, *top.children(recursive=True))))
    except psutil.Error:
        return ()


def is_alive(process: psutil.Process) -> bool:
    """Returns False for a zombie, and if another process now has this process's id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _start(invocation: Invocation, *, stdout: int | BinaryIO, stderr: int | BinaryIO) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, so that a terminal's Ctrl-C reaches only pytest.

    Its standard input ends when our process ends. This ends a server on Windows.
    """
    return subprocess.Popen(
        invocation.command,
        env=invocation.env,
        cwd=invocation.cwd,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=os.name == "posix",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # exists on Windows only
        pass_fds=invocation.descriptors,
    )


def _ask_to_end(process: Process, number: int = signal.SIGTERM) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, number)
    elif isinstance(process, subprocess.Popen) and process.stdin is not None:
        process.stdin.close()  # on Windows a signal would kill it before the app's lifespan ends


def _end(process: Process, *, patience_s: float = 0, ask: bool = False) -> bool:
    """Waits, then kills the process and its descendants. Returns whether it ended within `patience_s`."""
    if process.returncode is not None:
        return True
    tree, in_time = process_tree(process.pid), True
    try:
        if ask:
            _ask_to_end(process)
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        in_time = False
    finally:
        if process.returncode is None:  # it may have started others meanwhile, in sessions of their own
            tree = (*tree, *process_tree(process.pid))
        _kill_group(process.pid)
        remaining = [one for one in tree if is_alive(one)]
        for one in remaining:
            with suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(remaining, timeout=5.0)
        process.wait()
    return in_time


def _kill_group(group: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # macOS raises PermissionError for zombies
            os.killpg(group, signal.SIGKILL)
