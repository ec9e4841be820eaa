"""The types of httpx's request arguments, as the verbs and the server's client take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pytest_fileperf.plan.payload import Payload

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    import httpx

__all__ = ("Auth", "Content", "Cookies", "Files", "Headers", "Params", "ReadsBytes")


class ReadsBytes(Protocol):
    """A file that is open in binary mode, or an object that reads like one."""

    def read(self) -> bytes:
        """Returns everything that is left."""


# Aliases that name httpx are texts: this module must not import it.
_Value: TypeAlias = str | int | float | bool | None
Params: TypeAlias = (
    "httpx.QueryParams | Mapping[str, _Value | Sequence[_Value]] | Sequence[tuple[str, _Value]] | str | bytes"
)
Headers: TypeAlias = (
    Mapping[str, str] | Mapping[bytes, bytes] | Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]]
)
Cookies: TypeAlias = "httpx.Cookies | CookieJar | dict[str, str] | list[tuple[str, str]]"
Auth: TypeAlias = "httpx.Auth | tuple[str | bytes, str | bytes] | Callable[[httpx.Request], httpx.Request]"
Content: TypeAlias = str | bytes | bytearray | memoryview | list[bytes] | tuple[bytes, ...] | Payload | ReadsBytes
_FileBody: TypeAlias = str | bytes | Payload | ReadsBytes
_File: TypeAlias = (
    _FileBody
    | tuple[str | None, _FileBody]
    | tuple[str | None, _FileBody, str | None]
    | tuple[str | None, _FileBody, str | None, Mapping[str, str]]
)
Files: TypeAlias = Mapping[str, _File] | Sequence[tuple[str, _File]]
