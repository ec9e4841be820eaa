"""From settings to plans: what to boot, the load of each boot, and what it is called. Chance is passed in."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.paired import MORE_S, MOST_TIMES
from pytest_fileperf.measure.metrics import METRICS, searches_by
from pytest_fileperf.plan.load import Alternation, CapacityPlan, LoadPlan, Side, generators_used
from pytest_fileperf.serve.app import AppSpec, app_spec, as_made
from pytest_fileperf.serve.spec import AsgiSpec, Command, ServerSpec, is_only_once, split_cores, worker_count
from pytest_fileperf.settings.settings import DEFAULT_BOOTS, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT_NS, Settings
from pytest_fileperf.units import format_duration, format_rate, format_share

__all__ = (
    "USUAL_PACE",
    "AlonePlan",
    "ComparisonPlan",
    "Pace",
    "ServerPlan",
    "alone_plan",
    "capacity_title",
    "comparison_plan",
    "gate_tolerances",
    "load_identity",
    "load_title",
    "patient_for",
    "server_plan",
)

_SMOKE_CONNECTIONS = 4
_SMOKE_REQUESTS = 8
_SMOKE_OF_PART = 3

_MS = 1_000_000
_FIRST_PAIRS = 3
_LEAST_PROBED_NS = 1_000 * _MS
_LEAST_TURN_NS, _LEAST_HANDOVER_NS = 50 * _MS, 5 * _MS
"""What slows a machine lasts for some tenths of a second: shorter turns than that share it."""
_HANDOVER_LATENCIES = 1.25
"""Most of the other side's last requests, sent just before its turn ended, are answered a latency later; where both
sides share a core some take longer."""
_TURN_HANDOVERS = 8.4
"""Turns of slow requests are longer, so that the handover stays a small part. They end between two whole latencies
of the slower side, except for the slowest requests: answers to what was sent together come together, and chance is
seldom to decide whether they are in a turn."""
_TURN_LENGTHS = tuple((latencies + 0.5) / 10.5 for latencies in range(7, 14))
"""What chance draws the length of a cycle's turns from, as shares of the usual: by whole latencies more or less."""
_LEAST_TURN_HANDOVERS = 3
"""Of the slowest requests, so that two latencies count."""
_MOST_TURNS = 12
"""Of slow requests, in the time there is: three pairs of two turns each have to fit in, with boots and warm-up."""
_SEARCHED_PAIRS = 4.5
"""Pairs of boots in the time of a comparison: four of them, and what boots take."""
_LEAST_PATIENCE_NS, _PATIENCE_LATENCIES = 5_000 * _MS, 20
"""A search must end though a server hangs: a request that takes 5 s, or 20 times a limit, has failed."""
_RATE_TURN_NS = 1_000 * _MS
_RATE_TURN_REQUESTS = 20
_PAUSES_A_TURN = 3
"""Of a load with pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What to boot, and on which cores."""

    spec: ServerSpec
    app: AppSpec | None
    cores: frozenset[int] | None = None
    """Those of the server. Both are None where there are not enough cores for server and generator."""
    generator_cores: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlonePlan:
    """How the code here is measured on its own."""

    boots: int
    load: LoadPlan
    """The load of each boot."""
    most_ns: int
    """After so long, boots included, no further boot is made."""
    profile: LoadPlan | None = None
    """The load while a profiler looks on; None where none does."""
    capacity: CapacityPlan | None = None
    """The search for the highest rate, which `load` comes before; None where none is searched for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the parts of a comparison take, in nanoseconds."""

    first_pair_ns: int = 900 * _MS
    """How long each of the first three pairs of boots is loaded: a large change shows at once."""
    pair_ns: int = 3_000 * _MS
    """How long each later pair is loaded."""
    warmup_ns: int = 100 * _MS
    """Of each side. Longer ones change nothing: turns after 50, 100 and 200 ms of it were alike."""
    probe_ns: int = 150 * _MS
    limiting_ns: int = 700 * _MS
    profile_ns: int = 2_000 * _MS
    """One look of two: 800 samples of a busy worker name a function that costs a twentieth of a request."""

    def of_pair(self, number: int) -> int:
        """Returns how long a pair is loaded, at the least; the first pair is number 0."""
        return self.first_pair_ns if number < _FIRST_PAIRS else self.pair_ns


