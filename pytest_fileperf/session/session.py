"""Joins the stages: plans, measures, judges and keeps one test after the other. Knows nothing of pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from pytest_fileperf.errors import (
    FilePerfError,
    LimitExceededError,
    LoadError,
    NotMeasuredError,
    PerformanceError,
    PlanError,
    RegressionError,
    RequestsFailedError,
)
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.gate import ErrorBudget, unless_left, unless_lost, unless_other_answers
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import (
    Note,
    NoteKind,
    Outcome,
    as_the_run_shows,
    check_limits,
)
from pytest_fileperf.measure.capacity import Capacity
from pytest_fileperf.measure.measurement import SATURATED_CPU_SHARE, Measurement
from pytest_fileperf.measure.recording import Phase, kept_small, pack_histograms
from pytest_fileperf.measure.usage import busiest_share
from pytest_fileperf.plan.load import LoadPlan, Side
from pytest_fileperf.plan.work import Work, in_smoke
from pytest_fileperf.report.message import raise_for, raise_for_failed_requests
from pytest_fileperf.serve.running import RunningServer, serving_server
from pytest_fileperf.serve.spec import InProcess, worker_count
from pytest_fileperf.session.alone import measure_alone
from pytest_fileperf.session.capacity import smoke_capacity
from pytest_fileperf.session.rig import Measured, Rig, with_other_answers
from pytest_fileperf.session.setup import entered, left, work_on
from pytest_fileperf.session.sides import Base
from pytest_fileperf.session.stored import Baselines, Keeping, measure_other_version
from pytest_fileperf.settings.keys import AUTO
from pytest_fileperf.settings.plans import Plan, app_of, cores_of, gates_of
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.units import format_count

# --- Says how many generators make a load, and finds out how many it takes where that is asked for
#
#     1 generator | saturated? free cores? | 2 generators | saturated? free cores? | 4 generators | …
#
# Each step is a short load of the code here on a boot that serves, which then is the measurement's first.

_NO_CORE = "no core is free for another one"
_PROBE_NS, _WARMUP_NS = 300_000_000, 100_000_000
"""Whether a core is used up shows after so long."""


def _generators(work: Work, settings: Settings, rig: Rig) -> tuple[int, tuple[str, ...]]:
    """Returns how many generators make the load, and what is to be said of it.

    Raises what booting and loading raise, where short loads tell the number; GeneratorError where a cluster cannot make
    the load, and PlanError where it has too few workers.
    """
    there, said = rig.loads.workers(), list[str]()
    asked, workers = settings.generators, None if there is None else there.count
    if there is not None:
        said += (f"worker {worker} did not answer, and made no load" for worker in there.silent)
        if there.is_shared:
            said.append(
                "another test run has load generators on the same workers, and both disturb each other: "
                "let one end before the other, or give each a cluster"
            )
    if isinstance(asked, int) and workers is not None and asked > workers:
        raise PlanError(
            f"generators={asked}, and the cluster has {format_count(workers, 'worker')}: start more, or ask for less"
        )
    # Each generator has a connection, and a request of a fixed number.
    most = min(number for number in (settings.connections, settings.requests, settings.burst) if number is not None)
    only = f"it has only {format_count(most, 'connection' if most == settings.connections else 'request')}"
    count = asked if isinstance(asked, int) else 1
    if asked == AUTO:
        count, why = _enough(work, settings, rig, most, workers)
        said.append(f"generators=auto took {count}: {why}")
    elif count > most:
        said.append(f"{most} of {format_count(count, 'generator')} made the load: {only}")
        count = most
    elif asked is None and workers is not None:
        count = min(workers, most)
        if count < workers:
            said.append(f"{count} of {format_count(workers, 'worker')} made the load: {only}")
    return count, tuple(said)


def _enough(work: Work, settings: Settings, rig: Rig, most: int, workers: int | None) -> tuple[int, str]:
    """Returns how many generators are enough, and why it is not more."""
    if isinstance(settings.server, InProcess):
        return 1, "the app is loaded from the test process"
    if workers is None:
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cores, no_more = here - (worker_count(settings.server) or 1), _NO_CORE
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
                warmup_ns=_WARMUP_NS,
                round_ns=_PROBE_NS,
                rounds=1,
                timeout_ns=settings.timeout_ns,
                pause=settings.pause,
                rate=ramp.highest if ramp is not None and ramp.of_rate else settings.rate,
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

_ON_ONE_BOOT = (
    "this test uses fileperf_server: what it puts there is on one boot of the server only, and measurements load "
    "others. Put it there with setup=, which runs on every boot"
)


class Session:
    """Measures, one test after the other, on servers that it boots and ends. A context manager."""

    def __init__(self, options: Options, rig: Rig, *, against: Base | None = None, gates: int = 1) -> None:
        """`rig` is what it measures with; the session closes it.

        `against` is what is compared with in place of stored baselines. `gates` are the comparisons expected in this
        session: they share one error rate.
        """
        self._options = options
        self._rig = rig
        self._base = Base(title="itself") if options.aa else against
        self._budget = ErrorBudget(gates)
        self._baselines = Baselines(options, rig, self._budget, Environment.current())
        self._notes: list[str] = []
        self._to_store: dict[int, tuple[Result, Callable[[], None]]] = {}
        """What is stored once its test has passed: the result without it, and what stores it; by the result's place."""
        self._shown_to: str | None = None
        """The last test that got the running server."""
        self.results: list[Result] = []
        """Every measurement made, failed ones too, in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the generator and every server."""
        self._rig.close()

    @property
    def endings(self) -> tuple[str, ...]:
        """What was wrong with the ends of servers so far, in sentences."""
        endings = self._rig.servers.endings
        return tuple(said if count == 1 else f"{said} ({count} times)" for said, count in endings.items())

    def server(self, settings: Settings, nodeid: str) -> RunningServer:
        """Returns the server that these settings describe: whichever boot of it serves. Raises what booting raises.

        `nodeid` is the test that gets it.
        """
        _check_clock()
        self._shown_to = nodeid
        app, (cores, _), servers = app_of(settings), cores_of(settings), self._rig.servers

        def serving() -> RunningServer:
            server = servers.any_boot(settings.server, app, cores)
            entered(settings, servers)
            return server

        serving()
        return serving_server(serving)

    def leave(self, settings: Settings) -> None:
        """Undoes what a test has set up on its server. Raises SetupError."""
        left(settings, self._rig.servers)

    def measure(self, work: Work, settings: Settings, test: TestId) -> Measurement:
        """Loads the server, judges, keeps the result and returns its figures.

        Raises FilePerfError when there is nothing to judge, PerformanceError when the verdict fails the test.
        """
        __tracebackhide__ = True
        return self._result(work, settings, test).measurement

    def capacity(self, work: Work, settings: Settings, test: TestId) -> Capacity:
        """Searches for the highest rate that holds the limits, judges, keeps the result and returns what was found.

        Raises what `measure` raises.
        """
        __tracebackhide__ = True
        found = self._result(work, settings, test).capacity
        assert found is not None
        return found

    def _result(self, work: Work, settings: Settings, test: TestId) -> Result:
        __tracebackhide__ = True
        _check_clock()
        generators: int | None = None
        said: tuple[str, ...] = ()
        if self._options.smoke:
            work = in_smoke(work)
        else:
            generators, said = _generators(work, settings, self._rig)
        cores, generator_cores = cores_of(settings, generators)
        gates, own_gates = gates_of(work, settings), len(settings.gate)
        plan = Plan(
            test=test,
            work=work,
            settings=settings,
            app=app_of(settings),
            cores=cores,
            generator_cores=generator_cores,
            generators=generators or 1,
            said=said,
            alpha=self._budget.level(own_gates, of_parts=gates - own_gates),
            smoke=self._options.smoke,
            profiles=self._options.profile and not self._options.smoke,
            to_the_end=self._options.aa,
        )
        measured, keep = self._measured(plan, is_gated=gates > 0)
        self._notes += (f"{test.title}: {note}" for note in measured.notes)
        whole, *parts = measured.results
        measured_of = zip(measured.subjects, (with_other_answers(whole, parts), *parts), strict=True)
        results = [self._judged(subject, result) for subject, result in measured_of]
        place = len(self.results)
        self.results += results
        for at, (result, store) in enumerate(keep(results), start=place):
            if store is not None:
                self._to_store[at] = self.results[at], store
            self.results[at] = result
        self.results[place:] = map(_kept_small, self.results[place:])
        self._raise_for_all(measured, self.results[place:])
        return self.results[place]

    def _judged(self, plan: Plan, result: Result) -> Result:
        """Returns the result with what its limits say of it, and figures that agree in all reports."""
        smoke = self._options.smoke
        told = unless_left(result.verdict.comparisons, result.recording, result.base)
        told = unless_other_answers(unless_lost(told, result.lost), result.other_answers)
        said = (Note(kind=NoteKind.TOLD, texts=(text,)) for text in plan.said)
        capacity = smoke_capacity(result.measurement.rps) if smoke and plan.settings.capacity else result.capacity
        return result.having(
            limits=() if smoke else check_limits(plan.settings.limits, result.recording, result.least_capacity),
            comparisons=as_the_run_shows(told, result.recording, result.base),
            world=() if result.lost else result.verdict.world,
            notes=(*result.notes, *said),
            smoke=smoke,
            capacity=capacity,
        )

    def settle(self, nodeid: str | None = None, *, passed: bool) -> None:
        """Stores what a test has measured as baselines, where it has passed; without a name that of all tests left.

        Raises BaselineError, of the first that cannot be written, after all others. The results say where nothing was
        stored.
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
                why = "it could not be written"
            if why:
                self.results[place] = _kept_small(without.having(not_stored=why))
        if problems:
            raise problems[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about code of baselines that could not be had, kept, or measured again."""
        return (*self._rig.source.notes, *self._notes)

    def _measured(self, plan: Plan, *, is_gated: bool) -> tuple[Measured, Callable[[Sequence[Result]], Keeping]]:
        """Measures the code here, and what it is compared with; returns it with what stores its results.

        Raises PlanError and BaselineError, and what booting and loading raise.
        """
        options, rig = self._options, self._rig
        if is_gated and self._base is not None:
            return measure_other_version(plan, self._base, self._budget, rig), lambda _: []
        plan.load  # noqa: B018 # a rate that is too low is told before anything boots
        if options.smoke or not is_gated:
            return measure_alone(plan, rig), lambda _: []
        # Read before time is spent on measuring: a damaged file is told at once.
        found = self._baselines.find(plan)
        if found is not None and options.update == "all":  # what is stored is measured anew, in half of the time
            plan = replace(plan, in_half=True)
        return self._baselines.measure(plan, found), partial(self._baselines.keep, plan, found)

    def _raise_for_all(self, measured: Measured, results: Sequence[Result]) -> None:
        """Raises what fails the test, if anything does: the gravest error, with what is wrong with other parts."""
        __tracebackhide__ = True
        errors: list[PerformanceError] = []
        for subject, result in zip(measured.subjects, results, strict=True):
            try:
                self._raise_for(subject, measured, result)
            except PerformanceError as error:
                errors.append(error)
        errors.sort(key=lambda error: _GRAVITY.index(type(error)))
        if errors:
            raise type(errors[0])("\n\n".join(map(str, errors))) from None

    def _raise_for(self, plan: Plan, measured: Measured, result: Result) -> None:
        """Raises what fails the test by one of its results, if anything does."""
        __tracebackhide__ = True
        absent, title = measured.absent, plan.test.title
        allowed = plan.allowed_errors
        hint = _ON_ONE_BOOT if plan.test.nodeid.partition("#")[0] == self._shown_to else ""
        if absent is not None and absent.outcome is Outcome.INCONCLUSIVE:
            hint = f"Measured alone, as nothing could be compared: {absent.what}."
        raise_for_failed_requests(result, allowed, log=measured.log, hint=hint)
        if result.baseline_written or self._options.smoke:
            return
        has_limits = any(limit.name != "max_error_rate" for limit in result.verdict.limits)
        # A change may bring an endpoint that the base lacks. A base without the app compares nothing at all.
        expected = absent is not None and not absent.app
        ci = self._options.ci and not has_limits and not expected
        raise_for(result, strict=self._options.strict, ci=ci)
        if absent is not None and absent.side is Side.NOW:
            raise LoadError(
                f"{title}: {absent.what} when it was measured in turn, and had one when it was measured alone: "
                'what differs between boots of the app? Or leave this test out of comparisons with gate="none"'
            )


def _check_clock() -> None:
    """Raises PlanError if the monotonic clock of this process does not go on as time does: no wait would end."""
    before_ns = time.monotonic_ns()
    time.sleep(_LOOK_S)
    passed_s = (time.monotonic_ns() - before_ns) / 1e9
    if not _LOOK_S / 2 <= passed_s <= _LONGEST_LOOK_S:
        stands = "stands still" if passed_s == 0 else f"moved by {passed_s:g} s within {_LOOK_S * 1000:g} ms"
        raise PlanError(
            f"the clock of this process {stands}, as freezegun and time-machine make it: measure outside of their "
            "fixtures and blocks, and let the app under test set its own clock"
        )


_LOOK_S = 0.001
_LONGEST_LOOK_S = 10.0
"""A busy machine may let a process sleep for longer than it asked for, but not for so long."""
_GRAVITY = (RequestsFailedError, RegressionError, LimitExceededError, NotMeasuredError)


def _kept_small(result: Result) -> Result:
    """Returns an equal result that takes less memory: a session keeps all of them."""
    base = None if result.base is None else kept_small(result.base)
    small = replace(result, recording=kept_small(result.recording), base=base)
    pack_histograms([small])
    return small
