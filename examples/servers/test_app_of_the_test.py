"""A fixture changes the app, and the server serves it so."""

from __future__ import annotations

import pytest
from servers.app import app, get_greeting


def get_test_greeting() -> str:
    return "hello from the test"


@pytest.fixture
def fileperf_app():
    app.dependency_overrides[get_greeting] = get_test_greeting
    yield app
    app.dependency_overrides.clear()


def test_overridden(fileperf):
    fileperf.get("/greeting", expect_body="hello from the test")
