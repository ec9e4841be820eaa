"""Runs a program below a supervisor, a process that ends the program when the test run ends.

Run as a script by `python -I -S`, on POSIX only: `supervisor.py OWNER DIRECTORY CORES KEEP|FIX PROGRAM NAME ARGUMENT…`.
OWNER is the test run's process id. DIRECTORY is removed when OWNER is gone. CORES is a list like `0,2` or `-`. FIX
switches address randomisation off. NAME is the program's name for itself (`argv[0]`).

    test run ── supervisor ── program ── whatever it starts

The supervisor passes SIGTERM and SIGINT on, and ends with the program's exit code or signal. When the program ends or
the test run is gone, the supervisor kills all descendants. On Linux, it even kills detached and stopped processes.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # as mypy treats `typing`'s; importing that would make each start slower
if TYPE_CHECKING:
    from collections.abc import Callable

ADDR_NO_RANDOMIZE = 0x0040000
"""From <sys/personality.h>."""
MARK = ".pytest-fileperf"
"""A file with this name marks a temporary directory that this package made."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = 2**64 - 1
"""From <sys/prctl.h>."""
_STANDARD_INPUT = 0
_CANNOT_EXECUTE = 126
"""The shells' exit code for a program that cannot be executed."""


def main(arguments: list[str]) -> None:
    """Runs the program below this process, and never returns."""
    owner, directory, cores, addresses, program, *words = arguments
    supervise(int(owner), directory)
    try:
        if cores != "-":
            try:
                os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
            except OSError as error:
                sys.stderr.write(f"fileperf cannot restrict this process to the cores {cores}: {error}\n")
        if addresses == "FIX":
            _fix_addresses()
        allow_profilers()
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STANDARD_INPUT)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
            signal.signal(number, signal.SIG_DFL)
        os.execv(program, words)  # noqa: S606 # becoming that program is the point
    except OSError as error:
        sys.stderr.write(f"cannot execute {program}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(_CANNOT_EXECUTE)


def supervise(owner: int, directory: str) -> None:
    """Forks. This process becomes the supervisor, and the call returns in the child process.

    Call it before any thread starts. When the process `owner` ends, the supervisor removes `directory` and ends.
    """
    if os.name != "posix":
        return
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the program become our children, and not init's
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent()  # the supervisor has one thread only
        if os.getppid() != supervisor:
            os._exit(_CANNOT_EXECUTE)
        return
    try:
        ended = _wait(child, owner)
        if ended is None:
            _send(child, signal.SIGTERM)
            deadline_s = time.monotonic() + 3.0
            while _collect(child) is None and time.monotonic() < deadline_s:
                time.sleep(0.05)
        _kill_children()
        if ended is not None and os.getppid() == owner:
            _end_like(ended)
        _remove(directory)  # the test run is gone, so nobody needs its directory
        os.killpg(os.getpgrp(), signal.SIGKILL)
    finally:  # whatever happened, the program must not run twice
        os._exit(1)


def die_with_parent() -> bool:
    """Lets Linux kill this process when the thread that started it ends. Returns False on other systems."""
    return _prctl(_PR_SET_PDEATHSIG, 9)  # SIGKILL, which Windows doesn't name


def _fix_addresses() -> None:
    """Switches off address randomisation for the program that this process executes next, if that is allowed."""
    try:
        import ctypes

        personality = ctypes.CDLL(None, use_errno=True).personality
    except (ImportError, OSError, AttributeError):
        return
    personality.argtypes = [ctypes.c_ulong]
    current = personality(0xFFFFFFFF)
    if current != -1:
        personality(current | ADDR_NO_RANDOMIZE)


def allow_profilers() -> None:
    """Lets the user's profilers look into this process despite Yama's ptrace_scope=1. Each worker must call this."""
    _prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY)


def _remove(directory: str) -> None:
    """Removes a directory, its `MARK` last, because later runs remove only marked directories."""
    import pathlib
    import shutil

    mark = pathlib.Path(directory, MARK)
    try:
        if not mark.exists():
            return
        for path in mark.parent.iterdir():
            if path != mark:
                shutil.rmtree(path, ignore_errors=True)
        if list(mark.parent.iterdir()) == [mark]:
            shutil.rmtree(directory, ignore_errors=True)
    except OSError:  # another supervisor removes it at the same time
        return


def _wait(child: int, owner: int) -> int | None:
    """Waits until `child` has ended, and returns its wait status. Returns None if the process `owner` is gone first."""
    wakeup, wake = os.pipe()  # the number of each of these signals can be read there
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    pause_ms: int | None = 250  # checks this often whether the test run still exists
    if hasattr(os, "pidfd_open"):  # Linux reports the end of a process
        try:
            poller.register(os.pidfd_open(owner), select.POLLIN)
            pause_ms = None
        except OSError:
            pass
    while True:
        ended = _collect(child)
        if ended is not None:
            return ended
        if os.getppid() != owner:
            return None
        if any(descriptor == wakeup for descriptor, _ in poller.poll(pause_ms)):
            for passed_on in set(os.read(wakeup, 1024)) - {signal.SIGCHLD}:
                _send(child, passed_on)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError as error:  # it may run as another user
        sys.stderr.write(f"cannot send signal {number} to process {pid}: {error.strerror}\n")


def _collect(child: int) -> int | None:
    """Collects ended child processes. Returns the wait status of `child`. None if `child` still runs."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in (0, child):
                return status if pid else None
    except ChildProcessError:
        return None


def _kill_children() -> None:
    """Kills all descendants, on Linux only. When a child ends, its children become this process's children."""
    deadline_s = time.monotonic() + 5.0
    while (children := _children()) and time.monotonic() < deadline_s:
        for child in children:
            _send(child, signal.SIGKILL)
        _collect(0)
        time.sleep(0.005)


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


def _prctl(option: int, value: int) -> bool:
    """Calls Linux's prctl(2). Returns False if it fails, or on other systems."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError, TypeError):
        return False


# --- Ends a server process from within when its starter is gone, for systems without a supervisor


def follow_starter(directory: str) -> None:
    """On Windows, ends this process and removes the directory when the process that started it is gone.

    Standard input is a pipe, which ends when the starting process is gone.
    """
    if os.name == "posix":
        return
    import shutil

    pipe = os.dup(_STANDARD_INPUT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), _STANDARD_INPUT)

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        shutil.rmtree(directory, ignore_errors=True)

    _end_after(wait)


def follow_supervisor() -> None:
    """Ends this worker process when uvicorn's or gunicorn's main process is gone."""
    import multiprocessing

    supervisor = None if die_with_parent() else multiprocessing.parent_process()
    if supervisor is not None:
        _end_after(supervisor.join)


def _end_after(wait: Callable[[], None]) -> None:
    import threading

    def follow() -> None:
        wait()
        if os.name == "posix":
            os.killpg(os.getpgrp(), signal.SIGTERM)
        else:
            signal.raise_signal(signal.SIGTERM)
        time.sleep(5.0)
        if os.name == "posix":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=follow, name="fileperf orphan guard", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
