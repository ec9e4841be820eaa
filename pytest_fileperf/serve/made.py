"""Sends a test's changes of its app to the server, and says in words how the server's app differs.

Objects from importable modules are sent by name. Other objects are pickled with their contents.
"""

from __future__ import annotations

import importlib
import io
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import pairwise
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, NoneType

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.host.pickles import pickler
from pytest_fileperf.serve.likeness import (
    EXACTLY,
    KIND,
    OUTLINE,
    Likeness,
    Part,
    Parts,
    digest,
    is_secret,
    kind_of,
    likeness_of,
    places,
    values_in,
    values_to_send,
)

# --- Which object cannot be sent to the server, and which function of the test refers to it


def why_unsent(value: object, problem: Callable[[object], str]) -> str:
    """Returns why a value cannot be sent, with names from the test's code: `make holds lock, which …`."""
    reason = problem(value)
    titles = [value.__qualname__] if isinstance(value, FunctionType) else []
    for _ in range(5):
        inner = next(((name, one, why) for name, one in held_by(value) if (why := problem(one))), None)
        if inner is None:
            break
        name, value, reason = inner
        title = f"{name} ({kind_of(value)})" if name else f"a {kind_of(value)}"
        title = value.__qualname__ if isinstance(value, FunctionType) else title
        if title not in titles:  # a decorator's function has the decorated one's name
            titles.append(title)
    if not (reason and titles):
        return reason
    holder, *held = titles
    who = " holds ".join((holder, ", which holds ".join(held))) + ", which" if held else holder
    return f"{who} cannot be sent ({reason})"


def held_by(value: object) -> Iterator[tuple[str, object]]:
    """Yields the objects in a function, container or middleware, with their names if they have names."""
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
        yield from values_in(value).items()
        names = (name for name in _unsent_names(value.__code__) if name in value.__globals__)
        yield from ((name, value.__globals__[name]) for name in names)
        yield from (("", item) for item in value.__defaults__ or ())
        yield from (value.__kwdefaults__ or {}).items()
    elif all(hasattr(value, name) for name in ("cls", "args", "kwargs")):  # Starlette's middleware
        yield from (("", item) for item in value.args)  # type: ignore[attr-defined]  # it has them
        yield from value.kwargs.items()  # type: ignore[attr-defined]


def _unsent_names(code: CodeType) -> Iterator[str]:
    """Yields names of globals that the code, or an inner function, may use."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _unsent_names(inner)


# --- An app's description, and the values in it that can be sent

_NEED_NO_NAME = (
    *(type, FunctionType, BuiltinFunctionType, ModuleType),  # pickle knows their own
    *(NoneType, int, float, str, bytes, tuple, frozenset),  # equal in each process
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The app as the test made it."""

    likeness: Likeness
    values: bytes
    """A pickled mapping from parts to values. One pickle contains all parts, because parts may share objects."""
    unsent: Mapping[Part, str]
    """Parts that cannot be sent, with the reason."""
    has_run: bool
    """Whether the app's lifespan may have run in the test process, and may have set parts."""

    @property
    def parts(self) -> Parts:
        return self.likeness.parts

    @property
    def key(self) -> tuple[object, ...]:
        return (tuple(sorted(self.parts.items())), self.values)


def made_of(
    app: object, modules: Mapping[str, ModuleType], by_value: Callable[[], AbstractContextManager[None]]
) -> Made:
    """Returns the app as it is now: its description, and its pickled values.

    `modules` are the importable modules. In the block of `by_value()`, other modules' functions are pickled with their
    code.
    """
    likeness = likeness_of(app)
    values, names = values_to_send(app, likeness.parts), _importable_names(modules)
    with by_value():
        data, unsent = _sent(values, names)
    # Starlette makes this stack when the app is first called, by a test client or a server in this process.
    stacks = [vars(node)["middleware_stack"] for _, node in places(app) if hasattr(node, "user_middleware")]
    has_run = not stacks or any(stack is not None for stack in stacks)
    return Made(likeness=likeness, values=data, unsent=unsent, has_run=has_run)


def loaded(made: Made) -> Mapping[Part, object]:
    """Unpickles the test's values, by part, in the server's process. Raises AppLoadError."""
    try:
        values: dict[Part, object] = _Unpickler(io.BytesIO(made.values)).load()
    except Exception as error:  # unpickling imports and calls the user's code: whatever it raises is reported
        raise AppLoadError(
            f"the test's own settings on the app cannot be rebuilt in the server ({type(error).__name__}: {error}). "
            "Put them into a module that the server can import, or give a factory in one "
            '("package.module:make()")'
        ) from error
    return values


def _sent(values: Mapping[Part, object], names: Mapping[int, str]) -> tuple[bytes, dict[Part, str]]:
    try:
        return _pickled(dict(values), names), _lost_overrides(values, names)
    except Exception:  # some part does not pickle: each is tried
        unsent = _lost_overrides(values, names)
        for part, value in values.items():
            if why := why_unsent(value, lambda one: _problem(one, names)):
                unsent[part] = why
        return _pickled({part: value for part, value in values.items() if part not in unsent}, names), unsent


def _problem(value: object, names: Mapping[int, str]) -> str:
    try:
        _pickled(value, names)
    except Exception as error:  # pickling runs any __reduce__: whatever it raises is reported
        return str(error) or type(error).__name__
    return ""


def _lost_overrides(values: Mapping[Part, object], names: Mapping[int, str]) -> dict[Part, str]:
    """Returns parts whose dependency overrides would have no effect in the server, with the reason.

    FastAPI finds an override by the function in the route. A function that no module names would arrive as a copy.
    """
    return {
        part: f"no module has a name for {getattr(key, '__qualname__', type(key).__qualname__)}"
        for part, value in values.items()
        if part[1] == "dependency_overrides" and isinstance(value, Mapping)
        for key in value
        if not _is_found(key, names)
    }


