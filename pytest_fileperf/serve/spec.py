"""Which server to boot and how: plain values that `launch` turns into running servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.loopback import is_loopback
from pytest_fileperf.units import parse_duration_ns

__all__ = ("SERVER_NAMES", "InProcess", "ServerSpec", "Url", "Uvicorn", "parse_server")

LOOPS = ("auto", "uvloop", "asyncio")
HTTP_IMPLEMENTATIONS = ("auto", "httptools", "h11")
_YES_OR_NO = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class InProcess:
    """The app runs in the test process, behind a streaming ASGI transport with lifespan: no sockets, no HTTP parsing.

    Good for finding out what the app alone costs; its figures never compare with those of a served app.
    """


@dataclass(frozen=True, slots=True)
class Uvicorn:
    """Real uvicorn processes on a free port of the loopback interface. Raises PlanError that names every bad value."""

    workers: int = 1
    loop: str = "auto"
    """`uvloop` or `asyncio`; `auto` is uvloop where it is installed."""
    http: str = "auto"
    """`httptools` or `h11`; `auto` is httptools where it is installed."""
    port: int = 0
    """0 takes a free one. A fixed port can be booted once at a time, so its runs have a single boot."""
    stabilise: bool = True
    """Boot with a fixed hash seed, fixed addresses and fixed allocator settings, so that two boots behave alike."""
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 10.0
    env: tuple[tuple[str, str], ...] = field(default=())
    """Environment variables for the server, as pairs."""

    def __post_init__(self) -> None:
        __tracebackhide__ = True
        problems = []
        if not _is_whole(self.workers) or self.workers < 1:
            problems.append(f"workers={self.workers!r} must be a whole number, 1 or more")
        if self.loop not in LOOPS:
            problems.append(f"loop={self.loop!r} is unknown: use one of {', '.join(LOOPS)}")
        if self.http not in HTTP_IMPLEMENTATIONS:
            problems.append(f"http={self.http!r} is unknown: use one of {', '.join(HTTP_IMPLEMENTATIONS)}")
        if not _is_whole(self.port) or not 0 <= self.port <= 65535:
            problems.append(f"port={self.port!r} must be a whole number from 0 (any free one) to 65535")
        for name in ("start_timeout_s", "stop_timeout_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                problems.append(f"{name}={value!r} must be a number of seconds above 0")
        if problems:
            raise PlanError(*problems, where="Uvicorn")


@dataclass(frozen=True, slots=True)
class Url:
    """A server that already runs, on this machine; raises PlanError for any other one."""

    url: str
    """`http://` or `https://`, a loopback host, a port, and possibly a path that every request starts with."""

    def __post_init__(self) -> None:
        __tracebackhide__ = True
        problem = _url_problem(self.url)
        if problem:
            raise PlanError(problem, where="Url")


ServerSpec: TypeAlias = InProcess | Uvicorn | Url
SERVER_NAMES = ("uvicorn", "inprocess")


def parse_server(text: str) -> ServerSpec:
    """Returns the server for `"uvicorn"`, `"inprocess"`, `"uvicorn:workers=2,loop=asyncio"` or an `http://` URL.

    Raises PlanError, naming every problem and what is valid, for anything else.
    """
    where = f"server {text!r}"
    if text.strip().startswith(("http://", "https://")):
        return Url(text.strip())
    name, colon, settings = text.strip().partition(":")
    if name == "uvicorn":
        return _parse_uvicorn(settings, where) if colon else Uvicorn()
    if name == "inprocess":
        if settings:
            raise PlanError(f"inprocess takes no settings, got {settings!r}", where=where)
        return InProcess()
    valid = f"{', '.join(SERVER_NAMES)} or an http:// URL on this machine"
    raise PlanError(f"unknown server {name!r}: use {valid}", where=where)


def _parse_uvicorn(text: str, where: str) -> Uvicorn:
    problems = []
    changes: dict[str, object] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in _UVICORN_KEYS:
            problems.append(f"unknown setting {key!r}: use {', '.join(_UVICORN_KEYS)}")
            continue
        field_name, parse = _UVICORN_KEYS[key]
        if field_name in changes:
            problems.append(f"{key} is given twice")
        try:
            changes[field_name] = parse(value) if equals else parse("")
        except ValueError as error:
            problems.append(f"{key}={value}: {error}")
    make: Callable[..., Uvicorn] = Uvicorn  # it checks the values itself, whatever their type
    try:
        spec = make(**changes)
    except PlanError as error:
        raise PlanError(*problems, *error.problems, where=where) from None
    if problems:
        raise PlanError(*problems, where=where)
    return spec


def _parse_whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("write a whole number")
    return int(text)


def _parse_yes_or_no(text: str) -> bool:
    if text.lower() not in _YES_OR_NO:
        raise ValueError("write yes or no")
    return _YES_OR_NO[text.lower()]


def _parse_seconds(text: str) -> float:
    return parse_duration_ns(text) / 1e9


_UVICORN_KEYS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "workers": ("workers", _parse_whole),
    "loop": ("loop", str),
    "http": ("http", str),
    "port": ("port", _parse_whole),
    "stabilise": ("stabilise", _parse_yes_or_no),
    "start_timeout": ("start_timeout_s", _parse_seconds),
    "stop_timeout": ("stop_timeout_s", _parse_seconds),
}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _url_problem(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{url!r} is not a server's address: write it like http://127.0.0.1:8000"
    try:
        port_problem = None if parts.port != 0 else "0 is no port"
    except ValueError as error:
        port_problem = str(error)
    if port_problem:
        return f"{url!r} is not a server's address: {port_problem}"
    if parts.query or parts.fragment or parts.username is not None:
        return f"{url!r} must end with its host, port or path: no user name, query or fragment"
    if not is_loopback(parts.hostname):
        return f"{url!r} is not on this machine: load only goes to this machine (127.0.0.0/8, ::1 or localhost)"
    return None
