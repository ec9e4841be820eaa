"""Generators that make one load together: one process, or several that begin at one instant.

    test process     order ─┬─────────────── begin at t ─┬──────────────────── merge
    generator 1             └ prepare ─ ready ┘          t ── rounds ── answer ┘
    generator 2             └ prepare ─── ready ┘        t ── rounds ── answer ┘

What one of several has not measured is missing: then the others' results stand, and it is said which one was lost.
They are processes of this machine, or on the workers of a Dask cluster.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Protocol

import httpx

from pytest_fileperf.drive.clock import ClockOffset
from pytest_fileperf.drive.merging import merged_progress, merged_result
from pytest_fileperf.drive.messages import Begin, Late, LoadOrder, Ready
from pytest_fileperf.drive.packing import packed
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.process import CHECK_S, Generator, longest_s
from pytest_fileperf.drive.run import RunProgress, RunResult
from pytest_fileperf.errors import GeneratorError, LoadError
from pytest_fileperf.measure.generators import GeneratorProcess
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.split import generators_used, split
from pytest_fileperf.plan.work import Work
from pytest_fileperf.units import format_duration

if TYPE_CHECKING:
    from pytest_fileperf.drive.cluster import Cluster

__all__ = ("Generators", "MadeLoad", "Member", "own_cores")

_HEAD_START_NS = 20_000_000
"""All generators have been told when to begin before that instant comes, also where they share a core."""
_SILENT_S = 5.0
"""A generator tells how far it is four times a second. After its time limit for a request, in which the code of a
journey may keep it from that, and so much more, it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLoad:
    """What a load has left."""

    results: tuple[RunResult, ...]
    """Of each target, all generators together."""
    lost: Mapping[int, str]
    """Why the part of a generator is missing, by its number from 1 on."""


class Member(Protocol):
    """A generator, wherever it runs, as `process.Generator` is."""

    tracer: str
    is_elsewhere: bool
    """Whether it is beside a worker of a cluster, and may be missing from a load."""
    worker: str
    """The Dask worker that it is beside; empty for a process of this machine."""

    @property
    def pid(self) -> int | None:
        """Its process id; None where it is not seen here, or does not run."""

    @property
    def clock(self) -> ClockOffset:
        """How its clock differs from the one here."""
        ...

    @property
    def head_start_ns(self) -> int:
        """How long a message may take to it."""
        ...

    def order(self, job: LoadOrder, put: Callable[[object], None], /) -> None:
        """Starts a run; `put` is called with each of its messages, the last of which is None where it ended."""

    def send(self, message: object, /) -> None:
        """Sends it a message; raises BrokenPipeError where it has ended."""

    def hang_up(self) -> None:
        """Tells it to end, and does not wait for that."""

    def kill(self) -> None:
        """Ends it at once, or gives it up; the next run starts a new one."""

    def close(self) -> None:
        """Ends it."""

    def ended(self) -> str:
        """Returns how it ended, to stand behind its name."""
        ...

    def log_tail(self) -> str:
        """Returns the last lines of its log, as the end of a message."""
        ...

    def shorten_log(self) -> None:
        """Keeps what journeys print from filling the disk."""


