"""Starts and ends a server process with all its children."""

from __future__ import annotations

import os
import re
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from pytest_fileperf.errors import FilePerfError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.host.child import PATIENCE_S, Child, Invocation, is_alive
from pytest_fileperf.host.files import not_started
from pytest_fileperf.plan.network import Reach, host_in_url
from pytest_fileperf.serve.job import HELD, IMPORTED, Failed, StartUp, left, noted
from pytest_fileperf.serve.preload import Fork, Preloads
from pytest_fileperf.serve.running import RunningServer, certificates_in
from pytest_fileperf.serve.spec import AsgiSpec, ProcessSpec, socket_file, tls_files
from pytest_fileperf.serve.stability import LAYOUT
from pytest_fileperf.units import exit_text

STAGE_2 = str(Path(__file__).with_name("stage2_server.py"))
"""A script that starts uvicorn or gunicorn, or imports an app."""
_ENDED_AS_ASKED = (0, -2, -15, 130, 143)
"""Exit codes after SIGINT or SIGTERM. Shells add 128 to the signal's number."""
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
Spec = TypeVar("Spec", bound=ProcessSpec)


# --- The Unix socket and the certificate of a server that we start


def reach_of(spec: ProcessSpec, run_directory: Path, where: str = "") -> Reach:
    """Returns how clients reach a server. For TLS without the user's certificate, writes one into the run directory.

    Raises PlanError for the user's certificate or key if no server can use it.
    """
    where, uds = where or type(spec).__name__, socket_file(spec, run_directory)
    longest = 107 if sys.platform == "linux" else 103
    if uds is not None and len(os.fsencode(uds)) > longest:
        raise PlanError(
            f"the path of a Unix socket may have {longest} bytes, but {uds} has more. Set the "
            "environment variable TMPDIR to a directory with a shorter path",
            where=where,
        )
    certificate, key = tls_files(spec, run_directory)
    if certificate is None:
        return Reach(uds=uds)
    if spec.ssl_certfile is None:
        for path, content in zip((certificate, key), _made_certificate(), strict=True):
            assert path is not None
            Path(path).write_bytes(content)
    elif key is not None or isinstance(spec, AsgiSpec):  # otherwise the program has its key
        _check_certificate(certificate, key, where)
    own, *_ = certificates_in(certificate, "ssl_certfile", where=where)  # its signers' certificates follow
    return Reach(uds=uds, trusted=own, is_own=True)


@cache
def _made_certificate() -> tuple[bytes, bytes]:
    """Returns a certificate and its key as PEM. All start-ups in a test run use the same."""
    try:
        import trustme
    except ImportError:
        raise PlanError(
            'the certificate needs trustme, which isn\'t installed: `pip install "pytest-fileperf[tls]"`, or '
            "give ssl_certfile and ssl_keyfile",
            where="TLS",
        ) from None
    made = trustme.CA().issue_cert("localhost", "127.0.0.1", "::1")
    return b"".join(blob.bytes() for blob in made.cert_chain_pems), made.private_key_pem.bytes()


def _check_certificate(certificate: str, key: str | None, where: str) -> None:
    """Raises PlanError if no server can speak TLS with these files. A server's own message says less."""

    def refuse() -> str:
        raise ValueError("its key has a password, but no server can ask for it")

    for name, path in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        if path is not None and not Path(path).is_file():
            raise PlanError(f"{name}: there is no file {path}", where=where)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, refuse)
    except (OSError, ValueError) as error:
        advice = "Give its key file as ssl_keyfile" if key is None else "Is it PEM, and is this its key?"
        raise PlanError(f"{certificate} isn't a certificate with a key ({error}). {advice}", where=where) from error


class RunningProcess(RunningServer):
    def __init__(self, spec: ProcessSpec, process: Child, reach: Reach, host: str, port: int) -> None:
        self._process = process
        self.reach = reach
        authority = "localhost" if reach.uds else f"{host_in_url(host)}:{port}"
        self.url = f"{'https' if spec.is_tls else 'http'}://{authority}"
        self.supervisor = process.supervisor
        self._program = next(iter(self.processes), None)

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        return self._process.tree()

    @property
    def log(self) -> tuple[str, ...]:
        return self._process.log

    def whole_log(self) -> str:
        return self._process.whole_log()

    def check(self) -> None:
        """Raises ServerDiedError if the server has ended. Shortens the log file, so that it cannot fill a disk."""
        self._process.shorten_log()
        is_ending = self._program is None or not is_alive(self._program)
        # After the server's program has ended, its supervisor needs a moment to end and to report the exit code.
        returncode = self._process.ended(wait_s=1.0 if is_ending else 0)
        if returncode is not None:
            raise ServerDiedError(f"{self.title} ended with {exit_text(returncode)}", log=self.log)


class PortTakenError(ServerStartError):
    """Another program took the port that we had chosen. A start with another port may succeed."""


