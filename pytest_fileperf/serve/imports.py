"""What the code of an app alone makes of it: the app is imported again, in processes of their own.

These have the environment of the test run, without what a test has set on the app. Their lifespan does not run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_fileperf import scratch
from pytest_fileperf.errors import log_line
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.imported import Imported, import_in
from pytest_fileperf.serve.job import Job, lend_package
from pytest_fileperf.serve.process import STAGES, Invocation, ServerProcess
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.serve.tracers import untraced
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.tree import HERE

__all__ = ("Imports",)

_POLL_S = 0.05
_GRACE_S = 1.0


class Imports:
    """Remembers what imports gave: an app is imported again once or twice in a test run."""

    def __init__(self) -> None:
        self._found: dict[object, list[Imported]] = {}

    def of(
        self, app: AppSpec | None, count: int, *, timeout_s: float, env: Mapping[str, str] | None = None
    ) -> tuple[Imported, ...]:
        """Returns what so many imports gave. Without an app they only look which databases Django would use.

        `env` is the whole environment; None: that of the test run.
        """
        used = untraced({name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"})
        used = used if env is None else dict(env)
        known = self._found.setdefault((None if app is None else app.target, tuple(sorted(used.items()))), [])
        while len(known) < count and not any(one.problem for one in known):
            known.append(_import(app, used, timeout_s))
        return tuple(known[:count])


def _import(app: AppSpec | None, env: Mapping[str, str], timeout_s: float) -> Imported:
    """Imports the app, one at a time: imports that run together share what the app makes, such as a file."""
    process = ServerProcess()
    try:
        directory = process.make_directory()
        job = Job.of(Uvicorn(), app or AppSpec(""), lent=lend_package(directory))
        replace(job, server="import").write(directory)
        command = (HERE.interpreter, "-P", str(STAGES / "stage2_server.py"), str(directory))
        process.start(Invocation(command=scratch.supervised(command, directory), env=env, cwd=Path.cwd()))
        deadline_s = time.monotonic() + timeout_s
        while (returncode := process.ended(wait_s=_POLL_S)) is None:
            if time.monotonic() > deadline_s:
                return Imported(problem=f"it took longer than {timeout_s:g} s")
        last = " ".join(map(log_line, process.log[-1:]))
        return import_in(directory) or Imported(problem=f"it {exit_text(returncode)}: {last}")
    except OSError as error:
        return Imported(problem=str(error))
    finally:
        process.stop(patience_s=_GRACE_S)
