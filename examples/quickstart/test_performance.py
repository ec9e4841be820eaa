"""Load tests of the file service; run them with `pytest --fileperf`."""

from __future__ import annotations

import httpx
import pytest

from pytest_fileperf import payload


@pytest.mark.fileperf(connections=32)
def test_upload(fileperf):
    """Compared with the stored baseline."""
    fileperf.post("/upload", content=payload("256KiB"))


@pytest.mark.fileperf(connections=32)
def test_form(fileperf):
    """What is in a form changes what it costs to parse: this is text."""
    fileperf.post("/form", files={"file": payload("64KiB", kind="text", filename="notes.txt")})


@pytest.mark.fileperf(connections=32, min_rps=20, max_p99="2s")
def test_download(fileperf):
    """Compared with the baseline too, and within absolute limits wherever it runs."""
    result = fileperf.get("/download", expect_bytes="256KiB")
    assert result.errors == 0
    assert result.latency.p50 < 1.0


async def roundtrip(client: httpx.AsyncClient) -> None:
    """A journey: any code on an httpx client. One call is one sample, and an exception is a failure."""
    uploaded = await client.post("/upload", content=payload("64KiB"))
    downloaded = await client.get(f"/download/{uploaded.json()['id']}")
    assert len(downloaded.content) == 64 * 1024


def test_roundtrip(fileperf):
    fileperf.run(roundtrip, connections=8)
