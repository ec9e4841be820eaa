"""Processes that have imported an app, from the test process: they fork at each start-up, instead of another import."""

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
from pytest_fileperf.serve.job import MOST_BYTES, Job, Preloaded, left, lend_package, stamps_of
from pytest_fileperf.serve.stability import LAYOUT, SEED, stabilising_env

_MOST = 10
"""For two apps, two imports of two versions and one of the code alone. Each uses as much memory as its app."""
_KILLED = -9


class Fork:
    """A fork, in the form of a `subprocess.Popen`."""

    def __init__(self, pid: int, preload: _Preload, leave: Callable[[str], None]) -> None:
        self.pid = pid
        self._preload = preload
        self._leave = leave

    def has_served(self) -> None:
        self._preload.has_served = True

    def give_up(self, why: str, *, hangs: bool) -> bool:
        """Returns whether a fresh start may help: an earlier fork may have the file that the import chose."""
        if self._preload.has_served and hangs:
            return False
        self._leave(f"a fork of it does not start: {why.splitlines()[0]}")
        return True

    @property
    def returncode(self) -> int | None:
        """The exit code, or None until `wait` has returned."""
        return self._preload.ended.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code; raises subprocess.TimeoutExpired."""
        until_s = time.monotonic() + (math.inf if timeout is None else timeout)
        while (returncode := self.returncode) is None:
            left_s = max(0.0, until_s - time.monotonic())
            if self._preload.hear(min(left_s, 1.0)):
                continue
            if not psutil.pid_exists(self.pid):  # its exit code will come, unless Ctrl-C came in between
                if not self._preload.hear(1.0):
                    self._preload.ended.setdefault(self.pid, _KILLED)
            elif left_s == 0:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        return returncode


@dataclass(slots=True)
class _Preload:
    process: Child
    channel: socket.socket
    until_s: float
    """Its import may take so long, by the monotonic clock."""
    report: Preloaded | None = None
    """Its report, once it has imported."""
    ended: dict[int, int] = field(default_factory=dict)
    living: set[int] = field(default_factory=set)
    """Forks; the exit codes of others are known."""
    has_served: bool = False

    def why_not_imported(self) -> str | None:
        """Waits for its import. Returns None if it can be forked, else why not.

        The text is empty if the process ended, or if the import took too long.
        """
        while self.report is None:
            self.report = next(iter(left(Preloaded, self.process.directory)), None)
            if self.report is None:
                if self.process.ended() is not None or time.monotonic() >= self.until_s:
                    return ""
                time.sleep(0.01)
        return self.report.why_fresh or None

    def is_current(self) -> bool:
        """Returns whether the process lives, and the files that it imported are unchanged."""
        stamps = {} if self.report is None else self.report.stamps
        return self.process.ended() is None and stamps_of(stamps) == stamps

    def ask_to_serve(self, run_directory: Path, env: Mapping[str, str]) -> bool:
        """Orders a fork with these environment variables, or orders the process itself to serve.

        Returns False if the process has ended.
        """
        lines = "".join(f"{line}\n" for line in self.process.log)
        (run_directory / "log.txt").write_text(lines, encoding="utf-8")
        try:
            self.channel.send(json.dumps([str(run_directory), env]).encode())
        except OSError:
            return False
        return True

    def fork(self, run_directory: Path, env: Mapping[str, str]) -> int | None:
        """Lets the process fork, and returns the fork's id. None if it has ended, or reports no fork within 5 s."""
        known = frozenset(self.living)
        if not self.ask_to_serve(run_directory, env):
            return None
        until_s = time.monotonic() + 5.0
        while time.monotonic() < until_s and self.hear(until_s - time.monotonic()):
            if new := self.living - known:
                return new.pop()
        return None

    def hear(self, within_s: float) -> bool:
        """Takes one message; returns whether there was one."""
        try:
            self.channel.settimeout(within_s)
            message = self.channel.recv(MOST_BYTES)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            message = b""
        if not message:  # its forks end with it
            self.ended |= dict.fromkeys(self.living, _KILLED)
            self.living.clear()
            return False
        told = json.loads(message)
        if "forked" in told:
            self.living.add(told["forked"])
            self.ended.pop(told["forked"], None)  # from an earlier process with this number
        else:
            self.living.discard(told["ended"])
            self.ended[told["ended"]] = os.waitstatus_to_exitcode(told["status"])
        return True

    def close(self) -> None:
        """Ends it, and its forks with it. Can be repeated."""
        self.channel.close()
        self.process.stop()
        self.hear(0)


