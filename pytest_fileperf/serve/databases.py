"""Keeps load away from Django's real databases, and counts each request's database queries."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_fileperf.versions.tree import is_of_the_user

# --- No load goes into Django's real database if pytest-django keeps tests from it

SETTINGS = "DJANGO_SETTINGS_MODULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Databases:
    """A process's Django databases. Empty for apps without Django."""

    names: tuple[tuple[str, str], ...] = ()
    """Pairs of a database's alias and its name."""
    settings: str = ""
    """The value of the environment variable DJANGO_SETTINGS_MODULE; empty if it is not set."""
    guarded: bool = False
    """Whether pytest-django is loaded, which lets tests use only test databases."""

    def refusal(self, theirs: Databases, chosen: Sequence[str], *, server: str = "Uvicorn(") -> str | None:
        """Returns why a server with the databases `theirs` must get no load, or None if it may.

        `chosen` has the values of environment variables that the user gave the server. A database that such a value
        names may get load. The reason shows a call that begins with `server`.
        """
        if self.settings != theirs.settings:
            return None
        others = dict(theirs.names)
        for alias, mine in self.names:
            name = others.get(alias)
            if name is None or any(_points_to(value, name) for value in chosen):
                continue
            if name != mine:
                difference = f'is "{mine}" in the test process, but would be "{name}" in the server'
            elif self.guarded and name and not _is_of_tests(name):
                difference = f'would be "{name}" in the server, which isn\'t a test database'
            else:
                continue
            return f'the database "{alias}" of Django {difference}: {_advice(mine, self.settings, server)}'
        return None

    @property
    def are_of_tests(self) -> bool:
        return any(_is_of_tests(name) for _, name in self.names)

    @contextmanager
    def checking(self, check: Callable[[], None]) -> Iterator[None]:
        """In the block, calls `check` whenever Django has connected to a database."""

        def checked(**_: object) -> None:
            check()

        with ExitStack() as ending:
            if self.names:
                with suppress(ImportError):
                    connected = importlib.import_module("django.db.backends.signals").connection_created
                    connected.connect(checked, weak=False)
                    ending.callback(connected.disconnect, checked)
            yield


def databases_here(*, by_settings: bool = False) -> Databases:
    """Returns an empty result if Django isn't imported and configured.

    With `by_settings`, imports Django if DJANGO_SETTINGS_MODULE is set.
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
    return Databases(names=names, settings=os.environ.get(SETTINGS, ""), guarded="pytest_django.plugin" in sys.modules)


def _points_to(value: str, name: str) -> bool:
    """Whether a variable's value is the database `name`, its directory, or a URL that ends with `name`."""
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
    file = f' Give it a file, with "TEST": {{"NAME": "{name}"}} in DATABASES.' if is_file else ""
    return (
        "the load could write into real data\nLet the settings read the database's name from an environment variable, "
        "here DB_NAME. Then choose a database:\n  - A new one at each start-up. Let the app's factory make and migrate "
        f'it. Use server={server}env={{"DB_NAME": f"{{tmp_path}}/{{{{boot}}}}.sqlite3"}}).\n  - The test database.'
        f'{file} Use server={server}env={{"DB_NAME": "{name}"}}), and mark the test django_db(transaction=True). Else '
        "the load's data stays there for other tests.\n  - The server's own database, or none. Use "
        f'server={server}env={{"{SETTINGS}": "{settings}"}})'
    )


# --- Queries, counted in the server's processes for each request
#
# SQLAlchemy and Django report each statement that they execute on a cursor, through public hooks. A context variable
# contains the request. Tasks, and threads of anyio and asgiref, inherit this variable. A statement elsewhere belongs to
# no request.

