"""Finds the import string of the app to serve, imports the app, and explains a failed import."""

from __future__ import annotations

import builtins
import copyreg
import difflib
import importlib
import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_fileperf.errors import AppLoadError, AppMissingError
from pytest_fileperf.host.pickles import by_value
from pytest_fileperf.serve.databases import Databases, databases_here
from pytest_fileperf.serve.likeness import takes
from pytest_fileperf.serve.made import Made, made_of

_HOW = 'Put it in its own module and give it as "module:attribute" (or "module:factory()")'


@dataclass(frozen=True, slots=True)
class AppSpec:
    """An app to serve, or the zero-argument factory that makes it."""

    target: object
    """`"package.module:attribute"`, or the app or factory itself if no importable module contains it."""
    factory: bool = False
    made: Made | None = None
    """The app object as the test made it. None if the test gave an import string or a factory."""
    databases: Databases = field(default_factory=Databases)

    @property
    def name(self) -> str:
        if isinstance(self.target, str):
            return f"{self.target}()" if self.factory else self.target
        return str(getattr(self.target, "__name__", None) or f"{type(self.target).__name__} object")

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable value, equal for specs that can share a server."""
        target = self.target if isinstance(self.target, str) else id(self.target)
        return (target, self.factory, None if self.made is None else self.made.key, self.databases)

    def load(self, check: Callable[[], None] = lambda: None) -> object:
        """Returns the app. Calls `check` after the import, before the factory. Raises AppLoadError."""
        target = self.target
        found, name = (_imported(target), target) if isinstance(target, str) else (target, self.name)
        check()
        return make_app(found, name) if self.factory else check_app(found, name)

    def pickled(self, *, workers: int) -> bytes:
        """Raises AppLoadError for several workers, or if the target cannot be pickled."""
        if workers > 1:
            raise AppLoadError(f"{self.name} cannot be imported by {workers} workers. {_HOW}")
        try:
            with _by_value(_test_modules()):
                return by_value(self.target)
        except Exception as error:  # pickling runs any __reduce__: whatever it raises is reported
            reason = f"{type(error).__name__}: {error}"
            raise AppLoadError(f"{self.name} cannot be sent to a server process ({reason}). {_HOW}") from error


def app_spec(app: object) -> AppSpec:
    """Returns the spec for an import string, an app object or a zero-argument factory function.

    If an imported module contains the object, the spec has its import string, so that several workers can load it.
    Raises AppLoadError for anything that isn't an app or factory.
    """
    if isinstance(app, AppSpec):
        return app
    if isinstance(app, str):
        target = app.strip().removesuffix("()")
        module_name, colon, path = target.partition(":")
        if not (colon and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))):
            form = "without quotes: module:attribute or module:factory()"
            form = form if {'"', "'"} & {*app} else '"module:attribute" or "module:factory()"'
            raise AppLoadError(f"{app!r} does not name an app. Write {form}")
        return AppSpec(target, app.strip().endswith("()"))
    # A factory is a function without arguments. A class isn't a factory, because the user probably meant an instance.
    factory = callable(app) and not isinstance(app, type) and takes(app, 3) is False and takes(app, 0) is True
    if not factory:
        check_app(app, AppSpec(app).name)
    found = [
        f"{module_name}:{attribute}"
        for module_name, module in _modules()
        for attribute, value in list(vars(module).items())
        if value is app and str.isidentifier(attribute) and not _is_test_module(module_name, module)
    ]
    return AppSpec(min(found, key=_remoteness) if found else app, factory)


def _remoteness(name: str) -> tuple[bool, bool, int, str, str]:
    """A sort key: the most public import string comes first."""
    module_name, _, attribute = name.partition(":")
    words = module_name.split(".")
    is_test = not {"test", "tests", "testing"}.isdisjoint(words)
    return (is_test, attribute.startswith("_"), len(words), module_name, attribute)


def as_made(spec: AppSpec, app: object) -> AppSpec:
    """Adds the current state of the test's app object (`app`) to the spec, for a server in another process."""
    made = spec.made
    if not (spec.factory or isinstance(app, str | AppSpec)):
        tests = _test_modules()
        importable = {name: module for name, module in _modules() if name not in tests}
        made = made_of(app, importable, partial(_by_value, tests))
    return AppSpec(spec.target, spec.factory, made, databases_here())


