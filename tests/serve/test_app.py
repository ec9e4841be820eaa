"""Apps given as text, object or factory: which of them become an import string, and which are sent by value."""

from __future__ import annotations

import pickle
import sys
import threading
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from fastapi import APIRouter, FastAPI
from serve import apps
from starlette.routing import Route

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec, app_spec

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
