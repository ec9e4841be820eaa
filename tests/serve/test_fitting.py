"""What a test has set on an app is set on a fresh import of it, or refused; and what an app is made of, in words."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from unittest.mock import Mock

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount, Route

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import app_spec, as_made
from pytest_fileperf.serve.fitting import Fitting, Imported
from pytest_fileperf.serve.job import leave
from pytest_fileperf.serve.likeness import Likeness, describe, kind_of, likeness_of, outline
from pytest_fileperf.serve.made import Cause, cause_of, held_by, tell_difference, why_unsent

SOURCE = """
import os
import threading
import uuid
from contextlib import asynccontextmanager
from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

class Guard:
    def __call__(self):
        return "guard"

class Store:
    def __init__(self, url):
        self.url, self.lock = url, threading.Lock()

class Rates(dict):
    "Can be sent."

    def __init__(self, limit):
        self.limit = limit

guard = Guard()
test_lock = threading.Lock()
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
app.state.run = uuid.uuid4().hex
app.state.url = os.environ.get("SHOP_URL", "production")
app.state.store = Store("production")
app.state.rates = Rates(5)
app.router.on_startup.append(get_db)
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


def sent(
    shop: ModuleType,
    path: Path,
    name: str = "app",
    *,
    env: Mapping[str, str] = {},  # it is not changed
) -> Fitting:
    """Does what a server's process does, in this one: imports the app anew, and makes it fit."""
    app = getattr(shop, name)
    spec = as_made(app_spec(app), app)
    assert spec.target == f"fitting_shop:{name}"
    assert spec.made is not None
    leave(spec.made, path)
    del sys.modules["fitting_shop"]
    others = tuple(imported_again(name) for _ in range(2))
    fitting = Fitting()
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in env.items():
            patch.setenv(variable, value)
        app = getattr(importlib.import_module("fitting_shop"), name)
    fitting.fit(app, path, lambda: Imported(likenesses=others), env=bool(env))
    return fitting


def imported_again(name: str) -> Likeness:
    """Does what another process does that imports the app too."""
    likeness = likeness_of(getattr(importlib.import_module("fitting_shop"), name))
    del sys.modules["fitting_shop"]
    return likeness


def imported() -> ModuleType:
    return sys.modules["fitting_shop"]


@pytest.mark.parametrize("name", ["app", "wrapped", "own", "router"])
def test_an_app_as_it_was_imported_stays_as_it_is(shop: ModuleType, tmp_path: Path, name: str) -> None:
    assert sent(shop, tmp_path, name).changed() == ()


def test_overrides_are_found_by_the_routes_of_the_import(shop: ModuleType, tmp_path: Path) -> None:
    shop.app.dependency_overrides |= {shop.get_db: fake_db, shop.guard: lambda: "open"}
    changed = dict(sent(shop, tmp_path).changed())
    overrides = imported().app.dependency_overrides
    assert changed["dependency_overrides"].startswith(f"fitting_shop.Guard → {__name__}.test_overrides")
    assert overrides[imported().get_db]() == "fake"
    assert overrides[imported().guard]() == "open"


FAKE = {"fake_db": fake_db, "threading": threading}
SET_URL = "m.app.state.settings['url'] = 'test'"
CHANGES = (
    ("app", SET_URL, "state.settings", "m.app.state.settings == {'url': 'test'}"),
    ("wrapped", SET_URL, "state.settings of .app", "m.app.state.settings == {'url': 'test'}"),
    ("app", "del m.app.state.settings", "state.settings", "not hasattr(m.app.state, 'settings')"),
    ("app", "m.app.state.rates = m.Rates(10)", "state.rates", "m.app.state.rates.limit == 10"),
    ("app", "m.app.state.run = 'of the test'", "state.run", "m.app.state.run == 'of the test'"),
    (
        "app",
        "m.api.dependency_overrides[m.get_db] = fake_db",
        "dependency_overrides of /api",
        "list(m.api.dependency_overrides) == [m.get_db]",
    ),
    ("app", "m.app.user_middleware.clear()", "user_middleware", "m.app.user_middleware == []"),
    (
        "app",
        "m.app.exception_handlers[KeyError] = fake_db",
        "exception_handlers",
        "KeyError in m.app.exception_handlers",
    ),
    ("app", "m.app.router.lifespan_context = fake_db", "lifespan", "m.app.router.lifespan_context() == 'fake'"),
    ("app", "m.app.router.on_startup.clear()", "on_startup", "m.app.router.on_startup == []"),
    ("app", "m.app.debug = True", "attribute.debug", "m.app.debug is True"),
    ("own", "m.own.db = 'test'", "attribute.db", "m.own.db == 'test'"),
)


