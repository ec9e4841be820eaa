"""Messages between the test process and a server's processes, as files in the start-up's run directory."""

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
from pytest_fileperf.serve.spec import AsgiSpec, ProcessSpec
from pytest_fileperf.serve.stability import base_env, stabilising_env
from pytest_fileperf.versions.tree import HERE, CodeTree

# --- A file for each kind of message and each process: a pickled value, an empty file, or lines
#
# A server that outlives its run directory writes nothing: nobody waits for it.

_T = TypeVar("_T")


def leave(value: object, run_directory: Path) -> None:
    """Leaves a value in a file for other processes."""
    unfinished = run_directory / f"unfinished.{os.getpid()}"
    with suppress(FileNotFoundError):
        unfinished.write_bytes(pickle.dumps(value))
        unfinished.replace(_name(type(value).__name__, run_directory))


def left(kind: type[_T], run_directory: Path) -> tuple[_T, ...]:
    """Returns the values of this type that processes have left, sorted by process id."""
    paths = sorted(run_directory.glob(f"{kind.__name__.lower()}.*"), key=lambda path: int(path.suffix[1:]))
    return tuple(pickle.loads(path.read_bytes()) for path in paths)  # noqa: S301 # by our own processes


def note(what: str, run_directory: Path) -> None:
    """Notes an event of this process, such as STARTED, by an empty file."""
    with suppress(FileNotFoundError):
        _name(what, run_directory).touch()


def noted(what: str, run_directory: Path) -> int:
    """Returns how many processes have called `note` with this `what`."""
    return len(list(run_directory.glob(f"{what}.*")))


def add_line(what: str, line: str, run_directory: Path) -> None:
    with suppress(FileNotFoundError), _name(what, run_directory).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def lines_of(what: str, run_directory: Path) -> Iterator[str]:
    for path in run_directory.glob(f"{what}.*"):
        yield from path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def _name(what: str, run_directory: Path) -> Path:
    return run_directory / f"{what.lower()}.{os.getpid()}"


# --- A start-up, and the order to serve an app


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    number: int = 0
    """Start-ups with the same number get the same hash seed and memory layout."""
    cores: frozenset[int] | None = None
    """None for all cores."""
    in_turn: bool = False  # in a comparison
    code_tree: CodeTree = HERE
    version: str = ""
    """Start-ups with different values never share an import, even if their code is the same."""
    forks: bool = True
    """Whether the server may be a fork of a process that has imported the app."""
    is_timed: bool = False
    """Whether the start is measured, for `RunningServer.startup_ns`."""
    counts_queries: bool = False
    tells_imports: bool = False
    """Whether the server's log shows how long each import takes (`python -X importtime`)."""
    serial: int = 0
    """The value of the placeholder `{boot}`."""
    host: str = LOOPBACK
    coverage: bool = False

    def env(self, spec: ProcessSpec) -> dict[str, str]:
        """Returns the server's environment. Placeholders such as `{boot}` are not filled in yet."""
        stabilising = stabilising_env(self.number, in_turn=self.in_turn) if spec.stabilise else {}
        found = base_env(spec, coverage=self.coverage, stabilising=stabilising)
        if self.tells_imports:
            found["PYTHONPROFILEIMPORTTIME"] = "1"
        return self.code_tree.env(found, given=dict(spec.env))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    server: str
    """`uvicorn`, `gunicorn`, or `import` to import the app only."""
    sys_path: tuple[str | None, ...]
    """None stands for the interpreter's own entries."""
    needs: Mapping[str, str]
    """Modules that the old code's own interpreter needs for serving, with their packages. Else empty."""
    target: str | None
    value: bytes
    """The pickled app or factory if `target` is None; else empty."""
    factory: bool
    app_name: str
    spec: AsgiSpec
    """The server's settings without the values of environment variables, which may be secret."""
    host: str
    databases: Databases
    counts_queries: bool

    @classmethod
    def of(
        cls,
        spec: AsgiSpec,
        app: AppSpec,
        start_up: StartUp = StartUp(),
        *,
        lent: Path,
        needs: Mapping[str, str] | None = None,
        server: str = "",
    ) -> Self:
        """Returns the order to serve `app`; `lent` comes from `lend_package`. Raises AppLoadError if pickling fails."""
        sys_path = start_up.code_tree.sys_path(str(Path(entry).absolute()) for entry in sys.path)
        is_named = isinstance(app.target, str)
        return cls(
            server=server or spec.name,
            sys_path=(str(lent), *sys_path),
            needs=needs or {},
            target=str(app.target) if is_named else None,
            value=b"" if is_named else app.pickled(workers=spec.workers),
            factory=app.factory,
            app_name=app.name,
            spec=replace(spec, env=tuple((name, "") for name in dict(spec.env))),
            host=start_up.host,
            databases=app.databases,
            counts_queries=start_up.counts_queries,
        )

    @classmethod
    def read(cls, run_directory: Path) -> Self:
        return left(cls, run_directory)[0]

    def write(self, run_directory: Path) -> None:
        # The server process reads this part before it can import this package.
        first = {"server": self.server, "sys_path": self.sys_path, "needs": self.needs}
        (run_directory / "stage2.json").write_text(json.dumps(first), encoding="utf-8")
        leave(self, run_directory)

    @property
    def env_given(self) -> tuple[str, ...]:
        """Names of the environment variables that the user gave the server."""
        return tuple(dict(self.spec.env))

    @property
    def graceful_s(self) -> float:
        """How long requests may last after SIGTERM."""
        return self.spec.stop_timeout_s / 20  # each server with endless requests takes this long to end

    def app_file(self) -> str | None:
        """Returns the file of the app's module, or None for an app that was sent as an object."""
        return None if self.target is None else module_file(sys.modules.get(self.target.partition(":")[0]))

    def load_app(self, wait: Callable[[], None] = lambda: None) -> object:
        """Returns the app. Calls `wait` after the import, before the factory. Raises AppLoadError."""
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
        """Raises the module's errors, or AppLoadError."""
        assert self.target is not None
        with self._databases_checked():
            importlib.import_module(self.target.partition(":")[0])

    @contextmanager
    def _databases_checked(self) -> Iterator[Callable[[], None]]:
        """Yields a function that raises AppLoadError if the app would use Django's real database.

        The function also runs whenever Django has connected to a database, and after the block.
        """
        theirs = Databases() if SETTINGS in self.env_given else self.databases  # explicit settings are a choice
        chosen = [os.environ.get(name, "") for name in self.env_given]

        def check() -> None:
            if refusal := theirs.refusal(databases_here(), chosen):
                raise AppLoadError(f"{self.app_name} is not served: {refusal}")

        with theirs.checking(check):
            try:
                yield check
            finally:
                check()  # even if the app has turned the error into another one


