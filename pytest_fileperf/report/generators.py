"""Texts about the load generators: what one did, or each of several."""

from __future__ import annotations

from pytest_fileperf.measure.measurement import ClientUse, Measurement
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.sharing import GeneratorUse
from pytest_fileperf.report.text import quantity
from pytest_fileperf.units import format_count

__all__ = ("generator_figures", "generator_rows", "generator_texts", "saturated_share")


def saturated_share(use: ClientUse) -> str:
    """Returns how busy the generator was that set the pace, and what that means."""
    if len(use.generators) < 2:
        return f"{use.cpu_share * 100:.0f} % of its core; these figures are the generator's own"
    busiest = max(use.generators, key=lambda own: own.cpu_share)
    who = f"generator {busiest.number} of {len(use.generators)}"
    return f"{who} at {busiest.cpu_share * 100:.0f} % of its core; these figures are the generators' own"


def generator_figures(use: ClientUse) -> list[str]:
    """Returns how requests were sent, and the CPU that it took, of all generators together."""
    of = f"a core, all {len(use.generators)} generators together" if len(use.generators) > 1 else "its core"
    texts = [f"engine {use.engine}", f"CPU {use.cpu_share * 100:.0f} % of {of}"]
    if use.cpu_per_request is not None:
        texts.append(f"{quantity(use.cpu_per_request, Unit.SECONDS)}/request")
    return texts


def generator_texts(use: GeneratorUse) -> tuple[str, ...]:
    """Returns what a generator did: core or worker, connections, rate, failures, CPU, clock, or why it is missing."""
    return (
        use.worker or (f"core {', '.join(map(str, use.cores))}" if use.cores else "any core"),
        format_count(use.connections, "connection"),
        quantity(use.rps, Unit.PER_SECOND),
        format_count(use.errors, "error"),
        f"CPU {use.cpu_share * 100:.0f} %",
        *_distance_texts(use),
        *([f"lost: it{use.lost}".replace("it's process", "its process")] if use.lost else []),
    )


def _distance_texts(use: GeneratorUse) -> list[str]:
    """Returns how far away a generator on a worker of a cluster is, and how well its clock is known."""
    if not use.distance:
        return []
    clock = f"clock known to {quantity(use.clock_error, Unit.SECONDS)}" if use.clock_error else "same clock"
    return [f"{quantity(use.distance, Unit.SECONDS)} away", clock]


def generator_rows(run: Measurement) -> list[tuple[str, list[str]]]:
    """Returns a row for each generator, where there are several or they are elsewhere."""
    return [(f"generator {use.number}", list(generator_texts(use))) for use in run.client.generators]
