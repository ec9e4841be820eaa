"""What is asked of the server: a recipe for an httpx request with what a good answer is, or a journey of several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pytest_fileperf.plan.payload import Payload

__all__ = ("Expectation", "Journey", "Operation")

REQUEST_ARGUMENTS = (
    "params",
    "headers",
    "cookies",
    "content",
    "data",
    "files",
    "json",
    "auth",
    "follow_redirects",
    "extensions",
)
"""The keyword arguments of httpx's own `client.request` that an operation takes (`timeout` is the plan's)."""
_CREDENTIAL_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a good answer is; anything else is a failed request and stays out of the latencies."""

    statuses: tuple[int, ...] = ()
    """Allowed status codes; none given allows every 2xx."""
    size_bytes: int | None = None
    """Exact length of the body as sent on the wire."""
    sha256: str | None = None
    """Hexadecimal digest of the body; checking it costs the generator CPU."""

    def allows_status(self, status: int) -> bool:
        """Returns whether this status is a good answer."""
        return status in self.statuses if self.statuses else 200 <= status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request, made again and again."""

    method: str
    url: str
    """Path and query, relative to the server under test."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments for httpx's `client.request`, payloads among them; keys are in `REQUEST_ARGUMENTS`."""
    expect: Expectation = Expectation()

    @property
    def name(self) -> str:
        """`POST /upload`."""
        return f"{self.method} {self.url}"

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values.

        Baselines are committed, so secrets stay out of it: `auth` is its type's name, and cookies and credential
        headers are names without values.
        """
        return {
            "method": self.method,
            "url": self.url,
            "arguments": {key: _describe_argument(key, value) for key, value in sorted(self.arguments.items())},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """Several requests as one unit: any code on an `httpx.AsyncClient`; one call of it is one sample."""

    name: str
    function: Callable[..., Awaitable[object]]
    """Takes an `httpx.AsyncClient`, and what the setup of the boot has returned where `takes_value` says so."""
    takes_value: bool = False
    needs_value: bool = False
    """Whether it cannot be called without."""
    value: object = None
    """What the setup has returned."""
    has_value: bool = False

    @property
    def arguments(self) -> tuple[object, ...]:
        """What it is called with, behind the client."""
        return (self.value,) if self.has_value else ()

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
        return {"journey": self.name}


def _describe_argument(key: str, value: object) -> object:
    if key == "auth":
        return type(value).__qualname__
    if key not in ("headers", "cookies"):
        return _describe(value)
    pairs = value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Iterable):
        return type(value).__qualname__
    described = []
    for raw_name, item in pairs:
        name = raw_name.decode("latin-1") if isinstance(raw_name, bytes) else str(raw_name)
        hidden = key == "cookies" or name.lower() in _CREDENTIAL_HEADERS
        described.append([name, "hidden" if hidden else _describe(item)])
    return described


def _describe(value: object) -> object:
    """Returns a request argument as JSON values; long texts and bytes by length and digest."""
    import hashlib

    if isinstance(value, Payload):
        return value.identity()
    if isinstance(value, Mapping):
        return {str(key): _describe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    if isinstance(value, str) and len(value) <= 200:
        return value
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return type(value).__qualname__
