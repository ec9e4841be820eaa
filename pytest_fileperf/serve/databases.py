"""Keeps a server from Django's real database where the test process has a test database: loads may write into it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ("Databases", "databases_here")

_SETTINGS = "DJANGO_SETTINGS_MODULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """The databases of Django in the test process."""

    names: tuple[tuple[str, str], ...] = ()
    """Alias and name of each."""
    settings: str = ""
    """The module of its settings, as the environment names it."""

    def refusal(self, chosen: Sequence[str]) -> str | None:
        """Returns why the app of this process should not be loaded; None where it may be.

        `chosen` are the values of the environment variables that the user gave the servers: who names the database or
        the settings in them has chosen.
        """
        here = databases_here()
        if self.settings != here.settings:
            return None
        theirs = dict(here.names)
        for alias, mine in self.names:
            name = theirs.get(alias, mine)
            if name != mine and not any(_names(value, name) for value in chosen):
                return _refusal(alias, mine, name)
        return None


def databases_here() -> Databases:
    """Returns the databases of this process. Django is never imported for it."""
    connections = getattr(sys.modules.get("django.db"), "connections", None)
    settings = getattr(sys.modules.get("django.conf"), "settings", None)
    if connections is None or not getattr(settings, "configured", False):
        return Databases()
    found: Mapping[str, Mapping[str, object]] = connections.settings
    names = tuple(sorted((alias, str(database.get("NAME", ""))) for alias, database in found.items()))
    return Databases(names=names, settings=os.environ.get(_SETTINGS, ""))


def _names(value: str, name: str) -> bool:
    """Returns whether the value of a variable names the database: it is its name, the end of its URL, or its directory.

    A part of the name is not enough: Django's test database of `shop` is `test_shop`.
    """
    if not value or not name:
        return False
    last = value.partition("?")[0].rpartition("/")[2]
    return value == name or last == name.rpartition("/")[2] or name.startswith(f"{value.rstrip('/')}/")


def _refusal(alias: str, mine: str, theirs: str) -> str:
    name, advice = mine, "Let the settings read"
    if mine == ":memory:" or "mode=memory" in mine:
        name = "test.sqlite3"
        advice = (
            f'A database in memory belongs to one process: give the test database a file, TEST = {{"NAME": "{name}"}}'
        )
        advice += " in DATABASES, and let the settings read"
    return (
        f'the database "{alias}" of Django is "{mine}" in the test process, and would be "{theirs}" in the server: '
        f"the load could write into real data. {advice} the database's name from an environment variable, and set that "
        f'for the server, as in Uvicorn(env={{"DB_NAME": "{name}"}})'
    )
