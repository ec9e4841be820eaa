"""Starts any program as a server. The program gets a free port, and must be the only one that listens there."""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

import psutil

from pytest_fileperf.errors import PlanError, ServerStartError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import Child, Invocation, is_alive, run
from pytest_fileperf.host.sockets import endpoints_of, having_unix_socket, is_reached, listeners
from pytest_fileperf.plan.network import LOOPBACK, Reach
from pytest_fileperf.plan.request import digest
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.process import PortTakenError, ProcessLaunch, RunningProcess, reach_of
from pytest_fileperf.serve.spec import PYTHON, Command, Granian, env_filled, filled, has_names, server_title, tls_files
from pytest_fileperf.serve.stability import STABILISERS, base_env, stabilised_in, tracer_in
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.loaded import LoadedFiles, is_among_packages
from pytest_fileperf.versions.tree import CodeTree, is_of_the_interpreter
from pytest_fileperf.wire.connect import Origin, dial

# --- A command's program, and the code that it runs

_FIND_MODULES = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        found = importlib.util.find_spec(name)
    except Exception:
        continue
    if found is not None and found.origin:
        print(found.origin)
"""


def _resolved(
    words: Sequence[str], spec: Command, env: Mapping[str, str], code_tree: CodeTree
) -> tuple[list[str], Path, Path]:
    """Returns a command's words, directory and program, all for one version of the code. Raises PlanError."""
    words = [code_tree.word(word).replace(PYTHON, code_tree.interpreter) for word in words]
    directory = code_tree.path(code_tree.cwd() / (spec.cwd or ""))
    if not directory.is_dir():
        raise PlanError(f"cwd={str(spec.cwd)!r} isn't a directory in {code_tree.cwd()}", where="Command")
    return words, directory, Path(_find_program(words[0], directory, env.get("PATH")))


def _require_difference(spec: Command, directory: Path, program: Path, code_tree: CodeTree) -> None:
    """Raises PlanError if a command for the old code would run the new code."""
    if code_tree.is_here:
        return
    if code_tree.there is not None:
        is_mapped = any(code_tree.word(text) != text for text in (*spec.command, *dict(spec.env).values()))
        if is_mapped or code_tree.holds(directory) or code_tree.holds(program):
            return
        advice = f"Let it run in the project's directory (not in {directory}, as now), or give full paths of its code"
    elif any(PYTHON in word for word in spec.command) or program.parent == Path(code_tree.interpreter).parent:
        return
    else:
        advice = f"Start it with {PYTHON}, which stands for each version's Python, as in {PYTHON} -m {program.name}"
    raise PlanError(f"{spec.name} would run the new code also for {code_tree.title}. {advice}", where="Command")


def _loaded_by(
    words: Sequence[str], directory: Path, program: Path, *, search_path: str, code_tree: CodeTree
) -> LoadedFiles:
    """Returns a command's directory, its program, the files in its arguments, and installed copies of the project."""
    named = [path for path in map(Path, words[1:]) if path.is_absolute() and path.is_file()]
    # Programs in this directory are left out, because packages install them.
    programs = Path(code_tree.interpreter).parent
    modules = (str(directory), *(str(path) for path in (program, *named) if path.parent != programs))
    python = _python_of(program)
    if python is None or code_tree.there is None:
        return LoadedFiles(modules=modules)
    packages = {path.parent for path in code_tree.there.rglob("__init__.py")}
    names = sorted({path.name for path in packages if path.parent not in packages and path.name.isidentifier()})
    installed = _found_by(python, str(directory), search_path, tuple(names))
    return LoadedFiles(modules=modules, installed=installed)


