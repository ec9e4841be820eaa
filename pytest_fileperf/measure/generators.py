"""Several generators that made one load together: what each of them did."""

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
    connections: int
    pid: int | None = None
    cores: frozenset[int] = frozenset()
    """Those that it may run on; empty where that is not known."""
    lost: str = ""
    """Why its part of the load is missing; empty where it is there."""

    @property
    def title(self) -> str:
        """`generator 2 of 4`."""
        return f"generator {self.number} of {self.of}"