class Generators:
    """As many generators as loads want. They start with the first load that does, and serve any number."""

    def __init__(self, *, coverage: bool = False, cluster: Cluster | None = None) -> None:
        """With `coverage`, what traces the test run may trace them too. `cluster` has the workers they run beside."""
        self._alone = None if cluster is not None else Generator(coverage=coverage)
        self._new: Callable[[], Member] = (
            partial(Generator, coverage=coverage) if cluster is None else cluster.generator
        )
        self._generators: list[Member] = [self._alone or self._new()]
        self._used = 1
        """How many of them make the load, or have made the last one; the others are idle."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of those that make the load, or have made the last one, and run."""
        return tuple(pid for generator in self._generators[: self._used] if (pid := generator.pid) is not None)

    @property
    def tracer(self) -> str:
        """What traces them; empty for nothing."""
        return self._generators[0].tracer

    def member(self, number: int) -> Member:
        """Returns a generator, by its number from 1 on."""
        return self._generators[number - 1]

    def run(
        self,
        works: tuple[Work, ...],
        plan: LoadPlan | Alternation,
        targets: tuple[Target, ...],
        *,
        pids: tuple[tuple[int, ...], ...],
        cores: frozenset[int] | None,
        progress: Callable[[RunProgress], None],
        check: Callable[[], None],
        begins: Callable[[int], None] = lambda _: None,
    ) -> MadeLoad:
        """Makes a load, as `Generator.run` does, and raises what that raises; with the plan's number of generators.

        Each of them has a core of its own where there are enough `cores`; else they share these. Where they have to be
        told, `begins` is called, too, with the instant at which they begin, before it comes.
        """
        count = self._used = generators_used(plan)
        if count == 1 and self._alone is not None:
            made = self._alone.run(works, plan, targets, pids=pids, cores=cores, progress=progress, check=check)
            return MadeLoad(results=made, lost={})
        while len(self._generators) < count:
            self._generators.append(self._new())
        if self._alone is None:
            for idle in self._generators[count:]:  # others may need their workers
                idle.hang_up()
        work = packed(works)
        orders = [
            LoadOrder(works=work, plan=share, targets=targets, pids=pids, cores=own, together=True)
            for share, own in zip(split(plan), own_cores(cores, count), strict=True)
        ]
        together = partial(_Together, self._generators[:count], plan, progress, check, begins)
        try:
            try:
                return together(0).made(orders)
            except _AllLateError as error:  # nothing has been sent
                return together(2 * error.by_ns).made(orders)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Ends the processes and removes their files."""
        self._end()

    def _end(self) -> None:
        for generator in self._generators:  # all at once: one that hangs is waited for
            generator.hang_up()
        for generator in self._generators:
            generator.close()


def own_cores(cores: frozenset[int] | None, count: int) -> list[frozenset[int] | None]:
    """Returns the cores of each of so many generators: one each where there are enough, else all of them."""
    if cores is None or len(cores) < count:
        return [cores] * count
    return [frozenset({core}) for core in sorted(cores)[:count]]


class _AllLateError(Exception):
    """No generator has begun, as they were told to do so too late: by so much at most."""

    def __init__(self, by_ns: int) -> None:
        super().__init__(by_ns)
        self.by_ns = by_ns


class _Together:
    """One load that several generators make."""

    def __init__(
        self,
        generators: list[Member],
        plan: LoadPlan | Alternation,
        progress: Callable[[RunProgress], None],
        check: Callable[[], None],
        begins: Callable[[int], None],
        more_ns: int,
    ) -> None:
        """`more_ns` is how much earlier they are told to begin, where the first try was too late."""
        self._begins = begins
        self._more_ns = more_ns
        self._generators = dict(enumerate(generators, start=1))
        self._plan = plan
        self._progress = progress
        self._check = check
        self._messages: queue.SimpleQueue[tuple[int, object]] = queue.SimpleQueue()
        self._waited_for = set(self._generators)
        """Those that have not answered."""
        self._ready: set[int] = set()
        self._begun = False
        self._heard_s: dict[int, float] = {}
        """When each of them was heard last."""
        self._told: dict[int, RunProgress] = {}
        self._results: dict[int, tuple[RunResult, ...]] = {}
        self._lost: dict[int, str] = {}
        self._late_ns = 0
        """How late they were told to begin, at most."""

    def made(self, orders: list[LoadOrder]) -> MadeLoad:
        """Has the orders carried out, one by each generator; returns all of it.

        Raises _AllLateError where they were told to begin too late, and were not told earlier for that reason.
        """
        for (number, generator), order in zip(self._generators.items(), orders, strict=True):
            try:
                generator.order(order, partial(self._take, number))
            except BrokenPipeError as error:
                raise GeneratorError(f"the load generator{generator.ended()}{generator.log_tail()}") from error
        patience_s = longest_s(self._plan)
        deadline = monotonic() + patience_s
        while self._waited_for:
            with suppress(queue.Empty):
                self._read(*self._messages.get(timeout=CHECK_S))
            for generator in self._generators.values():
                generator.shorten_log()
            self._check()
            self._give_up(patience_s, deadline)
        if not self._results:
            if self._late_ns and not self._more_ns:
                raise _AllLateError(self._late_ns)
            why = "; the machines are busy, or the network is slow" if self._late_ns else ""
            tail = self._generators[min(self._lost)].log_tail()
            raise GeneratorError(f"no load generator is left: {self._said()}{why}{tail}")
        each = [
            merged_result(self._plan, {number: own[place] for number, own in sorted(self._results.items())})
            for place in range(len(orders[0].targets))
        ]
        return MadeLoad(results=tuple(each), lost=self._lost)

    def _take(self, number: int, message: object) -> None:
        self._messages.put((number, message))

    def _read(self, number: int, message: object) -> None:
        if number not in self._waited_for:
            return
        self._heard_s[number] = monotonic()
        if isinstance(message, Ready):
            self._ready.add(number)
            self._begin_when_ready()
        elif isinstance(message, RunProgress):
            self._told[number] = message
            if number == min(self._waited_for):
                self._progress(merged_progress(self._told))
        elif isinstance(message, tuple):
            self._results[number] = message
            self._waited_for.discard(number)
        elif isinstance(message, Late):
            self._late_ns = max(self._late_ns, message.by_ns)
            self._leave_out(number, f" was told {format_duration(message.by_ns)} too late to begin")
        elif isinstance(message, Exception):
            raise self._of_worker(number, message)
        else:
            self._lose(number, self._generators[number].ended())

    def _begin_when_ready(self) -> None:
        if not self._waited_for or self._ready < self._waited_for:
            return
        self._begun = True
        going = {number: generator for number, generator in self._generators.items() if number in self._waited_for}
        head_start_ns = _HEAD_START_NS + max(generator.head_start_ns for generator in going.values()) + self._more_ns
        begin = Begin(origin_ns=monotonic_ns() + head_start_ns)
        self._begins(begin.origin_ns)
        begin_s = monotonic() + head_start_ns / 1e9
        for number, generator in going.items():
            self._heard_s[number] = begin_s
            with suppress(BrokenPipeError):  # its end is a message of its own
                generator.send(begin)

    def _give_up(self, patience_s: float, deadline: float) -> None:
        """Gives up generators that say nothing any more, or do not end."""
        now_s = monotonic()
        silent_s = self._plan.timeout_ns / 1e9 + _SILENT_S
        for number in sorted(self._waited_for):
            if now_s > deadline:
                self._lose(number, f" did not end within {patience_s:.0f} s")
            elif self._begun and now_s > self._heard_s[number] + silent_s:
                self._lose(number, f" said nothing for {silent_s:.0f} s")

    def _lose(self, number: int, what: str) -> None:
        """Goes on without a generator; raises GeneratorError where the load has not begun, and it is of this machine.

        What happens to other machines is nothing that a test can do anything about.
        """
        generator = self._generators[number]
        self._leave_out(number, what)
        if not self._begun and not generator.is_elsewhere:
            raise GeneratorError(f"before the load began, {self._said()}{generator.log_tail()}")
        generator.kill()
        if not self._begun:
            self._begin_when_ready()

    def _leave_out(self, number: int, what: str) -> None:
        self._waited_for.discard(number)
        self._told.pop(number, None)
        self._lost[number] = what

    def _of_worker(self, number: int, error: Exception) -> Exception:
        """Returns the error with the name of the worker that had it, where it is one elsewhere."""
        if self._generators[number].worker and type(error) in (LoadError, GeneratorError, httpx.ConnectError):
            return type(error)(f"{self._title(number)}: {error}")
        return error

    def _title(self, number: int) -> str:
        worker = self._generators[number].worker
        return GeneratorProcess(number=number, of=len(self._generators), worker=worker).title

    def _said(self) -> str:
        return "; ".join(self._title(number) + what for number, what in sorted(self._lost.items()))
