"""A test's setup and teardown, which run on each start-up of the server before and after its load."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TypeVar, cast

from pytest_fileperf.errors import BaseSetupError, PlanError, SetupError
from pytest_fileperf.plan.request import family_asked_by
from pytest_fileperf.plan.work import Work, with_value
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.likeness import takes
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.settings.settings import Settings
from pytest_fileperf.versions.tree import is_of_the_user

_T = TypeVar("_T")
_WITHOUT = (
    "\nIf that version lacks something that the setup needs, let the setup return without an error there. If "
    "it lacks the tested endpoint, the test is not compared"
)
LEAST_LIMIT_S = 60.0
"""A setup or teardown may take this long. If the test's `timeout` is longer, that time is the limit."""
Step = Callable[..., object]
_RUNNING: ContextVar[str] = ContextVar("running setup or teardown", default="")


def entered(settings: Settings, pool: ServerPool) -> object:
    """Returns the setup's result. Runs the setup once for each start-up of the server. Raises SetupError."""
    try:
        return pool.entered((settings.setup, settings.teardown), partial(set_up, settings))
    except BaseException:
        pool.close()  # a start-up that is partly set up is not for other tests
        raise


def left(settings: Settings, pool: ServerPool, error: BaseException | None = None) -> None:
    """Runs the teardown if the setup has run. Ends the server if it may keep the test's data. Raises SetupError."""
    clean = False
    try:
        pool.leave(error)
        clean = error is None
    finally:
        leaves_traces = settings.setup is not None and settings.teardown is None
        if leaves_traces or not clean:  # a teardown may have failed: the next test must not find this test's data
            pool.close()


@contextmanager
def work_on(server: RunningServer, pool: ServerPool, work: Work, settings: Settings) -> Iterator[Work]:
    """Runs the setup, yields the work with the setup's result, and runs the teardown. Raises SetupError."""
    value = entered(settings, pool)
    try:
        yield work_of_boot(work, value, server, settings)
    except BaseException as error:
        left(settings, pool, error)
        raise
    left(settings, pool)


@contextmanager
def set_up(settings: Settings, server: RunningServer, base: str = "") -> Iterator[object]:
    """Runs the setup, yields its result, and runs the teardown after the block, even if the block failed.

    If the server runs a comparison's old version, `base` is that version's title, and errors are BaseSetupError. If
    block and teardown fail, raises the block's error, with the teardown's error as a note.
    """
    setup, teardown, limit_s = settings.setup, settings.teardown, _limit_of(settings)
    value = None if setup is None else _run("setup", setup, (), server, limit_s, base)

    def down() -> None:
        if teardown is not None:
            _run("teardown", teardown, (value,) if takes(teardown, 2) is not False else (), server, limit_s, base)

    try:
        yield value
    except BaseException as error:  # pytest's time limit and Ctrl-C aren't Exceptions
        try:
            down()
        except SetupError as failed:
            error.add_note(str(failed))
        raise
    down()


def _limit_of(settings: Settings) -> float:
    return max(LEAST_LIMIT_S, settings.timeout_ns / 1e9)


def running_step() -> str:
    """Returns the setup or teardown that runs the calling code, such as `setup fill`. Else empty."""
    return _RUNNING.get()


def _name(step: Step) -> str:
    named = getattr(step, "func", step)  # a partial has no name
    return str(getattr(named, "__qualname__", type(named).__qualname__)).rpartition("<locals>.")[2]


def setup_identity(settings: Settings) -> dict[str, object]:
    """Returns the setup's name, if there is a setup. Only figures with the same setup are compared."""
    return {} if settings.setup is None else {"setup": _name(settings.setup)}