@pytest.mark.parametrize("name, change, part, holds", CHANGES, ids=[change for _, change, *_ in CHANGES])
def test_what_was_set(shop: ModuleType, tmp_path: Path, name: str, change: str, part: str, holds: str) -> None:
    exec(change, {"m": shop, **FAKE})
    assert [changed for changed, _ in sent(shop, tmp_path, name).changed()] == [part]
    assert eval(holds, {"m": imported()})


def test_what_is_shared_stays_shared(shop: ModuleType, tmp_path: Path) -> None:
    rows: list[int] = []
    shop.app.state.rows = rows
    shop.app.dependency_overrides[shop.get_db] = lambda: rows
    sent(shop, tmp_path)
    app = imported().app
    assert app.dependency_overrides[imported().get_db]() is app.state.rows


LOCKED = "lock = threading.Lock(); m.app.dependency_overrides[m.get_db] = (lambda lock: lambda: lock)(lock)"
REFUSED = (
    (
        LOCKED,
        r"dependency_overrides .*has none\. It cannot be set in the server: <lambda>.<locals>.<lambda> holds lock "
        r"\(_thread.lock\), which cannot be sent \(cannot pickle '_thread.lock' object\)\. Put it into a module",
    ),
    (
        "m.app.dependency_overrides[m.hidden['guard']] = fake_db",
        r"It cannot be set in the server: no module has a name for Guard\. Put it into a module",
    ),
    (
        "m.app.dependency_overrides[m.get_db] = fake_db; m.get_db = fake_db",
        "It cannot be set in the server: no module has a name for get_db",
    ),
    (
        "m.app.get('/new')(fake_db)",
        f"app has routes that the server's app lacks: GET /new {__name__}.fake_db",
    ),
    (
        "m.app.state.other = threading.Lock()",
        r"the test's app has state.other _thread.lock, but the server's app has none",
    ),
    (
        "m.app.state.store = m.Store('test')",
        r"state.store fitting_shop.Store\(…url='test'\), but .*'production'",
    ),
    (
        "m.app.state.other = [bytes(10 << 20), bytearray(10 << 20)]",
        "It cannot be set in the server: it is larger than 16 MiB",
    ),
)


@pytest.mark.parametrize("change, message", REFUSED, ids=[change for change, _ in REFUSED])
def test_what_cannot_be_set_is_refused(shop: ModuleType, tmp_path: Path, change: str, message: str) -> None:
    exec(change, {"m": shop, **FAKE})
    with pytest.raises(AppLoadError, match=rf'(?s){message}.* [Gg]ive a factory .*"package.module:make\(\)"'):
        sent(shop, tmp_path)


def test_what_the_server_s_environment_sets_stays_unless_the_test_has_set_it(shop: ModuleType, tmp_path: Path) -> None:
    shop.app.state.settings["url"] = "test"
    fitting = sent(shop, tmp_path, env={"SHOP_URL": "of this boot"})
    assert imported().app.state.url == "of this boot"
    assert dict(fitting.changed()).keys() == {"state.settings"}
    assert dict(fitting.own())["state.url"] == "the server's env sets it"
    again = imported()
    again.app.state.url = "of the test"
    said = r"state.url 'of the test', .* both the test and the server's env set it"
    with pytest.raises(AppLoadError, match=said):
        sent(again, tmp_path, env={"SHOP_URL": "of this boot"})


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


@pytest.mark.parametrize(
    "change, said",
    [
        (
            "m.app.state.pool = m.Store('test')",
            r"state\.pool fitting_shop.Store.*, but the server's app has _thread.lock",
        ),
        (
            "m.app.state.other = threading.Lock()",
            r"state\.other _thread.lock, but the server's app has none",
        ),
    ],
)
def test_what_the_lifespan_does_not_set_so_is_refused_after_it(
    shop: ModuleType, tmp_path: Path, change: str, said: str
) -> None:
    _run_lifespan(shop.app)
    exec(change, {"m": shop, **FAKE})
    fitting = sent(shop, tmp_path)
    _run_lifespan(imported().app)
    with pytest.raises(AppLoadError, match=said):
        fitting.started()


