"""Real uvicorn and gunicorn servers: that they start as asked, serve, say what went wrong, and end."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from fastapi import FastAPI
from serve.processes import Boot, check_until, facts, launch, linux, posix, remaining_after

from pytest_fileperf.errors import AppLoadError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Gunicorn, Uvicorn

Kind: TypeAlias = type[Uvicorn] | type[Gunicorn]
pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param(Uvicorn, id="uvicorn"), pytest.param(Gunicorn, id="gunicorn", marks=posix)]
)
one_and_two = pytest.mark.parametrize("workers", [1, 2])
Observed: TypeAlias = Callable[[Kind], RunningServer]
APP = app_spec("serve.apps:app")
ONE_CORE = frozenset({max(os.sched_getaffinity(0))}) if hasattr(os, "sched_getaffinity") else None

in_this_module = FastAPI()


@in_this_module.get("/")
async def answer() -> dict[str, str]:
    return {"from": "a test module"}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """Boots a server of each kind once, for tests that only look at it: two workers, and all that can be asked for."""
    directory = tmp_path_factory.mktemp("where the test run works")
    with ExitStack() as servers:

        def boot_once(kind: Kind) -> RunningServer:
            spec = kind(workers=2, loop="asyncio", http="h11", env={"COLOUR": "red"})
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(directory)
                return servers.enter_context(launch(spec, APP, cores=ONE_CORE))

        yield cache(boot_once)  # type: ignore[misc]  # typeshed forgets its argument


def check_serving(server: RunningServer, kind: Kind, workers: int, loop: str, http: str) -> None:
    assert server.title == f"{kind.name} ×{workers} ({loop}, {http})"
    found = server.identity()
    assert found == {
        "kind": kind.name, "workers": workers, "loop": loop, "http": http, "stabilised": list(server.stabilised)
    }  # fmt: skip
    assert len(server.worker_pids) == workers
    assert set(server.worker_pids) <= set(server.pids)
    assert facts(server)["pid"] in server.worker_pids
    server.check()


def test_one_worker_serves_on_what_was_asked_for(kind: Kind, boot: Boot) -> None:
    check_serving(boot(kind(loop="uvloop", http="httptools")), kind, 1, "uvloop", "httptools")


def test_two_workers_serve_on_what_was_asked_for(kind: Kind, observed: Observed) -> None:
    check_serving(observed(kind), kind, 2, "asyncio", "h11")


def test_two_workers_are_gone_at_the_end(kind: Kind, scratch: Path) -> None:
    with launch(kind(workers=2), APP) as server:
        pids = server.pids
        assert len(list(scratch.iterdir())) == 1
    assert remaining_after(0, pids) == []
    assert list(scratch.iterdir()) == []


def test_one_worker_is_gone_at_the_end_after_the_app_s_lifespan(kind: Kind, scratch: Path) -> None:
    marker = scratch / "shut down"

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        marker.touch()

    with launch(kind(), app_spec(FastAPI(lifespan=lifespan))) as server:
        pids = server.pids
        assert len(list(scratch.iterdir())) == 1
    assert remaining_after(0, pids) == []
    assert list(scratch.iterdir()) == [marker]


def make_from_this_module() -> FastAPI:
    return in_this_module


def test_a_factory_of_a_test_module_is_served(kind: Kind, boot: Boot) -> None:
    assert facts(boot(kind(), make_from_this_module)) == {"from": "a test module"}


def test_a_factory_by_name_is_served(kind: Kind, boot: Boot) -> None:
    assert "pid" in facts(boot(kind(), "serve.apps:make()"))


def test_it_works_where_the_test_run_works(kind: Kind, observed: Observed) -> None:
    seen = facts(observed(kind))
    assert Path(seen["cwd"]).name.startswith("where the test run works")
    assert seen["env"]["COLOUR"] == "red"
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in seen["env"]


@linux
def test_it_keeps_to_its_cores(kind: Kind, observed: Observed) -> None:
    assert facts(observed(kind))["cores"] == sorted(ONE_CORE or ())


@linux
def test_stabilised_boots_are_alike_and_their_number_counts(kind: Kind, observed: Observed, boot: Boot) -> None:
    server = observed(kind)
    one, same, other = map(facts, (server, boot(kind(), number=0), boot(kind(), number=1)))
    assert "hash seed" in server.stabilised
    assert one["hash"] == same["hash"] != other["hash"]
    if "addresses" in server.stabilised:
        assert one["address"] == same["address"] == other["address"]
    assert not [name for name in one["env"] if name.startswith("MALLOC_")]


def test_not_stabilised_when_not_wanted(kind: Kind, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    server = boot(kind(stabilise=False))
    assert server.stabilised == ()
    assert "PYTEST_FILEPERF_LAYOUT" not in facts(server)["env"]


@one_and_two
def test_an_app_that_does_not_load_is_an_error_as_the_server_saw_it_and_leaves_nothing_behind(
    workers: int, kind: Kind, boot: Boot, scratch: Path
) -> None:
    """Every reason is in `test_app`."""
    with pytest.raises(AppLoadError, match=r'"serve.apps:make_failing\(\)" failed: RuntimeError: no database here'):
        boot(kind(workers=workers), "serve.apps:make_failing()")
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("app,workers", [("failing_lifespan", 1), ("crashing_lifespan", 2)])
def test_a_failing_lifespan_is_shown_with_the_app_s_own_words(app: str, workers: int, kind: Kind, boot: Boot) -> None:
    with pytest.raises(ServerStartError, match="lifespan") as caught:
        boot(kind(workers=workers), f"serve.apps:{app}")
    assert any("RuntimeError: no database here" in line for line in caught.value.log)


def test_an_app_without_a_lifespan_is_served(kind: Kind, boot: Boot) -> None:
    assert "pid" in facts(boot(kind(), "serve.apps:without_lifespan"))


@posix
@pytest.mark.hostile
def test_a_worker_that_vanishes_while_it_starts_is_noticed(kind: Kind, boot: Boot) -> None:
    with pytest.raises(ServerStartError, match=f"a {kind.name} worker ended before it was ready") as caught:
        boot(kind(workers=2), "serve.apps:make_vanishing()")
    assert "last words" in caught.value.log


def test_a_package_that_is_not_installed_is_named_before_anything_starts(
    kind: Kind, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlanError, match="uvloop is not installed"):
        boot(kind(loop="uvloop"))


def test_several_workers_need_an_app_that_can_be_imported(kind: Kind, boot: Boot) -> None:
    with pytest.raises(AppLoadError, match='"module:attribute"'):
        boot(kind(workers=2), in_this_module)


def test_no_app_is_an_error(kind: Kind) -> None:
    with pytest.raises(PlanError, match="no app to boot"), launch(kind(), None):
        pass


@posix
@pytest.mark.hostile
def test_a_worker_that_died_is_told_though_the_supervisor_replaces_it(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    worker = facts(server)["pid"]
    os.kill(worker, signal.SIGKILL)
    assert remaining_after(5, [worker]) == []
    with pytest.raises(ServerDiedError, match=f"its worker {worker} has ended"):
        server.check()


@posix
@pytest.mark.hostile
def test_a_supervisor_that_died_is_told_with_the_signal_and_its_workers_end(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    pids = server.pids
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(ServerDiedError, match="ended with signal SIGKILL"):
        check_until(5, server)
    assert remaining_after(5, pids) == []


@posix
@pytest.mark.hostile
def test_workers_that_do_not_end_are_killed(kind: Kind) -> None:
    spec = kind(workers=2, stop_timeout_s=0.3)
    with launch(spec, app_spec("serve.apps:stubborn")) as server:
        pids = server.pids
    assert remaining_after(0, pids) == []


@posix
def test_the_server_is_in_a_session_of_its_own(kind: Kind, observed: Observed) -> None:
    server = observed(kind)
    (session,) = {os.getsid(pid) for pid in server.pids}
    assert session != os.getsid(0)


def test_nothing_is_logged_about_requests(kind: Kind, observed: Observed) -> None:
    server = observed(kind)
    assert httpx.get(f"{server.url}/looked-for", trust_env=False).status_code == 200
    assert not any("looked-for" in line for line in server.log)
