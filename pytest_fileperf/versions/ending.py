"""Ends a tool, Git or pip, with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

__all__ = ("end",)


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
