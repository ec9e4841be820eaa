"""Imports an app once, in a process that forks at each start-up. This module runs in the test process."""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import psutil

from pytest_fileperf.host.child import Child, Invocation, Process
from pytest_fileperf.serve.job import MOST_BYTES, Job, Preloaded, StartUp, left, lend_package, stamps_of
from pytest_fileperf.serve.stability import LAYOUT, SEED, stabilising_env

_KILLED = -9


class Fork:
    """A server process that was forked. It has the attributes of a `subprocess.Popen` that `Child` uses."""

    def __init__(self, pid: int, preload: _Preload, leave: Callable[[str], None]) -> None:
        self.pid = pid
        self._preload = preload
        self._leave = leave

    def has_served(self) -> None:
        self._preload.has_served = True

    def give_up(self, why: str, *, hangs: bool) -> bool:
        """Returns whether a start without a fork may help.

        If so, later start-ups also import the app anew. `hangs` says that the fork was not ready in time.
        """
        if self._preload.has_served and hangs:  # not the fork's fault, as an earlier one has answered
            return False
        self._leave(f"a server forked from the imported app did not start: {why.splitlines()[0]}")
        return True

    @property
    def returncode(self) -> int | None:
        return self._preload.ended.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        until_s = time.monotonic() + (math.inf if timeout is None else timeout)
        while (returncode := self.returncode) is None:
            left_s = max(0.0, until_s - time.monotonic())
            if self._preload.receive(min(left_s, 1.0)):
                continue
            if not psutil.pid_exists(self.pid):  # its exit code follows, unless Ctrl-C has ended the other process
                if not self._preload.receive(1.0):
                    self._preload.ended.setdefault(self.pid, _KILLED)
            elif left_s == 0:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        return returncode


@dataclass(slots=True)
class _Preload:
    process: Child
    channel: socket.socket
    until_s: float
    """The deadline for the import, by the monotonic clock."""
    report: Preloaded | None = None
    """None until the import is over."""
    ended: dict[int, int] = field(default_factory=dict)
    """Exit codes of forks, by process id."""
    living: set[int] = field(default_factory=set)
    """Process ids of the forks that have not ended."""
    has_served: bool = False
    """Whether a fork has answered. In `Preloads._spares`: whether the process serves itself."""

    def why_not_forked(self) -> str | None:
        """Waits for the import. Returns why the process cannot be forked (perhaps empty), else None."""
        while self.report is None:
            self.report = next(iter(left(Preloaded, self.process.directory)), None)
            if self.report is None:
                if self.process.ended() is not None or time.monotonic() >= self.until_s:
                    return ""
                time.sleep(0.01)
        return self.report.why_fresh or None

    def is_current(self) -> bool:
        """Whether the process lives, and the files that it has imported are unchanged."""
        stamps = {} if self.report is None else self.report.stamps
        return self.process.ended() is None and stamps_of(stamps) == stamps

    def ask_to_serve(self, run_directory: Path, env: Mapping[str, str]) -> bool:
        """Tells the process to serve, by a fork if possible. Returns False if the process has ended."""
        lines = "".join(f"{line}\n" for line in self.process.log)
        (run_directory / "log.txt").write_text(lines, encoding="utf-8")
        try:
            self.channel.send(json.dumps([str(run_directory), env]).encode())
        except OSError:
            return False
        return True

    def fork(self, run_directory: Path, env: Mapping[str, str]) -> int | None:
        """Returns the fork's process id. None if the process reports no fork within 5 s."""
        known = frozenset(self.living)
        if not self.ask_to_serve(run_directory, env):
            return None
        until_s = time.monotonic() + 5.0
        while time.monotonic() < until_s and self.receive(until_s - time.monotonic()):
            if new := self.living - known:
                return new.pop()
        return None

    def receive(self, within_s: float) -> bool:
        try:
            self.channel.settimeout(within_s)
            message = self.channel.recv(MOST_BYTES)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            message = b""
        if not message:  # the process has ended, and its forks with it
            self.ended |= dict.fromkeys(self.living, _KILLED)
            self.living.clear()
            return False
        told = json.loads(message)
        if "forked" in told:
            self.living.add(told["forked"])
            self.ended.pop(told["forked"], None)  # an earlier fork may have had this id
        else:
            self.living.discard(told["ended"])
            self.ended[told["ended"]] = os.waitstatus_to_exitcode(told["status"])
        return True

    def close(self) -> None:
        self.channel.close()
        self.process.stop()
        self.receive(0)


