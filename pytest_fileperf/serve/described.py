"""Describes values in words that are equal in every process: never by identity, address or the order of a set.

There are three views of a value. What differs in a finer view may be equal in a coarser one:

    describe     Pool(name='orders-7', open=True)      everything that tells it from others
    outline      Pool(name='orders-#')                 without what time, chance and use change
    kind_of      shop.Pool                             its type
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import TypeAlias

__all__ = (
    "FRAMEWORKS",
    "View",
    "attributes_of",
    "describe",
    "is_secret",
    "kind_of",
    "name_of",
    "named",
    "outline",
)

View: TypeAlias = Callable[[object], str]

_LONGEST_TEXT = 200
_LONGEST = 4_000
_DEEPEST = 4
_MOST_VALUES = 5_000
"""A description of more ends at a smaller depth, so that it stays cheap."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray)
_TEXTS = (str, bytes, bytearray)
_COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid='\d+'")
"""Also how mocks show their identity."""
_CHANCE = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}|\d+")
"""A UUID, a digest or token, a number."""
_SECRET = ("secret", "password", "passwd", "token", "credential", "apikey", "api_key", "private")
_BRACES = re.compile(r"\{([^{}]*)\}")
FRAMEWORKS = ("django", "fastapi", "litestar", "quart", "starlette")
_OF_A_PROCESS = ("_asyncio", "_thread", "asyncio", "contextvars", "logging", "socket", "ssl", "threading", "weakref")
"""Modules whose objects tell what goes on in their process."""


def describe(value: object) -> str:
    """Returns what the value is: plain ones as they are written, functions by name, objects by their attributes.

    An object with a `__repr__` of its own tells it, without addresses. A function that was made inside another one is
    told apart by its line, and by what it holds of the outer one.
    """
    return _Describer.text(value, is_outline=False)


def outline(value: object) -> str:
    """Returns the description without numbers, flags, tokens, and most of what an object keeps to itself."""
    return _Describer.text(value, is_outline=True)


def kind_of(value: object) -> str:
    """Returns the name of a function or class, and of other values that of their type."""
    return name_of(value if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value))


def name_of(value: type | FunctionType | BuiltinFunctionType) -> str:
    """Returns the full name of a function or class."""
    return f"{value.__module__}.{value.__qualname__}"


def named(name: str, text: str) -> str:
    """Returns a value's description behind its name; of what has the name of a secret only a digest."""
    return f"{name}=…{_digest(text)}" if is_secret(name) and text[:1] in "'\"b" else f"{name}={text}"


def is_secret(name: str) -> bool:
    """Returns whether what has this name is not to be shown."""
    return any(word in name.lower() for word in _SECRET)


class _TooMuchError(Exception):
    """There are too many values to describe them so deep."""