SLICE_NS = 50_000_000
"""A request's queries are reported within this time after its end."""
_NO_TEXT = re.compile(
    r"/\*.*?\*/|--[^\n]*"  # comments, which may contain a trace id
    r"|'(?:[^'\\]|''|\\.)*(?:'|$)|\$(\w*)\$.*?(?:\$\1\$|$)"  # strings
    r"|(?<![\w.])\d[\w.]*"
    r"|%\(\w+\)s|%s|(?<!:):\w+|\$\d+(?:::\w+)?",  # parameters
    re.DOTALL,
)
_QUOTED = re.compile(r'(\.|\b(?:FROM|JOIN|INTO|UPDATE|AS) )?"[^"]*(?:"(?=(\.)?)|$)')
"""A quoted name of a table or column, or in some databases a string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    text: str
    """The SQL without parameters, literals and comments."""
    place: str
    """The line of the user's code that ran the statement, such as `app/shop.py:31 in read`; empty if unknown."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    counts: tuple[tuple[int, int], ...]
    """Pairs such as (3, 20): 20 requests made 3 queries each. In ascending order."""
    statements: tuple[Statement, ...] = ()
    outside: int = 0
    """How many queries belong to no request."""

    @property
    def requests(self) -> int:
        return sum(made for _, made in self.counts)

    @property
    def is_divided(self) -> bool:
        """Whether most queries belong to no request."""
        return self.outside > sum(count * made for count, made in self.counts)

    def mean(self) -> tuple[float, float]:
        """Returns the mean number of queries per request, and the variance of this mean.

        Leaves out the 5 % of requests with the fewest queries, and the 5 % with the most. A request that fills a cache,
        for example, does not count.

        Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974) 165-170.
        """
        total, requests = sum(count * made for count, made in self.counts), self.requests
        if self.is_divided:
            mean = (total + self.outside) / requests
            return mean, (0.1 * mean) ** 2  # requests/s may differ by such a share between two start-ups
        trimmed, kept, before = requests // 20, list[tuple[int, int]](), 0
        for count, made in self.counts:
            inside = min(before + made, requests - trimmed) - max(before, trimmed)
            kept += [(count, inside)] * (inside > 0)
            before += made
        left = requests - 2 * trimmed
        mean = sum(count * inside for count, inside in kept) / left
        ends = trimmed * ((kept[0][0] - mean) ** 2 + (kept[-1][0] - mean) ** 2)
        squares = math.fsum(inside * (count - mean) ** 2 for count, inside in kept) + ends
        return mean, squares / max(1, left * (left - 1))

    @classmethod
    def summed(cls, parts: Iterable[Queries | None]) -> Queries | None:
        """Returns the sum of several counts, such as one from each worker."""
        counts, ran, places, outside = Counter[int](), Counter[str](), dict[str, str](), 0
        for part in filter(None, parts):
            counts.update(dict(part.counts))
            outside += part.outside
            for one in part.statements:
                ran[one.text] += one.count
                places[one.text] = places.get(one.text) or one.place
        if not counts:
            return None
        statements = (Statement(text=text, place=places[text], count=count) for text, count in ran.most_common())
        return cls(counts=tuple(sorted(counts.items())), statements=tuple(statements), outside=outside)

    @classmethod
    def read(cls, lines: Iterable[str], since_ns: int) -> Queries | None:
        """Returns the queries of requests that ended after `since_ns` (monotonic clock), from a `QueryCounter`'s lines.

        None if no request ended since then, or if the app uses neither SQLAlchemy nor Django.
        """
        return cls.summed(
            cls(
                counts=tuple(map(tuple, counts)),
                statements=tuple(Statement(text=text, place=place, count=count) for text, place, count in statements),
                outside=outside,
            )
            for from_ns, is_known, counts, statements, outside in map(json.loads, lines)
            if is_known and from_ns >= since_ns
        )


