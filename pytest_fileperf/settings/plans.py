"""Turns a measurement's settings into a plan: what to start, and each load. `session` carries the plan out."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cached_property

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host.cores import split_cores
from pytest_fileperf.judge.capacity import NextLoad
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.metrics import METRICS, searches_by
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side, generators_used
from pytest_fileperf.plan.pacing import spread_seed
from pytest_fileperf.plan.request import WHOLE_LOAD, Subject, SubjectName, Tolerance
from pytest_fileperf.plan.work import Part, Work, parts_of, steps_of
from pytest_fileperf.serve.app import AppSpec, app_spec, as_made
from pytest_fileperf.serve.spec import AsgiSpec, Command, Granian, Url, is_only_once, worker_count
from pytest_fileperf.settings.settings import DEFAULT_BOOTS, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT_NS, Settings
from pytest_fileperf.units import format_count, format_duration, format_rate, format_share

_SMOKE_REQUESTS = 8
_MS = 1_000_000
_FIRST_PAIRS = 3
_LEAST_PAIR_NS, _MOST_PAIR_NS = 1_000 * _MS, 3_000 * _MS
"""How long a pair is loaded, at least and at most. A pair has a start-up of each version. The first pairs get the least
time, because a large change shows at once. That is time for ten cycles of fast requests (`Rules.few_cycles`). A cycle
loads each version once."""
_PAIR_STARTS, _PAIR_CYCLES = 2, 7
"""Later pairs are loaded for 2 × the time of their start-ups, or for 7 cycles if that is longer. Fewer cycles say
little about a pair's noise. A trial compared pairs of 1.3 s with pairs of 3 s, in equal total time. With short pairs,
one endpoint's result was 9 % less exact, and another endpoint's result 23 % more exact."""
_WARMUP_NS = 100 * _MS
"""Warm-up of each version. After 50, 100 and 200 ms of warm-up, measurements were alike."""
_PROBE_NS, _LIMITING_NS = 150 * _MS, 700 * _MS
_PROFILE_NS = 2_000 * _MS
"""The time of one profile. Two profiles have 800 samples: enough to show a function with 5 % of a request's time."""
_LEAST_TURN_NS, _LEAST_HANDOVER_NS = 50 * _MS, 5 * _MS
"""The shortest turn (slice of load on one version), and the shortest handover at its start. A machine's slow moments
last for some tenths of a second. Turns are shorter, so both versions share such a moment."""
_HANDOVER_LATENCIES = 1.25
"""The handover's length ÷ a request's latency. During the handover, the other version still answers its last requests.
Most of them take one latency. Some take longer if both versions share a core."""
_TURN_HANDOVERS = 8.4
"""A turn's length ÷ its handover's length. So even with slow requests, the handover is a small part of a turn. A turn
usually lasts for 10.5 latencies (1.25 × 8.4). Answers often come together, after whole latencies. The turn ends half a
latency later, so chance rarely decides which answers count."""
_TURN_LENGTHS = tuple((latencies + 0.5) / 10.5 for latencies in range(7, 14))
"""Factors for a turn's length: 7.5 to 13.5 latencies ÷ the usual 10.5. Each cycle (a turn on each version) gets a
random factor."""
_SEARCH_ROUNDS = 3
"""Rounds in each load of a search. With fewer rounds, `limit_of` could not see a growing backlog."""
_RATE_TURN_NS = 1_000 * _MS
_LATER = 0.7
"""First requests are slower if later ones take at most this part of their time. Noise alone rarely does that."""


