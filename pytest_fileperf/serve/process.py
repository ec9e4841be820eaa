"""Starts and ends a server process with everything below it, from the test process, for all kinds of servers.

What differs between them is in `workers` for uvicorn and gunicorn, and in `command` for any other program.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from pytest_fileperf.errors import FilePerfError, ServerDiedError, ServerStartError
from pytest_fileperf.host.child import PATIENCE_S, Child, Invocation, is_alive
from pytest_fileperf.host.files import not_started
from pytest_fileperf.plan.network import LOOPBACK
from pytest_fileperf.serve.job import HELD, IMPORTED, Failed, left, noted
from pytest_fileperf.serve.preload import Fork, Order, Ordered
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ProcessSpec
from pytest_fileperf.serve.stability import stabilising_env, untraced
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.tree import HERE, CodeTree

STAGES = Path(__file__).parent
"""Where the scripts lie that a server's process runs on its start."""
_ENDED_AS_ASKED = (0, -2, -15, 130, 143)
"""How programs end that got SIGTERM, or SIGINT from a supervisor of their own: some return what shells do."""
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
Spec = TypeVar("Spec", bound=ProcessSpec)


class RunningProcess(RunningServer):
    """A server that answers requests, in processes that we started."""

    def __init__(self, process: Child) -> None:
        self._process = process
        self.supervisor = process.supervisor
        self._program = next(iter(self.processes), None)

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        """The live process tree: with several workers the supervisor and its helpers are in it."""
        return self._process.tree()

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines of what it wrote to standard output and error."""
        return self._process.log

    def check(self) -> None:
        """Raises ServerDiedError when it has ended. One that is ending gets a moment to do so. Shortens its log."""
        self._process.shorten_log()
        is_ending = self._program is None or not is_alive(self._program)
        # A process that has ended can be collected a moment later, and so can the supervisor above it.
        returncode = self._process.ended(wait_s=1.0 if is_ending else 0)
        if returncode is not None:
            raise ServerDiedError(f"{self.title} ended with {exit_text(returncode)}", log=self.log)


class PortTakenError(ServerStartError):
    """Another program took the port between our choice and the program's start. Another port is worth a try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """One boot among those of a test run: of which code, and where."""

    number: int
    """Boots of one number have the same hash seed and layout of memory."""
    cores: frozenset[int] | None
    host: str = LOOPBACK
    """The address of this machine that the server listens at."""
    serial: int = 0
    """What `{boot}` becomes."""
    in_turn: bool = False
    """Whether it is a side of a comparison."""
    code_tree: CodeTree = HERE
    coverage: bool = False
    """Whether coverage may trace it."""

    def env(self, spec: ProcessSpec) -> dict[str, str]:
        """Returns the environment that the server begins with: on its tree, and with what stabilises the boot."""
        found = base_env(spec, boot=self.number, in_turn=self.in_turn, coverage=self.coverage)
        return self.code_tree.env(found, given=dict(spec.env))


