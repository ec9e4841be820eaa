"""Django's real database is refused where the tests have a test database; texts and means of queries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import Databases, Queries, databases_here, text_of
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.spec import Uvicorn

TEST = Databases(names=(("default", "test_shop"),))


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The database that this process would use, as if it was the server's."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    database = {"NAME": "shop"}
    monkeypatch.setitem(
        sys.modules,
        "django.db",
        SimpleNamespace(connections=SimpleNamespace(settings={"default": database})),
    )
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=SimpleNamespace(configured=True)))
    return database


@pytest.mark.parametrize(
    "name, chosen, refused",
    [
        ("shop", [], True),
        ("test_shop", [], False),
        ("shop", ["test_shop"], True),  # the settings do not read the variable
        ("shop", ["1", ""], True),
        ("shop", ["shop"], False),
        ("shop_0001", ["shop_0001"], False),
        ("shop_0001", ["postgres://user@host/shop_0001?sslmode=off"], False),
        ("/data/0001/shop.db", ["/data/0001"], False),
        ("/data/0001/shop.db", ["/data/000"], True),
    ],
)
def test_which_database_is_refused(theirs: dict[str, str], name: str, chosen: list[str], refused: bool) -> None:
    theirs["NAME"] = name
    refusal = TEST.refusal(databases_here(), chosen)
    assert (refusal is not None) is refused
    assert refusal is None or f'"test_shop" in the test process, but would be "{name}" in the server' in refusal


@pytest.mark.parametrize(
    "name, guarded, chosen, refused",
    [
        ("shop", True, [], True),
        ("shop", False, [], False),
        ("shop", True, ["shop"], False),
        ("test_shop", True, [], False),
        ("/data/test_shop.db", True, [], False),
        ("file:memorydb_default?mode=memory&cache=shared", True, [], False),
        ("", True, [], False),
    ],
)
def test_the_real_database_is_refused_where_pytest_django_guards_it(
    theirs: dict[str, str], name: str, guarded: bool, chosen: list[str], refused: bool
) -> None:
    theirs["NAME"] = name
    here = Databases(names=(("default", name), ("logs", "logs")), guarded=guarded)
    refusal = here.refusal(databases_here(), chosen)
    assert (refusal is not None) is refused
    assert refusal is None or '"default" of Django would be "shop" in the server, which isn\'t a test' in refusal
    assert here.refusal(Databases(), chosen) is None  # a server without Django


def test_pytest_django_is_found(theirs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pytest_django.plugin", raising=False)
    assert databases_here() == Databases(names=(("default", "shop"),))
    monkeypatch.setitem(sys.modules, "pytest_django.plugin", ModuleType("pytest_django.plugin"))
    assert databases_here().guarded


@pytest.mark.parametrize(
    "mine, advice",
    [
        (
            "test_shop",
            'The test database. Use server=Uvicorn(env={"DB_NAME": "test_shop"}), and mark the test django_db(tr',
        ),
        ("shop", 'The test database. Use server=Uvicorn(env={"DB_NAME": "test_shop"})'),
        (
            ":memory:",
            'The test database. Give it a file, with "TEST": {"NAME": "test.sqlite3"} in DATABASES. Use server=Uvi',
        ),
        (
            "/data/db.sqlite3",
            '"TEST": {"NAME": "test.sqlite3"} in DATABASES. Use server=Uvicorn(env={"DB_NAME": "test.sqlite3"})',
        ),
        ("/data/tests.db", '"TEST": {"NAME": "/data/tests.db"} in DATABASES'),
    ],
)
def test_a_refusal_names_the_ways_out(mine: str, advice: str) -> None:
    here = Databases(names=(("default", mine),), settings="shop.settings")
    refusal = here.refusal(replace(here, names=(("default", "real"),)), [])
    assert refusal is not None
    assert advice in refusal
    assert 'make and migrate it. Use server=Uvicorn(env={"DB_NAME": f"{tmp_' in refusal
    assert refusal.endswith('or none. Use server=Uvicorn(env={"DJANGO_SETTINGS_MODULE": "shop.settings"})')


class Connected:
    """Stands for Django's signal of a new connection."""

    def __init__(self) -> None:
        self.receivers: list[Callable[[], None]] = []

    def connect(self, receiver: Callable[[], None], *, weak: bool) -> None:
        assert not weak
        self.receivers.append(receiver)

    def disconnect(self, receiver: Callable[[], None]) -> None:
        self.receivers.remove(receiver)


