"""Django's real database is refused where the tests have a test database, unless the user names another one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from pytest_fileperf.serve.databases import Databases

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
    refusal = TEST.refusal(chosen)
    assert (refusal is not None) is refused
    assert refusal is None or f'"test_shop" in the test process, and would be "{name}" in the server' in refusal
