"""Database queries of a request: as many as the database itself has seen, limited, stored and compared."""

from __future__ import annotations

import json

import pytest
from contracts.project import Project, results

pytest.importorskip("sqlalchemy")

TRACED = """
import contextlib
import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db.backends.signals import connection_created
from django.http import HttpResponse
from django.urls import path
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool

ran = []

def trace(statement):
    if statement.partition(" ")[0] not in ("BEGIN", "COMMIT", "ROLLBACK"):
        ran.append(statement)

plain = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
event.listen(plain, "connect", lambda connection, _: connection.set_trace_callback(trace))
awaited = create_async_engine("sqlite+aiosqlite://")
event.listen(awaited.sync_engine, "connect", lambda one, _: one.run_async(lambda own: own.set_trace_callback(trace)))
connection_created.connect(lambda connection, **_: connection.connection.set_trace_callback(trace), weak=False)
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "x.db"}},
    ROOT_URLCONF=__name__,
    SECRET_KEY="x",
)
django.setup()
from django.db import connection, transaction

def by_django(request):
    before = len(ran)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 'secret'")
        for number in range(4):
            cursor.execute("SELECT %s AS a", [number])
    return HttpResponse(str(len(ran) - before))

urlpatterns = [path("django", by_django)]
of_django = get_asgi_application()

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/django":
        await of_django(scope, receive, send)
        return
    before = len(ran)
    if scope["path"] == "/sync":
        with plain.connect() as connection:
            connection.execute(text("SELECT 'secret'"))
            for number in range(4):
                connection.execute(text("SELECT :number AS a"), {"number": number})
    else:
        async with awaited.connect() as connection:
            await connection.execute(text("SELECT 'secret'"))
            for number in range(4):
                await connection.execute(text("SELECT :number AS a"), {"number": number})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(ran) - before).encode()})
"""
OF_TRACED = """
import pytest

pytestmark = pytest.mark.fileperf(connections=1, requests=10, gate="none")

@pytest.mark.parametrize("by", ["sync", "async", "django"])
def test_by(fileperf, by):
    assert fileperf.get(f"/{by}", max_queries=5, expect_body="5").server.queries == 5

def test_beyond(fileperf):
    fileperf.get("/sync", max_queries=4, expect_body="5")
"""
SHOP = """
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={{"check_same_thread": False}})

def rows(connection, count):
    for number in range(count):
        connection.execute(text("SELECT :number AS row"), {{"number": number}})

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        rows(connection, {})
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
OF_SHOP = """
import pytest

pytestmark = pytest.mark.fileperf(connections=2, rate=40, duration="500ms", gate="queries", boots=1)

def test_it(fileperf):
    assert fileperf.get("/").server.queries >= 3
"""
SERVERS = """
import pytest
from pytest_fileperf import Command

LOAD = {"connections": 2, "requests": 20, "gate": "none"}

@pytest.mark.parametrize("server", ["inprocess", "gunicorn:workers=2"])
def test_counts(fileperf, server):
    load = {**LOAD, "gate": "queries"}
    assert fileperf.get("/", max_queries="3", server=server, **load).server.queries == 3

def test_command(fileperf):
    fileperf.get("/", max_queries=3, server=Command(["program", "{port}"]), **LOAD)

def test_url(fileperf):
    fileperf.get("/", server="http://127.0.0.1:1", **{**LOAD, "gate": "queries"})

def test_neither(fileperf):
    fileperf.get("/", app="bare:app", max_queries=3, **LOAD)
"""


def test_they_are_as_many_as_the_database_has_traced(project: Project) -> None:
    pytest.importorskip("aiosqlite")
    pytest.importorskip("django")
    ran = project.write({"app.py": TRACED, "test_it.py": OF_TRACED}).run()

    assert "1 failed, 3 passed" in ran.said, ran.text
    assert "max_queries 4, measured 5" in ran.said
    assert "4 times a request: SELECT ? AS a (app.py:54 in app)" in ran.said, ran.text
    for name, found in results(ran).items():
        (boot,) = found["boots"]
        assert boot["queries"]["counts"].keys() == {"5"}, name
        assert sum(one["count"] for one in boot["queries"]["statements"]) == 5 * boot["queries"]["counts"]["5"]
        assert all("app.py:" in one["place"] for one in boot["queries"]["statements"])
        assert any(note.startswith("queries were counted, which costs") for note in found["notes"])
    assert "secret" not in json.dumps(ran.record["results"])


def test_more_of_them_than_another_version_has_is_a_regression(project: Project) -> None:
    project.write({"app.py": SHOP.format(2), "test_it.py": OF_SHOP}).commit()
    project.write({"app.py": SHOP.format(11)})
    ran = project.run("--fileperf-against=HEAD", "--fileperf-markdown=summary.md")

    assert "1 failed" in ran.said, ran.text
    assert "queries rose by 9, to 12 per request compared with HEAD" in ran.said
    assert "11 times a request, 2 before: SELECT ? AS row (app.py:8 in" in ran.said, ran.text
    assert "| queries | 3 → 12 | +300 % |" in (project.top / "summary.md").read_text(encoding="utf-8")
    (item,) = results(ran)["test_it"]["verdict"]["comparisons"]
    assert (item["outcome"], item["base"], item["now"], item["pairs"]) == ("REGRESSED", 3, 12, 1)


def test_each_server_of_fileperf_counts_and_no_other_and_baselines_have_it(project: Project) -> None:
    bare = SHOP.format(2).partition("    with engine")
    project.write({"app.py": SHOP.format(2), "test_it.py": SERVERS})
    project.write(
        {"bare.py": f"async def{bare[0].partition('async def')[2]}    await send{bare[2].partition('await send')[2]}"}
    )
    ran = project.run("--fileperf-queries", "--fileperf-update=all")

    assert "3 failed, 2 passed" in ran.said, ran.text
    assert ran.said.count("3 queries a request") == 2
    (stored,) = (project.top / ".fileperf").rglob("*.json")
    assert stored.read_text(encoding="utf-8").count('"queries": 3.0') == 4
    assert "queries were counted, which costs" in ran.said
    why = "but queries are counted only in a process in which fileperf serves the app. Use Uvicorn(), Gunicorn() or"
    assert f"max_queries: a Command can be any program, {why}" in ran.said
    assert f"gate: queries: a Url names a running server, {why}" in ran.said
    assert "max_queries 3, not measured" in ran.said
