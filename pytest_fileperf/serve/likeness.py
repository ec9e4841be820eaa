"""Compares an ASGI app with the same app in another process, part by part, and copies parts between them.

A part has a place and a name. The place is empty for the app itself. It is `/api` for a mounted app, and `.app` for an
app in a wrapper. Names are, for example, `routes`, `dependency_overrides` and `state.db`.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias

# --- Descriptions of values that are equal in every process: without identities, addresses and the order of sets
#
# Each function describes values less closely than the one above it:
#
#     describe     Pool(name='orders-7', open=True)      all that distinguishes the value from other values
#     outline      Pool(name='orders-#')                 without the effects of time, chance and use
#     kind_of      shop.Pool                             its type

_LONGEST_TEXT = 200
_LONGEST = 4_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray)
_TEXTS = (str, bytes, bytearray)
_COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid='\d+'")
"""A memory address, such as `0x7f3a91c0`. Mocks write their address as `id='1234'`."""
_CHANCE = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}|\d+")
"""A UUID, a digest, a token or a number."""
_SECRET = ("secret", "password", "passwd", "token", "credential", "apikey", "api_key", "private")
FRAMEWORKS = ("django", "fastapi", "litestar", "quart", "starlette")
_OF_A_PROCESS = ("_asyncio", "_thread", "asyncio", "contextvars", "logging", "socket", "ssl", "threading", "weakref")
"""Packages whose objects differ in each process."""


def describe(value: object, *, is_outline: bool = False) -> str:
    """Returns a description that is equal in every process, such as `Pool(name='orders-7', open=True)`."""
    for depth in range(4, 0, -1):
        with suppress(_TooMuchError):
            return _short(_Describer(is_outline)(value, depth), _LONGEST)
    return f"{kind_of(value)} of {len(value) if isinstance(value, _COLLECTIONS) else 'many'}"


def outline(value: object) -> str:
    """Returns a description without numbers, flags, tokens, and most private attributes."""
    return describe(value, is_outline=True)


def kind_of(value: object) -> str:
    return name_of(value if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value))


def name_of(value: type | FunctionType | BuiltinFunctionType) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def named(name: str, text: str) -> str:
    """Returns `name=text`, with a digest in place of the text if the name suggests a secret."""
    return f"{name}=…{digest(text)}" if is_secret(name) and text[:1] in "'\"b" else f"{name}={text}"


def is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET)


class _TooMuchError(BaseException):
    """A description has too many values. This is a BaseException, so that `except Exception` does not catch it."""


class _Describer:
    def __init__(self, is_outline: bool) -> None:
        self._is_outline = is_outline
        self._left = 5_000  # values
        self._known: dict[tuple[int, int], tuple[object, str]] = {}
        """(object, description) by (id, depth). Keeping the objects keeps their ids from being reused."""

    def __call__(self, value: object, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError
        try:
            return self._described(value, depth)
        except Exception:  # a proxy may stand for an object that does not exist yet
            return name_of(type(value))

    def _described(self, value: object, depth: int) -> str:
        kind = type(value)
        if kind in _PLAIN:
            return self._plain(value)
        if isinstance(value, Enum):
            return name_of(kind) if self._is_outline else f"{name_of(kind)}.{value.name}"
        if isinstance(value, type | BuiltinFunctionType | ModuleType | FunctionType):
            return self._named(value, depth)
        if depth == 0:
            return name_of(kind)
        if isinstance(value, partial):
            given = [self(item, depth - 1) for item in value.args]
            keywords = sorted(named(name, self(item, depth - 1)) for name, item in value.keywords.items())
            return f"{self(value.func, depth - 1)}({', '.join((*given, *keywords))})"
        if isinstance(value, MethodType):
            return f"{self(value.__self__, depth - 1)}.{value.__name__}"
        if isinstance(value, _COLLECTIONS) and not hasattr(kind, "_fields"):
            own = "" if kind in _COLLECTIONS else self._attributes(kind, attributes_of(value), depth)
            return own + self._collection(value, depth)
        at = (id(value), depth)
        if at not in self._known:
            self._known[at] = value, self._object(value, depth)
        return self._known[at][1]

    def _plain(self, value: object) -> str:
        if isinstance(value, _TEXTS) and len(value) > _LONGEST:  # a long one takes seconds to write and to search
            shown = repr(value[:_LONGEST_TEXT])
            return f"{_CHANCE.sub('#', shown)}…" if self._is_outline else f"{shown}… ({digest(value)})"
        if not self._is_outline:
            return _short(repr(value), _LONGEST_TEXT)
        return _short(_CHANCE.sub("#", repr(value)), _LONGEST_TEXT) if type(value) in _TEXTS else "#"

    def _named(self, value: type | BuiltinFunctionType | ModuleType | FunctionType, depth: int) -> str:
        if isinstance(value, ModuleType):
            return value.__name__
        name = name_of(value)
        if not isinstance(value, FunctionType) or "<" not in name:
            return name
        inner = max(0, min(depth, 2) - 1)
        held = [named(variable, self(one, inner)) for variable, one in values_in(value).items()]
        line = inspect.unwrap(value).__code__.co_firstlineno
        return f"{name}:{line}" + (f"[{', '.join(sorted(held))}]" if held else "")

    def _collection(self, value: object, depth: int) -> str:
        if isinstance(value, dict):
            items = [self._item(key, item, depth - 1) for key, item in dict.items(value)]
            return "{" + ", ".join(sorted(items)) + "}"
        assert isinstance(value, list | tuple | set | frozenset | deque)
        inner = [self(item, depth - 1) for item in value]
        return f"({', '.join(sorted(inner) if isinstance(value, set | frozenset) else inner)})"

    def _item(self, key: object, value: object, depth: int) -> str:
        text = self(value, depth)
        return named(key, text) if isinstance(key, str) and is_secret(key) else f"{self(key, depth)}: {text}"

    def _object(self, value: object, depth: int) -> str:
        kind = type(value)
        if kind.__module__.partition(".")[0] in ("django", *_OF_A_PROCESS):  # some of Django's query the database
            return name_of(kind)
        if is_of_framework(value) and not {"routes", "router", "url_map"}.isdisjoint(attributes_of(value)):
            return name_of(kind)  # an app or a router, which is compared part by part
        if hasattr(kind, "get_secret_value"):  # pydantic's secrets, whose `repr` hides the value
            secret = repr(value.get_secret_value())  # type: ignore[attr-defined]
            return f"{name_of(kind)}({digest(secret)})"
        fields = _fields(value)
        if fields is not None or kind.__repr__ is object.__repr__:
            return self._attributes(kind, attributes_of(value) if fields is None else fields, depth)
        text = _sorted_in_braces(_ADDRESS.sub("…", repr(value)))
        if self._is_outline:
            return _short(_CHANCE.sub("#", text), _LONGEST)
        untold = [
            named(name, _short(repr(item), _LONGEST_TEXT))
            for name, item in sorted(attributes_of(value).items())
            if type(item) in _PLAIN and not name.startswith("_")
            if not re.search(rf"(?<!\w){re.escape(str(item))}(?!\w)", text)
        ]
        return _short(text, _LONGEST) + (f" with {', '.join(untold)}" if untold else "")

    def _attributes(self, kind: type, attributes: Mapping[str, object], depth: int) -> str:
        told = [
            named(name, self(value, depth - 1))
            for name, value in sorted(attributes.items())
            if not self._is_outline or _is_in_outline(name, value)
        ]
        return name_of(kind) + (f"({', '.join(told)})" if told else "")


def _is_in_outline(name: str, value: object) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return kind in _TEXTS
    has_text = kind.__repr__ is not object.__repr__ and not isinstance(value, (*_COLLECTIONS, Enum))
    return not name.startswith("_") or (has_text and not callable(value))


def _fields(value: object) -> Mapping[str, object] | None:
    """Returns the fields and values of a dataclass, named tuple, attrs or pydantic object. None for other objects."""
    kind = type(value)
    if isinstance(value, SimpleNamespace):
        return vars(value)
    for name in ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__", "model_fields", "_fields"):
        declared = inspect.getattr_static(kind, name, None)
        declared = getattr(kind, name) if isinstance(declared, property) else declared
        if isinstance(declared, Mapping | tuple):
            names = [str(getattr(field, "name", field)) for field in declared]
            return {field: getattr(value, field) for field in names if hasattr(value, field)}
    return None


def attributes_of(value: object) -> dict[str, object]:
    """Returns an object's attributes and slots, without evaluating properties."""
    found: dict[str, object] = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):  # a slot
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # it is empty
                    continue
    return found | _dictionary_of(value)


