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
GRANIAN = Command(
    ["{python}", "-m", "granian", "--interface", "asgi", "--port", "{port}", "quickstart.app:app"],
    cwd=EXAMPLES,
)


@pytest.mark.fileperf(server=HYPERCORN, connections=8, gate="none")
def test_hypercorn(fileperf):
    pytest.importorskip("hypercorn")
    fileperf.post("/upload", content=payload("64KiB"))


@pytest.mark.fileperf(server=GRANIAN, connections=8, gate="none")
def test_granian(fileperf):
    pytest.importorskip("granian")
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