def test_parts_of_an_app(shop: ModuleType) -> None:
    parts = likeness_of(shop.app).parts
    assert parts["", "type"] == ("fastapi.applications.FastAPI",)
    assert "GET /shop/items/{number} fitting_shop.item" in parts["", "routes"]
    assert parts["/files", "type"] == ("starlette.staticfiles.StaticFiles",)
    assert parts["", "user_middleware"] == ("starlette.middleware.cors.CORSMiddleware(allow_origins=('*'))",)


@pytest.mark.parametrize(
    "part,mine,theirs,text",
    [
        (("", "routes"), ("a", "b"), ("b",), " has routes that the server's app lacks: a"),
        (("", "routes"), ("a",), ("a", "c"), "the server's app has routes that the test's app lacks: c"),
        (("", "routes"), ("a", "b"), ("a", "c"), " has routes b, but the server's app has c"),
        (("", "routes"), ("a", "b"), ("b", "a"), " has its routes in another order than"),
        (
            ("", "routes"),
            tuple("abcdef"),
            (),
            " has routes a, b, c and 3 more, but the server's app",
        ),
        (("/api", "state.n"), (), ("1",), "the server's app has state.n that the test's app at /api lacks: 1"),
        (("", "attribute.db"), ("1",), ("2",), " has db 1, but the server's app has 2"),
        (("", "config.SECRET_KEY"), ("'x'",), ("'y'",), " has config.SECRET_KEY another one, but the server's app"),
    ],
)
def test_differences_in_words(part: tuple[str, str], mine: tuple[str, ...], theirs: tuple[str, ...], text: str) -> None:
    assert text in tell_difference(part, mine, theirs)


def test_another_password_is_seen_as_another_one_and_not_told() -> None:
    part = ("", "state.pool")
    mine, theirs = (
        f"Pool(size=10, name='the pool of the app', url='postgres://u:{password}@h/db')"
        for password in ("test(pw", "test(xw")
    )
    told = tell_difference(part, (mine,), (theirs,))
    assert not any(password in told for password in ("pw", "xw"))
    ours, _, server = told.partition(", but the server's app")
    assert re.findall(r"u:…[0-9a-f]{8}@h", ours) != re.findall(r"u:…[0-9a-f]{8}@h", server)


class _Wrapper:
    async def __call__(self, scope: object, receive: object, send: object) -> None: ...


def _closure(app: object) -> object:
    async def wrapped(scope: object, receive: object, send: object) -> object:
        return app

    return wrapped


def _wrapper(name: str, held: Callable[[object], object]) -> Callable[[object], object]:
    def wrap(app: object) -> object:
        wrapper = _Wrapper()
        setattr(wrapper, name, held(app))
        return wrapper

    return wrap


