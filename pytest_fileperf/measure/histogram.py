"""Latency histogram with HDR buckets: three significant digits from 1 ns to over an hour, in constant memory.

The stored form is the standard HdrHistogram V2 text: a head and zigzag LEB128 counts, deflated, as base64. Source of
the encoding: https://github.com/HdrHistogram/HdrHistogram, `AbstractHistogram.java` and `ZigZagEncoding.java`.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

# --- Counts in few bytes: each measurement keeps dozens of histograms
#
# plain     two bytes for each step (bucket) that was hit, then one, two, four or eight bytes for each count
# packed    differences between steps, low bytes apart from high ones, deflated: about a byte for each step

_STEP = np.dtype("<u2")
"""Two bytes are enough for a step's index, because indexes end at 35,840."""


class Counts:
    """A histogram's steps (buckets), and how often each was hit."""

    __slots__ = ("_bytes", "_is_packed", "_width", "total")

    def __init__(self, steps: NDArray[np.integer], counts: NDArray[np.integer]) -> None:
        """Steps ascend, and counts are not negative; both have the same shape."""
        self._width = np.min_scalar_type(int(counts.max(initial=0))).itemsize
        """Bytes per count."""
        self._bytes = steps.astype(_STEP).tobytes() + counts.astype(f"<u{self._width}").tobytes()
        self._is_packed = False
        self.total = int(counts.sum())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return self.total == other.total and all(map(np.array_equal, self.arrays(), other.arrays()))

    def __hash__(self) -> int:
        return self.total

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        content, ends = self._bytes, _STEP.itemsize * len(self._bytes) // (_STEP.itemsize + self._width)
        if self._is_packed:
            planes = zlib.decompress(content)
            ends = _STEP.itemsize * len(planes) // (_STEP.itemsize + self._width)
            content = _from_planes(planes[:ends], _STEP.itemsize) + _from_planes(planes[ends:], self._width)
        steps = np.frombuffer(content[:ends], dtype=_STEP).astype(np.int64)
        counts = np.frombuffer(content[ends:], dtype=f"<u{self._width}").astype(np.int64)
        return np.cumsum(steps) if self._is_packed else steps, counts

    def pack(self, known: dict[bytes, bytes]) -> None:
        """Compresses the counts. Each later use takes some 20 µs. `known` lets equal counts share memory."""
        if not self._is_packed and len(self._bytes) >= 256:  # packing hardly makes less than this smaller
            steps, counts = self.arrays()
            content = _planes(np.diff(steps, prepend=0).astype(_STEP)) + _planes(counts.astype(f"<u{self._width}"))
            self._bytes, self._is_packed = zlib.compress(content, level=1), True
        self._bytes = known.setdefault(self._bytes, self._bytes)


def _planes(values: NDArray[np.unsignedinteger]) -> bytes:
    """Returns the first byte of each value, then the second of each, and so on, which brings zeros together."""
    return values.view(np.uint8).reshape(values.size, values.itemsize).T.tobytes()


def _from_planes(planes: bytes, width: int) -> bytes:
    return np.frombuffer(planes, dtype=np.uint8).reshape(width, -1).T.tobytes()


# --- histogram

