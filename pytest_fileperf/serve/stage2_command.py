"""Stage 2 of a command's start: runs the program, passes SIGTERM on to it, and does not let it outlive the test run.

Run as a script by `python -I -S`, on POSIX only: `stage2_command.py RUN_DIRECTORY PROGRAM NAME ARGUMENT…`, where NAME
is what the program is told as its own name. The program does not know the pipe of `orphan_guard`, so this process holds
it: it ends as the program ends, and ends the program when standard input ends.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

__all__ = ("main",)

_STANDARD_INPUT = 0
_GRACE_S = 5.0
_KILLED_S = 5.0
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
"""From <sys/prctl.h>."""
_CANNOT_EXECUTE = 126
"""What shells use."""


def main(arguments: list[str]) -> None:
    """Runs the program to its end, and ends as it did."""
    run_directory, program, *words = arguments
    wakeup = _wake_on(signal.SIGTERM, signal.SIGCHLD)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what it leaves behind becomes our child, and not init's
    child = _start(program, words)
    ended = _wait(child, wakeup)
    if ended is None:
        _end(child)
    _kill_children()
    if ended is None:
        import shutil

        shutil.rmtree(run_directory, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    else:
        _end_like(ended)


def _wake_on(*signals: signal.Signals) -> int:
    """Returns a pipe from which the number of each of these signals can be read."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return woken


def _start(program: str, words: list[str]) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        # The warning in `orphan_guard` about this signal does not hold here: this process has one thread only.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_CANNOT_EXECUTE)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec keeps that
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STANDARD_INPUT)
        os.execv(program, words)  # noqa: S606 # becoming that program is the point
    except OSError as error:
        sys.stderr.write(f"cannot execute {program}: {error.strerror}\n")
        sys.stderr.flush()
    finally:  # whatever happened, there must not be two of this process
        os._exit(_CANNOT_EXECUTE)


def _wait(child: int, wakeup: int) -> int | None:
    """Returns the wait status of the program once it has ended; None when the test run is gone before."""
    while True:
        readable, _, _ = select.select([_STANDARD_INPUT, wakeup], [], [])
        if wakeup in readable and signal.SIGTERM in os.read(wakeup, 1024):
            _send(child, signal.SIGTERM)
        ended = _collect(child)
        if ended is not None:
            return ended
        if _STANDARD_INPUT in readable and not os.read(_STANDARD_INPUT, 1):
            return None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError as error:  # it may run as another user
        sys.stderr.write(f"cannot send {number.name} to process {pid}: {error.strerror}\n")


def _collect(child: int) -> int | None:
    """Returns the wait status of the program, or None; also collects other children that have ended."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in (0, child):
                return status if pid else None
    except ChildProcessError:
        return None


def _end(child: int) -> None:
    _send(child, signal.SIGTERM)
    deadline_s = time.monotonic() + _GRACE_S
    while _collect(child) is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _kill_children() -> None:
    """Kills every process below this one, on Linux: when one ends, its children become ours."""
    deadline_s = time.monotonic() + _KILLED_S
    while (children := _children()) and time.monotonic() < deadline_s:
        for child in children:
            _send(child, signal.SIGKILL)
        _collect(0)
        time.sleep(_POLL_S / 10)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 # pathlib is slow
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _prctl(option: int, value: int) -> None:
    """Calls Linux's prctl; does nothing on other systems."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


if __name__ == "__main__":
    main(sys.argv[1:])