def _run(kind: str, step: Step, values: tuple[object, ...], server: RunningServer, limit_s: float, base: str) -> object:
    title = f"{kind} {_name(step)}"
    advice = _WITHOUT if base and kind == "setup" else ""
    try:
        called = step if inspect.isroutine(step) else getattr(step, "__call__", step)  # noqa: B004 - its own
        is_async = inspect.iscoroutinefunction(step) or inspect.iscoroutinefunction(called)
        returned = (_async if is_async else _plain)(title, step, values, server, limit_s)
    except _LateError:
        raise _failure(f"{title} did not end within {limit_s:g} s", server, base, advice) from None
    except Exception as error:
        raise _failure(f"{title} failed", server, base, f":\n{_described(error)}{advice}") from error
    if inspect.iscoroutine(returned):
        returned.close()
        raise SetupError(f"{title} returned a coroutine. Write it as an async function")
    return returned


def _failure(what: str, server: RunningServer, base: str, more: str) -> SetupError:
    where = f"on {server.title}, with the code of {base}" if base else f"on {server.title}"
    return (BaseSetupError if base else SetupError)(f"{what} {where}{more}", log=server.log)


def work_of_boot(work: Work, value: object, server: RunningServer, settings: Settings, base: str = "") -> Work:
    """Returns the work (the requests) for a start-up. A feed that is a function gets `value`, the setup's result.

    `base` is the old version's title, else empty. Raises SetupError or BaseSetupError if a feed's function fails or
    takes too long.
    """
    advice, limit_s = _WITHOUT if base else "", _limit_of(settings)
    try:
        return _in_a_thread(partial(with_value, work, value), limit_s)
    except _LateError:
        raise _failure(
            f"the feed of {work.name} did not end within {limit_s:g} s",
            server,
            base,
            f". If its rows do end, give the test a timeout longer than {limit_s:g} s{advice}",
        ) from None
    except PlanError as error:
        raise _failure(f"{work.name} has no requests", server, base, f": {error}{advice}") from error
    except Exception as error:
        raise _failure(f"the feed of {work.name} failed", server, base, f":\n{_described(error)}{advice}") from error


class _LateError(Exception):
    """A setup, a teardown or a feed's function took too long."""


@contextmanager
def _staying(title: str) -> Iterator[None]:
    """Raises RuntimeError in place of SystemExit. In a teardown, also raises it in place of pytest's Skipped."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})").with_traceback(error.__traceback__) from None
    except BaseException as error:
        # pytest's class, by its name, because only the plugin imports pytest.
        if title.startswith("teardown ") and type(error).__name__ == "Skipped":
            said = f"it called pytest.skip({str(error)!r}) after the load. Call pytest.skip in the setup or in the test"
            raise RuntimeError(said).with_traceback(error.__traceback__) from None
        raise


def _async(title: str, step: Step, values: tuple[object, ...], server: RunningServer, limit_s: float) -> object:
    async def called() -> object:
        _RUNNING.set(title)  # in this task's context
        limit = asyncio.timeout(limit_s)
        try:
            async with limit, server.client(timeout=limit_s, family=family_asked_by(step)) as client:
                with _staying(title):
                    return await cast("Awaitable[object]", step(client, *values))
        except TimeoutError:
            if limit.expired():
                raise _LateError from None
            raise

    if isinstance(server, RunningInProcess):
        return server.run(called)
    return _in_a_thread(lambda: asyncio.run(called()), limit_s + 1)  # it ends itself


def _plain(title: str, step: Step, values: tuple[object, ...], server: RunningServer, limit_s: float) -> object:
    def called() -> object:
        _RUNNING.set(title)  # in this thread's context
        with server.sync_client(timeout=limit_s, family=family_asked_by(step)) as client, _staying(title):
            return step(client, *values)

    return _in_a_thread(called, limit_s)


def _in_a_thread(function: Callable[[], _T], limit_s: float) -> _T:
    """Returns the function's result from a thread: the test may have its own event loop, or the function may hang."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised below, in the test
            future.set_exception(error)

    threading.Thread(target=work, name="fileperf setup", daemon=True).start()
    if not concurrent.futures.wait((future,), timeout=limit_s).done:
        raise _LateError
    return future.result()


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_of_the_user(frame.filename)]
    said = "".join(traceback.format_exception_only(error))
    said = said if len(said) <= 4_000 else f"{said[:3_999]}…"  # it may contain a whole answer
    text = "".join(traceback.format_list(own)) + said
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
