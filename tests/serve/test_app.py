"""Which app is meant, by text, object or factory; how it is imported, and what is said where it cannot be."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from fastapi import APIRouter, FastAPI
from serve import apps
from starlette.endpoints import HTTPEndpoint
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pytest_fileperf.errors import AppLoadError, AppMissingError
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.loading import load_app, module_file, why_not_asgi

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
    with pytest.raises(AppLoadError, match=r'write "module:attribute", or "module:factory\(\)"'):
        app_spec(text)


@pytest.mark.parametrize("app", [FastAPI, apps.wsgi, 7, None], ids=["class", "wsgi", "number", "none"])
def test_an_object_that_is_no_app_is_refused(app: object) -> None:
    with pytest.raises(AppLoadError, match="is not an ASGI app"):
        app_spec(app)


def test_an_app_of_a_test_module_is_sent_by_value_to_one_worker_where_it_can_be() -> None:
    rebuilt = pickle.loads(app_spec(here).pickled(workers=1))
    assert isinstance(rebuilt, FastAPI)
    assert rebuilt.title == "in a test module"
    assert rebuilt.state.answer == 42
    assert rebuilt.url_path_for("<lambda>") == "/included"
    with pytest.raises(AppLoadError, match=r'cannot be imported by 2 workers: put it in a module.*"module:attribute"'):
        app_spec(here).pickled(workers=2)
    lock = threading.Lock()

    async def app(scope: object, receive: object, send: object) -> None:
        lock.acquire()

    with pytest.raises(AppLoadError, match=r'cannot be sent to a server process \(TypeError: .*"module:attribute"'):
        app_spec(app).pickled(workers=1)


def test_specs_of_two_objects_have_two_keys() -> None:
    assert app_spec(here).key == app_spec(here).key
    assert app_spec(here).key != app_spec(FastAPI()).key


def test_a_module_that_only_pytest_can_find_counts_as_a_test_s(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = type("Hook", (), {"__module__": "_pytest.assertion.rewrite"})()
    for name, spec in (("perf_custom", AppSpec(here)), ("serve.found", AppSpec(here)), ("json", AppSpec("json:held"))):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, loader)
        vars(module)["held"] = here
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, module)
            assert app_spec(here) == spec


# --- Imports, and what is wrong with what they find

NOT_ASGI: dict[str, tuple[object, str]] = {
    "module": (apps, 'it is a module: name the app in it, as in "serve.apps:app"'),
    "number": (7, "an object of type builtins.int, which cannot be called"),
    "none": (None, "it is None"),
    "class": (FastAPI, "it is the class FastAPI and not an instance: write FastAPI(…)"),
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
        ['module "serve.apps" has no attribute "ap"', "did you mean app"],
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
        ['"serve.apps:number" is not an ASGI app', "builtins.int"],
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
        ["takes (scope, receive, send)", 'write "serve.apps:app", without "()"'],
    ),
    "factory with arguments": (
        "serve.apps:handler",
        True,
        AppLoadError,
        ["takes (request), and a factory is called with nothing"],
    ),
    "factory is async": ("serve.apps:make_async", True, AppLoadError, ["is an async function"]),
    "factory makes text": (
        "serve.apps:make_text",
        True,
        AppLoadError,
        ['"serve.apps:make_text()" is not an ASGI app', "str"],
    ),
    "factory is a number": ("serve.apps:number", True, AppLoadError, ["is not callable"]),
}


@pytest.mark.parametrize("target,factory,kind,parts", FAILS.values(), ids=FAILS)
def test_loads_or_fails_with_the_reason(target: str, factory: bool, kind: type[AppLoadError], parts: list[str]) -> None:
    assert load_app("serve.apps:app", factory=False) is load_app("serve.apps:make", factory=True) is apps.app
    with pytest.raises(AppLoadError) as caught:
        load_app(target, factory=factory)
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
        load_app("broken_app:app", factory=False)
    message = str(caught.value)
    assert type(caught.value) is AppLoadError
    assert [part for part in parts if part not in message] == []
    assert "importlib" not in message
    assert "loading.py" not in message
