"""What the test process and the generator process say to each other: length-prefixed pickles over two pipes."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO

from pytest_fileperf.drive.beginning import Target
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan

__all__ = ("LoadOrder", "Refusal", "Setup", "read_message", "write_message")

_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first message to a generator."""

    path: tuple[str, ...]
    """`sys.path` of the test process, so that journeys import what they use."""
    scratch: str
    """Directory for large payloads; the test process removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A run to make; answered by any number of `Progress`, then a tuple of `RunResult` or a `Refusal`."""

    work: bytes
    """The pickled `Work`: unpacked after `Setup`, where a failure to import can be told."""
    plan: LoadPlan | Alternation
    targets: tuple[Target, ...]
    """Base and now for an alternation, else the only one; as many results come back."""
    pids: tuple[tuple[int, ...], ...]
    """The processes of each target's server, whose CPU time is read at the edges of rounds."""
    cores: frozenset[int] | None
    """Cores to run on; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no result."""

    kind: str
    """`plan`, `connect`, `files`, `load` or `crash`."""
    message: str
    connections: int = 0
    limit: int = 0
    """With kind `files`: how many connections were asked for, and how many files may be open."""


def write_message(stream: IO[bytes], message: object) -> None:
    """Writes one message; raises OSError when nobody reads any more."""
    raw = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(raw)) + raw)
    stream.flush()


def read_message(stream: IO[bytes]) -> object | None:
    """Returns the next message, or None at the end of the stream. Only ever reads what our own process wrote."""
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(prefix)
    raw = stream.read(length)
    return pickle.loads(raw) if len(raw) == length else None  # noqa: S301 - from our own process
