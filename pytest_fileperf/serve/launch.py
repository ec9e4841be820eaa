"""Turns a server spec into a running server: one launcher for each kind of server, all with these steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
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
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.process import StartUp
from pytest_fileperf.serve.running import RunningServer, UrlLaunch
from pytest_fileperf.serve.spec import AsgiSpec, Command, Granian, InProcess, ServerSpec, Url, Uvicorn, needs_app
from pytest_fileperf.serve.workers import AsgiLaunch
from pytest_fileperf.versions.loaded import hidden_by_installed
from pytest_fileperf.versions.tree import HERE, CodeTree


class Launch(Protocol):
    """The steps of one start-up. Whoever calls `start` calls `stop`, whatever happens in between."""

    def start(self) -> None:
        """Returns at once, but makes a build first if there is one."""

    def ready(self) -> RunningServer:
        """Waits until it answers requests; raises AppLoadError or ServerStartError."""
        ...

    def ask_to_stop(self) -> None:
        """Asks it to end, and returns at once."""

    def stop(self) -> str:
        """Ends it for good, and returns what went wrong; empty for success. Can be repeated."""
        ...


def refuse_other_version(spec: ServerSpec, app: AppSpec | None, *, title: str) -> None:
    """Raises PlanError, with what to do, if this server cannot run old code."""
    if isinstance(spec, Url):
        problem = (
            "a Url starts no server. Start that version yourself, and give its address with --fileperf-against=URL"
        )
    elif isinstance(spec, InProcess):
        problem = "one process cannot contain two versions of a module. Use Uvicorn()"
    elif isinstance(spec, Uvicorn) and spec.port != 0:
        problem = f"two versions cannot use port {spec.port} at once. Leave `port` out"
    elif not isinstance(spec, Command) and app is not None and not isinstance(app.target, str):
        problem = (
            f"{app.name} is an object that this test run made from the new code, so it has no old version. Give the "
            'app by name, as in "module:attribute" (or "module:factory()")'
        )
    else:
        return
    raise PlanError(f"this cannot be compared with {title}: {problem}", where=type(spec).__name__)


def refuse_changed(running: RunningServer, *, title: str) -> None:
    """Raises PlanError if a test has changed the app here: the old code's app would lack the change."""
    if running.changed:
        names = ", ".join(name for name, _ in running.changed)
        raise PlanError(
            f"this cannot be compared with {title}: this test, an earlier one or a test client set {names} on "
            "the app. The old code imports the app without that. Give a factory that sets it, in a module of "
            'both versions, as in "package.module:make()"'
        )


def refuse_hidden(running: RunningServer, code_tree: CodeTree) -> None:
    """Raises AppOriginError if an installed copy of the project hides the code of the comparison."""
    if file := hidden_by_installed(running.loaded, code_tree):
        raise AppOriginError(
            module="a module of the project", file=file, base=str(code_tree.there), side=code_tree.title
        )


# --- The server of a test run, one start-up at a time: another one ends the one before


@dataclass(slots=True, kw_only=True)
class _Boot:
    key: object
    app: AppSpec | None
    """Keeps an app object alive, so that its id stays its own."""
    number: int
    launch: Launch
    running: RunningServer
    startup_ns: int | None
    """How long its start took; None if that was not measured. Reported only on request."""
    entered: tuple[object, AbstractContextManager[object], object] | None = None
    """Its key, the context manager, and the value from entering that."""

    def leave(self, error: BaseException | None = None) -> None:
        entered, self.entered = self.entered, None
        if entered is not None:
            entered[1].__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


