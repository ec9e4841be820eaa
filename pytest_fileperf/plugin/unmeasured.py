"""Fails a test that was to measure and did not: no verb was called, or what an async verb returned was not awaited."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_fileperf.plugin.measuring import Measuring

__all__ = ("AsyncVerb", "Unmeasured", "calling_place", "expect_measurement", "unmeasured")

_EXPECTED = pytest.StashKey[dict[str, "Measuring"]]()
"""What the measuring fixtures gave to a test, by their names."""
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncVerb:
    """A call of an async verb."""

    coroutine: Coroutine[object, None, object]
    """What the call returned."""
    given_up: Event
    """Is set where it was cancelled."""
    where: str
    """The call, for messages: `GET /upload`."""
    place: str
    """File and line of the call, as text."""


class Unmeasured:
    """The part of the plugin that looks at each test once it has passed."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fails the test itself, as its own assertions do. Its own failure, skip or xfail comes first."""
        try:
            yield
        finally:
            # They are closed in any case: Python would warn of each of them as it is thrown away.
            expected = item.stash.get(_EXPECTED, {})
            verbs = [verb for measuring in expected.values() for verb in measuring.async_verbs]
            unawaited = [verb for verb in verbs if _is_unawaited(verb)]
            cancelled = [verb for verb in verbs if verb.given_up.is_set()]
            measured = any(measuring.has_measured for measuring in expected.values())
            fixtures = tuple(expected)
            expected.clear()
        if problem := unmeasured(fixtures, unawaited, cancelled, measured=measured):
            pytest.fail(problem, pytrace=False)


def expect_measurement(item: pytest.Item, fixture: str, measuring: Measuring) -> None:
    """Notes that the test has to measure, as it uses this fixture."""
    item.stash.setdefault(_EXPECTED, {})[fixture] = measuring


def unmeasured(
    fixtures: Sequence[str], unawaited: Sequence[AsyncVerb], cancelled: Sequence[AsyncVerb], *, measured: bool
) -> str:
    """Returns why a test with these fixtures that passed is a failure all the same; empty where it is none."""
    if unawaited:
        calls = "\n".join(f"{verb.place}: {verb.where} was called and not awaited" for verb in unawaited)
        return f"{calls}\nso it was not measured: write `await` before the call, in an async test"
    if cancelled and not measured:
        calls = "\n".join(f"{verb.place}: {verb.where} was cancelled before it was measured" for verb in cancelled)
        return (
            f"{calls}\nso this test measured nothing: let the call come to its end, make it shorter with duration= or"
            " requests=, or skip the test with pytest.skip(…) where there is nothing to measure"
        )
    if fixtures and not measured:
        names, call = " and ".join(fixtures), f"{fixtures[0]}.get(…)"
        call = f"await {call}" if fixtures[0] == "afileperf" else call
        return (
            f"this test uses {names} and measured nothing: call a verb, as in {call}, leave the fixture out (the marker"
            " fileperf alone makes a load test), or skip the test with pytest.skip(…) where there is nothing to measure"
        )
    return ""


def calling_place(rootdir: Path) -> str:
    """Returns file and line of the nearest caller outside this package: `tests/test_app.py:12`."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    if frame is None:
        return "?"
    file = Path(frame.f_code.co_filename)
    return f"{file.relative_to(rootdir) if file.is_relative_to(rootdir) else file}:{frame.f_lineno}"


def _is_unawaited(verb: AsyncVerb) -> bool:
    """Returns whether the verb has not come to its end. One that was not begun is closed."""
    state = inspect.getcoroutinestate(verb.coroutine)
    if state == inspect.CORO_CREATED:
        verb.coroutine.close()
    return state != inspect.CORO_CLOSED
