"""How long the tests of both studies run and with how many workers, unless the command line says it."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def duration(full_size: bool, pytestconfig: pytest.Config) -> dict[str, str]:
    """The key `duration` for a verb, or nothing. Verbs win over the command line, so it has to be asked."""
    given = pytestconfig.getoption("--fileperf-duration") is not None
    return {} if given else {"duration": "10s" if full_size else "3s"}


@pytest.fixture
def size(full_size: bool, pytestconfig: pytest.Config, duration: dict[str, str]) -> dict[str, object]:
    """Keys for a verb: the duration, and as published a worker for each core."""
    given = pytestconfig.getoption("--fileperf-workers") is not None
    return {**duration, "workers": os.cpu_count() or 1} if full_size and not given else {**duration}
