"""Every kind of server, on the quickstart's app."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf import Command, Granian, Gunicorn, InProcess, Uvicorn

EXAMPLES = str(Path(__file__).parents[1])


@pytest.mark.parametrize(
    "server",
    [
        Uvicorn(workers=2, loop="asyncio", http="h11"),
        Gunicorn(workers=2),  # pip install "pytest-fileperf[gunicorn]"
        Granian(workers=2),  # pip install "pytest-fileperf[granian]"
        InProcess(),  # no sockets and no HTTP: the cost of the app alone
        Command(["{python}", "-m", "uvicorn", "quickstart.app:app", "--app-dir", EXAMPLES, "--port", "{port}"]),
    ],
)
def test_health(fileperf, server):
    fileperf.get("/health", server=server, gate="none")


UVICORN = ["{python}", "-m", "uvicorn", "quickstart.app:app", "--app-dir", EXAMPLES]


@pytest.mark.parametrize(
    "server",
    [
        Uvicorn(tls=True),  # pip install "pytest-fileperf[tls]"
        Uvicorn(uds=True),
        Gunicorn(workers=2, tls=True, uds=True),
        Command([*UVICORN, "--port={port}", "--ssl-certfile={certfile}", "--ssl-keyfile={keyfile}"]),
        Command([*UVICORN, "--uds={uds}"]),
    ],
)
def test_over_tls_and_unix_sockets(fileperf, server):
    fileperf.get("/health", server=server, gate="none")


@pytest.mark.fileperf(server=Uvicorn(tls=True, uds=True))
def test_own_client(fileperf_server):
    with fileperf_server.sync_client() as client:
        assert client.get("/health").is_success


def test_own_directory(fileperf, tmp_path):
    fileperf.get("/health", server=Uvicorn(env={"DATABASE_URL": f"sqlite:///{tmp_path}/data-{{boot}}.db"}), gate="none")
