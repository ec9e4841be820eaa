"""The entries of a long file of baselines: each is read when it is asked for, and the text of others stays as it is."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping

from pytest_fileperf.judge.layout import laid_out

__all__ = ("LongFile",)

_OPENED, _CLOSED = '\n "tests": {\n', "\n }\n}\n"
_ENTRY = '\n  "'
"""How the line of an entry begins: no other one has just two spaces."""
_BETWEEN = ",\n"


class LongFile(Mapping[str, object]):
    """Entries by their keys, in the text of a file that `laid_out` made."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a text that is laid out otherwise, or damaged between its entries."""
        head, opened, _ = text.partition(_OPENED)
        if not opened or not text.endswith(_CLOSED):
            raise ValueError("it is laid out otherwise")
        self.content = json.loads(f"{head}{_OPENED}}}}}")
        """All but the entries."""
        self._text = text
        starts, at = [], len(head) + len(opened) - 1
        while (at := text.find(_ENTRY, at)) >= 0:
            starts.append(at + 1)
            at += len(_ENTRY)
        ends = [*(start - len(_BETWEEN) for start in starts[1:]), len(text) - len(_CLOSED)]
        decoder = json.JSONDecoder()
        self.keys_of_all = [str(decoder.raw_decode(text, start + 2)[0]) for start in starts]
        """In their order; one that is there twice is so here."""
        self._spans = dict(zip(self.keys_of_all, zip(starts, ends, strict=True), strict=True))

    def __getitem__(self, key: str) -> object:
        """Reads an entry; raises ValueError where it is damaged."""
        start, end = self._spans[key]
        (found,) = json.loads(f"{{{self._text[start:end]}}}").values()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def with_entry(self, key: str, entry: object, *, flat: Collection[str]) -> str:
        """Returns the text with an entry, in place of one of its key or in its place among the sorted ones."""
        new = f"  {json.dumps(key, ensure_ascii=False)}: {laid_out(entry, flat=flat, indent='  ')}"
        text = self._text
        if key in self._spans:
            start, end = self._spans[key]
            return f"{text[:start]}{new}{text[end:]}"
        place = bisect_left(self.keys_of_all, key)
        if place < len(self.keys_of_all):
            start, _ = self._spans[self.keys_of_all[place]]
            return f"{text[:start]}{new}{_BETWEEN}{text[start:]}"
        end = len(text) - len(_CLOSED)
        return f"{text[:end]}{_BETWEEN}{new}{text[end:]}"
