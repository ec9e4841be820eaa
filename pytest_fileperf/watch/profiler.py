"""Looks at what server processes compute, from outside: one py-spy for each, which reads their memory as they run.

py-spy pauses a process at each sample, so that its stacks are of one moment: at 200 samples a second an async server
loses some 5 % of its requests, and its CPU per request stays as it is. That wakes every thread, though: a server with a
pool of 34 threads falls to a fifth. Such a process is not paused, and py-spy then reads one function after the other as
they go on: the innermost is right, and the ones around it may be those of a moment later.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from pytest_fileperf.serve.process import staged

__all__ = ("MOST_PAUSED_THREADS", "RATE_HZ", "Profiler", "ProfilerUnavailable", "Sampled")

RATE_HZ = 200
"""Takes a fifth of the generator's core, and gives 400 samples in two seconds of a busy worker."""
MOST_PAUSED_THREADS = 8
"""A process with more threads is not paused: each takes 0.3 ms to stop, and then has to come to rest again."""
_START_S = 15.0
"""py-spy reads the symbols of the interpreter first: half a second, or more on a busy machine."""
_END_S = 10.0
_LET_GO_S = 2.0
"""What py-spy may take to let go of a process it has paused, once it is asked to end."""
_POLL_S = 0.01
_TAIL_S = 2.0
"""It looks for so much longer than asked, so that it is stopped by us, and not in the middle of the load."""
_LOOKING = "Sampling process"
_ERROR = "Error: "
"""What the line begins with that tells what is wrong: causes and a backtrace come after it."""
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What was seen."""

    collapsed: tuple[str, ...]
    """Per process, in the form of `py-spy record --format raw`: a line for each stack, with its number of samples."""
    rate_hz: int
    torn: bool
    """Whether a process went on while it was looked at: its stacks may be of more than one moment."""
    notes: tuple[str, ...] = ()
    """What kept single processes from being looked at, a line each; the others were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerUnavailable:
    """Why nothing can be seen, in one line."""

    reason: str

    def __str__(self) -> str:
        return f"no profile: {self.reason}"


