"""Keeps a server from Django's real database where the test process has a test database: loads may write into it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

__all__ = ("SETTINGS", "Databases", "databases_here")

SETTINGS = "DJANGO_SETTINGS_MODULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """The databases of Django in the test process."""

    names: tuple[tuple[str, str], ...] = ()
    """Alias and name of each."""
    settings: str = ""
    """The module of its settings, as the environment names it."""

    def refusal(self, theirs: Databases, chosen: Sequence[str], *, server: str = "Uvicorn(") -> str | None:
        """Returns why a server with these databases should not be loaded; None where it may be.

        `chosen` are the values of the environment variables that the user gave the servers: who names the database or
        the settings in them has chosen.
        """
        if self.settings != theirs.settings:
            return None
        others = dict(theirs.names)
        for alias, mine in self.names:
            name = others.get(alias, mine)
            if name != mine and not any(_names(value, name) for value in chosen):
                return _refusal(alias, mine, name, server)
        return None

    @property
    def are_of_tests(self) -> bool:
        """Whether Django has made one of them for tests, by its name."""
        return any(name.startswith("test_") or _is_in_memory(name) for _, name in self.names)

    @contextmanager
    def checking(self, check: Callable[[], None]) -> Iterator[None]:
        """Within the block, `check` is called when Django has connected to a database, before it asks anything.

        A check that raises keeps the code that connects from writing.
        """
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
    """Returns the databases of this process.

    Django is not imported for it, except with `by_settings`, where the environment names its settings.
    """
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
    return Databases(names=names, settings=os.environ.get(SETTINGS, ""))


def _names(value: str, name: str) -> bool:
    """Returns whether the value of a variable names the database: it is its name, the end of its URL, or its directory.

    A part of the name is not enough: Django's test database of `shop` is `test_shop`.
    """
    if not value or not name:
        return False
    last = value.partition("?")[0].rpartition("/")[2]
    return value == name or last == name.rpartition("/")[2] or name.startswith(f"{value.rstrip('/')}/")


def _is_in_memory(name: str) -> bool:
    return name == ":memory:" or "mode=memory" in name


def _refusal(alias: str, mine: str, theirs: str, server: str) -> str:
    name, advice = mine, "Let the settings read"
    if _is_in_memory(mine):
        name = "test.sqlite3"
        advice = (
            f'A database in memory belongs to one process: give the test database a file, TEST = {{"NAME": "{name}"}}'
        )
        advice += " in DATABASES, and let the settings read"
    return (
        f'the database "{alias}" of Django is "{mine}" in the test process, and would be "{theirs}" in the server: '
        f"the load could write into real data. {advice} the database's name from an environment variable, and set that "
        f'for the server, as in {server}env={{"DB_NAME": "{name}"}})'
    )
