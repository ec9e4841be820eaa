"""Load tests as all others: that a cluster makes the load is said on the command line."""

from __future__ import annotations

import pytest

from pytest_fileperf import payload


def test_download(fileperf):
    fileperf.get("/download", connections=64, duration="3s")


@pytest.mark.fileperf(rate=200, duration="3s", max_p99="250ms", gate="none")
def test_upload(fileperf):
    result = fileperf.post("/upload", content=payload("64KiB"))
    assert result.due == result.requests + result.errors


async def visit(client):
    async with client.step("upload"):
        await client.post("/upload", content=payload("64KiB"))
    await client.get("/download")


def test_visit(fileperf):
    fileperf.run(visit, connections=16, duration="3s", gate="none")