@contextmanager
def _by_value(tests: Mapping[str, ModuleType]) -> Iterator[None]:
    """In the block, cloudpickle pickles functions and classes of test modules with their code, not by name."""
    import cloudpickle

    # Unpickling a State would call its `__getattr__` for ever. An included router has a lock, which cannot be pickled.
    state: type | None = getattr(sys.modules.get("starlette.datastructures"), "State", None)
    included: type | None = getattr(sys.modules.get("fastapi.routing"), "_IncludedRouter", None)
    reducers: dict[type | None, Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
        state: lambda value: (type(value), (dict(vars(value)["_state"]),)),
        included: lambda value: (type(value), (vars(value)["original_router"], vars(value)["include_context"])),
    }
    kinds = {kind: reduce for kind, reduce in reducers.items() if kind and kind not in copyreg.dispatch_table}
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [module for name, module in tests.items() if name not in known]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    copyreg.dispatch_table.update(kinds)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
        for kind in kinds:
            del copyreg.dispatch_table[kind]


def _modules() -> Iterator[tuple[str, ModuleType]]:
    modules: dict[str, object] = dict(sys.modules)  # may also contain None, and objects that are not modules
    for name, module in modules.items():
        if isinstance(module, ModuleType) and module.__name__ == name:
            yield name, module


def _test_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in _modules() if _is_test_module(name, module)}


def _is_test_module(name: str, module: ModuleType) -> bool:
    """Whether a server must not import the module, because it contains tests or only pytest can find it."""
    last = name.rpartition(".")[2]
    if name in ("__main__", "__mp_main__") or last == "conftest" or last.startswith("test_") or last.endswith("_test"):
        return True
    loader = getattr(module.__spec__, "loader", None)  # pytest also loads plugins, which any process can import
    return type(loader).__module__.startswith("_pytest.") and not _is_importable(name)


def _is_importable(name: str) -> bool:
    """Whether a process without pytest can import the module."""
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None)
    if parent and (path is None or not _is_importable(parent)):
        return False
    finders = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest.")]
    return any(finder.find_spec(name, path) is not None for finder in finders)


# --- The app's import, in the process that serves it


def _imported(target: str) -> object:
    """Raises AppMissingError, or AppLoadError if the import fails."""
    module_name, _, path = target.partition(":")
    try:
        __import__(module_name)  # `python -X importtime` times this, but not `import_module`
        found: object = sys.modules[module_name]
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is reported
        # If the module exists, but an import in it fails, the error names a module of another package.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            where = f"The test run in {Path.cwd()} does not find it on sys.path"
            to_do = "Name its directory in pytest's ini file, as in pythonpath = ."
            raise AppMissingError(f'app "{target}" cannot be imported: {_summary(error)}. {where}. {to_do}') from error
        raise AppLoadError(f'app "{target}" cannot be imported: {_describe(error)}') from error
    where = f'module "{module_name}"'
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            near = difflib.get_close_matches(name, dir(found), n=3)
            hint = f". Did you mean {' or '.join(near)}?" if near else ""
            raise AppMissingError(f'app "{target}" was not found: {where} has no attribute "{name}"{hint}') from None
        where = f'"{name}" of {where}'
    return found


def module_file(module: object) -> str | None:
    """Returns a module's file, or the directory of a package without `__init__.py`; None for a built-in module."""
    file = getattr(module, "__file__", None)
    return str(file) if file else next(iter(getattr(module, "__path__", ())), None)


