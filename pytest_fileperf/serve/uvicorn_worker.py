"""Runs uvicorn in the server process: one worker in this process, several under uvicorn's own supervisor.

All hooks are in a subclass of `Config`, because that is what uvicorn sends to its workers.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from uvicorn import Config, Server
from uvicorn.supervisors.multiprocess import Multiprocess

from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.orphan_guard import follow_starter, follow_supervisor
from pytest_fileperf.serve.reading import FilesRead
from pytest_fileperf.serve.start import BACKLOG, ORPHAN_GRACE_S, WorkerStart, interface_of, listen

__all__ = ("serve", "serve_after")

_ONCE_S = 1_000_000_000
"""As `timeout_notify`: less than the seconds since 1970, so that uvicorn notifies at its first tick and not again."""


def serve(run_directory: Path) -> None:
    """Serves the job in the run directory until SIGTERM, or until the process that started it is gone."""
    serve_after(FilesRead(), run_directory)


def serve_after(read: FilesRead, run_directory: Path) -> None:
    """Does what `serve` does where the app may be imported already; `read` has the files that were read for that."""
    follow_starter(run_directory, grace_s=ORPHAN_GRACE_S)
    job = Job.read(run_directory)
    # asyncio disables Nagle's algorithm only on sockets that name their protocol. uvicorn's own listener names it with
    # one worker and not with several (`Config.bind_socket`). We do as it does, to measure what runs in production.
    listener = listen(job, run_directory, protocol=socket.IPPROTO_TCP if job.workers == 1 else 0)
    start = WorkerStart(job=job, run_directory=run_directory, port=listener.getsockname()[1], read=read)
    config = _Config(start)
    if job.workers == 1:
        Server(config).run(sockets=[listener])
    else:
        _supervisor(config, listener).run()


def _supervisor(config: Config, listener: socket.socket) -> Multiprocess:
    make: Callable[..., Multiprocess] = Multiprocess
    if "target" in inspect.signature(Multiprocess).parameters:  # older versions want to know what a worker does
        return make(config, target=Server(config).run, sockets=[listener])
    return make(config, sockets=[listener])


class _Config(Config):
    """Loads the app by our rules and reports how the start goes. It is pickled for every worker."""

    def __init__(self, start: WorkerStart) -> None:
        self.start = start
        job = start.job
        super().__init__(
            job.target or job.app_name,
            host=job.host,
            port=start.port,
            loop=job.loop,
            http=job.http,
            lifespan="auto",
            log_level="info",
            access_log=job.access_log,
            use_colors=False,
            workers=job.workers,
            backlog=BACKLOG,
            timeout_notify=_ONCE_S,
            timeout_graceful_shutdown=job.graceful_s,
        )

    def load(self) -> None:
        """Loads the app in the process that serves it; ends the process where it does not load."""
        follow_supervisor(grace_s=ORPHAN_GRACE_S)
        self.app = cast(Any, self.start.load_app())  # checked to be an ASGI app
        self.interface = cast(Any, interface_of(self.app))
        super().load()
        self.lifespan_class = self.start.make_lifespan
        self.callback_notify = self._report_ready

    async def _report_ready(self) -> None:
        self.start.report_ready(self)
