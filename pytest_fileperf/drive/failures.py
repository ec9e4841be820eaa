"""What is told of a failed request: its kind, and an example in words, with the line of the user's own code."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import TracebackType

import httpx

from pytest_fileperf.plan.hidden import without_queries
from pytest_fileperf.plan.operation import Expectation
from pytest_fileperf.versions.tree import is_of_the_interpreter
from pytest_fileperf.wire.framing import DisconnectedError

__all__ = ("EXCERPT_BYTES", "kind_of", "problem_of", "shown")

EXCERPT_BYTES = 300
"""How much of a bad answer's body is kept to be shown."""
_LONGEST = 2_000
"""Characters kept of an exception's message: it may hold a whole answer."""
_PACKAGE = Path(__file__).parents[1]


def problem_of(expect: Expectation, status: int, body_bytes: int, digest: str) -> tuple[str, str] | None:
    """Returns kind and description of what is wrong with an answer; the digest is empty where none is expected."""
    if not expect.allows_status(status):
        return f"status {status}", f"answer {status}"
    if expect.size_bytes is not None and body_bytes != expect.size_bytes:
        return "size", f"{body_bytes} bytes instead of {expect.size_bytes}"
    if digest and digest != expect.sha256:
        return "digest", f"{body_bytes} bytes whose SHA-256 is not {expect.sha256}"
    return None


def shown(kind: str, excerpt: bytes, size_bytes: int, encoding: str) -> str:
    """Returns the start of a body for a message; empty where a body of this size was thrown away unseen.

    Of a body that is packed (`gzip`) it says that: its bytes tell nothing, but how many they are.
    """
    if encoding and encoding != "identity" and size_bytes:
        compared = kind in ("size", "digest")
        advice = ': send headers={"Accept-Encoding": "identity"} to compare the content itself' if compared else ""
        return f", with a body packed by {encoding}{advice}"
    if not excerpt:
        return "" if size_bytes else ", without a body"
    text = excerpt.decode("utf-8", "replace")
    return ", body begins: " + "".join(char if char.isprintable() else "·" for char in text)[:EXCERPT_BYTES]


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "connect"),
    (httpx.TimeoutException, "timeout"),
    (httpx.ConnectError, "connect"),
    (httpx.NetworkError, "disconnected"),
    (DisconnectedError, "disconnected"),
    (httpx.RemoteProtocolError, "protocol"),
    (AssertionError, "assertion"),
)
"""The kind of failure that an exception is, by the first class that fits."""
_CUT_OFF = ("peer closed connection", "Server disconnected")
"""How texts of httpx's own transport begin where an answer ended early: it has one class for this and for nonsense."""


def kind_of(error: Exception) -> tuple[str, str]:
    """Returns the kind of a failure, and its message behind the line of the user's code that it came from."""
    if isinstance(error, httpx.HTTPStatusError):
        kind = f"status {error.response.status_code}"
    elif type(error) is httpx.RemoteProtocolError and str(error).startswith(_CUT_OFF):
        kind = "disconnected"
    else:
        kind = next((kind for kind_class, kind in _KINDS if isinstance(error, kind_class)), type(error).__name__)
    return kind, _place_of(error) + without_queries(_message(error))


def _message(error: Exception) -> str:
    """Returns the exception's message, or its class where it has none; `__str__` of user code may raise, too."""
    try:
        text = str(error) or type(error).__name__
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    except Exception:  # its own `__str__` raised
        return type(error).__name__


def _place_of(error: BaseException) -> str:
    """Returns `tests/test_app.py:12: `, the innermost line of the user's own code; empty where there is none."""
    found = ""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        file = _shown_file(traceback.tb_frame.f_code.co_filename)
        if file:
            found = f"{file}:{traceback.tb_lineno}: "
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=1024)
def _shown_file(name: str) -> str:
    """Returns a file of the user's code, as short as it can be; empty for files of this package and of Python."""
    file = Path(name)
    if not file.is_absolute() or file.is_relative_to(_PACKAGE) or is_of_the_interpreter(file):
        return ""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
