"""What the test process and the generator process say to each other: pickles over two pipes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import IO

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan

__all__ = ("Alive", "Begin", "Late", "LoadOrder", "Ready", "Setup", "read_message", "write_message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first message to a generator."""

    path: tuple[str, ...]
    """`sys.path` of the test process, so that journeys import what they use."""
    scratch: str
    """Directory for large payloads; the test process removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A run to make; answered by any number of `RunProgress`, then a tuple of `RunResult` or the error to raise.

    Where it is to begin together with others, it says `Ready` before, and waits for `Begin`.
    """

    works: bytes
    """The pickled `Work` of each target, as a tuple: unpacked after `Setup`, where a failure to import can be told."""
    plan: LoadPlan | Alternation
    targets: tuple[Target, ...]
    """Base and now for an alternation, else the only one; as many results come back."""
    pids: tuple[tuple[int, ...], ...]
    """The topmost processes of each target's server: at the edges of rounds the CPU time of these trees is read."""
    cores: frozenset[int] | None
    """Cores to run on; None for any."""
    together: bool = False
    """Whether it waits until it is told when to begin."""
    most_late_ns: int | None = None
    """It does not begin where it is told so much too late, and says so; None for at any time."""
    lease_s: float | None = None
    """It ends where it hears nothing for so long in a run, as from a machine that hangs; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A generator that is to begin together with others could begin its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """All generators could begin, and are to do so together."""

    origin_ns: int
    """When, on the monotonic clock of the one that gets it; all processes of a machine share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A generator was told too late when to begin, and has not begun."""

    by_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """Whoever has ordered a run is still there."""


def write_message(stream: IO[bytes], message: object) -> None:
    """Writes one message; raises OSError when nobody reads any more."""
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def read_message(stream: IO[bytes]) -> object | None:
    """Returns the next message, or None where the stream ends, also in the middle of a message."""
    try:
        message: object = pickle.load(stream)  # noqa: S301 - from our own process
    except (EOFError, pickle.UnpicklingError):
        return None
    return message
