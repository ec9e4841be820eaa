"""Boots the two sides of a comparison: what is compared with, and the code here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pytest_fileperf.errors import AppMissingError, ServerDiedError
from pytest_fileperf.plan.alternation import Side
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.cores import boot_cores, is_on, keep_to
from pytest_fileperf.serve.launch import prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import AsgiSpec, Url
from pytest_fileperf.settings.resolve import Settings
from pytest_fileperf.versions.tree import HERE, CodeTree

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
    code_tree: CodeTree = HERE
    url: Url | None = None
    """A server that runs already, in place of a code_tree."""


class AbsentError(Exception):
    """One side has not what the test measures: there is nothing to compare. Its text says what is missing."""

    def __init__(self, what: str, *, here: bool = False, app: bool = False) -> None:
        """`here` says that it is the side of the code here, `app` that all of the app is missing."""
        super().__init__(what)
        self.here = here
        self.app = app


class Sides:
    """Both sides of one comparison, booted in pairs."""

    def __init__(
        self,
        base: Base,
        settings: Settings,
        *,
        cores: tuple[frozenset[int], frozenset[int]] | None,
        builds: Builds,
    ) -> None:
        """`cores` are those of each server and those of the generator; None for any."""
        self._base = base
        self._settings = settings
        self._cores = cores
        self._builds = builds
        self._first_boot = _CHANCE.randrange(_SEEDS)
        # A program of its own may have processes that are not ours to move.
        self._apart = base.url is None and isinstance(settings.server, AsgiSpec)

    @contextmanager
    def booted(self, number: int) -> Iterator[tuple[RunningServer, RunningServer]]:
        """Boots base and now side by side, on a core each where they can be moved to the same one; they end together.

        Raises AbsentError where the base has no such app, and what booting raises.
        """
        with ExitStack() as stack:
            places = self._places()
            servers = self._launched(number, places, stack)
            try:
                if self._apart and not self._gathered(servers, places):
                    self._apart = False
                    for server in servers:
                        server.check()
                    stack.close()
                    servers = self._launched(number, self._places(), stack)
                yield servers
            except ServerDiedError as error:
                if self._base.url is None and _has_died(servers[Side.BASE]):
                    raise ServerDiedError(f"{self._base.title}: {error}") from error
                raise

    def _places(self) -> Sequence[frozenset[int] | None]:
        """Returns the cores that each side boots on; a server that runs already has its own."""
        if self._cores is None:
            return None, None
        server, generator = self._cores
        return _CHANCE.sample(boot_cores(server, generator), 2) if self._apart else (server, server)

    def _launched(
        self, number: int, places: Sequence[frozenset[int] | None], stack: ExitStack
    ) -> tuple[RunningServer, RunningServer]:
        settings, base, builds = self._settings, self._base, self._builds
        app = None if settings.app is None else app_spec(settings.app)
        boot = self._first_boot + number  # the same on both sides, and another one in each session
        launches = (
            prepare(settings.server, app, boot=boot, cores=places[Side.BASE], builds=builds, code_tree=base.code_tree)
            if base.url is None
            else prepare(base.url, None, boot=boot, cores=None, builds=builds),
            prepare(settings.server, app, boot=boot, cores=places[Side.NOW], builds=builds),
        )
        for launch in launches:
            stack.callback(launch.stop)
        for launch in launches:
            stack.callback(launch.ask_to_stop)
        for launch in _CHANCE.sample(launches, len(launches)):
            launch.start()
        now = launches[Side.NOW].ready()
        try:
            return launches[Side.BASE].ready(), now
        except AppMissingError as error:
            raise AbsentError(f"{base.title} has no such app: {error}", app=True) from error

    def _gathered(self, servers: Sequence[RunningServer], places: Sequence[frozenset[int] | None]) -> bool:
        """Moves both to the server's cores; returns whether they are there, and were where they had been put.

        An app that chooses its own cores is not to have its choice on one side only.
        """
        if self._cores is None or all(place in (None, self._cores[0]) for place in places):
            return True
        cores = self._cores[0]
        both = list(zip(servers, places, strict=True))
        return all(place is None or is_on(place, server) for server, place in both) and all(
            keep_to(cores, server) for server in servers
        )


def _has_died(server: RunningServer) -> bool:
    try:
        server.check()
    except ServerDiedError:
        return True
    return False
