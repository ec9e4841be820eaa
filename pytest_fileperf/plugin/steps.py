"""What is asked of the steps of a journey: `steps={"login": {"max_p99": "50ms"}, "download": {"gate": "p50"}}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.mix import why_no_name
from pytest_fileperf.plan.step import Step
from pytest_fileperf.settings.keys import LIMITS, unknown_keys
from pytest_fileperf.settings.resolve import resolve

__all__ = ("STEP_KEYS", "steps_from")

_OF_A_WHOLE_LOAD = ("cpu_per_request", "rss", "capacity", *(name for name, one in METRICS.items() if one.events))
STEP_KEYS = ("gate", "tolerance", *(name for name in LIMITS if name.partition("_")[2] not in _OF_A_WHOLE_LOAD))
"""The keys of the marker that a step may have. What the server uses, and events of streams, are a whole load's."""


def steps_from(given: object) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Returns the steps, and what is wrong with them."""
    if given is None:
        return (), ()
    if not isinstance(given, Mapping):
        form = "say what is asked of each step by its name, as in {'login': {'max_p99': '50ms'}, 'download': {}}"
        return (), (f"steps: {given!r} is no mapping: {form}",)
    steps: list[Step] = []
    problems: list[str] = []
    for name, keys in given.items():
        found = [*_problems(name, keys)]
        if not found:
            try:
                steps.append(_step(name, keys))
            except PlanError as error:
                found += error.problems
        problems += (f"steps: {name}: {problem}" for problem in found)
    return tuple(steps), tuple(problems)


def _problems(name: object, keys: object) -> Iterator[str]:
    if problem := why_no_name(name):
        yield problem
    if not isinstance(keys, Mapping):
        yield f"{keys!r} is no mapping: write {{}} for nothing, or {{'max_p99': '50ms'}}"
    else:
        yield from unknown_keys(keys, STEP_KEYS)


def _step(name: str, keys: Mapping[str, object]) -> Step:
    """Returns the step; nothing is compared of it, unless it says what. Raises PlanError."""
    keys = {key: value for key, value in keys.items() if value is not None}
    settings = resolve(verb={"gate": "none", **keys}, marker={}, options={}, ini={})
    if others := [metric for metric in settings.gate if metric in _OF_A_WHOLE_LOAD]:
        raise PlanError(f"gate: {', '.join(others)}: known of the whole load, and not of a step")
    limits = {limit: value for limit, value in settings.limits.items() if limit in keys}
    return Step(name=name, gate=settings.gate, tolerances=settings.tolerances, limits=limits)
