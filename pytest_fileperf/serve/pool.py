"""The servers of a test run: booted at first use, any number of boots of a spec, all ended at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from pytest_fileperf.errors import ServerDiedError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.launch import Launch, prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ServerSpec, is_only_once, needs_app

__all__ = ("ServerPool",)


@dataclass(frozen=True, slots=True)
class _Boot:
    launch: Launch
    running: RunningServer


class ServerPool:
    """Keeps the boots of each spec and app. Whoever made it closes it, which ends every server."""

    def __init__(self, prepare: Callable[..., Launch] = prepare) -> None:
        """`prepare` returns the launch of one boot."""
        self._prepare = prepare
        self._boots: dict[tuple[object, ...], dict[int, _Boot]] = {}
        self._apps: list[AppSpec] = []  # keeps app objects alive, so that their ids stay their own
        self.builds = Builds()

    def boots(
        self, spec: ServerSpec, app: AppSpec | None, count: int, cores: frozenset[int] | None
    ) -> tuple[RunningServer, ...]:
        """Returns so many boots of the server, numbered from 0. It starts those that are missing, at the same time.

        There is one boot only of an in-process app, a running server, or a fixed port. A boot that has died since its
        last use is replaced. Raises AppLoadError, PlanError or ServerStartError, after ending what this call started.
        """
        if is_only_once(spec):
            count = 1
        if not needs_app(spec):
            app = None
        boots = self._boots_of(spec, app)
        self._end_dead(boots)
        missing = [boot for boot in range(count) if boot not in boots]
        with ExitStack() as on_failure:
            launches = {boot: self._prepare(spec, app, boot=boot, cores=cores, builds=self.builds) for boot in missing}
            for starting in launches.values():
                on_failure.callback(starting.stop)
                starting.start()
            started = {boot: _Boot(starting, starting.ready()) for boot, starting in launches.items()}
            boots.update(started)
            on_failure.pop_all()
        return tuple(boots[boot].running for boot in range(count))

    def close(self) -> None:
        """Ends every server. It asks all of them first, so that they end side by side. Can be repeated."""
        launches = [boot.launch for boots in self._boots.values() for boot in boots.values()]
        self._boots.clear()
        self._apps.clear()
        with ExitStack() as ending:
            for running in launches:
                ending.callback(running.stop)
            for running in launches:
                running.ask_to_stop()

    def _boots_of(self, spec: ServerSpec, app: AppSpec | None) -> dict[int, _Boot]:
        key = (spec, None if app is None else app.key)
        if key not in self._boots and app is not None:
            self._apps.append(app)
        return self._boots.setdefault(key, {})

    def _end_dead(self, boots: dict[int, _Boot]) -> None:
        for number, boot in list(boots.items()):
            try:
                boot.running.check()
            except ServerDiedError:
                del boots[number]
                boot.launch.stop()
