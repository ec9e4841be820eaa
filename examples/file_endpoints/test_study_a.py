"""Study A: nine ways to take or send a file of 256 KiB. Run it with `pytest --fileperf examples/file_endpoints`.

The tests compare endpoints with each other, on one boot of one server, and not with a baseline: there is no gate.
"""

from __future__ import annotations

import pytest
from file_endpoints.bodies import STORED, body_of_kind

UPLOADS = {
    "binary/chunk/async_func/async_r_sync_w": ("binary", "binary stream, sync write"),
    "binary/chunk/async_func/async_rw": ("binary", "binary stream, async write"),
    "formdata/async_func/async_rw": ("form", "form, whole, async write"),
    "formdata/chunk/async_func/async_rw": ("form", "form, chunks, async write"),
    "formdata/sync_func": ("form", "form, whole, def endpoint"),
    "raw/json/base64/sync_rw": ("json", "JSON base64, sync write"),
}
"""By path: the kind of body, and what the tables call it."""
DOWNLOADS = {
    "chunk/async_func/async_r": "stream, async read",
    "async_func/sync_r": "FileResponse, async def endpoint",
    "sync_func": "FileResponse, def endpoint",
}

pytestmark = pytest.mark.fileperf(app="file_endpoints.app:app", connections=100, gate="none")


@pytest.mark.fileperf(group="study A, uploads")
@pytest.mark.parametrize("path", UPLOADS)
def test_upload(fileperf, size, path):
    kind, label = UPLOADS[path]
    url = f"/file_benchmarking/upload/{path}"
    fileperf.post(url, **body_of_kind(kind), expect_body=STORED, label=label, **size)


@pytest.mark.fileperf(group="study A, downloads")
@pytest.mark.parametrize("path", DOWNLOADS)
def test_download(fileperf, size, path):
    url = f"/file_benchmarking/download/{path}"
    fileperf.get(url, expect_bytes="256KiB", label=DOWNLOADS[path], **size)
