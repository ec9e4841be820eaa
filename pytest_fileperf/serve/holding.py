"""What an app, a wrapper or a function holds: its attributes, what it has of an outer function, its arguments."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType

from pytest_fileperf.serve.described import FRAMEWORKS, attributes_of

__all__ = ("held_in", "is_of_framework", "settable_in")


def settable_in(node: object) -> dict[str, object]:
    """Returns the attributes that can be set; none of a function, a class, or an object that has no dictionary."""
    if isinstance(node, type | FunctionType | MethodType | partial):
        return {}
    try:
        found = object.__getattribute__(node, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def held_in(node: object) -> dict[str, object]:
    """Returns what an app holds: also what a function has of the outer one, and the arguments of a `partial`."""
    if isinstance(node, MethodType):
        return {}
    if isinstance(node, partial):
        given = {f"argument {number}": value for number, value in enumerate(node.args)}
        return {**held_in(node.func), **given, **node.keywords}
    if isinstance(node, FunctionType):
        held = {}
        for name, cell in zip(node.__code__.co_freevars, node.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is not filled yet
                held[name] = cell.cell_contents
        return held
    return {} if isinstance(node, type) else attributes_of(node)


def is_of_framework(node: object) -> bool:
    """Returns whether its class, or one that it is made from, is of a web framework."""
    return any(kind.__module__.partition(".")[0] in FRAMEWORKS for kind in type(node).__mro__)
