"""Keeps a server from Django's real database where tests are kept from it: loads may write into it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

SETTINGS = "DJANGO_SETTINGS_MODULE"
_GUARD = "pytest_django.plugin"
"""A module that pytest loads with pytest-django, which keeps tests without a test database from any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """The databases of Django in the test process."""

    names: tuple[tuple[str, str], ...] = ()
    """Alias and name of each."""
    settings: str = ""
    """The module of its settings, as the environment names it."""
    guarded: bool = False
    """Whether pytest-django guards them in this process."""

    def refusal(self, theirs: Databases, chosen: Sequence[str], *, server: str = "Uvicorn(") -> str | None:
        """Returns why a server with these databases should not be loaded; None if it may be.

        `chosen` are the values of the environment variables that the user gave the server: who names the database in
        them has chosen.
        """
        if self.settings != theirs.settings:
            return None
        others = dict(theirs.names)
        for alias, mine in self.names:
            name = others.get(alias)
            if name is None or any(_names(value, name) for value in chosen):
                continue
            if name != mine:
                difference = f'is "{mine}" in the test process, and would be "{name}" in the server'
            elif self.guarded and name and not _is_of_tests(name):
                difference = f'would be "{name}" in the server, which is no test database'
            else:
                continue
            return f'the database "{alias}" of Django {difference}: {_advice(mine, self.settings, server)}'
        return None

    @property
    def are_of_tests(self) -> bool:
        """Whether Django has made one of them for tests, by its name."""
        return any(_is_of_tests(name) for _, name in self.names)

    @contextmanager
    def checking(self, check: Callable[[], None]) -> Iterator[None]:
        """Within the block, `check` is called when Django has connected to a database; it may raise, to end that."""
        connected = None
        if self.names:
            with suppress(ImportError):
                connected = importlib.import_module("django.db.backends.signals").connection_created

        def checked(**_: object) -> None:
            check()

        if connected is not None:
            connected.connect(checked, weak=False)
        try:
            yield
        finally:
            if connected is not None:
                connected.disconnect(checked)


def databases_here(*, by_settings: bool = False) -> Databases:
    """Returns the databases of this process; it imports Django only with `by_settings`, if the environment has them."""
    by_settings &= bool(os.environ.get(SETTINGS))
    if by_settings:
        with suppress(ImportError):
            importlib.import_module("django.db")
            importlib.import_module("django.conf")
    connections = getattr(sys.modules.get("django.db"), "connections", None)
    settings = getattr(sys.modules.get("django.conf"), "settings", None)
    if connections is None or not (by_settings or getattr(settings, "configured", False)):
        return Databases()
    found: Mapping[str, Mapping[str, object]] = connections.settings
    names = tuple(sorted((alias, str(database.get("NAME", ""))) for alias, database in found.items()))
    return Databases(names=names, settings=os.environ.get(SETTINGS, ""), guarded=_GUARD in sys.modules)


def _names(value: str, name: str) -> bool:
    """Returns whether the value of a variable names the database: it is its name, the end of its URL, or its directory.

    A part of the name is not enough: Django's test database of `shop` is `test_shop`.
    """
    if not value or not name:
        return False
    last = value.partition("?")[0].rpartition("/")[2]
    return value == name or last == name.rpartition("/")[2] or name.startswith(f"{value.rstrip('/')}/")


def _is_of_tests(name: str) -> bool:
    return name.rpartition("/")[2].startswith("test_") or _is_in_memory(name)


def _is_in_memory(name: str) -> bool:
    return name == ":memory:" or "mode=memory" in name


def _advice(mine: str, settings: str, server: str) -> str:
    last = mine.rpartition("/")[2]
    is_file = _is_in_memory(mine) or "." in last
    name = "test.sqlite3" if is_file else f"test_{mine}"
    name = mine if "test" in last and not _is_in_memory(mine) else name
    file = f', which needs a file, "TEST": {{"NAME": "{name}"}} in DATABASES' if is_file else ""
    return (
        "the load could write into real data. Let the settings read the database's name from an environment variable, "
        "and give each boot a database of its own, which the app's factory makes and migrates, as in "
        f'{server}env={{"DB_NAME": f"{{tmp_path}}/{{{{boot}}}}.sqlite3"}}). '
        f'Or give the server the test database{file}: {server}env={{"DB_NAME": "{name}"}}), and mark the test '
        "django_db(transaction=True), or what the load writes stays there for other tests. Where the server may use "
        f'that database, or needs none, say so: {server}env={{"{SETTINGS}": "{settings}"}})'
    )
