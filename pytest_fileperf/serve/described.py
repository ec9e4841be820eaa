"""Describes values in words that are equal in every process: never by identity or address."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

__all__ = ("describe", "name_of")

_LONGEST = 200
_DEEPEST = 4
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid='\d+'")
"""Also how mocks show their identity."""


def describe(value: object, depth: int = _DEEPEST) -> str:
    """Returns what the value is: plain ones as they are written, functions and classes by name, others by their type.

    An object with a `__repr__` of its own tells it, without addresses. A function that was made inside another one is
    told apart by its line, and by what it holds of the outer one.
    """
    try:
        return _described(value, depth)
    except Exception:  # some objects stand for others that are not there yet: their type is left
        return name_of(type(value))


def _described(value: object, depth: int) -> str:
    if type(value) in _PLAIN:
        return _short(repr(value))
    if isinstance(value, Enum):
        return f"{name_of(type(value))}.{value.name}"
    if depth == 0:
        return name_of(type(value))
    if isinstance(value, Mapping) and type(value).__repr__ is dict.__repr__:
        inner = sorted(f"{describe(key, depth - 1)}: {describe(item, depth - 1)}" for key, item in value.items())
        return _short("{" + ", ".join(inner) + "}")
    if type(value) in (list, tuple, set, frozenset):
        assert isinstance(value, list | tuple | set | frozenset)
        inner = [describe(item, depth - 1) for item in value]
        return _short(f"({', '.join(inner if isinstance(value, list | tuple) else sorted(inner))})")
    return _callable(value, depth) or _object(value)


def name_of(value: type | FunctionType | BuiltinFunctionType) -> str:
    """Returns the full name of a function or class."""
    return f"{value.__module__}.{value.__qualname__}"


def _callable(value: object, depth: int) -> str | None:
    match value:
        case type() | BuiltinFunctionType():
            return name_of(value)
        case ModuleType():
            return value.__name__
        case partial():
            given = tuple(describe(item, depth - 1) for item in value.args)
            named = sorted(f"{name}={describe(item, depth - 1)}" for name, item in value.keywords.items())
            return _short(f"{describe(value.func, depth - 1)}({', '.join((*given, *named))})")
        case MethodType():
            return f"{describe(value.__self__, depth - 1)}.{value.__name__}"
        case FunctionType():
            return _function(value, depth)
    return None


def _function(function: FunctionType, depth: int) -> str:
    name = name_of(function)
    code = inspect.unwrap(function).__code__
    if "<" not in name:
        return name
    held = []
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held.append(f"{variable}={describe(cell.cell_contents, min(depth, 2) - 1)}")
        except ValueError:  # it is not filled yet
            continue
    return _short(f"{name}:{code.co_firstlineno}" + (f"[{', '.join(sorted(held))}]" if held else ""))


def _object(value: object) -> str:
    kind = type(value)
    if kind.__repr__ is object.__repr__ or kind.__module__.partition(".")[0] == "django":  # some ask the database
        return name_of(kind)
    return _short(_ADDRESS.sub("…", repr(value)))


def _short(text: str) -> str:
    """Returns the text, or its beginning and what tells it from others that begin so."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{text[:_LONGEST]}… ({digest})"
