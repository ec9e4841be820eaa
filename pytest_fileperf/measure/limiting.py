"""Names what limited a run where the figures leave no doubt: the generator, or the server's CPU."""

from __future__ import annotations

from pytest_fileperf.measure.measurement import Measurement

__all__ = ("limited_by",)

BUSY_SHARE = 0.90
"""Workers that use this much of their cores have no time left for more requests."""


def limited_by(measurement: Measurement, *, workers: int | None) -> str:
    """Returns what set the pace, with the figure that says so; empty when that is unclear.

    `workers` is the number of the server's worker processes, each good for one core; None where it is not known.
    """
    if measurement.saturated:
        return f"the load generator, at {measurement.client.cpu_share * 100:.0f} % of its core"
    share = measurement.server.cpu_share
    if workers is not None and share is not None and share >= BUSY_SHARE * workers:
        cores = "1 core" if workers == 1 else f"{workers} cores"
        return f"server CPU, at {share / workers * 100:.0f} % of {cores}"
    return ""