def lend_package(run_directory: Path) -> Path:
    """Makes a directory with only this package, so that no other installed version is imported."""
    lent, package = run_directory / "lent", Path(__file__).parents[1]
    lent.mkdir()
    try:
        (lent / package.name).symlink_to(package, target_is_directory=True)
    except OSError:  # Windows allows links to few users only
        shutil.copytree(package, lent / package.name)
    return lent


# --- Reports from server processes about their start

QUERIES = "queries"
"""Names the files with lines of a `QueryCounter`."""
STARTED = "started"
"""Noted when a process begins to load the app. If more processes note it than there are workers, a worker has died."""
HELD = "held"
"""While this file exists, the server waits after importing the app. The test process writes and removes it."""
IMPORTED = "imported"
"""A process that waits because of `HELD` notes this when it has imported the app."""
ASKED = "asked"
"""A process notes this if its app differs from the test's app. It then waits for other imports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """The report from a process that has imported the app, so that forks of it can serve."""

    why_fresh: str
    """Why the process cannot be forked. Empty if the process can be forked."""
    stamps: Mapping[str, tuple[int, ...]]
    """The result of `stamps_of` for the files that the import has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    pid: int
    at_ns: int
    """When the worker began to answer, by the monotonic clock, which all processes share."""
    port: int
    loop: str
    http: str
    stabilised: Sequence[str]
    tracer: str
    app_file: str | None
    """The file of the app's module; None for an app that was sent as an object."""
    files: Sequence[str]
    """Files of the modules that the worker has imported, without this package's and the interpreter's."""
    installed: Sequence[str]
    """Files of the modules that the worker has imported from installed packages."""
    read: Sequence[str]
    """Other files that were read while the app was imported and started."""
    changed: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, str], ...]
    """`own`, `changed`, `tracer` and `stabilised` are as in `RunningServer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A process gave up before it was ready, or failed at its end."""

    stage: str
    """`packages`: its Python lacks packages. `port`: the port cannot be used. `missing`: the app does not exist.

    `app`: the app does not load. `lifespan`: the start of its lifespan failed. `shutdown`: the lifespan's end failed.
    """
    message: str


# --- Between the test process and a process that has imported an app for forks

MOST_BYTES = 1 << 16


def stamps_of(files: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Returns values that change when a file changes, such as its size, by file. Leaves out unreadable files."""
    stamps: dict[str, tuple[int, ...]] = {}
    for file in files:
        with suppress(OSError):
            about = os.stat(file)  # noqa: PTH116 # hundreds of files at each start-up
            # A hard link from another environment changes the change time of an installed file.
            other = about.st_ino if f"{os.sep}site-packages{os.sep}" in file else about.st_ctime_ns
            stamps[file] = (about.st_size, about.st_mtime_ns, other)
    return stamps
