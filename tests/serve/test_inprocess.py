"""Apps that run in the test process."""

from __future__ import annotations

import _thread
import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request
from serve.processes import launch

from pytest_fileperf.errors import AppLoadError, ServerDiedError, ServerStartError
from pytest_fileperf.serve import inprocess
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.spec import InProcess

events: list[str] = []


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    events.append("up")
    yield {"thread": threading.current_thread().name}
    events.append("down")


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def where(request: Request) -> dict[str, str]:
    return {"lifespan": request.state.thread, "request": threading.current_thread().name}


def test_requests_run_on_the_loop_of_the_lifespan_which_ends_with_the_block() -> None:
    async def ask() -> object:
        async with server.client() as client:
            return (await client.get("/")).json()

    async def fail() -> None:
        raise LookupError("nothing there")

    events.clear()
    with launch(InProcess(), app_spec(app)) as server:
        assert isinstance(server, RunningInProcess)
        assert server.run(ask) == {"lifespan": "fileperf in-process app", "request": "fileperf in-process app"}
        with pytest.raises(LookupError, match="nothing there"):
            server.run(fail)
        assert server.url == "http://in-process"
        assert server.pids == (os.getpid(),)
        assert server.identity()["kind"] == "in-process"
        assert server.title.startswith("in-process (")
        server.check()
        assert events == ["up"]
    assert events == ["up", "down"]
    with pytest.raises(ServerDiedError, match="event loop"):
        server.run(lambda: asyncio.sleep(0))


def test_an_interrupt_cancels_what_runs() -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(0.05)
            _thread.interrupt_main()  # as Ctrl-C does
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with launch(InProcess(), app_spec(app)) as server:
        assert isinstance(server, RunningInProcess)
        with pytest.raises(KeyboardInterrupt):
            server.run(wait)
        assert cancelled.wait(5)


STARTS_THAT_FAIL = {
    "import": ("serve_nowhere:app", AppLoadError, "No module named 'serve_nowhere'"),
    "not an app": ("serve.apps:number", AppLoadError, "not an ASGI app"),
    "lifespan": ("serve.apps:failing_lifespan", ServerStartError, "no database here"),
}


@pytest.mark.parametrize("target,kind,said", STARTS_THAT_FAIL.values(), ids=STARTS_THAT_FAIL)
def test_a_failed_start_says_why(target: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said), launch(InProcess(), AppSpec(target)):
        pass


def test_a_hanging_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "START_TIMEOUT_S", 0.3)
    before = threading.active_count()
    with (
        pytest.raises(ServerStartError, match=r"was not ready to serve within 0\.3 s"),
        launch(InProcess(), AppSpec("serve.apps:hanging_lifespan")),
    ):
        pass
    assert threading.active_count() == before
