"""The server serves the app that a fixture gives, with whatever the fixture has set on it; or the app is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import fastapi  # noqa: F401 # else each run in this process would import it anew
import pytest
from versions.repositories import Repo

Run = Callable[..., pytest.RunResult]

APP = """
import threading
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI


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


app = FastAPI(lifespan=lifespan)
app.state.engine = Session("production")


@app.get("/")
def index(db=Depends(get_db)):
    return db


@app.get("/flag")
def flag():
    return str(getattr(app.state, "flag", None))
"""

LIGHT = (
    APP.partition("app = FastAPI")[0]
    .replace("from fastapi import Depends, FastAPI", "from starlette.applications import Starlette")
    .replace(
        "Starlette\n", "Starlette\nfrom starlette.responses import JSONResponse\nfrom starlette.routing import Route\n"
    )
    + """
def index(request):
    return JSONResponse(app.dependency_overrides.get(get_db, get_db)())


def flag(request):
    return JSONResponse(str(getattr(app.state, "flag", None)))


app = Starlette(lifespan=lifespan, routes=[Route("/", index), Route("/flag", flag)])
app.dependency_overrides = {}
app.state.engine = Session("production")
"""
)
"""Answers as that app does, and is imported in less time."""

OVERRIDES = """
import pytest
from fastapi_app import app, get_db

def fake_db():
    return "fake"

@pytest.fixture
def fileperf_app():
    app.dependency_overrides[get_db] = fake_db
    app.state.flag = 7
    yield app
    app.dependency_overrides.clear()
    del app.state.flag

def test_overridden(fileperf):
    fileperf.get("/", expect_body=b'"fake"')
    fileperf.get("/flag", expect_body=b'"7"')
"""


@pytest.fixture
def shop(pytester: pytest.Pytester) -> pytest.Pytester:
    """A directory with `fastapi_app.py`."""
    pytester.makepyfile(fastapi_app=APP)
    pytester.makeini("[pytest]\npythonpath = .\n")
    return pytester


def test_what_a_fixture_sets_is_served_and_said_or_refused(shop: pytest.Pytester, run: Run) -> None:
    """Also to a handler that reads the app as a global; each test has its own, and several workers have it too.

    All that is refused is in `serve/test_fitting`.
    """
    shop.makepyfile(
        test_it=f"""{OVERRIDES}
from fastapi_app import Session

def test_refused(fileperf):
    session = Session("test")
    app.dependency_overrides[get_db] = lambda: session
    fileperf.get("/")

def test_reset(fileperf):
    app.dependency_overrides.clear()
    app.state.flag = None
    fileperf.get("/", expect_body=b'"production"')
    fileperf.get("/flag", expect_body=b'"None"')

def test_with_workers(fileperf):
    app.dependency_overrides[get_db] = lambda: "other"
    fileperf.get("/", expect_body=b'"other"', workers=2)

def test_in_this_process(fileperf):
    fileperf.get("/", expect_body=b'"fake"', server="inprocess")
"""
    )
    result = run("--fileperf-smoke", "-v")
    result.assert_outcomes(passed=4, failed=1)
    said = " ".join(result.stdout.str().replace("\nE ", "\n").split())
    holds = "test_refused.<locals>.<lambda> holds session (fastapi_app.Session), which cannot be sent"
    assert f"{holds} (cannot pickle '_thread.lock' object)" in said
    overrides = "dependency_overrides fastapi_app.get_db → test_it.fake_db; state.flag 7"
    assert f"served with what the test has set on the app: {overrides}" in said


def test_factories_of_the_test_are_sent(project: pytest.Pytester, run: Run) -> None:
    app = project.path / "server_app.py"
    app.write_text(
        f"""{app.read_text().partition("def make")[0]}
from functools import partial

def make(text):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            return await lifespan(receive, send)
        await respond(send, text.encode())
    return app
