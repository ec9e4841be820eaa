"""Takes an app apart into parts that can be compared between processes, and set.

A part is found by where it is (empty for the app itself, `/api` for what is mounted there, `.app` for what a wrapper
holds) and its name: `routes`, `dependency_overrides`, `state.db`. It is described by its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from types import FunctionType, MethodType
from typing import TypeAlias

from pytest_fileperf.serve.described import describe, name_of

__all__ = (
    "MISSING",
    "Part",
    "Parts",
    "is_item",
    "part_of",
    "parts_of",
    "places",
    "set_part",
    "state_of",
    "tell_difference",
    "told",
)

Part: TypeAlias = tuple[str, str]
"""Where it is, and its name."""
Parts: TypeAlias = Mapping[Part, tuple[str, ...]]
"""The entries of each part, without parts that have none."""

MISSING = object()
"""In place of a value that is not there."""

_WHOLE = (
    "dependency_overrides",
    "exception_handlers",
    "user_middleware",
    "view_functions",
    "error_handler_spec",
    "before_request_funcs",
    "after_request_funcs",
)
"""Attributes of frameworks' apps, mappings and lists, that are set as a whole."""
_FRAMEWORKS = ("django", "fastapi", "litestar", "quart", "starlette")
_SCALARS = (bool, int, str)
_FOUND_LATER = ("config_checked", "openapi_schema")
"""Attributes that an app sets when it answers its first requests."""
_MOST_TOLD = 3
_LONGEST_TOLD = 100
_SECRET = ("secret", "password", "passwd", "token", "credential", "apikey", "api_key", "private")


def places(app: object) -> Iterator[tuple[str, object]]:
    """Yields the app, the apps that are mounted in it, and those in wrappers, each with where it is."""
    waiting, seen = [("", app)], set[int]()
    while waiting:
        where, node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield where, node
        inner = _attributes(node).get("app")
        if callable(inner):
            waiting.append((f"{where}.app", inner))
        waiting += ((where + path, mounted) for path, mounted in _mounted(node))


def parts_of(app: object) -> dict[Part, tuple[str, ...]]:
    """Returns the parts of the app and of all apps in it."""
    found: dict[Part, tuple[str, ...]] = {}
    for where, node in places(app):
        found |= {(where, name): entries for name, entries in _parts(node) if entries}
    return found


def part_of(node: object, name: str) -> object:
    """Returns the value of a part of one app that can be set; MISSING where there is none."""
    kind, _, key = name.partition(".")
    holder = _holder(node, kind)
    if key:
        return MISSING if holder is None else holder.get(key, MISSING)
    if kind == "lifespan":
        return getattr(getattr(node, "router", None), "lifespan_context", MISSING)
    return _attributes(node).get(name, MISSING)


def set_part(node: object, name: str, value: object) -> None:
    """Sets a part of one app, in place where others may hold it; MISSING removes it."""
    kind, _, key = name.partition(".")
    if key:
        holder = _holder(node, kind)
        if value is not MISSING and holder is not None:
            holder[key] = value
        elif holder is not None:
            holder.pop(key, None)
        return
    there = part_of(node, name)
    if kind == "lifespan":
        node.router.lifespan_context = value  # type: ignore[attr-defined]  # that is where it was found
    elif isinstance(there, MutableMapping) and isinstance(value, Mapping):
        there.clear()
        there.update(value)
    elif isinstance(there, MutableSequence) and isinstance(value, list):
        there[:] = value
    else:
        setattr(node, name, value)


def is_item(name: str) -> bool:
    """Returns whether a lifespan sets such parts: items of the state, and attributes of an app without a framework."""
    return name.startswith(("state.", "attribute."))