WRAPPERS = {
    **{name: _wrapper(name, lambda app: app) for name in ("app", "_app", "asgi", "_application", "wsgi_app", "odd")},
    "mapping": _wrapper("apps", lambda app: {"/": app}),
    "list": _wrapper("apps", lambda app: [app]),
    "closure": _closure,
    "partial": lambda app: partial(_closure, app),
    "method": lambda app: _wrapper("odd", lambda app: app)(app).__call__,  # type: ignore[operator]
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_an_app_in_a_wrapper_is_found(shop: ModuleType, wrap: Callable[[object], object]) -> None:
    before = likeness_of(wrap(shop.app))
    shop.app.dependency_overrides[shop.get_db] = fake_db
    assert [name for _, name in likeness_of(wrap(shop.app)).differing(before)] == ["dependency_overrides"]


def test_the_middleware_of_a_route_is_compared() -> None:
    def made(size: int = 500) -> object:
        gzip = Middleware(GZipMiddleware, minimum_size=size)
        return Starlette(routes=[Mount("/in", routes=[Route("/", fake_db, middleware=[gzip])], middleware=[gzip])])

    names = likeness_of(made(10)).differing(likeness_of(made(20)))
    assert names == (("", "routes"), ("/in", "routes"))
    assert likeness_of(made()).differing(likeness_of(made())) == ()


def _alike(*values: object) -> tuple[Likeness, ...]:
    return tuple(Likeness(tuple({PART: (view(value),)} for view in VIEWS)) for value in values)  # type: ignore[arg-type]


PART = ("", "state.x")
VIEWS = (describe, outline, kind_of)


@pytest.mark.parametrize(
    "mine, theirs, imports, env, cause",
    [
        ("a", "b", ["b"], False, Cause.TEST),
        ("a", "b", [], False, Cause.TEST),
        ("a", "b", ["a", "a"], True, Cause.ENV),
        ("a", "b", ["b", "b"], True, Cause.TEST),
        ("a", "b", ["c", "c"], True, Cause.TEST_AND_ENV),
        ("run 1", "run 2", ["run 3"], False, Cause.CHANCE),
        ("run 1", "run 2", ["run 3", "run 4"], True, Cause.CHANCE),
        ("test", "run 2", ["run 3"], False, Cause.TEST),
        ("test", "run 2", ["run 3", "run 4"], True, Cause.TEST),
        ("f", "x", ["y"], False, Cause.CHANCE),
        (None, "x", ["y"], False, Cause.TEST),
    ],
)
def test_why_a_part_differs(mine: object, theirs: object, imports: list[object], env: bool, cause: Cause) -> None:
    one, other, *others = _alike(mine, theirs, *imports)
    assert cause_of(PART, one, other, others, env=env) is cause


LOCK = threading.Lock()


def _uses_lock() -> object:
    return [LOCK for _ in "1"]


def _by_default(lock: object = LOCK, *, other: object = None) -> object:
    return lock, other


@contextmanager
def _opened() -> Iterator[object]:
    yield _uses_lock()


TOLD = {
    "itself": (LOCK, "no lock"),
    "a global, in inner code": (_uses_lock, "_uses_lock holds LOCK (_thread.lock), which cannot be sent (no lock)"),
    "what a mapping has": ({"key": _by_default}, "_by_default holds a _thread.lock, which cannot be sent (no lock)"),
    "nothing": (fake_db, ""),
    "an item": ([LOCK], "a _thread.lock cannot be sent (no lock)"),
    "a partial": (partial(print, end=LOCK), "end (_thread.lock) cannot be sent (no lock)"),
    "a middleware": (
        [Middleware(partial(GZipMiddleware), minimum_size=LOCK)],
        "a starlette.middleware.Middleware holds minimum_size (_thread.lock), which cannot be sent (no lock)",
    ),
    "of functions": (
        _opened,
        "_opened holds _uses_lock, which holds LOCK (_thread.lock), which cannot be sent (no lock)",
    ),
}


@pytest.mark.parametrize("value, text", TOLD.values(), ids=TOLD)
def test_what_keeps_a_value_from_being_sent_is_named(value: object, text: str) -> None:
    def problem(one: object) -> str:
        return "no lock" if one is LOCK or any(problem(item) for _, item in held_by(one)) else ""

    assert why_unsent(value, problem) == text


# --- Values in words that are equal in every process

HERE = __name__


class Kind(Enum):
    ONE = 1


class Plain:
    pass


@dataclass
class Shown:
    url: str
    held: object


class Own:
    def __init__(self, url: str, held: object) -> None:
        self.url, self.held = url, held

    def __repr__(self) -> str:
        return f"Own({self.held})"


class Held:
    def __init__(self, url: str, held: object = None) -> None:
        self._url, self.lock = url, threading.Lock()
        if held is not None:
            self.held = held


class Client:
    def __init__(self, url: str) -> None:
        self._url = PurePosixPath(url)


class Slots:
    __slots__ = ("empty", "url")

    def __init__(self, url: str) -> None:
        self.url = url


class Failing:
    def __repr__(self) -> str:
        raise RuntimeError("not yet")


class Makes:
    """Its field is a new object each time."""

    _fields = ("held",)

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def held(self) -> object:
        return Client(self._url)


def outer(held: object) -> Callable[[], object]:
    return lambda: held


VALUES = (
    (None, "None"),
    (1.5, "1.5"),
    ("text", "'text'"),
    (Kind.ONE, f"{HERE}.Kind.ONE"),
    ({"b": 1, "a": Plain()}, f"{{'a': {HERE}.Plain, 'b': 1}}"),
    ([1, {"z"}], "(1, ('z'))"),
    (frozenset({"b", "a", "c"}), "('a', 'b', 'c')"),
    (json, "json"),
    (Plain, f"{HERE}.Plain"),
    (outer, f"{HERE}.outer"),
    (Shown("a", 1).__eq__, f"{HERE}.Shown(held=1, url='a').__eq__"),
    (partial(outer, 1), f"{HERE}.outer(1)"),
    (partial(outer, held=Plain), f"{HERE}.outer(held={HERE}.Plain)"),
    (Plain(), f"{HERE}.Plain"),
    (Failing(), f"{HERE}.Failing"),
    (Shown("a", Plain()), f"{HERE}.Shown(held={HERE}.Plain, url='a')"),
    (Shown("a", frozenset("cab")), f"{HERE}.Shown(held=('a', 'b', 'c'), url='a')"),
    (Own("z", {"c", "a", "b"}), "Own({'a', 'b', 'c'}) with url='z'"),
    (Held("a"), f"{HERE}.Held(_url='a', lock=_thread.lock)"),
    (Slots("a"), f"{HERE}.Slots(url='a')"),
    (Shown("a", {"password": "x"}), f"{HERE}.Shown(held={{password=…4755bd1b}}, url='a')"),
    (Path("a"), "PosixPath('a')" if os.name == "posix" else "WindowsPath('a')"),
    (threading.Lock(), "_thread.lock"),
    (logging.getLogger(HERE), "logging.Logger"),
    (Mock(), "<Mock …>"),
)


@pytest.mark.parametrize("value,text", VALUES, ids=[text for _, text in VALUES])
def test_values(value: object, text: str) -> None:
    assert describe(value) == text


def test_objects_that_are_made_on_access_differ_though_each_may_have_the_id_of_the_one_before() -> None:
    text = describe([Makes(str(number)) for number in range(9)])
    assert [number for number in range(9) if f"PosixPath('{number}')" not in text] == []


@pytest.mark.parametrize(
    "one, other",
    [
        ("run 3f2b9c1d-0a4e-4c55-9d7e-1f2a3b4c5d6e", "run 00000000-1111-2222-3333-444444444444"),
        (1.5, 7),
        (None, True),
        (Held("a", 1), Held("a", 2)),
        ({"a": [1, "x"]}, {"a": [2, "x"]}),
    ],
)
def test_an_outline_leaves_out_what_time_and_chance_change(one: object, other: object) -> None:
    assert describe(one) != describe(other)
    assert outline(one) == outline(other)


@pytest.mark.parametrize(
    "one, other", [("a", "b"), (Held("a"), Held("b")), (Client("a"), Client("b")), (Held("a", "x"), Held("a", "y"))]
)
def test_an_outline_has_texts(one: object, other: object) -> None:
    assert outline(one) != outline(other)
    assert kind_of(one) == kind_of(other)


def test_what_is_long_or_leads_in_circles_is_described_in_little_time() -> None:
    held: list[object] = [Held("a") for _ in range(50)]
    for one in held:
        vars(one)["held"] = held
    assert describe(held) == describe(held)
    itself: list[object] = []
    itself.append(itself)
    assert describe(itself) == "((((builtins.list))))"
    assert describe(list(range(100_000))) == "builtins.list of 100000"
    assert len(describe("x" * 10_000)) < 250
    assert describe("x" * 10_000) != describe("x" * 9_999)


def test_sets_are_described_alike_in_every_process() -> None:
    code = """if True:
        from dataclasses import dataclass
        from pydantic import BaseModel
        from pytest_fileperf.serve.likeness import describe

        @dataclass
        class Kept:
            hosts: frozenset

        class Model(BaseModel):
            hosts: set
            inner: object

        names = ("alpha", "beta", "gamma", "delta")
        print(describe(Model(hosts=set(names), inner=Kept(frozenset(names)))), describe({frozenset(names): 1}))
    """
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in "12"
    }
    assert len(told) == 1
    assert "hosts=('alpha', 'beta', 'delta', 'gamma')" in told.pop()