def make_app(factory: object, name: str) -> object:
    """Raises AppLoadError if the factory fails, or returns something other than an app."""
    if not callable(factory):
        raise AppLoadError(f'app factory "{name}()" is not callable: it is {_kind(factory)}')
    if takes(factory, 0) is False:
        problem = f"it takes {_parameters(factory)}, but a factory is called without arguments"
        hint = "" if why_not_asgi(factory) else f'. It looks like the app itself. Write "{name}", without "()"'
        raise AppLoadError(f'app factory "{name}()" cannot be used: {problem}{hint}')
    try:
        app: object = factory()
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is reported
        raise AppLoadError(f'app factory "{name}()" failed: {_describe(error)}') from error
    if inspect.iscoroutine(app):
        app.close()
        raise AppLoadError(f'app factory "{name}()" is an async function, but a factory must be a plain function')
    return check_app(app, f"{name}()")


def check_app(app: object, name: str) -> object:
    """Raises AppLoadError if the object cannot be an ASGI app."""
    if problem := why_not_asgi(app):
        raise AppLoadError(f'"{name}" isn\'t an ASGI app: {problem}')
    return app


def why_not_asgi(app: object) -> str | None:
    if isinstance(app, ModuleType):
        return f'it is a module. Name the app in it, as in "{app.__name__}:app"'
    if not callable(app):
        return f"it is {_kind(app)}, which cannot be called"
    if isinstance(app, type):
        fits = hasattr(app, "__await__") or _takes_scope_only(app)
        return None if fits else f"it is the class {app.__name__}, not an instance. Write {app.__name__}(…)"
    if takes(app, 3) is not False or _takes_scope_only(app):
        return None
    found = f"it is {_kind(app)} that takes {_parameters(app)}"
    if takes(app, 2):
        return f"{found}, as a WSGI app does. Wrap it (a2wsgi.WSGIMiddleware), or name an ASGI app"
    if takes(app, 0):
        return f'{found}. If it makes the app, write it as a factory, with "()" at the end'
    return f"{found}, but an ASGI app takes (scope, receive, send)"


def _takes_scope_only(app: object) -> bool:
    """Whether the app looks like one for ASGI 2, which is called as `app(scope)(receive, send)`."""
    if not takes(app, 1) or inspect.iscoroutinefunction(app):
        return False
    return list(inspect.signature(app).parameters) == ["scope"]  # type: ignore[arg-type]  # `takes` says it is callable


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def _describe(error: BaseException) -> str:
    """Returns the error, and the last lines of its traceback in the user's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    text = "".join(traceback.format_exception_only(error)).strip()
    # The innermost frames show the fault; the outer ones belong to the import.
    lines = "".join(traceback.format_list(frames[-5:])).rstrip() + "\n" + text
    return _summary(error) + "".join(f"\n  | {line}" for line in lines.strip("\n").splitlines())


def _kind(value: object) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        kind = "an async function" if inspect.iscoroutinefunction(value) else "a function"
        return f"{kind} ({getattr(value, '__name__', '?')})"
    if value is None:
        return "None"
    return f"an object of type {type(value).__module__}.{type(value).__qualname__}"


def _parameters(function: object) -> str:
    parameters = list(inspect.signature(function).parameters)  # type: ignore[arg-type]  # only asked of what `takes` read
    return f"({', '.join(parameters)})" if parameters else "no arguments"


# --- Data files that an app reads while it is imported and started: they may differ between compared versions


class FilesRead:
    """Replaces `open`, and notes which files are read."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._open = io.open

    # A function would become a method in a class that stores `open`.
    def __call__(self, file: object, mode: str = "r", *args: object, **keywords: object) -> object:
        opened = self._open(file, mode, *args, **keywords)  # type: ignore[call-overload]  # what `open` takes is passed on
        if set("wax+").isdisjoint(mode) and isinstance(file, str | os.PathLike):
            self.paths.add(os.path.abspath(os.fsdecode(file)))  # noqa: PTH100 # Path.absolute keeps `..`
        return opened

    @contextmanager
    def noting(self) -> Iterator[None]:
        before = builtins.open, io.open
        builtins.open = io.open = self  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open, io.open = before
