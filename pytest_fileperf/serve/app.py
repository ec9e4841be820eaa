"""Which app to serve: an import string where there is one, else the object itself, sent by value to one process."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.databases import Databases, databases_here
from pytest_fileperf.serve.loading import check_app, load_app, make_app, takes
from pytest_fileperf.serve.made import Made, made_of

_HOW = 'put it in a module of its own and give it as "module:attribute" (or "module:factory()")'


@dataclass(frozen=True, slots=True)
class AppSpec:
    """An app to serve, or the zero-argument factory that makes it."""

    target: object
    """`"package.module:attribute"`, or an app or factory that no importable module holds."""
    factory: bool = False
    made: Made | None = None
    """What the test has made of the app object; None for a name, a factory, or an app that needs no comparison."""
    databases: Databases = field(default_factory=Databases)
    """Those of the test process."""

    @property
    def name(self) -> str:
        """What messages call it."""
        if isinstance(self.target, str):
            return f"{self.target}()" if self.factory else self.target
        return str(getattr(self.target, "__name__", None) or f"{type(self.target).__name__} object")

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for specs that can share a server. Hashable, unlike some apps.

        It is the import string, or which object it is, and what the test has made of it.
        """
        target = self.target if isinstance(self.target, str) else id(self.target)
        return (target, self.factory, None if self.made is None else self.made.key, self.databases)

    def load(self, check: Callable[[], None] = lambda: None) -> object:
        """Returns the app, imported or made in this process; raises AppLoadError.

        `check` is called after the import, and before the factory is called where there is one.
        """
        if isinstance(self.target, str):
            return load_app(self.target, factory=self.factory, check=check)
        check()
        return make_app(self.target, self.name) if self.factory else check_app(self.target, self.name)

    def pickled(self, *, workers: int) -> bytes:
        """Returns the object for the process that will serve it.

        Raises AppLoadError, with advice to give it by name, where it does not pickle or several workers need it.
        """
        if workers > 1:
            raise AppLoadError(f"{self.name} cannot be imported by {workers} workers: {_HOW}")
        import cloudpickle

        try:
            with _by_value():
                data: bytes = cloudpickle.dumps(self.target)
        except Exception as error:  # pickling runs any __reduce__: whatever it raises is reported
            reason = f"{type(error).__name__}: {error}"
            raise AppLoadError(f"{self.name} cannot be sent to a server process ({reason}): {_HOW}") from error
        return data


def app_spec(app: object) -> AppSpec:
    """Returns the spec for an import string, an app object or a zero-argument factory function.

    An object in an imported module (but no test module, conftest or `__main__`) becomes its import string, so that any
    number of workers can load it. Raises AppLoadError for what cannot be an app.
    """
    if isinstance(app, AppSpec):
        return app
    if isinstance(app, str):
        return _from_text(app)
    # A function without arguments. A class is no factory: its instance was meant.
    factory = callable(app) and not isinstance(app, type) and takes(app, 3) is False and takes(app, 0) is True
    if not factory:
        check_app(app, AppSpec(app).name)
    found = _import_string(app)
    return AppSpec(found or app, factory)


def as_made(spec: AppSpec, app: object) -> AppSpec:
    """Returns the spec for a server in another process, which has to serve the app as it is now in this one."""
    made = spec.made
    if not (spec.factory or isinstance(app, str | AppSpec)):
        importable = {name: module for name, module in _modules() if not _is_test_module(name, module)}
        made = made_of(app, importable, _by_value)
    return AppSpec(spec.target, spec.factory, made, databases_here())


def _from_text(text: str) -> AppSpec:
    target = text.strip().removesuffix("()")
    module, colon, path = target.partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        raise AppLoadError(f'{text!r} does not name an app: write "module:attribute", or "module:factory()"')
    return AppSpec(target, text.strip().endswith("()"))


def _import_string(app: object) -> str | None:
    def is_under_tests(module_name: str) -> bool:
        return not {"test", "tests", "testing"}.isdisjoint(module_name.split("."))

    found = [
        (is_under_tests(module_name), attribute.startswith("_"), module_name.count("."), module_name, attribute)
        for module_name, module in _modules()
        if not _is_test_module(module_name, module)
        for attribute, value in list(vars(module).items())
        if value is app and str.isidentifier(attribute)
    ]
    return "{3}:{4}".format(*min(found)) if found else None


@contextmanager
def _by_value() -> Iterator[None]:
    """Within the block, cloudpickle sends what another process can rebuild: the code of test modules, not their names.

    Two things of frameworks are sent in another way. The `__getattr__` of Starlette's state alone would call itself for
    ever, and FastAPI's included routers have a lock.
    """
    import cloudpickle

    state: type | None = getattr(sys.modules.get("starlette.datastructures"), "State", None)
    included: type | None = getattr(sys.modules.get("fastapi.routing"), "_IncludedRouter", None)
    reducers: dict[type | None, Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
        state: lambda value: (type(value), (dict(vars(value)["_state"]),)),
        included: lambda value: (type(value), (vars(value)["original_router"], vars(value)["include_context"])),
    }
    kinds = {kind: reduce for kind, reduce in reducers.items() if kind and kind not in copyreg.dispatch_table}
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [module for name, module in _modules() if _is_test_module(name, module) and name not in known]
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
    modules: dict[str, object] = dict(sys.modules)  # may also hold None, and objects that are no modules
    for name, module in modules.items():
        if isinstance(module, ModuleType) and module.__name__ == name:
            yield name, module


def _is_test_module(name: str, module: ModuleType) -> bool:
    """Whether another process should not import it: a test's module, or one that only pytest can find."""
    last = name.rpartition(".")[2]
    if name in ("__main__", "__mp_main__") or last == "conftest" or last.startswith("test_") or last.endswith("_test"):
        return True
    loader = getattr(module.__spec__, "loader", None)  # pytest also loads plugins, which any process can import
    return type(loader).__module__.startswith("_pytest.") and not _is_importable(name)


def _is_importable(name: str) -> bool:
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None)
    if parent and (path is None or not _is_importable(parent)):
        return False
    finders = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest.")]
    return any(finder.find_spec(name, path) is not None for finder in finders)
