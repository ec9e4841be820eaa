"""Checks absolute limits such as `min_rps` and `max_p99`: the plain figures of one run, no statistics."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_fileperf.judge.verdict import LimitCheck, Reason, ReasonKind
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.measure.recording import Recording

__all__ = ("check_limits",)


def check_limits(limits: Mapping[str, float], recording: Recording) -> tuple[LimitCheck, ...]:
    """Returns one check a limit, in the order given: `min_` or `max_` and a metric's name, in the metric's SI unit.

    A value equal to its limit holds; one that was not measured does not. Raises KeyError for an unknown metric: names
    are checked where settings are read.
    """
    return tuple(_check(name, limit, recording) for name, limit in limits.items())


def _check(name: str, limit: float, recording: Recording) -> LimitCheck:
    metric = METRICS[name.partition("_")[2]]
    value = metric.of_run(recording)
    holds = value is not None and metric.worse_sign * value <= metric.worse_sign * limit
    return LimitCheck(
        name=name,
        metric=metric.name,
        limit=limit,
        value=value,
        holds=holds,
        reason=_reason(metric, value, recording),
    )


def _reason(metric: Metric, value: float | None, recording: Recording) -> Reason | None:
    if value is None:
        why = recording.processes_changed if metric.of_processes else ""
        return Reason(kind=ReasonKind.NOT_MEASURED, metric=metric.name, side="now", text=why)
    if metric.events is not None:
        kind, count, needed = ReasonKind.FEW_EVENTS, metric.events(recording), metric.least_events
    elif metric.percentile is not None:
        requests = sum(round_.requests for round_ in recording.rounds)
        kind, count, needed = ReasonKind.FEW_FOR_PERCENTILE, requests, metric.least_requests
    else:
        return None
    return Reason(kind=kind, metric=metric.name, count=count, needed=needed) if count < needed else None
