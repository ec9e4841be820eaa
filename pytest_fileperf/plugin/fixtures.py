"""The fixtures. Every pytest run imports this module; what fixtures return is imported when a test uses it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.plugin.options import SKIP_REASON, app_named_in, is_enabled

if TYPE_CHECKING:
    from pytest_fileperf.plugin.measuring import Measuring
    from pytest_fileperf.plugin.verbs import AsyncFilePerf, FilePerf
    from pytest_fileperf.serve.running import RunningServer


@pytest.fixture
def fileperf(
    request: pytest.FixtureRequest, fileperf_app: object, fileperf_setup: object, fileperf_teardown: object
) -> FilePerf:
    """Loads the app under test. `get`, `post`, `run` and the other methods return a Measurement."""
    from pytest_fileperf.plugin.verbs import FilePerf

    return FilePerf(_to_measure(request, app=fileperf_app, setup=fileperf_setup, teardown=fileperf_teardown))


@pytest.fixture
def afileperf(
    request: pytest.FixtureRequest, fileperf_app: object, fileperf_setup: object, fileperf_teardown: object
) -> AsyncFilePerf:
    """The methods of `fileperf` for async tests: awaitable. The test's own event loop goes on meanwhile."""
    from pytest_fileperf.plugin.verbs import AsyncFilePerf

    return AsyncFilePerf(_to_measure(request, app=fileperf_app, setup=fileperf_setup, teardown=fileperf_teardown))


@pytest.fixture
def fileperf_app(request: pytest.FixtureRequest) -> object:
    """The app under test, from marker, command line or ini file. Override it to return an app object or factory."""
    __tracebackhide__ = True
    app = app_named_in(request.node)
    # A verb may still name the app, or need none. So only a test that uses this fixture itself fails now.
    function = getattr(request, "function", None)
    if app is None and function is not None and "fileperf_app" in inspect.signature(function).parameters:
        from pytest_fileperf.settings.arguments import NO_APP

        pytest.fail(NO_APP, pytrace=False)
    return app


@pytest.fixture
def fileperf_setup() -> object:
    """A function that runs for each start-up before the load, or None.

    Override it to return a function. It is async and takes an `httpx.AsyncClient`, or plain and takes an
    `httpx.Client`, or one of httpx2's.
    """
    return None


@pytest.fixture
def fileperf_teardown() -> object:
    """A function that runs for each start-up after the load, with a client and the setup's result, or None."""
    return None


@pytest.fixture
def fileperf_server(
    request: pytest.FixtureRequest, fileperf_app: object, fileperf_setup: object, fileperf_teardown: object
) -> Iterator[RunningServer]:
    """The running server: `.url`, `.client()`, `.sync_client()`, `.processes` and `.log`.

    The clients are a new `httpx.AsyncClient` and a new `httpx.Client`, or httpx2's (`fileperf_client`). The test's
    setup has run. A measurement starts the server anew, so data put on it before is gone.
    """
    __tracebackhide__ = True
    from pytest_fileperf.errors import FilePerfError

    measuring = _measuring(request, app=fileperf_app, setup=fileperf_setup, teardown=fileperf_teardown)
    try:
        server = measuring.server()
    except FilePerfError as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    try:
        measuring.leave_server()
    except FilePerfError as error:
        pytest.fail(str(error), pytrace=False)


def _to_measure(request: pytest.FixtureRequest, **given: object) -> Measuring:
    """Does the same as `_measuring`. And the test fails if it makes no measurement."""
    __tracebackhide__ = True
    measuring = _measuring(request, **given)
    from pytest_fileperf.plugin.measuring import EXPECTED

    request.node.stash.setdefault(EXPECTED, {})[str(request.fixturename)] = measuring
    return measuring


def _measuring(request: pytest.FixtureRequest, **given: object) -> Measuring:
    """Skips the test if load tests are off. `given` are values of fixtures, by the marker's keys."""
    __tracebackhide__ = True
    if not is_enabled(request.config):
        pytest.skip(SKIP_REASON)
    from pytest_fileperf.plugin.active import ACTIVE
    from pytest_fileperf.plugin.measuring import Measuring

    return Measuring(request.config.stash[ACTIVE], request.node, given)
