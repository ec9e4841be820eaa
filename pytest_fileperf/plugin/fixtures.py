"""The fixtures. Every pytest run imports this module, so it imports little."""

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
def fileperf(request: pytest.FixtureRequest, _fileperf_measuring: Measuring) -> FilePerf:
    """Measures the app under load. `get`, `post`, `run` and the other methods return a Measurement."""
    from pytest_fileperf.plugin.verbs import FilePerf

    return FilePerf(_expected(request, _fileperf_measuring))


@pytest.fixture
def afileperf(request: pytest.FixtureRequest, _fileperf_measuring: Measuring) -> AsyncFilePerf:
    """The methods of `fileperf`, but awaitable, for async tests. The test's own event loop goes on during a load."""
    from pytest_fileperf.plugin.verbs import AsyncFilePerf

    return AsyncFilePerf(_expected(request, _fileperf_measuring))


def _expected(request: pytest.FixtureRequest, measuring: Measuring) -> Measuring:
    """From now on, the test fails if it measures nothing."""
    from pytest_fileperf.plugin.measuring import EXPECTED

    measuring.expected_by.append(str(request.fixturename))
    request.node.stash[EXPECTED] = measuring
    return measuring


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

    Override this to return a function. An async function gets an `httpx.AsyncClient`, a plain function an
    `httpx.Client`. Either may take httpx2's client instead.
    """
    return None


@pytest.fixture
def fileperf_teardown() -> object:
    """A function that runs after each start-up's load. It gets a client and the setup's result. None: no teardown."""
    return None


@pytest.fixture
def fileperf_server(_fileperf_measuring: Measuring) -> Iterator[RunningServer]:
    """The running server: `.url`, `.client()`, `.sync_client()`, `.processes` and `.log`.

    The clients are a new `httpx.AsyncClient` and a new `httpx.Client`, or httpx2's (`fileperf_client`). The test's
    setup has run. Each measurement starts a new server, without data that was sent to this server.
    """
    __tracebackhide__ = True
    from pytest_fileperf.errors import FilePerfError

    try:
        server = _fileperf_measuring.server()
    except FilePerfError as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    try:
        _fileperf_measuring.leave_server()
    except FilePerfError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(name="_fileperf_measuring")
def measurements_of_test(
    request: pytest.FixtureRequest, fileperf_app: object, fileperf_setup: object, fileperf_teardown: object
) -> Measuring:
    """The measurements of a test, which the test's other fixtures share. Skips the test if load tests are off."""
    __tracebackhide__ = True
    if not is_enabled(request.config):
        pytest.skip(SKIP_REASON)
    from pytest_fileperf.plugin.active import ACTIVE
    from pytest_fileperf.plugin.measuring import Measuring

    given = {"app": fileperf_app, "setup": fileperf_setup, "teardown": fileperf_teardown}
    return Measuring(request.config.stash[ACTIVE], request.node, given)
