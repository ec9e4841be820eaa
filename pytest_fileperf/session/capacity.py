"""Searches for the capacity: the highest rate at which no limit breaks. Loads one server, or two alternately.

    start-up 1 | closed loop | 140/s | 280/s | 190/s | 170/s … | start-up 2 | 178/s | 185/s | … | start-up 3 | …

`judge.capacity` decides the next rate, and when to stop.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pytest_fileperf.drive.run import Run
from pytest_fileperf.judge.capacity import Estimate, NextLoad, Search, estimate, next_load, tried_of
from pytest_fileperf.judge.evidence import BootEvidence
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.capacity import Capacity, CapacityEnd, RateTried
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.limiting import Limit, LimitKind, limit_of
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import BootCapacity, Recording
from pytest_fileperf.measure.usage import Usage
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import place_of
from pytest_fileperf.session.loads import Load, recording_of
from pytest_fileperf.settings.plans import Plan

_LEAST_RPS = 0.5
"""The search's first rate, if the closed-loop load before the search got no good answer."""


class RateSearch:
    def __init__(self, plan: Plan, *, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._first_place = chance.random()
        self._search = self._from(_LEAST_RPS)
        self._closed_rps: float | None = None
        self._runs: list[Run] = []
        self._tried: list[RateTried] = []
        self._ended: CapacityEnd | None = None

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    @property
    def requests(self) -> int:
        return sum(load.requests for load in self._tried)

    def begin(self, run: Run) -> None:
        rounds = run.rounds
        seconds = sum(round_.duration_ns for round_ in rounds) / 1e9
        good, failed = sum(round_.requests for round_ in rounds), sum(round_.failed for round_ in rounds)
        self._closed_rps = good / seconds if seconds else 0.0
        self._search = self._from(max(self._closed_rps, _LEAST_RPS))
        if failed and not good:
            # No rate will give a good answer, and the failures say why. This load stands for the search's loads.
            assert isinstance(run.plan, LoadPlan)
            plan = replace(run.plan, connections=self._plan.settings.search_connections, rate=_LEAST_RPS)
            self._took(failed / seconds if seconds else _LEAST_RPS, replace(run, plan=plan))
            self._ended = CapacityEnd.NO_RATE

    def step(self, load: Load, boot: int, *, left_s: float) -> bool:
        """Makes the search's next load, on start-up `boot`. Returns False if the search is over or lacks time."""
        if self.is_over:
            return False
        following = next_load(self._search, self._tried, left_s=left_s, boot=boot)
        if isinstance(following, CapacityEnd):
            self._ended = following
        if not isinstance(following, NextLoad):
            return False
        place, busy_rate = place_of(len(self._tried), self._first_place), self._search.start
        plan = self._plan.search_load(following, chance=self._chance, place=place, busy_rate=busy_rate)
        self._took(following.rate, load(plan))
        return True

    def _from(self, rate: float) -> Search:
        return Search(limits=self._plan.search_limits, start=rate, total_s=self._plan.settings.search_ns / 1e9)

    def _took(self, rate: float, run: Run) -> None:
        self._runs.append(run)
        self._tried.append(tried_of(rate, recording_of([run]), self._search.limits))

    def estimate(self) -> Estimate | None:
        """Returns the capacity, estimated from all loads. None if no rate meets the limits, or if no load is usable."""
        return None if self._ended is CapacityEnd.NO_RATE else estimate(self._search, self._tried)

    def capacity(self) -> Capacity:
        found, tried = self.estimate(), tuple(self._tried)
        broken = "" if found is None else found.broken
        made = partial(Capacity, limits=self._search.limits, closed_rps=self._closed_rps, tried=tried, broken=broken)
        told = [load for load in tried if not load.by_generator]
        held = max((load.rate for load in told if load.holds), default=0.0)
        if found is None or not held:
            high = min((load.rate for load in told if load.made), default=math.inf)
            ended = CapacityEnd.GENERATOR if tried and not told else CapacityEnd.NO_RATE
            return made(rate=0.0, low=0.0, high=high, ended=ended, limit=self._knee(0.0))
        if not broken:
            # No load broke a limit: the generator was too slow, or the time was over too early.
            ended = CapacityEnd.FOUND if len(told) == len(tried) else CapacityEnd.GENERATOR
            return made(rate=held, low=held, high=math.inf, ended=ended, limit=self._knee(held))
        stabilised = frozenset.intersection(*(frozenset(run.boot.stabilised) for run in self._runs))
        rate, margin = math.exp(found.mean), math.exp(found.margin(stabilised))
        low, high = rate / margin, rate * margin
        return made(rate=rate, low=low, high=high, confidence=RULES.confidence, limit=self._knee(rate))

    def recording(self) -> Recording:
        """Returns a recording of the loads near the capacity. Each start-up in it has its own `capacity`."""
        found, capacity = self.estimate(), self.capacity()
        known = {} if found is None or not capacity.rate or not found.broken else found.boots
        rates = {boot: math.exp(log) for boot, log in known.items()}
        recording = recording_of(self._kept(capacity.rate, rates))
        variance = 0.0 if found is None else found.sd**2 * max(1, len(found.boots))
        boots = {run.boot.index: run.boot for run in self._runs} | {boot.index: boot for boot in recording.boots}
        for run in self._runs:  # the search used all loads, even without keeping their figures
            boots[run.boot.index] = boots[run.boot.index].with_lost(run.boot)
        with_capacity = (
            replace(boot, capacity=BootCapacity(rate=rates[index], variance=variance)) if index in rates else boot
            for index, boot in sorted(boots.items())
        )
        return replace(recording, boots=tuple(with_capacity))

    def on_boot(self, boot: int, found: Estimate | None) -> BootEvidence:
        """Returns the figures of start-up `boot`, for a comparison of two versions.

        `found` is the estimate from all loads. If it knows this start-up's capacity, the figures include the capacity.
        """
        own = [run for run in self._runs if run.boot.index == boot]
        if not own:
            return BootEvidence(turns=(), latency=EMPTY, runs={})
        recording = recording_of(own)
        cpu = METRICS["cpu_per_request"].of_run(recording)
        runs, variances = {} if cpu is None else {"cpu_per_request": cpu}, {}
        if found is not None and found.broken and boot in found.boots:
            runs["capacity"], variances["capacity"] = math.exp(found.boots[boot]), found.sd**2 * len(found.boots)
        return BootEvidence(
            turns=(),
            latency=Histogram.merged(round_.latency for round_ in recording.rounds),
            runs=runs,
            variances=variances,
            memory=recording.boots[0].memory,
        )

    def _kept(self, rate: float, of_boots: Mapping[int, float]) -> list[Run]:
        """Returns the runs at 85 to 103 % of the capacity that met the limits, or else the nearest run.

        `of_boots` has start-ups' capacities. For other start-ups, `rate` is the capacity.
        """
        paired = list(zip(self._tried, self._runs, strict=True))
        at = {tried.boot: of_boots.get(tried.boot, rate) for tried in self._tried}
        good = [(tried, run) for tried, run in paired if tried.holds and tried.rate <= at[tried.boot] * 1.03]
        near = [run for tried, run in good if tried.rate >= at[tried.boot] * 0.85]
        if near:
            return near
        if good:
            return [max(good, key=lambda pair: pair[0].rate)[1]]
        answered = [pair for pair in paired if pair[0].made] or paired
        return [min(answered, key=lambda pair: pair[0].rate)[1]]

    def _knee(self, rate: float) -> Limit:
        """Returns the bottleneck of loads that broke a limit at `rate` or faster. UNCLEAR if none is found."""
        paired = zip(self._tried, self._runs, strict=True)
        above = sorted((pair for pair in paired if pair[0].rate >= rate), key=lambda pair: pair[0].rate)
        of_server = [run for tried, run in above if not (tried.by_generator or tried.holds)]
        if not of_server and any(tried.by_generator for tried, _ in above):
            return Limit(kind=LimitKind.GENERATOR, evidence="at a higher rate it could not send in time")
        for run in of_server:
            limit = limit_of(Usage(recording_of([run])))
            if limit.kind not in (LimitKind.RATE, LimitKind.UNCLEAR):
                return limit
        # Beyond the capacity the rate is not the limit, even if a load is too short to show a backlog.
        share = measurement_of(recording_of(of_server[-1:])).server.cpu_share if of_server else None
        evidence = "" if share is None else f"server CPU {share * 100:.0f} % of a core"
        return Limit(kind=LimitKind.UNCLEAR, evidence=evidence)


def closed_loop(load: Load, probe: LoadPlan) -> Run:
    """Makes the load that `probe` plans. If most requests fail, tries again with a quarter of the connections."""
    run = load(probe)
    failed = sum(round_.failed for round_ in run.rounds)
    if probe.connections == 1 or failed <= sum(round_.requests for round_ in run.rounds):
        return run
    return closed_loop(load, replace(probe, connections=max(1, probe.connections // 4)))


def smoke_capacity(rps: float) -> Capacity:
    return Capacity(rate=rps, low=0.0, high=math.inf, limits={}, ended=CapacityEnd.SMOKE)
