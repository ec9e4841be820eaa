"""Turns a server spec into a running server: one launcher for each kind of server, all with these steps."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from pytest_fileperf.errors import AppOriginError, PlanError
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.command import CommandProgram, free_port
from pytest_fileperf.serve.command_app import refuse_other_app, refuse_other_databases
from pytest_fileperf.serve.external import UrlLaunch
from pytest_fileperf.serve.imports import Imports
from pytest_fileperf.serve.inprocess import InProcessLaunch
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.process import ProcessLaunch
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Command, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.serve.workers import AsgiProgram
from pytest_fileperf.versions.loaded import hidden_by_installed
from pytest_fileperf.versions.tree import HERE, CodeTree

__all__ = ("Launch", "prepare", "refuse_changed", "refuse_hidden", "refuse_other_version")


class Launch(Protocol):
    """The steps of one boot. Whoever calls `start` calls `stop`, whatever happens in between."""

    def start(self) -> None:
        """Starts it and returns at once; a build is made first, where there is one."""

    def ready(self) -> RunningServer:
        """Waits until it answers requests; raises AppLoadError or ServerStartError."""
        ...

    def ask_to_stop(self) -> None:
        """Asks it to end, and does not wait for it."""

    def stop(self) -> str:
        """Ends it for good, and returns what was wrong with that; empty where nothing was. Can be repeated."""
        ...


def prepare(
    spec: ServerSpec,
    app: AppSpec | None,
    *,
    boot: int,
    cores: frozenset[int] | None,
    builds: Builds,
    serial: int = 0,
    in_turn: bool = False,
    code_tree: CodeTree = HERE,
    coverage: bool = False,
    imports: Imports | None = None,
    preloads: Preloads | None = None,
    network: Network = LOCAL,
) -> Launch:
    """Returns the launcher for a boot of the code in its tree, not started yet. With `coverage` that may trace it.

    Boots of one number `boot` are alike; `serial` is what `{boot}` becomes, and no other boot of the test run has it.
    `in_turn` says that it is a side of a comparison. `preloads` import an app once for many boots.
    Raises PlanError where it needs an app and there is none, and where it cannot boot the code of another tree; and
    AppLoadError where the test has an app, or a test database, that a command cannot be handed.
    """
    if not code_tree.is_here:
        refuse_other_version(spec, app, title=code_tree.title)
    if isinstance(spec, Url):
        return UrlLaunch(spec, network)
    imports = imports or Imports()
    if isinstance(spec, Command):
        if code_tree.is_here:
            refuse_other_app(spec, app, imports)
            refuse_other_databases(spec, imports)
        return ProcessLaunch(
            lambda: CommandProgram(
                spec=spec,
                host=network.host,
                port=free_port(network.host),
                boot=boot,
                in_turn=in_turn,
                cores=cores,
                builds=builds,
                serial=serial,
                code_tree=code_tree,
                coverage=coverage,
            )
        )
    if app is None:
        raise PlanError('there is no app to boot: name one, as in fileperf_app = "app.main:app" or app="app.main:app"')
    if isinstance(spec, InProcess):
        return InProcessLaunch(app)
    program = AsgiProgram(
        spec=spec,
        app=app,
        boot=boot,
        in_turn=in_turn,
        cores=cores,
        host=network.host,
        serial=serial,
        code_tree=code_tree,
        coverage=coverage,
        imports=imports,
    )
    if preloads is None or coverage:
        return ProcessLaunch(lambda: program)
    return ProcessLaunch(lambda: program, partial(preloads.fork, in_turn=in_turn, start_s=spec.start_timeout_s))


def refuse_other_version(spec: ServerSpec, app: AppSpec | None, *, title: str) -> None:
    """Raises PlanError, with what to do, where the other side of a comparison cannot run this."""
    if problem := _why_only_here(spec, app):
        raise PlanError(f"this cannot be compared with {title}: {problem}", where=type(spec).__name__)


def refuse_changed(running: RunningServer, *, title: str) -> None:
    """Raises PlanError where a test has changed the app here: that of the other side has no such change."""
    if running.changed:
        names = ", ".join(name for name, _ in running.changed)
        raise PlanError(
            f"this cannot be compared with {title}: the test has set {names} on the app, which the other side "
            "imports as it is (or an earlier test has, as by requests of a test client): give a factory that does so, "
            'in a module that both sides have, as in "package.module:make()"'
        )


def refuse_hidden(running: RunningServer, code_tree: CodeTree) -> None:
    """Raises AppOriginError where an installed copy of the project hides the code that is compared."""
    if file := hidden_by_installed(running.loaded, code_tree):
        raise AppOriginError(
            module="a module of the project", file=file, base=str(code_tree.there), side=code_tree.title
        )


def _why_only_here(spec: ServerSpec, app: AppSpec | None) -> str | None:
    if isinstance(spec, Url):
        return "a Url boots nothing: start that version yourself, and give its address with --fileperf-against=URL"
    if isinstance(spec, InProcess):
        return "one process cannot hold two versions of a module: use Uvicorn()"
    if isinstance(spec, Uvicorn) and spec.port != 0:
        return f"two versions cannot have port {spec.port} at once: leave `port` out"
    if not isinstance(spec, Command) and app is not None and not isinstance(app.target, str):
        return (
            f"{app.name} is an object of this test run, whose code is the one that is here: "
            'give the app by name, as in "module:attribute" (or "module:factory()")'
        )
    return None