def _is_found(key: object, names: Mapping[int, str]) -> bool:
    if isinstance(key, MethodType):
        return _is_found(key.__self__, names)
    if id(key) in names:
        return True
    found: object = sys.modules.get(getattr(key, "__module__", None) or "")
    for name in str(getattr(key, "__qualname__", "<none>")).split("."):
        found = getattr(found, name, None)
    return found is key


def _importable_names(modules: Mapping[str, ModuleType]) -> dict[int, str]:
    """Returns the names of all modules' globals, such as `package.module:name`, by the `id` of the named object."""
    found: dict[int, str] = {}
    for module_name, module in sorted(modules.items(), reverse=True):
        for name, value in list(vars(module).items()):
            kind = type(value)  # `isinstance` would make a proxy load its object
            nameless = kind is FunctionType and "<" in value.__qualname__
            if name.isidentifier() and not name.startswith("__") and (nameless or not issubclass(kind, _NEED_NO_NAME)):
                found[id(value)] = f"{module_name}:{name}"
    return found


def _pickled(value: object, names: Mapping[int, str]) -> bytes:
    class Pickler(pickler()):  # type: ignore[misc]  # untyped
        def persistent_id(self, value: object) -> str | None:
            return names.get(id(value))

    file = _Limited()
    Pickler(file).dump(value)
    return file.getvalue()


class _Limited(io.BytesIO):
    def write(self, data: object, /) -> int:
        if self.tell() > 16 << 20:  # that is data, and nothing that a test sets
            raise ValueError("it is larger than 16 MiB")
        return super().write(data)  # type: ignore[arg-type]  # bytes, of whatever kind


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str) -> object:
        module, _, attribute = name.partition(":")
        found: object = getattr(importlib.import_module(module), attribute)
        return found


# --- Why a part of the test's app differs from the server's import, in words
#
# Two imports of the same code, in processes of their own, show a part as the code alone makes it. If they agree with
# the test's app, the test has not set the part. Then the server's environment makes the difference, or chance does.

_MOST_TOLD, _LONGEST_TOLD = 3, 100
_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):((?!…)[^@/\s]+)@")
"""User and password in a URL, unless a digest has replaced the password."""


class Cause(Enum):
    TEST = "the test has set it"
    ENV = "the server's env sets it"
    CHANCE = "it differs at each import"
    TEST_AND_ENV = "both the test and the server's env set it"


def cause_of(part: Part, mine: Likeness, theirs: Likeness, imports: Sequence[Likeness], *, env: bool) -> Cause:
    """Returns why a part of the test's app (`mine`) differs from the server's (`theirs`).

    `imports` are more imports of the same code, in the test run's environment. They show how much imports differ by
    chance. `env` says whether the user gave the server environment variables.
    """
    if not imports:
        return Cause.TEST
    samples = (*imports, *(() if env else (theirs,)))
    for view in (EXACTLY, OUTLINE, KIND):
        if not all(one.agrees(other, part, view) for one, other in pairwise(samples)):
            continue
        if mine.agrees(samples[0], part, view):
            return Cause.ENV if env and view == EXACTLY else Cause.CHANCE
        both = env and view == EXACTLY and not theirs.agrees(samples[0], part)
        return Cause.TEST_AND_ENV if both else Cause.TEST
    return Cause.CHANCE


def tell_difference(
    part: Part, mine: tuple[str, ...], theirs: tuple[str, ...], *, other: str = "the server's app"
) -> str:
    where, title = f" at {part[0]}" if part[0] else "", part[1].removeprefix("attribute.").removeprefix("held.")
    # Passwords are removed before the entries are cut, so that no part of a password is left.
    mine, theirs = (tuple(map(_without_passwords, entries)) for entries in (mine, theirs))
    differing = [
        tuple(entry for entry in one if entry not in another) for one, another in ((mine, theirs), (theirs, mine))
    ]
    only_mine, only_theirs = (in_words(part, entries) for entries in _without_common_start(*differing))
    if not theirs:
        return f"the test's app{where} has {title} {only_mine}, but {other} has none"
    if only_mine and only_theirs:
        return f"the test's app{where} has {title} {only_mine}, but {other} has {only_theirs}"
    if only_mine:
        return f"the test's app{where} has {title} that {other} lacks: {only_mine}"
    if only_theirs:
        return f"{other} has {title} that the test's app{where} lacks: {only_theirs}"
    return f"the test's app{where} has its {title} in another order than {other}"


def in_words(part: Part, entries: tuple[str, ...]) -> str:
    if entries and is_secret(part[1]):
        return "another one"
    shown = ", ".join(
        entry if len(entry) <= _LONGEST_TOLD else f"{entry[:_LONGEST_TOLD]}…"
        for entry in map(_without_passwords, entries[:_MOST_TOLD])
    )
    return f"{shown} and {len(entries) - _MOST_TOLD} more" if len(entries) > _MOST_TOLD else shown


def _without_passwords(entry: str) -> str:
    """Returns the entry with digests in place of passwords, so that different passwords still differ."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:…{digest(found[2])}@", entry)


def _without_common_start(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not len(mine) == len(theirs) == 1:
        return mine, theirs
    same = next((at for at, (one, other) in enumerate(zip(mine[0], theirs[0], strict=False)) if one != other), 0)
    if same < 40:
        return mine, theirs
    cut = max(mine[0].rfind(mark, 0, same) for mark in ("(", " ", "{")) + 1
    name = mine[0].partition("(")[0]
    return (f"{name}(…{mine[0][cut:]}",), (f"{name}(…{theirs[0][cut:]}",)
