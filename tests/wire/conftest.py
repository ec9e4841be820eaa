"""Async tests of the wire run by anyio's plugin (httpx brings anyio), on asyncio's own loop and on uvloop."""

from __future__ import annotations

import sys

import pytest

LOOPS = (
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    *([pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")] if sys.platform != "win32" else ()),
)


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param