def state_of(node: object) -> dict[str, object] | None:
    """Returns what an app's `state` holds, where that is one as Starlette's and Litestar's."""
    try:
        held = object.__getattribute__(getattr(node, "state", None), "_state")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def tell_difference(part: Part, mine: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    """Returns in words how a part of the test's app differs from that of the one that the server imports."""
    where, title = f" at {part[0]}" if part[0] else "", part[1].removeprefix("attribute.")
    only_mine = told(part, tuple(entry for entry in mine if entry not in theirs))
    only_theirs = told(part, tuple(entry for entry in theirs if entry not in mine))
    if not theirs:
        return f"the test's app{where} has {title} {only_mine}, the one that the server imports has none"
    if only_mine and only_theirs:
        return f"the test's app{where} has {title} {only_mine}, the one that the server imports has {only_theirs}"
    if only_mine:
        return f"the test's app{where} has {title} {only_mine}, which the one that the server imports lacks"
    if only_theirs:
        return f"the test's app{where} lacks {title} {only_theirs}, which the one that the server imports has"
    return f"the test's app{where} has its {title} in another order than the one that the server imports"


def told(part: Part, entries: tuple[str, ...]) -> str:
    """Returns the entries of a part for a message, without secrets."""
    if entries and any(word in part[1].lower() for word in _SECRET):
        return "another one"
    shown = ", ".join(
        entry if len(entry) <= _LONGEST_TOLD else f"{entry[:_LONGEST_TOLD]}…" for entry in entries[:_MOST_TOLD]
    )
    return f"{shown} and {len(entries) - _MOST_TOLD} more" if len(entries) > _MOST_TOLD else shown


def _parts(node: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "type", (describe(node) if isinstance(node, type | FunctionType | MethodType) else name_of(type(node)),)
    routes = tuple(_routes(getattr(node, "routes", None) or (), ""))
    yield "routes", tuple(sorted(routes)) if type(node).__module__.startswith("litestar.") else routes
    yield "routes by rule", tuple(_rules(node))
    attributes = _attributes(node)
    for name in _WHOLE:
        yield name, _entries(attributes.get(name))
    lifespan = part_of(node, "lifespan")
    if lifespan is not MISSING:
        yield "lifespan", (describe(lifespan),)
    for kind in ("state", "config"):
        for key, value in (_holder(node, kind) or {}).items():
            yield f"{kind}.{key}", (describe(value),)
    framework = _is_of_framework(node)
    for name, value in attributes.items():
        if framework and (type(value) not in _SCALARS or name.startswith("_") or name in _FOUND_LATER):
            continue
        if name not in (*_WHOLE, "app", "config", "router", "state"):
            yield f"attribute.{name}", (describe(value),)


def _entries(value: object) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(sorted(f"{describe(key)} → {describe(item)}" for key, item in value.items()))
    if not isinstance(value, list | tuple):
        return ()
    return tuple(map(_middleware, value))


def _middleware(value: object) -> str:
    """Returns the class and the arguments of a middleware of Starlette's, which tells only names."""
    if not all(hasattr(value, name) for name in ("cls", "args", "kwargs")):
        return describe(value)
    kind, args, kwargs = (getattr(value, name) for name in ("cls", "args", "kwargs"))
    named = (f"{name}={describe(item)}" for name, item in sorted(kwargs.items()))
    return f"{describe(kind)}({', '.join((*map(describe, args), *named))})"


def _routes(routes: object, prefix: str) -> Iterator[str]:
    for route in routes if isinstance(routes, list | tuple) else ():
        included = getattr(route, "original_router", None)
        if included is not None:
            inner = getattr(getattr(route, "include_context", None), "prefix", "")
            yield from _routes(getattr(included, "routes", ()), f"{prefix}{inner}")
            continue
        methods = ",".join(sorted(map(str, getattr(route, "methods", None) or ())))
        handlers = getattr(route, "route_handlers", None) or (getattr(route, "route_handler", None),)
        found = (getattr(route, "endpoint", None), *(getattr(handler, "fn", None) for handler in handlers))
        names = " ".join(sorted(describe(handler) for handler in found if handler is not None))
        path = getattr(route, "path", None) or getattr(route, "host", None) or name_of(type(route))
        yield " ".join(filter(None, (methods, f"{prefix}{path}", names)))


def _rules(node: object) -> Iterator[str]:
    """Yields the routes of Quart."""
    rules = getattr(getattr(node, "url_map", None), "iter_rules", None)
    for rule in rules() if callable(rules) else ():
        yield f"{','.join(sorted(rule.methods or ()))} {rule.rule} {rule.endpoint}"


def _mounted(node: object) -> Iterator[tuple[str, object]]:
    routes = getattr(node, "routes", None)
    for route in routes if isinstance(routes, list | tuple) else ():
        held = _attributes(route)
        app = held.get("_base_app", held.get("app"))
        where = held.get("path", held.get("host"))
        if callable(app) and isinstance(where, str) and "endpoint" not in held:
            yield where or "/", app


def _holder(node: object, kind: str) -> MutableMapping[str, object] | None:
    """Returns what holds the items of a kind of part."""
    if kind == "state":
        return state_of(node)
    if kind == "attribute":
        return _attributes(node)
    config = _attributes(node).get("config")
    return config if kind == "config" and isinstance(config, dict) and _is_of_framework(node) else None


def _attributes(node: object) -> dict[str, object]:
    """Returns the attributes of an app; none of a function, a class, or an object that has no dictionary."""
    if isinstance(node, type | FunctionType | MethodType):
        return {}
    try:
        found = object.__getattribute__(node, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_of_framework(node: object) -> bool:
    return any(kind.__module__.partition(".")[0] in _FRAMEWORKS for kind in type(node).__mro__)
