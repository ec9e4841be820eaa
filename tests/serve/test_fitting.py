"""What a test has set on an app is set on a fresh import of it, or refused; and what an app is made of."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import app_spec, as_made
from pytest_fileperf.serve.fitting import Fitting
from pytest_fileperf.serve.likeness import parts_of, tell_difference
from pytest_fileperf.serve.made import Made

SOURCE = """
import threading
from contextlib import asynccontextmanager
from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

class Guard:
    def __call__(self):
        return "guard"

guard = Guard()
hidden = {"guard": Guard()}

def get_db():
    return "production"

@asynccontextmanager
async def lifespan(app):
    app.state.pool = threading.Lock()
    app.state.ready = True
    yield

router = APIRouter()

@router.get("/items/{number}")
def item(number: int, db=Depends(get_db)):
    return db

app = FastAPI(lifespan=lifespan)
app.include_router(router, prefix="/shop")
app.add_middleware(CORSMiddleware, allow_origins=["*"])
api = FastAPI()
app.mount("/api", api)
app.mount("/files", StaticFiles(directory="."))
app.state.lock = threading.Lock()
app.state.settings = {"url": "production"}
wrapped = CORSMiddleware(app)

class Own:
    def __init__(self):
        self.db, self.lock = "production", threading.Lock()

    async def __call__(self, scope, receive, send):
        self.pool = threading.Lock()