class ProcessLaunch(ABC, Generic[Spec]):
    """Starts a server's process. If another program takes its port, starts it again with another port."""

    def __init__(
        self, spec: Spec, start_up: StartUp, preloads: Preloads | None = None, *, can_be_held: bool = False
    ) -> None:
        """If `preloads` is None, the server imports the app itself, and is never a fork."""
        self.spec = spec
        self.start_up = start_up
        self.code_tree = start_up.code_tree
        self._preloads = preloads
        self._key: str | None = None
        self._can_be_held = can_be_held
        self._held_s: float | None = None
        """When `hold` started the process, by the monotonic clock."""
        self._started_ns = 0
        self._invocation: Invocation | None = None
        self._forked: Fork | None = None
        self._why_fresh = ""
        self._child: Child | None = None
        self._running: RunningServer | None = None
        self._reach = Reach()
        """How clients reach the server. `prepare` sets this."""

    @abstractmethod
    def prepare(self, run_directory: Path) -> Invocation:
        """Writes the server's files into the run directory, and returns its command.

        Raises PlanError for missing programs, AppLoadError for an app that cannot be sent, ServerStartError for a
        failed build, and OSError.
        """

    @abstractmethod
    def poll(self, *, within_s: float) -> RunningProcess | None:
        """Returns the server if it answers, else None. Raises AppLoadError or ServerStartError if the start failed."""

    @abstractmethod
    def why_late(self) -> str:
        """Returns the message for a server that was not ready in time."""

    def import_ahead(self) -> None:
        """Begins to import the app for forks, and does not wait. Raises the same errors as `start`."""
        if self._preloads is not None:
            self._prepare()

    def hold(self) -> None:
        """Starts a process that imports the app, and then waits for `start`. Raises the same errors as `start`."""
        if not self._can_be_held:
            return
        child, invocation = self._prepare()
        with self._as_start_error():
            why: str | None = ""
            if self._preloads is not None and self._key is not None:
                why = self._preloads.why_anew(self._key)
            if why is not None:
                self._why_fresh, self._held_s = why, time.monotonic()
                (child.directory / HELD).touch()
                child.start(invocation)

    def start(self) -> None:
        """Raises the errors of `prepare`, but ServerStartError in place of OSError."""
        child, invocation = self._prepare()
        with self._as_start_error():
            if self._held_s is not None:  # it may share its core with another import
                until_s, run_directory = self._held_s + 2 * self.spec.start_timeout_s, child.directory
                while not (noted(IMPORTED, run_directory) or left(Failed, run_directory) or child.ended() is not None):
                    if time.monotonic() >= until_s:
                        raise ServerStartError(self.why_late(), log=child.log)
                    time.sleep(0.01)
                (run_directory / HELD).unlink()
                return
            process, self._why_fresh = None, ""
            if self._preloads is not None and self._key is not None:
                layout = {LAYOUT: invocation.env[LAYOUT]}
                process, self._why_fresh = self._preloads.serve(self._key, child.directory, layout)
            self._forked = process if isinstance(process, Fork) else None
            self._started_ns = time.monotonic_ns()
            if process is None:
                child.start(invocation)
            else:
                child.adopt(process)

    def _prepare(self) -> tuple[Child, Invocation]:
        with self._as_start_error():
            self._child = self._child or Child("server")
            if self._invocation is None:
                self._invocation = self.prepare(self._child.directory)
                if self._preloads is not None:
                    self._key = self._preloads.order(
                        self._invocation, self._child.directory, self.start_up, start_s=self.spec.start_timeout_s
                    )
            return self._child, self._invocation

    @contextmanager
    def _as_start_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ServerStartError(not_started(self.spec.name, error)) from error

    def ready(self) -> RunningProcess:
        begun_s = time.monotonic()
        try:
            running = self._on_a_port()
        except FilePerfError as error:
            hangs = time.monotonic() >= begun_s + self.spec.start_timeout_s
            was_held = self._held_s is not None and not hangs
            if not (was_held if self._forked is None else self._forked.give_up(str(error), hangs=hangs)):
                raise
            self._again()  # afresh: a fork may fail, and so may an import beside another version's
            running = self._on_a_port()
        running.is_forked, running.why_fresh = self._forked is not None, self._why_fresh
        if self._forked is not None:
            self._forked.has_served()
        return running

    def _on_a_port(self) -> RunningProcess:
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
        assert self._child is not None, "the server was not started"
        return self._child

    def ask_to_stop(self) -> None:
        if self._child is not None:
            self._child.ask_to_end()

    def stop(self) -> str:
        running, self._running = self._running, None
        child, patience_s = self._child, self.spec.stop_timeout_s if running else PATIENCE_S
        if child is None:
            return ""
        try:
            if running is None or child.has_ended:
                return ""
            if not child.end(patience_s=patience_s):
                return f"{running.title} did not end within {patience_s:g} s and was killed"
            failed = [one.message for one in left(Failed, child.directory) if one.stage == "shutdown"]
            returncode = child.ended()
            if returncode not in _ENDED_AS_ASKED:
                failed.append(f"it ended with {exit_text(returncode or 0)}")
            if not failed:
                return ""
            why = next((line for line in reversed(running.log) if _ERROR.match(line)), "")
            return f"{running.title} failed while it shut down: {failed[0]}{why and f' ({why})'}"
        finally:
            child.stop(patience_s=patience_s)

    def time_start(self, running: RunningServer, answers_ns: int) -> None:
        """`answers_ns` is when the server was ready to answer (monotonic clock)."""
        running.startup_ns = answers_ns - self._started_ns if self.start_up.is_timed else None

    def _answering(self) -> RunningProcess:
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
