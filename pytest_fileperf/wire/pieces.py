"""Counts a body's pieces as they arrive: server-sent events, lines, or pieces of one size.

A counter's `feed` takes the next bytes, and returns how many pieces are now complete. At the body's end, `rest`
returns 1 if the remaining bytes are also a piece, else 0.

Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from pytest_fileperf.plan.work import EVENT, Each

_NAME_BYTES = 8
"""The first bytes of an incomplete line show whether it is a `data` line. At most this many are kept."""
_BOM = b"\xef\xbb\xbf"


def piece_counter(each: Each) -> _Events | _Lines | _Sizes:
    if isinstance(each, int):
        return _Sizes(each)
    return _Events() if each == EVENT else _Lines()


class _Events:
    """Counts server-sent events. An empty line completes an event that has a `data` line."""

    __slots__ = ("_after_cr", "_begun", "_has_data", "_line")

    def __init__(self) -> None:
        self._line = b""
        """The start of an incomplete line, at most `_NAME_BYTES`."""
        self._has_data = False
        self._after_cr = False
        """Whether the last byte was a carriage return. A line feed that follows belongs to the same line end."""
        self._begun = False

    def feed(self, data: bytes | memoryview) -> int:
        text = bytes(data)
        if self._after_cr and text[:1] == b"\n":
            text = text[1:]
        if not text:
            return 0
        self._after_cr = text[-1:] == b"\r"
        text = self._line + text
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._line = text
                return 0
            text = text.removeprefix(_BOM)
            self._begun = True
        lines = text.splitlines(keepends=True)  # of bytes: at \n, \r and \r\n only
        self._line = lines.pop()[:_NAME_BYTES] if lines and lines[-1][-1:] not in (b"\n", b"\r") else b""
        return sum(map(self._completes, lines))

    def _completes(self, line: bytes) -> bool:
        """`line` includes its line break. Returns whether the line completes an event."""
        if line[0] in b"\r\n":
            complete, self._has_data = self._has_data, False
            return complete
        if line.startswith(b"data") and line[4] in b":\r\n":
            self._has_data = True
        return False

    def rest(self) -> int:
        return 0  # the standard throws away an event without its empty line


class _Lines:
    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = False
        """Whether the incomplete last line has more than white space."""

    def feed(self, data: bytes | memoryview) -> int:
        first, *others = bytes(data).split(b"\n")
        self._open |= bool(first.strip())
        if not others:
            return 0
        *whole, last = others
        found = self._open + sum(bool(line.strip()) for line in whole)
        self._open = bool(last.strip())
        return found

    def rest(self) -> int:
        return int(self._open)


class _Sizes:
    """Counts pieces of equal size. The last piece may have fewer bytes."""

    __slots__ = ("_left", "_size")

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._left = 0

    def feed(self, data: bytes | memoryview) -> int:
        found, self._left = divmod(self._left + len(data), self._size)
        return found

    def rest(self) -> int:
        return int(self._left > 0)
