"""Boots the two sides of a comparison: what is compared with, and the code here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pytest_fileperf.errors import AppMissingError, ServerDiedError
from pytest_fileperf.plan.alternation import BASE, NOW
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.home import HERE, Home
from pytest_fileperf.serve.launch import prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Url
from pytest_fileperf.settings import Settings

__all__ = ("AbsentError", "Base", "Sides")

_CHANCE = random.SystemRandom()
"""Not the generator that test suites seed: two sessions are not to have the same luck."""
_SEEDS = 1 << 31
"""PYTHONHASHSEED ends at twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What the code here is compared with."""

    title: str
    """`origin/main (1a2b3c4)`, `../old`, `http://127.0.0.1:8000`."""
    home: Home = HERE
    url: Url | None = None
    """A server that runs already, in place of a home."""


class AbsentError(Exception):
    """One side has not what the test measures: there is nothing to compare. Its text says what is missing."""

    def __init__(self, what: str, *, here: bool = False, app: bool = False) -> None:
        """`here` says that it is the side of the code here, `app` that all of the app is missing."""
        super().__init__(what)
        self.here = here
        self.app = app


class Sides:
    """Both sides of one comparison, booted in pairs."""

    def __init__(self, base: Base, settings: Settings, *, cores: frozenset[int] | None, builds: Builds) -> None:
        """`cores` are those of each server; None for any."""
        self._base = base
        self._settings = settings
        self._cores = cores
        self._builds = builds
        self._first_boot = _CHANCE.randrange(_SEEDS)

    @contextmanager
    def booted(self, number: int) -> Iterator[tuple[RunningServer, RunningServer]]:
        """Boots both sides side by side; they end together."""
        settings, base = self._settings, self._base
        app = None if settings.app is None else app_spec(settings.app)
        cores, builds = self._cores, self._builds
        boot = self._first_boot + number  # the same on both sides, and another one in each session
        with ExitStack() as stack:
            launches = (
                prepare(settings.server, app, boot=boot, cores=cores, builds=builds, home=base.home)
                if base.url is None
                else prepare(base.url, None, boot=boot, cores=None, builds=builds),
                prepare(settings.server, app, boot=boot, cores=cores, builds=builds),
            )
            for launch in launches:
                stack.callback(launch.stop)
            for launch in launches:
                stack.callback(launch.ask_to_stop)
            for launch in _CHANCE.sample(launches, len(launches)):
                launch.start()
            now = launches[NOW].ready()
            try:
                other = launches[BASE].ready()
            except AppMissingError as error:
                raise AbsentError(f"{base.title} has no such app: {error}", app=True) from error
            try:
                yield other, now
            except ServerDiedError as error:
                if base.url is None and _has_died(other):
                    raise ServerDiedError(f"{base.title}: {error}") from error
                raise


def _has_died(server: RunningServer) -> bool:
    try:
        server.check()
    except ServerDiedError:
        return True
    return False
