"""Takes an app apart into parts that can be compared between processes, and set.

A part is found by where it is (empty for the app itself, `/api` for what is mounted there, `.app` for what a wrapper
holds) and its name: `routes`, `dependency_overrides`, `state.db`. It is described by its entries.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import TypeAlias, TypeGuard

from pytest_fileperf.serve.described import View, describe, kind_of, name_of, named, outline
from pytest_fileperf.serve.holding import held_in, is_of_framework, settable_in
from pytest_fileperf.serve.loading import takes

__all__ = (
    "EXACTLY",
    "KIND",
    "MISSING",
    "OUTLINE",
    "Likeness",
    "Part",
    "Parts",
    "is_item",
    "likeness_of",
    "part_of",
    "parts_to_send",
    "places",
    "set_part",
    "state_of",
)

Part: TypeAlias = tuple[str, str]
"""Where it is, and its name."""
Parts: TypeAlias = Mapping[Part, tuple[str, ...]]
"""The entries of each part, without parts that have none."""

MISSING = object()
"""In place of a value that is not there."""

EXACTLY, OUTLINE, KIND = range(3)
"""The views of a part, from fine to coarse: in everything, without what time, chance and use change, types only."""
_VIEWS: tuple[View, ...] = (describe, outline, kind_of)

_ON_STARLETTE = ("on_startup", "on_shutdown", "default")
"""Attributes of the router of Starlette and FastAPI; Litestar has the first two itself."""
_WHOLE = (
    "dependency_overrides",
    "exception_handlers",
    "user_middleware",
    "view_functions",
    "error_handler_spec",
    "before_request_funcs",
    "after_request_funcs",
    "teardown_request_funcs",
    "before_serving_funcs",
    "after_serving_funcs",
    "while_serving_gens",
    "_lifespan_managers",
    *_ON_STARLETTE,
)
"""Attributes of frameworks' apps, most of them mappings and lists, that are set as a whole."""
_INNER = ("app", "_app", "application", "_application", "asgi", "_asgi", "asgi_app", "_asgi_app", "wsgi_app", "wrapped")
"""How the attributes are called by which frameworks' apps, and wrappers, hold what they wrap."""
_SCALARS = (bool, int, str, PurePath)
_FOUND_LATER = ("config_checked", "openapi_schema", "middleware_stack")
"""Attributes that an app sets when it answers its first requests."""
_ASGI = ["scope", "receive", "send"]


@dataclass(frozen=True, slots=True)
class Likeness:
    """What an app is like."""

    views: tuple[Parts, Parts, Parts]

    @property
    def parts(self) -> Parts:
        """Every part, exactly."""
        return self.views[EXACTLY]

    def agrees(self, other: Likeness, part: Part, view: int = EXACTLY) -> bool:
        """Returns whether both are alike in a part, as the view shows it."""
        return self.views[view].get(part) == other.views[view].get(part)

    def differing(self, other: Likeness) -> tuple[Part, ...]:
        """Returns the parts in which both differ."""
        return tuple(part for part in sorted({*self.parts, *other.parts}) if not self.agrees(other, part))


def likeness_of(app: object) -> Likeness:
    """Returns what an app is like, with all apps in it."""
    found: tuple[dict[Part, tuple[str, ...]], ...] = ({}, {}, {})
    for where, node in places(app):
        for parts, view in zip(found, _VIEWS, strict=True):
            parts.update({(where, name): entries for name, entries in _parts(node, view) if entries})
    return Likeness((found[EXACTLY], found[OUTLINE], found[KIND]))


def places(app: object) -> Iterator[tuple[str, object]]:
    """Yields the app, the apps that are mounted in it, and those in wrappers, each with where it is."""
    waiting, seen = [("", app)], set[int]()
    while waiting:
        where, node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield where, node
        waiting += ((f"{where}.{name}", inner) for name, inner in _inner(node))
        waiting += ((where + path, mounted) for path, mounted in _mounted(node))


