"""The test process's side of a generator: starts it, hands it runs, listens to it, ends it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import IO

from pytest_fileperf.drive.messages import LoadOrder, Setup, read_message, write_message
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunProgress, RunResult
from pytest_fileperf.errors import GeneratorError, PlanError
from pytest_fileperf.files import MAKE_ROOM
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.mix import Mix
from pytest_fileperf.plan.operation import Journey
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.tracers import tracer_in, untraced

__all__ = ("Generator",)

_CHECK_S = 0.25
"""How often the server is looked after while waiting for the generator."""
_GRACE_S = 30.0
"""A generator is ended when it says nothing for this long after the end of its run and every time limit."""
_END_S = 5.0
_LOG_LINES = 30


class Generator:
    """A generator process. It starts with the first run and serves any number of them."""

    def __init__(self, *, coverage: bool = False) -> None:
        """With `coverage`, what traces the test run may trace it too."""
        self._coverage = coverage
        self.tracer = ""
        """What traces it, such as `coverage`; empty for nothing."""
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

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
        try:
            self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            job = LoadOrder(works=_packed(works), plan=plan, targets=targets, pids=pids, cores=cores)
            write_message(self._process.stdin, job)
            answer = self._await_answer(plan, progress, check)
        except BrokenPipeError as error:
            message = self._died()
            self.close()
            raise GeneratorError(message) from error
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the process and removes its files."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _start(self) -> None:
        """Starts the process if it does not run."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            self._directory = tempfile.TemporaryDirectory(prefix="fileperf-", ignore_cleanup_errors=True)
            self._log = (Path(self._directory.name) / "generator.log").open("w+b")
        except OSError as error:
            raise GeneratorError(f"the load generator's files cannot be written: {error}; {MAKE_ROOM}") from error
        env = _environment(coverage=self._coverage)
        self.tracer = tracer_in(env)
        process = subprocess.Popen(
            # -P: the directory that the tests run in may hold modules named as those of the standard library.
            [sys.executable, "-P", "-m", "pytest_fileperf.drive.generator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=env,
            start_new_session=True,  # Ctrl-C in the terminal is for the test process, which then ends this one
        )
        self._process = process
        self._answers = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(process.stdout, self._answers), daemon=True).start()
        assert process.stdin is not None
        write_message(process.stdin, Setup(path=tuple(sys.path), scratch=self._directory.name))

    def _await_answer(
        self, plan: LoadPlan | Alternation, progress: Callable[[RunProgress], None], check: Callable[[], None]
    ) -> tuple[RunResult, ...] | Exception:
        """Waits for the end of a run; raises GeneratorError where none comes."""
        longest_s = (plan.longest_ns + plan.timeout_ns) / 1e9 + _GRACE_S  # pauses may take as long as an answer
        deadline = monotonic() + longest_s
        while True:
            try:
                message = self._answers.get(timeout=_CHECK_S)
            except queue.Empty:
                check()
                if monotonic() > deadline:
                    raise GeneratorError(
                        f"the load generator did not end within {longest_s:.0f} s{self._log_tail()}"
                    ) from None
                continue
            if isinstance(message, RunProgress):
                progress(message)
                check()
            elif isinstance(message, tuple | Exception):
                return message
            else:
                raise GeneratorError(self._died())

    def _died(self) -> str:
        process = self._process
        try:
            code = process.wait(_END_S) if process is not None else None
        except subprocess.TimeoutExpired:
            return f"the load generator sent something that is no message{self._log_tail()}"
        return f"the load generator's process ended with exit code {code}{self._log_tail()}"

    def _log_tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
        return "\n" + "\n".join(f"  | {line}" for line in lines) if lines else ""


def _environment(*, coverage: bool) -> dict[str, str]:
    """Returns the environment of the generator: this one, with this package importable, and untraced as servers are."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**untraced(os.environ, coverage=coverage), "PYTHONPATH": (path + os.pathsep if path else "") + root}


def _listen(stdout: IO[bytes] | None, answers: queue.SimpleQueue[object]) -> None:
    """Passes messages on, then one None when no more can be read."""
    assert stdout is not None
    with suppress(Exception):  # closed while it was read, or nothing that can be unpickled
        while (message := read_message(stdout)) is not None:
            answers.put(message)
    answers.put(None)


def _packed(works: tuple[Work, ...]) -> bytes:
    """Returns the works as a pickle; journeys and their values travel by value, so a test module may define them."""
    import cloudpickle

    with _test_modules_by_value(works):
        for journey in (journey for journey in _journeys(works) if journey.has_value):
            try:
                cloudpickle.dumps(journey.value)
            except Exception as error:  # an object's own `__reduce__` may raise anything
                raise PlanError(
                    f"what the setup returned cannot be carried to the generator process, for {journey.name} "
                    f"({type(error).__name__}: {error}): return plain data, such as ids, texts and numbers"
                ) from error
        try:
            raw: bytes = cloudpickle.dumps(works)
        except Exception as error:  # as above
            raise PlanError(
                f"{works[0].name} cannot be carried to the generator process ({type(error).__name__}: {error}); "
                "a journey and a request's arguments must not hold open files, sockets, locks, or fixtures with them"
            ) from error
    return raw


def _journeys(works: tuple[Work, ...]) -> list[Journey]:
    """Returns the journeys in the works, those in mixes too."""
    each = [part.work for work in works if isinstance(work, Mix) for part in work.parts]
    return [work for work in (*works, *each) if isinstance(work, Journey)]


@contextmanager
def _test_modules_by_value(works: tuple[Work, ...]) -> Iterator[None]:
    """Within the block, what these modules define is pickled by value: another process may be unable to import them."""
    import cloudpickle

    journeys = _journeys(works)
    owners = [owner for journey in journeys for owner in (journey.function, type(journey.value))]
    names = {name for owner in owners if (name := getattr(owner, "__module__", None)) and _is_test_module(name)}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_test_module(name: str) -> bool:
    """Returns whether another process may be unable to import the module: test modules and conftest files."""
    last = name.rpartition(".")[2]
    return last == "conftest" or last.startswith("test_") or last.endswith("_test") or name == "__main__"