def _dictionary_of(value: object) -> dict[str, object]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _sorted_in_braces(text: str) -> str:
    """Sorts the items in braces, because a set's order differs between processes."""
    while (found := re.search(r"\{([^{}]*)\}", text)) is not None:
        text = f"{text[: found.start()]}\0{', '.join(sorted(found[1].split(', ')))}\1{text[found.end() :]}"
    return text.replace("\0", "{").replace("\1", "}")


def _short(text: str, longest: int) -> str:
    """Cuts a long text, and adds a digest, so that texts with the same start still differ."""
    return text if len(text) <= longest else f"{text[:longest]}… ({digest(text)})"


def digest(text: str | bytes | bytearray) -> str:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:8]


# --- Values in an app: its attributes. If the app is a function: its arguments and the outer function's variables


def settable_in(node: object) -> dict[str, object]:
    """Returns an app's `__dict__`. Functions and classes give an empty one."""
    return {} if isinstance(node, type | FunctionType | MethodType | partial) else _dictionary_of(node)


def values_in(node: object) -> dict[str, object]:
    """Returns values in an app, by name: its attributes, a `partial`'s arguments, or a function's closure variables."""
    if isinstance(node, MethodType):
        return {}
    if isinstance(node, partial):
        given = {f"argument {number}": value for number, value in enumerate(node.args)}
        return {**values_in(node.func), **given, **node.keywords}
    if isinstance(node, FunctionType):
        held = {}
        for name, cell in zip(node.__code__.co_freevars, node.__closure__ or (), strict=True):
            with suppress(ValueError):  # the variable has no value yet
                held[name] = cell.cell_contents
        return held
    return {} if isinstance(node, type) else attributes_of(node)


