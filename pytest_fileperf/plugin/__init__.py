"""The pytest plugin. Every pytest run imports this module, so it imports little."""

from __future__ import annotations

import sys

import pytest

from pytest_fileperf.plugin.fixtures import (
    afileperf,
    fileperf,
    fileperf_app,
    fileperf_server,
    fileperf_setup,
    fileperf_teardown,
    measurements_of_test,
)
from pytest_fileperf.plugin.options import SKIP_REASON, add_options, is_enabled, is_load_test, refuse_no_values

__all__ = (
    "afileperf",
    "fileperf",
    "fileperf_app",
    "fileperf_server",
    "fileperf_setup",
    "fileperf_teardown",
    "measurements_of_test",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_make_parametrize_id",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "fileperf(**keys): how a load test loads its app, and its limits: connections, duration, requests, app, "
        "min_rps, max_p99 and more. See the README.",
    )
    refuse_no_values(config)
    if is_enabled(config):
        from pytest_fileperf.plugin.active import activate

        activate(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds the marker `fileperf` to tests that use the fixtures. Skips these tests if load tests are off.

    This comes before pytest's option `-m`, so that `-m fileperf` selects all load tests.
    """
    skipped = not is_enabled(config)
    for item in filter(is_load_test, items):
        if item.get_closest_marker("fileperf") is None:
            item.add_marker("fileperf")
        if skipped:
            item.add_marker(pytest.mark.skip(reason=SKIP_REASON))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Returns the text for a server in a parametrised test's id, such as `uvicorn-2`. None for other values."""
    spec = sys.modules.get("pytest_fileperf.serve.spec")  # a server among the values has imported it
    return spec.server_id(val) if spec is not None and isinstance(val, spec.ServerSpec) else None
