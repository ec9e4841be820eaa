"""What only uvicorn or gunicorn has, and what is alike for all processes: the client, the disk, a start that hangs."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import signal
import socket
import tempfile
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import httpx
import psutil
import pytest
from serve.processes import Boot, facts, launch, posix, remaining_after

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.spec import Gunicorn, Uvicorn
from pytest_fileperf.serve.start import WorkerStart


def test_the_client_goes_to_the_server(boot: Boot) -> None:
    server = boot()

    async def ask() -> httpx.Response:
        async with server.client(headers={"x-test": "1"}) as client:
            return await client.get("/")

    response = asyncio.run(ask())
    assert response.status_code == 200
    assert response.request.url.port == httpx.URL(server.url).port
    assert response.request.headers["x-test"] == "1"


@posix
def test_a_full_disk_is_named_as_the_place_to_look_at(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, encoding: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    place = f"cannot be started from {tempfile.gettempdir()}"
    with pytest.raises(ServerStartError, match=f"{place}: .*No space left.*; make room in the temporary directory"):
        boot()


def test_a_taken_port_is_named_with_what_to_do(boot: Boot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"port {port} of 127.0.0.1 cannot be used .*leave `port` out"):
            boot(Uvicorn(port=port))


def test_a_hanging_start_ends_with_the_last_lines_of_the_log(boot: Boot) -> None:
    before = time.monotonic()
    with pytest.raises(ServerStartError, match=r"not ready to serve serve.apps:hanging_lifespan within 4 s") as caught:
        boot(Uvicorn(start_timeout_s=4), "serve.apps:hanging_lifespan")  # a busy machine takes 3 s to import it
    assert "waiting for the database" in caught.value.log
    assert time.monotonic() - before < 20


@posix
def test_a_process_that_vanishes_while_it_starts_is_noticed(boot: Boot) -> None:
    with pytest.raises(ServerStartError, match="ended with exit code 9 before it was ready") as caught:
        boot(Uvicorn(), "serve.apps:make_vanishing()")
    assert "last words" in caught.value.log


@posix
def test_a_stopped_process_is_killed() -> None:
    with launch(Uvicorn(stop_timeout_s=0.3), app_spec("serve.apps:app")) as server:
        pids = server.pids
        psutil.Process(pids[0]).suspend()
    assert remaining_after(0, pids) == []


@posix
def test_a_server_that_died_is_told_with_the_signal(boot: Boot) -> None:
    server = boot()
    pids = server.pids
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url}/die", trust_env=False)
    assert remaining_after(5, pids) == []
    with pytest.raises(ServerDiedError, match="ended with signal SIGKILL") as caught:
        server.check()
    assert any("startup complete" in line for line in caught.value.log)


# --- gunicorn: a package of its own, a configuration that stays out, and an arbiter that watches workers


@posix
def test_its_own_configuration_is_not_read(boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gunicorn.conf.py").write_text("workers = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--workers=3 --bind=127.0.0.1:1")
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert len(boot(Gunicorn()).pids) == 2


@posix
def test_it_makes_no_socket_of_its_own(boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "pid" in facts(boot(Gunicorn()))
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("name", ["gunicorn", "uvicorn_worker"])
def test_a_missing_package_is_told_with_what_to_install(name: str, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find(wanted: str) -> ModuleSpec | None:
        return None if wanted == name else find_spec(wanted)

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(PlanError, match=rf'{name} is not installed .*`pip install "pytest-fileperf\[gunicorn\]"`'):
        boot(Gunicorn())


@posix
def test_a_system_without_it_is_told(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.host.scratch.IS_SUPERVISED", False)
    with pytest.raises(PlanError, match="gunicorn does not run on this system"):
        boot(Gunicorn())


@posix
@pytest.mark.parametrize("start_timeout_s,timeout_s", [(5, 30), (90.5, 91)])
def test_a_worker_may_take_as_long_to_start_as_the_server(
    start_timeout_s: float, timeout_s: int, tmp_path: Path
) -> None:
    from pytest_fileperf.serve.gunicorn_worker import Application

    job = Job.of(Gunicorn(start_timeout_s=start_timeout_s), AppSpec("serve.apps:app"), lent=tmp_path)
    start = WorkerStart(job=job, run_directory=tmp_path, port=0)
    assert Application(start, 0).cfg.timeout == timeout_s


@posix
def test_the_arbiter_ends_its_workers_when_it_is_ended(boot: Boot) -> None:
    server = boot(Gunicorn(workers=2))
    pids = server.pids
    os.kill(pids[0], signal.SIGTERM)
    assert remaining_after(5, pids) == []