def is_of_framework(node: object) -> bool:
    return any(kind.__module__.partition(".")[0] in FRAMEWORKS for kind in type(node).__mro__)


def takes(function: object, count: int) -> bool | None:
    """Whether a callable accepts `count` positional arguments. None if the callable has no readable signature."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]  # a TypeError says that it is not callable
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


# --- The parts of an app and of all apps in it: described, sent to a server, and set there

Part: TypeAlias = tuple[str, str]
"""A part's place and name, such as `("/api", "routes")`."""
Parts: TypeAlias = Mapping[Part, tuple[str, ...]]
"""Descriptions of the values in each part. Parts without values are left out."""

MISSING = object()

EXACTLY, OUTLINE, KIND = range(3)
"""How closely parts are described: by `describe`, `outline` or `kind_of`."""
View: TypeAlias = Callable[[object], str]

_OF_ROUTER = ("on_startup", "on_shutdown", "default")
"""Attributes that Starlette and FastAPI keep on the app's router. Litestar keeps the first two on the app itself."""
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
    *_OF_ROUTER,
)
"""Attributes that are one part each, with all their items."""
_INNER = ("app", "_app", "application", "_application", "asgi", "_asgi", "asgi_app", "_asgi_app", "wsgi_app", "wrapped")
"""Names of attributes in which wrappers keep the app that they wrap."""
_FOUND_LATER = ("config_checked", "openapi_schema", "middleware_stack")
"""Attributes that an app sets when it answers its first requests."""


