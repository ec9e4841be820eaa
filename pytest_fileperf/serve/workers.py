"""Starts uvicorn and gunicorn from the test process, and reads their workers' reports."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from pytest_fileperf.errors import (
    AppLoadError,
    AppMissingError,
    AppOriginError,
    PlanError,
    ServerDiedError,
    ServerStartError,
)
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import Child, Invocation, is_alive
from pytest_fileperf.host.files import full_disk
from pytest_fileperf.plan.network import Reach
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import Queries
from pytest_fileperf.serve.fitting import Imported
from pytest_fileperf.serve.imports import Imports, imports_of
from pytest_fileperf.serve.job import (
    ASKED,
    QUERIES,
    STARTED,
    Failed,
    Job,
    Ready,
    StartUp,
    leave,
    left,
    lend_package,
    lines_of,
    noted,
)
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.process import STAGE_2, ProcessLaunch, RunningProcess, reach_of
from pytest_fileperf.serve.spec import AsgiSpec, Gunicorn, env_filled, has_names, server_title
from pytest_fileperf.serve.stability import STABILISERS
from pytest_fileperf.versions.loaded import LoadedFiles, differ, stale_bytecode


class AsgiLaunch(ProcessLaunch[AsgiSpec]):
    def __init__(
        self, spec: AsgiSpec, app: AppSpec, start_up: StartUp, imports: Imports, preloads: Preloads | None = None
    ) -> None:
        is_env_alike = not any(map(has_names, dict(spec.env).values()))  # in all start-ups
        can_be_held = is_env_alike and isinstance(app.target, str)
        super().__init__(spec, start_up, preloads if is_env_alike else None, can_be_held=can_be_held)
        self._app = app
        self._imports = imports
        self._version = "" if start_up.code_tree.is_here else f"{start_up.code_tree.title}: "
        """The beginning of messages about the old code of a comparison; empty for the new code."""

    def prepare(self, run_directory: Path) -> Invocation:
        needs = _needs(self.spec) if self.code_tree.python else None
        missing = tuple(_missing(self.spec)) if needs is None else ()  # another interpreter reports its own
        if missing:
            raise PlanError(*missing, where=type(self.spec).__name__)
        # The test changes the new code's app. The old code's app need not have these changes.
        if self._app.made is not None and isinstance(self._app.target, str) and self.code_tree.is_here:
            leave(self._app.made, run_directory)
        at, code_tree = self.start_up, self.code_tree
        self._reach = reach_of(self.spec, run_directory)
        Job.of(self.spec, self._app, at, lent=lend_package(run_directory), needs=needs).write(run_directory)
        flags = ("-P", "-X", "faulthandler", *(("-B",) if sys.dont_write_bytecode else ()))
        command = (code_tree.interpreter, *flags, STAGE_2, str(run_directory))
        return Invocation(
            command=scratch.supervised(command, run_directory, cores=at.cores, stabilise=self.spec.stabilise),
            env=env_filled(at.env(self.spec), dict(self.spec.env), boot=at.serial, host=at.host),
            cwd=code_tree.cwd(),
        )

    def poll(self, *, within_s: float) -> RunningWorkers | None:
        returncode = self.process.ended()
        ready = left(Ready, self.process.directory)
        self._raise_for_failure(returncode)
        if noted(ASKED, self.process.directory) and not left(Imported, self.process.directory):
            # With env, the server's import isn't comparable. So two imports without env show how imports vary.
            count = 2 if self.spec.env else 1
            found = imports_of(self._app, count, self._imports, timeout_s=self.spec.start_timeout_s)
            leave(found, self.process.directory)
        if len(ready) < self.spec.workers:
            return None
        # Python may have run an outdated compiled file, although its source has changed.
        if self.code_tree.python is None and (stale := stale_bytecode(ready[0].files)):
            source, compiled = stale
            raise AppLoadError(
                f"{self._version}{source} has changed, but Python still runs the older {compiled}, which has "
                "the same time and size. Remove that file"
            )
        self._raise_for_origin(ready[0])
        running = RunningWorkers(self.spec, self.process, ready, self._reach, self.start_up.host)
        running.counts_queries = self.start_up.counts_queries
        if not noted(ASKED, self.process.directory):  # else its start waited for imports by the test process
            self.time_start(running, max(report.at_ns for report in ready))
        return running

    def why_late(self) -> str:
        spec, ready = self.spec, len(left(Ready, self.process.directory))
        return (
            f"{self._version}{spec.name} was not ready to serve {self._app.name} within {spec.start_timeout_s:g} "
            f"s ({ready} of {spec.workers} workers were). Does the app wait during its import or in its "
            "lifespan?"
        )

    def _raise_for_failure(self, returncode: int | None) -> None:
        version = self._version
        for failed in left(Failed, self.process.directory):
            match failed.stage:
                case "missing":
                    raise AppMissingError(version + failed.message)
                case "app":
                    raise AppLoadError(version + failed.message)
                case "packages":
                    raise PlanError(failed.message, where=self.code_tree.title)
                case "port":
                    raise ServerStartError(failed.message)
            raise ServerStartError(f"{version}{self._app.name}: {failed.message}", log=self.process.log)
        if returncode is not None:
            what = version + self._ended_early(returncode)
            if not self.process.log:
                why = full_disk() or "the app, or something that it imports, ended the process"
                what += f", with an empty log: {why}"
            raise ServerStartError(what, log=self.process.log)
        if noted(STARTED, self.process.directory) > self.spec.workers:
            raise ServerStartError(
                f"{version}a {self.spec.name} worker ended before it was ready", log=self.process.log
            )

    def _raise_for_origin(self, ready: Ready) -> None:
        """Raises AppOriginError if the old code's server runs the new code: such a comparison would always pass."""
        code_tree, file, name = self.code_tree, ready.app_file, self._app.name.partition(":")[0]
        if code_tree.there is None:
            return
        if file is None or code_tree.is_only_here(Path(file)):
            raise AppMissingError(f"{code_tree.title} has no {name}, but the new code has it ({file or 'built in'})")
        modules = code_tree.strays(ready.files)
        data = (one for one in code_tree.strays(ready.read) if differ(one, code_tree))
        stray = next(iter((*modules, *data)), None)
        if stray is not None or not code_tree.holds(Path(file)):
            module = name if stray in (None, file) else f"a {'module' if modules else 'file'} of the project"
            real = str(Path(stray or file).resolve())
            raise AppOriginError(module=module, file=real, base=str(code_tree.there), side=code_tree.title)


