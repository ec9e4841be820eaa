"""Real uvicorn and gunicorn servers: that they start as asked, serve, say what went wrong, and end."""

from __future__ import annotations

import copy
import errno
import importlib.util
import os
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest
import trustme
from serve.processes import Boot, facts, get, launch, linux, posix, remaining_after

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve import preload
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.job import Job, StartUp, stamps_of
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.process import reach_of
from pytest_fileperf.serve.running import RunningServer, RunningUrl, serving_server
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, Url, Uvicorn
from pytest_fileperf.serve.start import WorkerStart
from pytest_fileperf.wire.connect import Origin, dial

Kind: TypeAlias = type[Uvicorn] | type[Gunicorn]
gunicorn = pytest.param(Gunicorn, id="gunicorn", marks=posix)
kinds = pytest.mark.parametrize("kind", [pytest.param(Uvicorn, id="uvicorn"), gunicorn])
APP = app_spec("serve.apps:app")
PROGRAM = Command(("{python}", str(Path(__file__).with_name("program.py")), "--port={port}"), env={"BOOT": "{boot}"})


@posix
@pytest.mark.hostile
@kinds
def test_workers_and_supervisors_that_died_are_told(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    worker = facts(server)["pid"]
    os.kill(worker, signal.SIGKILL)
    assert remaining_after(5, [worker]) == []
    with pytest.raises(ServerDiedError, match=f"its worker process {worker} has ended"):
        server.check()  # though the supervisor replaces it
    pids, supervisor = server.pids, server.supervisor
    assert supervisor is not None
    os.kill(pids[0], signal.SIGKILL)
    assert remaining_after(5, [*pids, supervisor]) == []
    with pytest.raises(ServerDiedError, match="ended with signal SIGKILL") as caught:
        server.check()
    assert any("startup complete" in line for line in caught.value.log)


@posix
def test_a_full_disk_and_a_taken_port_are_named_with_what_to_do(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, encoding: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"port {port} of 127.0.0.1 cannot be used .*leave `port` out"):
            boot(Uvicorn(port=port))
    monkeypatch.setattr(Path, "write_text", full)
    place = f"cannot be started from {tempfile.gettempdir()}"
    with pytest.raises(ServerStartError, match=rf"{place}: .*No space left.*\. Free some space in the"):
        boot()


@posix
@pytest.mark.hostile
@pytest.mark.parametrize(
    "app, said, logged",
    [
        ("crashing_lifespan", "lifespan", "RuntimeError: no database here"),
        ("make_vanishing()", "a uvicorn worker ended before it was", "last words"),
    ],
)
def test_workers_that_do_not_start_are_told_and_leave_nothing_behind(
    app: str, said: str, logged: str, boot: Boot, scratch: Path
) -> None:
    """Every reason why an app does not load is in `test_app`; what one process says of it is in contracts of modes."""
    with pytest.raises(ServerStartError, match=said) as caught:
        boot(Uvicorn(workers=2), f"serve.apps:{app}")
    assert any(logged in line for line in caught.value.log)
    assert list(scratch.iterdir()) == []
    with pytest.raises(PlanError, match="no app to serve"), launch(Uvicorn(), None):
        pass


# --- gunicorn: a package of its own, a configuration that stays out, and an arbiter that watches workers


@posix
def test_gunicorn_has_no_other_configuration_makes_no_socket_and_ends_its_workers(
    boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gunicorn.conf.py").write_text("workers = 3\n")
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "GUNICORN_CMD_ARGS": "--workers=3 --bind=127.0.0.1:1",
        "WEB_CONCURRENCY": "3",
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    server = boot(Gunicorn(workers=2))
    pids = server.pids
    assert len(pids) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["gunicorn.conf.py"]
    os.kill(pids[0], signal.SIGTERM)
    assert remaining_after(5, pids) == []


@posix
@pytest.mark.parametrize("name", ["gunicorn", "uvicorn_worker"])
def test_a_missing_package_or_system_is_told(name: str, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find(wanted: str) -> ModuleSpec | None:
        return None if wanted == name else find_spec(wanted)

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(PlanError, match=rf'{name} is not installed .*`pip install "pytest-fileperf\[gunicorn\]"`'):
        boot(Gunicorn())
    monkeypatch.setattr("pytest_fileperf.host.scratch.IS_SUPERVISED", False)
    with pytest.raises(PlanError, match="gunicorn does not run on this system"):
        boot(Gunicorn())


@posix
@pytest.mark.parametrize("start_timeout_s,timeout_s", [(5, 30), (90.5, 91)])
def test_a_worker_may_take_as_long_to_start_as_the_server(
    start_timeout_s: float, timeout_s: int, tmp_path: Path
) -> None:
    from pytest_fileperf.serve.gunicorn_worker import Application

    job = Job.of(Gunicorn(start_timeout_s=start_timeout_s), APP, lent=tmp_path)
    assert Application(WorkerStart(job=job, run_directory=tmp_path, port=0), 0).cfg.timeout == timeout_s


# --- The server of a run: one boot at a time, kept for who asks for it again, and ended


@pytest.fixture
def pool() -> Iterator[ServerPool]:
    """Ends its servers after the test, and asserts that all have ended as they were asked to."""
    with closing(ServerPool()) as pool:
        yield pool
    assert not pool.endings


@posix
def test_a_boot_serves_until_another_one_is_asked_for(pool: ServerPool) -> None:
    first = pool.boot(PROGRAM, APP, 1, None)
    assert pool.boot(replace(PROGRAM), APP, 1, None) is first
    assert pool.any_boot(PROGRAM, None, None) is first, "a command is the same server whatever the app"
    assert pool.serving(PROGRAM, None) == 1
    second = pool.boot(PROGRAM, None, 2, None)
    assert remaining_after(0, first.pids) == []
    env = facts(second)["env"]
    assert (env["PYTHONHASHSEED"], env["BOOT"]) == ("3", "0001")
    os.kill(second.pids[0], signal.SIGKILL)
    assert remaining_after(5, second.pids) == []
    pool.documents = {}
    pool.fetch_own_document()
    assert pool.documents == {}, "a server that has died does not tell that its app has no document"
    pool.documents = None
    assert pool.serving(PROGRAM, None) is None
    replaced = pool.boot(PROGRAM, None, 2, None)
    replaced.check()
    here = pool.any_boot(InProcess(), APP, None)
    assert remaining_after(0, replaced.pids) == []
    assert pool.any_boot(InProcess(), APP, None) is here
    assert pool.any_boot(InProcess(), AppSpec("serve.apps:make", factory=True), None) is not here


def test_tests_see_the_boot_that_serves(pool: ServerPool) -> None:
    server = serving_server(lambda: pool.any_boot(PROGRAM, APP, None))
    assert isinstance(copy.copy(server), RunningServer)
    assert pool.running is None, "a copy starts no server"
    identity = server.identity
    assert server.pids == pool.any_boot(PROGRAM, APP, None).pids
    second = pool.boot(PROGRAM, APP, 1, None)
    assert (server.url, server.title, server.pids) == (second.url, second.title, second.pids)
    assert server.identity() == identity() == second.identity()
    pool.close()
    assert facts(server)["env"]["PYTHONHASHSEED"] == "1"


@posix
@pytest.mark.hostile
def test_servers_that_do_not_end_in_time_are_killed_and_told_and_how_often() -> None:
    """A uvicorn that does not is in `hostile/test_kills`."""
    pool, spec = ServerPool(), Gunicorn(workers=2, stop_timeout_s=0.3)
    running = pool.boot(spec, app_spec("serve.apps:stubborn"), 1, None)
    pids = running.pids
    pool.close()
    assert remaining_after(0, pids) == []
    said = f"{running.title} did not end within 0.3 s and was killed"
    assert pool.endings == {said: 1}
    stopped = pool.boot(spec, APP, 2, None)
    pids = stopped.pids
    psutil.Process(pids[0]).suspend()
    pool.close()
    assert remaining_after(0, pids) == []
    assert pool.endings == {said: 2}


@linux
def test_nothing_is_left_of_an_import_that_ctrl_c_interrupts(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(directory: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(preload, "lend_package", interrupt)
    launch = ServerPool(preloads=preload.Preloads()).launch(Uvicorn(), APP, StartUp())
    with pytest.raises(KeyboardInterrupt):
        launch.start()
    launch.stop()
    assert list(scratch.iterdir()) == []


@posix
def test_a_file_of_a_package_is_as_it_was_though_another_environment_links_it(tmp_path: Path) -> None:
    """As uv does, which changes the time of the link count."""
    package = tmp_path / "site-packages" / "package.py"
    package.parent.mkdir()
    package.write_text("a = 1")
    before = stamps_of((str(package),))
    (tmp_path / "other.py").hardlink_to(package)
    assert stamps_of((str(package),)) == before
    package.write_text("a = 2")
    assert stamps_of((str(package),)) != before


# --- A server that already runs


def test_a_server_that_runs_is_used_as_it_is_and_goes_on(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    uvicorn = boot(Uvicorn(workers=2))
    with launch(Url(f"{uvicorn.url}/api/")) as server:
        assert server.url == server.title == f"{uvicorn.url}/api"
        assert server.identity()["kind"] == "url"
        assert server.log == server.stabilised == ()
        server.check()
        assert set(server.pids) in (set(), set(uvicorn.pids))  # some systems show them to an administrator only
        assert server.pids or sys.platform != "linux"
    assert get(uvicorn.url).status_code == 200

    def denied(kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    with launch(Url(uvicorn.url)) as server:
        assert server.pids == ()


def test_a_server_that_is_not_there_or_ends_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        RunningUrl(Url(url.replace("http", "https"))).check()  # by no handshake: it is checked often during a load
        with launch(Url(url)) as server:
            server.check()
            other.close()
            with pytest.raises(ServerDiedError, match="no longer answers"):
                server.check()
    with pytest.raises(ServerStartError, match=rf"nothing answers at {url} .*Start the server"), launch(Url(url)):
        pass


def test_a_certificate_stands_for_no_other_server_and_one_for_another_host_is_told(tmp_path: Path) -> None:
    authority, served, file = trustme.CA().create_child_ca(), [], tmp_path / "own.pem"
    for host in ("app.example", "other.example"):
        made = authority.issue_cert(host)
        served.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        made.configure_cert(served[-1])
        if not file.exists():
            made.private_key_and_cert_chain_pem.write_to_path(file)
    own, other = served
    reach = reach_of(Uvicorn(ssl_certfile=file), tmp_path)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        listener.settimeout(5)
        port = listener.getsockname()[1]
        origin = Origin("https", "127.0.0.1", port)

        def answering_by(context: ssl.SSLContext) -> None:
            def answer() -> None:
                with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True):
                    pass

            thread.submit(answer)

        answering_by(own)
        dial(origin, reach, timeout_s=5).close()
        answering_by(other)
        with pytest.raises(ssl.SSLCertVerificationError):
            dial(origin, reach, timeout_s=5).close()
        answering_by(own)
        said = r"not valid for '127.0.0.1'\). It must be for 127.0.0.1, unless you trust any.*verify=False"
        with pytest.raises(ServerStartError, match=said), launch(Url(f"https://127.0.0.1:{port}", verify=file)):
            pass


def test_a_name_that_leads_to_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80))]
    connected: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: connected.append(address))
    said = r"leads to 10\.0\.0\.1: load goes only to this machine"
    with pytest.raises(PlanError, match=said), launch(Url("http://localhost")):
        pass
    assert connected == []  # nothing was sent there