@dataclass(frozen=True, slots=True)
class Likeness:
    views: tuple[Parts, Parts, Parts]
    """Three descriptions of the app's parts, at the indexes `EXACTLY`, `OUTLINE` and `KIND`."""

    @property
    def parts(self) -> Parts:
        return self.views[EXACTLY]

    def agrees(self, other: Likeness, part: Part, view: int = EXACTLY) -> bool:
        return self.views[view].get(part) == other.views[view].get(part)

    def differing(self, other: Likeness) -> tuple[Part, ...]:
        return tuple(part for part in sorted({*self.parts, *other.parts}) if not self.agrees(other, part))


def likeness_of(app: object) -> Likeness:
    nodes = tuple(places(app))
    exactly, in_outline, kinds = (
        {(where, name): entries for where, node in nodes for name, entries in _parts(node, view) if entries}
        for view in (describe, outline, kind_of)
    )
    return Likeness((exactly, in_outline, kinds))


def places(app: object) -> Iterator[tuple[str, object]]:
    """Yields pairs of place and app: the app itself, mounted apps, and apps in wrappers."""
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
    """Returns a part's value in one app (`node`), or MISSING."""
    kind, _, key = name.partition(".")
    holder = _holder(node, kind)
    if key:
        return MISSING if holder is None else holder.get(key, MISSING)
    if kind == "lifespan":
        return getattr(getattr(node, "router", None), "lifespan_context", MISSING)
    return settable_in(_owner(node, name)).get(name, MISSING)


def values_to_send(app: object, parts: Parts) -> dict[Part, object]:
    """Returns the values of the test's app that can be set on the server's app, by part."""
    nodes = list(places(app))
    # Even empty mappings and lists, because the server's app may have items in them.
    found = [(where, name) for where, node in nodes for name in _WHOLE if isinstance(part_of(node, name), dict | list)]
    found += [part for part in parts if part[1].startswith(("attribute.", "config.", "state."))]
    for where, node in nodes:
        for name in ("lifespan", "default"):
            value = part_of(node, name)
            owner = value.__self__ if isinstance(value, MethodType) else value
            # The framework's own values are not sent, because they refer to the whole app.
            if not type(owner).__module__.startswith(("starlette.", "fastapi.")):
                found.append((where, name))
    at = dict(nodes)
    return {part: value for part in found if (value := part_of(at[part[0]], part[1])) is not MISSING}


def set_part(node: object, name: str, value: object) -> None:
    """Sets a part's value in one app (`node`). The value MISSING removes an item such as `state.db`."""
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
        setattr(_owner(node, name), name, value)


def _owner(node: object, name: str) -> object:
    router = settable_in(node).get("router")
    return router if name in _OF_ROUTER and name in settable_in(router) else node


def is_item(name: str) -> bool:
    """Whether a part is an item of `state`, or an attribute of a hand-written app. Lifespans usually set such parts."""
    return name.startswith(("state.", "attribute."))


def state_of(node: object) -> dict[str, object] | None:
    """Returns the dict in which an app's `state` keeps its items. None for an app without such a state."""
    try:
        held = object.__getattribute__(getattr(node, "state", None), "_state")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def _parts(node: object, view: View) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "type", (describe(node) if isinstance(node, type) else _kind_of_app(node),)
    routes = tuple(_routes(getattr(node, "routes", None) or (), "", view))
    yield "routes", tuple(sorted(routes)) if type(node).__module__.startswith("litestar.") else routes
    rules: Iterable[Any] = getattr(getattr(node, "url_map", None), "iter_rules", tuple)()  # Quart's
    yield "routes by rule", tuple(f"{','.join(sorted(one.methods or ()))} {one.rule} {one.endpoint}" for one in rules)
    for name in _WHOLE:
        yield name, _entries(part_of(node, name), view)
    lifespan = part_of(node, "lifespan")
    if lifespan is not MISSING:
        yield "lifespan", (view(lifespan),)
    for kind in ("state", "config"):
        for key, value in (_holder(node, kind) or {}).items():
            yield f"{kind}.{key}", (view(value),)
    others = {*_WHOLE, *_FOUND_LATER, *(name for name, _ in _inner(node)), "config", "router", "state"}
    kind = "attribute" if settable_in(node) else "held"
    for name, value in values_in(node).items():
        if name not in others and _distinguishes(node, name, value):
            yield f"{kind}.{name}", (view(value),)