def part_of(node: object, name: str) -> object:
    """Returns the value of a part of one app that can be set; MISSING where there is none."""
    kind, _, key = name.partition(".")
    holder = _holder(node, kind)
    if key:
        return MISSING if holder is None else holder.get(key, MISSING)
    if kind == "lifespan":
        return getattr(getattr(node, "router", None), "lifespan_context", MISSING)
    return settable_in(_with(node, name)).get(name, MISSING)


def parts_to_send(app: object, parts: Parts) -> Iterator[Part]:
    """Yields the parts that can be set; containers also where they are empty, as the server's may not be."""
    for where, node in places(app):
        yield from ((where, name) for name in _WHOLE if isinstance(part_of(node, name), dict | list))
    yield from (part for part in parts if part[1].startswith(("attribute.", "config.", "state.")))
    for where, node in places(app):
        # Starlette's own lifespan and 404 hold the whole app.
        yield from ((where, name) for name in ("lifespan", "default") if not _is_of_router(part_of(node, name)))


def _is_of_router(value: object) -> bool:
    owner = value.__self__ if isinstance(value, MethodType) else value
    return type(owner).__module__.startswith(("starlette.", "fastapi."))


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
        setattr(_with(node, name), name, value)


def _with(node: object, name: str) -> object:
    """Returns what has the attribute: the app, or its router."""
    router = settable_in(node).get("router")
    return router if name in _ON_STARLETTE and name in settable_in(router) else node


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


def _parts(node: object, view: View) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "type", (describe(node) if isinstance(node, type) else _kind_of_app(node),)
    routes = tuple(_routes(getattr(node, "routes", None) or (), "", view))
    yield "routes", tuple(sorted(routes)) if type(node).__module__.startswith("litestar.") else routes
    yield "routes by rule", tuple(_rules(node))
    for name in _WHOLE:
        yield name, _entries(part_of(node, name), view)
    lifespan = part_of(node, "lifespan")
    if lifespan is not MISSING:
        yield "lifespan", (view(lifespan),)
    for kind in ("state", "config"):
        for key, value in (_holder(node, kind) or {}).items():
            yield f"{kind}.{key}", (view(value),)
    inner = {name for name, _ in _inner(node)}
    kind = "attribute" if settable_in(node) else "held"
    for name, value in held_in(node).items():
        if name not in (*_WHOLE, *inner, *_FOUND_LATER, "config", "router", "state") and _is_told(node, name, value):
            yield f"{kind}.{name}", (view(value),)


def _kind_of_app(node: object) -> str:
    if isinstance(node, partial):
        return f"partial of {_kind_of_app(node.func)}"
    if isinstance(node, MethodType):
        return f"{name_of(type(node.__self__))}.{node.__name__}"
    return f"{kind_of(node)}:{node.__code__.co_firstlineno}" if _is_made_inside(node) else kind_of(node)


def _is_made_inside(node: object) -> TypeGuard[FunctionType]:
    return isinstance(node, FunctionType) and "<" in node.__qualname__


def _is_told(node: object, name: str, value: object) -> bool:
    """Returns whether an attribute of an app tells it from others: most of a framework's app are its own affair."""
    if not is_of_framework(node):
        return True
    return not name.startswith("_") and (isinstance(value, _SCALARS) or not _has_routes(node))


def _entries(value: object, view: View) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        # A defaultdict has empty lists for what was asked for.
        items = ((key, item) for key, item in value.items() if not (isinstance(item, Sized) and len(item) == 0))
        return tuple(sorted(f"{describe(key)} → {view(item)}" for key, item in items))
    if isinstance(value, list | tuple):
        return tuple(_middleware(item, view) for item in value)
    return () if value is MISSING or value is None else (view(value),)


