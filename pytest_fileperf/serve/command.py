"""Any program as a server: started with a free port, and asked until it answers. Who listens proves that it is ours."""

from __future__ import annotations

import http.client
import os
import re
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pytest_fileperf.errors import ServerStartError
from pytest_fileperf.plan.hidden import digest
from pytest_fileperf.plan.network import LOOPBACK, host_in_url
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.command_invocation import (
    code_places,
    installed_places,
    invoked,
    require_difference,
    require_posix,
)
from pytest_fileperf.serve.listening import endpoints_of, is_reached, listeners
from pytest_fileperf.serve.names import env_filled, filled
from pytest_fileperf.serve.process import (
    Invocation,
    PortTakenError,
    RunningProcess,
    ServerProcess,
    base_env,
    ended_early,
)
from pytest_fileperf.serve.process_tree import is_alive
from pytest_fileperf.serve.spec import Command, server_title
from pytest_fileperf.serve.stability import STABILISERS, stabilised_in
from pytest_fileperf.serve.tracers import tracer_in
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.tree import HERE, CodeTree

__all__ = ("CommandProgram", "RunningCommand", "free_port", "without_temporary_paths")

_CONNECT_TIMEOUT_S = 1.0
_IN_USE = re.compile(r"address (is )?(already )?in use|EADDRINUSE", re.IGNORECASE)
"""How programs say that a port is taken."""


def without_temporary_paths(command: str) -> str:
    """Returns the command with `{tmp}` for each path below the system's temporary directory, as pytest's `tmp_path`.

    Such a path is another one in each run, so it tells nothing about the server.
    """
    given = Path(tempfile.gettempdir())
    tops = "|".join(re.escape(str(top)) for top in sorted({given, given.resolve()}, key=lambda top: -len(str(top))))
    return re.sub(rf"(?<![\w.-])(?:{tops})(?:/[^\s:;,?&'\"]*)?(?![\w.-])", "{tmp}", command)


def free_port(host: str = LOOPBACK) -> int:
    """Returns a port of this address that is free at this moment. Raises ServerStartError where it is not ours."""
    try:
        with _listener(host, 0) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        raise ServerStartError(
            f"no server can listen at {host} ({os.strerror(error.errno or 0)}): give an address of this machine, "
            "--fileperf-host=ADDRESS"
        ) from error


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgram:
    """A command, and the port that it is told."""

    spec: Command
    port: int
    boot: int
    """Boots of one number have the same hash seed and layout of memory."""
    cores: frozenset[int] | None
    builds: Builds
    host: str = LOOPBACK
    """The address of this machine that it is told."""
    serial: int = 0
    """What `{boot}` becomes."""
    in_turn: bool = False
    """Whether it is a side of a comparison."""
    code_tree: CodeTree = HERE
    coverage: bool = False
    """Whether coverage may trace it."""

    def prepare(self, run_directory: Path) -> Invocation:
        """Returns the program below our supervisor, after its build where there is one to make.

        Raises PlanError where there is no such program, and ServerStartError where the build fails.
        """
        require_posix()
        self.builds.ensure(self.spec, self.code_tree)
        env = self._filled_env()
        require_difference(self.spec, env=env, code_tree=self.code_tree)
        return invoked(
            [filled(word, boot=self.serial, host=self.host, port=self.port) for word in self.spec.command],
            self.spec,
            run_directory=run_directory,
            env=env,
            cores=self.cores,
            stabilise=self.spec.stabilise,
            code_tree=self.code_tree,
        )

    def poll(self, process: ServerProcess, *, within_s: float) -> RunningCommand | None:
        """Returns the server once it listens, and answers where an answer is asked for."""
        returncode = process.ended()
        if returncode is not None:
            raise self._ended_early(process, returncode)
        if not _accepts(self.host, self.port) or not self._listens(process):
            return None
        others = set(listeners(self.host, self.port)).difference(one.pid for one in process.tree())
        if others:  # then it is chance who answers a connection
            shared = f"{self.spec.name} shares port {self.port} with process {min(others)}"
            raise PortTakenError(shared, log=process.log)
        if self.spec.ready is not None and _http_problem(self.host, self.port, self.spec.ready, within_s):
            return None
        running = RunningCommand(self.spec, process, self.host, self.port, tracer=tracer_in(self._env()))
        env = self._filled_env()
        running.loaded = LoadedFiles(
            modules=code_places(self.spec, env=env, code_tree=self.code_tree),
            installed=installed_places(self.spec, env=env, code_tree=self.code_tree),
        )
        return running

    def why_late(self, process: ServerProcess) -> str:
        """Returns where it listens instead, or what its answer was."""
        endpoints = sorted(endpoints_of(process.tree()) or ())
        if is_reached(endpoints, self.host, self.port):
            problem = _http_problem(self.host, self.port, self.spec.ready or "/", _CONNECT_TIMEOUT_S)
            reason = f"it listens, and gave no HTTP answer to GET {self.spec.ready} ({problem})"
        elif endpoints:
            seen = ", ".join(f"{ip} port {number}" for ip, number in endpoints)
            reason = f"it listens on {seen}, and was told {self.host} port {self.port}"
        else:
            reason = f"it does not listen on {self.host} port {self.port}"
            others = listeners(self.host, self.port)
            reason += f", where process {others[0]} does, which is none of its own" if others else ""
        return f"{self.spec.name} was not ready within {self.spec.start_timeout_s:g} s: {reason}"

    def _filled_env(self) -> dict[str, str]:
        env = self.code_tree.env(self._env(), given=dict(self.spec.env))
        return env_filled(env, dict(self.spec.env), boot=self.serial, host=self.host, port=self.port, worker=0)

    def _env(self) -> dict[str, str]:
        return base_env(self.spec, boot=self.boot, in_turn=self.in_turn, coverage=self.coverage)

    def _listens(self, process: ServerProcess) -> bool:
        """Returns whether our program listens, and not another one; True where the system does not tell."""
        endpoints = endpoints_of(process.tree())
        return endpoints is None or is_reached(endpoints, self.host, self.port)

    def _ended_early(self, process: ServerProcess, returncode: int) -> ServerStartError:
        log = process.log
        what = ended_early(self.spec, returncode)
        if returncode == 0:
            what += ": it must stay in the foreground for as long as it serves"
        if any(_IN_USE.search(line) for line in log) or not _is_free(self.host, self.port):
            return PortTakenError(f"{what}: another program took port {self.port}, or one that it wants too", log=log)
        return ServerStartError(what, log=log)