class ProcessLaunch(ABC, Generic[Spec]):
    """One boot of a program. It is started again, with another port, where another program takes its port."""

    def __init__(self, spec: Spec, start_up: StartUp, order: Order | None = None, *, can_be_held: bool = False) -> None:
        """Without an `order` it is never a fork. One that can be held may import the app ahead of its start."""
        self.spec = spec
        self.start_up = start_up
        self.code_tree = start_up.code_tree
        self._order = order
        self._ordered: Ordered | str = ""
        self._can_be_held = can_be_held
        self._held_s: float | None = None
        """When it was started to be held, by the monotonic clock."""
        self._invocation: Invocation | None = None
        self._forked: Fork | None = None
        self._why_fresh = ""
        self._child: Child | None = None
        self._running: RunningServer | None = None

    @abstractmethod
    def prepare(self, run_directory: Path) -> Invocation:
        """Returns what to start, after writing what it needs into its run directory.

        Raises PlanError for what is missing, AppLoadError for an app that cannot be sent, ServerStartError where a
        build fails, and OSError.
        """

    @abstractmethod
    def poll(self, *, within_s: float) -> RunningServer | None:
        """Returns the server once it answers, None before; it may wait so long for an answer.

        Raises AppLoadError or ServerStartError where it will never answer.
        """

    @abstractmethod
    def why_late(self) -> str:
        """Returns the message for a server that was not ready in time."""

    def import_ahead(self) -> None:
        """Begins to import the app where it is to be forked, and returns at once. Raises what `start` raises."""
        if self._order is not None:
            self._prepare()

    def hold(self) -> None:
        """Starts the process where it is no fork: it imports the app, and waits for `start`. Raises what that raises.

        Where the import is ordered it waits for that.
        """
        if not self._can_be_held:
            return
        child, invocation = self._prepare()
        with self._told():
            ordered = self._ordered
            why = ordered if isinstance(ordered, str) else ordered.why_fresh()
            if why is not None and (isinstance(ordered, str) or not ordered.has_spare):
                self._why_fresh, self._held_s = why, time.monotonic()
                (child.directory / HELD).touch()
                child.start(invocation)

    def start(self) -> None:
        """Starts the process.

        Raises AppLoadError for an app that cannot be sent, PlanError for what is missing, and ServerStartError where a
        build fails, its files cannot be written, or the process cannot be started.
        """
        child, invocation = self._prepare()
        with self._told():
            if self._held_s is not None:
                self._await_import(child, self._held_s + 2 * self.spec.start_timeout_s)
                (child.directory / HELD).unlink()
                return
            ordered = self._ordered
            found = ordered if isinstance(ordered, str) else ordered.fork()
            self._forked, self._why_fresh = (None, found) if isinstance(found, str) else (found, "")
            process = self._forked if isinstance(ordered, str) else self._forked or ordered.spare()
            if process is None:
                child.start(invocation)
            else:
                child.adopt(process)

    def _await_import(self, child: Child, until_s: float) -> None:
        """Waits for the import of a server that is held, which may share its core with another import."""
        while not (noted(IMPORTED, child.directory) or left(Failed, child.directory) or child.ended() is not None):
            if time.monotonic() >= until_s:
                raise ServerStartError(self.why_late(), log=child.log)
            time.sleep(0.01)

    def _prepare(self) -> tuple[Child, Invocation]:
        """Returns what is to be started, which is prepared once."""
        with self._told():
            self._child = self._child or Child("server")
            if self._invocation is None:
                self._invocation = self.prepare(self._child.directory)
                if self._order is not None:
                    self._ordered = self._order(self._invocation, self._child.directory)
            return self._child, self._invocation

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raises an error of the system within the block as one of the start."""
        try:
            yield
        except OSError as error:
            raise ServerStartError(not_started(self.spec.name, error)) from error

    def ready(self) -> RunningServer:
        """Waits until it answers. Raises AppLoadError or ServerStartError, with the last log lines."""
        begun_s = time.monotonic()
        try:
            running = self._on_a_port()
        except FilePerfError as error:
            hangs = time.monotonic() >= begun_s + self.spec.start_timeout_s
            was_held = self._held_s is not None and not hangs
            if not (was_held if self._forked is None else self._forked.give_up(str(error), hangs=hangs)):
                raise
            self._again()  # afresh: perhaps it cannot be forked, or imported while another version is
            running = self._on_a_port()
        running.is_forked, running.why_fresh = self._forked is not None, self._why_fresh
        if self._forked is not None:
            self._forked.has_served()
        return running

    def _on_a_port(self) -> RunningServer:
        for _ in range(4):  # a fifth start is the last
            with suppress(PortTakenError):
                return self._answering()
            self._again()
        return self._answering()

    def _again(self) -> None:
        self.stop()
        self._child, self._invocation, self._held_s = None, None, None
        self.start()

    @property
    def process(self) -> Child:
        """What was started."""
        assert self._child is not None, "the server was not started"
        return self._child

    def ask_to_stop(self) -> None:
        """Asks the server to end, and does not wait for it."""
        if self._child is not None:
            self._child.ask_to_end()

    def stop(self) -> str:
        """Ends the process tree: asks, waits, kills what is left, removes the run directory. Can be repeated.

        Returns what was wrong with its end, for one that served until then; empty where nothing was.
        """
        running, self._running = self._running, None
        child, patience_s = self._child, self.spec.stop_timeout_s if running else PATIENCE_S
        if child is None:
            return ""
        try:
            if running is None or child.has_ended:
                return ""
            if not child.end(patience_s=patience_s):
                return f"{running.title} did not end within {patience_s:g} s of being asked to, and was killed"
            return self._failure_at_end(running)
        finally:
            child.stop(patience_s=patience_s)

    def _failure_at_end(self, running: RunningServer) -> str:
        failed = [one.message for one in left(Failed, self.process.directory) if one.stage == "shutdown"]
        returncode = self.process.ended()
        if returncode not in _ENDED_AS_ASKED:
            failed.append(f"it ended with {exit_text(returncode or 0)}")
        if not failed:
            return ""
        why = next((line for line in reversed(running.log) if _ERROR.match(line)), "")
        return f"{running.title} failed when it was asked to end: {failed[0]}{why and f' ({why})'}"

    def _answering(self) -> RunningServer:
        deadline_s = time.monotonic() + self.spec.start_timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            running = self.poll(within_s=left_s)
            if running is not None:
                self._running = running
                return running
            self.process.shorten_log()
            time.sleep(0.01)
        raise ServerStartError(self.why_late(), log=self.process.log)

    def _ended_early(self, returncode: int) -> str:
        return f"{self.spec.name} ended with {exit_text(returncode)} before it was ready"


def base_env(
    spec: ProcessSpec, *, boot: int | None = None, in_turn: bool = False, coverage: bool = False
) -> dict[str, str]:
    """Returns the environment of the test run, what stabilises the boot (if it is one), and what the spec asks for.

    What traces the test run does not trace the server, unless `coverage` lets that do so.
    """
    # The server outlives the test that boots it, and the size of the environment moves the stack.
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    env = untraced(env, coverage=coverage)
    stabilising = stabilising_env(boot, in_turn=in_turn) if spec.stabilise and boot is not None else {}
    return env | stabilising | dict(spec.env)