class Profiler:
    """Looks at processes from its start to `stop`. A context manager: leaving it ends all that it started.

        with Profiler(server.worker_pids, seconds=3, cores=generator_cores) as profiler:
            ... the load, where `profiler.unavailable` is None ...
            seen = profiler.stop()

    It looks for `seconds` and a little longer at the most, even where nobody ends it.
    """

    def __init__(
        self, pids: Sequence[int], *, seconds: float, rate_hz: int = RATE_HZ, cores: frozenset[int] | None = None
    ) -> None:
        self._pids = tuple(pids)
        self._seconds = seconds
        self._rate_hz = rate_hz
        self._cores = cores
        self._directory: Path | None = None
        self._looks: tuple[_Look, ...] = ()
        self.unavailable: ProfilerUnavailable | None = None
        """Why nothing is looked at; None while something is."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def stop(self) -> Sampled | ProfilerUnavailable:
        """Ends the looking and returns what was seen; to be called once."""
        if self.unavailable is not None:
            return self.unavailable
        deadline_s = time.monotonic() + _END_S
        for look in self._looks:
            look.ask_to_end()
        seen = [(look, text) for look in self._looks if (text := look.collected(deadline_s)) is not None]
        notes = tuple(look.problem for look in self._looks if look.problem)
        self._end()
        if not seen:
            return ProfilerUnavailable(reason=notes[0])
        return Sampled(
            collapsed=tuple(text for _, text in seen),
            rate_hz=self._rate_hz,
            torn=not all(look.pauses for look, _ in seen),
            notes=notes,
        )

    def _start(self) -> None:
        program = _find_program()
        if program is None:
            self.unavailable = ProfilerUnavailable(
                reason='py-spy is not installed: pip install "pytest-fileperf[profile]"'
            )
        elif not self._pids:
            self.unavailable = ProfilerUnavailable(reason="the server has no process that could be looked at")
        elif os.getpid() in self._pids:
            self.unavailable = ProfilerUnavailable(reason="the app runs in the test process, together with the load")
        else:
            self._directory = directory = Path(tempfile.mkdtemp(prefix="fileperf-"))
            self._looks = tuple(_Look(pid, directory) for pid in self._pids)
            for look in self._looks:
                look.start(self._command(program, look))
            deadline_s = time.monotonic() + _START_S
            looking = [look for look in self._looks if look.is_looking(deadline_s)]
            if not looking:
                self.unavailable = ProfilerUnavailable(reason=self._looks[0].problem)

    def _command(self, program: str, look: _Look) -> tuple[str, ...]:
        duration_s = math.ceil(self._seconds + _TAIL_S)
        how = (
            "--rate",
            str(self._rate_hz),
            "--duration",
            str(duration_s),
            *(() if look.pauses else ("--nonblocking",)),
        )
        form = ("--format", "raw", "--full-filenames", "--function", "--output", str(look.output))
        return staged((program, "record", "--pid", str(look.pid), *how, *form), cores=self._cores, stabilise=False)

    def _end(self) -> None:
        """Ends every py-spy and removes its files. Can be repeated."""
        for look in self._looks:
            look.ask_to_end()
        for look in self._looks:
            look.end()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class _Look:
    """One py-spy that looks at one process."""

    def __init__(self, pid: int, directory: Path) -> None:
        self.pid = pid
        self.pauses = _threads_of(pid) <= MOST_PAUSED_THREADS
        """Whether the process is paused at each sample."""
        self.output = directory / f"{pid}.raw"
        self.problem = ""
        """Why it sees nothing."""
        self._log = directory / f"{pid}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        """Starts it and returns at once."""
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as error:
            self.problem = f"py-spy cannot be started: {error}"

    def is_looking(self, deadline_s: float) -> bool:
        """Waits until it looks, and returns whether it does."""
        while self._process is not None and time.monotonic() < deadline_s:
            ended = self._process.poll() is not None
            said = self._said()
            if _LOOKING in said:
                return True
            if ended:
                self.problem = _reason(self.pid, said)
                return False
            time.sleep(_POLL_S)
        self.problem = self.problem or f"py-spy did not find its way into process {self.pid} in {_START_S:g} s"
        self.end()
        return False

    def ask_to_end(self) -> None:
        """Asks it to write down what it has seen. Windows has no such signal: there it ends with its time."""
        if self._process is not None and self._process.poll() is None and os.name == "posix":
            self._process.send_signal(signal.SIGINT)

    def collected(self, deadline_s: float) -> str | None:
        """Waits for its end and returns what it has seen; None where it could not look."""
        if self._process is None or self.problem:
            return None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        self.end()
        try:
            return self.output.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self.problem = f"py-spy wrote nothing down of what it saw of process {self.pid}"
            return None

    def end(self) -> None:
        """Ends it, at the latest in a moment. Can be repeated."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._process.wait(_LET_GO_S if os.name == "posix" else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            _let_run(self.pid)

    def _said(self) -> str:
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _let_run(pid: int) -> None:
    """Lets a process go on that was paused as its py-spy was killed.

    Whether it looks paused or not: the signal that pauses may still be on its way, and this one takes it back.
    """
    with suppress(psutil.Error):
        psutil.Process(pid).resume()


def _threads_of(pid: int) -> int:
    try:
        return psutil.Process(pid).num_threads()
    except psutil.Error:
        return 1  # py-spy finds out what is wrong with it


def _find_program() -> str | None:
    """Returns the path of py-spy: next to the Python that runs the tests, or on PATH."""
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which("py-spy", path=beside)


def _reason(pid: int, said: str) -> str:
    """Returns in one line why py-spy cannot look into a process, after what it said."""
    words = said.lower()
    if "permission denied" in words or "operation not permitted" in words:
        return f"this system does not let py-spy look into process {pid}{_permission_needed()}"
    if "failed to find python version" in words:
        return f"process {pid} is not a Python program that py-spy knows"
    if "check that the process is running" in words or "no such process" in words:
        return f"process {pid} has ended"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    told = next((line for line in lines if line.startswith(_ERROR)), lines[-1])
    return f"py-spy cannot look into process {pid}: {told.removeprefix(_ERROR)}"


def _permission_needed() -> str:
    """Returns what is in the way, and what helps."""
    scope = _ptrace_scope()
    if sys.platform == "darwin":
        return ": macOS wants root for that (sudo)"
    if scope == "3":
        return " (ptrace_scope=3, until the machine starts again)"
    if _is_root():
        return ": give the container the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
    if scope in ("1", "2"):
        return f" (ptrace_scope={scope}): run as root, or sudo sysctl kernel.yama.ptrace_scope=0"
    return ": it runs as another user, or has privileges of its own"


def _ptrace_scope() -> str:
    try:
        return _PTRACE_SCOPE.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
