"""Joins the stages: boots servers, makes runs, records, judges, keeps the results. Knows nothing of pytest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeAlias

from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.errors import LoadError
from pytest_fileperf.judge.baseline import BaselineStore, Entry, ForeignProfile
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.evidence import evidence_of
from pytest_fileperf.judge.gate import ErrorBudget, alpha_each
from pytest_fileperf.judge.judge import judge, may_be_worse, unless_base_failed, unless_saturated
from pytest_fileperf.judge.limits import check_limits
from pytest_fileperf.judge.noise import NoiseFloor, noise_floor
from pytest_fileperf.judge.result import Explanation, Result, TestId
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Verdict
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Work
from pytest_fileperf.report.progress import ProgressLine, ProgressSink
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.cores import split_cores
from pytest_fileperf.serve.pool import ServerPool
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import worker_count
from pytest_fileperf.session.comparison import ComparisonResult, Versus
from pytest_fileperf.session.failing import raise_for, raise_for_failed_requests
from pytest_fileperf.session.loading import Loader, Run, recording_of
from pytest_fileperf.session.planning import (
    boots_wanted,
    contest_title,
    load_identity,
    load_plan,
    load_title,
    profile_plan,
)
from pytest_fileperf.session.profiling import Looked, explain_costs
from pytest_fileperf.session.sides import AbsentError, Base
from pytest_fileperf.settings.resolve import Settings

__all__ = ("Session", "SessionOptions")


Cores: TypeAlias = tuple[frozenset[int], frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What holds for all measurements of one test session."""

    baselines: Path
    """Directory of the stored baselines."""
    smoke: bool = False
    """A few requests each, nothing judged but their success."""
    update: str | None = None
    """`new` stores missing baselines, `passed` also replaces those of tests that passed, `all` every one; None none."""
    reason: str | None = None
    """Why baselines are stored, for whoever reviews or regresses from them."""
    strict: bool = False
    """NEW and INCONCLUSIVE fail too."""
    ci: bool = False
    """NEW fails where nothing else judged the test."""
    gates: int = 1
    """Comparisons expected in this session: they share one error rate."""
    against: Base | None = None
    """Another version to compare with, instead of with stored baselines."""
    profile: bool = False
    """Say which functions cost CPU, after each measurement."""
    aa: bool = False
    """Compare the code with itself, to see what a gate could see; nothing is judged."""
    commit: Callable[[], Mapping[str, object] | None] = lambda: None
    """Reads the commit that a stored baseline is of; called only when one is stored."""


