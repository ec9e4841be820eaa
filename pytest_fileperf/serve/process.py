"""Starts, watches and ends the processes of one uvicorn server, from the test process."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from pytest_fileperf.errors import AppLoadError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.reports import Failed, Ready, Started, reports_of
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.serve.stability import STABILISERS, stabilising_env
from pytest_fileperf.serve.tree import collect, exit_text, is_alive, kill_all, kill_group, process_tree

__all__ = ("RunningUvicorn", "UvicornLaunch", "log_tail")

_HERE = Path(__file__).parent
_POLL_S = 0.01
_UNREADY_PATIENCE_S = 1.0
"""A server that did not become ready has nothing to finish."""
_ENDING_S = 1.0
"""A process that is no longer alive can be collected a moment later."""
_LOG_TAIL_BYTES = 64 << 10
_LOG_TAIL_LINES = 40


class UvicornLaunch:
    """One boot of uvicorn: `start()` returns at once, `ready()` waits, `stop()` ends every process in any case."""

    def __init__(self, spec: Uvicorn, app: AppSpec, *, boot: int, cores: frozenset[int] | None) -> None:
        self._spec = spec
        self._app = app
        self._boot = boot
        self._cores = cores
        self._run_directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._patience_s = _UNREADY_PATIENCE_S
        self._asked_s: float | None = None
        """When it was first asked to end: several that are asked together wait together."""

    def start(self) -> None:
        """Starts the process.

        Raises AppLoadError for an app that cannot be sent, PlanError for a missing package, and ServerStartError where
        the system gives no room for its files, or no process.
        """
        _require_installed(self._spec)
        data = None if isinstance(self._app.target, str) else self._app.pickled(workers=self._spec.workers)
        try:
            self._run_directory = directory = Path(tempfile.mkdtemp(prefix="fileperf-"))
            if data is not None:
                (directory / "app.pickle").write_bytes(data)
            (directory / "job.json").write_text(json.dumps(self._job()), encoding="utf-8")
            with _log_path(directory).open("ab") as log:
                self._process = _spawn(self._command(directory), self._env(), log.fileno())
        except OSError as error:
            raise ServerStartError(f"uvicorn cannot be started from {tempfile.gettempdir()}: {error}") from error

    def ready(self) -> RunningUvicorn:
        """Waits until every worker answers. Raises AppLoadError or ServerStartError, with the last log lines."""
        process, directory = self._started()
        deadline = time.monotonic() + self._spec.start_timeout_s
        while True:
            returncode = collect(process)
            ready = reports_of(Ready, directory)
            self._raise_for_failure(directory, returncode)
            if len(ready) >= self._spec.workers:
                self._patience_s = self._spec.stop_timeout_s
                return RunningUvicorn(self._spec, process, directory, ready)
            if time.monotonic() > deadline:
                raise ServerStartError(
                    f"uvicorn was not ready to serve {self._app.name} within {self._spec.start_timeout_s:g} s "
                    f"({len(ready)} of {self._spec.workers} workers were): does the app wait for something when it is "
                    "imported, or in its lifespan?",
                    log=log_tail(directory),
                )
            time.sleep(_POLL_S)

    def ask_to_stop(self) -> None:
        """Asks the server to end, and does not wait for it."""
        if self._process is None or collect(self._process) is not None:
            return
        if self._asked_s is None:
            self._asked_s = time.monotonic()
        if os.name == "posix":
            self._process.terminate()
        else:
            _close_lifeline(self._process)  # terminate() is a kill there, without the end of the app's lifespan

    def stop(self) -> None:
        """Ends the process tree: asks, waits, kills what is left, removes the run directory. Can be repeated."""
        try:
            if self._process is not None and collect(self._process) is None:
                self._end(self._process)
        finally:
            if self._process is not None:
                _close_lifeline(self._process)
            if self._run_directory is not None:
                shutil.rmtree(self._run_directory, ignore_errors=True)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        tree = process_tree(process.pid)
        try:
            self.ask_to_stop()
            since_s = time.monotonic() - (self._asked_s or time.monotonic())
            process.wait(max(0.0, self._patience_s - since_s))
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_group(process.pid)
            kill_all(tree)
            process.wait()

    def _started(self) -> tuple[subprocess.Popen[bytes], Path]:
        if self._process is None or self._run_directory is None:
            raise ServerStartError("the server was not started, or is stopped already")
        return self._process, self._run_directory

    def _raise_for_failure(self, directory: Path, returncode: int | None) -> None:
        for failed in reports_of(Failed, directory):
            if failed.stage == "app":
                raise AppLoadError(failed.message)
            if failed.stage == "port":
                raise ServerStartError(
                    f"port {self._spec.port} of 127.0.0.1 cannot be used ({failed.message}): "
                    "end the program that listens there, or leave `port` out to take a free one"
                )
            raise ServerStartError(f"{self._app.name}: {failed.message}", log=log_tail(directory))
        if returncode is not None:
            what, log = f"uvicorn ended with {exit_text(returncode)} before it was ready", log_tail(directory)
            if not log:
                what += f", without a word: is there room on the disk of {directory.parent}?"
            raise ServerStartError(what, log=log)
        if len(reports_of(Started, directory)) > self._spec.workers:
            raise ServerStartError("a uvicorn worker ended before it was ready", log=log_tail(directory))

    def _job(self) -> dict[str, object]:
        return {
            "sys_path": [str(Path(entry).absolute()) for entry in sys.path],
            "target": self._app.target if isinstance(self._app.target, str) else None,
            "factory": self._app.factory,
            "app_name": self._app.name,
            "workers": self._spec.workers,
            "loop": self._spec.loop,
            "http": self._spec.http,
            "port": self._spec.port,
            "graceful_s": max(1, int(self._spec.stop_timeout_s / 2)),
        }

    def _env(self) -> dict[str, str]:
        # It outlives the test that boots it, and the size of the environment moves the stack.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return env | (stabilising_env(self._boot) if self._spec.stabilise else {}) | dict(self._spec.env)

    def _command(self, directory: Path) -> list[str]:
        flags = ["-P", "-X", "faulthandler", *(["-B"] if sys.dont_write_bytecode else [])]
        command = [sys.executable, *flags, str(_HERE / "boot.py"), str(directory)]
        if sys.platform != "linux" or not (self._cores or self._spec.stabilise):
            return command
        cores = ",".join(map(str, sorted(self._cores))) if self._cores else "-"
        addresses = "FIX" if self._spec.stabilise else "KEEP"
        return [sys.executable, "-I", "-S", str(_HERE / "settle.py"), cores, addresses, *command]


class RunningUvicorn(RunningServer):
    """A uvicorn server that answers requests."""

    def __init__(
        self, spec: Uvicorn, process: subprocess.Popen[bytes], directory: Path, ready: Sequence[Ready]
    ) -> None:
        self._spec = spec
        self._process = process
        self._directory = directory
        self._loop = ready[0].loop
        self._http = ready[0].http
        self._workers = {report.pid: _worker(report.pid) for report in ready}
        self.url = f"http://127.0.0.1:{ready[0].port}"
        self.title = f"uvicorn ×{spec.workers} ({self._loop}, {self._http})"
        self.stabilised = tuple(name for name in STABILISERS if all(name in report.stabilised for report in ready))

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        """The live process tree: with several workers the supervisor and its helper are in it."""
        return process_tree(self._process.pid)

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines of what it wrote to standard output and error."""
        return log_tail(self._directory)

    def identity(self) -> dict[str, object]:
        """Returns kind, workers, loop, http and what is stabilised."""
        return {
            "kind": "uvicorn",
            "workers": self._spec.workers,
            "loop": self._loop,
            "http": self._http,
            "stabilised": list(self.stabilised),
        }

    def check(self) -> None:
        """Raises ServerDiedError when it has ended, or when a worker has (the supervisor replaces it)."""
        ended = [pid for pid, worker in self._workers.items() if worker is None or not is_alive(worker)]
        returncode = collect(self._process, wait_s=_ENDING_S if ended == [self._process.pid] else 0)
        if returncode is not None:
            raise ServerDiedError(f"{self.title} ended with {exit_text(returncode)}", log=self.log)
        if ended:
            raise ServerDiedError(f"{self.title}: its worker {ended[0]} has ended", log=self.log)


def log_tail(directory: Path) -> tuple[str, ...]:
    """Returns the last lines of the server's output; empty when the run directory is gone."""
    try:
        with _log_path(directory).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            return tuple(log.read().decode("utf-8", "replace").splitlines()[-_LOG_TAIL_LINES:])
    except FileNotFoundError:
        return ()


def _log_path(directory: Path) -> Path:
    return directory / "log.txt"


def _spawn(command: Sequence[str], env: dict[str, str], log: int) -> subprocess.Popen[bytes]:
    """Starts it in a session of its own, so that a terminal's Ctrl-C reaches only pytest, which then ends it.

    Its standard input is the lifeline: it ends when this process does.
    """
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP
        return subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, creationflags=flags
        )
    return subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _close_lifeline(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _worker(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _require_installed(spec: Uvicorn) -> None:
    wanted = {"uvicorn": "uvicorn"} | {name: f"{name} (asked for)" for name in (spec.loop, spec.http)}
    missing = [
        f"{name} is not installed in {sys.prefix}: `pip install {name}`, or choose another server, loop or http"
        for name in wanted
        if name not in ("auto", "asyncio") and importlib.util.find_spec(name) is None
    ]
    if missing:
        raise PlanError(*missing, where="Uvicorn")
