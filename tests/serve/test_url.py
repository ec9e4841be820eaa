"""A server that already runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import psutil
import pytest
from serve.processes import launch

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Url, Uvicorn


@pytest.fixture(scope="module")
def uvicorn() -> Iterator[RunningServer]:
    with launch(Uvicorn(workers=2), app_spec("serve.apps:app")) as server:
        yield server


def test_its_address_is_kept_without_the_last_slash(uvicorn: RunningServer) -> None:
    with launch(Url(f"{uvicorn.url}/api/")) as server:
        assert server.url == server.title == f"{uvicorn.url}/api"
        assert server.identity()["kind"] == "url"
        assert server.log == server.stabilised == ()
        server.check()


def test_its_processes_are_found_by_the_port(uvicorn: RunningServer) -> None:
    with launch(Url(uvicorn.url)) as server:
        if not server.pids:
            pytest.skip("this system shows listening processes to an administrator only")
        assert set(server.pids) == set(uvicorn.pids)


def test_without_permission_there_are_no_processes(uvicorn: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    with launch(Url(uvicorn.url)) as server:
        assert server.pids == ()


def test_it_goes_on_after_the_end_of_the_block(uvicorn: RunningServer) -> None:
    with launch(Url(uvicorn.url)):
        pass
    assert httpx.get(uvicorn.url).status_code == 200


def test_nothing_there_is_an_error_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
    with (
        pytest.raises(ServerStartError, match=rf"nothing answers at {url} .*start the server"),
        launch(Url(url)),
    ):
        pass


def test_its_end_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with launch(Url(url)) as server:
            server.check()
            other.close()
            with pytest.raises(ServerDiedError, match="does not answer any more"):
                server.check()


def test_a_name_that_leads_to_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))]
    connected: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: connected.append(address))
    with (
        pytest.raises(PlanError, match=r"leads to 10\.0\.0\.1: load only goes to this machine"),
        launch(Url("http://localhost")),
    ):
        pass
    assert connected == []  # nothing was sent there
