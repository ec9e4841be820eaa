"""Measures two versions in turn, pair of boots by pair of boots, until every gate is decided or the time is over.

    boot base + now | probe | base now now base … | boot base + now | base now base now … | … | how it is limited
    └────────────────── pair 1 ──────────────────┘└────────────── pair 2 ──────────────┘

Boots are fresh in each pair and stabilised alike; what differs between them is what differs between the versions, and
the luck of a boot, which the next pair throws anew.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import monotonic

from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.pair import Pair, PairSide, pair_side
from pytest_fileperf.judge.paired import worse_of
from pytest_fileperf.judge.result import Explanation
from pytest_fileperf.judge.sequence import Sequential
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Recording, Round
from pytest_fileperf.plan.alternation import Alternation, Side
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Work
from pytest_fileperf.report.progress import ProgressLine, ProgressSink
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import InProcess, Url, Uvicorn
from pytest_fileperf.session.loading import Loader, Run
from pytest_fileperf.session.planning import (
    alternation_plan,
    limiting_plan,
    pair_ns,
    probe_plan,
    profile_plan,
    turn_plan,
)
from pytest_fileperf.session.profiling import Looked, explain_growth
from pytest_fileperf.session.sides import AbsentError, Base, Sides
from pytest_fileperf.settings.resolve import Settings

__all__ = ("ComparisonResult", "Versus")

_CHANCE = random.SystemRandom()
"""Not the generator that test suites seed: two sessions are not to have the same luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What a comparison found."""

    base: Recording
    now: Recording
    limiting: Recording
    """A short load of this side alone, that says what limits it: taking turns leaves a server idle half of the time."""
    server: str
    """Title of this side's server."""
    identity: dict[str, object]
    comparisons: tuple[MetricComparison, ...]
    pairs: tuple[Pair, ...]
    seconds: float
    """What all of it took, boots too, but for the profile."""
    explanation: Explanation | None
    """Why it is slower; None where nothing is REGRESSED."""


