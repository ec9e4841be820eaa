"""What a server process of ours is to serve: written by the test process, read in the server's."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.spec import AsgiSpec

__all__ = ("Job",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An app and how to serve it; travels as `job.json` in the run directory."""

    server: str
    """`uvicorn` or `gunicorn`."""
    sys_path: list[str]
    target: str | None
    """None: a pickled object is in the run directory, as `app.pickle`."""
    factory: bool
    app_name: str
    workers: int
    loop: str
    http: str
    port: int
    start_s: float
    graceful_s: int

    @classmethod
    def of(cls, spec: AsgiSpec, app: AppSpec) -> Self:
        """Returns the job of serving this app as the spec says, with the `sys.path` of this process."""
        return cls(
            server=spec.name,
            sys_path=[str(Path(entry).absolute()) for entry in sys.path],
            target=app.target if isinstance(app.target, str) else None,
            factory=app.factory,
            app_name=app.name,
            workers=spec.workers,
            loop=spec.loop,
            http=spec.http,
            port=getattr(spec, "port", 0),
            start_s=spec.start_timeout_s,
            graceful_s=max(1, int(spec.stop_timeout_s / 2)),
        )

    @classmethod
    def read(cls, run_directory: Path) -> Self:
        """Returns the job in the run directory."""
        return cls(**json.loads((run_directory / "job.json").read_text(encoding="utf-8")))

    def write(self, run_directory: Path) -> None:
        """Puts the job into the run directory."""
        (run_directory / "job.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    def load_app(self, run_directory: Path) -> object:
        """Returns the app, imported, made or rebuilt in this process; raises AppLoadError."""
        if self.target is not None:
            return AppSpec(self.target, self.factory).load()
        try:
            data = (run_directory / "app.pickle").read_bytes()
            target: object = pickle.loads(data)  # noqa: S301 # written by the test process for us
        except Exception as error:  # unpickling imports and calls the user's code: whatever it raises is reported
            raise AppLoadError(
                f"{self.app_name} cannot be rebuilt in the server process ({type(error).__name__}: {error}): "
                'put it in a module of its own and give it as "module:attribute"'
            ) from error
        return AppSpec(target, self.factory).load()