class _Describer:
    """One description. An object that is met again at the same depth is not looked at again."""

    @classmethod
    def text(cls, value: object, *, is_outline: bool) -> str:
        """Returns the description, as deep as is cheap."""
        for depth in range(_DEEPEST, 0, -1):
            try:
                return _short(cls(is_outline)(value, depth), _LONGEST)
            except _TooMuchError:
                continue
        return f"{kind_of(value)} of {len(value) if isinstance(value, _COLLECTIONS) else 'many'}"

    def __init__(self, is_outline: bool) -> None:
        self._is_outline = is_outline
        self._left = _MOST_VALUES
        self._known: dict[tuple[int, int], str] = {}

    def __call__(self, value: object, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError
        try:
            return self._described(value, depth)
        except _TooMuchError:
            raise
        except Exception:  # some objects stand for others that are not there yet: their type is left
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
        return self._object(value, depth)

    def _plain(self, value: object) -> str:
        if isinstance(value, _TEXTS) and len(value) > _LONGEST:  # a long one takes seconds to write and to search
            shown = repr(value[:_LONGEST_TEXT])
            return f"{_CHANCE.sub('#', shown)}…" if self._is_outline else f"{shown}… ({_digest(value)})"
        if not self._is_outline:
            return _short(repr(value), _LONGEST_TEXT)
        return _short(_CHANCE.sub("#", repr(value)), _LONGEST_TEXT) if type(value) in _TEXTS else "#"

    def _named(self, value: type | BuiltinFunctionType | ModuleType | FunctionType, depth: int) -> str:
        if isinstance(value, ModuleType):
            return value.__name__
        name = name_of(value)
        if not isinstance(value, FunctionType) or "<" not in name:
            return name
        held = []
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                held.append(named(variable, self(cell.cell_contents, max(0, min(depth, 2) - 1))))
            except ValueError:  # it is not filled yet
                continue
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
        if isinstance(key, str) and is_secret(key):
            return named(key, text)
        return f"{self(key, depth)}: {text}"

    def _object(self, value: object, depth: int) -> str:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "django":  # some ask the database
            return name_of(kind)
        known = self._known.get((id(value), depth))
        if known is None:
            known = self._known[id(value), depth] = self._new_object(value, depth)
        return known

    def _new_object(self, value: object, depth: int) -> str:
        kind = type(value)
        if kind.__module__.partition(".")[0] in _OF_A_PROCESS or _is_framework_app(value):
            return name_of(kind)
        if hasattr(kind, "get_secret_value"):  # pydantic's: its text hides it
            secret = repr(value.get_secret_value())  # type: ignore[attr-defined]
            return f"{name_of(kind)}({_digest(secret)})"
        fields = _fields(value)
        if fields is not None or kind.__repr__ is object.__repr__:
            return self._attributes(kind, attributes_of(value) if fields is None else fields, depth)
        text = _in_order(_ADDRESS.sub("…", repr(value)))
        more = [] if self._is_outline else list(_untold(value, text))
        text = _CHANCE.sub("#", text) if self._is_outline else text
        return _short(text, _LONGEST) + (f" with {', '.join(more)}" if more else "")

    def _attributes(self, kind: type, attributes: Mapping[str, object], depth: int) -> str:
        told = [
            named(name, self(value, depth - 1))
            for name, value in sorted(attributes.items())
            if not self._is_outline or _is_in_outline(name, value)
        ]
        return name_of(kind) + (f"({', '.join(told)})" if told else "")


def _is_in_outline(name: str, value: object) -> bool:
    """Returns whether an attribute is told in outline: texts are, and of private ones what has a text of its own."""
    kind = type(value)
    if kind in _PLAIN:
        return kind in _TEXTS
    has_text = kind.__repr__ is not object.__repr__ and not isinstance(value, (*_COLLECTIONS, Enum))
    return not name.startswith("_") or (has_text and not callable(value))


def _is_framework_app(value: object) -> bool:
    """Returns whether it is an app or a router, which are compared part by part."""
    roots = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    held = attributes_of(value)
    return not roots.isdisjoint(FRAMEWORKS) and not {"routes", "router", "url_map"}.isdisjoint(held)


def _fields(value: object) -> Mapping[str, object] | None:
    """Returns the fields that a class declares for its values; None where it declares none."""
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
    """Returns what an object holds, without asking its properties."""
    found: dict[str, object] = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):  # a slot
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # it is empty
                    continue
    try:
        held: dict[str, object] = object.__getattribute__(value, "__dict__")
        return found | held
    except AttributeError:
        return found


def _untold(value: object, text: str) -> Iterator[str]:
    """Yields the plain public attributes of an object that its own text does not tell."""
    for name, item in sorted(attributes_of(value).items()):
        if not name.startswith("_") and type(item) in _PLAIN and not _is_in(str(item), text):
            yield named(name, _short(repr(item), _LONGEST_TEXT))


def _is_in(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _in_order(text: str) -> str:
    """Returns the text of an object with what stands in braces sorted: a set has another order in each process."""
    while (found := _BRACES.search(text)) is not None:
        text = f"{text[: found.start()]}\0{', '.join(sorted(found[1].split(', ')))}\1{text[found.end() :]}"
    return text.replace("\0", "{").replace("\1", "}")


def _short(text: str, longest: int) -> str:
    """Returns the text, or its beginning and what tells it from others that begin so."""
    return text if len(text) <= longest else f"{text[:longest]}… ({_digest(text)})"


def _digest(text: str | bytes | bytearray) -> str:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:8]
