"""The measurements of one test: joins its app, marker and verbs with the session, and keeps tracebacks short."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_fileperf.errors import FilePerfError, PerformanceError, PlanError
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.mix import Mix
from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.stream import Stream
from pytest_fileperf.plan.work import Work, steps_of
from pytest_fileperf.plugin.arguments import NO_APP, NO_SETUP, VerbCall
from pytest_fileperf.plugin.failures import line_of
from pytest_fileperf.plugin.feeding import NO_SETUP_FOR_FEED
from pytest_fileperf.plugin.options import marker_keys
from pytest_fileperf.plugin.screen import GivenUpError
from pytest_fileperf.plugin.turns import Turn
from pytest_fileperf.plugin.unmeasured import AsyncVerb, calling_place
from pytest_fileperf.serve.spec import needs_app
from pytest_fileperf.settings.capacity import for_capacity, for_one_load
from pytest_fileperf.settings.resolve import DEFAULT_GATE, Settings, resolve
from pytest_fileperf.units import format_duration

if TYPE_CHECKING:
    from threading import Event

    from pytest_fileperf.judge.result import Result, TestId
    from pytest_fileperf.measure.capacity import Capacity
    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plugin.active import Active
    from pytest_fileperf.serve.running import RunningServer
    from pytest_fileperf.session.session import Session

__all__ = ("OUTCOME_PROPERTY", "Measuring", "properties", "tell_properties")

OUTCOME_PROPERTY = "fileperf_outcome"
"""The property of a test's report that says where a measurement stands; `#2` and so on follow it for further ones."""

_PROPERTIES = ("rps", "p99", "outcome", "capacity", "code", "not_stored", "world")
_T = TypeVar("_T")


class Measuring:
    """The measurements of one test."""

    def __init__(self, active: Active, item: pytest.Item, fixtures: Mapping[str, object]) -> None:
        """`fixtures` are the values of `app`, `setup` and `teardown` that fixtures give; None where they give none."""
        self._active = active
        self._item = item
        self._fixtures = fixtures
        self._count = 0
        self.has_measured = False
        """Whether a measurement was made, or raised an error; not where it was cancelled."""
        self.async_verbs: list[AsyncVerb] = []
        """The calls of async verbs, which measure when they are awaited."""

    def measure(self, call: VerbCall, *, turn: Turn | None = None, given_up: Event | None = None) -> Measurement:
        """Makes the measurement when it is its turn, and blocks. Raises FilePerfErrors and PerformanceError.

        Once `given_up` is set, by another thread, it ends early with GivenUpError.
        """
        __tracebackhide__ = True
        return self._until(call, turn, given_up, lambda: self._measured(call, for_one_load, lambda it: it.measure))

    def capacity(self, call: VerbCall, *, turn: Turn | None = None, given_up: Event | None = None) -> Capacity:
        """Finds the highest rate that holds the limits, when it is its turn, and blocks; as `measure` does."""
        __tracebackhide__ = True
        return self._until(call, turn, given_up, lambda: self._measured(call, for_capacity, lambda it: it.capacity))

    def _until(self, call: VerbCall, turn: Turn | None, given_up: Event | None, function: Callable[[], _T]) -> _T:
        __tracebackhide__ = True
        with self._active.turns.taken(turn or self.in_line(call), given_up):
            try:
                with self._active.progress.until(given_up):
                    found = _without_internals(function)
            except GivenUpError:
                raise
            except BaseException:
                self.has_measured = True
                raise
            self.has_measured = True
            return found

    def in_line(self, call: VerbCall) -> Turn:
        """Returns the next place in the line of measurements. Raises PlanError where it could never begin."""
        from pytest_fileperf.session.setting_up import running_step

        if step := running_step():
            problem = (
                f"{step} calls a verb of fileperf, and the measurement that waits for this {step.partition(' ')[0]}"
                " would wait for itself: make its requests with the client that it gets"
            )
            raise PlanError(problem, where=call.where)
        return self._active.turns.draw(self._item.nodeid, call.where)

    def leave_line(self, turn: Turn) -> None:
        """Leaves it, also where nothing was measured."""
        self._active.turns.leave(turn)

    def to_be_awaited(
        self, call: VerbCall, coroutine: Coroutine[object, None, _T], given_up: Event
    ) -> Coroutine[object, None, _T]:
        """Returns the coroutine of an async verb, after noting it: the test fails where nobody awaits it.

        `given_up` is set where it is cancelled.
        """
        place = calling_place(self._item.config.rootpath)
        self.async_verbs.append(AsyncVerb(coroutine=coroutine, given_up=given_up, where=call.where, place=place))
        return coroutine

    def server(self) -> RunningServer:
        """Returns the running server that this test's marker, app and options describe. Raises FilePerfError."""
        settings = self._settings({})
        _require_app(settings, self._item.nodeid)
        return self._active.session().server(settings, self._item.nodeid)

    def leave_server(self) -> None:
        """Undoes what the setup of this test has done on the running server. Raises FilePerfError."""
        self._active.session().leave(self._settings({}))

    def _measured(
        self,
        call: VerbCall,
        fitting: Callable[[Settings], Settings],
        measure_of: Callable[[Session], Callable[[Work, Settings, TestId], _T]],
    ) -> _T:
        """Returns what a session finds, with settings that fit to what it is asked."""
        settings, problems = Settings(), call.problems
        try:
            settings = fitting(self._settings(call.keys, call.default_gate))
            problems += _unfit_settings(call.work, settings)
        except PlanError as error:
            problems += error.problems
        if not problems and settings.setup is None:
            problems += _missing_setup(call.work)
        if problems or call.work is None:
            raise PlanError(*problems, where=call.where)
        _require_app(settings, call.where)
        session = self._active.session()
        before = len(session.results)
        try:
            return measure_of(session)(call.work, settings, self._next_test_id(settings))
        finally:
            tell_properties(self._item, session.results[before:])

    def _settings(self, verb: Mapping[str, object], default_gate: tuple[str, ...] = DEFAULT_GATE) -> Settings:
        marker = marker_keys(self._item)
        for key, value in self._fixtures.items():
            if value is not None:
                # The fixture is the test's own code: it beats options, and a key of the marker beats it.
                marker.setdefault(key, value)
        given = self._active.options
        return resolve(verb=verb, marker=marker, options=given.command_line, ini=given.ini, default_gate=default_gate)

    def _next_test_id(self, settings: Settings) -> TestId:
        from pytest_fileperf.judge.parameters import told_params
        from pytest_fileperf.judge.result import TestId

        self._count += 1
        nodeid = self._item.nodeid
        callspec = getattr(self._item, "callspec", None)
        params = {} if callspec is None else told_params(callspec.params, self._item.name)
        module = nodeid.partition("::")[0]
        return TestId(
            nodeid=nodeid if self._count == 1 else f"{nodeid}#{self._count}",
            module=module,
            name=self._item.name,
            line=line_of(self._item),
            params=params,
            group=settings.group,
            label=settings.label,
        )


