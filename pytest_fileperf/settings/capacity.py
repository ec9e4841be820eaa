"""Settings of a search for the capacity, made of those of any measurement; and what only such a search can use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.searched import searches_by
from pytest_fileperf.settings.resolve import Settings

__all__ = ("for_capacity", "for_one_load")

_SHAPES = ("requests", "burst", "rate", "ramp")
_NEEDS_LATENCY = (
    'a capacity is the highest rate that holds a limit of latency, and none is given: say max_p99="100ms", or another '
    "percentile from max_p50 to max_p999"
)


def for_capacity(settings: Settings) -> Settings:
    """Returns the settings of a search for the capacity: its gate is that of the capacity, or none.

    Raises PlanError that lists every problem.
    """
    if problems := tuple(_problems(settings)):
        raise PlanError(*problems)
    of_all = {} if settings.any_tolerance is None else {"capacity": settings.any_tolerance}
    return replace(
        settings,
        capacity=True,
        gate=("capacity",) if settings.gate else (),
        tolerances={**of_all, **settings.tolerances},
    )


def _problems(settings: Settings) -> Iterator[str]:
    for shape in _SHAPES:
        if getattr(settings, shape) is not None:
            yield f"{shape}: a capacity is searched for at rates that the search chooses: leave it out"
    if settings.pause is not None:
        yield "pause is what users do who wait for answers, and here requests come by chance: leave it out"
    if not any(searches_by(name) for name in settings.limits if name != "max_error_rate"):
        yield _NEEDS_LATENCY
    if settings.limits.get("max_error_rate", 0.0) >= 1:
        yield "max_error_rate: with 100 % every request may fail, so every rate holds it: give a smaller one"


def for_one_load(settings: Settings) -> Settings:
    """Returns the settings of a load that searches for nothing; raises PlanError where they ask for a capacity."""
    asked = ["gate: capacity"] if "capacity" in settings.gate else []
    asked += ["min_capacity"] if "min_capacity" in settings.limits else []
    if asked:
        raise PlanError(
            *(f'{name} goes with a search only: write fileperf.capacity.get("/", max_p99="100ms")' for name in asked)
        )
    return settings
