"""The server of a test run, one boot at a time: another boot, or another server, ends the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count

from pytest_fileperf.errors import FilePerfError, ServerDiedError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.databases import databases_here
from pytest_fileperf.serve.launch import Launch, prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Command, ServerSpec, needs_app

__all__ = ("ServerPool",)


@dataclass(frozen=True, slots=True)
class _Boot:
    spec: ServerSpec
    app: AppSpec | None
    """Keeps an app object alive, so that its id stays its own."""
    number: int
    launch: Launch
    running: RunningServer

    key: object
    """Of the app, and what else the test's process had when it started."""

    def is_of(self, spec: ServerSpec, app: AppSpec | None) -> bool:
        return self.spec == spec and self.key == _key(spec, app)


@dataclass(frozen=True, slots=True)
class _Held:
    """What is entered on the boot that serves."""

    key: object
    value: object
    stack: ExitStack


@dataclass(slots=True)
class ServerPool:
    """Keeps the boot that serves. Whoever made it closes it, which ends the server.

    Boots that serve at the same time share what the app shares: the tables that it makes, a file, a port.
    """

    prepare: Callable[..., Launch] = prepare
    """Returns the launch of one boot."""
    builds: Builds = field(default_factory=Builds)
    serials: count[int] = field(default_factory=count)
    """Numbers every boot of the run, also those of comparisons, so that none has the `{boot}` of another."""
    endings: Counter[str] = field(default_factory=Counter)
    """What was wrong with the ends of servers, in sentences, and how often."""
    _serving: _Boot | None = None
    _held: _Held | None = None

    @property
    def running(self) -> RunningServer | None:
        """The boot that serves, of whichever server; None where none does."""
        return None if self._serving is None else self._serving.running

    def boot(self, spec: ServerSpec, app: AppSpec | None, number: int, cores: frozenset[int] | None) -> RunningServer:
        """Returns this boot of the server, and ends any other one before it starts.

        A boot that has died since its last use is replaced. Raises AppLoadError, PlanError or ServerStartError.
        """
        if self.serving(spec, app) == number:
            assert self._serving is not None
            return self._serving.running
        self.close()
        key = _key(spec, app)
        launch = self.prepare(spec, app, boot=number, serial=next(self.serials), cores=cores, builds=self.builds)
        try:
            launch.start()
            running = launch.ready()
        except BaseException:
            launch.stop()
            raise
        self._serving = _Boot(spec, app, number, launch, running, key)
        return running

    def any_boot(self, spec: ServerSpec, app: AppSpec | None, cores: frozenset[int] | None) -> RunningServer:
        """Returns the boot of the server that serves, whichever it is; starts the first one where none does."""
        return self.boot(spec, app, self.serving(spec, app) or 0, cores)

    def serving(self, spec: ServerSpec, app: AppSpec | None) -> int | None:
        """Returns which boot of the server serves; None where none does, or where it has died."""
        if self._serving is not None and self._serving.is_of(spec, app):
            with suppress(ServerDiedError):
                self._serving.running.check()
                return self._serving.number
        return None

    def entered(self, key: object, make: Callable[[RunningServer], AbstractContextManager[object]]) -> object:
        """Returns what a context manager gives that is entered on the boot that serves, and that stays entered.

        It is left by `leave`, and before the boot ends. One of an equal key is not entered twice.
        """
        assert self._serving is not None
        if self._held is None or self._held.key != key:
            self.leave()
            stack = ExitStack()
            self._held = _Held(key, stack.enter_context(make(self._serving.running)), stack)
        return self._held.value

    def leave(self, error: BaseException | None = None) -> None:
        """Leaves what is entered on the boot that serves, because of an error where there is one."""
        held, self._held = self._held, None
        if held is not None:
            held.stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def close(self) -> None:
        """Ends the server. Can be repeated, and another boot can follow."""
        serving, self._serving = self._serving, None
        try:
            self.leave()
        except FilePerfError:
            if serving is not None:
                serving.running.check()  # one that has died could not be left: that is what is to be told
            raise
        finally:
            if serving is not None:
                self.end(serving.launch)

    def end(self, launch: Launch) -> None:
        """Ends one boot, and keeps what is wrong with that."""
        if said := launch.stop():
            self.endings[said] += 1


def _key(spec: ServerSpec, app: AppSpec | None) -> object:
    """Returns what tells apps apart where the server needs one, or must not be another one than the test's."""
    if isinstance(spec, Command):
        return (None if app is None or app.made is None else app.key, databases_here())
    return app.key if app is not None and needs_app(spec) else None
