"""An app object as the test made it: its description, and its parts by value, for a server that imports the app.

References to objects that an importable module holds are sent as such, so that the server's own are used.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import BinaryIO

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.likeness import MISSING, Likeness, Part, Parts, likeness_of, part_of, parts_to_send, places
from pytest_fileperf.serve.unsent import why_unsent

__all__ = ("Made", "loaded", "made_of")

_FILE = "made.pickle"
_MOST_BYTES = 16 << 20
"""More is data, and not something that a test sets."""
_BY_THEMSELVES = (
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    type(None),
    bool,
    int,
    float,
    str,
    bytes,
    tuple,
    frozenset,
)
"""What is sent by its own name, or is equal wherever it is. Other globals are sent as references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An app object, as the test made it."""

    likeness: Likeness
    values: bytes
    """The parts that can be sent: a pickled mapping of part to value. One pickle, so that parts can share objects."""
    unsent: Mapping[Part, str]
    """Why the other parts cannot be sent."""
    has_run: bool
    """Whether a lifespan may have run on it in the test process, and have set what it holds."""
    binding: bool = True
    """Whether the server's app has to be like it: not where it has the code of another version."""

    @property
    def parts(self) -> Parts:
        """The entries of each part."""
        return self.likeness.parts

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for apps that can share a server."""
        return (tuple(sorted(self.parts.items())), self.values)

    def write(self, run_directory: Path) -> None:
        """Puts it into the run directory."""
        (run_directory / _FILE).write_bytes(pickle.dumps(self))

    @classmethod
    def read(cls, run_directory: Path) -> Made | None:
        """Returns what is in the run directory; None where there is none."""
        try:
            data = (run_directory / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        made: Made = pickle.loads(data)  # noqa: S301 # written by the test process for us
        return made


def made_of(
    app: object, modules: Mapping[str, ModuleType], by_value: Callable[[], AbstractContextManager[None]]
) -> Made:
    """Returns the app as it is now.

    `modules` are those that another process can import; within `by_value`, the code of others is sent by value.
    """
    nodes = dict(places(app))
    likeness = likeness_of(app)
    values = {
        part: value
        for part in parts_to_send(app, likeness.parts)
        if (value := part_of(nodes[part[0]], part[1])) is not MISSING
    }
    names = _names(modules)
    with by_value():
        data, unsent = _sent(values, names)
    # Starlette makes this stack when it is first called, by a test client or a server in this process.
    stacks = [vars(node)["middleware_stack"] for node in nodes.values() if hasattr(node, "user_middleware")]
    has_run = not stacks or any(stack is not None for stack in stacks)
    return Made(likeness=likeness, values=data, unsent=unsent, has_run=has_run)


def loaded(made: Made) -> Mapping[Part, object]:
    """Returns the values of the parts that were sent, in the server's process. Raises AppLoadError."""
    try:
        values: dict[Part, object] = _Unpickler(io.BytesIO(made.values)).load()
    except Exception as error:  # unpickling imports and calls the user's code: whatever it raises is reported
        raise AppLoadError(
            f"what the test has set on the app cannot be rebuilt in the server ({type(error).__name__}: {error})"
        ) from error
    return values


def _sent(values: Mapping[Part, object], names: Mapping[int, str]) -> tuple[bytes, dict[Part, str]]:
    try:
        return _pickled(dict(values), names), _lost_keys(values, names)
    except Exception:  # some part does not pickle: each is tried
        unsent = _lost_keys(values, names)
        for part, value in values.items():
            if why := why_unsent(value, lambda one: _problem(one, names)):
                unsent[part] = why
        return _pickled({part: value for part, value in values.items() if part not in unsent}, names), unsent


def _problem(value: object, names: Mapping[int, str]) -> str:
    """Returns why a value cannot be sent; empty where it can."""
    try:
        _pickled(value, names)
    except Exception as error:  # pickling runs any __reduce__: whatever it raises is reported
        return str(error) or type(error).__name__
    return ""


def _lost_keys(values: Mapping[Part, object], names: Mapping[int, str]) -> dict[Part, str]:
    """Returns which overrides would be lost: a dependency is found only as the very object that the routes have."""
    lost = {}
    for part, value in values.items():
        if part[1] == "dependency_overrides" and isinstance(value, Mapping):
            for key in value:
                if not _is_found(key, names):
                    lost[part] = f"no module has {getattr(key, '__qualname__', type(key).__qualname__)} by a name"
    return lost


def _is_found(key: object, names: Mapping[int, str]) -> bool:
    if isinstance(key, MethodType):
        return _is_found(key.__self__, names)
    if id(key) in names:
        return True
    found: object = sys.modules.get(getattr(key, "__module__", None) or "")
    for name in str(getattr(key, "__qualname__", "<none>")).split("."):
        found = getattr(found, name, None)
    return found is key


def _names(modules: Mapping[str, ModuleType]) -> dict[int, str]:
    """Returns the names, as in `package.module:name`, of the objects that modules hold, by the objects' ids."""
    found: dict[int, str] = {}
    for module_name, module in sorted(modules.items(), reverse=True):
        for name, value in list(vars(module).items()):
            kind = type(value)  # no `isinstance`: that asks what some globals stand for
            nameless = kind is FunctionType and "<" in value.__qualname__
            if name.isidentifier() and not name.startswith("__") and (nameless or not issubclass(kind, _BY_THEMSELVES)):
                found[id(value)] = f"{module_name}:{name}"
    return found


def _pickled(value: object, names: Mapping[int, str]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        def persistent_id(self, value: object) -> str | None:
            return names.get(id(value))

    file = _Limited()
    Pickler(file).dump(value)
    return file.getvalue()


class _Limited(io.BytesIO):
    """Ends the pickling of much data early."""

    def write(self, data: object, /) -> int:
        if self.tell() > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        return super().write(data)  # type: ignore[arg-type]  # bytes, of whatever kind


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)

    def persistent_load(self, name: str) -> object:
        """Returns the object that a module of the server's process holds."""
        module, _, attribute = name.partition(":")
        __import__(module)
        found: object = getattr(sys.modules[module], attribute)
        return found
