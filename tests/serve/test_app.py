"""Which app is meant, by text, object or factory; how it is imported, runs in the test process, and fails."""

from __future__ import annotations

import _thread
import asyncio
import importlib
import os
import pickle
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI, Request
from serve import apps
from serve.processes import launch
from starlette.endpoints import HTTPEndpoint
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pytest_fileperf.errors import AppLoadError, AppMissingError, ServerDiedError, ServerStartError
from pytest_fileperf.serve import inprocess
from pytest_fileperf.serve.app import AppSpec, app_spec, module_file, why_not_asgi
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.spec import InProcess

here = FastAPI(title="in a test module")
here.include_router(APIRouter(routes=[Route("/included", lambda request: None)]))
here.state.answer = 42


def make_here() -> FastAPI:
    return here


OBJECTS: dict[str, tuple[object, AppSpec]] = {
    "name": ("app.main:app", AppSpec("app.main:app")),
    "spaces": (" app.main:app ", AppSpec("app.main:app")),
    "factory": ("app.main:make()", AppSpec("app.main:make", factory=True)),
    "attribute": ("app:site.app", AppSpec("app:site.app")),
    "imported app": (apps.app, AppSpec("serve.apps:app")),
    "imported factory": (apps.make, AppSpec("serve.apps:make", factory=True)),
    "app of a test": (here, AppSpec(here)),
    "factory of a test": (make_here, AppSpec(make_here, factory=True)),
    "partial of a test": (partial_here := partial(make_here), AppSpec(partial_here, factory=True)),
}


@pytest.mark.parametrize("app, spec", OBJECTS.values(), ids=OBJECTS)
def test_which_app_is_meant(app: object, spec: AppSpec) -> None:
    assert app_spec(app) == spec
    assert app_spec(spec) is spec


@pytest.mark.parametrize(
    "text", ["", "app.main", "app.main:", ":app", "app/main.py:app", "app:make(1)", "app:a b", "a:b:c"]
)
def test_text_that_names_no_app_is_refused(text: str) -> None:
    with pytest.raises(AppLoadError, match=r'Write "module:attribute" or "module:factory\(\)"'):
        app_spec(text)


def test_an_app_of_a_test_module_is_sent_by_value_to_one_worker_where_it_can_be() -> None:
    rebuilt = pickle.loads(app_spec(here).pickled(workers=1))
    assert isinstance(rebuilt, FastAPI)
    assert rebuilt.title == "in a test module"
    assert rebuilt.state.answer == 42
    assert rebuilt.url_path_for("<lambda>") == "/included"
    with pytest.raises(AppLoadError, match=r'cannot be imported by 2 workers. Put it in its.*"module:attribute"'):
        app_spec(here).pickled(workers=2)
    lock = threading.Lock()

    async def app(scope: object, receive: object, send: object) -> None:
        lock.acquire()

    with pytest.raises(AppLoadError, match=r'cannot be sent to a server process \(TypeError: .*"module:attribute"'):
        app_spec(app).pickled(workers=1)


# --- Imports, and what is wrong with what they find

NOT_ASGI: dict[str, tuple[object, str]] = {
    "module": (apps, 'it is a module. Name the app in it, as in "serve.apps:app"'),
    "number": (7, "an object of type builtins.int, which cannot be called"),
    "none": (None, "it is None"),
    "class": (FastAPI, "it is the class FastAPI, not an instance. Write FastAPI(…)"),
    "wsgi function": (apps.wsgi, "takes (environ, start_response), as a WSGI app does"),
    "wsgi instance": (
        type("Flask", (), {"__call__": lambda self, environ, start_response: []})(),
        "as a WSGI app does",
    ),
    "handler": (apps.handler, "an async function (handler) that takes (request)"),
    "factory": (apps.make, '"()" at the end'),
}


class OldForm:
    """The first form of ASGI: called with the scope, then with receive and send."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Answers nothing."""


def old_form(scope: Scope) -> object:
    return OldForm(scope)


ASGI: dict[str, object] = {
    "function": apps.app,
    "instance": FastAPI(),
    "endpoint class": HTTPEndpoint,
    "old form, class": OldForm,
    "old form, function": old_form,
    "any arguments": lambda *arguments: None,
    "no signature to read": type("Opaque", (), {"__call__": lambda *a: None, "__signature__": "?"})(),
}


@pytest.mark.parametrize("app,part", NOT_ASGI.values(), ids=NOT_ASGI)
def test_why_not_asgi(app: object, part: str) -> None:
    assert part in (why_not_asgi(app) or "")