class Session:
    """Measures, one test after the other, on servers that it boots once and ends with itself. A context manager."""

    def __init__(self, options: SessionOptions, *, progress: ProgressSink) -> None:
        self._options = options
        self._progress = progress
        self._pool = ServerPool()
        self._loader = Loader()
        self._store = BaselineStore(options.baselines)
        base = Base(title="itself") if options.aa else options.against
        self._versus = (
            None
            if base is None
            else Versus(base=base, loader=self._loader, progress=progress, builds=self._pool.builds)
        )
        self._budget = ErrorBudget(options.gates)
        self.environment = Environment.current()
        self.results: list[Result] = []
        """Every measurement made, failed ones too, in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the generator and every server."""
        try:
            self._loader.close()
        finally:
            self._pool.close()

    def server(self, settings: Settings) -> RunningServer:
        """Returns the first boot of the server that these settings describe; boots it on first use."""
        return self._boots(settings, 1)[0]

    def measure(self, work: Work, settings: Settings, test: TestId) -> Measurement:
        """Loads the server, judges, keeps the result and returns its figures.

        Raises FilePerfError when there is nothing to judge, PerformanceError when the verdict fails the test.
        """
        __tracebackhide__ = True
        if self._versus is not None and settings.gate:
            return self._measure_versus(self._versus, work, settings, test)
        self._read_baseline(test, settings)  # a damaged one is told before time is spent on measuring
        smoke = self._options.smoke
        servers = self._boots(settings, boots_wanted(settings, smoke=smoke))
        plan = load_plan(settings, len(servers), smoke=smoke)
        recording = self._record(work, plan, servers, test, _cores_of(settings))
        result = self._judged(work, plan, settings, test, servers[0], recording)
        if self._options.profile:
            result = replace(result, explanation=self._costs(work, settings, servers[0], result.measurement))
        self.results.append(result)
        if self._is_stored(result, settings):
            self._store_baseline(result)
            result = self.results[-1] = replace(result, baseline_written=True)
        self._raise_for(result, settings, servers)
        return result.measurement

    def _measure_versus(self, versus: Versus, work: Work, settings: Settings, test: TestId) -> Measurement:
        """The same by comparison with another version that is measured in turn."""
        __tracebackhide__ = True
        aa = self._options.aa
        alpha = self._budget.level(len(settings.gate))
        try:
            found = versus.measure(
                work, settings, title=test.title, cores=_cores_of(settings), alpha=alpha, to_the_end=aa
            )
        except AbsentError as absent:
            return self._measure_new(work, settings, test, absent)
        alone = measurement_of(found.limiting)
        measurement = replace(measurement_of(found.now), limit=alone.limit, busy=alone.busy)
        measurement = replace(
            measurement, server=replace(measurement.server, worker_cpu_shares=alone.server.worker_cpu_shares)
        )
        comparisons = unless_base_failed(
            found.comparisons,
            found.base,
            allowed=settings.limits.get("max_error_rate", 0.0),
            title=versus.base.title,
        )
        if measurement.saturated:
            comparisons = tuple(map(unless_saturated, comparisons))
        regressed = sum(comparison.outcome is Outcome.REGRESSED for comparison in comparisons)
        self._budget.used(alpha, regressed)
        result = Result(
            test=test,
            work=work.name,
            server=found.server,
            load=contest_title(settings, len(found.pairs), found.seconds),
            identity={"work": work.identity(), "server": found.identity, "against": versus.base.title},
            recording=found.now,
            measurement=measurement,
            verdict=Verdict(
                limits=check_limits(settings.limits, found.now),
                comparisons=() if aa else comparisons,
                saturated=measurement.saturated,
                against=versus.base.title,
            ),
            base=found.base,
            pairs=found.pairs,
            base_seconds=found.seconds,
            explanation=found.explanation,
            noise=_noise(found, settings, alpha) if aa else (),
        )
        self.results.append(result)
        self._raise_for(result, settings, ())
        return measurement

    def _measure_new(self, work: Work, settings: Settings, test: TestId, absent: AbsentError) -> Measurement:
        """Measures what one of the versions has not: every gate is NEW."""
        __tracebackhide__ = True
        servers = self._boots(settings, 1)
        plan = load_plan(settings, 1, smoke=False)
        recording = self._record(work, plan, servers, test, _cores_of(settings))
        result = self._judged(work, plan, replace(settings, gate=()), test, servers[0], recording)
        comparisons = tuple(
            MetricComparison(
                metric=name,
                outcome=Outcome.NEW,
                tolerance=settings.tolerances.get(name, METRICS[name].paired_tolerance),
                now=METRICS[name].of_run(recording),
                reason=str(absent),
            )
            for name in settings.gate
        )
        assert self._versus is not None
        verdict = replace(result.verdict, comparisons=comparisons, against=self._versus.base.title)
        self.results.append(replace(result, verdict=verdict))
        # An endpoint that the base has not is what a change may bring; a base without the app compares nothing at all.
        self._raise_for(self.results[-1], settings, servers, new_in_ci=absent.app)
        if absent.here:
            raise LoadError(
                f"{test.title}: {absent} on a server that was just booted, while the one of this session has: what the"
                " test has put there before is missing, as each pair boots anew. Let the app bring it, or leave this"
                ' test out of comparisons with gate="none"'
            )
        return result.measurement

    def _costs(self, work: Work, settings: Settings, server: RunningServer, measured: Measurement) -> Explanation:
        looked = Looked(server=server, root=None, cpu_per_request=measured.server.cpu_per_request)
        cores = _cores_of(settings)
        plan = profile_plan(settings)
        return explain_costs(self._loader, work, plan, looked, cores[1] if cores else None, lambda _: None)

    # --- loading

    def _boots(self, settings: Settings, count: int) -> tuple[RunningServer, ...]:
        app = None if settings.app is None else app_spec(settings.app)
        cores = _cores_of(settings)
        return self._pool.boots(settings.server, app, count, cores[0] if cores else None)

    def _record(
        self, work: Work, plan: LoadPlan, servers: tuple[RunningServer, ...], test: TestId, cores: Cores | None
    ) -> Recording:
        """Makes one run on each boot, in random order, and returns everything measured."""
        order = list(enumerate(servers))
        random.shuffle(order)
        made: list[Run] = []
        begun_s = monotonic()
        try:
            for number, (index, server) in enumerate(order):
                tell = self._teller(test, plan, number, len(order), begun_s, made)
                made.append(self._loader.make(work, plan, index, server, cores[1] if cores else None, tell))
        finally:
            self._progress.done()
        open_loop = plan.pacing().open_loop
        return recording_of(made, connections=plan.connections, open_loop=open_loop, pinned=cores is not None)

    def _teller(
        self, test: TestId, plan: LoadPlan, number: int, boots: int, begun_s: float, done: list[Run]
    ) -> Callable[[RunProgress], None]:
        """Returns what turns a run's progress into a line of the whole run's."""
        before = sum(round_.requests for run in done for round_ in run.result.rounds)

        def tell(progress: RunProgress) -> None:
            self._progress.update(
                ProgressLine(
                    title=test.title,
                    phase=progress.phase,
                    boot=number + 1,
                    boots=boots,
                    elapsed_s=monotonic() - begun_s,
                    total_s=None if plan.counted else boots * plan.duration_ns / 1e9,
                    requests=before + progress.requests,
                    rps=progress.rps,
                    p99_s=progress.p99_ns / 1e9 if progress.p99_ns is not None else None,
                    failures=progress.failed,
                )
            )

        return tell

    # --- judging

    def _read_baseline(self, test: TestId, settings: Settings) -> Entry | ForeignProfile | None:
        if self._options.smoke or not settings.gate:
            return None
        return self._store.find(test.module, test.nodeid, self.environment)

    def _judged(
        self,
        work: Work,
        plan: LoadPlan,
        settings: Settings,
        test: TestId,
        server: RunningServer,
        recording: Recording,
    ) -> Result:
        """Returns the result with its verdict."""
        measurement = measurement_of(recording)
        identity = _identity(work, plan, server, recording)
        verdict = Verdict(saturated=measurement.saturated)
        if not self._options.smoke:
            verdict = replace(verdict, limits=check_limits(settings.limits, recording))
        if settings.gate and not self._options.smoke:
            comparisons = judge(
                gate=settings.gate,
                tolerances=settings.tolerances,
                alpha=alpha_each(self._options.gates),
                found=self._read_baseline(test, settings),
                now=evidence_of(recording),
                identity=identity,
                environment=self.environment,
                saturated=measurement.saturated,
                busy=measurement.busy,
            )
            verdict = replace(verdict, comparisons=comparisons)
        return Result(
            test=test,
            work=work.name,
            server=server.title,
            load=load_title(plan, len(recording.boots)),
            identity=identity,
            recording=recording,
            measurement=measurement,
            verdict=verdict,
            smoke=self._options.smoke,
        )

    def _is_stored(self, result: Result, settings: Settings) -> bool:
        """Returns whether the run becomes the baseline: where that was asked for, and it is fit to be one."""
        if self._options.update is None or not settings.gate or self._options.smoke or result.unfit:
            return False
        if self._options.update == "new":
            return not isinstance(self._read_baseline(result.test, settings), Entry)
        return self._options.update == "all" or not any(may_be_worse(item) for item in result.verdict.comparisons)

    def _store_baseline(self, result: Result) -> None:
        entry = Entry(
            identity=result.identity,
            evidence=evidence_of(result.recording),
            captured=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=self._options.commit(),
            reason=self._options.reason,
        )
        gated = [comparison.metric for comparison in result.verdict.comparisons]
        self._store.write(result.test.module, result.test.nodeid, entry, self.environment, summary_of=gated)

    def _raise_for(
        self, result: Result, settings: Settings, servers: tuple[RunningServer, ...], *, new_in_ci: bool = True
    ) -> None:
        __tracebackhide__ = True
        # What a server says of an answer of 500 is in its log only.
        own_fault = any(status >= 500 for status in result.measurement.statuses)
        log = next((server.log for server in servers if server.log), ()) if own_fault else ()
        allowed = settings.limits.get("max_error_rate", 0.0)
        raise_for_failed_requests(result.measurement, allowed, result.test.title, log=log)
        if result.baseline_written or self._options.smoke:
            return
        judged_by_limits = any(limit.name != "max_error_rate" for limit in result.verdict.limits)
        raise_for(
            result.verdict,
            strict=self._options.strict,
            ci=self._options.ci and new_in_ci and not judged_by_limits,
            title=result.test.title,
            limiting=str(result.measurement.limit),
            explanation="" if result.explanation is None else result.explanation.text,
        )


def _cores_of(settings: Settings) -> Cores | None:
    """Returns the cores of the server and those of the generator, where there are enough for both."""
    workers = worker_count(settings.server)
    return None if workers is None else split_cores(workers)


def _noise(result: ComparisonResult, settings: Settings, alpha: float) -> tuple[NoiseFloor, ...]:
    """Returns, for each gate, what it could have seen."""
    return tuple(
        noise_floor(
            METRICS[name],
            result.pairs,
            tolerance=settings.tolerances.get(name, METRICS[name].paired_tolerance),
            alpha=alpha,
            seconds=result.seconds,
        )
        for name in settings.gate
    )


def _identity(work: Work, plan: LoadPlan, server: RunningServer, recording: Recording) -> dict[str, object]:
    """Returns what must be equal for two measurements to compare, as JSON values."""
    return {
        "work": work.identity(),
        "server": server.identity(),
        "load": load_identity(plan),
        "engine": recording.engine,
        "pinned": recording.pinned,
    }
