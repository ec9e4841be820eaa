"""Starts load generators, which are processes, and merges their results.

    test process     order ─┬─────────────── begin at t ─┬──────────────────── merge
    generator 1             └ prepare ─ ready ┘          t ── rounds ── answer ┘
    generator 2             └ prepare ─── ready ┘        t ── rounds ── answer ┘

All generators of a load begin at the same instant. If one is lost, the others' results still count, and the result
names the lost generator. Generators run on this machine, or on the workers of a Dask cluster.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, TypeAlias

import httpx

from pytest_fileperf.drive.generator import READY, LateError, LoadOrder, packed, read_message, write_message
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import GeneratorError, LoadError, log_block
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import Child, Invocation
from pytest_fileperf.host.files import not_started
from pytest_fileperf.measure.recorder import merged_leads, merged_rounds
from pytest_fileperf.measure.recording import Boot, GeneratorProcess, Round, WarmUp
from pytest_fileperf.plan.load import Alternation, LoadPlan, generators_used, split
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.stability import tracer_in, untraced
from pytest_fileperf.units import exit_text, format_duration

if TYPE_CHECKING:
    from pytest_fileperf.drive.cluster import Cluster
    from pytest_fileperf.drive.remote import RemoteHandle

# --- Joins the results of several generators that made a load together; pure


def merged_result(plan: LoadPlan | Alternation, shares: Mapping[int, Run], lost: Mapping[int, str]) -> Run:
    """Merges several generators' results for one server. The keys of `shares` and `lost` are generators' numbers."""
    results = list(shares.values())
    first = results[0]
    subjects = dict.fromkeys(subject for own in results for subject in own.subjects)
    dues = [result.due for result in results if result.due is not None]
    # A generator without due requests does not know when they were due.
    attacks = [result.attack for result in results if result.due != 0] or [first.attack]
    attack = min(start for start, _ in attacks), max(end for _, end in attacks)
    leads = merged_leads(
        [result.boot.leads for result in results if result.boot.leads is not None],
        span_ns=0 if plan.counted else plan.duration_ns - plan.measured_from_ns,
    )
    return Run(
        plan=plan,
        boot=Boot(index=first.boot.index, leads=leads),
        rounds=_merged(plan, shares),
        subjects={(part, step): _merged(plan, shares, part, step) for part, step in subjects},
        warm_ups={name: sum((own.warm_ups[name] for own in results), WarmUp()) for name in first.warm_ups},
        engine=first.engine,
        why_engine=first.why_engine,
        attack=attack,
        last_end_ns=max(result.last_end_ns for result in results),
        due=sum(dues) if dues else None,
        uncounted_ns=sum(result.uncounted_ns for result in results),
        paths=frozenset().union(*(result.paths for result in results)),
        lost=lost,
    )


def _merged(
    plan: LoadPlan | Alternation, shares: Mapping[int, Run], part: str = "", step: str = ""
) -> tuple[Round, ...]:
    is_whole = not part and not step
    rounds = {number: own.rounds_of(part, step) for number, own in shares.items()}
    if not isinstance(plan, Alternation) or generators_used(plan) == 1 or step:
        return merged_rounds(rounds, is_whole=is_whole)
    at = None if is_whole else list(next(iter(shares.values())).subjects).index((part, step))
    of_part = slice(None) if at is None else slice(at, at + 1)
    ends = [[in_round[of_part] for in_round in own.ends] for own in shares.values()]
    return merged_rounds(rounds, is_whole=is_whole, ends=ends, connections=plan.connections)


def merged_progress(shares: Mapping[int, RunProgress]) -> RunProgress:
    newest = max(shares.values(), key=lambda own: own.elapsed_ns)
    known = [own.p99_ns for own in shares.values() if own.p99_ns is not None]
    return RunProgress(
        phase=newest.phase,
        elapsed_ns=newest.elapsed_ns,
        requests=sum(own.requests for own in shares.values()),
        rps=sum(own.rps for own in shares.values()),
        p99_ns=max(known, default=None),
        failed=sum(own.failed for own in shares.values()),
    )


# --- The test process's side of a generator: starts it, orders loads, listens, ends it

CHECK_S = 0.25
"""How often the test process checks the server during a load."""
_END_S = 5.0


class Generator:
    is_elsewhere, worker = False, ""
    ahead_ns = clock_error_ns = distance_ns = head_start_ns = 0
    """All 0: a generator on this machine has the same clock, and messages to it take no time."""

    def __init__(self, *, coverage: bool = False, path: tuple[str, ...] | None = None) -> None:
        """If `coverage`, the test run's coverage may include the generator. `path` is the generator's `sys.path`."""
        self._coverage = coverage
        self._path = path
        self.tracer = ""
        self._child: Child | None = None
        """The process that was started: the generator, or on POSIX the generator's supervisor."""
        self._process: subprocess.Popen[bytes] | None = None
        self._put: Callable[[object], None] = lambda _: None
        self._pid: int | None = None
        """The generator's process id; None until the generator has reported it."""

    @property
    def pid(self) -> int | None:
        """The generator's process id; None while its process is not running."""
        return None if self._process is None or self._process.poll() is not None else self._pid

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Orders a load, and starts the process if it is not running. Raises GeneratorError if it cannot start.

        Another thread calls `put` with each of the generator's messages, and with None once the process has ended.
        """
        try:
            self._start()
            self._put = put
            self.send(job)
        except BrokenPipeError as error:
            raise GeneratorError(f"the load generator{self.ended()}{self.log_tail()}") from error

    def send(self, message: object) -> None:
        """Sends a message to the process. Raises BrokenPipeError if the process has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        write_message(self._process.stdin, message)

    def hang_up(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.terminate()

    def kill(self) -> None:
        if self._child is not None:
            self._child.end(ask=False)

    def close(self) -> None:
        self.hang_up()
        child, process = self._child, self._process
        self._child = self._process = None
        if child is not None:
            child.end(patience_s=_END_S, ask=False)  # it has been asked
            child.stop(patience_s=0)
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        # This process's environment, with this package importable, and untraced as servers are.
        root, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
        python_path = (path + os.pathsep if path else "") + root
        env = {**untraced(os.environ, coverage=self._coverage), "PYTHONPATH": python_path}
        self.tracer = tracer_in(env)
        try:
            self._child = child = Child("generator")
            # -P: modules in the tests' directory may have names of the standard library.
            program = (sys.executable, "-P", "-m", "pytest_fileperf.drive")
            command = (*program, *scratch.supervising(child.directory), str(child.directory))
            process = child.start(Invocation(command=command, env=env), stdout=subprocess.PIPE)
        except OSError as error:
            raise GeneratorError(not_started("the load generator", error)) from error
        self._process, self._pid, self._put = process, None, lambda _: None
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        self.send(list(sys.path if self._path is None else self._path))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Calls `_put` with each of the process's messages, and with None at the end."""
        assert process.stdout is not None
        with suppress(Exception):  # closed while it was read, or not a pickle
            while (message := read_message(process.stdout)) is not None and process is self._process:
                if isinstance(message, int):
                    self._pid = message
                else:
                    self._put(message)
        put = self._put  # before the question: another process may begin after it
        if process is self._process:
            put(None)

    def ended(self) -> str:
        """Returns how the process ended, as the end of a sentence: `'s process ended with exit code 7`."""
        if self._child is None:
            return "'s process is gone"
        code = self._child.ended(wait_s=_END_S)
        return " sent an invalid message" if code is None else f"'s process ended with {exit_text(code)}"

    def log_tail(self) -> str:
        return "" if self._child is None else log_block(self._child.log)

    def shorten_log(self) -> None:
        """Shortens the log, because prints of users' code could fill the disk. Call it now and then during a load."""
        if self._child is not None:
            self._child.shorten_log()


# --- group

_SILENT_S = 5.0
"""A generator counts as lost if it is silent for a request's time limit plus this time. Generators report four times a
second, but users' code may block them for as long as the limit."""


Member: TypeAlias = "Generator | RemoteHandle"


class Generators:
    def __init__(self, *, coverage: bool = False, cluster: Cluster | None = None) -> None:
        """With `coverage`, the test run's coverage includes the generators. With a `cluster`, Dask runs them."""
        self._new: Callable[[], Member] = (
            partial(Generator, coverage=coverage) if cluster is None else cluster.generator
        )
        self._generators = [self._new()]
        self._used = 1
        """How many of the generators make the current load, or made the last load."""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for generator in self._generators[: self._used] if (pid := generator.pid) is not None)

    @property
    def tracer(self) -> str:
        return self._generators[0].tracer

    def member(self, number: int) -> Member:
        return self._generators[number - 1]

    def run(
        self,
        works: tuple[Work, ...],
        plan: LoadPlan | Alternation,
        targets: tuple[Target, ...],
        *,
        cores: frozenset[int] | None,
        progress: Callable[[RunProgress], None],
        check: Callable[[], None],
        begins: Callable[[int], None] = lambda _: None,
    ) -> tuple[Run, ...]:
        """Loads one server, or alternately an old and a new version. Returns one result for each server.

        `works` has the requests for each of `targets`. `check` is called a few times a second, and may raise to end the
        load. If several generators begin together, `begins` is called before, with the instant at which they will
        begin. After any error, no generator is left running.

        Raises PlanError, LoadError, GeneratorError, or httpx.ConnectError if no server accepts connections.
        """
        count = self._used = generators_used(plan)
        while len(self._generators) < count:
            self._generators.append(self._new())
        for idle in self._generators[count:]:
            if idle.is_elsewhere:  # others may need its worker
                idle.hang_up()
        work = packed(works)
        orders = [
            LoadOrder(works=work, plan=share, targets=targets, cores=own)
            for share, own in zip(split(plan), own_cores(cores, count), strict=True)
        ]
        together = partial(_Together, self._generators[:count], plan, progress, check, begins)
        try:
            try:
                return together(0).made(orders)
            except LateError as error:  # nothing has been sent
                return together(2 * error.by_ns).made(orders)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for generator in self._generators:  # all at once, because each may hang
            generator.hang_up()
        for generator in self._generators:
            generator.close()


