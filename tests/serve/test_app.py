"""Which app is meant, by text, object or factory; how it is imported, and what is said where it cannot be."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable
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


TEXTS = {
    "app.main:app": AppSpec("app.main:app"),
    " app.main:app ": AppSpec("app.main:app"),
    "app.main:make()": AppSpec("app.main:make", factory=True),
    "app:site.app": AppSpec("app:site.app"),
}


@pytest.mark.parametrize("text,spec", TEXTS.items())
def test_text(text: str, spec: AppSpec) -> None:
    assert app_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["", "app.main", "app.main:", ":app", "app/main.py:app", "app:make(1)", "app:a b", "a:b:c"]
)
def test_text_that_names_no_app_is_refused(text: str) -> None:
    with pytest.raises(AppLoadError, match=r'write "module:attribute", or "module:factory\(\)"'):
        app_spec(text)


def test_a_spec_stays_as_it_is() -> None:
    spec = AppSpec("app.main:app")
    assert app_spec(spec) is spec


def test_an_object_of_an_imported_module_becomes_its_import_string() -> None:
    assert app_spec(apps.app) == AppSpec("serve.apps:app")


def test_a_factory_of_an_imported_module_becomes_its_import_string() -> None:
    spec = app_spec(apps.make)
    assert spec == AppSpec("serve.apps:make", factory=True)
    assert spec.name == "serve.apps:make()"


@pytest.mark.parametrize(
    "app,factory", [(here, False), (make_here, True), (partial(make_here), True)], ids=["app", "factory", "partial"]
)
def test_what_only_a_test_module_holds_stays_an_object(app: object, factory: bool) -> None:
    assert app_spec(app) == AppSpec(app, factory)


@pytest.mark.parametrize("app", [FastAPI, apps.wsgi, 7, None], ids=["class", "wsgi", "number", "none"])
def test_an_object_that_is_no_app_is_refused(app: object) -> None:
    with pytest.raises(AppLoadError, match="is not an ASGI app"):
        app_spec(app)


def test_an_app_of_a_test_module_is_sent_by_value() -> None:
    rebuilt = pickle.loads(app_spec(here).pickled(workers=1))
    assert isinstance(rebuilt, FastAPI)
    assert rebuilt.title == "in a test module"
    assert rebuilt.state.answer == 42
    assert rebuilt.url_path_for("<lambda>") == "/included"


def test_several_workers_need_an_import_string() -> None:
    with pytest.raises(AppLoadError, match=r'cannot be imported by 2 workers: put it in a module.*"module:attribute"'):
        app_spec(here).pickled(workers=2)


def test_an_app_that_does_not_pickle_needs_an_import_string() -> None:
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


def test_a_wsgi_instance_is_told_apart() -> None:
    class Flask:
        def __call__(self, environ: object, start_response: object) -> list[bytes]:
            return []

    assert "as a WSGI app does" in (why_not_asgi(Flask()) or "")


@pytest.mark.parametrize(
    "target,factory", [("serve.apps:app", False), ("serve.apps:make", True)], ids=["attribute", "factory"]
)
def test_loads(target: str, factory: bool) -> None:
    assert load_app(target, factory=factory) is apps.app


FAILS = {
    "module missing": ("serve_nowhere:app", False, ["No module named 'serve_nowhere'", "pythonpath"]),
    "package missing": ("serve_nowhere.main:app", False, ["No module named 'serve_nowhere'", "pythonpath"]),
    "attribute missing": ("serve.apps:ap", False, ['module "serve.apps" has no attribute "ap"', "did you mean app"]),
    "attribute of attribute": (
        "serve.apps:app.inner",
        False,
        ['"app" of module "serve.apps" has no attribute "inner"'],
    ),
    "not an app": ("serve.apps:number", False, ['"serve.apps:number" is not an ASGI app', "builtins.int"]),
    "factory fails": ("serve.apps:make_failing", True, ["failed: RuntimeError: no database here", "in make_failing"]),
    "app called": ("serve.apps:app", True, ["takes (scope, receive, send)", 'write "serve.apps:app", without "()"']),
    "factory with arguments": ("serve.apps:handler", True, ["takes (request), and a factory is called with nothing"]),
    "factory is async": ("serve.apps:make_async", True, ["is an async function"]),
    "factory makes text": ("serve.apps:make_text", True, ['"serve.apps:make_text()" is not an ASGI app', "str"]),
    "factory is a number": ("serve.apps:number", True, ["is not callable"]),
}


@pytest.mark.parametrize("target,factory,parts", FAILS.values(), ids=FAILS)
def test_fails_with_the_reason(target: str, factory: bool, parts: list[str]) -> None:
    with pytest.raises(AppLoadError) as caught:
        load_app(target, factory=factory)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("name", [name for name in FAILS if "missing" in name or "attribute" in name])
def test_what_is_not_there_is_missing(name: str) -> None:
    target, factory, _ = FAILS[name]
    with pytest.raises(AppMissingError):
        load_app(target, factory=factory)


@pytest.mark.parametrize("name", [name for name in FAILS if "missing" not in name and "attribute" not in name])
def test_what_is_there_and_no_app_is_not_missing(name: str) -> None:
    target, factory, _ = FAILS[name]
    with pytest.raises(AppLoadError) as caught:
        load_app(target, factory=factory)
    assert type(caught.value) is AppLoadError


@pytest.mark.parametrize("line", ["import serve.nowhere", "import nowhere_at_all", "from serve import nowhere"])
def test_a_module_that_imports_what_is_missing_is_not_missing_itself(
    line: str, broken_module: Callable[[str], str]
) -> None:
    with pytest.raises(AppLoadError) as caught:
        load_app(broken_module(line), factory=False)
    assert type(caught.value) is AppLoadError


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
    "exits": ("raise SystemExit('no settings')", ["SystemExit: no settings", "broken_app.py"]),
}


@pytest.fixture
def broken_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> str:
        (tmp_path / "broken_app.py").write_text(source)
        monkeypatch.delitem(sys.modules, "broken_app", raising=False)
        return "broken_app:app"

    return write


@pytest.mark.parametrize("source,parts", BROKEN.values(), ids=BROKEN)
def test_an_import_error_is_shown_from_the_user_s_code(
    source: str, parts: list[str], broken_module: Callable[[str], str]
) -> None:
    with pytest.raises(AppLoadError) as caught:
        load_app(broken_module(source), factory=False)
    message = str(caught.value)
    assert [part for part in parts if part not in message] == []
    assert "importlib" not in message
    assert "loading.py" not in message