class RunningWorkers(RunningProcess):
    def __init__(self, spec: AsgiSpec, process: Child, ready: Sequence[Ready], reach: Reach, host: str) -> None:
        super().__init__(spec, process, reach, host, ready[0].port)
        self.kind, self.workers = spec.name, spec.workers
        self.loop, self.http = ready[0].loop, ready[0].http
        self._processes: dict[int, psutil.Process | None] = dict.fromkeys(report.pid for report in ready)
        for pid in self._processes:
            with suppress(psutil.NoSuchProcess):
                self._processes[pid] = psutil.Process(pid)
        self.access_log = spec.access_log
        said = (self.loop, self.http, *self.ways, *(("access log on",) if self.access_log else ()))
        self.title = f"{server_title(spec)} ({', '.join(said)})"
        self.tracer = ready[0].tracer
        self.loaded = LoadedFiles(
            modules=tuple(sorted({file for report in ready for file in report.files})),
            installed=tuple(sorted({file for report in ready for file in report.installed})),
            read=tuple(sorted({file for report in ready for file in report.read})),
            is_known=True,
        )
        self.changed, self.own = ready[0].changed, ready[0].own
        self.stabilised = tuple(name for name in STABILISERS if all(name in report.stabilised for report in ready))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(self._processes)

    def queries_since(self, at_ns: int) -> Queries | None:
        return Queries.read(lines_of(QUERIES, self._process.directory), at_ns)

    def check(self) -> None:
        """Raises ServerDiedError if the server or a worker has ended, even if its main process replaces the worker."""
        ended = [pid for pid, worker in self._processes.items() if worker is None or not is_alive(worker)]
        super().check()
        if ended:
            raise ServerDiedError(f"{self.title}: its worker process {ended[0]} has ended", log=self.log)


def _missing(spec: AsgiSpec) -> Iterator[str]:
    if isinstance(spec, Gunicorn) and not scratch.IS_SUPERVISED:
        yield "gunicorn does not run on this system. Choose another server"
        return
    ours = {"gunicorn": '"pytest-fileperf[gunicorn]"', "uvicorn_worker": '"pytest-fileperf[gunicorn]"'}
    for name in _needs(spec):
        if importlib.util.find_spec(name) is None:
            yield (
                f"{name} is not installed in {sys.prefix}: `pip install {ours.get(name, name)}`, "
                "or choose another server, loop or http"
            )


def _needs(spec: AsgiSpec) -> dict[str, str]:
    modules = ["uvicorn", *(("gunicorn", "uvicorn_worker") if isinstance(spec, Gunicorn) else ())]
    modules += [name for name in (spec.loop, spec.http) if name not in ("auto", "asyncio")]
    return {name: name.replace("_", "-") for name in modules}
