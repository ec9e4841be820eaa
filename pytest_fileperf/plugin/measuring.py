"""Measures a test's calls, one at a time, and shows the progress."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Condition, Event, get_ident
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_fileperf.errors import FilePerfError, NoTimeError, PerformanceError, PlanError
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Mix, Stream, Work, steps_of
from pytest_fileperf.plugin.options import marker_keys
from pytest_fileperf.serve.spec import needs_app
from pytest_fileperf.settings.arguments import NO_APP, NO_SETUP, NO_SETUP_FOR_FEED, VerbCall
from pytest_fileperf.settings.settings import DEFAULT_GATE, Settings, for_capacity, for_one_load, resolve
from pytest_fileperf.units import format_duration

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import Result, TestId
    from pytest_fileperf.measure.capacity import Capacity
    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plugin.active import Active
    from pytest_fileperf.report.progress import ProgressLine, ProgressSink
    from pytest_fileperf.serve.running import RunningServer

# --- Progress on pytest's terminal while a test runs, even if pytest captures the test's output


class GivenUpError(Exception):
    """A call was cancelled, so nobody waits for its measurement."""


class ScreenProgress:
    """Shows progress on a terminal or in a log, but not with `-q`.

    During a measurement, `update` is called all the time. If the call was cancelled, `update` raises
    GivenUpError, which ends the measurement.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._given_up: Event | None = None

    @contextmanager
    def until(self, given_up: Event) -> Iterator[None]:
        """Within the block, `update` ends the measurement if `given_up` is set."""
        self._given_up = given_up
        try:
            yield
        finally:
            self._given_up = None

    def update(self, line: ProgressLine) -> None:
        if self._given_up is not None and self._given_up.is_set():
            raise GivenUpError
        self._sink.update(line)

    def done(self) -> None:
        self._sink.done()

    @cached_property
    def _sink(self) -> ProgressSink:
        from pytest_fileperf.report.progress import LiveProgress, PlainProgress, SilentProgress

        config = self._config
        reporter: pytest.TerminalReporter | None = config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or config.get_verbosity() < 0 or hasattr(config, "workerinput"):
            return SilentProgress()
        writer, capture = config.get_terminal_writer(), config.pluginmanager.getplugin("capturemanager")

        def write(text: str) -> None:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                reporter.ensure_newline()  # pytest may have begun a line for the running test
                writer.write(text, flush=True)

        if bool(reporter.isatty):  # a plain bool before pytest 9, and callable since
            return LiveProgress(write, columns=lambda: writer.fullwidth)
        return PlainProgress(write)


# --- Lets one measurement run at a time: two at once would load each other, and share one server


@dataclass(eq=False, slots=True, kw_only=True)
class Turn:
    test: str
    where: str
    """The test's call, for messages: `GET /upload`."""
    given_up: Event = field(default_factory=Event)
    """Set by another thread if the call is cancelled."""
    can_begin: bool = False
    """Whether the call's thread has begun, and waits for its turn."""


class Turns:
    """The queue of a session's measurements. A test may ask for several at once, by threads or `asyncio.gather`."""

    def __init__(self, *, patience_s: float = 1.0) -> None:
        """After `patience_s` seconds, later calls overtake a call whose thread has not begun."""
        self._patience_s = patience_s
        self._changed = Condition()
        self._line: list[Turn] = []
        self._running: Turn | None = None
        self._waited: dict[str, list[str]] = {}
        """By test, the calls that had to wait."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each test whose calls had to wait."""
        more = {test: f" and {len(calls) - 1} more" * (len(calls) > 1) for test, calls in self._waited.items()}
        return tuple(
            f"{test}: {calls[0]}{more[test]} waited for an earlier measurement, because only one runs at a time"
            for test, calls in self._waited.items()
        )

    def enter(self, turn: Turn) -> Turn:
        """Puts the turn at the end of the queue, and returns it. The caller must end it with `leave`."""
        with self._changed:
            self._line.append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """Ends a turn, so that the next measurement begins."""
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
            if self._running is turn:
                self._running = None
            self._changed.notify_all()

    @contextmanager
    def taken(self, turn: Turn) -> Iterator[None]:
        """Waits for the turn, and ends it after the block. Raises GivenUpError if the turn's call is cancelled."""
        patient_until_s, has_waited = time.monotonic() + self._patience_s, False
        try:
            with self._changed:
                turn.can_begin = True
                while (before := self._before(turn, patient=time.monotonic() < patient_until_s)) is not None:
                    if turn.given_up.is_set():
                        raise GivenUpError
                    if before.can_begin and not has_waited:
                        self._waited.setdefault(turn.test, []).append(turn.where)
                        has_waited = True
                    self._changed.wait(0.05)
                self._running = turn
            yield
        finally:
            self.leave(turn)

    def _before(self, turn: Turn, *, patient: bool) -> Turn | None:
        if self._running is not None:
            return self._running
        earlier = self._line[: self._line.index(turn)]
        return next((each for each in earlier if each.can_begin or patient), None)


