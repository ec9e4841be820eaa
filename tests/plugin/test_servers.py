"""Servers as parameters of a test, and a run that needs no app."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")

PROGRAM = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_servers_have_readable_ids(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_fileperf import Command, Gunicorn, InProcess, Url, Uvicorn

        @pytest.mark.parametrize("server", [
            Uvicorn(),
            Uvicorn(workers=2),
            Gunicorn(workers=2),
            Uvicorn(loop="asyncio"),
            Gunicorn(loop="uvloop", http="h11"),
            InProcess(),
            Url("http://127.0.0.1:8000"),
            Command("./bin/server {port}"),
            Command("./bin/server {port}", title="Go"),
            Uvicorn,
            None,
        ])
        def test_x(server): pass

        @pytest.mark.parametrize("workers", [1, 2])
        @pytest.mark.parametrize("server", ["uvicorn", Gunicorn(http="h11")])
        def test_stacked(server, workers): pass
        """
    )
    result = run("--collect-only", "-q")
    shown = [line.partition("::")[2] for line in result.stdout.lines if "::" in line]
    names = (
        "uvicorn-1", "uvicorn-2", "gunicorn-2", "uvicorn-1-asyncio", "gunicorn-1-uvloop-h11", "inprocess",
        "127.0.0.1:8000", "server", "Go", "Uvicorn", "None",
    )  # fmt: skip
    stacked = ("uvicorn-1", "uvicorn-2", "gunicorn-1-h11-1", "gunicorn-1-h11-2")
    assert shown == [*(f"test_x[{name}]" for name in names), *(f"test_stacked[{name}]" for name in stacked)]


@posix
def test_a_command_needs_no_app(pytester: pytest.Pytester, run_load: Run) -> None:
    pytester.makepyfile(program=PROGRAM)
    pytester.makepyfile(
        """
        def test_served(fileperf, fileperf_server):
            assert fileperf.get("/", expect_body=b"hello").success_ratio == 1
            assert fileperf_server.worker_pids == fileperf_server.pids
        """
    )
    result = run_load("--fileperf-smoke", "--fileperf-server=command:{python} program.py {port}")
    result.assert_outcomes(passed=1)
