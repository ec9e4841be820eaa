"""Runs gunicorn in the server's process, with workers from the package `uvicorn-worker`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from uvicorn_worker import UvicornWorker  # type: ignore[import-untyped]

from pytest_fileperf.host.supervisor import follow_supervisor
from pytest_fileperf.serve.job import HELD, Job
from pytest_fileperf.serve.spec import tls_files
from pytest_fileperf.serve.start import BACKLOG, ReportingLifespan, WorkerStart, interface_of, listen, port_of


def serve(run_directory: Path) -> None:
    """Serves until SIGTERM, or until the test process is gone."""
    job = Job.read(run_directory)
    listener = listen(job, run_directory)
    start = WorkerStart(job=job, run_directory=run_directory, port=port_of(listener))
    Application(start, listener.detach()).run()


class Application(BaseApplication):  # type: ignore[misc]  # untyped
    def __init__(self, start: WorkerStart, listening_fd: int) -> None:
        self.start = start
        self._listening_fd = listening_fd
        super().__init__()

    def load_config(self) -> None:
        """Ignores gunicorn's configuration file and environment variables."""
        job = self.start.job
        certificate, key = tls_files(job.spec, self.start.run_directory)
        settings: dict[str, object] = {
            "certfile": certificate,
            "keyfile": key,
            "bind": f"fd://{self._listening_fd}",
            "workers": job.spec.workers,
            "worker_class": _ReportingWorker,
            "backlog": BACKLOG,
            # By default gunicorn ends a worker that is silent for 30 s, even while it loads the app. In a comparison,
            # the worker also waits until the other version has started. Both imports may share a core.
            "timeout": (4 if (self.start.run_directory / HELD).exists() else 1)
            * max(30, math.ceil(job.spec.start_timeout_s)),
            "graceful_timeout": math.ceil(job.graceful_s),
        }
        if job.spec.access_log:
            settings["accesslog"] = "-"  # the worker logs to gunicorn's output
        if "control_socket_disable" in self.cfg.settings:  # newer versions make a socket in the user's home
            settings["control_socket_disable"] = True
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> object:
        return self.start.load_app()


class _ReportingWorker(UvicornWorker):  # type: ignore[misc]  # untyped
    def __init__(self, age: int, ppid: int, sockets: object, app: Application, *others: object) -> None:
        self._start, spec = app.start, app.start.job.spec
        self.CONFIG_KWARGS = {"loop": spec.loop, "http": spec.http, "access_log": spec.access_log}
        self._is_ready = False
        super().__init__(age, ppid, sockets, app, *others)

    def init_process(self) -> None:
        follow_supervisor()
        super().init_process()

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        self.config.interface = interface_of(self.wsgi)
        self.config.load()
        self.config.loaded_app = self._start.counted(self.config.loaded_app)
        self.config.lifespan_class = partial(ReportingLifespan, start=self._start)
        await super()._serve()

    async def callback_notify(self) -> None:
        """At the first call, tells the test process that the worker is ready."""
        await super().callback_notify()
        if not self._is_ready:
            self._is_ready = True
            await self._start.report_ready(self.config)