def _unfit_settings(work: Work | None, settings: Settings) -> tuple[str, ...]:
    """Returns what does not go together with what is loaded."""
    if settings.capacity and work is not None and steps_of(work):
        return ("steps: a search for the capacity has loads of many rates, so steps have no figures: leave them out",)
    if isinstance(work, Stream) and work.lasts_ns is not None and work.lasts_ns >= settings.timeout_ns:
        lasts, timeout = format_duration(work.lasts_ns), format_duration(settings.timeout_ns)
        return (f"listen_for is {lasts}, and what takes longer than timeout, {timeout}, has failed: raise the timeout",)
    if isinstance(work, Operation | Requests | Mix):
        limited = [name for name in settings.limits if METRICS[name.partition("_")[2]].events is not None]
        gated = [name for name in settings.gate if METRICS[name].events is not None]
        names = ", ".join(dict.fromkeys((*limited, *gated)))
        return (f"only streams have events: measure {names} with fileperf.stream",) if names else ()
    return ()


def _missing_setup(work: Work | None) -> tuple[str, ...]:
    """Returns what needs a setup, where there is none."""
    if isinstance(work, Mix):
        return tuple(f"{part.name}: {problem}" for part in work.parts for problem in _missing_setup(part.work))
    if isinstance(work, Journey) and work.needs_value:
        return (NO_SETUP,)
    return (NO_SETUP_FOR_FEED,) if isinstance(work, Requests) and work.make is not None else ()


def _require_app(settings: Settings, where: str) -> None:
    if settings.app is None and needs_app(settings.server):
        raise PlanError(NO_APP, where=where)


def tell_properties(item: pytest.Item, results: Sequence[Result]) -> None:
    """Gives a test the properties of these results, for JUnit XML and other reports; they replace what was told before.

    Of several results of one measurement, as of a test that ran again, the last one counts.
    """
    told = {f"fileperf_{name}{result.test.further}" for result in results for name in _PROPERTIES}
    found = dict(each for result in results for each in properties(result))
    item.user_properties[:] = [each for each in item.user_properties if each[0] not in told]
    item.user_properties += found.items()


def properties(result: Result) -> list[tuple[str, object]]:
    """Returns the properties of one result."""
    from pytest_fileperf.report.comparisons import world_text

    suffix, verdict = result.test.further, result.verdict
    found: list[tuple[str, object]] = [
        (f"fileperf_rps{suffix}", round(result.measurement.rps, 3)),
        (f"fileperf_p99{suffix}", round(result.measurement.latency.p99, 9)),
        (f"{OUTCOME_PROPERTY}{suffix}", str(result.standing)),
    ]
    if result.capacity is not None and not result.smoke:
        found.append((f"fileperf_capacity{suffix}", str(result.capacity)))
    if verdict.code:
        found.append((f"fileperf_code{suffix}", verdict.code))
    if result.not_stored:
        found.append((f"fileperf_not_stored{suffix}", result.not_stored))
    if world := world_text(verdict):
        found.append((f"fileperf_world{suffix}", world))
    return found


def _without_internals(function: Callable[[], _T]) -> _T:
    """Returns what the function returns; its errors lose the frames of this package, which tell a user nothing."""
    __tracebackhide__ = True
    try:
        return function()
    except (FilePerfError, PerformanceError) as error:
        raise error.with_traceback(None) from None