"""
    )
    project.makepyfile(
        """
        from functools import partial

        import pytest
        import server_app

        @pytest.mark.parametrize("app, answer", [
            (partial(server_app.make, "partly"), b"partly"),
            (lambda: server_app.make("of a lambda"), b"of a lambda"),
        ])
        def test_factory(fileperf, app, answer):
            fileperf.get("/", app=app, expect_body=answer)
        """
    )
    run("--fileperf-smoke").assert_outcomes(passed=2)


def test_what_the_test_has_not_set_is_left_and_a_command_gets_no_changed_app(shop: pytest.Pytester, run: Run) -> None:
    """A command imports the app itself, so an app that is as it was imported may go with one.

    What the lifespan of a test client has set, the server's own lifespan sets: it is no change, nothing is said of it.
    """
    app = shop.path / "fastapi_app.py"
    app.write_text(
        f"{LIGHT}\nimport os, uuid\napp.state.flag, app.state.run = os.environ.get('FLAG'), uuid.uuid4().hex\n"
    )
    shop.makepyfile(
        test_it="""
        import asyncio

        import pytest
        from fastapi_app import app, get_db
        from pytest_fileperf import Command, Uvicorn

        SERVER = Command(["{python}", "-m", "uvicorn", "fastapi_app:app", "--port", "{port}"], title="mine")

        @pytest.fixture
        def fileperf_app():
            return app

        @pytest.fixture
        def overridden():
            app.dependency_overrides[get_db] = lambda: "fake"
            yield
            app.dependency_overrides.clear()

        def test_env(fileperf, overridden):
            server = Uvicorn(env={"FLAG": "of this boot"})
            fileperf.get("/flag", server=server, expect_body=b'"of this boot"')
            fileperf.get("/", server=server, expect_body=b'"fake"')

        def test_command(fileperf):
            fileperf.get("/", server=SERVER, expect_body=b'"production"')

        def test_changed(fileperf, overridden):
            fileperf.get("/", server=SERVER)

        def test_made_here(fileperf):
            fileperf.get("/", server=SERVER, app=lambda: app)

        def test_named(fileperf, overridden):
            fileperf.get("/", server=SERVER, app="fastapi_app:app", expect_body=b'"production"')

        def run_lifespan():
            async def go():
                async with app.router.lifespan_context(app):
                    app.middleware_stack = app.build_middleware_stack()
            asyncio.run(go())

        def test_with_client(fileperf, fileperf_server):
            run_lifespan()
            assert app.state.ready is False
            fileperf.get("/", expect_body=b'"production"')
        """
    )
    result = run("--fileperf-smoke", "-v", "-p", "no:randomly")
    result.assert_outcomes(passed=4, failed=2)
    said = " ".join(result.stdout.str().split())
    by_client = said[said.rindex("test_with_client") :]
    assert "not as in the test's app: state.run (it is another one at each import)" in by_client
    assert "set on the app" not in by_client
    assert "served with what the test has set on the app: dependency_overrides fastapi_app.get_db → test_it" in said
    assert "mine cannot be handed fastapi_app:app as the test made it: the test's app has dependency_overrides" in said
    assert "a fresh import has none. Serve it by Uvicorn()" in said
    assert "mine cannot be handed <lambda>, which is an object of this test run. Serve it by Uvicorn()" in said


def test_a_changed_app_is_not_compared_with_another_version(repo: Repo, shop: pytest.Pytester, run: Run) -> None:
    """But one that is another one at each import is."""
    chance = "import time, uuid\napp.state.run, app.state.started = uuid.uuid4(), time.time()\n"
    shop.makepyfile(
        fastapi_app=LIGHT + chance,
        test_it=OVERRIDES,
        test_of_chance="""
        import pytest
        from fastapi_app import app

        @pytest.fixture
        def fileperf_app():
            return app

        @pytest.mark.fileperf(boots=1, connections=2)
        def test_compared(fileperf):
            fileperf.get("/", expect_body=b'"production"')
        """,
    )
    repo.commit()
    shop.makepyfile(fastapi_app=f"{LIGHT}{chance}# changed since")
    result = run("--fileperf-against=HEAD", "--fileperf-max-duration=2s", "--fileperf-json=out.json")
    said = " ".join(result.stdout.str().split())
    assert said.count("FAILED test_it.py::test_overridden") == 1
    assert "the test has set dependency_overrides, state.flag on the app, which the other side imports as it is" in said
    compared = json.loads((repo.top / "out.json").read_text())["results"]
    (entry,) = (entry for entry in compared if "test_compared" in str(entry["test"]))
    assert entry["base"]["title"].startswith("HEAD (")
    assert entry["verdict"]["comparisons"][0]["pairs"] >= 1


def test_a_test_database_of_django_is_not_left_for_the_real_one(project: pytest.Pytester, run: Run) -> None:
    """Django itself is not needed for it."""
    package = project.mkpydir("django")
    (package / "conf.py").write_text("class settings:\n    configured = True\n")
    (package / "db.py").write_text(
        "import os\n\nclass connections:\n"
        "    settings = {'default': {'NAME': os.environ.get('DB_NAME', 'shop')}, 'logs': {'NAME': 'logs'}}\n"
    )
    (project.path / "server_app.py").write_text(
        f"import django.conf, django.db\n{(project.path / 'server_app.py').read_text().partition('annotations')[2]}"
    )
    project.makepyfile(
        """
        import sys
        from contextlib import nullcontext

        import pytest
        import server_app
        from django.db import connections
        from pytest_fileperf import Command, FilePerfError, Uvicorn

        @pytest.fixture
        def test_database(monkeypatch):
            monkeypatch.setitem(connections.settings["default"], "NAME", "test_shop")

        def test_real(fileperf):
            fileperf.get("/")

        def test_guarded(fileperf, monkeypatch):
            monkeypatch.setitem(sys.modules, "pytest_django.plugin", pytest)
            with pytest.raises(FilePerfError, match='would be "shop" in the server, which is no test database'):
                fileperf.get("/")
            with pytest.raises(FilePerfError, match="that of the command is not known"):
                fileperf.get("/", server=Command(COMMAND))
            fileperf.get("/", server=Uvicorn(env={"DJANGO_SETTINGS_MODULE": ""}))

        @pytest.mark.parametrize("app", ["server_app:app", server_app.app])
        def test_lost(fileperf, test_database, app):
            fileperf.get("/", app=app)

        COMMAND = ["{python}", "-m", "uvicorn", "server_app:app", "--port", "{port}"]

        @pytest.mark.parametrize("env, fails", [
            ({}, True), ({"DB_NAME": "test_shop"}, False)
        ])
        def test_command(fileperf, test_database, monkeypatch, env, fails):
            monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
            with pytest.raises(FilePerfError, match="Command") if fails else nullcontext():
                fileperf.get("/", server=Command(COMMAND, env=env))

        def test_given(fileperf, test_database):
            fileperf.get("/", server=Uvicorn(env={"DB_NAME": "boot{boot}"}))
        """
    )
    result = run("--fileperf-smoke", "-p", "no:django")
    result.assert_outcomes(passed=5, failed=2)
    said = " ".join(result.stdout.str().split())
    assert (
        'the database "default" of Django is "test_shop" in the test process, and would be "shop" in the server' in said
    )
    assert 'Uvicorn(env={"DB_NAME": "test_shop"}), and mark the test django_db(transaction=True)' in said
