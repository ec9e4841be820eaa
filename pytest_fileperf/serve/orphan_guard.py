"""Ends a server process from within when the process that started it is gone, where no supervisor does that outside.

Nothing is ever written to the pipe on standard input. Its end of file says that no process holds the other end.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pytest_fileperf.supervisor import die_with_parent

__all__ = ("follow_starter", "follow_supervisor")


def follow_starter(run_directory: Path, *, grace_s: float) -> None:
    """Ends this process when standard input ends, and gives it an empty one instead: on Windows only.

    It removes the run directory first: the owner is gone. What has not ended `grace_s` after SIGTERM is ended.
    """
    if os.name == "posix":
        return
    pipe = os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        shutil.rmtree(run_directory, ignore_errors=True)

    _end_after(wait, grace_s)


def follow_supervisor(*, grace_s: float) -> None:
    """Ends this worker when the process that spawned it is gone: uvicorn's or gunicorn's own supervisor.

    Where the system does not do that, as Linux does, a thread ends the process group.
    """
    if die_with_parent():
        return
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        _end_after(supervisor.join, grace_s)


def _end_after(wait: Callable[[], None], grace_s: float) -> None:
    def follow() -> None:
        wait()
        _end_group(grace_s)

    threading.Thread(target=follow, name="fileperf orphan guard", daemon=True).start()


def _end_group(grace_s: float) -> None:
    if os.name == "posix":
        os.killpg(os.getpgrp(), signal.SIGTERM)
        time.sleep(grace_s)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    else:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(grace_s)
        os._exit(1)
