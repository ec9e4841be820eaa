"""How long the code of a journey holds the event loop: from where it goes on to where it waits again."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from time import monotonic_ns
from types import TracebackType
from typing import Any

__all__ = ("CodeTime",)


class CodeTime:
    """Awaits something, and takes the time in which it did not wait: that is CPU time, or blocking code."""

    __slots__ = ("_code", "total_ns")

    def __init__(self, code: Awaitable[object]) -> None:
        self._code: Generator[Any, Any, object] = code.__await__()
        self.total_ns = 0

    def __await__(self) -> Generator[Any, Any, object]:
        return self  # type: ignore[return-value] # it is an iterator with the methods that the interpreter calls

    def __iter__(self) -> CodeTime:
        return self

    def __next__(self) -> object:
        since_ns = monotonic_ns()
        try:
            return self._code.send(None)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def send(self, value: object) -> object:
        """Goes on with a value."""
        since_ns = monotonic_ns()
        try:
            return self._code.send(value)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def throw(self, kind: Any, value: BaseException | None = None, traceback: TracebackType | None = None) -> object:
        """Goes on with an exception, as when its task is cancelled."""
        since_ns = monotonic_ns()
        try:
            return self._code.throw(kind) if value is None else self._code.throw(kind, value, traceback)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def close(self) -> None:
        """Ends it where it waits."""
        self._code.close()
