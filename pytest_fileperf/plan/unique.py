"""Texts that no other request has: a counter and a digest of it, always of one length."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from itertools import count

__all__ = ("UNIQUE_BYTES", "unique_bytes")

UNIQUE_BYTES = 48
"""16 hexadecimal digits of the counter, 32 of the digest: with a counter alone texts would differ in a byte or two."""


def unique_bytes() -> bytes:
    """Returns the next text: hexadecimal digits, which need no quoting anywhere. It takes a microsecond."""
    counter, keyed = _own()
    number = b"%016x" % next(counter)
    digest = keyed.copy()
    digest.update(number)
    return number + digest.hexdigest().encode()


@cache
def _own() -> tuple[count[int], blake2b]:
    """Returns the counter of this process, and a digest with a key that no other process or later run has."""
    return count(), blake2b(key=os.urandom(16), digest_size=16)
