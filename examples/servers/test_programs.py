"""Servers that are started by a command. Each test is skipped where its package is not installed."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pytest_fileperf import Command, payload

EXAMPLES = str(Path(__file__).parents[1])

HYPERCORN = Command(
    ["{python}", "-m", "hypercorn", "--bind", "127.0.0.1:{port}", "quickstart.app:app"],
    cwd=EXAMPLES,
)
FASTAPI = Command(
    ["{python}", "-m", "fastapi", "run", "quickstart/app.py", "--host={host}", "--port={port}"],
    cwd=EXAMPLES,
    title="fastapi run",
)


@pytest.mark.fileperf(server=HYPERCORN, connections=8, gate="none")
def test_hypercorn(fileperf):
    pytest.importorskip("hypercorn")
    fileperf.post("/upload", content=payload("64KiB"))


@pytest.mark.fileperf(server=FASTAPI, connections=8, gate="none")
def test_fastapi_run(fileperf):
    pytest.importorskip("fastapi_cli")
    fileperf.post("/upload", content=payload("64KiB"))


def put_file(client: httpx.Client) -> None:
    client.put("/file.bin", content=bytes(256 * 1024)).raise_for_status()


@pytest.mark.fileperf(setup=put_file, connections=4, gate="none")
def test_copyparty(fileperf, tmp_path):
    pytest.importorskip("copyparty")
    (tmp_path / "share").mkdir()
    server = Command(
        ["{python}", "-m", "copyparty", "-q", "-i", "127.0.0.1", "-p", "{port}", "-v", f"{tmp_path}/share::rw"],
        title="copyparty",
    )
    fileperf.get("/file.bin", server=server, expect_bytes="256KiB")
