"""Makes runs of pytest, each in a fork of this process, for whoever writes orders to it; a script, on Linux.

What each run imports is imported once, which is most of what a short run costs: other packages, and the modules of this
one that a load needs. To import them starts nothing, so each run has them as if it had done so itself. An order is a
line of JSON: how long the run may take, and the arguments of `run`. The answer is a line with its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import sys

import pytest
from _pytest.config import default_plugins

PRELOADED = (
    *(f"_pytest.{name}" for name in default_plugins),
    "asyncio", "cloudpickle", "httpcore", "httptools", "httpx", "numpy", "psutil", "scipy.special", "wcwidth",
    "pytest_fileperf.plugin.active", "pytest_fileperf.plugin.verbs", "pytest_fileperf.plugin.written",
    "pytest_fileperf.session.session",
)  # fmt: skip


def main() -> int:
    """Returns the exit code of a run in each of the forks; in this process 0 when there are no more orders."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # the collector need not look through that in each run
    for line in sys.stdin:
        longest_s, order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return run(**order)
        ended = os.pidfd_open(pid)
        if not select.select([ended], [], [], longest_s)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(ended)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return 0


def run(directory: str, env: dict[str, str], arguments: list[str], files: tuple[int, int], output: str) -> int:
    """Makes this process one that `python -m pytest` would be, and runs pytest.

    `files` are the limits of open files, and `output` is the file that gets what is printed.
    """
    for standard, path, how in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY | os.O_APPEND)):
        opened = os.open(path, how)
        os.dup2(opened, standard)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    sys.path[0] = directory
    sys.argv[1:] = arguments
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in env
    return int(pytest.main())


if __name__ == "__main__":
    sys.exit(main())
