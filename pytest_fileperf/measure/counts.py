"""The counts of a histogram in few bytes: there are dozens of histograms in each measurement, and all are kept.

plain     two bytes for each step that was hit, then one, two, four or eight for each count
packed    the same, as ways from step to step, low bytes apart from high ones, deflated: about a byte for each step
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ("Counts",)

_STEP = np.dtype("<u2")
"""HdrHistogram's indexes of our range end at 35,840."""
_PACK_FROM_BYTES = 256
"""Less is hardly smaller when it is packed."""


class Counts:
    """Steps and how often each was hit. What they are never changes, only how small they are kept."""

    __slots__ = ("_bytes", "_is_packed", "_width")

    def __init__(self, steps: NDArray[np.integer], counts: NDArray[np.integer]) -> None:
        """Steps are ascending, and counts are not negative; both have the same shape."""
        width = np.min_scalar_type(int(counts.max(initial=0))).itemsize
        self._bytes = steps.astype(_STEP).tobytes() + counts.astype(f"<u{width}").tobytes()
        self._width = width
        """Bytes of a count."""
        self._is_packed = False

    @property
    def size_bytes(self) -> int:
        """How much they take."""
        return len(self._bytes)

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns steps and counts, each an array of its own."""
        content = _unpacked(self._bytes, self._width) if self._is_packed else self._bytes
        steps, counts = _split(content, self._width)
        return steps.astype(np.int64), counts.astype(np.int64)

    def pack(self, known: dict[bytes, bytes]) -> None:
        """Makes it smaller; each use takes some 20 µs more then. `known` has the bytes of others: equal ones share."""
        if not self._is_packed and len(self._bytes) >= _PACK_FROM_BYTES:
            self._bytes, self._is_packed = _packed(self._bytes, self._width), True
        self._bytes = known.setdefault(self._bytes, self._bytes)


def _split(content: bytes, width: int) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
    size = len(content) // (_STEP.itemsize + width)
    steps = np.frombuffer(content, dtype=_STEP, count=size)
    return steps, np.frombuffer(content, dtype=f"<u{width}", offset=steps.nbytes)


def _packed(content: bytes, width: int) -> bytes:
    steps, counts = _split(content, width)
    ways = np.diff(steps, prepend=np.zeros(1, dtype=_STEP))
    return zlib.compress(_planes(ways) + _planes(counts), level=1)


def _unpacked(packed: bytes, width: int) -> bytes:
    planes = zlib.decompress(packed)
    ends = _STEP.itemsize * len(planes) // (_STEP.itemsize + width)
    ways, counts = _values(planes[:ends], _STEP.itemsize), _values(planes[ends:], width)
    return np.cumsum(np.frombuffer(ways, dtype=_STEP), dtype=_STEP).tobytes() + counts


def _planes(values: NDArray[np.unsignedinteger]) -> bytes:
    """Returns the first byte of each value, then the second of each, and so on: zeros come together so."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(values.size, values.itemsize).T.tobytes()


def _values(planes: bytes, width: int) -> bytes:
    """Undoes `_planes`."""
    return np.frombuffer(planes, dtype=np.uint8).reshape(width, -1).T.tobytes()