@dataclass(slots=True)
class Preloads:
    """A session's imported apps, by app, settings and code. Whoever made it closes it."""

    _held: dict[str, _Preload] = field(default_factory=dict)
    """The most recently used comes last."""
    _spares: dict[str, _Preload] = field(default_factory=dict)
    """Processes that cannot be forked, and have not served."""
    _given: list[_Preload] = field(default_factory=list)
    """Spares that serve: their directories stay as long as they may run."""
    _why_fresh: dict[str, str] = field(default_factory=dict)
    _seed: int = field(default_factory=lambda: secrets.randbelow(1 << 20))

    def order(
        self, invocation: Invocation, run_directory: Path, *, in_turn: bool, boot: int, version: str, start_s: float
    ) -> str | None:
        """Begins an import if there is none. Returns its key; None if a start-up must import the app anew.

        In comparisons, start-ups alternate between two imports with different hash seeds. An import's luck then shows
        as a difference between pairs. Each `version` has its own imports, even if the code is the same.
        """
        job = Job.read(run_directory)
        if sys.platform != "linux" or job.target is None or job.spec.workers > 1 or job.server != "uvicorn":
            return None
        if LAYOUT not in invocation.env or SEED in job.env_given:  # each start-up has a seed of its own, or the user's
            return None
        number = self._seed + boot % 2 if in_turn else 0
        key = _key(job, invocation, run_directory, f"{version} {number}")
        if key in self._why_fresh:
            return key
        held = self._held.pop(key, None)
        if held is not None and held.report is not None and not held.is_current():
            if held.living:  # the import reads files that a server of this app writes
                self._held[key] = held
                return None
            held.close()
            held = None
        self._held[key] = held or self._begun(job, invocation, run_directory, stabilising_env(number), start_s)
        return key

    def why_anew(self, key: str) -> str | None:
        """Waits for an import. Returns why the app must be imported anew (may be empty), or None if it need not be."""
        found = self._imported(key)
        return found if isinstance(found, str) and key not in self._spares else None

    def serve(self, key: str, run_directory: Path, env: Mapping[str, str]) -> tuple[Process | None, str]:
        """Returns a fork, or the process itself if it cannot be forked, and why.

        None in place of a process means that the app must be imported anew.
        """
        held = self._imported(key)
        if not isinstance(held, str):
            leave = partial(self._leave, key)
            pid = held.fork(run_directory, env)
            if pid is not None:
                return Fork(pid, held, leave), ""
            why = "the process that imported it does not answer"
            leave(why)
            return None, why
        spare = self._spares.pop(key, None)
        if spare is None:
            return None, held
        if not spare.is_current():
            spare.close()
            return None, held
        self._given.append(spare)
        return spare.process.release() if spare.ask_to_serve(run_directory, env) else None, held

    def _imported(self, key: str) -> _Preload | str:
        """Returns an app's process after its import, or why it isn't forked."""
        if key in self._why_fresh:
            return self._why_fresh[key]
        held = self._held.get(key)
        if held is None:  # there were too many
            return ""
        is_new = held.report is None
        why = held.why_not_imported()
        if why is None and is_new and not held.is_current():  # nobody waited for it, and the code was edited since
            self._held.pop(key).close()
            return ""
        if why is None:
            return held
        if why:
            self._spares[key] = self._held.pop(key)
        self._leave(key, why)
        return why

    def close(self) -> None:
        """Ends all of them. Can be repeated."""
        for held in (self._held, self._spares):
            while held:
                held.popitem()[1].close()
        while self._given:
            self._given.pop().close()

    def _leave(self, key: str, why: str) -> None:
        """Ends the process that forks for this app, and keeps why: later start-ups import the app anew."""
        self._why_fresh[key] = why
        if held := self._held.pop(key, None):
            held.close()

    def _begun(
        self, job: Job, invocation: Invocation, run_directory: Path, alike: Mapping[str, str], start_s: float
    ) -> _Preload:
        idle = [key for key, held in self._held.items() if not held.living and held.report is not None]
        for oldest in idle[: max(0, len(self._held) + 1 - _MOST)]:
            self._held.pop(oldest).close()
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
    """Returns a text that is equal for start-ups that can share an import, wherever this package is lent."""
    words = [word for word in invocation.command if word not in map(str, (run_directory, run_directory.parent))]
    env = {name: value for name, value in invocation.env.items() if name not in (SEED, LAYOUT)}
    told = {**asdict(job), "value": None, "sys_path": job.sys_path[1:]}
    return json.dumps([version, told, words, sorted(env.items()), str(invocation.cwd)])
