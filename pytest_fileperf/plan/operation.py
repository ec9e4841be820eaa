"""What is asked of the server: a recipe for an httpx request with what a good answer is, or a journey of several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pytest_fileperf.plan.hidden import described_argument, described_url, shown_url
from pytest_fileperf.plan.step import Step

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
        """`POST /upload?token=…`: without the values of the query."""
        return f"{self.method} {shown_url(self.url)}"

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values.

        It has names, and digests of values: `hidden`. Of `auth` it has the type, of cookies and credential headers the
        names, as their values may be other ones in each run.
        """
        return {
            "method": self.method,
            **described_url(self.url),
            "arguments": {key: described_argument(key, value) for key, value in sorted(self.arguments.items())},
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
    steps: tuple[Step, ...] = ()
    """The steps that were asked for. It may have others, which nothing judges."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """What it is called with, behind the client."""
        return (self.value,) if self.has_value else ()

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
        return {"journey": self.name}
