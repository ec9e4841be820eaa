"""Chooses a launcher for each kind of server, and keeps the one server that runs in a test run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

from pytest_fileperf.errors import AppOriginError, FilePerfError, PlanError, ServerDiedError
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.command import Builds, CommandLaunch, granian_command
from pytest_fileperf.serve.databases import databases_here
from pytest_fileperf.serve.endpoints import served_document
from pytest_fileperf.serve.imports import Imports, refuse_other_app, refuse_other_databases
from pytest_fileperf.serve.inprocess import InProcessLaunch
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.running import RunningServer, UrlLaunch
from pytest_fileperf.serve.spec import AsgiSpec, Command, Granian, InProcess, ServerSpec, Url, Uvicorn, needs_app
from pytest_fileperf.serve.workers import AsgiLaunch
from pytest_fileperf.versions.loaded import hidden_by_installed
from pytest_fileperf.versions.tree import CodeTree


class Launch(Protocol):
    """One start-up of a server. Whoever calls `start` must call `stop`, whatever happens in between."""

    def start(self) -> None:
        """Starts the server, and does not wait until it is ready. A Command's build runs first."""

    def ready(self) -> RunningServer:
        """Waits until the server answers requests; raises AppLoadError or ServerStartError."""
        ...

    def ask_to_stop(self) -> None: ...

    def stop(self) -> str:
        """Ends the server. Returns a sentence if its shutdown failed, else an empty text. Can be called again."""
        ...


def refuse_other_version(spec: ServerSpec, app: AppSpec | None, *, title: str) -> None:
    """Raises PlanError, with advice, if this server cannot run old code; `title` names the old version."""
    if isinstance(spec, Url):
        problem = "fileperf starts no server at a Url. Start the old one yourself, and give --fileperf-against=URL"
    elif isinstance(spec, InProcess):
        problem = "the test process cannot contain two versions of a module. Use server=Uvicorn()"
    elif isinstance(spec, Uvicorn) and spec.port != 0:
        problem = f"two versions cannot use port {spec.port} at once. Leave `port` out"
    elif not isinstance(spec, Command) and app is not None and not isinstance(app.target, str):
        problem = (
            f"{app.name} is an object that this test run made from the new code, so it has no old version. Give the "
            'app by name, as in "module:attribute" (or "module:factory()")'
        )
    else:
        return
    raise PlanError(f"the test cannot be compared with {title}: {problem}", where=type(spec).__name__)


def refuse_changed(running: RunningServer, *, title: str) -> None:
    """Raises PlanError if a test has changed the served app, because the old code's app would lack the change."""
    if running.changed:
        names = ", ".join(name for name, _ in running.changed)
        raise PlanError(
            f"the test cannot be compared with {title}. This test, an earlier one or a test client set {names} "
            "on the app. The old code imports the app without that. Give a factory that sets it, in a module that both "
            'versions have, as in "package.module:make()"'
        )


def refuse_hidden(running: RunningServer, code_tree: CodeTree) -> None:
    """Raises AppOriginError if the server has imported an installed copy of the project, not `code_tree`."""
    if file := hidden_by_installed(running.loaded, code_tree):
        raise AppOriginError(
            module="a module of the project", file=file, base=str(code_tree.there), side=code_tree.title
        )


# --- The server of a test run. Only one start-up runs at a time: the next start-up ends the current one


@dataclass(slots=True, kw_only=True)
class _Boot:
    key: object
    app: AppSpec | None
    """Kept alive, because the app object's id is in `key`."""
    number: int
    launch: Launch
    running: RunningServer
    startup_ns: int | None
    """How long the start took. None if it was not measured."""
    entered: tuple[object, AbstractContextManager[object], object] | None = None
    """The entered context manager: its key, the manager itself, and the result of `__enter__`."""

    def leave(self, error: BaseException | None = None) -> None:
        entered, self.entered = self.entered, None
        if entered is not None:
            entered[1].__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