@dataclass(slots=True)
class ServerPool:
    """Keeps the server that runs now. Whoever made it closes it, which ends the server.

    Servers that run at the same time share the app's outside: the tables that it makes, a file, a port.
    """

    network: Network = LOCAL
    coverage: bool = False
    preloads: Preloads | None = None
    """Imports an app once for many start-ups; None: each imports it anew."""
    family: str = "httpx"
    documents: dict[str, Mapping[str, Any]] | None = None
    """OpenAPI documents by the apps' names, even empty ones; None if nobody needs them."""
    endings: Counter[str] = field(default_factory=Counter)
    """Problems at the ends of servers, in sentences, and how often."""
    _imports: Imports = field(default_factory=dict)
    _builds: Builds = field(default_factory=dict)
    _serials: count[int] = field(default_factory=count)
    """Numbers all start-ups in the run, even a comparison's, so that each has its own `{boot}`."""
    _started: set[object] = field(default_factory=set)
    """Servers that were started before one whose time was measured."""
    _serving: _Boot | None = None

    def launch(
        self,
        spec: ServerSpec,
        app: AppSpec | None,
        *,
        boot: int,
        cores: frozenset[int] | None,
        in_turn: bool = False,
        code_tree: CodeTree = HERE,
        version: str = "",
        forks: bool = True,
        is_timed: bool = False,
        tells_imports: bool = False,
        counts_queries: bool = False,
    ) -> Launch:
        """Returns the launcher for a start-up from a tree's code, not started yet. Whoever starts it calls `end`.

        Start-ups with one number `boot` are alike. `in_turn` says that it belongs to a comparison. With `forks` it may
        be a fork from an import for this `version`. `is_timed` measures its start, `tells_imports` logs how long
        imports take, and `counts_queries` counts requests' queries. Raises PlanError if it lacks an app, or cannot run
        another tree's code. Raises AppLoadError if a command cannot be given the test's app or database.
        """
        if not code_tree.is_here:
            refuse_other_version(spec, app, title=code_tree.title)
        serial = next(self._serials)
        if isinstance(spec, Url):
            return UrlLaunch(spec, self.network)
        start_up = StartUp(
            number=boot,
            cores=cores,
            host=self.network.host,
            serial=serial,
            in_turn=in_turn,
            code_tree=code_tree,
            coverage=self.coverage,
            version=version,
            is_timed=is_timed,
            tells_imports=tells_imports,
            counts_queries=counts_queries,
        )
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
            return InProcessLaunch(app, counts_queries=counts_queries)
        preloads = self.preloads if forks and not self.coverage else None
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
        """Returns this start-up of the server, after it has ended any other one. Replaces one that has died.

        With `is_timed` it was started afresh, and its start was measured. That is never the first one, which may
        compile code, and read files that are then in memory. It counts queries if `counts_queries`; None accepts both.
        Raises AppLoadError, PlanError or ServerStartError.
        """
        if self.serving(spec, app) == number:
            assert self._serving is not None
            running, startup_ns = self._serving.running, self._serving.startup_ns
            as_asked = counts_queries in (None, running.counts_queries) or not isinstance(spec, InProcess | AsgiSpec)
            if as_asked and (not is_timed or startup_ns is not None):
                running.startup_ns = startup_ns if is_timed else None
                return running
        self.ask_serving()
        self.close()
        key = _key(spec, app)
        prepare = partial(self.launch, spec, app, boot=number, cores=cores, forks=not is_timed)
        if is_timed and key not in self._started:
            _started(first := prepare())
            self.end(first)
            self._started.add(key)
        launch = prepare(is_timed=is_timed, counts_queries=bool(counts_queries))
        running = _started(launch)
        running.family = self.family
        self._serving = _Boot(
            key=key, app=app, number=number, launch=launch, running=running, startup_ns=running.startup_ns
        )
        return running

    def any_boot(self, spec: ServerSpec, app: AppSpec | None, cores: frozenset[int] | None) -> RunningServer:
        """Returns the server's current start-up, or starts the first one."""
        return self.boot(spec, app, self.serving(spec, app) or 0, cores, counts_queries=None)

    def serving(self, spec: ServerSpec, app: AppSpec | None) -> int | None:
        """Returns the number of the server's current start-up; None if it does not run, or has died."""
        if self._serving is not None and self._serving.key == _key(spec, app):
            with suppress(ServerDiedError):
                self._serving.running.check()
                return self._serving.number
        return None

    def entered(self, key: object, make: Callable[[RunningServer], AbstractContextManager[object]]) -> object:
        """Enters a context manager on the current start-up, once for each key, until `leave` or its end."""
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
        """Ends the server. Can be repeated, and another start-up can follow."""
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

    def ask(self, app: AppSpec | None, running: RunningServer) -> None:
        """Fetches the app's OpenAPI document from a server, once for each app.

        Call it only for a server that is about to end, because the answer may cost the server memory.
        """
        name = running.title if app is None else app.name
        if self.documents is not None and name not in self.documents:
            document = served_document(running)
            self.documents |= {} if document is None else {name: document}

    def ask_serving(self) -> None:
        if self._serving is not None:
            self.ask(self._serving.app, self._serving.running)

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
    """Distinguishes servers, and their apps if they need one, or must not have another than the test."""
    if isinstance(spec, Command):
        return (spec, None if app is None or app.made is None else app.key, databases_here())
    return (spec, app.key if app is not None and needs_app(spec) else None)
