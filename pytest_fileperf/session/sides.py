"""Boots the two sides of a comparison: what is compared with, and the code here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from pytest_fileperf.errors import AppMissingError, BaseDiedError, FilePerfError, ServerDiedError
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.plan.load import Side
from pytest_fileperf.serve.launch import Launch, ServerPool, refuse_changed, refuse_hidden
from pytest_fileperf.serve.process import ProcessLaunch
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Url
from pytest_fileperf.session.loads import BothServers
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.versions.tree import HERE, CodeTree

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
    outcome: Outcome = Outcome.NEW
    """What the gates are then: INCONCLUSIVE where there is another answer than the test expects."""


class _NoBaseError(Exception):
    """The base has not booted, and that is no error; the text says why."""


class Sides:
    """Both sides of one comparison, booted in pairs."""

    def __init__(self, base: Base, plan: Plan, *, pool: ServerPool, chance: random.Random) -> None:
        """`pool` is ended before a pair boots, and says how boots are launched and numbered."""
        self._base = base
        self._plan = plan
        self._pool = pool
        self._chance = chance
        self._first_boot = chance.randrange(_SEEDS)
        self._why_fresh = ""
        """Why both import the app for each boot, where only one can be forked; empty where both can, or neither."""

    @contextmanager
    def booted(self, number: int) -> Iterator[BothServers | Absent]:
        """Boots base and now, one after the other by chance, and ends them together. No other server of ours runs then.

        Both import the app at the same time: real ones take seconds.

        Gives Absent where the base lacks the app. Raises what booting raises.
        """
        self._pool.close()
        with ExitStack() as stack:
            servers = self._launched(number, stack)
            if not isinstance(servers, Absent) and self._base.url is None and self._differ(servers):
                stack.close()
                servers = self._launched(number, stack)
            try:
                yield servers
            except ServerDiedError as error:
                if self._base.url is None and not isinstance(servers, Absent) and _has_died(servers[Side.BASE]):
                    raise BaseDiedError(f"{self._base.title}: {error}") from error
                raise

    def _differ(self, servers: BothServers) -> bool:
        """Returns whether one is forked and the other is not, and keeps why."""
        base, now = servers
        if base.is_forked is now.is_forked:
            return False
        of_base = f"{self._base.title}: {base.why_fresh}" if base.why_fresh else "one version cannot be forked now"
        self._why_fresh = now.why_fresh or of_base
        return True

    def _launched(self, number: int, stack: ExitStack) -> BothServers | Absent:
        try:
            with self._of_base():
                base = self._prepared(number, Side.BASE)
            launches = (base, self._prepared(number, Side.NOW))
            for launch in launches:
                stack.callback(self._pool.end, launch)
            for launch in launches:
                stack.callback(launch.ask_to_stop)
            servers: dict[Side, RunningServer] = {}
            for step in (ProcessLaunch.import_ahead, ProcessLaunch.hold):
                for side in Side:
                    with self._of_base() if side is Side.BASE else nullcontext():
                        if isinstance(launch := launches[side], ProcessLaunch):
                            step(launch)
            for side in self._chance.sample(tuple(Side), 2):
                with self._of_base() if side is Side.BASE else nullcontext():
                    launches[side].start()
                    servers[side] = launches[side].ready()
                    servers[side].family = self._pool.family
            if self._base.url is None and not self._base.code_tree.is_here:
                refuse_changed(servers[Side.NOW], title=self._base.title)
                if number == 0:
                    with self._of_base():
                        refuse_hidden(servers[Side.BASE], self._base.code_tree)
            if self._why_fresh:
                servers[Side.NOW].why_fresh = self._why_fresh
            return servers[Side.BASE], servers[Side.NOW]
        except _NoBaseError as error:
            return Absent(side=Side.BASE, what=str(error), app=True)

    def _prepared(self, number: int, side: Side) -> Launch:
        base, plan = self._base, self._plan
        version = "base" if side is Side.BASE and base.url is None and base.code_tree.is_here else ""
        launch = partial(
            self._pool.launch,
            boot=self._first_boot + number,  # the same on both sides, and another one in each session
            in_turn=True,
            version=version,
            forks=not self._why_fresh,
        )
        if side is Side.NOW:
            return launch(plan.settings.server, plan.app, cores=plan.cores)
        if base.url is not None:
            return launch(base.url, None, cores=None)
        return launch(plan.settings.server, plan.app, cores=plan.cores, code_tree=base.code_tree)

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


def _has_died(server: RunningServer) -> bool:
    try:
        server.check()
    except ServerDiedError:
        return True
    return False
