"""From settings to the load of each boot, and what it is called; pure."""

from __future__ import annotations

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.settings import DEFAULT_BOOTS, Settings
from pytest_fileperf.units import format_duration, format_rate

__all__ = ("boots_wanted", "load_identity", "load_plan", "load_title")

_SMOKE_CONNECTIONS = 4
_SMOKE_REQUESTS = 8


def boots_wanted(settings: Settings, *, smoke: bool) -> int:
    """Returns over how many boots a run is spread, where the server can be booted more than once.

    A shape of load that is made once as a whole has one, and so has by default what is compared with no baseline.
    """
    as_a_whole = settings.requests is not None or settings.burst is not None or settings.ramp is not None
    if smoke or as_a_whole:
        return 1
    return settings.boots or (DEFAULT_BOOTS if settings.gate else 1)


def load_plan(settings: Settings, boots: int, *, smoke: bool) -> LoadPlan:
    """Returns the load for each of so many boots. Raises PlanError for a rate so low that a boot has no request."""
    if smoke:
        requests = min(settings.requests or settings.burst or _SMOKE_REQUESTS, _SMOKE_REQUESTS)
        return _counted(requests, min(settings.connections, _SMOKE_CONNECTIONS), settings)
    if settings.requests is not None:
        return _counted(settings.requests, settings.connections, settings)
    if settings.burst is not None:
        return _burst(settings.burst, settings)
    rounds = max(1, round(settings.rounds / boots))
    duration_ns = settings.duration_ns if settings.ramp is None else settings.ramp.duration_ns
    if settings.rate is not None and settings.rate * duration_ns / boots < 1e9:
        raise PlanError(
            f"rate: at {format_rate(settings.rate)}/s less than one request is due in {format_duration(duration_ns)}"
            f"{f' on {boots} boots' if boots > 1 else ''}: give it a longer duration"
        )
    return LoadPlan(
        connections=settings.connections,
        warmup_ns=settings.warmup_ns if settings.ramp is None else 0,
        round_ns=max(1, duration_ns // (boots * rounds)),
        rounds=rounds,
        timeout_ns=settings.timeout_ns,
        rate=settings.rate,
        ramp=settings.ramp,
    )


def _counted(requests: int, connections: int, settings: Settings) -> LoadPlan:
    """Returns the load of a fixed number of requests."""
    return LoadPlan(
        connections=min(connections, requests),
        warmup_ns=0,
        round_ns=settings.duration_ns,
        rounds=1,
        timeout_ns=settings.timeout_ns,
        requests=requests,
    )


def _burst(requests: int, settings: Settings) -> LoadPlan:
    """Returns the load of so many requests at once."""
    return LoadPlan(
        connections=min(settings.connections, requests),
        warmup_ns=0,
        round_ns=settings.timeout_ns,
        rounds=1,
        timeout_ns=settings.timeout_ns,
        burst=requests,
    )


def load_identity(plan: LoadPlan) -> dict[str, object]:
    """Returns what must be equal for two loads to compare, as JSON values."""
    shape = {"requests": plan.requests, "burst": plan.burst, "rate": plan.rate}
    load: dict[str, object] = {"connections": plan.connections}
    load |= {name: value for name, value in shape.items() if value is not None}
    if plan.ramp is not None:
        stages = [[stage.duration_ns / 1e9, stage.target] for stage in plan.ramp.stages]
        load["ramp of rate" if plan.ramp.of_rate else "ramp of connections"] = stages
    return load


def load_title(plan: LoadPlan, boots: int) -> str:
    """Returns the load in words: `32 connections, 6 s`."""
    seconds = format_duration(boots * plan.rounds * plan.round_ns)
    at_most = f"at most {plan.connections} connections"
    if plan.requests is not None:
        return f"{plan.connections} connections, {plan.requests} requests"
    if plan.burst is not None:
        return f"{plan.burst} requests at once, {plan.connections} connections"
    if plan.rate is not None:
        return f"{format_rate(plan.rate)}/s, {at_most}, {seconds}"
    if plan.ramp is None:
        return f"{plan.connections} connections, {seconds}"
    targets = " → ".join(format_rate(stage.target) for stage in plan.ramp.stages)
    return f"ramp 0 → {targets}{f'/s, {at_most}' if plan.ramp.of_rate else ' connections'}, {seconds}"
