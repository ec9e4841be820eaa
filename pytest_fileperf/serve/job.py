"""Orders to uvicorn or gunicorn: the test process writes them, the server's process reads them."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.plan.network import LOOPBACK
from pytest_fileperf.serve.app import AppSpec, module_file
from pytest_fileperf.serve.databases import SETTINGS, Databases, databases_here
from pytest_fileperf.serve.spec import AsgiSpec
from pytest_fileperf.versions.tree import HERE, CodeTree

# --- Messages in the run directory between test and server process: a pickled value for each type and process

_T = TypeVar("_T")


def leave(value: object, run_directory: Path) -> None:
    """Leaves a value, under a temporary name at first, so that no reader sees a part of it."""
    unfinished = run_directory / f"unfinished.{os.getpid()}"
    with suppress(FileNotFoundError):  # the run directory is gone: then nobody waits
        unfinished.write_bytes(pickle.dumps(value))
        unfinished.replace(_name(type(value).__name__, run_directory))


def left(kind: type[_T], run_directory: Path) -> tuple[_T, ...]:
    """Returns the values of a type that processes have left, by process id."""
    paths = sorted(run_directory.glob(f"{kind.__name__.lower()}.*"), key=lambda path: int(path.suffix[1:]))
    return tuple(pickle.loads(path.read_bytes()) for path in paths)  # noqa: S301 # by our own processes


def note(what: str, run_directory: Path) -> None:
    """Notes that this process has come so far; does nothing if the run directory is gone."""
    with suppress(FileNotFoundError):
        _name(what, run_directory).touch()


def noted(what: str, run_directory: Path) -> int:
    return len(list(run_directory.glob(f"{what}.*")))


def add_line(what: str, line: str, run_directory: Path) -> None:
    """Adds a line to this process's file; does nothing if the run directory is gone."""
    with suppress(FileNotFoundError), _name(what, run_directory).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def lines_of(what: str, run_directory: Path) -> Iterator[str]:
    """Yields the complete lines from all processes."""
    for path in run_directory.glob(f"{what}.*"):
        yield from path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def _name(what: str, run_directory: Path) -> Path:
    return run_directory / f"{what.lower()}.{os.getpid()}"


# --- The app and its server


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An app and how to serve it. The server's first stage reads its part from `stage2.json`."""

    server: str
    """`uvicorn` or `gunicorn`; `import`: the app is imported only."""
    sys_path: tuple[str | None, ...]
    """None stands for the interpreter's own entries."""
    needs: Mapping[str, str]
    """Modules that another interpreter needs to serve, and the packages they come from."""
    target: str | None
    value: bytes
    """The pickled app or factory, if there is no `target`."""
    factory: bool
    app_name: str
    spec: AsgiSpec
    """Without the values of environment variables, which may be secret: the environment has them."""
    host: str
    databases: Databases
    counts_queries: bool = False

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
        server: str = "",
        counts_queries: bool = False,
    ) -> Self:
        """Returns the job of serving this app as the spec says. Raises AppLoadError for an app that cannot be sent."""
        sys_path = code_tree.sys_path(str(Path(entry).absolute()) for entry in sys.path)
        is_named = isinstance(app.target, str)
        return cls(
            server=server or spec.name,
            sys_path=(str(lent), *sys_path),
            needs=dict(needs or {}),
            target=str(app.target) if is_named else None,
            value=b"" if is_named else app.pickled(workers=spec.workers),
            factory=app.factory,
            app_name=app.name,
            spec=replace(spec, env=tuple((name, "") for name in dict(spec.env))),
            host=host,
            databases=app.databases,
            counts_queries=counts_queries,
        )

    @classmethod
    def read(cls, run_directory: Path) -> Self:
        return left(cls, run_directory)[0]

    def write(self, run_directory: Path) -> None:
        first = {"server": self.server, "sys_path": self.sys_path, "needs": self.needs}
        (run_directory / "stage2.json").write_text(json.dumps(first), encoding="utf-8")
        leave(self, run_directory)

    @property
    def env_given(self) -> tuple[str, ...]:
        """Names of the user's environment variables for the server."""
        return tuple(dict(self.spec.env))

    @property
    def graceful_s(self) -> float:
        """How long requests may go on after a request to end. Endless ones take so long at each start-up."""
        return self.spec.stop_timeout_s / 20

    def app_file(self) -> str | None:
        """Returns the file of the module that names the app, in this process; None for a sent object."""
        return None if self.target is None else module_file(sys.modules.get(self.target.partition(":")[0]))

    def load_app(self, wait: Callable[[], None] = lambda: None) -> object:
        """Calls `wait` between import and factory. Raises AppLoadError, even if it would use Django's real database."""
        with self._databases_checked() as check:
            target: object = self.target
            if target is None:
                try:
                    target = pickle.loads(self.value)  # noqa: S301 # written by the test process for us
                except Exception as error:  # it imports and calls the user's code: whatever that raises is reported
                    raise AppLoadError(
                        f"{self.app_name} cannot be rebuilt in the server process ({type(error).__name__}: "
                        f'{error}). Put it in its own module and give it as "module:attribute"'
                    ) from error

            def before_factory() -> None:
                check()
                wait()

            return AppSpec(target, self.factory).load(before_factory)

    def import_module(self) -> None:
        """Imports the module that names the app, and calls no factory. Raises the module's errors, or AppLoadError."""
        assert self.target is not None
        with self._databases_checked():
            importlib.import_module(self.target.partition(":")[0])

    @contextmanager
    def _databases_checked(self) -> Iterator[Callable[[], None]]:
        theirs = Databases() if SETTINGS in self.env_given else self.databases  # explicit settings are a choice
        chosen = [os.environ.get(name, "") for name in self.env_given]

        def check() -> None:
            if refusal := theirs.refusal(databases_here(), chosen):
                raise AppLoadError(f"{self.app_name} is not served: {refusal}")

        with theirs.checking(check):
            try:
                yield check
            finally:
                check()  # even if the app made another error of it


