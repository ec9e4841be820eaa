"""How servers are written as text, in options and ini values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.names import PORT
from pytest_fileperf.serve.spec import AsgiSpec, Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.units import parse_duration_ns

__all__ = ("SERVER_NAMES", "parse_server")

_Keys: TypeAlias = Mapping[str, tuple[str, Callable[[str], object]]]
"""Keys that may be written, each with its field and what parses it."""

SERVER_NAMES = ("uvicorn", "gunicorn", "inprocess", "command")
_YES_OR_NO = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def parse_server(text: str) -> ServerSpec:
    """Returns the server for `"uvicorn"`, `"gunicorn:workers=2,loop=asyncio"`, `"inprocess"`, or an `http://` URL.

    The rest of `"command:…"` is a command, split as a shell does. Raises PlanError, with every problem and what is
    valid, for any other text.
    """
    where = f"server {text!r}"
    if text.strip().startswith(("http://", "https://")):
        return Url(text.strip())
    name, _, rest = text.strip().partition(":")
    match name:
        case "uvicorn":
            return _parse_settings(Uvicorn, _UVICORN_KEYS, rest, where)
        case "gunicorn":
            return _parse_settings(Gunicorn, _GUNICORN_KEYS, rest, where)
        case "inprocess" if rest:
            raise PlanError(f"inprocess takes no settings, got {rest!r}", where=where)
        case "inprocess":
            return InProcess()
        case "command" if not rest.strip():
            raise PlanError(f"which one? Write it, as in command:python server.py --port {PORT}", where=where)
        case "command":
            return Command(rest)
    valid = f"{', '.join(SERVER_NAMES)} or an http:// URL on this machine"
    raise PlanError(f"unknown server {name!r}: use {valid}", where=where)


def _parse_settings(make: Callable[..., AsgiSpec], keys: _Keys, text: str, where: str) -> AsgiSpec:
    problems = []
    changes: dict[str, object] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in keys:
            problems.append(f"unknown setting {key!r}: use {', '.join(keys)}")
            continue
        field_name, parse = keys[key]
        if field_name in changes:
            problems.append(f"{key} is given twice")
        try:
            changes[field_name] = parse(value) if equals else parse("")
        except ValueError as error:
            problems.append(f"{key}={value}: {error}")
    try:
        spec = make(**changes)  # checks the values itself, whatever their type
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


_GUNICORN_KEYS: _Keys = {
    "workers": ("workers", _parse_whole),
    "loop": ("loop", str),
    "http": ("http", str),
    "access_log": ("access_log", _parse_yes_or_no),
    "stabilise": ("stabilise", _parse_yes_or_no),
    "start_timeout": ("start_timeout_s", _parse_seconds),
    "stop_timeout": ("stop_timeout_s", _parse_seconds),
}
_UVICORN_KEYS: _Keys = {**_GUNICORN_KEYS, "port": ("port", _parse_whole)}
