"""Stage 1 of a server's start: keeps to its cores, fixes addresses, raises its file limit, and becomes the program.

Run as a script by `python -I -S`, on POSIX only: `stage1.py CORES KEEP|FIX PROGRAM ARGUMENT…`, where CORES is a list
like `0,2` or `-`, and FIX switches address randomisation off. All of it survives exec. Fixed addresses begin with the
next exec: that is why this is a program of its own. Where a container forbids some of it, the start goes on without it.
The server reports what it really has.
"""

from __future__ import annotations

import os
import sys

__all__ = ("ADDR_NO_RANDOMIZE", "allow_files", "allow_profilers", "fix_addresses", "main")

ADDR_NO_RANDOMIZE = 0x0040000
"""From <sys/personality.h>."""
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = 2**64 - 1
"""From <sys/prctl.h>."""
OPEN_FILES = 65_536
"""Connections and files that a server may need at once. The usual soft limit of 1,024 is there for `select`."""


def fix_addresses() -> None:
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
    """Lets a profiler of the same user read this process, where the system leaves that choice to it.

    Yama's ptrace_scope=1 allows it to parents only, and a profiler is not the server's parent. It survives exec, and
    does not reach children: each worker has to call this.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError, TypeError):
        return
    prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)


def allow_files() -> None:
    """Raises the limit of open files as far as allowed: servers drop connections above it silently."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:  # macOS has a lower one of its own
        sys.stderr.write(f"cannot open more than {soft} files: {error}\n")


def main(arguments: list[str]) -> None:
    """Prepares this process and executes the program; does not return."""
    cores, addresses, *command = arguments
    if cores != "-":
        try:
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
        except OSError as error:
            sys.stderr.write(f"cannot keep to cores {cores}: {error}\n")
    if addresses == "FIX":
        fix_addresses()
    allow_files()
    allow_profilers()
    os.execv(command[0], command)  # noqa: S606 # becoming that program is the point


if __name__ == "__main__":
    main(sys.argv[1:])
