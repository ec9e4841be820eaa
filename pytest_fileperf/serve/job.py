"""What uvicorn or gunicorn is to serve: the test process writes it, the server's process reads it."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.plan.network import LOOPBACK
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import SETTINGS, Databases, databases_here
from pytest_fileperf.serve.loading import module_file
from pytest_fileperf.serve.names import has_names
from pytest_fileperf.serve.spec import AsgiSpec
from pytest_fileperf.versions.tree import HERE, CodeTree

__all__ = ("Job", "lend_package")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An app and how to serve it; travels as `job.json` in the run directory."""

    server: str
    """`uvicorn` or `gunicorn`; `import`: the app is imported only."""
    sys_path: list[str | None]
    """None stands for the interpreter's own entries."""
    needs: Mapping[str, str]
    """Modules that another interpreter needs to serve, and the packages they come from."""
    target: str | None
    """None: a pickled object is in the run directory, as `app.pickle`."""
    factory: bool
    app_name: str
    workers: int
    loop: str
    http: str
    access_log: bool
    host: str
    port: int
    env: Sequence[str]
    """Environment variables whose names in braces the workers fill in."""
    start_s: float
    graceful_s: int
    databases: Sequence[Sequence[str]]
    """Alias and name of each database of Django in the test process."""
    django_settings: str
    django_guarded: bool
    """Whether pytest-django guards them there."""
    env_given: Sequence[str]
    """The names of the environment variables that the user gave the server."""

    @classmethod
    def of(
        cls,
        spec: AsgiSpec,
        app: AppSpec,
        *,
        host: str = LOOPBACK,
        code_tree: CodeTree = HERE,
        needs: Mapping[str, str] | None = None,
        lent: Path,
    ) -> Self:
        """Returns the job of serving this app as the spec says.

        Its `sys.path` is that of this process, as the tree has it, after the directory in which this package is lent.
        """
        sys_path = code_tree.sys_path(str(Path(entry).absolute()) for entry in sys.path)
        return cls(
            server=spec.name,
            sys_path=[str(lent), *sys_path],
            needs=dict(needs or {}),
            target=app.target if isinstance(app.target, str) else None,
            factory=app.factory,
            app_name=app.name,
            workers=spec.workers,
            loop=spec.loop,
            http=spec.http,
            access_log=spec.access_log,
            host=host,
            port=getattr(spec, "port", 0),
            env=tuple(name for name, value in dict(spec.env).items() if has_names(value)),
            start_s=spec.start_timeout_s,
            graceful_s=max(1, int(spec.stop_timeout_s / 10)),
            databases=app.databases.names,
            django_settings=app.databases.settings,
            django_guarded=app.databases.guarded,
            env_given=tuple(dict(spec.env)),
        )

    @classmethod
    def read(cls, run_directory: Path) -> Self:
        """Returns the job in the run directory."""
        return cls(**json.loads((run_directory / "job.json").read_text(encoding="utf-8")))

    def write(self, run_directory: Path) -> None:
        """Puts the job into the run directory."""
        (run_directory / "job.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    def app_file(self) -> str | None:
        """Returns where the module that names the app was loaded from, in this process; None for a sent object."""
        return None if self.target is None else module_file(sys.modules.get(self.target.partition(":")[0]))

    def load_app(self, run_directory: Path) -> object:
        """Returns the app, imported, made or rebuilt in this process.

        Raises AppLoadError, also where it would use a real database of Django in place of a test database: before a
        factory is called, and before the first question to such a database. A server that is given settings of Django
        has chosen.
        """
        with self._databases_checked() as check:
            return self._loaded(run_directory, check)

    def import_module(self) -> None:
        """Imports the module that names the app, and calls no factory. Raises what that raises, or AppLoadError."""
        assert self.target is not None
        with self._databases_checked():
            importlib.import_module(self.target.partition(":")[0])

    @contextmanager
    def _databases_checked(self) -> Iterator[Callable[[], None]]:
        names = tuple((alias, name) for alias, name in self.databases)
        theirs = Databases(names=names, settings=self.django_settings, guarded=self.django_guarded)
        theirs = Databases() if SETTINGS in self.env_given else theirs
        chosen = [os.environ.get(name, "") for name in self.env_given]

        def check() -> None:
            if refusal := theirs.refusal(databases_here(), chosen):
                raise AppLoadError(f"{self.app_name} is not served: {refusal}")

        with theirs.checking(check):
            try:
                yield check
            finally:
                check()  # also where the app made another error of it

    def _loaded(self, run_directory: Path, check: Callable[[], None]) -> object:
        if self.target is not None:
            return AppSpec(self.target, self.factory).load(check)
        try:
            data = (run_directory / "app.pickle").read_bytes()
            target: object = pickle.loads(data)  # noqa: S301 # written by the test process for us
        except Exception as error:  # unpickling imports and calls the user's code: whatever it raises is reported
            raise AppLoadError(
                f"{self.app_name} cannot be rebuilt in the server process ({type(error).__name__}: {error}): "
                'put it in a module of its own and give it as "module:attribute"'
            ) from error
        return AppSpec(target, self.factory).load(check)


def lend_package(run_directory: Path) -> Path:
    """Returns a directory with only this package, for a server that would find another version of it, or none.

    It has to come first on `sys.path`: test process and server have to be of one version to understand each other. Both
    sides of a comparison get it, so that both find everything after equally many steps.
    """
    lent, package = run_directory / "lent", Path(__file__).parents[1]
    lent.mkdir()
    try:
        (lent / package.name).symlink_to(package, target_is_directory=True)
    except OSError:  # Windows allows links to few users only
        shutil.copytree(package, lent / package.name)
    return lent
