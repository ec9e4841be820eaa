"""Lets our classes work with httpx and with httpx2, whose classes are alike but unrelated.

Each of the two packages is called a family. All objects that users see belong to the users' family. httpx2 is imported
only if a user has imported it, or asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import aclosing, closing
from functools import cache
from importlib import import_module
from operator import attrgetter, methodcaller
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import httpx

from pytest_fileperf.errors import LoadError
from pytest_fileperf.plan.request import FAMILIES

_T = TypeVar("_T")
_PLAIN: Mapping[str, Callable[[Any], object]] = {
    "Cookies": attrgetter("jar"),
    "Headers": attrgetter("raw"),
    "QueryParams": methodcaller("multi_items"),
    "Timeout": attrgetter("connect", "read", "write", "pool"),
    "URL": str,
}
"""For each class name, a function that turns an object into a plain value. Both packages accept such values."""


def kind(family: ModuleType, own: type[_T], *names: str) -> type[_T]:
    """Returns a class that inherits from `own`, and from classes of the family (httpx or httpx2) with these names."""
    return cast("type[_T]", _joined(family, cast(type, own), names))


def as_own(family: ModuleType, value: object) -> Any:
    """If the value is an object of the other family (httpx or httpx2), converts it to this family."""
    theirs = sys.modules.get(_other(family))
    if theirs is None or theirs is family:  # httpx2 can stand in for httpx
        return value
    if isinstance(value, theirs.Auth):
        return kind(family, _Adapted, "Auth")(value, family, theirs)
    if type(value).__module__ != theirs.__name__:
        return value
    name = type(value).__name__
    return _request(family, value) if name == "Request" else _PLAIN[name](value) if name in _PLAIN else value


def error_of(family: ModuleType, error: BaseException) -> BaseException:
    """Converts a transport error of httpx to the family's class (httpx or httpx2). Returns other errors unchanged."""
    if not isinstance(error, httpx.TransportError) or isinstance(error, family.TransportError):
        return error
    own: BaseException = getattr(family, classes_of(error)[0])(str(error))
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)


def _other(family: ModuleType) -> str:
    return "httpx2" if family is httpx else "httpx"


def _request(family: ModuleType, other: Any) -> Any:
    if type(other.stream).__name__ == "ByteStream":
        stream = family.ByteStream(other.read())
    else:
        stream = kind(family, _Relayed, "AsyncByteStream", "SyncByteStream")(other.stream)
    return family.Request(
        other.method, str(other.url), headers=other.headers.raw, stream=stream, extensions=other.extensions
    )


def _response(family: ModuleType, other: Any, request: object) -> Any:
    """Converts the other family's response. Its body is read only on demand."""
    headers = [(name, value) for name, value in other.headers.raw if name.lower() != b"content-encoding"]
    stream = kind(family, _Relayed, "AsyncByteStream", "SyncByteStream")(_Content(other))
    return family.Response(other.status_code, headers=headers, stream=stream, request=request)


@cache
def family_named(name: str) -> ModuleType:
    """Returns the package httpx or httpx2. Raises LoadError if it isn't installed."""
    if name not in FAMILIES:
        raise ValueError(f"family: {name!r} is not one of {', '.join(FAMILIES)}")
    try:
        return httpx if name == "httpx" else import_module(name)
    except ImportError as error:
        raise LoadError(f'{name} cannot be imported ({error}). Run pip install "pytest-fileperf[{name}]"') from error


def family_of(request: object) -> ModuleType:
    return httpx if isinstance(request, httpx.Request) or "httpx2" not in sys.modules else family_named("httpx2")


def classes_of(thing: object) -> list[str]:
    """Returns the names of an object's class and base classes that belong to httpx or httpx2."""
    return [kind.__name__ for kind in type(thing).__mro__ if kind.__module__ in FAMILIES]


@cache
def _joined(module: ModuleType, own: type, names: tuple[str, ...]) -> type:
    bases = [getattr(module, name) for name in names]
    if all(issubclass(own, base) for base in bases):
        return own
    return type(own.__name__, (own, *bases), {"__module__": own.__module__, "__doc__": own.__doc__})


# --- clients

if TYPE_CHECKING:
    _Client = httpx.AsyncClient
else:
    _Client = object  # `kind` adds a family's client


class FamilyClient(_Client):
    """An `AsyncClient` of httpx or httpx2 that also takes objects of the other package."""

    _BASE: ClassVar[str] = "AsyncClient"
    family: ModuleType

    def __new__(cls, *, family: str = "httpx", **_: object) -> Self:
        of = family_named(family)
        made = object.__new__(kind(of, cls, cls._BASE))
        made.family = of
        return made

    def __init__(self, *, family: str = "httpx", **options: Any) -> None:
        super().__init__(**{name: as_own(self.family, value) for name, value in options.items()})

    def build_request(self, method: str, url: Any, **arguments: Any) -> httpx.Request:
        if _other(self.family) in sys.modules:
            url = as_own(self.family, url)
            for name in ("params", "headers", "cookies", "timeout"):
                if arguments.get(name) is not None:
                    arguments[name] = as_own(self.family, arguments[name])
        return super().build_request(method, url, **arguments)

    def send(self, request: Any, **options: Any) -> Coroutine[Any, Any, httpx.Response]:
        if "auth" in options:
            options["auth"] = as_own(self.family, options["auth"])
        return super().send(as_own(self.family, request), **options)


class SyncFamilyClient(FamilyClient):
    _BASE = "Client"


# --- objects that are converted on their way between the families


class _Relayed:
    """Makes one family's body usable in the other family."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield from self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for block in self._body:
            yield block


class _Content:
    """A response's decompressed body."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield self._response.read()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self._response.aread()


class _Adapted:
    """Makes an auth object of httpx usable with a client of httpx2, or the other way round.

    The auth object still gets requests and responses of its own package, `its`.
    """

    def __init__(self, auth: Any, family: ModuleType, its: ModuleType) -> None:
        self._auth = auth
        self._family = family
        self._its = its

    def sync_auth_flow(self, request: object) -> Generator[Any, Any, None]:
        with closing(self._auth.sync_auth_flow(_request(self._its, request))) as flow:
            asked = next(flow)
            while True:
                response = yield _request(self._family, asked)
                try:
                    asked = flow.send(_response(self._its, response, asked))
                except StopIteration:
                    return

    async def async_auth_flow(self, request: object) -> AsyncGenerator[Any, Any]:
        async with aclosing(self._auth.async_auth_flow(_request(self._its, request))) as flow:
            asked = await anext(flow)
            while True:
                response = yield _request(self._family, asked)
                try:
                    asked = await flow.asend(_response(self._its, response, asked))
                except StopAsyncIteration:
                    return
