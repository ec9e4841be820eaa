"""No server outlives the test run, whichever way the run ends."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
import psutil
import pytest
from serve.processes import linux, remaining_after

from pytest_fileperf.serve.spec import Command, Gunicorn, ServerSpec, Uvicorn

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

PROGRAM = ("{python}", str(Path(__file__).with_name("program.py")), "--port={port}")
STARTER = """
import pickle, sys, time
from contextlib import ExitStack, closing
sys.path[:] = {sys_path!r}
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.launch import ServerPool
urls = []
with ExitStack() as pools:
    for spec, app in pickle.loads({servers!r}):
        server = pools.enter_context(closing(ServerPool())).any_boot(spec, app_spec(app), None)
        print(*server.pids, flush=True)
        urls.append(server.url)
    print("up", *urls, flush=True)
    time.sleep(60)
"""


@dataclass
class Run:
    """A process that has started servers, as pytest would."""

    starter: subprocess.Popen[str]
    servers: list[list[int]]
    """The processes of each, the first of them on top."""
    urls: list[str]

    @property
    def pids(self) -> list[int]:
        return [pid for server in self.servers for pid in server]


def starting(*servers: tuple[ServerSpec, str]) -> str:
    """Returns a program that boots these servers; as a pickle, since a `repr` hides what may be secret."""
    return STARTER.format(sys_path=sys.path, servers=pickle.dumps(servers))


def starter_lines(stdout: IO[str]) -> Iterator[str]:
    for line in stdout:
        yield line
        if line.startswith("up"):
            return
    pytest.fail("the program that starts servers has ended")


@contextmanager
def running(scratch: Path, *specs: ServerSpec, app: str = "serve.apps:app") -> Iterator[Run]:
    code = starting(*((spec, app) for spec in specs))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        try:
            *lines, urls = list(starter_lines(starter.stdout))
            yield Run(starter, [[int(pid) for pid in line.split()] for line in lines], urls.split()[1:])
        finally:
            starter.kill()


def command(*arguments: str) -> Command:
    return Command((*PROGRAM, *arguments))


def test_a_killed_test_run_leaves_nothing_behind(tmp_path: Path) -> None:
    specs = (Uvicorn(), Uvicorn(workers=2), Gunicorn(workers=2), command("--workers=2"))
    with running(tmp_path, *specs) as run:
        (own,) = tmp_path.iterdir()
        assert len(list(own.glob("server-*"))) == len(specs)
        run.starter.kill()
        assert remaining_after(5, run.pids) == []
        assert remaining_directories(tmp_path) == []


def test_a_killed_test_run_leaves_nothing_behind_that_ignores_the_request_to_end(tmp_path: Path) -> None:
    with running(tmp_path, Uvicorn(), Gunicorn(), command("--stubborn"), app="serve.apps:stubborn") as run:
        run.starter.kill()
        assert remaining_after(15, run.pids) == []
        assert remaining_directories(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_a_killed_test_run_leaves_nothing_behind_that_holds_python_s_lock(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(tmp_path, Uvicorn(), Uvicorn(workers=2), Gunicorn(workers=2)) as run:
        used = [cpu_s(pids) for pids in run.servers]
        with ExitStack() as requests:
            for url in run.urls:
                for _ in range(4):  # so that most workers get one
                    requests.enter_context(asking(url, "/hold"))
            wait_until(lambda: all(cpu_s(pids) > 0.5 + before for pids, before in zip(run.servers, used, strict=True)))
            pids = [one.pid for one in psutil.Process(run.starter.pid).children(recursive=True)]
            run.starter.send_signal(number)
            assert remaining_after(5, pids) == []
        assert remaining_directories(tmp_path) == []


@linux
def test_a_killed_test_run_leaves_nothing_behind_that_an_app_has_detached(tmp_path: Path) -> None:
    with running(tmp_path, Uvicorn(), Uvicorn(workers=2), Gunicorn()) as run:
        for url in run.urls:
            httpx.get(url + "/detach", trust_env=False)
        known = [one.pid for one in psutil.Process(run.starter.pid).children(recursive=True)]
        assert len(known) == len(run.pids) + 2 * len(run.urls)  # our supervisors, and what is detached
        run.starter.kill()
        assert remaining_after(5, known) == []


@linux
def test_a_killed_test_run_leaves_nothing_behind_that_has_a_session_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, command("--child=apart")) as run:
        assert len({os.getsid(pid) for pid in run.pids}) == 2
        run.starter.kill()
        assert remaining_after(5, run.pids) == []


@pytest.mark.parametrize("spec", [Uvicorn(workers=2), Gunicorn(workers=2)])
def test_a_killed_test_run_and_supervisor_leave_no_worker_behind(spec: ServerSpec, tmp_path: Path) -> None:
    with running(tmp_path, spec) as run:
        os.kill(run.servers[0][0], signal.SIGKILL)
        run.starter.kill()
        assert remaining_after(15, run.pids) == []


@linux
def test_a_killed_test_run_and_supervisor_leave_no_program_behind(tmp_path: Path) -> None:
    with running(tmp_path, command()) as run:
        (program,) = run.pids
        supervisor = psutil.Process(program).parent()
        assert supervisor is not None
        supervisor.kill()
        run.starter.kill()
        assert remaining_after(5, run.pids) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_terminal_s_signal_reaches_the_test_run_which_ends_its_servers(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(tmp_path, Uvicorn(workers=2), Gunicorn(), command()) as run:
        assert {os.getpgid(pid) for pid in run.pids}.isdisjoint({run.starter.pid})
        os.killpg(run.starter.pid, number)
        run.starter.wait(10)
        assert remaining_after(10, run.pids) == []
        assert remaining_directories(tmp_path) == []


@pytest.mark.parametrize("spec", [Uvicorn(workers=2), Gunicorn(workers=2)])
def test_a_run_interrupted_while_a_server_starts_leaves_nothing_behind(spec: ServerSpec, tmp_path: Path) -> None:
    code = starting((spec, "serve.apps:hanging_lifespan"))
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as starter:
        while len(pids := [int(path.suffix[1:]) for path in tmp_path.glob("*/*/started.*")]) < 2:
            assert starter.poll() is None
        starter.send_signal(signal.SIGINT)
        starter.wait(10)
        assert remaining_after(5, pids) == []
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kill", [subprocess.Popen.kill, subprocess.Popen.terminate], ids=["killed", "terminated"])
def test_a_run_that_ends_while_it_builds_leaves_nothing_behind(
    kill: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    build = ("{python}", "-c", f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    code = starting((Command(PROGRAM, build=build), "serve.apps:app"))
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as starter:
        while not (told.exists() and told.read_text()):
            assert starter.poll() is None
        kill(starter)
        starter.wait(10)
        assert remaining_after(5, [int(told.read_text())]) == []


def remaining_directories(scratch: Path) -> list[Path]:
    """Returns what is left there after the moment that the last process needs to remove its own."""
    deadline = time.monotonic() + 5
    while (left := list(scratch.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@contextmanager
def asking(url: str, path: str) -> Iterator[None]:
    """Sends a request, and waits for no answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        yield


def cpu_s(pids: list[int]) -> float:
    """Returns the CPU time that those of these processes have used that live: uvicorn replaces workers that hang."""
    used_s = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            used_s += sum(psutil.Process(pid).cpu_times()[:2])
    return used_s


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