own = Own()
"""


def fake_db() -> str:
    return "fake"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with apps."""
    (tmp_path / "fitting_shop.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("fitting_shop")
    sys.modules.pop("fitting_shop", None)


def sent(shop: ModuleType, path: Path, name: str = "app", *, binding: bool = True) -> Fitting:
    """Does what a server's process does, in this one: imports the app anew, and makes it fit."""
    app = getattr(shop, name)
    spec = as_made(app_spec(app), app)
    assert spec.target == f"fitting_shop:{name}"
    assert spec.made is not None
    replace(spec.made, binding=binding).write(path)
    del sys.modules["fitting_shop"]
    fitting = Fitting()
    fitting.fit(getattr(importlib.import_module("fitting_shop"), name), path)
    return fitting


def imported() -> ModuleType:
    return sys.modules["fitting_shop"]


@pytest.mark.parametrize("name", ["app", "wrapped", "own", "router"])
def test_an_app_as_it_was_imported_stays_as_it_is(shop: ModuleType, tmp_path: Path, name: str) -> None:
    assert sent(shop, tmp_path, name).changed() == ()


def test_a_name_and_a_factory_have_nothing_to_compare(shop: ModuleType) -> None:
    assert as_made(app_spec("fitting_shop:app"), "fitting_shop:app").made is None
    assert as_made(app_spec(lambda: shop.app), lambda: shop.app).made is None


def test_overrides_are_found_by_the_routes_of_the_import(shop: ModuleType, tmp_path: Path) -> None:
    shop.app.dependency_overrides |= {shop.get_db: fake_db, shop.guard: lambda: "open"}
    changed = dict(sent(shop, tmp_path).changed())
    overrides = imported().app.dependency_overrides
    assert changed["dependency_overrides"].startswith(f"fitting_shop.Guard → {__name__}.test_overrides")
    assert overrides[imported().get_db]() == "fake"
    assert overrides[imported().guard]() == "open"


def _set_config(shop: ModuleType) -> None:
    shop.app.state.settings["url"] = "test"


def _remove(shop: ModuleType) -> None:
    del shop.app.state.settings


def _override_mounted(shop: ModuleType) -> None:
    shop.api.dependency_overrides[shop.get_db] = fake_db


def _clear_middleware(shop: ModuleType) -> None:
    shop.app.user_middleware.clear()


def _handle(shop: ModuleType) -> None:
    shop.app.exception_handlers[KeyError] = fake_db


def _no_lifespan(shop: ModuleType) -> None:
    shop.app.router.lifespan_context = fake_db


def _own(shop: ModuleType) -> None:
    shop.own.db = "test"


def _debug(shop: ModuleType) -> None:
    shop.app.debug = True


CHANGES: dict[str, tuple[Callable[[ModuleType], None], str, str, Callable[[ModuleType], bool]]] = {
    "state": (_set_config, "app", "state.settings", lambda m: m.app.state.settings == {"url": "test"}),
    "removed": (_remove, "app", "state.settings", lambda m: not hasattr(m.app.state, "settings")),
    "mounted": (
        _override_mounted,
        "app",
        "dependency_overrides of /api",
        lambda m: list(m.api.dependency_overrides) == [m.get_db],
    ),
    "in a wrapper": (
        _set_config,
        "wrapped",
        "state.settings of .app",
        lambda m: m.app.state.settings == {"url": "test"},
    ),
    "middleware": (_clear_middleware, "app", "user_middleware", lambda m: m.app.user_middleware == []),
    "handlers": (_handle, "app", "exception_handlers", lambda m: KeyError in m.app.exception_handlers),
    "lifespan": (_no_lifespan, "app", "lifespan", lambda m: m.app.router.lifespan_context() == "fake"),
    "attribute": (_own, "own", "attribute.db", lambda m: m.own.db == "test"),
    "debug": (_debug, "app", "attribute.debug", lambda m: m.app.debug is True),
}


@pytest.mark.parametrize("change,name,part,holds", CHANGES.values(), ids=CHANGES)
def test_what_was_set(
    shop: ModuleType,
    tmp_path: Path,
    change: Callable[[ModuleType], None],
    name: str,
    part: str,
    holds: Callable[[ModuleType], bool],
) -> None:
    change(shop)
    assert [changed for changed, _ in sent(shop, tmp_path, name).changed()] == [part]
    assert holds(imported())


def test_another_version_is_left_as_it_is(shop: ModuleType, tmp_path: Path) -> None:
    _set_config(shop)
    assert sent(shop, tmp_path, binding=False).changed() == ()
    assert imported().app.state.settings == {"url": "production"}


def test_what_is_shared_stays_shared(shop: ModuleType, tmp_path: Path) -> None:
    rows: list[int] = []
    shop.app.state.rows = rows
    shop.app.dependency_overrides[shop.get_db] = lambda: rows
    sent(shop, tmp_path)
    app = imported().app
    assert app.dependency_overrides[imported().get_db]() is app.state.rows


def _lock_held(shop: ModuleType) -> None:
    lock = threading.Lock()
    shop.app.dependency_overrides[shop.get_db] = lambda: lock


def _hidden_key(shop: ModuleType) -> None:
    shop.app.dependency_overrides[shop.hidden["guard"]] = fake_db


def _replaced_key(shop: ModuleType) -> None:
    shop.app.dependency_overrides[shop.get_db] = fake_db
    shop.get_db = fake_db  # type: ignore[attr-defined]  # of a module


def _new_route(shop: ModuleType) -> None:
    shop.app.get("/new")(fake_db)


def _unsent_state(shop: ModuleType) -> None:
    shop.app.state.other = threading.Lock()


def _much(shop: ModuleType) -> None:
    shop.app.state.other = [bytes(1 << 20) * 10, bytearray(10 << 20)]


REFUSED = {
    "held": (_lock_held, r"dependency_overrides .*has none\. It cannot be set there: cannot pickle '_thread.lock'"),
    "hidden": (_hidden_key, "It cannot be set there: no module has Guard by a name"),
    "replaced": (_replaced_key, "It cannot be set there: no module has get_db by a name"),
    "route": (
        _new_route,
        f"app has routes GET /new {__name__}.fake_db, which the one that the server imports lacks",
    ),
    "state": (_unsent_state, r"the test's app has state.other <unlocked .*, the one that the server imports has none"),
    "much": (_much, "It cannot be set there: it has more than 16 MiB"),
}


@pytest.mark.parametrize("change,message", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_set_is_refused(
    shop: ModuleType, tmp_path: Path, change: Callable[[ModuleType], None], message: str
) -> None:
    change(shop)
    with pytest.raises(AppLoadError, match=rf'(?s){message}.* Give a factory .*"package.module:make\(\)"'):
        sent(shop, tmp_path)


def _run_lifespan(app: object) -> None:
    async def run() -> None:
        async with app.router.lifespan_context(app):  # type: ignore[attr-defined]  # a FastAPI
            app.middleware_stack = app.build_middleware_stack()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_what_a_lifespan_has_set_is_the_server_s_own(shop: ModuleType, tmp_path: Path) -> None:
    _run_lifespan(shop.app)
    shop.app.state.ready = False
    shop.app.state.flag = True
    fitting = sent(shop, tmp_path)
    app = imported().app
    _run_lifespan(app)
    fitting.started()
    assert fitting.changed() == (("state.flag", "True"),)
    assert app.state.ready is True
    assert type(vars(app.state)["_state"]) is dict


def test_what_no_lifespan_sets_is_refused_after_it(shop: ModuleType, tmp_path: Path) -> None:
    _run_lifespan(shop.app)
    shop.app.state.other = threading.Lock()
    fitting = sent(shop, tmp_path)
    _run_lifespan(imported().app)
    with pytest.raises(AppLoadError, match=r"state\.other <unlocked .*, the one that the server imports has none"):
        fitting.started()


def test_keys_of_apps_that_cannot_share_a_server(shop: ModuleType) -> None:
    def key() -> object:
        return as_made(app_spec(shop.app), shop.app).key

    first = key()
    assert key() == first
    shop.app.dependency_overrides[shop.get_db] = fake_db
    second = key()
    shop.app.dependency_overrides[shop.get_db] = lambda: "other"
    assert len({first, second, key()}) == 3
    shop.app.dependency_overrides.clear()
    assert key() == first


def test_parts_of_an_app(shop: ModuleType) -> None:
    parts = parts_of(shop.app)
    assert parts["", "type"] == ("fastapi.applications.FastAPI",)
    assert "GET /shop/items/{number} fitting_shop.item" in parts["", "routes"]
    assert parts["/files", "type"] == ("starlette.staticfiles.StaticFiles",)
    assert parts["", "user_middleware"] == ("starlette.middleware.cors.CORSMiddleware(allow_origins=('*'))",)


@pytest.mark.parametrize(
    "part,mine,theirs,text",
    [
        (("", "routes"), ("a", "b"), ("b",), " has routes a, which the one that the server imports lacks"),
        (("", "routes"), ("a",), ("a", "c"), " lacks routes c, which the one that the server imports has"),
        (("", "routes"), ("a", "b"), ("a", "c"), " has routes b, the one that the server imports has c"),
        (("", "routes"), ("a", "b"), ("b", "a"), " has its routes in another order than"),
        (
            ("", "routes"),
            tuple("abcdef"),
            (),
            " has routes a, b, c and 3 more, the one that",
        ),
        (("/api", "state.n"), (), ("1",), " at /api lacks state.n 1, which the one that the server imports has"),
        (("", "attribute.db"), ("1",), ("2",), " has db 1, the one that the server imports has 2"),
        (("", "config.SECRET_KEY"), ("'x'",), ("'y'",), " has config.SECRET_KEY another one, the one"),
    ],
)
def test_differences_in_words(part: tuple[str, str], mine: tuple[str, ...], theirs: tuple[str, ...], text: str) -> None:
    assert tell_difference(part, mine, theirs).startswith(f"the test's app{text}")


def test_no_app_no_comparison(tmp_path: Path) -> None:
    assert Made.read(tmp_path) is None
