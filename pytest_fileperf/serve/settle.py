"""Stage one of a server's start: keeps to its cores, switches address randomisation off, and becomes the next program.

Run as a script by `python -I -S`, on Linux only: `settle.py CORES KEEP|FIX PROGRAM ARGUMENT…`, where CORES is a list
like `0,2` or `-`, and FIX fixes addresses. Both survive exec, and the second acts only at the next exec, which is why
this is a program of its own. What is forbidden (containers often forbid it) is left as it is: the server looks for
itself at what it got.
"""

from __future__ import annotations

import os
import sys

__all__ = ("ADDR_NO_RANDOMIZE", "fix_addresses", "main")

ADDR_NO_RANDOMIZE = 0x0040000
"""From <sys/personality.h>."""


def fix_addresses() -> None:
    """Switches address randomisation off for what this process executes next; does nothing where that is forbidden."""
    try:
        import ctypes

        personality = ctypes.CDLL(None, use_errno=True).personality
    except (ImportError, OSError, AttributeError):
        return
    personality.argtypes = [ctypes.c_ulong]
    current = personality(0xFFFFFFFF)
    if current != -1:
        personality(current | ADDR_NO_RANDOMIZE)


def main(arguments: list[str]) -> None:
    """Settles and executes the program; does not return."""
    cores, addresses, *command = arguments
    if cores != "-":
        try:
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
        except OSError as error:
            sys.stderr.write(f"cannot keep to cores {cores}: {error}\n")
    if addresses == "FIX":
        fix_addresses()
    os.execv(command[0], command)  # noqa: S606 # becoming that program is the point


if __name__ == "__main__":
    main(sys.argv[1:])
