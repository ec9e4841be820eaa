"""Generators that made one load together, or one on another machine: what each of them did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("GeneratorProcess", "GeneratorRound")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRound:
    """What one of several generators did in a round."""

    number: int
    """From 1 on."""
    requests: int
    """Successful ones."""
    failed: int
    cpu_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorProcess:
    """One of several generators that loaded a boot."""

    number: int
    """From 1 on."""
    of: int
    """How many there were."""
    connections: int = 0
    pid: int | None = None
    cores: frozenset[int] = frozenset()
    """Those that it may run on; empty where that is not known."""
    lost: str = ""
    """Why its part of the load is missing; empty where it is there."""
    worker: str = ""
    """The Dask worker that it was beside, by its address; empty for a process of this machine."""
    clock_error_ns: int = 0
    """When it began is known to so much; 0 on the clock of this machine."""
    distance_ns: int = 0
    """The shortest time that a question to it and its answer took; 0 where it was not asked."""

    @property
    def title(self) -> str:
        """`generator 2 of 4`, or `generator 2 of 4 on tcp://10.0.0.2:40331`."""
        return f"generator {self.number} of {self.of}{f' on {self.worker}' if self.worker else ''}"
