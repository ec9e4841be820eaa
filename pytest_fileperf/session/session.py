"""Plans, measures, judges and stores one test after the other. Knows nothing of pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from pytest_fileperf.errors import (
    FilePerfError,
    LimitExceededError,
    LoadError,
    NoTimeError,
    NotMeasuredError,
    PerformanceError,
    PlanError,
    RegressionError,
    RequestsFailedError,
)
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.gate import ErrorBudget, unless_left, unless_lost, unless_other_answers
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import Note, NoteKind, ReasonKind, as_the_run_shows, check_limits
from pytest_fileperf.measure.measurement import SATURATED_CPU_SHARE
from pytest_fileperf.measure.recording import Phase, pack
from pytest_fileperf.measure.usage import busiest_share
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work, in_smoke, requests_of
from pytest_fileperf.report.message import raise_for, raise_for_failed_requests
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.serve.endpoints import covered
from pytest_fileperf.serve.running import RunningServer, serving_server
from pytest_fileperf.serve.spec import InProcess, worker_count
from pytest_fileperf.session.alone import measure_alone
from pytest_fileperf.session.capacity import smoke_capacity
from pytest_fileperf.session.history import added
from pytest_fileperf.session.rig import Measured, Rig
from pytest_fileperf.session.setup import entered, left, work_on
from pytest_fileperf.session.stored import Baselines, measure_other_version
from pytest_fileperf.settings.keys import AUTO
from pytest_fileperf.settings.plans import Plan, app_of, cores_of, subjects_of
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.units import format_count, format_duration
from pytest_fileperf.versions.tree import CodeTree

# --- Decides how many generators make a load; finds out how many are needed if the user asked for that
#
#     1 generator | saturated? free cores? | 2 generators | saturated? free cores? | 4 generators | …
#
# Each step is a short load of the code here. The measurement then uses the same server as its first start-up.


def _generators(work: Work, settings: Settings, rig: Rig) -> tuple[int, tuple[str, ...]]:
    """Returns how many generators make the load, and remarks on their number. Raises PlanError if too few exist."""
    asked, (workers, silent, is_shared) = settings.generators, rig.loads.workers() or (None, (), False)
    said = [f"worker {worker} did not answer and made no load" for worker in silent]
    if is_shared:
        said.append(
            "another test run uses the same workers, and both disturb each other. Run them one after the "
            "other, or give each run its own cluster"
        )
    if isinstance(asked, int) and workers is not None and asked > workers:
        raise PlanError(
            f"generators={asked}, but the cluster has {format_count(workers, 'worker')}. Start more, or use "
            "fewer generators"
        )
    # Each generator needs a connection, and a request if their number is fixed.
    most = min(filter(None, (settings.connections, settings.requests, settings.burst)))
    only = f"the load has only {format_count(most, 'connection' if most == settings.connections else 'request')}"
    count = asked if isinstance(asked, int) else 1
    if asked == AUTO:
        count, why = _enough(work, settings, rig, most, workers)
        said.append(f"generators=auto chose {count}: {why}")
    elif count > most:
        said.append(f"{most} of {format_count(count, 'generator')} made the load: {only}")
        count = most
    elif asked is None and workers is not None:
        count = min(workers, most)
        if count < workers:
            said.append(f"{count} of {format_count(workers, 'worker')} made the load: {only}")
    return count, tuple(said)


def _enough(work: Work, settings: Settings, rig: Rig, most: int, workers: int | None) -> tuple[int, str]:
    if isinstance(settings.server, InProcess):
        return 1, "the test process itself sends the requests"
    if workers is None:
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cores, no_more = here - (worker_count(settings.server) or 1), "no core is free for another one"
    else:
        cores, no_more = workers, "the cluster has no more workers"
    if min(cores, most) < 2:
        return 1, no_more if cores < 2 else "the load has one connection"
    ramp, count = settings.ramp, 1
    server = rig.servers.any_boot(settings.server, app_of(settings), cores_of(settings)[0])
    with work_on(server, rig.servers, work, settings) as own:
        while True:
            probe = LoadPlan(
                connections=settings.connections,
                warmup_ns=100_000_000,
                round_ns=300_000_000,  # a saturated core shows after this time
                rounds=1,
                timeout_ns=settings.timeout_ns,
                pause=settings.pause,
                rate=ramp.highest if ramp is not None and ramp.open_loop else settings.rate,
                generators=count,
            )
            run = rig.loads.make(own, probe, 0, server, cores_of(settings, count)[1], lambda _: None)
            share = busiest_share([round_ for round_ in run.rounds if round_.phase is Phase.ROUND])
            used = f"{'it' if count == 1 else 'the busiest'} used {share * 100:.0f} % of its core"
            if share <= SATURATED_CPU_SHARE:
                return count, used
            if count == min(most, cores):
                return count, f"{used}, and {'the load has no more connections' if count == most else no_more}"
            count = min(2 * count, most, cores)


# --- session

_GRAVITY = (RequestsFailedError, RegressionError, LimitExceededError, NotMeasuredError)
"""The gravest error first. A test raises its gravest error, with the texts of all its errors."""
_ON_ONE_BOOT = (
    "This test uses fileperf_server, so its data exists on one start-up of the server only. Measurements use "
    "other start-ups. Create the data with setup=, which runs on every start-up"
)


class Session:
    def __init__(self, options: Options, rig: Rig, *, against: CodeTree | None = None, gates: int = 1) -> None:
        """The session closes `rig`. `gates` is how many comparisons share one allowed probability of a false alarm."""
        self._options = options
        self._rig = rig
        self._base = CodeTree(title="itself") if options.aa else against
        self._budget = ErrorBudget(gates)
        self._baselines = Baselines(options, rig, self._budget, Environment.current())
        self._sent: dict[str, set[tuple[str, str]]] = {}
        """The (method, path) of each request, by the app's name. Without an app, by the server's title."""
        self._notes: list[str] = []
        self._to_store: dict[int, tuple[Result, Callable[[], None]]] = {}
        """By index in `results`: the result to use if nothing is stored, and the function that stores it."""
        self._shown_to: str | None = None
        """The node id of the last test that got a running server."""
        self.results: list[Result] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._rig.close()

    def add_to(self, history: Path) -> str:
        """Appends this session's comparisons to `history`; returns a sentence for the user. Raises FilePerfError."""
        self.results, said = added(self.results, history, self._rig.source)
        return said

    def end(self) -> None:
        """Ends server and load generators; the next measurement starts them again."""
        self._rig.servers.fetch_own_document()
        self._rig.servers.close()
        self._rig.loads.close()

    @property
    def endings(self) -> tuple[str, ...]:
        """Sentences about problems that servers had when they ended."""
        endings = self._rig.servers.endings
        return tuple(said if count == 1 else f"{said} ({count} times)" for said, count in endings.items())

    def covered(self) -> dict[str, Mapping[str, bool]]:
        """Returns, for each app, whether each endpoint has a load test.

        Empty if no server was asked for its OpenAPI document.
        """
        self._rig.servers.fetch_own_document()
        documents = self._rig.servers.documents or {}
        found = {app: covered(documents[app], sent) for app, sent in self._sent.items() if app in documents}
        return {app: endpoints for app, endpoints in found.items() if endpoints}

    def server(self, settings: Settings, nodeid: str) -> RunningServer:
        _check_clock()
        self._shown_to = nodeid
        app, (cores, _), servers = app_of(settings), cores_of(settings), self._rig.servers

        def serving() -> RunningServer:
            server = servers.any_boot(settings.server, app, cores)
            entered(settings, servers)
            return server

        serving()
        return serving_server(serving)

    def forget(self, nodeid: str) -> list[Result]:
        dropped = [result for result in self.results if result.test.item == nodeid]
        self.results = [result for result in self.results if result.test.item != nodeid]
        return dropped

    def leave(self, settings: Settings) -> None:
        left(settings, self._rig.servers)

    def measure(self, work: Work, settings: Settings, test: TestId) -> Result:
        """Measures and judges a test's load. Adds its results to `results`, and returns the whole load's result.

        Raises FilePerfError if there is nothing to judge, and PerformanceError if the verdict fails the test.
        """
        __tracebackhide__ = True
        _check_clock()
        subjects = subjects_of(work, settings).values()
        is_compared = any(subject.compared for subject in subjects)
        if (time_ := self._rig.time) is not None:
            if (decided := time_.decided(test.nodeid)) is not None:
                results, failed = decided
                self.results += results
                if failed is not None:
                    raise failed
                return results[0]
            if time_.is_over and not any(subject.gate for subject in subjects):
                is_compared = False
            if is_compared and time_.is_over and not time_.again:
                raise NoTimeError(
                    f"{test.title}: not measured, because no time was left of "
                    f"--fileperf-budget={format_duration(round(1e9 * time_.total_s))}"
                )
            settings = settings.lasting(round(1e9 * time_.part_s(test.nodeid)))
        keeps = is_compared and self._base is None and not self._options.smoke
        # Read before time is spent on measuring, so that a damaged file is reported at once.
        found = self._baselines.find(test) if keeps else None
        # The comparison has half of the time if the stored figures are to be measured again after it.
        plan = self._planned(work, settings, test, in_half=found is not None and self._options.update == "all")
        self._rig.loads.paths.clear()  # a failed measurement may have left some
        if is_compared and self._base is not None:
            measured = measure_other_version(plan, self._base, self._budget, self._rig)
        else:
            plan.load  # noqa: B018 # reports a rate that is too low before anything starts
            measured = self._baselines.measure(plan, found) if keeps else measure_alone(plan, self._rig)
        self._notes += (f"{test.title}: {note}" for note in measured.notes)
        sent = self._sent.setdefault(measured.results[0].server if plan.app is None else plan.app.name, set())
        sent.update(self._rig.loads.paths, requests_of(plan.work))
        whole, *parts = measured.results
        of_parts = tuple(replace(one, of=part.test.own) for part in parts for one in part.other_answers)
        # Only a mix's parts show whether it answers differently: chance decides how often each part is in it.
        if of_parts or not all(part.test.step for part in parts):
            whole = whole.having(other_answers=of_parts)
        judged = [self._judged(plan, result) for result in (whole, *parts)]
        place = len(self.results)
        self.results += judged
        keeping = self._baselines.keep(plan, found, judged) if keeps else []
        for at, (result, store) in enumerate(keeping, start=place):
            if store is not None:
                self._to_store[at] = self.results[at], store
            self.results[at] = result
        pack(self.results[place:])  # all of them are kept
        errors: list[PerformanceError] = []
        for result in self.results[place:]:
            try:
                self._raise_for(plan, measured, result)
            except PerformanceError as error:
                errors.append(error)
        errors.sort(key=lambda error: _GRAVITY.index(type(error)))
        failed = type(errors[0])("\n\n".join(map(str, errors))) if errors else None
        if time_ is not None:
            time_.judged(test.nodeid, self.results[place:], failed)
        if failed is not None:
            raise failed
        return self.results[place]

    def _planned(self, work: Work, settings: Settings, test: TestId, *, in_half: bool) -> Plan:
        generators: int | None = None
        said: tuple[str, ...] = ()
        if self._options.smoke:
            work = in_smoke(work)
        else:
            generators, said = _generators(work, settings, self._rig)
        cores, generator_cores = cores_of(settings, generators)
        _, *apart = subjects_of(work, settings).values()
        return Plan(
            test=test,
            work=work,
            settings=settings,
            app=app_of(settings),
            cores=cores,
            generator_cores=generator_cores,
            generators=generators or 1,
            said=said,
            alpha=self._budget.level(len(settings.gate), of_parts=sum(len(subject.gate) for subject in apart)),
            smoke=self._options.smoke,
            profiles=self._options.profile and not self._options.smoke,
            shows_queries=self._options.queries,
            to_the_end=self._options.aa,
            in_half=in_half,
        )

    def _judged(self, plan: Plan, result: Result) -> Result:
        smoke, limits = self._options.smoke, plan.subject(result.test.subject).limits
        told = unless_left(result.verdict.comparisons, result.recording, result.base)
        told = unless_other_answers(unless_lost(told, result.lost), result.other_answers)
        said = (Note(kind=NoteKind.TOLD, texts=(text,)) for text in plan.said)
        capacity = smoke_capacity(result.measurement.rps) if smoke and plan.settings.capacity else result.capacity
        return result.having(
            limits=() if smoke else check_limits(limits, result.recording, result.least_capacity),
            comparisons=as_the_run_shows(told, result.recording, result.base),
            world=() if result.lost else result.verdict.world,
            notes=(*result.notes, *said),
            smoke=smoke,
            capacity=capacity,
        )

    def settle(self, nodeid: str | None = None, *, passed: bool) -> None:
        """If a test has `passed`, stores its baselines. Without a node id, does so for all remaining tests.

        Tries to store all baselines, then raises the first BaselineError.
        """
        problems: list[FilePerfError] = []
        for place, (without, store) in tuple(self._to_store.items()):
            if nodeid is not None and without.test.item != nodeid:
                continue
            del self._to_store[place]
            why = "" if passed else "the test did not pass"
            try:
                if passed:
                    store()
            except FilePerfError as error:
                problems.append(error)
                why = "its file could not be written"
            if why:
                self.results[place] = without.having(not_stored=why)
        if problems:
            raise problems[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about baselines' code that could not be found, kept, or measured again."""
        return (*self._rig.source.notes, *self._notes)

    def _raise_for(self, plan: Plan, measured: Measured, result: Result) -> None:
        __tracebackhide__ = True
        why_not = measured.why_not
        hint = _ON_ONE_BOOT if plan.test.nodeid.partition("#")[0] == self._shown_to else ""
        if why_not is not None and why_not.kind is ReasonKind.INCOMPARABLE:
            hint = f"Measured alone, because nothing could be compared: {sentence(why_not)}."
        raise_for_failed_requests(result, plan.allowed_errors(result.test.subject), log=measured.log, hint=hint)
        if result.baseline_written or self._options.smoke:
            return
        has_limits = any(limit.name != "max_error_rate" for limit in result.verdict.limits)
        # A change may bring an endpoint that the old version lacks. An old version without the app compares nothing at
        # all.
        expected = why_not is not None and why_not.kind is not ReasonKind.NO_APP
        ci = self._options.ci and not has_limits and not expected
        raise_for(result, strict=self._options.strict, ci=ci)
        if why_not is not None and why_not.side == "now":
            raise LoadError(
                f"{plan.test.title}: {sentence(why_not)}, while the old code's server also ran. Alone, the new "
                "code answered well. Find out which file, port or table both servers share. Or exclude this test from "
                'comparisons with gate="none"'
            )


def _check_clock() -> None:
    """Raises PlanError if this process's clock stands still or jumps, because no wait would then end in time."""
    before_ns = time.monotonic_ns()
    time.sleep(0.001)
    passed_s = (time.monotonic_ns() - before_ns) / 1e9
    if not 0.0005 <= passed_s <= 10:  # a busy machine may let a process sleep for longer than asked
        stands = "stands still" if passed_s == 0 else f"moved by {passed_s:g} s within 1 ms"
        raise PlanError(
            f"the clock of this process {stands}, maybe because of freezegun or time-machine. Measure outside "
            "of their fixtures and blocks, and let the app under test set its own clock"
        )
