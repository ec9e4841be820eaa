"""The entries of a long file of baselines: one is found and read when it is asked for, and all others stay as they are.

The bytes of hundreds of megabytes are searched in tenths of a second. To read them as JSON would take a minute.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from pytest_fileperf.judge.layout import laid_out

__all__ = ("LongFile",)

_OPENED, _CLOSED = b'\n "tests": {\n', b"\n }\n}\n"
_ENTRY = b'\n  "'
"""How the line of an entry begins: no other one has just two spaces."""
_BETWEEN = b",\n"


class LongFile(Mapping[str, object]):
    """Entries by their keys, in a file that `laid_out` made."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError for what is laid out otherwise, or damaged around its entries."""
        at = data.find(_OPENED)
        if at < 0 or not data.endswith(_CLOSED):
            raise ValueError("it is laid out otherwise")
        self.content: object = json.loads(data[: at + len(_OPENED)] + b"}}")
        """All but the entries."""
        self._data = data
        self._begins = at + len(_OPENED) - 1
        self._ends = len(data) - len(_CLOSED)

    def __getitem__(self, key: str) -> object:
        """Reads an entry; raises ValueError where it is damaged."""
        start = self._find(key, self._begins)
        if start < 0:
            raise KeyError(key)
        (found,) = json.loads(b"{%b}" % self._data[start + 1 : self._end_of(start)]).values()
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key, self._begins) >= 0

    def __iter__(self) -> Iterator[str]:
        at = self._begins
        while (at := self._data.find(_ENTRY, at)) >= 0:
            yield self._key_at(at)
            at += len(_ENTRY)

    def __len__(self) -> int:
        return self._data.count(_ENTRY, self._begins)

    def has_twice(self, key: str) -> bool:
        """Returns whether there are two entries of a key."""
        start = self._find(key, self._begins)
        return start >= 0 and self._find(key, start + 1) >= 0

    def with_entry(self, key: str, entry: object, *, flat: Collection[str]) -> bytes:
        """Returns the file with an entry, in place of one of its key or in its place among the sorted ones."""
        new = b"  %b: %b" % (_line(key), laid_out(entry, flat=flat, indent="  ").encode("utf-8", "backslashreplace"))
        data, start = self._data, self._find(key, self._begins)
        if start >= 0:
            return b"".join((data[: start + 1], new, data[self._end_of(start) :]))
        start = self._first_after(key)
        if start < 0:
            return b"".join((data[: self._ends], _BETWEEN, new, data[self._ends :]))
        return b"".join((data[: start + 1], new, _BETWEEN, data[start + 1 :]))

    def _find(self, key: str, at: int) -> int:
        """Returns where the line end before an entry is; -1 where there is none."""
        return self._data.find(b"\n  %b: {\n" % _line(key), at)

    def _end_of(self, start: int) -> int:
        following = self._data.find(_ENTRY, start + 1)
        return self._ends if following < 0 else following + 1 - len(_BETWEEN)

    def _key_at(self, start: int) -> str:
        line = self._data[start + 1 : self._data.index(b"\n", start + 1)]
        return str(json.loads(line[: line.rindex(b":")]))

    def _first_after(self, key: str) -> int:
        """Returns where the first entry of a greater key is; -1 for none. They are sorted."""
        low, high = self._begins, self._ends
        while low < high:
            middle = (low + high) // 2
            start = self._data.find(_ENTRY, middle, self._ends)
            if start < 0 or self._key_at(start) > key:
                high = middle
            else:
                low = start + 1
        return self._data.find(_ENTRY, low)


def _line(key: str) -> bytes:
    return json.dumps(key, ensure_ascii=False).encode("utf-8", "surrogatepass")