USUAL_PACE = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """How the code here is measured in turn with another version, and how it is judged."""

    alpha: float
    """The level of each gate."""
    max_duration_ns: int
    to_the_end: bool
    """Whether all of that time is used, whatever is seen."""
    turn: LoadPlan | None
    """The load of one turn where that is a load of its own; None where turns are part of one closed loop."""
    probe: LoadPlan
    """Finds out how long a request takes."""
    limiting: LoadPlan
    """Shows what limits a server that is loaded alone."""
    profile: LoadPlan
    """The load while a profiler looks on."""
    pace: Pace
    base_alone: LoadPlan | None = None
    """The load of the base alone, which compares with stored figures: turns are shorter, and slower than that. None
    where there are no such figures."""
    capacity: CapacityPlan | None = None
    """The search for the highest rate of each side, load by load in turn; None where none is searched for."""

    def alternation(self, number: int, *, latency_ns: int, chance: random.Random) -> Alternation:
        """Returns the turns of a pair, in random order; `latency_ns` is what a request typically takes."""
        handover_ns = max(_LEAST_HANDOVER_NS, round(_HANDOVER_LATENCIES * latency_ns))
        longest_ns = max(self.max_duration_ns // _MOST_TURNS, _LEAST_TURN_HANDOVERS * handover_ns)
        turn_ns = max(_LEAST_TURN_NS, min(round(_TURN_HANDOVERS * handover_ns), longest_ns))
        warmup_ns = max(self.pace.warmup_ns, handover_ns)

        def drawn(cycles: int) -> tuple[Side, ...]:
            return tuple(chance.choices(tuple(Side), k=max(1, cycles)))

        cycles = max(1, round(self.pace.of_pair(number) / (2 * turn_ns)))
        # Of the slowest requests so few fit into a turn that its length matters.
        is_usual = turn_ns >= round(_TURN_HANDOVERS * handover_ns)
        lengths = chance.choices(_TURN_LENGTHS if is_usual else (1.0,), k=cycles)
        return Alternation(
            connections=self.limiting.connections,
            warmup_ns=warmup_ns,
            warm_firsts=drawn(warmup_ns // max(_LEAST_TURN_NS, handover_ns)),
            turns_ns=tuple(round(turn_ns * length) for length in lengths),
            handover_ns=handover_ns,
            firsts=drawn(cycles),
            timeout_ns=self.limiting.timeout_ns,
            generators=self.limiting.generators,
        )

    @property
    def waits_for_all(self) -> bool:
        """Whether the probe waits as long for a request as the comparison does."""
        return self.probe.timeout_ns >= self.limiting.timeout_ns

    @property
    def most_ns(self) -> int:
        """How long three pairs of boots may take, though that is more than there is."""
        return round(MOST_TIMES * self.max_duration_ns + MORE_S * 1e9)

    def least_ns(self, latency_ns: int) -> int:
        """Returns how long three pairs of boots are loaded at the least, if a request typically takes so long."""
        turns = self.alternation(0, latency_ns=latency_ns, chance=random.SystemRandom())
        return _FIRST_PAIRS * turns.duration_ns

    def title(self, pairs: int, seconds: float) -> str:
        """Returns the load in words: `32 connections in turn, 8 pairs of boots, 33 s`."""
        made = f"{self.limiting.connections} connections{_by_several(self.limiting)}"
        load = made if self.turn is None else load_title(self.turn, 1)
        load = load if self.capacity is None else capacity_title(self.capacity)
        return f"{load} in turn, {pairs} pairs of boots, {format_duration(round(seconds) * 1_000_000_000)}"


def server_plan(settings: Settings) -> ServerPlan:
    """Returns what to boot. Raises AppLoadError where the app cannot be one."""
    workers = worker_count(settings.server)
    cores, generator_cores = (None if workers is None else split_cores(workers, _generators(settings))) or (None, None)
    app = None if settings.app is None else app_spec(settings.app)
    if app is not None and isinstance(settings.server, AsgiSpec | Command):
        app = as_made(app, settings.app)
    return ServerPlan(
        spec=settings.server,
        app=app,
        cores=cores,
        generator_cores=generator_cores,
    )


def alone_plan(
    settings: Settings, *, smoke: bool = False, parts: int = 0, profile: bool = False, pace: Pace = USUAL_PACE
) -> AlonePlan:
    """Returns how the code here is measured on its own. A smoke run makes a few requests of each of the parts.

    Raises PlanError for a rate so low that a boot has no request.
    """
    settings = _patient(settings)
    most_ns = max(settings.max_duration_ns, 2 * settings.duration_ns)
    if smoke:
        return AlonePlan(boots=1, most_ns=most_ns, load=_smoke_plan(settings, parts))
    boots = _boots_wanted(settings)
    return AlonePlan(
        boots=boots,
        most_ns=most_ns,
        load=_probe(settings, pace) if settings.capacity else _load_plan(settings, boots),
        profile=_profile_plan(settings, pace) if profile else None,
        capacity=_capacity_plan(settings) if settings.capacity else None,
    )


def comparison_plan(
    settings: Settings, *, alpha: float, to_the_end: bool = False, pace: Pace = USUAL_PACE
) -> ComparisonPlan:
    """Returns how the code here is compared with another version; `alpha` is the level of each gate."""
    settings, duration_ns = _patient(settings), settings.max_duration_ns
    turn = _turn_plan(settings, pace)
    if settings.capacity:
        duration_ns = 2 * settings.search_ns
        pair_ns = round(duration_ns / _SEARCHED_PAIRS)
        pace = replace(pace, first_pair_ns=pair_ns, pair_ns=pair_ns)
    return ComparisonPlan(
        alpha=alpha,
        max_duration_ns=duration_ns,
        to_the_end=to_the_end,
        turn=turn,
        capacity=_capacity_plan(settings) if settings.capacity else None,
        probe=turn or _quick(_one_round(settings, pace.probe_ns, warmup_ns=pace.warmup_ns // 2), settings),
        limiting=replace(turn or _one_round(settings, pace.limiting_ns, warmup_ns=pace.warmup_ns), close=True),
        profile=_profile_plan(settings, pace),
        pace=pace,
    )


def _patient(settings: Settings) -> Settings:
    """Returns the settings where no request is waited for longer than all the time there is, unless a test says so."""
    if settings.timeout_ns != DEFAULT_TIMEOUT_NS:
        return settings
    return replace(settings, timeout_ns=min(settings.timeout_ns, settings.max_duration_ns))


def patient_for(settings: Settings, *, spent_ns: int) -> Settings:
    """Returns the settings of a run alone after a comparison that found no answer: it may end a fifth and 1 s late.

    Half of the time is left for an answer, however long servers took to start.
    """
    if settings.timeout_ns not in (DEFAULT_TIMEOUT_NS, settings.max_duration_ns):
        return settings
    left_ns = max(settings.max_duration_ns // 2, round(1.2 * settings.max_duration_ns) + 1_000 * _MS - spent_ns)
    timeout_ns = min(settings.timeout_ns, settings.max_duration_ns, left_ns)
    # A connection whose first request gets no answer has no time for another.
    warmup_ns = min(settings.warmup_ns, timeout_ns // 4)
    duration_ns = min(settings.duration_ns, timeout_ns - warmup_ns)
    return replace(settings, timeout_ns=timeout_ns, warmup_ns=warmup_ns, duration_ns=duration_ns)


def _quick(probe: LoadPlan, settings: Settings) -> LoadPlan:
    """Returns a probe that does not wait for requests which are too slow to be compared in the time there is."""
    if settings.timeout_ns not in (DEFAULT_TIMEOUT_NS, settings.max_duration_ns):
        return probe
    return replace(probe, timeout_ns=min(settings.timeout_ns, max(_LEAST_PROBED_NS, settings.max_duration_ns // 8)))


def gate_tolerances(settings: Settings) -> dict[str, float]:
    """Returns the tolerance of each gated metric, by name, as a share."""
    return {name: settings.tolerances.get(name, METRICS[name].tolerance) for name in settings.gate}


def _boots_wanted(settings: Settings) -> int:
    """Returns how many boots share a run: by default one where there is no gate, or the load is made as a whole."""
    as_a_whole = settings.requests is not None or settings.burst is not None or settings.ramp is not None
    if as_a_whole or is_only_once(settings.server):
        return 1
    return settings.boots or (DEFAULT_BOOTS if settings.gate or settings.capacity else 1)


def _probe(settings: Settings, pace: Pace) -> LoadPlan:
    """Returns the closed loop that a search for the capacity begins with."""
    return _one_round(settings, 2 * pace.probe_ns, warmup_ns=pace.warmup_ns, at_most=DEFAULT_CONNECTIONS)


def _capacity_plan(settings: Settings) -> CapacityPlan:
    limits = {name: limit for name, limit in settings.limits.items() if searches_by(name)}
    slowest_s = max(limit for name, limit in limits.items() if name != "max_error_rate")
    patience_ns = max(_LEAST_PATIENCE_NS, round(_PATIENCE_LATENCIES * slowest_s * 1e9))
    return CapacityPlan(
        limits=limits,
        total_ns=settings.search_ns,
        connections=settings.search_connections,
        timeout_ns=min(settings.timeout_ns, patience_ns),
        generators=_generators(settings),
    )


def _smoke_plan(settings: Settings, parts: int) -> LoadPlan:
    """Returns a few requests, of each of the parts."""
    requests = _SMOKE_OF_PART * parts
    if requests <= _SMOKE_REQUESTS:
        requests = min(settings.requests or settings.burst or _SMOKE_REQUESTS, _SMOKE_REQUESTS)
    limit_ns = max(settings.duration_ns, settings.timeout_ns)  # only success counts, also of a slow machine
    plan = _one_round(settings, limit_ns, at_most=min(_SMOKE_CONNECTIONS, requests))
    return replace(plan, requests=requests, pause=None, generators=1)


def _load_plan(settings: Settings, boots: int) -> LoadPlan:
    """Returns the load of each boot. Raises PlanError for a rate so low that a boot has no request."""
    if settings.requests is not None:
        plan = _one_round(settings, settings.duration_ns, at_most=settings.requests)
        return replace(plan, requests=settings.requests)
    if settings.burst is not None:
        plan = _one_round(settings, settings.timeout_ns, at_most=settings.burst)
        return replace(plan, burst=settings.burst)
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
        pause=settings.pause,
        generators=_generators(settings),
    )


def _one_round(settings: Settings, round_ns: int, *, warmup_ns: int = 0, at_most: int | None = None) -> LoadPlan:
    """Returns a closed loop of one round; `at_most` bounds its connections."""
    return LoadPlan(
        connections=settings.connections if at_most is None else min(settings.connections, at_most),
        warmup_ns=warmup_ns,
        round_ns=round_ns,
        rounds=1,
        timeout_ns=settings.timeout_ns,
        pause=settings.pause,
        generators=_generators(settings),
    )


def _generators(settings: Settings) -> int:
    """Returns how many generators there are, or one where that is still to be found out."""
    return settings.generators if isinstance(settings.generators, int) else 1


def capacity_title(plan: CapacityPlan) -> str:
    """Returns the search in words: `the highest rate with max_p99 100 ms, max_error_rate 0.1 %`."""
    shown = (
        f"{name} {format_share(limit) if name == 'max_error_rate' else format_duration(round(limit * 1e9))}"
        for name, limit in plan.limits.items()
        if limit > 0
    )
    return f"the highest rate with {', '.join(shown)}"


def load_identity(plan: LoadPlan) -> dict[str, object]:
    """Returns what must be equal for two loads to compare, as JSON values."""
    shape = {"requests": plan.requests, "burst": plan.burst, "rate": plan.rate}
    load: dict[str, object] = {"connections": plan.connections}
    if (generators := generators_used(plan)) > 1:
        load["generators"] = generators
    load |= {name: value for name, value in shape.items() if value is not None}
    if plan.pause is not None:
        load["pause"] = plan.pause.identity()
    if plan.ramp is not None:
        stages = [[stage.duration_ns / 1e9, stage.target] for stage in plan.ramp.stages]
        load["ramp of rate" if plan.ramp.of_rate else "ramp of connections"] = stages
    return load


def load_title(plan: LoadPlan, boots: int) -> str:
    """Returns the load in words: `32 connections, 6 s`."""
    if several := _by_several(plan):
        return load_title(replace(plan, generators=1), boots) + several
    seconds = format_duration(boots * plan.rounds * plan.round_ns)
    at_most = f"at most {plan.connections} connections"
    if plan.pause is not None:
        return f"{load_title(replace(plan, pause=None), boots)}, pauses of {plan.pause}"
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


def _by_several(plan: LoadPlan) -> str:
    """Returns `, 4 generators`; empty for one."""
    count = generators_used(plan)
    return f", {count} generators" if count > 1 else ""


def _profile_plan(settings: Settings, pace: Pace) -> LoadPlan:
    """Returns the load while a profiler looks on."""
    turn = _turn_plan(settings, pace)
    if turn is None:
        return _one_round(settings, pace.profile_ns)
    return turn if turn.rate is None else replace(turn, warmup_ns=0, round_ns=max(turn.round_ns, pace.profile_ns))


def _turn_plan(settings: Settings, pace: Pace) -> LoadPlan | None:
    """Returns the load of one turn where that is a load of its own, or None."""
    if settings.requests is not None or settings.burst is not None or settings.ramp is not None:
        return _load_plan(settings, 1)
    if settings.pause is not None:
        # The other side's turns would be pauses, too.
        round_ns = max(_RATE_TURN_NS, _PAUSES_A_TURN * settings.pause.mean_ns)
        return _one_round(settings, round_ns, warmup_ns=pace.warmup_ns)
    if settings.rate is None:
        return None
    least_ns = round(_RATE_TURN_REQUESTS / settings.rate * 1e9)
    round_ns = max(_RATE_TURN_NS, least_ns)
    return replace(_one_round(settings, round_ns, warmup_ns=pace.warmup_ns), rate=settings.rate)
