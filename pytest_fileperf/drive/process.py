"""The test process's side of a generator: starts it, hands it runs, listens to it, ends it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO

from pytest_fileperf import scratch
from pytest_fileperf.drive.clock import SAME_CLOCK
from pytest_fileperf.drive.messages import LoadOrder, Setup, read_message, write_message
from pytest_fileperf.drive.packing import packed
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunProgress, RunResult
from pytest_fileperf.errors import GeneratorError, log_block
from pytest_fileperf.files import MAKE_ROOM
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.log_file import LogFile
from pytest_fileperf.serve.process_tree import kill_group
from pytest_fileperf.serve.tracers import tracer_in, untraced
from pytest_fileperf.units import exit_text

__all__ = ("CHECK_S", "Generator", "longest_s")

CHECK_S = 0.25
"""How often the server is looked after while waiting for a generator."""
_GRACE_S = 30.0
"""A generator is ended when it says nothing for this long after the end of its run and every time limit."""
_END_S = 5.0


def longest_s(plan: LoadPlan | Alternation) -> float:
    """Returns how long a run may take before its generator is given up, in seconds."""
    return (plan.longest_ns + plan.timeout_ns) / 1e9 + _GRACE_S  # pauses may take as long as an answer


@dataclass(slots=True)
class _Mailbox:
    """Takes the messages of one process."""

    put: Callable[[object], None]
    pid: int | None = None
    """The process; None until it has said so."""


class Generator:
    """A generator process. It starts with the first run and serves any number of them."""

    is_elsewhere = False
    worker = ""
    """It is a process of this machine, on its clock, and a message to it takes no time."""
    clock = SAME_CLOCK
    head_start_ns = 0

    def __init__(self, *, coverage: bool = False, path: tuple[str, ...] | None = None) -> None:
        """With `coverage`, what traces the test run may trace it too. `path` takes the place of this `sys.path`."""
        self._coverage = coverage
        self._path = path
        self.tracer = ""
        """What traces it, such as `coverage`; empty for nothing."""
        self._process: subprocess.Popen[bytes] | None = None
        """The generator, or the supervisor above it."""
        self._mailbox = _Mailbox(put=lambda _: None)
        self._directory: Path | None = None
        self._log: LogFile | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return None if self._process is None or self._process.poll() is not None else self._mailbox.pid

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
    ) -> tuple[RunResult, ...]:
        """Loads one target, or by an alternation base and now in turn, and returns what each of them has shown.

        There is a work for each target.

        `check` is called a few times a second and may raise to end the run (the server died). Raises PlanError,
        LoadError, httpx.ConnectError (nobody accepts connections) or GeneratorError; on any error, Ctrl-C too, the
        process is ended, and the next run starts a new one.
        """
        answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        try:
            job = LoadOrder(works=packed(works), plan=plan, targets=targets, pids=pids, cores=cores)
            self.order(job, answers.put)
            answer = self._await_answer(answers, plan, progress, check)
        except BrokenPipeError as error:
            message = self.death()
            self.close()
            raise GeneratorError(message) from error
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Starts a run, and the process where it does not run; `put` is called with each of its messages.

        The last message is None, once it has ended. Another thread calls it. Raises GeneratorError, and BrokenPipeError
        where it has just ended.
        """
        self._start()
        self._mailbox.put = put
        self.send(job)

    def send(self, message: object) -> None:
        """Sends it a message; raises BrokenPipeError where it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        write_message(self._process.stdin, message)

    def hang_up(self) -> None:
        """Tells it to end, and does not wait for that."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.terminate()

    def kill(self) -> None:
        """Ends it at once, whatever it does or does not do; the next run starts a new one."""
        if self._process is not None:
            _kill(self._process)
            self._process.wait()  # until then it would be taken for one that runs

    def close(self) -> None:
        """Ends the process and removes its files."""
        self.hang_up()
        process, self._process = self._process, None
        if process is not None:
            assert process.stdout is not None
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.wait()
            process.stdout.close()
        self._log = None
        if self._directory is not None:
            scratch.remove(self._directory)
            self._directory = None

    def _start(self) -> None:
        """Starts the process if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            self._directory = scratch.make("generator")
            self._log = LogFile(self._directory / "generator.log")
            output = self._log.open()
        except OSError as error:
            raise GeneratorError(f"the load generator's files cannot be written: {error}; {MAKE_ROOM}") from error
        env = _environment(coverage=self._coverage)
        self.tracer = tracer_in(env)
        with output:
            process = subprocess.Popen(
                # -P: the directory that the tests run in may hold modules named as those of the standard library.
                [sys.executable, "-P", "-m", "pytest_fileperf.drive", *scratch.supervising(self._directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=env,
                start_new_session=True,  # Ctrl-C in the terminal is for the test process, which then ends this one
            )
        self._process = process
        self._mailbox = _Mailbox(put=lambda _: None)
        threading.Thread(target=_listen, args=(process.stdout, self._mailbox), daemon=True).start()
        self.send(Setup(path=tuple(sys.path) if self._path is None else self._path, scratch=str(self._directory)))

    def _await_answer(
        self,
        answers: queue.SimpleQueue[object],
        plan: LoadPlan | Alternation,
        progress: Callable[[RunProgress], None],
        check: Callable[[], None],
    ) -> tuple[RunResult, ...] | Exception:
        """Waits for the end of a run; raises GeneratorError where none comes."""
        patience_s = longest_s(plan)
        deadline = monotonic() + patience_s
        while True:
            try:
                message = answers.get(timeout=CHECK_S)
            except queue.Empty:
                check()
                if monotonic() > deadline:
                    raise GeneratorError(
                        f"the load generator did not end within {patience_s:.0f} s{self.log_tail()}"
                    ) from None
                continue
            finally:
                self.shorten_log()
            if isinstance(message, RunProgress):
                progress(message)
                check()
            elif isinstance(message, tuple | Exception):
                return message
            else:
                raise GeneratorError(self.death())

    def death(self) -> str:
        """Returns how it ended, with the last lines of its log."""
        return f"the load generator{self.ended()}{self.log_tail()}"

    def ended(self) -> str:
        """Returns `'s process ended with exit code 7`, to stand behind its name."""
        process = self._process
        try:
            code = process.wait(_END_S) if process is not None else None
        except subprocess.TimeoutExpired:
            return " sent something that is no message"
        return "'s process is gone" if code is None else f"'s process ended with {exit_text(code)}"

    def log_tail(self) -> str:
        """Returns the last lines of its log, as the end of a message; empty where there are none."""
        return "" if self._log is None else log_block(self._log.lines())

    def shorten_log(self) -> None:
        """Keeps what journeys print from filling the disk; to be called now and then while it runs."""
        if self._log is not None:
            self._log.shorten()


def _kill(process: subprocess.Popen[bytes]) -> None:
    kill_group(process.pid)
    process.kill()


def _environment(*, coverage: bool) -> dict[str, str]:
    """Returns the environment of the generator: this one, with this package importable, and untraced as servers are."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**untraced(os.environ, coverage=coverage), "PYTHONPATH": (path + os.pathsep if path else "") + root}


def _listen(stdout: IO[bytes] | None, mailbox: _Mailbox) -> None:
    """Passes messages on, then one None when no more can be read."""
    assert stdout is not None
    with suppress(Exception):  # closed while it was read, or nothing that can be unpickled
        while (message := read_message(stdout)) is not None:
            if isinstance(message, int):
                mailbox.pid = message
            else:
                mailbox.put(message)
    mailbox.put(None)
