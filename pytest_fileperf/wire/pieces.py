"""Counts the pieces of a body as it comes in: server-sent events, lines, or so many bytes.

Each counter's `feed` takes the next bytes and returns how many pieces they complete; `rest` returns 1 if the end of the
body completes a piece, else 0.

Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from pytest_fileperf.plan.work import EVENT, Each

_NAME_BYTES = 8
"""Of a line that is not complete so much is kept: whether it holds data is seen at its start."""
_BOM = b"\xef\xbb\xbf"


def piece_counter(each: Each) -> _Events | _Lines | _Sizes:
    if isinstance(each, int):
        return _Sizes(each)
    return _Events() if each == EVENT else _Lines()


class _Events:
    """An event is complete with an empty line after lines of which one is `data`."""

    __slots__ = ("_after_cr", "_begun", "_has_data", "_line")

    def __init__(self) -> None:
        self._line = b""
        """The start of the line that is not complete."""
        self._has_data = False
        self._after_cr = False
        """Whether a line feed that comes next belongs to a line end that was counted."""
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
        """Takes a line with its end; returns whether an event is complete with it."""
        if line[0] in b"\r\n":
            complete, self._has_data = self._has_data, False
            return complete
        if line.startswith(b"data") and line[4] in b":\r\n":
            self._has_data = True
        return False

    def rest(self) -> int:
        return 0  # the standard: an event without its empty line is thrown away


class _Lines:
    """A line that is not blank."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = False
        """Whether the line that is not complete has something in it."""

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
    """Every so many bytes; the last piece may have fewer."""

    __slots__ = ("_left", "_size")

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._left = 0

    def feed(self, data: bytes | memoryview) -> int:
        found, self._left = divmod(self._left + len(data), self._size)
        return found

    def rest(self) -> int:
        return int(self._left > 0)
