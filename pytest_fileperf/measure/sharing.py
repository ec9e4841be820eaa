"""How several generators shared a load: what each of them did over the rounds that count, and how busy it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fileperf.measure.generators import GeneratorProcess
from pytest_fileperf.measure.recording import Recording, Round

__all__ = ("GeneratorUse", "busiest_share", "busiest_title", "generator_uses")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUse:
    """What one of several generators did."""

    number: int
    """From 1 on."""
    cores: tuple[int, ...]
    """Those that it ran on; empty where that is not known."""
    connections: int
    rps: float
    """Its successful requests per second of the rounds."""
    errors: int
    """Its failed requests."""
    cpu_share: float
    """CPU seconds per second of the rounds: 1.0 is its whole core."""
    lost: str = ""
    """Why its part of the load is missing on some boot, as in `'s process ended with exit code 7`; else empty."""
    worker: str = ""
    """The Dask worker that it was beside, by its address; empty for a process of this machine."""
    clock_error: float = 0.0
    """Seconds to which it is known when it began, at worst; 0.0 on the clock of this machine."""
    distance: float = 0.0
    """Seconds that a question to it and its answer took at least; 0.0 where it was not asked."""


def busiest_share(rounds: Sequence[Round]) -> float:
    """Returns CPU seconds per second of the generator, or of the busiest of several; 0.0 without rounds."""
    duration_ns = sum(round_.duration_ns for round_ in rounds)
    if not duration_ns:
        return 0.0
    shares = _shares(rounds)
    return max(shares.values()) if shares else sum(round_.client_cpu_ns for round_ in rounds) / duration_ns


def busiest_title(recording: Recording) -> str:
    """Returns `generator 2 of 4` for the busiest of several; empty for one generator."""
    shares = _shares(recording.counted())
    if len(shares) < 2:
        return ""
    of = max((own.of for boot in recording.boots for own in boot.generators), default=len(shares))
    return f"generator {max(shares, key=lambda number: shares[number])} of {of}"


def generator_uses(recording: Recording) -> tuple[GeneratorUse, ...]:
    """Returns what each of several generators did, in order; nothing for one generator."""
    rounds, shares = recording.counted(), _shares(recording.counted())
    seconds = sum(round_.duration_ns for round_ in rounds) / 1e9
    known: dict[int, GeneratorProcess] = {}
    boots: dict[int, list[GeneratorProcess]] = {}
    for boot in recording.boots:
        for own in boot.generators:
            boots.setdefault(own.number, []).append(own)
            if own.number not in known or own.lost:
                known[own.number] = own
    requests = dict.fromkeys(known, 0)
    errors = dict(requests)
    for round_ in rounds:
        for done in round_.generators:
            requests[done.number] = requests.get(done.number, 0) + done.requests
    for round_ in recording.rounds:
        for done in round_.generators:
            errors[done.number] = errors.get(done.number, 0) + done.failed
    return tuple(
        GeneratorUse(
            number=number,
            cores=tuple(sorted(own.cores)),
            connections=own.connections,
            rps=requests[number] / seconds if seconds else 0.0,
            errors=errors[number],
            cpu_share=shares.get(number, 0.0),
            lost=own.lost,
            worker=own.worker,
            clock_error=max(boot.clock_error_ns for boot in boots[number]) / 1e9,
            distance=min(boot.distance_ns for boot in boots[number]) / 1e9,
        )
        for number, own in sorted(known.items())
    )


def _shares(rounds: Sequence[Round]) -> dict[int, float]:
    """Returns CPU seconds per second of each of several generators, over the rounds that it was in."""
    cpu_ns: dict[int, int] = {}
    duration_ns: dict[int, int] = {}
    for round_ in rounds:
        for own in round_.generators:
            cpu_ns[own.number] = cpu_ns.get(own.number, 0) + own.cpu_ns
            duration_ns[own.number] = duration_ns.get(own.number, 0) + round_.duration_ns
    return {number: cpu_ns[number] / length_ns for number, length_ns in duration_ns.items() if length_ns}