def _middleware(value: object, view: View) -> str:
    """Returns the class and the arguments of a middleware of Starlette's, which tells only names."""
    if not all(hasattr(value, name) for name in ("cls", "args", "kwargs")):
        return view(value)
    kind, args, kwargs = (getattr(value, name) for name in ("cls", "args", "kwargs"))
    keywords = (named(name, view(item)) for name, item in sorted(kwargs.items()))
    return f"{describe(kind)}({', '.join((*map(view, args), *keywords))})"


def _routes(routes: object, prefix: str, view: View) -> Iterator[str]:
    for route in routes if isinstance(routes, list | tuple) else ():
        included = getattr(route, "original_router", None)
        if included is not None:
            inner = getattr(getattr(route, "include_context", None), "prefix", "")
            yield from _routes(getattr(included, "routes", ()), f"{prefix}{inner}", view)
            continue
        methods = ",".join(sorted(map(str, getattr(route, "methods", None) or ())))
        handlers = getattr(route, "route_handlers", None) or (getattr(route, "route_handler", None),)
        found = (getattr(route, "endpoint", None), *(getattr(handler, "fn", None) for handler in handlers))
        names = " ".join(sorted(view(handler) for handler in found if handler is not None))
        path = getattr(route, "path", None) or getattr(route, "host", None) or name_of(type(route))
        yield " ".join(filter(None, (methods, f"{prefix}{path}", names, *_wrappers(route, view))))


def _wrappers(route: object, view: View) -> Iterator[str]:
    """Yields the middleware of one route, with its options."""
    held = settable_in(route)
    base, app = held.get("_base_app"), held.get("app")
    while app is not base and app is not None and not isinstance(app, type | FunctionType):
        attributes = held_in(app)
        options = (named(name, view(value)) for name, value in sorted(attributes.items()) if name != "app")
        if "app" in attributes:
            yield f"in {name_of(type(app))}({', '.join(options)})"
        app = attributes.get("app")


def _rules(node: object) -> Iterator[str]:
    """Yields the routes of Quart."""
    rules = getattr(getattr(node, "url_map", None), "iter_rules", None)
    for rule in rules() if callable(rules) else ():
        yield f"{','.join(sorted(rule.methods or ()))} {rule.rule} {rule.endpoint}"


def _mounted(node: object) -> Iterator[tuple[str, object]]:
    routes = getattr(node, "routes", None)
    for route in routes if isinstance(routes, list | tuple) else ():
        held = settable_in(route)
        app = held.get("_base_app", held.get("app"))
        where = held.get("path", held.get("host"))
        if callable(app) and isinstance(where, str) and "endpoint" not in held:
            yield where or "/", app


def _inner(node: object) -> Iterator[tuple[str, object]]:
    """Yields the apps that a wrapper holds, by the names of its attributes."""
    if isinstance(node, MethodType):
        yield "__self__", node.__self__
    of_framework = is_of_framework(node)
    for name, value in held_in(node).items():
        if name in _FOUND_LATER or (of_framework and name not in _INNER):
            continue
        if callable(value) and (name in _INNER or _is_app(value)):
            yield name, value
        elif not of_framework and isinstance(value, dict | list | tuple):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}[{key!r}]", item) for key, item in items if _is_app(item))


def _is_app(value: object) -> bool:
    """Returns whether it is an ASGI app for certain: of a framework, or by the names of its parameters."""
    if not callable(value) or isinstance(value, type) or takes(value, 3) is not True:
        return False
    return is_of_framework(value) or list(inspect.signature(value).parameters)[:3] == _ASGI


def _holder(node: object, kind: str) -> MutableMapping[str, object] | None:
    """Returns what holds the items of a kind of part."""
    if kind == "state":
        return state_of(node)
    if kind == "attribute":
        return settable_in(node)
    config = settable_in(node).get("config")
    return config if kind == "config" and isinstance(config, dict) and is_of_framework(node) else None


def _has_routes(node: object) -> bool:
    return hasattr(node, "routes") or hasattr(node, "url_map")
