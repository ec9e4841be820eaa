"""Study B: thirteen ways to take or send a file of 256 KiB, and how the uploads fare on other servers.

The tests compare endpoints, then servers, with each other and not with a baseline: there is no gate.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from file_endpoints.bodies import STORED, body_of_kind

from pytest_fileperf import Gunicorn, Uvicorn

UPLOADS = {
    "stream/async_read_and_memory_write": ("binary", "binary stream, temporary file"),
    "stream/async_read_and_disk_write": ("binary", "binary stream, sync write"),
    "stream/async_read_and_async_write": ("binary", "binary stream, async write"),
    "single": ("form", "form, whole, async write"),
    "single/sync": ("form", "form, whole, def endpoint"),
    "single/stream": ("form", "form, chunks, async write"),
    "single/stream/async_read_sync_write": ("form", "form, chunks, sync write"),
    "single/stream/sync_read_sync_write": ("form", "form, chunks, sync read and write"),
    "raw/json/base64decode": ("json", "JSON base64, sync write"),
}
"""By path: the kind of body, and what the tables call it."""
DOWNLOADS = {
    "stream/sync_read": "stream, sync read",
    "stream/async_read": "stream, async read",
    "file": "FileResponse, async def endpoint",
    "file/sync": "FileResponse, def endpoint",
}
DEPLOYED_UPLOADS = tuple(UPLOADS)[:5]
"""Those that the study ran on other servers too."""

pytestmark = pytest.mark.fileperf(app="file_endpoints.app:app", connections=100, gate="none")


@pytest.mark.fileperf(group="study B, uploads")
@pytest.mark.parametrize("path", UPLOADS)
def test_upload(fileperf, size, path):
    kind, label = UPLOADS[path]
    fileperf.post(f"/files/upload/{path}", **body_of_kind(kind), expect_body=STORED, label=label, **size)


@pytest.mark.fileperf(group="study B, downloads")
@pytest.mark.parametrize("path", DOWNLOADS)
def test_download(fileperf, size, path):
    fileperf.get(f"/files/download/{path}", expect_bytes="256KiB", label=DOWNLOADS[path], **size)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `test_deployment` its uploads and servers: more of both where the study runs as published."""
    if metafunc.function is test_deployment:
        full_size = metafunc.config.getoption("--full-size", default=False)
        paths = tuple(UPLOADS) if full_size else DEPLOYED_UPLOADS
        if metafunc.config.getoption("--fileperf-smoke"):  # compares nothing: one shows that a server works
            paths = paths[:1]
        metafunc.parametrize("path", paths)
        metafunc.parametrize("server", servers(max(2, os.cpu_count() or 1) if full_size else 2))


def servers(workers: int) -> list[object]:
    """Returns both servers, each with one worker and with so many."""
    needed = pytest.mark.skipif(find_spec("uvicorn_worker") is None, reason="needs pytest-fileperf[gunicorn]")
    return [
        pytest.param(server, id=f"{server.name}-{server.workers}", marks=needed if server.name == "gunicorn" else ())
        for server in (Uvicorn(), Uvicorn(workers=workers), Gunicorn(), Gunicorn(workers=workers))
    ]


def test_deployment(fileperf, duration, path, server):
    """One group for each upload: its rows are the servers."""
    kind, label = UPLOADS[path]
    fileperf.post(
        f"/files/upload/{path}",
        **body_of_kind(kind),
        expect_body=STORED,
        server=server,
        **duration,
        group=f"study B, servers: {label}",
        label=f"{server.name} ×{server.workers}",
    )