def subjects_of(work: Work, settings: Settings) -> dict[SubjectName, Subject]:
    """Returns all subjects of verdicts: the whole load, its parts, and journey steps with gates or limits."""
    whole = Subject(
        name="", gate=settings.gate, watch=settings.watch, tolerances=settings.tolerances, limits=settings.limits
    )
    return {WHOLE_LOAD: whole, **{(part.name, ""): part for part in parts_of(work)}, **steps_of(work)}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One measurement: what to start, how to load it, and how to judge it."""

    test: TestId
    work: Work
    settings: Settings
    app: AppSpec | None
    cores: frozenset[int] | None = None
    """The server's own cores. None if the machine has too few cores for server and load generators."""
    generator_cores: frozenset[int] | None = None
    generators: int = 1
    """At most this many processes make the load together."""
    said: tuple[str, ...] = ()
    """Facts for readers of the reports, as sentences without a full stop."""
    alpha: float = 0.0
    """The probability that a gate fails although the code did not change."""
    smoke: bool = False
    """Make only a few requests for each part of the load."""
    profiles: bool = False
    """Profile the code after a measurement without an old version."""
    shows_queries: bool = False
    """Count database queries, even if no gate or limit needs them."""
    to_the_end: bool = False
    """Use a comparison's whole time, even if its result is clear earlier."""
    in_half: bool = False
    """Use only half of the time, because another measurement follows."""
    first_ns: int = 0
    """How long the first requests of a load take; 0 if later ones take about as long. In the first ones, an app may log
    in, or open connections to its database. They belong to the warm-up."""

    # --- judged subjects

    @cached_property
    def subjects(self) -> dict[SubjectName, Subject]:
        return subjects_of(self.work, self.settings)

    def subject(self, name: SubjectName) -> Subject:
        """Steps that the test does not name have no gates or limits."""
        return self.subjects.get(name, Subject(name=name[1]))

    def title_of(self, name: SubjectName) -> str:
        """Returns a part or step in words: `GET /`, or `step login of visit`."""
        part = self.subjects.get((name[0], "")) if name in self.subjects else None
        work = part.work.name if isinstance(part, Part) else self.work.name
        return f"step {name[1]} of {work}" if name[1] else work

    def allowed_errors(self, name: SubjectName) -> float:
        """Returns the share of requests that may fail."""
        # A failed step fails its journey, so steps have no default limit.
        return self.subject(name).limits.get("max_error_rate", 1.0 if name[1] else 0.0)

    def tolerances(self, name: SubjectName = WHOLE_LOAD) -> dict[str, float]:
        """Returns the tolerance of each gated or watched metric."""
        subject, given = self.subject(name), dict(self.settings.tolerances)
        given |= subject.tolerances
        gates = {metric: given.get(metric, METRICS[metric].tolerance) for metric in subject.gate}
        return gates | {metric: Tolerance(METRICS[metric].tolerance, watched=True) for metric in subject.watch}

    @property
    def times_starts(self) -> bool:
        """Whether start-up times are measured. Each start-up then imports the app anew."""
        return not self.smoke and self._asks_for("startup")

    @property
    def counts_queries(self) -> bool:
        counts = not self.smoke and (self.shows_queries or self._asks_for("queries"))
        return counts and not isinstance(self.settings.server, Command | Granian | Url)

    def _asks_for(self, metric: str) -> bool:
        return metric in self.subject(WHOLE_LOAD).compared or f"max_{metric}" in self.settings.limits

    # --- alone

    @property
    def boots(self) -> int:
        """How many start-ups share the load in a measurement without an old version."""
        settings = self.settings
        if self.smoke or settings.is_whole or is_only_once(settings.server):
            return 1
        needs_several = settings.gate or settings.watch or settings.capacity or self.times_starts
        return settings.boots or (DEFAULT_BOOTS if needs_several else 1)

    @property
    def load(self) -> LoadPlan:
        """The load of each start-up. For a capacity search, its first load.

        Raises PlanError if the rate is so low that a start-up gets no request.
        """
        settings, timeout_ns = self.settings, self._timeout_ns(self.settings.max_duration_ns)
        if self.smoke:
            requests = 3 * (len(self.subjects) - 1)  # three for each part
            if requests <= _SMOKE_REQUESTS:
                requests = min(settings.requests or settings.burst or _SMOKE_REQUESTS, _SMOKE_REQUESTS)
            return LoadPlan(
                connections=min(settings.connections, 4, requests),
                warmup_ns=0,
                round_ns=max(settings.duration_ns, timeout_ns),  # only success counts, even on a slow machine
                rounds=1,
                timeout_ns=timeout_ns,
                requests=requests,
            )
        if settings.capacity:
            return self._one_round(2 * _PROBE_NS, timeout_ns, warmup_ns=_WARMUP_NS, connections=DEFAULT_CONNECTIONS)
        return self._whole_load(self.boots, timeout_ns)

    @property
    def load_again(self) -> LoadPlan:
        """A shorter `load` if requests/s are gated. They show roughly whether the machine's speed has changed."""
        load, is_fixed = self.load, self.settings.is_whole or "rps" not in self.tolerances()
        return load if is_fixed else replace(load, rounds=min(load.rounds, 2))

    @property
    def leaves_out_first(self) -> bool:
        """False if figures of first requests are asked for, or if the load's length is not a time."""
        has_steps = any(step for _, step in self.subjects)
        return not (self.smoke or self.turn or has_steps or self.settings.warmup_ns == 0)

    def with_slow_first(self, first_ns: int, later_ns: float) -> Plan:
        """Returns the plan with `first_ns`, the duration of first requests. Later ones as slow leave it unchanged."""
        is_slower = self.turn is None and later_ns < _LATER * first_ns
        return replace(self, first_ns=max(self.first_ns, first_ns)) if is_slower else self

    def longer_load(self, first_ns: int) -> LoadPlan | None:
        """Returns `load` with a warm-up for first requests of this duration. None if they take too long for that."""
        warmup_ns = self._first_warmup_ns(first_ns)
        return None if warmup_ns < first_ns else replace(self.load, warmup_ns=max(self.load.warmup_ns, warmup_ns))

    @property
    def most_ns(self) -> int:
        """After this time, which includes start-ups, no further start-up begins."""
        return max(self.settings.max_duration_ns, 2 * self.settings.duration_ns) // (2 if self.in_half else 1)

    # --- a search for the highest rate that meets some limits, alone or for each version alternately

    @property
    def searches(self) -> bool:
        return self.settings.capacity and not self.smoke

    @property
    def search_limits(self) -> dict[str, float]:
        return {name: limit for name, limit in self.settings.limits.items() if searches_by(name)}

    @property
    def search_title(self) -> str:
        """A search in words: `the highest rate with max_p99 100 ms, max_error_rate 0.1 %`."""
        shown = (
            f"{name} {format_share(limit) if name == 'max_error_rate' else format_duration(round(limit * 1e9))}"
            for name, limit in self.search_limits.items()
            if limit > 0
        )
        return f"the highest rate with {', '.join(shown)}"

    def search_load(self, asked: NextLoad, *, chance: random.Random, place: float, busy_rate: float) -> LoadPlan:
        """Returns a load with requests at random instants, for a capacity search.

        `place` says how crowded they are, from 0 (the least crowded of many random loads) to 1. `busy_rate` is roughly
        the server's highest rate, in requests per second.
        """
        settings = self.settings
        slowest_s = max(limit for name, limit in self.search_limits.items() if name != "max_error_rate")
        patience_ns = max(5_000 * _MS, round(20 * slowest_s * 1e9))  # so that a search ends even if a server hangs
        warmup_ns, round_ns = round(asked.warmup_s * 1e9), max(1, round(asked.seconds * 1e9 / _SEARCH_ROUNDS))
        lasts_ns, rate = warmup_ns + round_ns * _SEARCH_ROUNDS, asked.rate
        seed = spread_seed(chance, place, rate=rate, duration_ns=lasts_ns, from_ns=warmup_ns, busy_rate=busy_rate)
        return LoadPlan(
            connections=settings.search_connections,
            warmup_ns=warmup_ns,
            round_ns=round_ns,
            rounds=_SEARCH_ROUNDS,
            timeout_ns=min(self._timeout_ns(settings.max_duration_ns), patience_ns),
            rate=rate,
            seed=seed,
            generators=self.generators,
        )

    # --- alone and alternately

    def profile(self, longest_ns: int | None = None) -> LoadPlan:
        """Returns the load for a profiler, of at most `longest_ns`. A ramp or a fixed number of requests runs whole."""
        turn, round_ns, warmup_ns = self.turn, _PROFILE_NS, 0
        if turn is not None and (turn.counted or turn.ramp is not None):
            return turn
        if turn is not None and turn.pause is not None:
            round_ns, warmup_ns = turn.round_ns, turn.warmup_ns
        elif turn is not None:
            round_ns = max(turn.round_ns, _PROFILE_NS)
        if longest_ns is not None:
            round_ns = min(round_ns, longest_ns)
        return self._in_turn(round_ns, warmup_ns=warmup_ns, rate=None if turn is None else turn.rate)

    def alone(self, *, spent_ns: int | None) -> Plan:
        """Returns the plan to measure only the new code, on one start-up, after a comparison without a result.

        `spent_ns` is the comparison's time if its requests got no answer, else None.
        """
        settings = self.settings
        timeout_ns, warmup_ns, duration_ns = settings.timeout_ns, settings.warmup_ns, settings.duration_ns
        if spent_ns is not None and timeout_ns in (DEFAULT_TIMEOUT_NS, settings.max_duration_ns):
            # At least half of `max_duration`, however long the servers took to start.
            left_ns = max(settings.max_duration_ns // 2, settings.max_duration_ns + 1_000 * _MS - spent_ns)
            timeout_ns = min(timeout_ns, settings.max_duration_ns, left_ns)
            # A connection whose first request gets no answer has no time for another.
            warmup_ns = min(warmup_ns, timeout_ns // 4)
            duration_ns = min(duration_ns, timeout_ns - warmup_ns)
        settings = replace(settings, boots=1, timeout_ns=timeout_ns, warmup_ns=warmup_ns, duration_ns=duration_ns)
        return replace(self, settings=settings, profiles=False)

    def _timeout_ns(self, longest_ns: int) -> int:
        """Returns how long to wait for an answer: at most `longest_ns`, unless the test gives a timeout."""
        timeout_ns = self.settings.timeout_ns
        return min(timeout_ns, longest_ns) if timeout_ns == DEFAULT_TIMEOUT_NS else timeout_ns

    def _whole_load(self, boots: int, timeout_ns: int) -> LoadPlan:
        settings = self.settings
        if settings.requests is not None:
            return self._one_round(settings.duration_ns, timeout_ns, requests=settings.requests)
        if settings.burst is not None:
            return self._one_round(timeout_ns, timeout_ns, burst=settings.burst)
        rounds = max(1, round(settings.rounds / boots))
        duration_ns = settings.duration_ns if settings.ramp is None else settings.ramp.duration_ns
        if settings.rate is not None and settings.rate * duration_ns / boots < 1e9:
            raise PlanError(
                f"rate: at {format_rate(settings.rate)}/s less than one request is due in "
                f"{format_duration(duration_ns)}{f' on {boots} start-ups' if boots > 1 else ''}. Use a longer duration"
            )
        return LoadPlan(
            connections=settings.connections,
            warmup_ns=self._warmup_ns if settings.ramp is None else 0,
            round_ns=max(1, duration_ns // (boots * rounds)),
            rounds=rounds,
            timeout_ns=timeout_ns,
            rate=settings.rate,
            ramp=settings.ramp,
            pause=settings.pause,
            generators=self.generators,
        )

    @property
    def _warmup_ns(self) -> int:
        usual_ns = self.settings.warmup_ns
        return max(usual_ns, self._first_warmup_ns(self.first_ns)) if self.leaves_out_first else usual_ns

    def _one_round(
        self,
        round_ns: int,
        timeout_ns: int,
        *,
        warmup_ns: int = 0,
        connections: int | None = None,
        requests: int | None = None,
        burst: int | None = None,
        rate: float | None = None,
    ) -> LoadPlan:
        return LoadPlan(
            connections=min(filter(None, (self.settings.connections, connections, requests, burst))),
            warmup_ns=warmup_ns,
            round_ns=round_ns,
            rounds=1,
            timeout_ns=timeout_ns,
            requests=requests,
            burst=burst,
            rate=rate,
            pause=self.settings.pause,
            generators=self.generators,
        )

    # --- alternately

    @property
    def _comparison_ns(self) -> int:
        return self.settings.max_duration_ns // (2 if self.in_half else 1)

    @property
    def max_duration_ns(self) -> int:
        return 2 * self.settings.search_ns if self.settings.capacity else self._comparison_ns

    @property
    def _patience_ns(self) -> int:
        return self._timeout_ns(self._comparison_ns)

    def _first_warmup_ns(self, first_ns: int) -> int:
        return min(round(_HANDOVER_LATENCIES * first_ns), self._comparison_ns // 10)

    def _in_turn(self, round_ns: int, *, warmup_ns: int = _WARMUP_NS, rate: float | None = None) -> LoadPlan:
        return self._one_round(round_ns, self._patience_ns, warmup_ns=warmup_ns, rate=rate)

    @property
    def first_pair_ns(self) -> int:
        # A search has time for four pairs and their start-ups.
        return round(self.max_duration_ns / 4.5) if self.settings.capacity else _LEAST_PAIR_NS

    @property
    def turn(self) -> LoadPlan | None:
        """The load of one turn (slice of load on one version).

        None if one closed loop loads both versions alternately.
        """
        settings = self.settings
        if settings.is_whole:
            return self._whole_load(1, self._patience_ns)
        if settings.pause is not None:
            # In one closed loop, the other version's turns would add to the pauses. A turn lasts for at least three.
            return self._in_turn(max(_RATE_TURN_NS, 3 * settings.pause.mean_ns))
        if settings.rate is None:
            return None
        at_least_20_ns = round(20 / settings.rate * 1e9)
        return self._in_turn(max(_RATE_TURN_NS, at_least_20_ns), rate=settings.rate)

    @property
    def probe(self) -> LoadPlan:
        """The load that shows how long a request takes."""
        if (turn := self.turn) is not None:
            return turn
        timeout_ns = self._patience_ns  # gives up requests that are too slow to compare
        if timeout_ns in (DEFAULT_TIMEOUT_NS, self._comparison_ns):
            timeout_ns = min(timeout_ns, max(750 * _MS, self._comparison_ns // 8))
        return self._one_round(_PROBE_NS, timeout_ns, warmup_ns=_WARMUP_NS // 2)

    def longer_probe(self, latency_ns: int) -> LoadPlan | None:
        """Returns a longer probe if a request took as long as the first probe.

        Perhaps only the server's first requests are slow. `latency_ns` is a request's latency in the first probe.
        """
        if self.searches or self.turn is not None or latency_ns < _PROBE_NS:
            return None
        warmup_ns = self._first_warmup_ns(2 * latency_ns)
        return replace(self.probe, warmup_ns=warmup_ns, round_ns=2 * _PROBE_NS)

    @property
    def limiting(self) -> LoadPlan:
        """The load of one version alone that shows what limits its server."""
        warmup_ns = max(_WARMUP_NS, self._first_warmup_ns(self.first_ns))
        return replace(self.turn or self._in_turn(_LIMITING_NS, warmup_ns=warmup_ns), close=True)

    def next_pair_ns(self, number: int, *, left_ns: int, more_ns: int, cycle_ns: int = 0) -> int:
        """Returns how long to load the next pair of start-ups, so that equal pairs fill the remaining time (`left_ns`).

        Start-ups and warm-ups of each pair take `more_ns`. A cycle loads each version once, and takes `cycle_ns`.
        """
        only_starts = self.times_starts and all(of.compared in ((), ("startup",)) for of in self.subjects.values())
        if self.settings.capacity or only_starts or number < _FIRST_PAIRS:
            return self.first_pair_ns
        usual_ns = min(max(_LEAST_PAIR_NS, _PAIR_STARTS * more_ns, _PAIR_CYCLES * cycle_ns), _MOST_PAIR_NS)
        pairs = max(1, math.ceil(left_ns / (usual_ns + more_ns)))
        shared_ns = left_ns // pairs - more_ns
        if pairs > 1 and shared_ns < _LEAST_PAIR_NS:
            shared_ns = left_ns // (pairs - 1) - more_ns
        return max(_LEAST_PAIR_NS, shared_ns)

    def alternation(self, pair_ns: int, *, latency_ns: int, chance: random.Random) -> Alternation:
        """Returns a pair's turns (slices of load) in random order. `latency_ns` is how long a request usually takes."""
        handover_ns = max(_LEAST_HANDOVER_NS, round(_HANDOVER_LATENCIES * latency_ns))
        # Three pairs of two turns each must fit into the time, with start-ups and warm-up. But two latencies must fit
        # into a turn.
        longest_ns = max(self.max_duration_ns // 12, 3 * handover_ns)
        turn_ns = max(_LEAST_TURN_NS, min(round(_TURN_HANDOVERS * handover_ns), longest_ns))
        warmup_ns, limiting = max(_WARMUP_NS, handover_ns, self._first_warmup_ns(self.first_ns)), self.limiting

        def drawn(cycles: int) -> tuple[Side, ...]:
            return tuple(chance.choices(tuple(Side), k=max(1, cycles)))

        cycles = max(1, round(pair_ns / (2 * turn_ns)))
        # Few of the slowest requests fit into a turn, so there its length matters.
        is_usual = turn_ns >= round(_TURN_HANDOVERS * handover_ns)
        lengths = chance.choices(_TURN_LENGTHS if is_usual else (1.0,), k=cycles)
        return Alternation(
            connections=limiting.connections,
            warmup_ns=warmup_ns,
            warm_firsts=drawn(warmup_ns // max(_LEAST_TURN_NS, handover_ns)),
            turns_ns=tuple(round(turn_ns * length) for length in lengths),
            handover_ns=handover_ns,
            firsts=drawn(cycles),
            timeout_ns=limiting.timeout_ns,
            generators=limiting.generators,
        )

    def too_long_ns(self, latency_ns: int) -> int:
        """Returns how long three pairs take with requests this slow; 0 if a comparison may take that long."""
        if self.searches or self.turn is not None:
            return 0
        turns = self.alternation(self.first_pair_ns, latency_ns=latency_ns, chance=random.SystemRandom())
        least_ns = _FIRST_PAIRS * turns.duration_ns
        most_ns = round(RULES.few_pairs_times * self.max_duration_ns + RULES.few_pairs_more_s * 1e9)
        return least_ns if least_ns > most_ns else 0

    def title_in_turn(self, pairs: int, seconds: float) -> str:
        """Returns a comparison in words: `32 connections alternately, 8 start-ups of each version, 33 s`."""
        if self.searches:
            load = self.search_title
        elif self.turn is not None:
            load = load_title(self.turn, 1)
        else:
            load = f"{self.limiting.connections} connections{_by_several(self.limiting)}"
        return (
            f"{load} alternately, {format_count(pairs, 'start-up')} of each version, "
            f"{format_duration(round(seconds) * 1_000_000_000)}"
        )


def app_of(settings: Settings) -> AppSpec | None:
    """Returns the app to start, or None if the settings name none. Raises AppLoadError."""
    if settings.app is None:
        return None
    app = app_spec(settings.app)
    return as_made(app, settings.app) if isinstance(settings.server, AsgiSpec | Command) else app


def cores_of(settings: Settings, generators: int | None = None) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """Returns the server's cores and the load generators' cores. Both are None if there are too few.

    `generators` is the number of load generators. None means the user's number, or one for `auto`.
    """
    workers, asked = worker_count(settings.server), settings.generators
    if generators is None:
        generators = asked if isinstance(asked, int) else 1
    return (None if workers is None else split_cores(workers, generators)) or (None, None)


def load_identity(plan: LoadPlan) -> dict[str, object]:
    """Returns the values that two loads must share to be compared, ready for JSON."""
    shape = {"requests": plan.requests, "burst": plan.burst, "rate": plan.rate}
    load: dict[str, object] = {"connections": plan.connections}
    if (generators := generators_used(plan)) > 1:
        load["generators"] = generators
    load |= {name: value for name, value in shape.items() if value is not None}
    if plan.pause is not None:
        load["pause"] = plan.pause.identity()
    if plan.ramp is not None:
        stages = [[stage.duration_ns / 1e9, stage.target] for stage in plan.ramp.stages]
        load["ramp of rate" if plan.ramp.open_loop else "ramp of connections"] = stages
    return load


def load_title(plan: LoadPlan, boots: int) -> str:
    """Returns a load in words: `32 connections, 6 s`."""
    seconds = format_duration(boots * plan.rounds * plan.round_ns)
    at_most = f"at most {plan.connections} connections"
    if plan.requests is not None:
        load = f"{plan.connections} connections, {plan.requests} requests"
    elif plan.burst is not None:
        load = f"{plan.burst} requests at once, {plan.connections} connections"
    elif plan.rate is not None:
        load = f"{format_rate(plan.rate)}/s, {at_most}, {seconds}"
    elif plan.ramp is None:
        load = f"{plan.connections} connections, {seconds}"
    else:
        targets = " → ".join(format_rate(stage.target) for stage in plan.ramp.stages)
        load = f"ramp 0 → {targets}{f'/s, {at_most}' if plan.ramp.open_loop else ' connections'}, {seconds}"
    return load + (f", pauses of {plan.pause}" if plan.pause is not None else "") + _by_several(plan)


def _by_several(plan: LoadPlan) -> str:
    count = generators_used(plan)
    return f", {count} generators" if count > 1 else ""
