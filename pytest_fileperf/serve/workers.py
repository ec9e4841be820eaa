"""uvicorn and gunicorn, seen from the test process: what is started, and what its workers report."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from pytest_fileperf.errors import AppLoadError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.process import STAGES, Invocation, RunningProcess, ServerProcess, base_env, staged
from pytest_fileperf.serve.reports import Failed, Ready, Started, reports_of
from pytest_fileperf.serve.spec import AsgiSpec, Gunicorn, server_title
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.serve.tree import exit_text, is_alive

__all__ = ("AsgiProgram", "RunningWorkers")

_ENDING_S = 1.0
"""A process that is no longer alive can be collected a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsgiProgram:
    """uvicorn or gunicorn with an app."""

    spec: AsgiSpec
    app: AppSpec
    boot: int
    cores: frozenset[int] | None

    def prepare(self, run_directory: Path) -> Invocation:
        """Returns what to start, after writing job and app into the run directory.

        Raises PlanError that names every missing package, and AppLoadError for an app that cannot be sent.
        """
        missing = tuple(_missing(self.spec))
        if missing:
            raise PlanError(*missing, where=type(self.spec).__name__)
        if not isinstance(self.app.target, str):
            (run_directory / "app.pickle").write_bytes(self.app.pickled(workers=self.spec.workers))
        Job.of(self.spec, self.app).write(run_directory)
        flags = ("-P", "-X", "faulthandler", *(("-B",) if sys.dont_write_bytecode else ()))
        command = (sys.executable, *flags, str(STAGES / "boot.py"), str(run_directory))
        return Invocation(
            command=staged(command, cores=self.cores, stabilise=self.spec.stabilise),
            env=base_env(self.spec, boot=self.boot),
        )

    def look(self, process: ServerProcess, *, within_s: float) -> RunningWorkers | None:
        """Returns the server once every worker has reported that it is ready."""
        returncode = process.ended()
        ready = reports_of(Ready, process.directory)
        self._raise_for_failure(process, returncode)
        return RunningWorkers(self.spec, process, ready) if len(ready) >= self.spec.workers else None

    def why_late(self, process: ServerProcess) -> str:
        """Returns how many workers were ready."""
        return (
            f"{self.spec.name} was not ready to serve {self.app.name} within {self.spec.start_timeout_s:g} s "
            f"({len(reports_of(Ready, process.directory))} of {self.spec.workers} workers were): does the app wait for "
            "something when it is imported, or in its lifespan?"
        )

    def _raise_for_failure(self, process: ServerProcess, returncode: int | None) -> None:
        for failed in reports_of(Failed, process.directory):
            if failed.stage == "app":
                raise AppLoadError(failed.message)
            if failed.stage == "port":
                raise ServerStartError(failed.message)
            raise ServerStartError(f"{self.app.name}: {failed.message}", log=process.log)
        if returncode is not None:
            what, log = f"{self.spec.name} ended with {exit_text(returncode)} before it was ready", process.log
            if not log:
                what += f", without a word: is there room on the disk of {process.directory.parent}?"
            raise ServerStartError(what, log=log)
        if len(reports_of(Started, process.directory)) > self.spec.workers:
            raise ServerStartError(f"a {self.spec.name} worker ended before it was ready", log=process.log)


class RunningWorkers(RunningProcess):
    """uvicorn or gunicorn that answers requests."""

    def __init__(self, spec: AsgiSpec, process: ServerProcess, ready: Sequence[Ready]) -> None:
        super().__init__(process)
        self._spec = spec
        self._loop = ready[0].loop
        self._http = ready[0].http
        self._workers = {report.pid: _worker(report.pid) for report in ready}
        self.url = f"http://127.0.0.1:{ready[0].port}"
        self.title = f"{server_title(spec)} ({self._loop}, {self._http})"
        self.stabilised = tuple(name for name in STABILISERS if all(name in report.stabilised for report in ready))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The workers that reported to be ready."""
        return tuple(self._workers)

    def identity(self) -> dict[str, object]:
        """Returns kind, workers, loop, http and what is stabilised."""
        return {
            "kind": self._spec.name,
            "workers": self._spec.workers,
            "loop": self._loop,
            "http": self._http,
            "stabilised": list(self.stabilised),
        }

    def check(self) -> None:
        """Raises ServerDiedError when it has ended, or when a worker has (the supervisor replaces it)."""
        ended = [pid for pid, worker in self._workers.items() if worker is None or not is_alive(worker)]
        self._check_ended(wait_s=_ENDING_S if ended == [self._process.pid] else 0)
        if ended:
            raise ServerDiedError(f"{self.title}: its worker {ended[0]} has ended", log=self.log)


def _worker(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _missing(spec: AsgiSpec) -> Iterator[str]:
    """Yields, for each package that is not installed, what to do."""
    if isinstance(spec, Gunicorn) and os.name != "posix":
        yield "gunicorn does not run on this system: choose another server"
        return
    modules = {"uvicorn": "uvicorn"}
    if isinstance(spec, Gunicorn):
        modules |= dict.fromkeys(("gunicorn", "uvicorn_worker"), '"pytest-fileperf[gunicorn]"')
    modules |= {name: name for name in (spec.loop, spec.http) if name not in ("auto", "asyncio")}
    for name, package in modules.items():
        if importlib.util.find_spec(name) is None:
            yield (
                f"{name} is not installed in {sys.prefix}: `pip install {package}`, "
                "or choose another server, loop or http"
            )