EXPECTED = pytest.StashKey["Measuring"]()
"""Stash key of a test that uses `fileperf` or `afileperf`, and so must measure something."""


def _calling_place(rootdir: Path) -> str:
    """Returns file and line of the nearest caller outside this package: `tests/test_app.py:12`."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pytest_fileperf":
        frame = frame.f_back
    if frame is None:
        return "?"
    file = Path(frame.f_code.co_filename)
    return f"{file.relative_to(rootdir) if file.is_relative_to(rootdir) else file}:{frame.f_lineno}"


def line_of(item: pytest.Item) -> int | None:
    """Returns the test function's first line, counted from 1. None if another module defines the function."""
    file, line, _ = item.location
    return None if line is None or Path(file).as_posix() != item.nodeid.partition("::")[0] else line + 1


OUTCOME_PROPERTY = "fileperf_outcome"
"""The report property with the first measurement's outcome. The second is `fileperf_outcome#2`."""

_T = TypeVar("_T")


class Measuring:
    def __init__(self, active: Active, item: pytest.Item, fixtures: Mapping[str, object]) -> None:
        """`fixtures` has the results of fixtures such as `fileperf_app`, by the marker's key, such as `app`."""
        self._active = active
        self._item = item
        self._fixtures = fixtures
        self._count = 0
        is_async = inspect.iscoroutinefunction(getattr(item, "function", None))
        self._loop_thread = get_ident() if is_async else None
        """The thread of an async test's event loop, which a measurement must not block. None for other tests."""
        self.expected_by: list[str] = []
        """The test's fixtures that require a measurement, such as `fileperf`."""
        self.has_measured = False
        """Whether a measurement was made or has raised an error. Cancelled measurements do not count."""
        self.async_verbs: list[tuple[str, Coroutine[object, None, object], Event]] = []
        """Calls of `afileperf`: (place and name, coroutine, event that is set if the call is cancelled)."""

    def measure(self, call: VerbCall, turn: Turn | None = None) -> Measurement:
        """Waits for earlier calls, then measures. Raises FilePerfError, PerformanceError, GivenUpError."""
        __tracebackhide__ = True
        return self._found(call, turn, for_one_load).measurement

    def capacity(self, call: VerbCall, turn: Turn | None = None) -> Capacity:
        """Finds the highest rate that meets the limits. Raises the same errors as `measure`."""
        __tracebackhide__ = True
        found = self._found(call, turn, for_capacity).capacity
        assert found is not None
        return found

    def _found(self, call: VerbCall, turn: Turn | None, fitting: Callable[[Settings], Settings]) -> Result:
        __tracebackhide__ = True
        if self._loop_thread == get_ident():
            self.has_measured = True
            verb = "capacity" if fitting is for_capacity else "get"
            raise PlanError(
                f"{self._item.name} is an async test, and fileperf would block its event loop while it "
                f"measures. Use the fixture afileperf and await its methods, as in `await afileperf.{verb}(…)`",
                where=call.where,
            )
        turn = turn or self.in_line(call, Event())
        with self._active.turns.taken(turn), self._active.progress.until(turn.given_up):
            was_cancelled = False
            try:
                return self._found_now(call, fitting)
            except GivenUpError:
                was_cancelled = True
                raise
            except (FilePerfError, PerformanceError) as error:
                if isinstance(error, NoTimeError) and not self._active.options.strict:
                    pytest.skip(str(error))
                raise error.with_traceback(None) from None  # this package's frames tell a user nothing
            finally:
                self.has_measured |= not was_cancelled

    def _found_now(self, call: VerbCall, fitting: Callable[[Settings], Settings]) -> Result:
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
            return session.measure(call.work, settings, self._next_test_id(settings))
        finally:
            tell_properties(self._item, session.results[before:])

    def in_line(self, call: VerbCall, given_up: Event) -> Turn:
        """Queues the call. Raises PlanError within a setup, because the call would wait for itself."""
        from pytest_fileperf.session.setup import running_step

        if step := running_step():
            problem = (
                f"{step} calls fileperf again, but it runs inside of a measurement, and only one can run at a "
                "time. Make its requests with the client that it gets"
            )
            raise PlanError(problem, where=call.where)
        return self._active.turns.enter(Turn(test=self._item.nodeid, where=call.where, given_up=given_up))

    def leave_line(self, turn: Turn) -> None:
        self._active.turns.leave(turn)

    def to_be_awaited(
        self, call: VerbCall, coroutine: Coroutine[object, None, _T], given_up: Event
    ) -> Coroutine[object, None, _T]:
        """Returns the coroutine. The test will fail if nobody awaits this coroutine."""
        place = _calling_place(self._item.config.rootpath)
        self.async_verbs.append((f"{place}: {call.where}", coroutine, given_up))
        return coroutine

    def server(self) -> RunningServer:
        """Returns the running server for this test's marker, app and options. Raises FilePerfError."""
        settings = self._settings({})
        _require_app(settings, self._item.nodeid)
        return self._active.session().server(settings, self._item.nodeid)

    def leave_server(self) -> None:
        """Runs this test's teardown on the running server. Raises FilePerfError."""
        self._active.session().leave(self._settings({}))

    def _settings(self, verb: Mapping[str, object], default_gate: tuple[str, ...] = DEFAULT_GATE) -> Settings:
        marker = marker_keys(self._item)
        for key, value in self._fixtures.items():
            if value is not None:
                # The fixture is the test's own code: it beats options, but the marker beats it.
                marker.setdefault(key, value)
        given = self._active.options
        return resolve(verb=verb, marker=marker, options=given.command_line, ini=given.ini, default_gate=default_gate)

    def _next_test_id(self, settings: Settings) -> TestId:
        from pytest_fileperf.judge.grouping import told_params
        from pytest_fileperf.judge.record import TestId

        self._count += 1
        nodeid, name = self._item.nodeid, self._item.name
        callspec = getattr(self._item, "callspec", None)
        return TestId(
            nodeid=nodeid if self._count == 1 else f"{nodeid}#{self._count}",
            module=nodeid.partition("::")[0],
            name=name,
            line=line_of(self._item),
            params={} if callspec is None else told_params(callspec.params, name),
            group=settings.group,
            label=settings.label,
        )


