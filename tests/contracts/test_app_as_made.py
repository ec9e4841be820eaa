"""The server serves the app that a fixture gives, with whatever the test has set on it; or the app is refused."""

from __future__ import annotations

import pytest
from contracts.project import Project, results

APP = """
import os, threading, time, uuid
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


class Session:
    def __init__(self, url):
        self.url, self.lock = url, threading.Lock()

    def __repr__(self):
        return f"Session({self.url})"


def get_db():
    return "production"


@asynccontextmanager
async def lifespan(app):
    app.state.session = Session("pool")
    app.state.ready = True
    yield
    app.state.ready = False


def index(request):
    return PlainTextResponse(app.dependency_overrides.get(get_db, get_db)())


def flag(request):
    return PlainTextResponse(str(getattr(app.state, "flag", None)))


def make(text):
    return Starlette(routes=[Route("/", lambda request: PlainTextResponse(text()))])


app = Starlette(lifespan=lifespan, routes=[Route("/", index), Route("/flag", flag)])
app.dependency_overrides = {}
app.state.engine = Session("production")
app.state.flag, app.state.run, app.state.started = os.environ.get("FLAG"), uuid.uuid4().hex, time.time()
"""
SET = """
import asyncio
from functools import partial

import pytest
from app import Route, Session, app, get_db, index, make
from pytest_fileperf import Command, Uvicorn

SERVER = Command(["{python}", "-m", "uvicorn", "app:app", "--port", "{port}"], title="mine")

def fake_db():
    return "fake"

@pytest.fixture
def fileperf_app():
    yield app
    app.dependency_overrides.clear()
    app.state.flag = None

@pytest.fixture
def overridden():
    app.dependency_overrides[get_db] = fake_db

def test_set(fileperf, overridden):
    app.state.flag = 7
    fileperf.get("/", expect_body="fake")
    fileperf.get("/flag", expect_body="7")

def test_unsendable(fileperf):
    session = Session("test")
    app.dependency_overrides[get_db] = lambda: session
    fileperf.get("/")

def test_routes(fileperf):
    routes = app.router.routes
    app.router.routes = [*routes, Route("/more", index)]
    try:
        fileperf.get("/more")
    finally:
        app.router.routes = routes

def test_workers(fileperf):
    app.dependency_overrides[get_db] = lambda: "other"
    fileperf.get("/", expect_body="other", workers=2)

def test_factory(fileperf):
    made = "here"
    fileperf.get("/", app=partial(make, lambda: made), expect_body="here")

def test_env(fileperf, overridden):
    server = Uvicorn(env={"FLAG": "of this boot"})
    fileperf.get("/flag", server=server, expect_body="of this boot")
    fileperf.get("/", server=server, expect_body="fake")

def test_command(fileperf):
    fileperf.get("/", server=SERVER, expect_body="production")

def test_changed(fileperf, overridden):
    fileperf.get("/", server=SERVER)

def test_made_here(fileperf):
    fileperf.get("/", server=SERVER, app=lambda: app)

def test_named(fileperf, overridden):
    fileperf.get("/", server=SERVER, app="app:app", expect_body="production")

def test_with_client(fileperf):
    async def run_lifespan():
        async with app.router.lifespan_context(app):
            app.middleware_stack = app.build_middleware_stack()
    asyncio.run(run_lifespan())
    assert app.state.ready is False
    fileperf.get("/", expect_body="production")
    fileperf.get("/flag", expect_body="None")
"""
"""The last one comes after tests that have set more: each has its own."""
REFUSED = {
    "test_routes": "routes",
    "test_unsendable": "holds session (app.Session), which cannot be sent (cannot pickle '_thread.lock' object)",
    "test_changed": "mine cannot get app:app as the test made it: the test's app has dependency_overrides",
    "test_made_here": "mine cannot get <lambda>, because it is an object in the test process. Use server=Uvicorn()",
}
COMPARED = """
from app import app, get_db

def test_changed(fileperf, monkeypatch):
    monkeypatch.setitem(app.dependency_overrides, get_db, lambda: "fake")
    fileperf.get("/", app=app)
"""
DATABASE = """
import os

class connections:
    settings = {"default": {"NAME": os.environ.get("DB_NAME", "shop")}, "logs": {"NAME": "logs"}}
"""
DATABASES = """
import sys
import pytest
from app import app
from django.db import connections
from pytest_fileperf import Command, FilePerfError, Uvicorn

COMMAND = ["{python}", "-m", "uvicorn", "app:app", "--port", "{port}"]

@pytest.fixture
def test_database(monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "NAME", "test_shop")

def test_guarded(fileperf, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest_django.plugin", pytest)
    with pytest.raises(FilePerfError, match='would be "shop" in the server, which isn.t a test database'):
        fileperf.get("/")
    with pytest.raises(FilePerfError, match="the command's database is unknown"):
        fileperf.get("/", server=Command(COMMAND))

@pytest.mark.parametrize("given", ["app:app", app])
def test_lost(fileperf, test_database, given):
    fileperf.get("/", app=given)

def test_command(fileperf, test_database, monkeypatch):
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    with pytest.raises(FilePerfError, match="Command"):
        fileperf.get("/", server=Command(COMMAND))
    fileperf.get("/", server=Command(COMMAND, env={"DB_NAME": "test_shop"}))

def test_given(fileperf, test_database):
    fileperf.get("/", server=Uvicorn(env={"DB_NAME": "boot{boot}"}))
"""


