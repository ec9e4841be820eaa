"""Joins the stages: boots servers, makes stints, records, judges, keeps the results. Knows nothing of pytest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeAlias

import httpx

from pytest_fileperf.drive.beginning import Target
from pytest_fileperf.drive.process import Generator
from pytest_fileperf.drive.stint import Progress, StintResult, run_stint
from pytest_fileperf.errors import LoadError
from pytest_fileperf.judge.baseline import BaselineStore, Entry, ForeignProfile
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.evidence import evidence_of
from pytest_fileperf.judge.gate import alpha_each
from pytest_fileperf.judge.judge import judge, raise_for, raise_for_failed_requests
from pytest_fileperf.judge.limits import check_limits
from pytest_fileperf.judge.verdict import Comparison, Outcome, Verdict
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Boot, Recording
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Work
from pytest_fileperf.planning import boots_wanted, load_identity, load_plan, load_title
from pytest_fileperf.report.progress import ProgressLine, ProgressSink
from pytest_fileperf.report.result import Result, TestId
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.cores import split_cores
from pytest_fileperf.serve.cpu import peak_rss_bytes, reset_peak_rss
from pytest_fileperf.serve.fleet import Fleet
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import worker_count
from pytest_fileperf.serve.watch import Watch
from pytest_fileperf.settings import Settings
from pytest_fileperf.wire.payload_files import PayloadFiles

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
    strict: bool = False
    """NEW and INCONCLUSIVE fail too."""
    ci: bool = False
    """NEW fails where nothing else judged the test."""
    gates: int = 1
    """Comparisons expected in this session: they share one error rate."""
    commit: Callable[[], Mapping[str, object] | None] = lambda: None
    """Reads the commit that a stored baseline is of; called only when one is stored."""


class Session:
    """Measures, one test after the other, on servers that it boots once and ends with itself. A context manager."""

    def __init__(self, options: SessionOptions, *, progress: ProgressSink) -> None:
        self._options = options
        self._progress = progress
        self._fleet = Fleet()
        self._generator = Generator()
        self._files = PayloadFiles()
        self._store = BaselineStore(options.baselines)
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
            self._generator.close()
        finally:
            self._files.close()
            self._fleet.close()

    def server(self, settings: Settings) -> RunningServer:
        """Returns the first boot of the server that these settings describe; boots it on first use."""
        return self._boots(settings, 1)[0]

    def measure(self, work: Work, settings: Settings, test: TestId) -> Measurement:
        """Loads the server, judges, keeps the result and returns its figures.

        Raises FilePerfError when there is nothing to judge, PerformanceError when the verdict fails the test.
        """
        __tracebackhide__ = True
        self._read_baseline(test, settings)  # a damaged one is told before time is spent on measuring
        smoke = self._options.smoke
        servers = self._boots(settings, boots_wanted(settings, smoke=smoke))
        plan = load_plan(settings, len(servers), smoke=smoke)
        recording = self._record(work, plan, servers, test, _cores_of(settings))
        result = self._judged(work, plan, settings, test, servers[0], recording)
        self.results.append(result)
        if self._is_stored(result, settings):
            self._store_baseline(result)
            result = self.results[-1] = replace(result, baseline_written=True)
        self._raise_for(result, settings, servers)
        return result.measurement

    # --- loading

    def _boots(self, settings: Settings, count: int) -> tuple[RunningServer, ...]:
        app = None if settings.app is None else app_spec(settings.app)
        cores = _cores_of(settings)
        return self._fleet.boots(settings.server, app, count, cores[0] if cores else None)

    def _record(
        self, work: Work, plan: LoadPlan, servers: tuple[RunningServer, ...], test: TestId, cores: Cores | None
    ) -> Recording:
        """Makes one stint on each boot, in random order, and returns everything measured."""
        order = list(enumerate(servers))
        random.shuffle(order)
        results: list[StintResult] = []
        boots: list[Boot] = []
        begun_s = monotonic()
        try:
            for number, (index, server) in enumerate(order):
                tell = self._teller(test, plan, number, len(order), begun_s, results)
                reset_peak_rss(server.pids)
                with self._watch(server) as watch:
                    result = self._stint(work, plan, index, server, cores[1] if cores else None, tell)
                server.check()
                results.append(result)
                boots.append(_boot(index, server, watch, result))
        finally:
            self._progress.done()
        rounds = sorted((round_ for result in results for round_ in result.rounds), key=lambda r: (r.boot, r.index))
        return Recording(
            rounds=tuple(rounds),
            boots=tuple(sorted(boots, key=lambda boot: boot.index)),
            connections=plan.connections,
            engine=results[0].engine,
            why_engine=results[0].why_engine,
            wait_ns=sum(result.wait_ns for result in results),
            attack_ns=sum(result.attack_ns for result in results),
            open_loop=plan.pacing().open_loop,
            due=_sum_known(result.due for result in results),
            pinned=cores is not None,
        )

    def _stint(
        self,
        work: Work,
        plan: LoadPlan,
        index: int,
        server: RunningServer,
        cores: frozenset[int] | None,
        tell: Callable[[Progress], None],
    ) -> StintResult:
        if isinstance(server, RunningInProcess):
            target = Target(boot=index, url=server.url, transport=lambda: server.transport)
            return server.run(lambda: run_stint(work, plan, target, files=self._files, server_cpu=dict, progress=tell))
        try:
            return self._generator.run(
                work,
                plan,
                Target(boot=index, url=server.url),
                pids=server.pids,
                cores=cores,
                progress=tell,
                check=server.check,
            )
        except httpx.ConnectError as error:
            server.check()
            raise LoadError(f"no connection to {server.title} at {server.url}: {error}") from error

    def _watch(self, server: RunningServer) -> Watch:
        """Returns what looks at the server, and at the generator where that is a process of its own."""
        in_process = isinstance(server, RunningInProcess)
        return Watch(
            pids=lambda: server.pids,
            port=None if in_process else httpx.URL(server.url).port,
            generator=None if in_process else lambda: self._generator.pid,
        )

    def _teller(
        self, test: TestId, plan: LoadPlan, number: int, boots: int, begun_s: float, done: list[StintResult]
    ) -> Callable[[Progress], None]:
        """Returns what turns a stint's progress into a line of the whole run's."""
        before = sum(round_.requests for result in done for round_ in result.rounds)

        def tell(progress: Progress) -> None:
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
        return self._options.update == "all" or not any(_may_be_worse(item) for item in result.verdict.comparisons)

    def _store_baseline(self, result: Result) -> None:
        entry = Entry(
            identity=result.identity,
            evidence=evidence_of(result.recording),
            captured=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=self._options.commit(),
        )
        self._store.write(result.test.module, result.test.nodeid, entry, self.environment)

    def _raise_for(self, result: Result, settings: Settings, servers: tuple[RunningServer, ...]) -> None:
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
            ci=self._options.ci and not judged_by_limits,
            title=result.test.title,
            limiting=str(result.measurement.limit),
        )


def _boot(index: int, server: RunningServer, watch: Watch, result: StintResult) -> Boot:
    """Returns what is known of a boot after its stint."""
    pids = server.pids
    return Boot(
        index=index,
        pids=pids,
        peak_rss_bytes=peak_rss_bytes(pids),
        stabilised=server.stabilised,
        worker_pids=server.worker_pids,
        samples=watch.samples,
        leads=result.leads,
        first=result.first,
        thread_pools=watch.thread_pools,
    )


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _may_be_worse(comparison: Comparison) -> bool:
    """Returns whether a metric is worse than its baseline, or may be: storing such runs lets a slow drift in."""
    undecided = comparison.outcome is Outcome.INCONCLUSIVE and comparison.low is not None
    return comparison.outcome is Outcome.REGRESSED or undecided


def _cores_of(settings: Settings) -> Cores | None:
    """Returns the cores of the server and those of the generator, where there are enough for both."""
    workers = worker_count(settings.server)
    return None if workers is None else split_cores(workers)


def _identity(work: Work, plan: LoadPlan, server: RunningServer, recording: Recording) -> dict[str, object]:
    """Returns what must be equal for two measurements to compare, as JSON values."""
    return {
        "work": work.identity(),
        "server": server.identity(),
        "load": load_identity(plan),
        "engine": recording.engine,
        "pinned": recording.pinned,
    }
