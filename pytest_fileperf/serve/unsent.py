"""Says which object keeps a value from being sent to the server: what a function of the test holds, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType

from pytest_fileperf.serve.described import kind_of
from pytest_fileperf.serve.holding import held_in

__all__ = ("held_by", "why_unsent")

_DEEPEST = 5


def why_unsent(value: object, problem: Callable[[object], str]) -> str:
    """Returns why a value cannot be sent, by the names that its author gave; empty where it can.

    `problem` returns why an object cannot be sent by itself; empty where it can.
    """
    reason = problem(value)
    titles = [value.__qualname__] if isinstance(value, FunctionType) else []
    for _ in range(_DEEPEST):
        inner = next(((name, one, why) for name, one in held_by(value) if (why := problem(one))), None)
        if inner is None:
            break
        name, value, reason = inner
        if (title := _title(name, value)) not in titles:  # a decorator's function has the name of the one it holds
            titles.append(title)
    return f"{_told(titles)} cannot be sent ({reason})" if reason and titles else reason


def held_by(value: object) -> Iterator[tuple[str, object]]:
    """Yields what a function, a container or a middleware holds, each with its name; nothing of other objects."""
    if isinstance(value, Mapping):
        yield from (("", item) for item in value.values())
    elif isinstance(value, list | tuple):
        yield from (("", item) for item in value)
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, partial):
        yield from (("", item) for item in (value.func, *value.args))
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        yield from _held_by_function(value)
    elif all(hasattr(value, name) for name in ("cls", "args", "kwargs")):  # Starlette's middleware
        yield from (("", item) for item in value.args)  # type: ignore[attr-defined]  # it has them
        yield from value.kwargs.items()  # type: ignore[attr-defined]


def _held_by_function(value: FunctionType) -> Iterator[tuple[str, object]]:
    yield from held_in(value).items()
    for name in _names(value.__code__):
        if name in value.__globals__:
            yield name, value.__globals__[name]
    yield from (("", item) for item in value.__defaults__ or ())
    yield from (value.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    """Yields the names that the code, or that of functions in it, may look up among the globals."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _title(name: str, value: object) -> str:
    if isinstance(value, FunctionType):
        return value.__qualname__
    return f"{name} ({kind_of(value)})" if name else f"a {kind_of(value)}"


def _told(titles: list[str]) -> str:
    """Returns who holds what, such as `override holds Session (…), which`."""
    holder, *held = titles
    return " holds ".join((holder, ", which holds ".join(held))) + ", which" if held else holder