def test_what_a_test_has_set_is_served_and_said_or_refused(project: Project) -> None:
    """All that is refused is in `serve/test_fitting`. A command imports the app itself, so it gets none that changed.

    What the lifespan of a test client has set, the server's own lifespan sets: it is no change, nothing is said of it.
    """
    pytest.importorskip("starlette")
    ran = project.write({"app.py": APP, "test_it.py": SET}).run("--fileperf-smoke", "-v", "--tb=short", width=200)

    assert "failed" in ran.record, ran.text
    told = {one["name"]: " ".join(one["message"].split()) for one in ran.record["failed"]}
    assert set(told) == set(REFUSED), ran.text
    assert [name for name, words in REFUSED.items() if words not in told[name]] == [], told
    assert "Use server=Uvicorn()" in told["test_changed"]
    notes = {name: " ".join(one["notes"]) for name, one in results(ran).items()}
    both = "served with the test's own settings on the app: dependency_overrides app.get_db → test_it.fake_db"
    assert f"{both}; state.flag 7" in notes["test_set"], notes
    assert both in notes["test_env"]
    assert "own settings on the app" not in notes["test_with_client"]
    assert "differs from the test's app: state.run (it differs at each import)" in notes["test_with_client"]


def test_a_changed_app_is_not_compared_with_another_version(project: Project) -> None:
    """It is told by that alone, and not by what is another one at each import."""
    pytest.importorskip("starlette")
    project.write({".gitignore": "__pycache__", "app.py": APP, "test_it.py": COMPARED}).commit()
    ran = project.write({"app.py": f"{APP}# changed since\n"}).run("--fileperf-against=HEAD", width=200)

    (failed,) = ran.record["failed"]
    said = "set dependency_overrides on the app. The old code imports the app without that"
    assert said in failed["message"], ran.text


def test_a_test_database_of_django_is_not_left_for_the_real_one(project: Project) -> None:
    """Django itself is not needed for it."""
    app = "import django.conf, django.db\n\n\nasync def app(scope, receive, send):\n    if scope['type'] == 'http':\n"
    for message in ("start', 'status': 204, 'headers': []", "body'"):
        app += f"        await send({{'type': 'http.response.{message}}})\n"
    settings = "class settings:\n    configured = True\n"
    project.write({"django/__init__.py": "", "django/conf.py": settings, "django/db.py": DATABASE})
    ran = project.write({"app.py": app, "test_it.py": DATABASES}).run("--fileperf-smoke", width=200)

    assert "failed" in ran.record, ran.text
    told = {one["name"]: " ".join(one["message"].split()) for one in ran.record["failed"]}
    assert [name.partition("[")[0] for name in told] == ["test_lost"] * 2, ran.text
    for said in told.values():
        assert '"default" of Django is "test_shop" in the test process, but would be "shop" in the server' in said
        assert 'Uvicorn(env={"DB_NAME": "test_shop"}), and mark the test django_db(transaction=True)' in said
