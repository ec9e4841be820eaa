"""Runs a program below a process that does not let it outlive the test run: servers, generators, builds, profilers.

Run as a script by `python -I -S`, on POSIX only: `supervisor.py OWNER DIRECTORY CORES KEEP|FIX PROGRAM NAME ARGUMENT…`,
where OWNER is the process of the test run, DIRECTORY is removed when that is gone, CORES is a list like `0,2` or `-`,
FIX switches address randomisation off, and NAME is what the program is told as its own name.

    test run ── supervisor ── program ── whatever it starts

The supervisor passes SIGTERM and SIGINT on, and ends as the program ends. It ends all that is below it when the program
ends or the test run is gone. On Linux that is also what was detached, and what holds Python's lock or is stopped: no
thread within the program could do that. What a container forbids is left out; a server reports what it really has.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # mypy takes it for that of `typing`, whose import would make each start slower
if TYPE_CHECKING:
    from collections.abc import Callable

ADDR_NO_RANDOMIZE = 0x0040000
"""From <sys/personality.h>."""
MARK = ".pytest-fileperf"
"""The file that marks a directory as ours."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = 2**64 - 1
"""From <sys/prctl.h>."""
_SIGKILL = 9
_STANDARD_INPUT = 0
_GRACE_S = 3.0
"""How long a program may take to end when the test run is gone."""
_KILLED_S = 5.0
_POLL_S = 0.05
_CANNOT_EXECUTE = 126
"""What shells use."""


def main(arguments: list[str]) -> None:
    """Runs the program below this process, which ends as it does; does not return."""
    owner, directory, cores, addresses, program, *words = arguments
    supervise(int(owner), directory)
    try:
        if cores != "-":
            try:
                os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
            except OSError as error:
                sys.stderr.write(f"cannot keep to cores {cores}: {error}\n")
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
    """Forks: this process becomes the supervisor, and never returns; the call returns in its child.

    It needs to be called before any thread is started. It does nothing on Windows.
    """
    if os.name != "posix":
        return
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the program leaves behind becomes our child, and not init's
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
            deadline_s = time.monotonic() + _GRACE_S
            while _collect(child) is None and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
        _kill_children()
        if ended is not None and os.getppid() == owner:
            _end_like(ended)
        _remove(directory)  # the test run is gone, and what it has made is nobody's
        os.killpg(os.getpgrp(), signal.SIGKILL)
    finally:  # whatever happened, there must not be two of the program
        os._exit(1)


def die_with_parent() -> bool:
    """Has the system kill this process when the thread that started it ends; returns whether it can, as Linux does."""
    return _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def _fix_addresses() -> None:
    """Switches address randomisation off for what this process executes next, where that is allowed."""
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
    """Lets a profiler of the same user read this process: Yama's ptrace_scope=1 allows it to parents only.

    It survives exec, and does not reach children: each worker has to call this.
    """
    _prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY)


def _remove(directory: str) -> None:
    """Removes a marked directory; the mark goes last, as what stays without it would stay for ever."""
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
    except OSError:  # another supervisor removes it too
        return


def _wait(child: int, owner: int) -> int | None:
    """Returns the wait status of the program once it has ended; None when the test run is gone before."""
    wakeup, wake = os.pipe()  # the number of each of these signals can be read there
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    poller = select.poll()
    poller.register(wakeup, select.POLLIN)
    pause_ms: int | None = 250  # it looks whether the test run is there
    if hasattr(os, "pidfd_open"):  # Linux tells when a process ends
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
    """Returns the wait status of the program, or None; also collects other children that have ended."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in (0, child):
                return status if pid else None
    except ChildProcessError:
        return None


def _kill_children() -> None:
    """Kills every process below this one, on Linux: when one ends, its children become ours."""
    deadline_s = time.monotonic() + _KILLED_S
    while (children := _children()) and time.monotonic() < deadline_s:
        for child in children:
            _send(child, _SIGKILL)
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


def _prctl(option: int, value: int) -> bool:
    """Calls Linux's prctl; returns whether it did as told, which it does not on other systems."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError, TypeError):
        return False


# --- Ends a server process from within when the process that started it is gone, where no supervisor does that outside
#
# Nothing is ever written to the pipe on standard input. Its end of file says that no process holds the other end.


_FOLLOWER_GRACE_S = 5.0
"""How long such a process may take to end after SIGTERM."""


def follow_starter(directory: str) -> None:
    """Ends this process, and removes the directory, when standard input ends, which becomes empty: on Windows only."""
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
    """Ends this worker when the process that spawned it is gone: uvicorn's or gunicorn's own supervisor."""
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
            time.sleep(_FOLLOWER_GRACE_S)
            os.killpg(os.getpgrp(), signal.SIGKILL)
        else:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(_FOLLOWER_GRACE_S)
            os._exit(1)

    threading.Thread(target=follow, name="fileperf orphan guard", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