def lend_package(run_directory: Path) -> Path:
    """Returns a directory with only this package, first on each server's `sys.path`: all need one version of it."""
    lent, package = run_directory / "lent", Path(__file__).parents[1]
    lent.mkdir()
    try:
        (lent / package.name).symlink_to(package, target_is_directory=True)
    except OSError:  # Windows allows links to few users only
        shutil.copytree(package, lent / package.name)
    return lent


# --- Reports from server processes about their start

QUERIES = "queries"
"""Lines of a `QueryCounter`."""
STARTED = "started"
"""A process begins to load the app. More of these than workers: one has died and was replaced."""
HELD = "held"
"""A file that exists until the test process lets the server start: it imports the app, and waits."""
IMPORTED = "imported"
"""A waiting process has imported the app."""
ASKED = "asked"
"""A process has imported an app that differs from the test's, and waits for other imports' results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """A process has imported the app, and forks at each start-up."""

    why_fresh: str
    """Why it cannot be forked; empty if it can."""
    stamps: Mapping[str, tuple[int, ...]]
    """Size and time of each file that it has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A process answers requests, and describes itself."""

    pid: int
    at_ns: int
    """When it began to answer, by the monotonic clock, which all processes share."""
    port: int
    loop: str
    http: str
    stabilised: Sequence[str]
    tracer: str
    app_file: str | None
    """The file of the app's module; None for an app that was sent as an object."""
    files: Sequence[str]
    """Its modules' files, without this package's and the interpreter's."""
    installed: Sequence[str]
    """The same for installed packages."""
    read: Sequence[str]
    """Other files that were read while the app was imported and started."""
    changed: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, str], ...]
    """This, `changed`, `tracer` and `stabilised` are as in `RunningServer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A process gave up before it was ready, or failed as it ended."""

    stage: str
    """When it failed.

    `packages`: its Python lacks some. `port`: another program has it. `missing`: there is no such app. `app`: it does
    not load. `lifespan`: the app's start-up failed. `shutdown`: its end failed.
    """
    message: str


# --- Orders to a process that has imported an app

MOST_BYTES = 1 << 16
"""Of a message between them."""
_PACKAGES = f"{os.sep}site-packages{os.sep}"


def stamps_of(files: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Returns each file's size, modification time and change time.

    For installed packages, the inode replaces the change time.
    """
    stamps: dict[str, tuple[int, ...]] = {}
    for file in files:
        with suppress(OSError):
            about = os.stat(file)  # noqa: PTH116 # hundreds of files at each boot
            other = about.st_ino if _PACKAGES in file else about.st_ctime_ns
            stamps[file] = (about.st_size, about.st_mtime_ns, other)
    return stamps
