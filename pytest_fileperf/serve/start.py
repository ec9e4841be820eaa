"""Runs in the server's process: opens its socket, loads the app, runs uvicorn, and reports to the test process."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from uvicorn import Config, Server
from uvicorn.lifespan.on import LifespanOn, LifespanReceiveMessage
from uvicorn.supervisors.multiprocess import Multiprocess

from pytest_fileperf.errors import AppLoadError, AppMissingError
from pytest_fileperf.host.supervisor import allow_profilers, follow_starter, follow_supervisor
from pytest_fileperf.serve.app import FilesRead
from pytest_fileperf.serve.databases import QueryCounter
from pytest_fileperf.serve.fitting import Fitting, await_imports
from pytest_fileperf.serve.job import HELD, IMPORTED, QUERIES, STARTED, Failed, Job, Ready, add_line, leave, note
from pytest_fileperf.serve.likeness import takes
from pytest_fileperf.serve.spec import Uvicorn, fill_environment, socket_file, tls_files
from pytest_fileperf.serve.stability import move_heap, stabilised_now, tracer_now
from pytest_fileperf.versions.tree import is_installed, is_of_the_interpreter

_START_FAILED = 3
"""After this exit status the supervisors of uvicorn and gunicorn do not replace a worker."""
BACKLOG = 4096
"""Linux's default limit (net.core.somaxconn), so that a burst of connections is not refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """Loads a worker's app, and reports to the test process. uvicorn pickles this object for each worker."""

    job: Job
    run_directory: Path
    port: int
    fitting: Fitting = field(default_factory=Fitting)
    read: FilesRead = field(default_factory=FilesRead)

    def load_app(self) -> object:
        """Returns the app with the test's changes. If that fails, reports the failure and raises SystemExit."""
        note(STARTED, self.run_directory)
        allow_profilers()
        for stream in (sys.stdout, sys.stderr):  # a crash would lose the buffer of a stream to a file
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(line_buffering=True)
        fill_environment(self.job.env_given, port=self.port, run_directory=self.run_directory)
        move_heap()
        try:
            with self.read.noting():
                app = self.job.load_app(self._while_held)
            imports = partial(await_imports, self.run_directory, timeout_s=self.job.spec.start_timeout_s)
            self.fitting.fit(app, self.run_directory, imports, env=bool(self.job.env_given))
            return app
        except AppLoadError as error:
            self.report_failure("missing" if isinstance(error, AppMissingError) else "app", str(error))
            raise SystemExit(_START_FAILED) from None

    def _while_held(self) -> None:
        held = self.run_directory / HELD
        if held.exists():
            note(IMPORTED, self.run_directory)
            while held.exists():
                time.sleep(0.01)

    def counted(self, app: Any) -> Any:
        if not self.job.counts_queries:
            return app
        return QueryCounter(lambda line: add_line(QUERIES, line, self.run_directory)).around(app)

    def report_failure(self, stage: str, message: str) -> None:
        leave(Failed(stage=stage, message=message), self.run_directory)

    async def report_ready(self, config: Config) -> None:
        at_ns = time.monotonic_ns()
        files, installed = loaded_files()
        ready = Ready(
            pid=os.getpid(),
            at_ns=at_ns,
            port=self.port,
            loop=type(asyncio.get_running_loop()).__module__.partition(".")[0],
            http=config.http_protocol_class.__module__.rpartition(".")[2].removesuffix("_impl"),
            stabilised=stabilised_now(),
            tracer=tracer_now(),
            app_file=self.job.app_file(),
            files=files,
            installed=installed,
            read=sorted(self.read.paths),
            changed=self.fitting.changed(),
            own=self.fitting.own(),
        )
        leave(ready, self.run_directory)


def listen(job: Job, run_directory: Path, *, protocol: int = 0) -> socket.socket:
    """Raises SystemExit, after a report, if the port cannot be used."""
    if (path := socket_file(job.spec, run_directory)) is not None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(BACKLOG)
        listener.set_inheritable(True)
        return listener
    port = job.spec.port if isinstance(job.spec, Uvicorn) else 0
    family = socket.AF_INET6 if ":" in job.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((job.host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        why = error.strerror or str(error)
        message = (
            f"no server can listen at {job.host} ({why}). Give an address of this machine with --fileperf-host=ADDRESS"
        )
        if port:
            message = (
                f"port {port} of {job.host} cannot be used ({why}). End the program that listens there, or leave "
                "`port` out to use a free one"
            )
        leave(Failed(stage="port", message=message), run_directory)
        raise SystemExit(_START_FAILED) from None
    listener.set_inheritable(True)
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1]) if listener.family in (socket.AF_INET, socket.AF_INET6) else 0


