"""What whole runs say of servers that are no plain ones: of their processes and logs, and where they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from contracts.project import Project, results
from serve.processes import launch

from pytest_fileperf import Command

PLAIN = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""
REPLACING = """
import os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

signal.signal(signal.SIGCHLD, signal.SIG_IGN)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

with HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    while True:
        if not (worker := os.fork()):
            for _ in range(5):
                server.handle_request()
            os._exit(0)
        try:
            os.waitpid(worker, 0)
        except ChildProcessError:
            pass
"""
FLOODING = """
import os
from pathlib import Path

floods = [4 << 20] * 6  # what is written while a log is emptied is lost: the last requests only raise

async def app(scope, receive, send):
    os.write(1, b"x" * (floods.pop() if floods else 0) + b"\\n")
    Path("/dev/full").write_text("an upload")
"""
TESTS = """
import glob, os, tempfile
import pytest
from pytest_fileperf import Command, RequestsFailedError

LOAD = {"connections": 1, "boots": 1, "warmup": 0}

def test_replaced(fileperf):
    server = Command(["{python}", "replacing.py", "{port}"])
    fileperf.get("/", server=server, requests=12, max_cpu_per_request="10s", gate="none", **LOAD)

@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_flooded(fileperf):
    with pytest.raises(RequestsFailedError) as raised:
        fileperf.get("/", app="flooding:app", requests=8, gate="none", **LOAD)
    logs = glob.glob(tempfile.gettempdir() + "/fileperf-*/server-*/log.txt")
    assert max(os.stat(log).st_size for log in logs) < 20 << 20  # of 24 MiB
    said = str(raised.value)
    assert "Its log says that a disk is full. Free some space on that disk" in said
    assert "[Errno 28] No space left on device" in said.partition("Last lines of its log:")[2]
    assert len(said) < 40_000
"""
COMPARED = 'def test_get(fileperf): fileperf.get("/", connections=2, max_duration="1s", gate="rps")\n'


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and /proc")
def test_processes_that_are_lost_and_logs_without_end_are_told(tmp_path: Path) -> None:
    files = {"replacing.py": REPLACING, "flooding.py": FLOODING, "test_it.py": TESTS, "tmp/kept": ""}
    ran = Project(top=tmp_path).write(files).run(env={"TMPDIR": str(tmp_path / "tmp")})
    assert "1 failed, 1 passed" in ran.said, ran.text
    assert "CPU/request was not measured in this run: processes of the server changed (some" in ran.said, ran.text
    used = results(ran)["test_replaced"]
    assert (used["summary"]["server"]["cpu_per_request"], used["summary"]["server"]["cpu_share"]) == (None, None)
    assert used["boots"][0]["peak_rss"] is None
    assert "the server's processes changed (some ended, and" in ran.said, ran.text


def test_the_old_code_may_be_a_server_that_runs(tmp_path: Path) -> None:
    program = str(Path(__file__).parents[1] / "serve" / "program.py")
    with launch(Command(["{python}", program, "--port={port}"])) as running:
        project = Project(top=tmp_path).write({"app.py": PLAIN, "test_it.py": COMPARED})
        ran = project.run(f"--fileperf-against={running.url}")
        assert all(process.is_running() for process in running.processes)
    result = results(ran)["test_get"]
    assert result["base"]["title"] == running.url, ran.text
    assert sum(one["requests"] for one in result["base"]["rounds"]) > 0
