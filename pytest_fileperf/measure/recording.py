"""What a load leaves behind: rounds with their counts and histograms, in one recording. Frozen; made by `recorder`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_fileperf.measure.histogram import Histogram

__all__ = ("Boot", "Failure", "Phase", "Recording", "Round", "merge_failures")


class Phase(StrEnum):
    """Which part of a stint a round is."""

    ROUND = "round"
    DRAIN = "drain"
    """What was in flight when the last round ended: counted and in the latencies, but in no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of failed request, with its first example."""

    kind: str
    """`connect`, `timeout`, `disconnected`, `protocol`, `status 500`, `size`, `digest`, `assertion`, `cancelled`,
    `not sent`, or an exception's class."""
    count: int
    example: str
    """The first one's message, with the start of the body where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A stretch of time on one boot; a request belongs to the round it ends in."""

    boot: int
    index: int
    phase: Phase
    started_ns: int
    ended_ns: int
    """Both on the generator's monotonic clock."""
    requests: int
    """Successful ones. Failures are counted apart and stay out of the histograms."""
    latency: Histogram
    """Nanoseconds from the first byte written (closed loop) to the last byte read."""
    ttfb: Histogram
    """Nanoseconds to the first byte of the answer."""
    bytes_sent: int
    """Bodies of successful requests; heads and framing are not counted, so engines and servers compare."""
    bytes_received: int
    statuses: tuple[tuple[int, int], ...] = ()
    """Status code and count, of every answer, sorted."""
    failures: tuple[Failure, ...] = ()
    server_cpu_ns: int | None = None
    """CPU time of the server's whole process tree in the round; None where it cannot be read."""
    client_cpu_ns: int = 0
    """CPU time of the generator's process in the round."""

    @property
    def duration_ns(self) -> int:
        """Length of the round."""
        return self.ended_ns - self.started_ns

    @property
    def failed(self) -> int:
        """Number of failed requests."""
        return sum(failure.count for failure in self.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Facts about one boot of the server during its stint."""

    index: int
    pids: tuple[int, ...] = ()
    peak_rss_bytes: int | None = None
    """Sum over the process tree of each process's own peak during the stint."""
    stabilised: tuple[str, ...] = ()
    """What was held equal between boots: `hash seed`, `addresses`, `allocator`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything measured in one run: all rounds of all boots."""

    rounds: tuple[Round, ...]
    boots: tuple[Boot, ...]
    connections: int
    engine: str
    """`replay` (compiled request), `client` (through httpx's client) or `in-process`."""
    why_engine: str = ""
    """Why it was not replay; empty for replay."""
    wait_ns: int = 0
    """Time spent waiting for what was in flight after the last rounds, over all stints."""
    pinned: bool = False
    """Whether server and generator ran on separate cores."""
    notes: tuple[str, ...] = field(default=())

    def measured(self) -> tuple[Round, ...]:
        """Returns the rounds proper, without the drains."""
        return tuple(round_ for round_ in self.rounds if round_.phase is Phase.ROUND)

    def latency(self) -> Histogram:
        """Returns the latencies of all successful requests, drains included."""
        return Histogram.merged(round_.latency for round_ in self.rounds)

    def ttfb(self) -> Histogram:
        """Returns the times to first byte of all successful requests, drains included."""
        return Histogram.merged(round_.ttfb for round_ in self.rounds)

    def failures(self) -> tuple[Failure, ...]:
        """Returns the failures of all rounds by kind, most frequent first, each with its first example."""
        return merge_failures(failure for round_ in self.rounds for failure in round_.failures)


def merge_failures(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Returns one failure a kind, most frequent first, with the first example of each."""
    merged: dict[str, Failure] = {}
    for failure in failures:
        seen = merged.get(failure.kind)
        merged[failure.kind] = (
            failure if seen is None else Failure(kind=seen.kind, count=seen.count + failure.count, example=seen.example)
        )
    return tuple(sorted(merged.values(), key=lambda failure: (-failure.count, failure.kind)))
