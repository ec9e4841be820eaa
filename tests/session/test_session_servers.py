"""How a session spreads a measurement over real servers, and what it learns from them."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fileperf.errors import LimitExceededError, RequestsFailedError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.recording import Packed
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.report.remarks import notes
from pytest_fileperf.serve.spec import Command, InProcess, ServerSpec, Uvicorn
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings

MS = 1_000_000
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "make, boots",
    [(Uvicorn, 3), (lambda: Uvicorn(port=free_port()), 1), (InProcess, 1)],
    ids=["several boots", "a fixed port", "in-process"],
)
def test_the_boots_there_are_share_the_whole_duration_and_all_rounds(
    make: Callable[[], ServerSpec], boots: int, tmp_path: Path
) -> None:
    settings = Settings(
        app="serve.apps:app", server=make(), boots=3, connections=1, duration_ns=300 * MS, rounds=6, warmup_ns=0
    )
    with Session(Options(baselines=tmp_path), Rig()) as session:
        measurement = session.measure(GET, settings, TEST)
        (result,) = session.results

    assert len(result.recording.boots) == boots
    assert len(result.recording.measured()) == 6
    assert all(isinstance(boot.samples, Packed) for boot in result.recording.boots)  # it is kept until the end
    assert measurement.duration == pytest.approx(0.3)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what cores do")
def test_what_others_had_of_the_cores_is_known(tmp_path: Path) -> None:
    settings = Settings(
        app="serve.apps:app", server=Uvicorn(), boots=1, connections=1, duration_ns=300 * MS, rounds=1, warmup_ns=0
    )
    with Session(Options(baselines=tmp_path), Rig()) as session:
        measurement = session.measure(GET, settings, TEST)
        (boot,) = session.results[0].recording.boots

    anywhere = os.sched_getaffinity(0)
    assert set() < boot.cores <= anywhere
    assert set() < boot.generator_cores <= anywhere
    assert {core.core for core in boot.samples[0].cores} >= anywhere
    assert 0 <= measurement.busy.server < 1


_REPLACING = """
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


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_what_a_server_used_is_unknown_if_workers_ended_and_nobody_waited_for_them(tmp_path: Path) -> None:
    server = Command([sys.executable, "-c", _REPLACING, "{port}"])
    settings = Settings(
        server=server, boots=1, connections=1, requests=12, warmup_ns=0, limits={"max_cpu_per_request": 10.0}
    )
    with Session(Options(baselines=tmp_path), Rig()) as session:
        with pytest.raises(
            LimitExceededError, match=r"(?s)CPU/request was not measured.*changed \(some ended, and nobody"
        ):
            session.measure(GET, settings, TEST)
        (result,) = session.results

    used = result.measurement.server
    assert (used.cpu_per_request, used.cpu_share, used.peak_rss) == (None, None, None)
    assert any(
        text.startswith("processes of the server changed during the run (some ended, and nobody")
        for text in notes(result)
    )


_FORKING = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if not (worker := os.fork()):
            while time.process_time() < 0.1:
                pass
            os._exit(0)
        os.waitpid(worker, 0)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

with HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    server.serve_forever()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_processes_that_came_and_went_count(tmp_path: Path) -> None:
    settings = Settings(
        server=Command([sys.executable, "-c", _FORKING, "{port}"]),
        boots=1,
        connections=1,
        requests=4,
        warmup_ns=0,
        gate=(),
    )
    with Session(Options(baselines=tmp_path), Rig()) as session:
        used = session.measure(GET, settings, TEST).server
        (result,) = session.results

    assert used.cpu_per_request is not None
    assert used.cpu_per_request >= 0.09
    assert used.peak_rss is not None
    assert not any("processes of the server changed" in text for text in notes(result))


_FLOODING = """
import os
from pathlib import Path

floods = [4 << 20] * 6  # what is written while a log is emptied is lost: the last requests only raise

async def app(scope, receive, send):
    os.write(1, b"x" * (floods.pop() if floods else 0) + b"\\n")
    Path("/dev/full").write_text("an upload")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_the_servers_log_says_why_it_answered_500_and_fills_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flooding_app.py").write_text(_FLOODING, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = Settings(app="flooding_app:app", boots=1, connections=1, requests=8, gate=("rps",))
    with Session(Options(baselines=tmp_path), Rig()) as session:
        with pytest.raises(RequestsFailedError) as raised:
            session.measure(GET, settings, TEST)
        (log,) = tmp_path.glob("fileperf-*/server-*/log.txt")
        assert log.stat().st_size < 20 << 20  # of 24 MiB

    said = str(raised.value)
    assert "a disk that it writes to is full, as its log says: make room there" in said
    assert "[Errno 28] No space left on device" in said.partition("last lines of its log:")[2]
    assert len(said) < 40_000