class QueryCounter:
    """Counts this process's queries. `tell` gets a line about each 50 ms in which requests ended."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._request: ContextVar[list[str] | None] = ContextVar("fileperf_request", default=None)
        self._from_ns = 0
        """When the current slice's first request ended."""
        self._ended: list[list[str]] = []
        """The statements of each request that ended in the current slice."""
        self._outside = itertools.count()  # safe for threads, unlike `+= 1`
        self._outside_seen = 0
        self._places: dict[str, tuple[str, str]] = {}
        """`Statement.text` and `Statement.place` by executed statement."""
        self._placed: set[str] = set()
        """Statements whose place is from this slice. An older place may be in a test's setup."""
        self._endings: dict[str, Callable[[], object]] = {}
        """By library: a function that removes the counter's hooks."""

    def around(self, app: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            if not self._ended:
                self._hook_new_libraries()
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            statements: list[str] = []
            before = self._request.set(statements)
            try:
                await app(scope, receive, send)
            finally:
                self._request.reset(before)
                if not self._ended:
                    self._from_ns = time.monotonic_ns()
                    asyncio.get_running_loop().call_later(SLICE_NS / 1e9, self._end_slice)
                self._ended.append(statements)

        return counted

    def close(self) -> None:
        for end in self._endings.values():
            end()

    def _end_slice(self) -> None:
        self._hook_new_libraries()  # the first request may have imported one
        ended, self._ended, self._placed = self._ended, [], set()
        counts, ran, before = Counter(map(len, ended)), Counter[tuple[str, str]](), self._outside_seen
        for statement, count in Counter(itertools.chain.from_iterable(ended)).items():
            ran[self._places.get(statement, ("", ""))] += count
        self._outside_seen = next(self._outside) + 1
        statements = [(text, place, count) for (text, place), count in ran.items() if text]
        outside = self._outside_seen - 1 - before
        self._tell(json.dumps((self._from_ns, bool(self._endings), [*counts.items()], statements, outside)))

    def _executed(self, statement: str) -> None:
        if statement == "BEGIN":  # only SQLite gets it as a statement of Django's; other drivers send it
            return
        request = self._request.get()
        if request is None:
            next(self._outside)
            return
        request.append(statement)
        if statement not in self._placed:
            self._placed.add(statement)
            # At most 500, because a statement with literals may be different in every request.
            if (known := self._places.get(statement)) is not None or len(self._places) < 500:
                self._places[statement] = (text_of(statement) if known is None else known[0], _users_line())

    def _hook_new_libraries(self) -> None:
        if "sqlalchemy" not in self._endings and "sqlalchemy.engine" in sys.modules:
            event, engine = (importlib.import_module(f"sqlalchemy.{name}") for name in ("event", "engine"))

            def executes(cursor: Any, statement: str, *_: object) -> None:
                self._executed(statement)

            # `before_cursor_execute` costs far more: each connection looks for its engine's listeners anew.
            hooks = [
                (engine.Engine, name, executes) for name in ("do_execute", "do_executemany", "do_execute_no_params")
            ]
            for hook in hooks:
                event.listen(*hook)
            self._endings["sqlalchemy"] = lambda: [event.remove(*hook) for hook in hooks]
        if "django" not in self._endings and "django.db" in sys.modules:
            connected = importlib.import_module("django.db.backends.signals").connection_created

            def wrapper(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
                self._executed(str(sql))
                return execute(sql, params, many, context)

            def wrap(connection: Any, **_: object) -> None:
                if getattr(connection, "fileperf_counter", None) is not self:
                    # The connection keeps the counter and the wrapper alive, until another counter replaces both.
                    connection.fileperf_counter, connection.fileperf_wrapper = self, None
                    connection.fileperf_wrapper = connection.execute_wrapper(wrapper)
                    connection.fileperf_wrapper.__enter__()

            connected.connect(wrap, weak=False)
            self._endings["django"] = lambda: connected.disconnect(wrap)
            for connection in importlib.import_module("django.db").connections.all(initialized_only=True):
                wrap(connection)


def text_of(statement: str) -> str:
    """Returns a statement as one line of at most 200 characters, without literals, which may be secret."""
    text = _NO_TEXT.sub(lambda found: "" if found[0].startswith(("/*", "--")) else "?", statement)
    text = " ".join(text.split())
    text = _QUOTED.sub(lambda found: found[0] if found[1] or found[2] else "?", text)
    text = re.sub(r"\(\?(?:, ?\?)+\)", "(?, …)", text)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _users_line() -> str:
    frame: FrameType | None = sys._getframe(2)
    greenlet = sys.modules.get("greenlet")
    waiting: Any = None if greenlet is None else greenlet.getcurrent()
    while frame is not None or waiting is not None:
        if frame is None:  # SQLAlchemy's asyncio engines run in a greenlet, whose parent awaits it
            waiting = waiting.parent
            frame = None if waiting is None else waiting.gr_frame
            continue
        code = frame.f_code
        if is_of_the_user(code.co_filename):
            path = Path(code.co_filename)
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
            return f"{shown.as_posix()}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""
