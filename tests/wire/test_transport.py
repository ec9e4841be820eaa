"""What `LoadTransport` says where it cannot work."""

from __future__ import annotations

import httpx
import pytest

from pytest_fileperf.wire.transport import LoadTransport


def test_without_asyncio_it_says_what_to_use() -> None:
    """So it is under trio, whose tasks are no tasks of asyncio."""
    asked = LoadTransport().handle_async_request(httpx.Request("GET", "http://127.0.0.1/"))
    with pytest.raises(RuntimeError, match=r"under trio use httpx's own transport, httpx\.AsyncHTTPTransport"):
        asked.send(None)
