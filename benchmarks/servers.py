"""The servers that benchmarks load, on cores of their own; who starts one ends it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watched import SERVER_CORES, on_cores

__all__ = ("NGINX", "nginx", "uvicorn")

HERE = Path(__file__).parent
READY_WITHIN_S = 20
END_WITHIN_S = 10
MOST_CONNECTIONS = 12_000
NGINX = shutil.which("nginx", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))
"""The program; None where it is not installed."""
_NGINX_CONF = """
daemon off;
worker_processes {workers};
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_temp_path {directory}/body;
    fastcgi_temp_path {directory}/fastcgi;
    proxy_temp_path {directory}/proxy;
    scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location = /tiny {{ return 200 '{{"ok":true}}'; }}
    }}
}}
"""


@contextmanager
def uvicorn(app: str = "app:app", *, directory: Path = HERE, path: str = "/tiny", **environment: str) -> Iterator[str]:
    """Runs an app under uvicorn with one worker, with more in its environment; gives its URL once that path answers."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    # uvicorn takes a socket given by number for a Unix socket and leaves Nagle's delay on; accepted ones inherit this.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    options = ["--app-dir", str(directory), "--no-access-log", "--log-level", "critical"]
    with on_cores(SERVER_CORES):
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, *options, "--fd", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env={**os.environ, **environment},
            start_new_session=True,  # as ours: Linux shares cores between sessions first
        )
    port = listener.getsockname()[1]
    listener.close()
    with _serving(process, port, path) as url:
        yield url


@contextmanager
def nginx(*, workers: int = 1, cores: frozenset[int] = SERVER_CORES) -> Iterator[str]:
    """Runs nginx, which answers `/tiny` and never closes a connection; gives its URL."""
    assert NGINX is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="fileperf-nginx-") as directory:
        text = _NGINX_CONF.format(directory=directory, port=port, connections=MOST_CONNECTIONS, workers=workers)
        configuration = Path(directory) / "nginx.conf"
        configuration.write_text(text, encoding="utf-8")
        command = [NGINX, "-e", f"{directory}/error.log", "-p", directory, "-c", str(configuration)]
        with on_cores(cores):
            process = subprocess.Popen(command)
        with _serving(process, port, "/tiny") as url:
            yield url


@contextmanager
def _serving(process: subprocess.Popen[bytes], port: int, path: str) -> Iterator[str]:
    """Gives the URL of a server once it answers, and ends it."""
    try:
        _wait_until_ready(process, port, path)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Returns when the server answers; raises when it ends or takes too long."""
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=READY_WITHIN_S) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                if connection.recv(16).startswith(b"HTTP/1.1 200"):
                    return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise SystemExit(f"the server did not answer within {READY_WITHIN_S} s")
