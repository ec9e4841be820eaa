"""Makes small what a session keeps of each measurement until its end: nobody reads most of it before the reports."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import TypeVar, overload

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Recording

__all__ = ("Packed", "histograms_in", "kept_small", "pack_histograms")

T = TypeVar("T")


def kept_small(recording: Recording) -> Recording:
    """Returns an equal recording whose samples take much less memory."""
    boots = (replace(boot, samples=Packed(boot.samples)) if boot.samples else boot for boot in recording.boots)
    return replace(recording, boots=tuple(boots))


def pack_histograms(values: Iterable[object]) -> None:
    """Packs all histograms in frozen values. They stay what they are, and equal ones share memory."""
    known: dict[bytes, bytes] = {}
    for histogram in histograms_in(tuple(values)):
        histogram.held.pack(known)


def histograms_in(value: object) -> Iterator[Histogram]:
    """Yields the histograms in dataclasses, tuples and mappings, however deep."""
    if isinstance(value, Histogram):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from histograms_in(item)
    elif isinstance(value, Mapping):
        yield from histograms_in(tuple(value.values()))
    elif is_dataclass(value):
        for field in fields(value):
            yield from histograms_in(getattr(value, field.name))


class Packed(Sequence[T]):
    """A tuple of frozen values, kept as few bytes; equal to the tuple."""

    __slots__ = ("_count", "_raw")

    def __init__(self, items: Iterable[T]) -> None:
        held = tuple(items)
        self._count = len(held)
        self._raw = zlib.compress(pickle.dumps(held, protocol=pickle.HIGHEST_PROTOCOL), level=1)

    def _items(self) -> tuple[T, ...]:
        return _unpacked(self._raw)  # type: ignore[return-value]  # as it was packed

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items())

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return self._items() == tuple(other) if isinstance(other, (Packed, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items())


@lru_cache(maxsize=2)
def _unpacked(raw: bytes) -> tuple[object, ...]:
    """Returns what was packed; who reads one measurement reads it several times."""
    found: tuple[object, ...] = pickle.loads(zlib.decompress(raw))  # noqa: S301 - from this process, or another of ours
    return found