def interface_of(app: object) -> str:
    """Replaces uvicorn's own guess, which is wrong for some callable objects."""
    return "asgi3" if takes(app, 3) and not inspect.isclass(app) else "auto"


class ReportingLifespan(LifespanOn):
    """Reports failures in the app's lifespan, which uvicorn only logs."""

    def __init__(self, config: Config, start: WorkerStart) -> None:
        super().__init__(config)
        self._start = start

    async def receive(self) -> LifespanReceiveMessage:
        # The app receives, so it has a lifespan. With "auto", uvicorn would ignore the lifespan's errors.
        self.config.lifespan = "on"
        return await super().receive()

    async def startup(self) -> None:
        with self._start.read.noting():
            await super().startup()
        if self.should_exit:
            self._start.report_failure("lifespan", "the app failed in its lifespan start-up")
            return
        try:
            self._start.fitting.started()
        except AppLoadError as error:
            self._start.report_failure("app", str(error))
            self.should_exit = True

    async def shutdown(self) -> None:
        await super().shutdown()
        if self.should_exit:
            self._start.report_failure("shutdown", "the app failed in its lifespan shutdown")


def loaded_files() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (files of the project's own imported modules, files of modules from installed packages)."""
    files: dict[Path, set[str]] = {}
    for name, module in tuple(sys.modules.items()):
        with suppress(AttributeError):  # `sys.modules` may contain any object; on access, some import others
            file = object.__getattribute__(module, "__dict__").get("__file__")
            is_ours = name.partition(".")[0] in ("pytest_fileperf", "__main__", "__mp_main__")
            if isinstance(file, str) and not is_ours:
                path = Path(file).absolute()
                files.setdefault(path.parent, set()).add(str(path))
    loaded, installed = set[str](), set[str]()
    for parent, own in files.items():
        if not is_of_the_interpreter(parent):
            loaded |= own
        elif is_installed(parent):
            installed |= own
    return tuple(sorted(loaded)), tuple(sorted(installed))


# --- uvicorn: one worker in this process, several under uvicorn's own supervisor
#
# Our code is in a subclass of `Config`, because uvicorn sends its config to its workers.


def serve(run_directory: Path, read: FilesRead | None = None) -> None:
    """Serves until SIGTERM, or until the test process is gone. `read` contains files that were read before a fork."""
    read = read or FilesRead()
    follow_starter(str(run_directory))
    job = Job.read(run_directory)
    if job.spec.uds and job.spec.workers == 1:  # then uvicorn makes the socket
        Server(_Config(WorkerStart(job=job, run_directory=run_directory, port=0, read=read))).run()
        return
    # asyncio disables Nagle's algorithm only on sockets that name their protocol. uvicorn's own listener names it for
    # one worker, but not for several (`Config.bind_socket`). We do the same, to measure like production.
    listener = listen(job, run_directory, protocol=socket.IPPROTO_TCP if job.spec.workers == 1 else 0)
    start = WorkerStart(job=job, run_directory=run_directory, port=port_of(listener), read=read)
    config = _Config(start)
    if job.spec.workers == 1:
        Server(config).run(sockets=[listener])
        return
    make: Callable[..., Multiprocess] = Multiprocess
    if "target" in inspect.signature(Multiprocess).parameters:  # older versions call it for each worker
        make = partial(make, target=Server(config).run)
    make(config, sockets=[listener]).run()


class _Config(Config):
    """uvicorn's settings, with our own `load`. uvicorn pickles this object for each worker."""

    def __init__(self, start: WorkerStart) -> None:
        self.start = start
        job = start.job
        certificate, key = tls_files(job.spec, start.run_directory)
        super().__init__(
            job.target or job.app_name,
            uds=socket_file(job.spec, start.run_directory),
            ssl_certfile=certificate,
            ssl_keyfile=key,
            host=job.host,
            port=start.port,
            loop=job.spec.loop,
            http=job.spec.http,
            lifespan="auto",
            log_level="info",
            access_log=job.spec.access_log,
            use_colors=False,
            workers=job.spec.workers,
            backlog=BACKLOG,
            # uvicorn then calls `callback_notify` only at its first tick, because it counts these seconds from 1970.
            timeout_notify=1_000_000_000,
            timeout_graceful_shutdown=cast(Any, job.graceful_s),  # it even accepts fractions
        )

    def load(self) -> None:
        follow_supervisor()
        self.app = cast(Any, self.start.load_app())  # checked to be an ASGI app
        self.interface = cast(Any, interface_of(self.app))
        super().load()
        self.loaded_app = self.start.counted(self.loaded_app)
        self.lifespan_class = partial(ReportingLifespan, start=self.start)
        self.callback_notify = partial(self.start.report_ready, self)