@cache
def _found_by(python: str, directory: str, search_path: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the source files of the packages `names` that are installed for `python`."""
    env = {**os.environ, **({"PYTHONPATH": search_path} if search_path else {})}
    try:
        done = run([python, "-c", _FIND_MODULES, *names], cwd=Path(directory), env=env, timeout_s=20.0)
        done.check_returncode()
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = os.fsdecode(done.stdout).splitlines()
    tops = (Path(line).parent for line in lines if Path(line).name == "__init__.py")
    return tuple(str(file) for top in tops if is_among_packages(top) for file in sorted(top.rglob("*.py")))


def _python_of(program: Path) -> str | None:
    """Returns the Python that runs a program, such as the Python in a script's first line."""
    if program.name.startswith("python"):
        return str(program)
    try:
        with program.open("rb") as file:
            first = file.readline(4096).decode(errors="replace")
    except OSError:
        return None
    named = first[2:].strip().split(" ")[0] if first.startswith("#!") else ""
    return named if Path(named).name.startswith("python") else None


def _find_program(name: str, directory: Path, search_path: str | None) -> str:
    """Returns the program's path, as a shell in this directory finds it. Raises PlanError."""
    if os.sep not in name:
        found = shutil.which(name, path=search_path)
        if found is None:
            raise PlanError(
                f"there is no program {name!r} on the PATH. Install it, or write its path ({PYTHON} is the Python that "
                "runs the tests)",
                where="Command",
            )
        return str(Path(found).absolute())
    path = directory / name
    if not path.is_file():
        raise PlanError(f"there is no program {path}. Is it built, and is cwd right?", where="Command")
    if not os.access(path, os.X_OK):
        raise PlanError(f"{path} isn't executable. Run `chmod +x` on it, or name its interpreter", where="Command")
    return str(path)


# --- Builds for commands. Each runs once in a test run, for the old and for the new code

BUILD_S = 600.0
"""Time limit for a build that waits for input. A large project needs less."""


Builds: TypeAlias = dict[tuple[object, ...], ServerStartError | None]
"""Finished builds by command, directory, environment and code. The value is the build's failure, or None."""


def _build(spec: Command, words: Sequence[str], code_tree: CodeTree) -> ServerStartError | None:
    """Returns the build's failure, or None. Raises PlanError if the build's program is missing."""
    title = f"the build of {spec.name} (`{words[0]}{' …' if len(words) > 1 else ''}`)"
    title += "" if code_tree.is_here else f" in {code_tree.title}"
    try:
        given = dict(spec.env)
        whole = code_tree.env(base_env(spec), given=given)
        # Variables with placeholders are left out: there is no start-up and no port yet.
        env = {name: value for name, value in whole.items() if not (name in given and has_names(value))}
        with Child("build") as child:
            resolved, directory, program = _resolved(words, spec, env, code_tree)
            command = scratch.supervised(resolved, child.directory, program=str(program))
            returncode = child.run(Invocation(command=command, env=env, cwd=directory), timeout_s=BUILD_S)
            if returncode is None:
                return ServerStartError(f"{title} did not end within {BUILD_S:g} s", log=child.log)
            if returncode != 0:
                return ServerStartError(f"{title} failed with {exit_text(returncode)}", log=child.log)
    except OSError as error:
        return ServerStartError(f"{title} cannot be started: {error}")
    return None


# --- Granian is a command that imports the app by its name


def granian_command(spec: Granian, app: AppSpec) -> Command:
    """Raises PlanError if granian isn't installed."""
    if importlib.util.find_spec("granian") is None:
        why = f'granian is not installed in {sys.prefix}: `pip install "pytest-fileperf[granian]"`'
        raise PlanError(why, where="Granian")
    words = [PYTHON, "-m", "granian", "--interface=asgi", f"--workers={spec.workers}", f"--loop={spec.loop}"]
    words += ["--uds={uds}"] if spec.uds else ["--host={host}", "--port={port}"]
    words += ["--ssl-certificate={certfile}", "--ssl-keyfile={keyfile}"] if spec.is_tls else []
    words += ["--factory"] if app.factory else []
    words += ["--access-log"] if spec.access_log else []
    paths = [str(path) for path in (Path(entry).absolute() for entry in sys.path) if not is_of_the_interpreter(path)]
    return Command(
        [*words, app.target if isinstance(app.target, str) else ""],
        env={"PYTHONPATH": os.pathsep.join(paths), **dict(spec.env)},
        workers=spec.workers,
        stabilise=spec.stabilise,
        start_timeout_s=spec.start_timeout_s,
        stop_timeout_s=spec.stop_timeout_s,
        ssl_certfile=spec.ssl_certfile,
        ssl_keyfile=spec.ssl_keyfile or spec.ssl_certfile,
    )


# --- One start-up of a command, and the program that answers

_CONNECT_TIMEOUT_S = 1.0
_IN_USE = re.compile(r"address (is )?(already )?in use|EADDRINUSE", re.IGNORECASE)


def without_temporary_paths(command: str) -> str:
    given = Path(tempfile.gettempdir())
    tops = "|".join(re.escape(str(top)) for top in sorted({given, given.resolve()}, key=lambda top: -len(str(top))))
    return re.sub(rf"(?<![\w.-])(?:{tops})(?:/[^\s:;,?&'\"]*)?(?![\w.-])", "{tmp}", command)


def free_port(host: str = LOOPBACK) -> int:
    """Raises ServerStartError if `host` isn't an address of this machine."""
    try:
        with _listener(host, 0) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        raise ServerStartError(
            f"no server can listen at {host} ({os.strerror(error.errno or 0)}). Give an address of this "
            "machine with --fileperf-host=ADDRESS"
        ) from error


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class CommandLaunch(ProcessLaunch[Command]):
    def __init__(self, spec: Command, start_up: StartUp, builds: Builds, where: str = "Command") -> None:
        super().__init__(spec, start_up)
        self._where = where
        self._builds = builds
        self._host = start_up.host
        self._port = 0
        self._env: Mapping[str, str] = {}

    def prepare(self, run_directory: Path) -> Invocation:
        if not scratch.IS_SUPERVISED:  # without process groups and signals nothing could reliably end it
            raise PlanError(
                f"on this system fileperf cannot start {self.spec.name}. Start the server yourself, and give "
                'server=Url("http://127.0.0.1:…")',
                where=self._where,
            )
        spec, code_tree = self.spec, self.code_tree
        if spec.build is not None:
            key = (spec.build, spec.cwd, spec.env, code_tree)
            if key not in self._builds:
                self._builds[key] = _build(spec, spec.build, code_tree)
            if (failure := self._builds[key]) is not None:
                raise failure.with_traceback(None)
        at, host = self.start_up, self._host
        self._reach = reach_of(spec, run_directory, self._where)
        self._port = port = 0 if spec.uds else free_port(host)
        certfile, keyfile = tls_files(spec, run_directory)
        names = {"boot": at.serial, "host": host, "port": port, "uds": self._reach.uds}
        names |= {"certfile": certfile, "keyfile": keyfile}
        self._env = env_filled(at.env(spec), dict(spec.env), **names, worker=0)
        words = [filled(word, **names) for word in spec.command]
        words, directory, program = _resolved(words, spec, self._env, code_tree)
        _require_difference(spec, directory, program, code_tree)
        command = scratch.supervised(
            words, run_directory, program=str(program), cores=at.cores, stabilise=spec.stabilise
        )
        return Invocation(command=command, env=self._env, cwd=directory)

    def poll(self, *, within_s: float) -> RunningCommand | None:
        returncode = self.process.ended()
        if returncode is not None:
            what, log = self._ended_early(returncode), self.process.log
            if returncode == 0:
                what += ". It must stay in the foreground while it serves"
            if any(_IN_USE.search(line) for line in log) or not (self.spec.uds or _is_free(self._host, self._port)):
                what += f". Another program took port {self._port}, or another port that it needs"
                raise PortTakenError(what, log=log)
            raise ServerStartError(what, log=log)
        if not self._accepts():
            return None
        if not self.spec.uds:  # no other program knows the socket's directory
            endpoints = endpoints_of(self.process.tree())
            if endpoints is not None and not is_reached(endpoints, self._host, self._port):  # another program listens
                return None
            others = set(listeners(self._host, self._port)).difference(one.pid for one in self.process.tree())
            if others:  # chance then decides who answers a connection
                shared = f"{self.spec.name} shares port {self._port} with process {min(others)}. End that process"
                raise PortTakenError(shared, log=self.process.log)
        if self.spec.ready is not None and self._http_problem(self.spec.ready, within_s):
            return None
        answers_ns = time.monotonic_ns()
        running = RunningCommand(self.spec, self.process, self._reach, self._host, self._port)
        self.time_start(running, answers_ns)
        running.tracer = tracer_in(self._env)
        # Placeholders are not filled in here: a file whose name contains one belongs to one start-up, and isn't code.
        code = _resolved(self.spec.command, self.spec, self._env, self.code_tree)
        search_path = self._env.get("PYTHONPATH", "")
        running.loaded = _loaded_by(*code, search_path=search_path, code_tree=self.code_tree)
        return running

    def why_late(self) -> str:
        endpoints, uds = sorted(endpoints_of(self.process.tree()) or ()), self._reach.uds
        asked = f"the Unix socket {uds}" if uds else f"{self._host} port {self._port}"
        if self._accepts() if uds else is_reached(endpoints, self._host, self._port):
            problem = self._http_problem(self.spec.ready or "/", _CONNECT_TIMEOUT_S)
            reason = f"it listens, but gave no HTTP answer to GET {self.spec.ready} ({problem})"
        elif endpoints:
            seen = ", ".join(f"{ip} port {number}" for ip, number in endpoints)
            reason = f"it listens on {seen} instead of {asked}"
        else:
            reason = f"it does not listen on {asked}"
            others = () if uds else listeners(self._host, self._port)
            reason += f", but process {others[0]}, which isn't its own, does" if others else ""
        return f"{self.spec.name} was not ready within {self.spec.start_timeout_s:g} s: {reason}"

    def _accepts(self) -> bool:
        try:
            with dial(Origin("http", self._host, self._port), self._reach, timeout_s=_CONNECT_TIMEOUT_S):
                return True
        except OSError:
            return False

    def _http_problem(self, path: str, timeout_s: float) -> str | None:
        """Returns why the server gives no HTTP answer to `GET path`. None after any answer, even a 500."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        origin = Origin("https" if self.spec.is_tls else "http", self._host, self._port)
        try:
            connection.sock = dial(origin, self._reach, timeout_s=timeout_s)
            connection.request("GET", path, headers={"Connection": "close"})
            connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        return None


class RunningCommand(RunningProcess):
    kind = "command"

    def __init__(self, spec: Command, process: Child, reach: Reach, host: str, port: int) -> None:
        super().__init__(spec, process, reach, host, port)
        self._spec = spec
        self._host, self._port = host, port
        self.workers = spec.workers
        self._workers: tuple[psutil.Process, ...] = ()
        self.title = server_title(spec) + (f" ({', '.join(self.ways)})" if self.ways else "")
        held = [stabilised_in(pid) for pid in self.worker_pids]
        self.stabilised = tuple(name for name in STABILISERS if held and all(name in names for names in held))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Ids of the processes that accept connections, without parents that share the socket."""
        workers = self._spec.workers
        if len(self._workers) < workers or not all(map(is_alive, self._workers)):
            tree = self.processes
            if self.uds is None:
                accepting = [one for one in tree if is_reached(endpoints_of((one,)) or (), self._host, self._port)]
            else:
                holding = having_unix_socket(self.uds)
                accepting = [one for one in tree if one.pid in holding]
            innermost, self._workers = _without_children(tree), _without_children(accepting or tree)
            # In some programs, a parent accepts all connections, and hands them over to its children.
            if len(self._workers) < workers <= len(innermost):
                self._workers = innermost
        return tuple(process.pid for process in self._workers)

    def identity(self) -> dict[str, object]:
        command = self._spec.title or without_temporary_paths(" ".join(self._spec.command))
        return {"kind": self.kind, "command": digest(command)} | super().identity()


def _without_children(processes: Sequence[psutil.Process]) -> tuple[psutil.Process, ...]:
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