@pytest.mark.parametrize("late", [False, True], ids=["settings at import", "settings in the factory"])
def test_a_factory_does_not_reach_the_real_database(
    theirs: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: bool
) -> None:
    """Where it is known before, the factory is not called; else its first connection fails."""
    connected = Connected()
    monkeypatch.setitem(sys.modules, "django.db.backends.signals", SimpleNamespace(connection_created=connected))
    done = []

    def make() -> object:
        done.append("called")
        theirs["NAME"] = "shop"
        for receiver in connected.receivers:
            receiver()
        done.append("written")
        return app

    async def app(scope: object, receive: object, send: object) -> None: ...

    module = ModuleType("made_late")
    module.make = make  # type: ignore[attr-defined]  # of a module
    monkeypatch.setitem(sys.modules, "made_late", module)
    theirs["NAME"] = "test_shop" if late else "shop"
    spec = AppSpec("made_late:make", True, databases=TEST)
    job = Job.of(Uvicorn(), spec, lent=tmp_path)
    with pytest.raises(AppLoadError, match=r"^made_late:make\(\) is not served: the database .* would be \"shop\""):
        job.load_app()
    assert done == (["called"] if late else [])
    assert connected.receivers == []
    if not late:
        chosen = Job.of(Uvicorn(env={"DJANGO_SETTINGS_MODULE": ""}), spec, lent=tmp_path / "chosen")
        assert chosen.load_app() is app


@pytest.mark.parametrize(
    "statement, text",
    [
        ("SELECT a\n  FROM t_1 WHERE a = ? AND b = 'sec''ret'", "SELECT a FROM t_1 WHERE a = ? AND b = ?"),
        ("SELECT a FROM t WHERE b = %(b_1)s -- secret", "SELECT a FROM t WHERE b = ?"),
        ("SELECT /* secret */ a FROM t WHERE b = $1::INTEGER LIMIT 21", "SELECT a FROM t WHERE b = ? LIMIT ?"),
        (
            "SELECT a::text FROM t WHERE b IN (:b_1, :b_2) AND c = 0x1F",
            "SELECT a::text FROM t WHERE b IN (?, …) AND c = ?",
        ),
        ('SELECT "t"."a" AS "n" FROM "t" WHERE "t"."b" = "secret"', 'SELECT "t"."a" AS "n" FROM "t" WHERE "t"."b" = ?'),
        ("SELECT a FROM t WHERE b = 'secret", "SELECT a FROM t WHERE b = ?"),
        ('SELECT a FROM t WHERE b = "secret', "SELECT a FROM t WHERE b = ?"),
        ("SELECT $$secret$$, $x$secret $$ secret$x$, E'\\'secret'", "SELECT ?, ?, E?"),
    ],
)
def test_the_text_of_a_statement_has_nothing_secret(statement: str, text: str) -> None:
    assert text_of(statement) == text


@pytest.mark.parametrize(
    "counts, outside, mean",
    [
        ({3: 8}, 0, 3),
        ({3: 9_600, 50: 400}, 90, 3),  # a cache is filled, a job runs beside it
        ({0: 5, 3: 90, 4: 5}, 0, 3),
        ({2: 50, 4: 50}, 0, 3),
        ({2: 1, 4: 1}, 0, 3),
        ({0: 10}, 30, 3),  # in threads that do not know of a request
    ],
)
def test_the_queries_of_a_request_are_a_mean_without_rare_ones(
    counts: dict[int, int], outside: int, mean: float
) -> None:
    assert Queries(counts=tuple(counts.items()), outside=outside).mean()[0] == mean
