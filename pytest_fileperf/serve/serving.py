"""Runs uvicorn in the server process: one worker in this process, several under uvicorn's own supervisor.

Everything it hooks into is in a subclass of `Config`, because that is what uvicorn sends to its workers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from uvicorn import Config, Server
from uvicorn.lifespan.on import LifespanOn, LifespanReceiveMessage
from uvicorn.supervisors.multiprocess import Multiprocess

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.lifeline import follow_starter, follow_supervisor
from pytest_fileperf.serve.loading import takes
from pytest_fileperf.serve.reports import Failed, Ready, Started, write_report
from pytest_fileperf.serve.stability import stabilised_now

__all__ = ("Job", "serve")

_START_FAILED = 3
"""uvicorn's own exit status for it; its supervisor does not restart a worker that ends with it."""
_BACKLOG = 4096
"""What Linux allows by default (net.core.somaxconn): a burst of connections is not to be refused."""
_ORPHAN_GRACE_S = 5.0
_OPEN_FILES = 65_536
"""Connections and files a server may need at once; the usual soft limit of 1,024 is there for `select`."""
_ONCE_S = 1_000_000_000
"""As `timeout_notify`: the time since 1970 is longer, so that uvicorn notifies at its first tick and not again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the server process is to serve; travels as JSON."""

    sys_path: list[str]
    target: str | None
    """None: a pickled object is in the run directory, as `app.pickle`."""
    factory: bool
    app_name: str
    workers: int
    loop: str
    http: str
    port: int
    graceful_s: int


def serve(run_directory: Path) -> None:
    """Serves the job in the run directory until SIGTERM, or until the process that started it is gone."""
    follow_starter(run_directory, grace_s=_ORPHAN_GRACE_S)
    job = Job(**json.loads((run_directory / "job.json").read_text(encoding="utf-8")))
    _allow_files()
    listener = _listen(job, run_directory)
    config = _Config(job, run_directory, port=listener.getsockname()[1])
    if job.workers == 1:
        Server(config).run(sockets=[listener])
    else:
        _supervisor(config, listener).run()


def _allow_files() -> None:
    """Raises the limit of open files, as far as that is allowed: uvicorn drops connections above it without a word."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a lower one of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _supervisor(config: Config, listener: socket.socket) -> Multiprocess:
    make: Callable[..., Multiprocess] = Multiprocess
    if "target" in inspect.signature(Multiprocess).parameters:  # older versions are told what a worker does
        return make(config, target=Server(config).run, sockets=[listener])
    return make(config, sockets=[listener])


def _listen(job: Job, run_directory: Path) -> socket.socket:
    # asyncio disables Nagle's algorithm only on sockets that name their protocol. uvicorn's own listener names it with
    # one worker and not with several (`Config.bind_socket`): the same here, to measure what runs in production.
    protocol = socket.IPPROTO_TCP if job.workers == 1 else 0
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", job.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        write_report(run_directory, Failed(pid=os.getpid(), stage="port", message=error.strerror or str(error)))
        raise SystemExit(_START_FAILED) from None
    listener.set_inheritable(True)
    return listener


class _Config(Config):
    """Loads the app by our rules and reports how the start goes; pickled to every worker."""

    def __init__(self, job: Job, run_directory: Path, *, port: int) -> None:
        self.job = job
        self.run_directory = run_directory
        super().__init__(
            job.target or job.app_name,
            host="127.0.0.1",
            port=port,
            loop=job.loop,
            http=job.http,
            lifespan="auto",
            log_level="info",
            access_log=False,
            use_colors=False,
            workers=job.workers,
            backlog=_BACKLOG,
            timeout_notify=_ONCE_S,
            timeout_graceful_shutdown=job.graceful_s,
        )

    def load(self) -> None:
        """Loads the app in the process that serves it; ends the process where it is none."""
        follow_supervisor(grace_s=_ORPHAN_GRACE_S)
        write_report(self.run_directory, Started(pid=os.getpid()))
        _show_output_at_once()
        try:
            app = self._load_app()
        except AppLoadError as error:
            self.report_failure("app", str(error))
            raise SystemExit(_START_FAILED) from None
        self.app = app  # type: ignore[assignment]  # checked to be an ASGI app
        self.interface = "asgi3" if takes(app, 3) and not inspect.isclass(app) else "auto"
        super().load()
        self.lifespan_class = _Lifespan
        self.callback_notify = self._report_ready

    def report_failure(self, stage: str, message: str) -> None:
        """Tells the test process why this process will not serve."""
        write_report(self.run_directory, Failed(pid=os.getpid(), stage=stage, message=message))

    def _load_app(self) -> object:
        if self.job.target is not None:
            return AppSpec(self.job.target, self.job.factory).load()
        try:
            data = (self.run_directory / "app.pickle").read_bytes()
            target: object = pickle.loads(data)  # noqa: S301 # written by the test process for us
        except Exception as error:  # unpickling imports and calls the user's code: whatever it raises is reported
            raise AppLoadError(
                f"{self.job.app_name} cannot be rebuilt in the server process ({type(error).__name__}: {error}): "
                'put it in a module of its own and give it as "module:attribute"'
            ) from error
        return AppSpec(target, self.job.factory).load()

    async def _report_ready(self) -> None:
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        http = self.http_protocol_class.__module__.rpartition(".")[2].removesuffix("_impl")
        ready = Ready(pid=os.getpid(), port=self.port, loop=loop, http=http, stabilised=stabilised_now())
        write_report(self.run_directory, ready)


class _Lifespan(LifespanOn):
    """Reports a failed start-up of the app, which uvicorn only logs."""

    async def receive(self) -> LifespanReceiveMessage:
        """Hands the app its message. An app that asks for one has a lifespan: what it raises from now on is a failure.

        uvicorn's "auto" takes any exception for a lifespan that is missing, drops it, and serves an app half started.
        """
        self.config.lifespan = "on"
        return await super().receive()

    async def startup(self) -> None:
        await super().startup()
        if self.should_exit:
            cast(_Config, self.config).report_failure("lifespan", "the app failed in its lifespan start-up")


def _show_output_at_once() -> None:
    """Output to a file waits in a buffer: without this, the last lines before a crash would be missing from its log."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