class RunningCommand(RunningProcess):
    """A program that answers requests."""

    kind = "command"

    def __init__(
        self,
        spec: Command,
        process: ServerProcess,
        host: str,
        port: int,
        *,
        tracer: str = "",
    ) -> None:
        super().__init__(process)
        self.tracer = tracer
        self._spec = spec
        self._host, self._port = host, port
        self.workers = spec.workers
        self._workers: tuple[psutil.Process, ...] = ()
        self.url = f"http://{host_in_url(host)}:{port}"
        self.title = server_title(spec)
        held = [stabilised_in(pid) for pid in self.worker_pids]
        self.stabilised = tuple(name for name in STABILISERS if held and all(name in names for names in held))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The processes that accept connections, without a parent that shares its listening socket with them.

        Some programs accept in the parent and hand connections over. So where fewer processes accept than workers were
        asked for, and the innermost processes of the tree are enough, it is those.
        """
        if len(self._workers) < self._spec.workers or not all(map(is_alive, self._workers)):
            self._workers = self._find_workers()
        return tuple(process.pid for process in self._workers)

    def identity(self) -> dict[str, object]:
        """Returns what every server's identity has, and the digest of the title, or else of the command."""
        command = self._spec.title or without_temporary_paths(" ".join(self._spec.command))
        return {"kind": self.kind, "command": digest(command)} | super().identity()

    def check(self) -> None:
        """Raises ServerDiedError when the program has ended."""
        self._check_ended()

    def _find_workers(self) -> tuple[psutil.Process, ...]:
        tree = self.processes
        accepting = [one for one in tree if is_reached(endpoints_of((one,)) or (), self._host, self._port)]
        found = _innermost(accepting or tree)
        if len(found) < self._spec.workers <= len(innermost := _innermost(tree)):
            return innermost
        return found


def _innermost(processes: Sequence[psutil.Process]) -> tuple[psutil.Process, ...]:
    """Returns those that are not the parent of another of them."""
    parents = set()
    for process in processes:
        with suppress(psutil.Error):
            parents.add(process.ppid())
    return tuple(process for process in processes if process.pid not in parents)


def _is_free(host: str, port: int) -> bool:
    try:
        with _listener(host, port):
            return True
    except OSError:
        return False


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _http_problem(host: str, port: int, path: str, timeout_s: float) -> str | None:
    """Returns why no HTTP answer comes, or None when one does, whatever it is."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return None
