"""What only uvicorn has, and what is alike for every server process: the client, the disk, a start that hangs."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
import time
from pathlib import Path

import httpx
import psutil
import pytest
from serve.processes import Boot, launch, posix, remaining_after

from pytest_fileperf.errors import ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.spec import Uvicorn


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