def _kind_of_app(node: object) -> str:
    if isinstance(node, partial):
        return f"partial of {_kind_of_app(node.func)}"
    if isinstance(node, MethodType):
        return f"{name_of(type(node.__self__))}.{node.__name__}"
    if isinstance(node, FunctionType) and "<" in node.__qualname__:
        return f"{kind_of(node)}:{node.__code__.co_firstlineno}"
    return kind_of(node)


def _distinguishes(node: object, name: str, value: object) -> bool:
    """In a framework's app, most attributes are internal, and do not distinguish apps."""
    if not is_of_framework(node):
        return True
    has_routes = hasattr(node, "routes") or hasattr(node, "url_map")
    return not name.startswith("_") and (isinstance(value, bool | int | str | PurePath) or not has_routes)


def _entries(value: object, view: View) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        # Empty items don't count: a defaultdict gets an empty list for each key that is looked up.
        items = ((key, item) for key, item in value.items() if not (isinstance(item, Sized) and len(item) == 0))
        return tuple(sorted(f"{describe(key)} → {view(item)}" for key, item in items))
    if isinstance(value, list | tuple):
        return tuple(_middleware(item, view) for item in value)
    return () if value is MISSING or value is None else (view(value),)


def _middleware(value: object, view: View) -> str:
    """Describes Starlette's `Middleware` with all its arguments. Its `__repr__` shows only some of them."""
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
    held = settable_in(route)
    base, app = held.get("_base_app"), held.get("app")
    while app is not base and app is not None and not isinstance(app, type | FunctionType):
        attributes = values_in(app)
        options = (named(name, view(value)) for name, value in sorted(attributes.items()) if name != "app")
        if "app" in attributes:
            yield f"in {name_of(type(app))}({', '.join(options)})"
        app = attributes.get("app")


def _mounted(node: object) -> Iterator[tuple[str, object]]:
    routes = getattr(node, "routes", None)
    for route in routes if isinstance(routes, list | tuple) else ():
        held = settable_in(route)
        app = held.get("_base_app", held.get("app"))
        where = held.get("path", held.get("host"))
        if callable(app) and isinstance(where, str) and "endpoint" not in held:
            yield where or "/", app


def _inner(node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, MethodType):
        yield "__self__", node.__self__
    of_framework = is_of_framework(node)
    for name, value in values_in(node).items():
        if name in _FOUND_LATER or (of_framework and name not in _INNER):
            continue
        if callable(value) and (name in _INNER or _is_app(value)):
            yield name, value
        elif not of_framework and isinstance(value, dict | list | tuple):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}[{key!r}]", item) for key, item in items if _is_app(item))


def _is_app(value: object) -> bool:
    """Whether a value is surely an ASGI app, by its framework or by its parameters' names."""
    if not callable(value) or isinstance(value, type) or takes(value, 3) is not True:
        return False
    return is_of_framework(value) or [*inspect.signature(value).parameters][:3] == ["scope", "receive", "send"]


def _holder(node: object, kind: str) -> MutableMapping[str, object] | None:
    """Returns the mapping in which an app keeps parts of this kind. The kind of `state.db` is `state`."""
    if kind == "state":
        return state_of(node)
    if kind == "attribute":
        return settable_in(node)
    config = settable_in(node).get("config")
    return config if kind == "config" and isinstance(config, dict) and is_of_framework(node) else None