@dataclass(slots=True)
class ServerPool:
    """Launches the servers of a test run, and keeps the server that serves now. `close` ends that server.

    It keeps only one server, because two servers of an app would share tables, files and ports.
    """

    network: Network = LOCAL
    coverage: bool = False
    preloads: Preloads | None = None
    """Imported apps, from which servers are forked. If None, each start-up imports its app anew."""
    family: str = "httpx"
    documents: dict[str, Mapping[str, Any]] | None = None
    """OpenAPI documents by app name, empty for an app without a document. None if nobody needs documents."""
    endings: Counter[str] = field(default_factory=Counter)
    """Sentences about failed ends of servers, and how often each occurred."""
    _imports: Imports = field(default_factory=dict)
    _builds: Builds = field(default_factory=dict)
    _serials: count[int] = field(default_factory=count)
    """Numbers all start-ups in a test run. The placeholder `{boot}` becomes this number."""
    _started: set[object] = field(default_factory=set)
    """Keys of servers that have started once. Only later starts are timed."""
    _serving: _Boot | None = None

    def launch(self, spec: ServerSpec, app: AppSpec | None, start_up: StartUp) -> Launch:
        """Returns the launcher for this start-up. If you start it, call `end`.

        Raises PlanError if the server lacks an app, or cannot run the old code. Raises AppLoadError if a command would
        serve another app or database than the test's.
        """
        code_tree = start_up.code_tree
        if not code_tree.is_here:
            refuse_other_version(spec, app, title=code_tree.title)
        start_up = replace(start_up, serial=next(self._serials), host=self.network.host, coverage=self.coverage)
        if isinstance(spec, Url):
            return UrlLaunch(spec, self.network)
        if app is None and needs_app(spec):
            raise PlanError(
                'there is no app to serve. Name one, as in fileperf_app = "app.main:app" or app="app.main:app"'
            )
        where = type(spec).__name__
        if isinstance(spec, Granian):
            assert app is not None
            spec = granian_command(spec, app)
        if isinstance(spec, Command):
            if code_tree.is_here:
                refuse_other_app(spec, app, self._imports)
                refuse_other_databases(spec, self._imports)
            return CommandLaunch(spec, start_up, self._builds, where)
        assert app is not None
        if isinstance(spec, InProcess):
            return InProcessLaunch(app, counts_queries=start_up.counts_queries)
        preloads = self.preloads if start_up.forks and not self.coverage else None
        return AsgiLaunch(spec, app, start_up, self._imports, preloads)

    @property
    def running(self) -> RunningServer | None:
        return None if self._serving is None else self._serving.running

    def boot(
        self,
        spec: ServerSpec,
        app: AppSpec | None,
        number: int,
        cores: frozenset[int] | None,
        *,
        is_timed: bool = False,
        counts_queries: bool | None = False,
    ) -> RunningServer:
        """Returns the server of start-up `number`. If it is not running, ends the current server and starts it.

        Start-ups with the same number have the same hash seed and memory layout. `is_timed` measures the start. With
        `counts_queries`, the server counts queries; None accepts any server. Raises AppLoadError, PlanError or
        ServerStartError.
        """
        if self.serving(spec, app) == number:
            assert self._serving is not None
            running, startup_ns = self._serving.running, self._serving.startup_ns
            as_asked = counts_queries in (None, running.counts_queries) or not isinstance(spec, InProcess | AsgiSpec)
            if as_asked and (not is_timed or startup_ns is not None):
                running.startup_ns = startup_ns if is_timed else None
                return running
        self.fetch_own_document()
        self.close()
        key = _key(spec, app)
        # A server's first start may compile code, so it is not measured.
        if is_timed and key not in self._started:
            _started(first := self.launch(spec, app, StartUp(number=number, cores=cores, forks=False)))
            self.end(first)
            self._started.add(key)
        start_up = StartUp(
            number=number, cores=cores, forks=not is_timed, is_timed=is_timed, counts_queries=bool(counts_queries)
        )
        running = _started(launch := self.launch(spec, app, start_up))
        running.family = self.family
        self._serving = _Boot(
            key=key, app=app, number=number, launch=launch, running=running, startup_ns=running.startup_ns
        )
        return running

    def any_boot(self, spec: ServerSpec, app: AppSpec | None, cores: frozenset[int] | None) -> RunningServer:
        """Returns the running server, whatever its number. If there is none, starts number 0."""
        return self.boot(spec, app, self.serving(spec, app) or 0, cores, counts_queries=None)

    def serving(self, spec: ServerSpec, app: AppSpec | None) -> int | None:
        """Returns the number of the server's current start-up. None if the server does not run."""
        if self._serving is not None and self._serving.key == _key(spec, app):
            with suppress(ServerDiedError):
                self._serving.running.check()
                return self._serving.number
        return None

    def entered(self, key: object, make: Callable[[RunningServer], AbstractContextManager[object]]) -> object:
        """Enters the context manager `make(server)`, once for each key. Returns the result of its `__enter__`.

        A call with another key, `leave` or `close` exits the context manager.
        """
        serving = self._serving
        assert serving is not None
        if serving.entered is None or serving.entered[0] != key:
            serving.leave()
            manager = make(serving.running)
            serving.entered = (key, manager, manager.__enter__())
        return serving.entered[2]

    def leave(self, error: BaseException | None = None) -> None:
        if self._serving is not None:
            self._serving.leave(error)

    def close(self) -> None:
        serving, self._serving = self._serving, None
        if serving is None:
            return
        try:
            serving.leave()
        except FilePerfError:
            serving.running.check()  # a dead server cannot be left: its death is the error to raise
            raise
        finally:
            self.end(serving.launch)

    def fetch_document(self, app: AppSpec | None, running: RunningServer) -> None:
        """Adds the app's OpenAPI document to `documents`.

        Call it only for a server that is about to end, because the answer may cost the server memory.
        """
        name = running.title if app is None else app.name
        if self.documents is None or name in self.documents:
            return
        if (document := served_document(running)) is not None:
            self.documents[name] = document

    def fetch_own_document(self) -> None:
        if self._serving is not None:
            self.fetch_document(self._serving.app, self._serving.running)

    def end(self, launch: Launch) -> None:
        if said := launch.stop():
            self.endings[said] += 1


def _started(launch: Launch) -> RunningServer:
    try:
        launch.start()
        return launch.ready()
    except BaseException:
        launch.stop()
        raise


def _key(spec: ServerSpec, app: AppSpec | None) -> object:
    """Returns a value that is equal for all start-ups of the same server with the same app."""
    # A command's app must equal the test's app object, if there is one.
    if isinstance(spec, Command):
        return (spec, None if app is None or app.made is None else app.key, databases_here())
    return (spec, app.key if app is not None and needs_app(spec) else None)
