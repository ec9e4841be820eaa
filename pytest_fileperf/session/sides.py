"""Boots the two sides of a comparison: what is compared with, and the code here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from pytest_fileperf.errors import AppMissingError, BaseDiedError, FilePerfError, ServerDiedError
from pytest_fileperf.plan.alternation import Side
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.cores import boot_cores, is_on, keep_to
from pytest_fileperf.serve.launch import Launch, prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import AsgiSpec, Url
from pytest_fileperf.session.loading import BothServers, Cores
from pytest_fileperf.session.planning import ServerPlan
from pytest_fileperf.versions.tree import HERE, CodeTree

__all__ = ("Absent", "Base", "Machine", "Sides")

_SEEDS = 1 << 31
"""PYTHONHASHSEED ends at twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What the code here is compared with."""

    title: str
    """`origin/main (1a2b3c4)`, `../old`, `http://127.0.0.1:8000`."""
    code_tree: CodeTree = HERE
    url: Url | None = None
    """A server that runs already, in place of code that is booted."""
    is_same_code: bool = False
    """Whether it is the code here, so that there is nothing to compare."""
    may_fail: bool = False
    """Whether it is only `Absent` where it does not boot: the code of a stored baseline, whose figures are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """One side lacks what the test measures: there is nothing to compare."""

    side: Side
    what: str
    """What is missing, in a sentence."""
    app: bool = False
    """Whether the whole app is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How servers start on this machine, and move between its cores."""

    prepare: Callable[..., Launch] = prepare
    is_on: Callable[[frozenset[int], RunningServer], bool] = is_on
    keep_to: Callable[[frozenset[int], RunningServer], bool] = keep_to


class _NoBaseError(Exception):
    """The base has not booted, and that is no error; the text says why."""


class Sides:
    """Both sides of one comparison, booted in pairs."""

    def __init__(
        self, base: Base, plan: ServerPlan, *, builds: Builds, machine: Machine, chance: random.Random
    ) -> None:
        self._base = base
        self._plan = plan
        self._builds = builds
        self._machine = machine
        self._chance = chance
        self._first_boot = chance.randrange(_SEEDS)
        # A program of its own may have processes that are not ours to move.
        self._apart = base.url is None and isinstance(plan.spec, AsgiSpec)

    @contextmanager
    def booted(self, number: int) -> Iterator[BothServers | Absent]:
        """Boots base and now side by side, and ends them together. Gives Absent where the base lacks the app.

        Each boots on a core of its own where it can move to the server's afterwards. Raises what booting raises.
        """
        with ExitStack() as stack:
            places = self._places()
            servers = self._launched(number, places, stack)
            try:
                if self._apart and not isinstance(servers, Absent) and not self._gathered(servers, places):
                    self._apart = False
                    stack.close()
                    servers = self._launched(number, self._places(), stack)
                yield servers
            except ServerDiedError as error:
                if self._base.url is None and not isinstance(servers, Absent) and _has_died(servers[Side.BASE]):
                    raise BaseDiedError(f"{self._base.title}: {error}") from error
                raise

    def _places(self) -> Sequence[Cores]:
        """Returns the cores that each side boots on; a server that runs already has its own."""
        server, generator = self._plan.cores, self._plan.generator_cores
        if self._apart and server is not None and generator is not None:
            return self._chance.sample(boot_cores(server, generator), 2)
        return server, server

    def _launched(self, number: int, places: Sequence[Cores], stack: ExitStack) -> BothServers | Absent:
        base, spec, app = self._base, self._plan.spec, self._plan.app
        # The number is the same on both sides, and another one in each session.
        prepared = partial(self._machine.prepare, boot=self._first_boot + number, builds=self._builds)
        try:
            with self._of_base():
                launch = (
                    prepared(spec, app, cores=places[Side.BASE], code_tree=base.code_tree)
                    if base.url is None
                    else prepared(base.url, None, cores=None)
                )
            launches = (launch, prepared(spec, app, cores=places[Side.NOW]))
            for launch in launches:
                stack.callback(launch.stop)
            for launch in launches:
                stack.callback(launch.ask_to_stop)
            for side in self._chance.sample(tuple(Side), 2):
                with self._of_base() if side is Side.BASE else nullcontext():
                    launches[side].start()
            now = launches[Side.NOW].ready()
            with self._of_base():
                return launches[Side.BASE].ready(), now
        except _NoBaseError as error:
            return Absent(side=Side.BASE, what=str(error), app=True)

    @contextmanager
    def _of_base(self) -> Iterator[None]:
        """Steps of the base's boot: what keeps it from booting raises _NoBaseError, where that is no error."""
        title = self._base.title
        try:
            yield
        except AppMissingError as error:
            raise _NoBaseError(f"{title} has no such app: {error}") from error
        except FilePerfError as error:
            if not self._base.may_fail:
                raise
            why = str(error).splitlines()[0]
            advice = "store it again with --fileperf-update=all, or compare figures only: fileperf_confirm = never"
            raise _NoBaseError(f"{title} does not boot: {why}; {advice}") from error

    def _gathered(self, servers: BothServers, places: Sequence[Cores]) -> bool:
        """Moves both to the server's cores. Returns whether they are there, and booted where they had been put.

        An app may choose its own cores: then it has to have its choice on both sides. Raises ServerDiedError.
        """
        cores = self._plan.cores
        if cores is None or all(place in (None, cores) for place in places):
            return True
        put = all(
            place is None or self._machine.is_on(place, server) for server, place in zip(servers, places, strict=True)
        )
        if put and all(self._machine.keep_to(cores, server) for server in servers):
            return True
        for server in servers:
            server.check()
        return False


def _has_died(server: RunningServer) -> bool:
    try:
        server.check()
    except ServerDiedError:
        return True
    return False