HIGHEST_NS = 4 * 3600 * 1_000_000_000
"""Longer durations count as this one."""
_LOWEST_NS = 1
_DIGITS = 3
_SUB_BITS = 11
"""2048 steps per bucket: the least power of two that keeps three significant digits."""
_SUB_HALF = 1 << (_SUB_BITS - 1)
_COUNTS_SIZE = (HIGHEST_NS.bit_length() - _SUB_BITS + 2) * _SUB_HALF
"""Length of HdrHistogram's array of counts for this range and precision."""
_OUTER = struct.Struct(">II")
"""The outer header: a cookie (a mark of the format), and the number of deflated bytes that follow."""
_HEAD = struct.Struct(">IIIIQQd")
"""The inner header: cookie, bytes of counts, offset of indexes, digits, lowest and highest value, unit of a value."""
_OUTER_COOKIE, _COOKIE = 0x1C849314, 0x1C849313


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of durations in whole ns, in steps (buckets) of three digits. Durations in one step count as equal."""

    held: Counts = field(repr=False)
    min_ns: int
    """The exact minimum; 0 without values."""
    max_ns: int
    """The exact maximum; 0 without values."""
    sum_ns: int
    """Exact sum of all values, so the mean is exact."""
    sum_squares: float
    """Sum of squared nanoseconds, for the standard deviation."""

    @property
    def count(self) -> int:
        return self.held.total

    @property
    def steps(self) -> NDArray[np.int64]:
        """Indexes of the steps that contain samples, ascending, as HdrHistogram numbers them."""
        return self.held.arrays()[0]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each step was hit; same shape as `steps`."""
        return self.held.arrays()[1]

    @classmethod
    def of(cls, values_ns: ArrayLike) -> Histogram:
        values = np.asarray(values_ns, dtype=np.int64)
        if values.size == 0:
            return EMPTY
        if int(values.min()) < 0:
            raise ValueError("a duration cannot be negative")
        steps, counts = np.unique(step_of(np.minimum(values, HIGHEST_NS)), return_counts=True)
        floats = values.astype(np.float64)
        return cls(
            Counts(steps, counts),
            min_ns=int(values.min()),
            max_ns=int(values.max()),
            sum_ns=int(values.sum()),
            sum_squares=float(np.dot(floats, floats)),
        )

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        parts = [histogram for histogram in histograms if histogram.count]
        if not parts:
            return EMPTY
        if len(parts) == 1:
            return parts[0]
        each_steps, each_counts = zip(*(part.held.arrays() for part in parts), strict=True)
        steps, where = np.unique(np.concatenate(each_steps), return_inverse=True)
        counts = np.zeros(steps.size, dtype=np.int64)
        np.add.at(counts, where, np.concatenate(each_counts))
        return cls(
            Counts(steps, counts),
            min_ns=min(part.min_ns for part in parts),
            max_ns=max(part.max_ns for part in parts),
            sum_ns=sum(part.sum_ns for part in parts),
            sum_squares=sum(part.sum_squares for part in parts),
        )

    def values_ns(self) -> NDArray[np.int64]:
        """Returns each step's highest value in ns, from `min_ns` to `max_ns`."""
        return np.clip(ends_of(self.steps), self.min_ns, self.max_ns)

    def percentile_ns(self, percent: float) -> int:
        """Returns the nearest-rank percentile, rounded up to three digits; 0 if empty.

        At least `percent` % of the samples are no longer than this. Raises ValueError if `percent` is outside 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percentile {percent!r} must lie between 0 and 100")
        if self.count == 0:
            return 0
        # The guard keeps 99.9 % of 1000 at rank 999 although 99.9 / 100 * 1000 is 999.0000000000001.
        rank = max(1, math.ceil(percent / 100 * self.count - 1e-9 * self.count))
        steps, counts = self.held.arrays()
        return self._value_of(steps, np.searchsorted(np.cumsum(counts), rank))

    def under_way_ns(self) -> int:
        """Returns the duration-weighted median: half of all time went into samples up to this long. 0 if empty."""
        if self.count == 0:
            return 0
        steps, counts = self.held.arrays()
        time_so_far = np.cumsum(middle_of(steps) * counts)  # longer samples took the other half of all the time
        return self._value_of(steps, np.searchsorted(time_so_far, time_so_far[-1] / 2))

    def _value_of(self, steps: NDArray[np.int64], place: np.intp) -> int:
        return max(self.min_ns, min(int(ends_of(steps[place : place + 1])[0]), self.max_ns))

    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0

    def stdev_ns(self) -> float:
        if self.count < 2:
            return 0.0
        variance = (self.sum_squares - self.sum_ns * (self.sum_ns / self.count)) / (self.count - 1)
        return math.sqrt(max(0.0, variance))

    def encode(self) -> str:
        """Returns the standard HdrHistogram V2 text (base64). It lacks minimum, maximum, sum and sum of squares."""
        steps, counts = self.held.arrays()
        # Zero or less stands for steps without samples before the next count.
        words = np.column_stack((1 - np.diff(steps, prepend=-1), counts)).ravel()
        content = _numbers_of(words[words != 0])
        head = _HEAD.pack(_COOKIE, len(content), 0, _DIGITS, _LOWEST_NS, HIGHEST_NS, 1.0)
        deflated = zlib.compress(head + content)
        return base64.b64encode(_OUTER.pack(_OUTER_COOKIE, len(deflated)) + deflated).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """Reads the text from `encode`. Raises ValueError if the text is damaged, or has another range or precision."""
        try:
            stored = base64.b64decode(text)
            outer_cookie, size = _OUTER.unpack_from(stored)
            unpacking = zlib.decompressobj()
            content = unpacking.decompress(stored[_OUTER.size :], 10 * _COUNTS_SIZE)  # a count has at most 9 bytes
            if not unpacking.eof:  # a megabyte may unpack to a gigabyte
                raise ValueError("it is cut off, or has more counts than its range allows")
            cookie, length, _, digits, lowest, highest, _ = _HEAD.unpack_from(content)
        except (ValueError, struct.error, zlib.error) as error:
            raise ValueError(f"not an HdrHistogram V2 text: {error}") from error
        # Four bits of a cookie are a word's size, which V2 does not use.
        if (outer_cookie & ~0xF0, cookie & ~0xF0) != (_OUTER_COOKIE & ~0xF0, _COOKIE & ~0xF0):
            raise ValueError("not an HdrHistogram V2 text: it is marked as another format")
        if (size, length) != (len(stored) - _OUTER.size, len(content) - _HEAD.size):
            raise ValueError("not an HdrHistogram V2 text: its length differs from the one in its header")
        if (lowest, highest, digits) != (_LOWEST_NS, HIGHEST_NS, _DIGITS):
            raise ValueError(
                f"its range is {lowest} to {highest} with {digits} digits,"
                f" not {_LOWEST_NS} to {HIGHEST_NS} with {_DIGITS}"
            )
        words = _numbers_in(content[_HEAD.size :])
        # A damaged number may be huge: adding it up must not overflow.
        ends = np.cumsum(np.where(words < 0, np.minimum(-words, _COUNTS_SIZE + 1), 1))
        if ends.max(initial=0) > _COUNTS_SIZE:
            raise ValueError("its counts are damaged: they exceed the range")
        steps, counts = ends[words > 0] - 1, words[words > 0]
        if steps.size == 0:
            return EMPTY
        if float(counts.sum(dtype=np.float64)) >= 2**53:
            raise ValueError("its counts are damaged: they are too large")
        middles = np.minimum(middle_of(steps), HIGHEST_NS)
        return cls(
            Counts(steps, counts),
            min_ns=int(_spans_of(steps)[0][0]),
            max_ns=min(int(ends_of(steps)[-1]), HIGHEST_NS),
            sum_ns=round(float(np.dot(middles, counts))),
            sum_squares=float(np.dot(middles * middles, counts)),
        )

    def share_within(self, low_ns: float, high_ns: float) -> float:
        """Returns the share of samples from `low_ns` to `high_ns`, to three digits; 0 if empty."""
        if self.count == 0:
            return 0.0
        steps, counts = self.held.arrays()
        middles = middle_of(steps)
        inside = (middles >= low_ns) & (middles <= high_ns)
        return float(counts[inside].sum()) / self.count


def _numbers_of(words: NDArray[np.int64]) -> bytes:
    """Encodes numbers as zigzag LEB128: 7 bits in a byte, the sign and the lowest bits first."""
    zigzag = (words << 1) ^ (words >> 63)
    rest = zigzag[:, np.newaxis] >> np.arange(0, int(zigzag.max(initial=1)).bit_length(), 7)
    every = (rest & 0x7F) | np.where(rest > 0x7F, 0x80, 0)  # the high bit: more bytes come
    rest[:, 0] = 1  # even zero needs a byte
    return every[rest > 0].astype(np.uint8).tobytes()


def _numbers_in(content: bytes) -> NDArray[np.int64]:
    """Reads numbers from `_numbers_of`. Raises ValueError if a number is cut off or over eight bytes long."""
    octets = np.frombuffer(content, dtype=np.uint8).astype(np.int64)
    ends = np.flatnonzero(octets < 0x80) + 1
    starts = np.concatenate(([0], ends))
    lengths = np.diff(starts)
    if starts[-1] != octets.size or lengths.max(initial=0) > 8:
        raise ValueError("its counts are damaged: a number is cut off")
    shifts = 7 * (np.arange(octets.size) - np.repeat(starts[:-1], lengths))
    zigzag = np.add.reduceat((octets & 0x7F) << shifts, starts[:-1]) if ends.size else octets
    return (zigzag >> 1) ^ -(zigzag & 1)


def step_of(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index of each value's step (bucket), as HdrHistogram numbers them."""
    # frexp's exponent of v is floor(log2(v)) + 1. It is exact because values stay below 2**53.
    bits = np.frexp(values_ns.astype(np.float64))[1].astype(np.int64)
    bucket = np.maximum(bits - _SUB_BITS, 0)
    sub = values_ns >> bucket
    return np.asarray(((bucket + 1) << (_SUB_BITS - 1)) + sub - _SUB_HALF, dtype=np.int64)


def middle_of(steps: NDArray[np.int64]) -> NDArray[np.float64]:
    lows, widths = _spans_of(steps)
    return np.asarray(lows + (widths - 1) / 2, dtype=np.float64)


def ends_of(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    lows, widths = _spans_of(steps)
    return lows + widths - 1


def _spans_of(steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns each step's least value (ns), and how many ns it spans."""
    bucket = (steps >> (_SUB_BITS - 1)) - 1
    widths = 1 << np.maximum(bucket, 0)
    return ((steps & (_SUB_HALF - 1)) + np.where(bucket < 0, 0, _SUB_HALF)) * widths, widths


EMPTY = Histogram(Counts(np.empty(0, np.int64), np.empty(0, np.int64)), min_ns=0, max_ns=0, sum_ns=0, sum_squares=0.0)