@pytest.mark.parametrize("app", ASGI.values(), ids=ASGI)
def test_asgi_apps_are_believed(app: object) -> None:
    assert why_not_asgi(app) is None


FAILS: dict[str, tuple[str, bool, type[AppLoadError], list[str]]] = {
    "module missing": ("serve_nowhere:app", False, AppMissingError, ["No module named 'serve_nowhere'", "pythonpath"]),
    "package missing": ("serve_nowhere.a:app", False, AppMissingError, ["No module named 'serve_nowhere'"]),
    "attribute missing": (
        "serve.apps:ap",
        False,
        AppMissingError,
        ['module "serve.apps" has no attribute "ap"', "Did you mean app"],
    ),
    "attribute of attribute": (
        "serve.apps:app.inner",
        False,
        AppMissingError,
        ['"app" of module "serve.apps" has no attribute "inner"'],
    ),
    "not an app": (
        "serve.apps:number",
        False,
        AppLoadError,
        ['"serve.apps:number" isn\'t an ASGI app', "builtins.int"],
    ),
    "factory fails": (
        "serve.apps:make_failing",
        True,
        AppLoadError,
        ["failed: RuntimeError: no database here", "in make_failing"],
    ),
    "app called": (
        "serve.apps:app",
        True,
        AppLoadError,
        ["takes (scope, receive, send)", 'Write "serve.apps:app", without "()"'],
    ),
    "factory with arguments": (
        "serve.apps:handler",
        True,
        AppLoadError,
        ["takes (request), but a factory is called without arguments"],
    ),
    "factory is async": ("serve.apps:make_async", True, AppLoadError, ["is an async function"]),
    "factory makes text": (
        "serve.apps:make_text",
        True,
        AppLoadError,
        ['"serve.apps:make_text()" isn\'t an ASGI app', "str"],
    ),
    "factory is a number": ("serve.apps:number", True, AppLoadError, ["is not callable"]),
}


@pytest.mark.parametrize("target,factory,kind,parts", FAILS.values(), ids=FAILS)
def test_loads_or_fails_with_the_reason(target: str, factory: bool, kind: type[AppLoadError], parts: list[str]) -> None:
    assert AppSpec("serve.apps:app").load() is AppSpec("serve.apps:make", factory=True).load() is apps.app
    with pytest.raises(AppLoadError) as caught:
        AppSpec(target, factory).load()
    assert type(caught.value) is kind
    assert [part for part in parts if part not in str(caught.value)] == []


def test_where_a_module_was_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_namespace").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert module_file(apps) == apps.__file__
    assert module_file(importlib.import_module("loaded_namespace")) == str(tmp_path / "loaded_namespace")
    assert module_file(sys) is None


BROKEN = {
    "raises": ("value = 1\nvalue / 0", ["ZeroDivisionError: division by zero", "broken_app.py", "line 2", "value / 0"]),
    "syntax": ("def (:", ["SyntaxError", "broken_app.py", "def (:"]),
    "imports what is missing": ("import serve_nowhere", ["No module named 'serve_nowhere'", "broken_app.py", "line 1"]),
    "imports another module that is missing": ("import serve.nowhere", ["No module named 'serve.nowhere'"]),
    "imports a name that is missing": ("from serve import nowhere", ["cannot import name 'nowhere'"]),
    "exits": ("raise SystemExit('no settings')", ["SystemExit: no settings", "broken_app.py"]),
}


@pytest.mark.parametrize("source,parts", BROKEN.values(), ids=BROKEN)
def test_an_import_error_is_shown_from_the_user_s_code_and_the_module_is_not_missing(
    source: str, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_app.py").write_text(source)
    monkeypatch.delitem(sys.modules, "broken_app", raising=False)
    with pytest.raises(AppLoadError) as caught:
        AppSpec("broken_app:app").load()
    message = str(caught.value)
    assert type(caught.value) is AppLoadError
    assert [part for part in parts if part not in message] == []
    assert "importlib" not in message
    assert "loading.py" not in message


# --- Apps that run in the test process

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


def test_a_hanging_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "START_TIMEOUT_S", 0.3)
    before = threading.active_count()
    with (
        pytest.raises(ServerStartError, match=r"was not ready to serve within 0\.3 s"),
        launch(InProcess(), AppSpec("serve.apps:hanging_lifespan")),
    ):
        pass
    assert threading.active_count() == before