def _unfit_settings(work: Work | None, settings: Settings) -> tuple[str, ...]:
    if settings.capacity and work is not None and steps_of(work):
        return ("steps: a capacity search uses many rates, so steps have no figures. Leave them out",)
    if isinstance(work, Stream) and work.lasts_ns is not None and work.lasts_ns >= settings.timeout_ns:
        lasts, timeout = format_duration(work.lasts_ns), format_duration(settings.timeout_ns)
        return (f"listen_for is {lasts}, but requests fail after the timeout of {timeout}. Raise the timeout",)
    if isinstance(work, Operation | Requests | Mix):
        keys = [*settings.limits, *settings.gate, *settings.watch]
        of_events = [key for key in keys if METRICS[key.removeprefix("min_").removeprefix("max_")].events is not None]
        names = ", ".join(dict.fromkeys(of_events))
        return (f"only streams have events. Measure {names} with fileperf.stream",) if names else ()
    return ()


def _missing_setup(work: Work | None) -> tuple[str, ...]:
    if isinstance(work, Mix):
        return tuple(f"{part.name}: {problem}" for part in work.parts for problem in _missing_setup(part.work))
    if isinstance(work, Journey) and work.needs_value:
        return (NO_SETUP,)
    return (NO_SETUP_FOR_FEED,) if isinstance(work, Requests) and work.make is not None else ()


def _require_app(settings: Settings, where: str) -> None:
    if settings.app is None and needs_app(settings.server):
        raise PlanError(NO_APP, where=where)


def tell_properties(item: pytest.Item, results: Sequence[Result]) -> None:
    """Sets a test's properties for JUnit XML and other reports. Later results replace earlier values."""
    found = {name: value for result in results for name, value in properties(result).items()}
    item.user_properties[:] = [each for each in item.user_properties if each[0] not in found]
    item.user_properties += [(name, value) for name, value in found.items() if value != ""]


def properties(result: Result) -> dict[str, object]:
    from pytest_fileperf.report.wording import notes_text, world_text

    run, verdict = result.measurement, result.verdict
    values: dict[str, object] = {
        "fileperf_rps": round(run.rps, 3),
        "fileperf_p99": round(run.latency.p99, 9),
        OUTCOME_PROPERTY: str(result.standing),
        "fileperf_capacity": "" if result.capacity is None or result.smoke else str(result.capacity),
        "fileperf_code": notes_text(verdict.code_notes),
        "fileperf_not_stored": result.not_stored,
        "fileperf_world": world_text(verdict),
    }
    return {f"{name}{result.test.further}": value for name, value in values.items()}
