"""From settings to the load of each boot, and what it is called. Pure, but for the order of turns."""

from __future__ import annotations

import random
from dataclasses import replace

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.alternation import Alternation, Side
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.settings.resolve import DEFAULT_BOOTS, Settings
from pytest_fileperf.units import format_duration, format_rate

__all__ = (
    "alternation_plan",
    "boots_wanted",
    "contest_title",
    "limiting_plan",
    "load_identity",
    "load_plan",
    "load_title",
    "pair_ns",
    "probe_plan",
    "profile_plan",
    "turn_plan",
)

_CHANCE = random.SystemRandom()
"""Not the generator that test suites seed: two sessions are not to have the same luck."""

_SMOKE_CONNECTIONS = 4
_SMOKE_REQUESTS = 8

_MS = 1_000_000
_FIRST_PAIRS = 3
_FIRST_PAIR_NS, _PAIR_NS = 900 * _MS, 3_000 * _MS
"""For how long a pair of boots is loaded. The first ones are short: a large change shows at once."""
_PAIR_WARMUP_NS = 200 * _MS
_LEAST_TURN_NS, _LEAST_HANDOVER_NS = 50 * _MS, 5 * _MS
"""What slows a machine lasts for some tenths of a second: shorter turns than that share it."""
_HANDOVER_LATENCIES = 1.25
"""Most of the other side's last requests, sent just before its turn ended, are answered a latency later; where both
sides share a core some take longer."""
_TURN_HANDOVERS = 8.4
"""Turns of slow requests are longer, so that the handover stays a small part. They end between two whole latencies
of the slower side, but for the slowest requests: answers to what was sent together come together, and chance is seldom
to decide whether they are in a turn."""
_LEAST_TURN_HANDOVERS = 3
"""Of the slowest requests, so that two latencies count."""
_MOST_TURNS = 12
"""Of slow requests, in the time there is: three pairs of two turns each have to fit in, with boots and warm-up."""
_RATE_TURN_NS = 1_000 * _MS
_RATE_TURN_REQUESTS = 20
_PROFILE_NS = 2_000 * _MS
"""Of one look, of two: 800 samples of a busy worker name a function that costs a twentieth of a request."""


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


def probe_plan(settings: Settings) -> LoadPlan:
    """Returns the load that finds out how long a request takes."""
    plan = turn_plan(settings)
    if plan is not None:
        return plan
    return _closed(settings, warmup_ns=100 * _MS, round_ns=250 * _MS)


def limiting_plan(settings: Settings) -> LoadPlan:
    """Returns the load that says what limits a server that is loaded alone."""
    plan = turn_plan(settings)
    if plan is not None:
        return plan
    return _closed(settings, warmup_ns=200 * _MS, round_ns=700 * _MS)


def profile_plan(settings: Settings) -> LoadPlan:
    """Returns the load while a profiler looks on."""
    plan = turn_plan(settings)
    if plan is None:
        return _closed(settings, warmup_ns=0, round_ns=_PROFILE_NS)
    return plan if plan.rate is None else replace(plan, warmup_ns=0, round_ns=max(plan.round_ns, _PROFILE_NS))


def _closed(settings: Settings, *, warmup_ns: int, round_ns: int) -> LoadPlan:
    return LoadPlan(
        connections=settings.connections,
        warmup_ns=warmup_ns,
        round_ns=round_ns,
        rounds=1,
        timeout_ns=settings.timeout_ns,
    )


def turn_plan(settings: Settings) -> LoadPlan | None:
    """Returns the load of one turn, where that is a load of its own; None where turns are part of one closed loop."""
    if settings.requests is not None or settings.burst is not None or settings.ramp is not None:
        return load_plan(settings, 1, smoke=False)
    if settings.rate is None:
        return None
    least_ns = round(_RATE_TURN_REQUESTS / settings.rate * 1e9)
    plan = _closed(settings, warmup_ns=_PAIR_WARMUP_NS, round_ns=max(_RATE_TURN_NS, least_ns))
    return replace(plan, rate=settings.rate)


def pair_ns(pair: int) -> int:
    """Returns for how long a pair is loaded, at the least."""
    return _FIRST_PAIR_NS if pair < _FIRST_PAIRS else _PAIR_NS


def alternation_plan(settings: Settings, *, pair: int, latency_ns: int) -> Alternation:
    """Returns the turns of a pair, in random order; `latency_ns` is what a request typically takes."""
    handover_ns = max(_LEAST_HANDOVER_NS, round(_HANDOVER_LATENCIES * latency_ns))
    longest_ns = max(settings.max_duration_ns // _MOST_TURNS, _LEAST_TURN_HANDOVERS * handover_ns)
    turn_ns = max(_LEAST_TURN_NS, min(round(_TURN_HANDOVERS * handover_ns), longest_ns))
    warmup_ns = max(_PAIR_WARMUP_NS, handover_ns)
    return Alternation(
        connections=settings.connections,
        warmup_ns=warmup_ns,
        warm_firsts=_drawn(warmup_ns // max(_LEAST_TURN_NS, handover_ns)),
        turn_ns=turn_ns,
        handover_ns=handover_ns,
        firsts=_drawn(round(pair_ns(pair) / (2 * turn_ns))),
        timeout_ns=settings.timeout_ns,
    )


def _drawn(cycles: int) -> tuple[Side, ...]:
    """Returns whose turn is first in each of so many cycles, at least one."""
    return tuple(_CHANCE.choices(tuple(Side), k=max(1, cycles)))


def contest_title(settings: Settings, pairs: int, seconds: float) -> str:
    """Returns the load of a comparison in words: `32 connections in turn, 8 pairs of boots, 33 s`."""
    plan = turn_plan(settings)
    load = f"{settings.connections} connections" if plan is None else load_title(plan, 1)
    return f"{load} in turn, {pairs} pairs of boots, {format_duration(round(seconds) * 1_000_000_000)}"