@dataclass(slots=True)
class _Side:
    """What is known of one side so far."""

    runs: list[Run] = field(default_factory=list)

    def recording(self, *, connections: int, open_loop: bool, pinned: bool) -> Recording:
        """Returns all of it; runs on the same boot are one boot's."""
        results = [run.result for run in self.runs]
        rounds: list[Round] = []
        for result in results:
            offset = sum(round_.boot == result.boot for round_ in rounds)
            rounds += (replace(round_, index=offset + place) for place, round_ in enumerate(result.rounds))
        boots: dict[int, Boot] = {}
        for run in self.runs:
            known = boots.get(run.boot.index)
            boots[run.boot.index] = run.boot if known is None else known.and_then(run.boot)
        return Recording(
            rounds=tuple(rounds),
            boots=tuple(boots.values()),
            connections=connections,
            engine=results[0].engine,
            why_engine=results[0].why_engine,
            wait_ns=sum(result.wait_ns for result in results),
            attack_ns=sum(result.attack_ns for result in results),
            open_loop=open_loop,
            due=None if results[0].due is None else sum(result.due or 0 for result in results),
            pinned=pinned,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """Compares the code here with one base, test after test."""

    base: Base
    loader: Loader
    progress: ProgressSink
    builds: Builds

    def measure(
        self,
        work: Work,
        settings: Settings,
        *,
        title: str,
        cores: tuple[frozenset[int], frozenset[int]] | None,
        alpha: float,
        to_the_end: bool = False,
    ) -> ComparisonResult:
        """Compares until every gate is decided or `settings.max_duration_ns` are over; `to_the_end` asks for all of it.

        `alpha` is the level of each gate. Raises AbsentError where one side has not what is measured, PlanError for
        what cannot be compared, and what booting and loading raise.
        """
        self._refuse(settings)
        run = _Run(self, work, settings, title=title, cores=cores, alpha=alpha, to_the_end=to_the_end)
        try:
            return run.made()
        finally:
            self.progress.done()

    def _refuse(self, settings: Settings) -> None:
        server = settings.server
        if isinstance(server, InProcess):
            raise PlanError(
                "an in-process app cannot be compared with another version of itself, as one process cannot hold two "
                "of a module: leave the server out, or use uvicorn"
            )
        if self.base.url is None and isinstance(server, Uvicorn) and server.port:
            raise PlanError(
                f"port={server.port} cannot be had by two versions at once: leave `port` out to take free ones"
            )


class _Run:
    """One comparison under way."""

    def __init__(
        self,
        versus: Versus,
        work: Work,
        settings: Settings,
        *,
        title: str,
        cores: tuple[frozenset[int], frozenset[int]] | None,
        alpha: float,
        to_the_end: bool,
    ) -> None:
        self._versus = versus
        self._work = work
        self._settings = settings
        self._title = title
        self._cores = cores
        self._to_the_end = to_the_end
        tolerances = {name: settings.tolerances.get(name, METRICS[name].paired_tolerance) for name in settings.gate}
        self._gates = Sequential(tolerances, alpha=alpha, limit_s=settings.max_duration_ns / 1e9, to_the_end=to_the_end)
        self._begun_s = monotonic()
        self._booting = Sides(versus.base, settings, cores=self._cores, builds=versus.builds)
        self._sides = (_Side(), _Side())
        self._pairs: list[Pair] = []
        self._requests = 0
        self._latency_ns = 0
        """What a request takes as the probe saw it, at most of both sides."""

    def made(self) -> ComparisonResult:
        """Makes pairs until it is enough."""
        while True:
            number, pair_begun_s = len(self._pairs), monotonic()
            with self._booting.booted(number) as servers:
                if number == 0:
                    self._probe(servers)
                self._pairs.append(self._pair(number, servers))
                now_s = monotonic()
                # The next one may be loaded for longer; what limits this side is found out after the last one.
                more_s = (pair_ns(number + 1) - pair_ns(number)) / 1e9 + limiting_plan(self._settings).duration_ns / 1e9
                verdict = self._gates.look(
                    self._pairs, elapsed_s=now_s - self._begun_s, next_s=now_s - pair_begun_s + more_s
                )
                if verdict is not None:
                    return self._result(verdict, servers)

    # --- loading

    def _probe(self, servers: Sequence[RunningServer]) -> None:
        """Finds out how long a request takes, and whether both sides have an answer to it."""
        plan = probe_plan(self._settings)
        for side in reversed(Side):
            run = self._load(plan, 0, servers[side])
            good = sum(round_.requests for round_ in run.result.rounds)
            failures = [failure for round_ in run.result.rounds for failure in round_.failures]
            if not good and failures:
                kinds = ", ".join(dict.fromkeys(failure.kind for failure in failures))
                whose = self._versus.base.title if side == Side.BASE else "the code here"
                raise AbsentError(f"{whose} has no good answer to {self._work.name}: {kinds}", here=side == Side.NOW)
            latency = Histogram.merged(round_.latency for round_ in run.result.rounds)
            self._latency_ns = max(self._latency_ns, latency.percentile_ns(50))

    def _pair(self, number: int, servers: tuple[RunningServer, RunningServer]) -> Pair:
        turn = turn_plan(self._settings)
        if turn is None:
            plan = alternation_plan(self._settings, pair=number, latency_ns=self._typical_latency_ns())
            made = self._alternated(plan, number, servers)
            runs = ([made[Side.BASE]], [made[Side.NOW]])
        else:
            runs = ([], [])
            begun_s = monotonic()
            while not runs[Side.BASE] or monotonic() - begun_s < pair_ns(number) / 1e9:
                for side in _CHANCE.sample(tuple(Side), 2):
                    runs[side].append(self._load(turn, number, servers[side]))
        for side in Side:
            self._sides[side].runs += runs[side]
        stabilised = [set(run.boot.stabilised) for own in runs for run in own]
        return Pair(
            base=_pair_side(runs[Side.BASE]),
            now=_pair_side(runs[Side.NOW]),
            stabilised=tuple(sorted(set.intersection(*stabilised))),
            base_boots_anew=self._versus.base.url is None and not isinstance(self._settings.server, Url),
        )

    def _typical_latency_ns(self) -> int:
        """Returns what a request takes in all pairs so far, at most of both sides: the probe may have met a stall."""
        sides = [Histogram.merged(getattr(pair, side).latency for pair in self._pairs) for side in ("base", "now")]
        return max(side.percentile_ns(50) for side in sides) or self._latency_ns

    def _alternated(
        self, plan: Alternation, number: int, servers: tuple[RunningServer, RunningServer]
    ) -> tuple[Run, Run]:
        made = self._versus.loader.alternate(
            self._work, plan, number, servers, self._cores[1] if self._cores else None, self._tell
        )
        self._requests += sum(round_.requests for round_ in made[Side.NOW].result.rounds)
        return made

    def _load(self, plan: LoadPlan, number: int, server: RunningServer) -> Run:
        return self._versus.loader.make(
            self._work, plan, number, server, self._cores[1] if self._cores else None, self._tell
        )

    def _tell(self, progress: RunProgress) -> None:
        self._versus.progress.update(
            ProgressLine(
                title=self._title,
                phase=progress.phase,
                boot=len(self._pairs) + 1,
                boots=1,
                elapsed_s=monotonic() - self._begun_s,
                total_s=self._settings.max_duration_ns / 1e9,
                requests=self._requests + progress.requests,
                rps=progress.rps,
                p99_s=progress.p99_ns / 1e9 if progress.p99_ns is not None else None,
                failures=progress.failed,
            )
        )

    def _result(
        self, comparisons: tuple[MetricComparison, ...], servers: tuple[RunningServer, RunningServer]
    ) -> ComparisonResult:
        plan, server = limiting_plan(self._settings), servers[Side.NOW]
        open_loop, pinned = plan.pacing().open_loop, self._cores is not None
        alone = _Side([self._load(plan, 0, server)])
        seconds = monotonic() - self._begun_s
        base, now, limiting = (
            side.recording(connections=plan.connections, open_loop=open_loop, pinned=pinned)
            for side in (*self._sides, alone)
        )
        regressed = any(comparison.outcome is Outcome.REGRESSED for comparison in comparisons)
        return ComparisonResult(
            base=base,
            now=now,
            limiting=limiting,
            server=server.title,
            identity=server.identity(),
            comparisons=comparisons,
            pairs=tuple(self._pairs),
            seconds=seconds,
            explanation=self._explained(servers) if regressed and not self._to_the_end else None,
        )

    def _explained(self, servers: tuple[RunningServer, RunningServer]) -> Explanation:
        code_tree = self._versus.base.code_tree
        typical = worse_of(METRICS["cpu_per_request"], self._pairs)
        known = [
            turn["cpu_per_request"] for pair in self._pairs for turn in pair.base.turns if "cpu_per_request" in turn
        ]
        base_s = median(known) if known else None
        # From the ratio of turns that follow each other: far more exact than two figures of different moments.
        now_s = None if base_s is None or typical is None else base_s * math.exp(typical.value)
        return explain_growth(
            self._versus.loader,
            self._work,
            profile_plan(self._settings),
            (
                Looked(server=servers[Side.BASE], root=code_tree.there or code_tree.here, cpu_per_request=base_s),
                Looked(server=servers[Side.NOW], root=code_tree.here, cpu_per_request=now_s),
            ),
            self._cores[1] if self._cores else None,
            self._tell,
        )


def _pair_side(runs: Sequence[Run]) -> PairSide:
    return pair_side(
        (round_ for run in runs for round_ in run.result.rounds),
        (run.boot.peak_rss_bytes for run in runs if run.boot.peak_rss_bytes is not None),
    )