@dataclass(slots=True)
class Preloads:
    """Processes that have imported apps, by keys for app, settings and code. Whoever makes this object closes it."""

    _forked: dict[str, _Preload] = field(default_factory=dict)
    """Processes that fork servers, by key. The most recently used process comes last."""
    _spares: dict[str, _Preload] = field(default_factory=dict)
    """Processes that cannot be forked, by key. Each may serve once itself."""
    _why_fresh: dict[str, str] = field(default_factory=dict)
    """By key: why later start-ups import the app anew. May be empty."""
    _seed: int = field(default_factory=lambda: secrets.randbelow(1 << 20))

    def order(self, invocation: Invocation, run_directory: Path, start_up: StartUp, *, start_s: float) -> str | None:
        """Begins to import the app in a process for forks, unless such a process exists. Returns that process's key.

        Returns None if this start-up must import the app anew.
        """
        job = Job.read(run_directory)
        if sys.platform != "linux" or job.target is None or job.spec.workers > 1 or job.server != "uvicorn":
            return None
        if LAYOUT not in invocation.env or SEED in job.env_given:  # start-ups with seeds of their own, or the user's
            return None
        # In comparisons, start-ups alternate between two imports. So a lucky import shows as a difference between
        # start-ups.
        number = self._seed + start_up.number % 2 if start_up.in_turn else 0
        key = _key(job, invocation, run_directory, f"{start_up.version} {number}")
        if key in self._why_fresh:
            return key
        known = self._forked.pop(key, None)
        if known is not None and known.report is not None and not known.is_current():
            if known.living:  # a server of this app writes files that the import has read
                self._forked[key] = known
                return None
            known.close()
            known = None
        self._forked[key] = known or self._begun(job, invocation, run_directory, stabilising_env(number), start_s)
        return key

    def why_anew(self, key: str) -> str | None:
        """Waits for the import. Returns why its process cannot serve the next start-up (perhaps empty), else None."""
        found = self._imported(key)
        return found if isinstance(found, str) and self._spare(key) is None else None

    def serve(self, key: str, run_directory: Path, env: Mapping[str, str]) -> tuple[Process | None, str]:
        """Returns a process that serves, and why it isn't a fork (perhaps empty).

        The process is None if the app must be imported anew.
        """
        found = self._imported(key)
        if not isinstance(found, str):
            leave = partial(self._leave, key)
            pid = found.fork(run_directory, env)
            if pid is not None:
                return Fork(pid, found, leave), ""
            why = "the process that has imported the app could not fork"
            leave(why)
            return None, why
        spare = self._spare(key)
        if spare is None:
            return None, found
        spare.has_served = True
        return spare.process.release() if spare.ask_to_serve(run_directory, env) else None, found

    def _imported(self, key: str) -> _Preload | str:
        """Waits for the import. Returns its process, or why that process cannot be forked."""
        if key in self._why_fresh:
            return self._why_fresh[key]
        found = self._forked.get(key)
        if found is None:  # there were too many
            return ""
        is_new = found.report is None
        why = found.why_not_forked()
        if why is None and is_new and not found.is_current():  # the code was edited after the import
            self._forked.pop(key).close()
            return ""
        if why is None:
            return found
        if why:
            self._spares[key] = self._forked.pop(key)
        self._leave(key, why)
        return why

    def _spare(self, key: str) -> _Preload | None:
        spare = self._spares.get(key)
        if spare is None or spare.has_served:
            return None
        if not spare.is_current():
            self._spares.pop(key).close()
            return None
        return spare

    def close(self) -> None:
        for known in (self._forked, self._spares):
            while known:
                known.popitem()[1].close()

    def _leave(self, key: str, why: str) -> None:
        """Ends the process that forks for this app, and lets later start-ups import the app anew."""
        self._why_fresh[key] = why
        if known := self._forked.pop(key, None):
            known.close()

    def _begun(
        self, job: Job, invocation: Invocation, run_directory: Path, alike: Mapping[str, str], start_s: float
    ) -> _Preload:
        idle = [key for key, known in self._forked.items() if not known.living and known.report is not None]
        # Each process takes as much memory as its app. Two apps need 10 processes. Each app needs two with old code,
        # two with new code, and one for tests without a comparison.
        for oldest in idle[: max(0, len(self._forked) + 1 - 10)]:
            self._forked.pop(oldest).close()
        process = Child("server")
        directory = process.directory
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                replace(job, sys_path=(str(lend_package(directory)), *job.sys_path[1:])).write(directory)
                words = (str(directory) if word == str(run_directory) else word for word in invocation.command)
                env = {**invocation.env, **alike}
                command, inherited = (*words, str(theirs.fileno())), (theirs.fileno(),)
                process.start(Invocation(command=command, env=env, cwd=invocation.cwd, descriptors=inherited))
        except BaseException:
            ours.close()
            process.stop()
            raise
        return _Preload(process, ours, time.monotonic() + start_s)


def _key(job: Job, invocation: Invocation, run_directory: Path, version: str) -> str:
    """Returns a text that is equal for start-ups that can share an import."""
    words = [word for word in invocation.command if word not in map(str, (run_directory, run_directory.parent))]
    env = {name: value for name, value in invocation.env.items() if name not in (SEED, LAYOUT)}
    told = {**asdict(job), "value": None, "sys_path": job.sys_path[1:]}
    return json.dumps([version, told, words, sorted(env.items()), str(invocation.cwd)])
