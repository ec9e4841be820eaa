"""Request bodies of a given size and kind, because a parser's cost depends on content."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import count
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.units import parse_size_bytes

# --- Texts that differ in each request: a counter and its digest, always of one length

UNIQUE_BYTES = 48
"""The length of a unique text: 16 hexadecimal digits of a counter, and 32 of its digest. A counter alone would differ
in only a byte or two."""


def unique_bytes() -> bytes:
    """Returns hexadecimal digits that no other call returns. This takes a microsecond."""
    counter, keyed = _own()
    number = b"%016x" % next(counter)
    digest = keyed.copy()
    digest.update(number)
    return number + digest.hexdigest().encode()


@cache
def _own() -> tuple[count[int], blake2b]:
    """Returns this process's counter, and a digest with a key that no other process has."""
    return count(), blake2b(key=os.urandom(16), digest_size=16)


# --- payload

KINDS = ("random", "text", "crlf")
"""Kinds of generated content: incompressible bytes, lines of words, and a form parser's worst case (dense CR LF)."""

_BLOCK_BYTES = 1 << 20
_WORDS = ("upload", "latency", "of", "a", "file", "server", "queue", "throughput", "the", "round", "byte", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A request body from `payload()`. Give it to httpx as `content=` or in `files=`."""

    size_bytes: int
    kind: str
    """From `KINDS`, or `file`."""
    seed: int = 0
    path: Path | None = None
    """The file with the content, for kind `file`."""
    filename: str = "payload.bin"
    """The file's name in a form."""
    content_type: str = "application/octet-stream"
    """The file's type in a form."""
    unique: bool = False
    """Whether each request gets other content: its last 48 bytes are a counter and a digest."""
    tail: bytes = b""
    """Replaces the content's last bytes; empty for no change."""

    def fresh(self) -> Payload:
        """Returns a copy with unique last bytes. Send the copy, and compare the answer with it."""
        return ending(self, unique_bytes()) if self.unique else self

    def read(self) -> bytes:
        """Returns the whole content. A unique payload differs each time."""
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Yields the content in blocks of up to 1 MiB. A unique payload differs each time."""
        content = self.fresh()
        left = content.size_bytes - len(content.tail)
        for block in content._own_blocks():
            yield block[:left]
            left -= len(block)
            if left <= 0:
                break
        if content.tail:
            yield content.tail

    def _own_blocks(self) -> Iterator[bytes]:
        if self.path is not None:
            try:
                with self.path.open("rb") as file:
                    while block := file.read(_BLOCK_BYTES):
                        yield block
            except OSError as error:
                raise gone(self.path, error) from error
            return
        left = self.size_bytes
        generator = random.Random(self.seed)  # noqa: S311 - reproducible content, not a secret
        while left > 0:
            block = _generate(self.kind, generator)[:left]
            left -= len(block)
            yield block

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the content in blocks, so that any `httpx.AsyncClient` takes a payload as `content=`."""
        for block in self.blocks():
            yield block

    def sha256(self) -> str:
        """Returns the content's hexadecimal digest. Raises PlanError for a unique payload, which has many."""
        if self.unique:
            raise PlanError(
                "a unique payload differs in every request, so it has no digest. Call .fresh() for one content that "
                "stays the same, and take the digest of that"
            )
        return _sha256(self)

    def identity(self) -> dict[str, object]:
        """Returns size, kind, seed and digest as JSON values: part of a result's identity."""
        known = {"size_bytes": self.size_bytes, "kind": self.kind, "seed": self.seed}
        if self.unique or self.tail:
            return {**known, "sha256": ending(self, b"").sha256(), "unique": True}
        return {**known, "sha256": self.sha256()}


def ending(content: Payload, tail: bytes) -> Payload:
    """Returns the payload with `tail` as its end in every request."""
    return replace(content, unique=False, tail=tail)


def payload(
    what: str | int | os.PathLike[str],
    *,
    kind: str = "random",
    seed: int = 0,
    filename: str | None = None,
    content_type: str = "application/octet-stream",
    unique: bool = False,
) -> Payload:
    """Returns a payload of a size (`"256KiB"`, `100_000`), or with the content of a file (a path).

    `kind` is `random` (incompressible), `text` (lines of words) or `crlf` (dense CR LF, a form parser's worst case).
    `seed` chooses the content. A form names the payload by `filename` and `content_type`. With `unique` each request
    has other content: its last 48 bytes are a counter and a digest. Raises PlanError for an invalid size or kind, and
    for a file that cannot be read.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    problems = []
    size_bytes: int | None = None
    path: Path | None = None
    if kind not in KINDS:
        problems.append(f"payload kind {kind!r} is unknown. Use one of {', '.join(KINDS)}, or give the path of a file")
    try:
        # A bool is an int, and a float looks like one: neither is a size or a path.
        size_bytes = None if isinstance(what, os.PathLike) else parse_size_bytes(what)
    except ValueError as error:
        if not isinstance(what, str):
            problems.append(f"payload size: {error}")
    if size_bytes is None and isinstance(what, str | os.PathLike):
        path = Path(what)
        problems += _file_problems(path)
    if path is not None and not problems:
        size_bytes = path.stat().st_size
    if unique and size_bytes is not None and size_bytes < UNIQUE_BYTES:
        problems.append(f"payload of {size_bytes} bytes is too small: a unique one needs at least {UNIQUE_BYTES} bytes")
    if problems:
        raise PlanError(*problems)
    assert size_bytes is not None
    return Payload(
        size_bytes=size_bytes,
        kind=kind if path is None else "file",
        seed=seed if path is None else 0,
        path=None if path is None else path.resolve(),
        filename=filename or ("payload.bin" if path is None else path.name),
        content_type=content_type,
        unique=unique,
    )


def _file_problems(path: Path) -> list[str]:
    try:
        if path.is_fifo() or path.is_char_device():
            return [
                f"payload {os.fspath(path)!r} is a pipe or a device, which can be read only once. Copy it to a file"
            ]
        is_there = path.is_file()
    except OSError:  # its name is too long for any file
        is_there = False
    if not is_there:
        return [
            f'payload {os.fspath(path)!r} is neither a size (as in "256KiB") nor an existing file (the working '
            f"directory is {Path.cwd()})"
        ]
    if not os.access(path, os.R_OK):
        return [f"payload file {os.fspath(path)!r} cannot be read: permission denied"]
    with path.open("rb") as file:
        if path.stat().st_size == 0 and file.read(1):
            return [f"payload file {os.fspath(path)!r} has no known size. Copy it to a plain file, and give that file"]
    return []


def _generate(kind: str, generator: random.Random) -> bytes:
    if kind == "random":
        return generator.randbytes(_BLOCK_BYTES)
    if kind == "text":
        lines = []
        length = 0
        while length < _BLOCK_BYTES:
            lines.append(" ".join(generator.choices(_WORDS, k=10)) + "\n")
            length += len(lines[-1])
        return "".join(lines).encode("ascii")[:_BLOCK_BYTES]
    # A CR or LF every few bytes: form parsers look for the boundary at each.
    noise = generator.randbytes(_BLOCK_BYTES // 2)
    return b"".join(b"\r\n" + noise[i : i + 2] for i in range(0, len(noise), 2))[:_BLOCK_BYTES]


def gone(path: Path, error: OSError) -> PlanError:
    """Returns the error for a payload's file that has become unreadable."""
    reason = error.strerror or str(error)
    return PlanError(f"payload file {str(path)!r}: {reason}. It must not change until the measurement ends")


@lru_cache(maxsize=64)
def _sha256(content: Payload) -> str:
    digest = hashlib.sha256()
    for block in content.blocks():
        digest.update(block)
    return digest.hexdigest()
