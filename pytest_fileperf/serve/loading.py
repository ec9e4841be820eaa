"""Imports an app, in the process that will serve it, and says what is wrong with it."""

from __future__ import annotations

import builtins
import difflib
import importlib
import inspect
import io
import os
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_fileperf.errors import AppLoadError, AppMissingError


def load_app(target: str, *, factory: bool, check: Callable[[], None] = lambda: None) -> object:
    """Returns the ASGI app that `"package.module:attribute"` names, or that the factory of this name makes.

    Raises AppMissingError where there is no such module or attribute, and AppLoadError where the import fails (with the
    end of its traceback), or finds something else than an app. `check` is called between import and factory.
    """
    found = _find(target)
    check()
    return make_app(found, target) if factory else check_app(found, target)


def module_file(module: object) -> str | None:
    """Returns where a module was loaded from: its file, or the directory of a package without one; None if built in."""
    file = getattr(module, "__file__", None)
    return str(file) if file else next(iter(getattr(module, "__path__", ())), None)


def make_app(factory: object, name: str) -> object:
    """Returns the app a zero-argument factory makes; raises AppLoadError where it fails or makes something else."""
    if not callable(factory):
        raise AppLoadError(f'app factory "{name}()" is not callable: it is {_kind(factory)}')
    if takes(factory, 0) is False:
        problem = f"it takes {_parameters(factory)}, and a factory is called with nothing"
        hint = "" if why_not_asgi(factory) else f'; it looks like the app itself: write "{name}", without "()"'
        raise AppLoadError(f'app factory "{name}()" cannot be used: {problem}{hint}')
    try:
        app: object = factory()
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is reported
        raise AppLoadError(f'app factory "{name}()" failed: {_describe(error)}') from error
    if inspect.iscoroutine(app):
        app.close()
        raise AppLoadError(f'app factory "{name}()" is an async function: a factory must be a plain one')
    return check_app(app, f"{name}()")


def check_app(app: object, name: str) -> object:
    """Returns the app as it is; raises AppLoadError, saying what it is, where it cannot be an ASGI app."""
    problem = why_not_asgi(app)
    if problem:
        raise AppLoadError(f'"{name}" is not an ASGI app: {problem}')
    return app


def why_not_asgi(app: object) -> str | None:
    """Returns what keeps the object from being an ASGI app, or None where nothing seems to.

    An ASGI app is a callable of (scope, receive, send), or of (scope) in its old form. A callable without a readable
    signature is accepted.
    """
    if isinstance(app, types.ModuleType):
        return f'it is a module: name the app in it, as in "{app.__name__}:app"'
    if not callable(app):
        return f"it is {_kind(app)}, which cannot be called"
    if isinstance(app, type):
        fits = hasattr(app, "__await__") or _takes_scope_only(app)
        return None if fits else f"it is the class {app.__name__} and not an instance: write {app.__name__}(…)"
    if takes(app, 3) is not False or _takes_scope_only(app):
        return None
    found = f"it is {_kind(app)} that takes {_parameters(app)}"
    if takes(app, 2):
        return f"{found}, as a WSGI app does: wrap it (a2wsgi.WSGIMiddleware), or name an ASGI app"
    if takes(app, 0):
        return f'{found}: if it makes the app, write it as a factory, with "()" at the end'
    return f"{found}, where an ASGI app takes (scope, receive, send)"


def takes(function: object, count: int) -> bool | None:
    """Whether the callable can be called with so many positional arguments; None where its signature is unknown."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]  # a TypeError says that it is not callable
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _takes_scope_only(app: object) -> bool:
    """Whether it looks like the first form of ASGI, `app(scope)(receive, send)`: one parameter, called scope."""
    if not takes(app, 1) or inspect.iscoroutinefunction(app):
        return False
    return list(inspect.signature(app).parameters) == ["scope"]  # type: ignore[arg-type]  # `takes` says it is callable


def _find(target: str) -> object:
    module_name, _, path = target.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is reported
        if _is_missing(error, module_name):
            where = f'the sys.path of the test run, in {Path.cwd()} (does pytest\'s "pythonpath" lead to it?)'
            raise AppMissingError(f'app "{target}" does not import: {_summary(error)} on {where}') from error
        raise AppLoadError(f'app "{target}" does not import: {_describe(error)}') from error
    where = f'module "{module_name}"'
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            near = difflib.get_close_matches(name, dir(found), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AppMissingError(f'app "{target}" was not found: {where} has no attribute "{name}"{hint}') from None
        where = f'"{name}" of {where}'
    return found


def _is_missing(error: BaseException, wanted: str) -> bool:
    """Whether the wanted module is not there, or a package around it; not where it imports one that is not there."""
    return isinstance(error, ModuleNotFoundError) and bool(error.name) and f"{wanted}.".startswith(f"{error.name}.")


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def _describe(error: BaseException) -> str:
    """Returns the error with the end of its traceback in the user's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    text = "".join(traceback.format_exception_only(error)).strip()
    # The innermost frames say where it went wrong; the outer ones belong to the import.
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


# --- Notes which files an app reads while it is imported and started: its data is part of what is compared

_WRITES = frozenset("wax+")


class FilesRead:
    """What stands for `open` meanwhile. It is no function: as an attribute of a class it would become a method."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._open = io.open

    def __call__(self, file: object, mode: str = "r", *args: object, **keywords: object) -> object:
        """Opens a file; notes its path if it is only read."""
        opened = self._open(file, mode, *args, **keywords)  # type: ignore[call-overload]  # what `open` takes is passed on
        if not _WRITES.intersection(mode) and isinstance(file, str | os.PathLike):
            self.paths.add(os.path.abspath(os.fsdecode(file)))  # noqa: PTH100 # Path.absolute keeps `..`
        return opened

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes what is read in the block, by Python's `open` and `pathlib`."""
        before = builtins.open, io.open
        builtins.open = io.open = self  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open, io.open = before