def own_cores(cores: frozenset[int] | None, count: int) -> list[frozenset[int] | None]:
    """Returns each generator's cores: one core each if there are enough, else all cores for each."""
    if cores is None or count == 1 or len(cores) < count:
        return [cores] * count
    return [frozenset({core}) for core in sorted(cores)[:count]]


class _Together:
    """One load by one or several generators. Several generators begin at the same instant."""

    def __init__(
        self,
        generators: list[Member],
        plan: LoadPlan | Alternation,
        progress: Callable[[RunProgress], None],
        check: Callable[[], None],
        begins: Callable[[int], None],
        more_ns: int,
    ) -> None:
        """`more_ns` is extra time for the start message, if the message came too late at the first try."""
        self._begins = begins
        self._more_ns = more_ns
        self._generators = dict(enumerate(generators, start=1))
        self._is_alone = len(generators) == 1 and not generators[0].is_elsewhere
        self._plan = plan
        self._progress = progress
        self._check = check
        self._messages: queue.SimpleQueue[tuple[int, object]] = queue.SimpleQueue()
        self._waited_for = set(self._generators)
        self._ready: set[int] = set()
        self._begun = False
        self._heard_s: dict[int, float] = {}
        self._told: dict[int, RunProgress] = {}
        self._results: dict[int, tuple[Run, ...]] = {}
        self._lost: dict[int, str] = {}
        self._late_ns = 0
        """How late the start message reached the slowest generator, in ns; 0 if it was in time."""

    def made(self, orders: list[LoadOrder]) -> tuple[Run, ...]:
        """Makes the load, and returns each server's result. Raises LateError if the start message came too late."""
        for (number, generator), order in zip(self._generators.items(), orders, strict=True):
            generator.order(order, partial(self._take, number))
        patience_s = (self._plan.longest_ns + self._plan.timeout_ns) / 1e9 + 30  # pauses may take as long again
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
                raise LateError(self._late_ns)
            why = ". The machines are busy, or the network is slow" if self._late_ns else ""
            tail = self._generators[min(self._lost)].log_tail()
            raise GeneratorError(f"no load generator is left to make the load: {self._said()}{why}{tail}")
        if self._is_alone:
            return self._results[1]
        each = sorted(self._results.items())
        return tuple(
            merged_result(self._plan, {number: own[place] for number, own in each}, self._lost)
            for place in range(len(orders[0].targets))
        )

    def _take(self, number: int, message: object) -> None:
        self._messages.put((number, message))

    def _read(self, number: int, message: object) -> None:
        if number not in self._waited_for:
            return
        self._heard_s[number] = monotonic()
        if message == READY:
            self._ready.add(number)
            self._begin_when_ready()
        elif isinstance(message, RunProgress):
            self._told[number] = message
            if number == min(self._waited_for):
                self._progress(merged_progress(self._told))
        elif isinstance(message, tuple):
            self._results[number] = message
            self._waited_for.discard(number)
        elif isinstance(message, LateError):
            self._late_ns = max(self._late_ns, message.by_ns)
            self._leave_out(number, f" got its start signal {format_duration(message.by_ns)} too late")
        elif isinstance(message, Exception):
            if self._generators[number].worker and type(message) in (LoadError, GeneratorError, httpx.ConnectError):
                raise type(message)(f"{self._title(number)}: {message}")
            raise message
        else:
            self._lose(number, self._generators[number].ended())

    def _begin_when_ready(self) -> None:
        if not self._waited_for or not self._waited_for <= self._ready:  # a lost one may have been ready
            return
        self._begun = True
        going = {number: generator for number, generator in self._generators.items() if number in self._waited_for}
        # Even on a shared core, all generators here get the message within 20 ms.
        head_start_ns = 20_000_000 + max(generator.head_start_ns for generator in going.values()) + self._more_ns
        origin_ns = monotonic_ns() + head_start_ns
        self._begins(origin_ns)
        begin_s = monotonic() + head_start_ns / 1e9
        for number, generator in going.items():
            self._heard_s[number] = begin_s
            with suppress(BrokenPipeError):  # its end is a message of its own
                generator.send(origin_ns)

    def _give_up(self, patience_s: float, deadline: float) -> None:
        now_s = monotonic()
        silent_s = self._plan.timeout_ns / 1e9 + _SILENT_S
        for number in sorted(self._waited_for):
            if now_s > deadline:
                self._lose(number, f" did not end within {patience_s:.0f} s")
            elif self._begun and now_s > self._heard_s[number] + silent_s:
                self._lose(number, f" sent nothing for {silent_s:.0f} s")

    def _lose(self, number: int, what: str) -> None:
        """Goes on without a lost generator. If a local generator is lost before the load, raises GeneratorError."""
        generator = self._generators[number]
        self._leave_out(number, what)
        if not self._begun and not generator.is_elsewhere:
            said = f"the load generator{what}" if self._is_alone else f"before the load began, {self._said()}"
            raise GeneratorError(said + generator.log_tail())
        generator.kill()
        if not self._begun:
            self._begin_when_ready()

    def _leave_out(self, number: int, what: str) -> None:
        self._waited_for.discard(number)
        self._told.pop(number, None)
        self._lost[number] = what

    def _title(self, number: int) -> str:
        worker = self._generators[number].worker
        return GeneratorProcess(number=number, of=len(self._generators), worker=worker).title

    def _said(self) -> str:
        return "; ".join(self._title(number) + what for number, what in sorted(self._lost.items()))
