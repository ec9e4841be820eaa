"""What the benchmarks share: cores, servers, runs of pytest, campaigns and tables."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

HERE = Path(__file__).parent
MIB = 1 << 20
SERVER_CORES = frozenset((0,))
PYTHONPATH = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
"""With it a test can name apps of `bench_apps`."""
INI = "[pytest]\npythonpath = .\nfileperf_app = {app}\n"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTHONDONTWRITEBYTECODE")}
"""With CI a test without a baseline fails; with the other variable each start would compile every plugin anew."""
READY_WITHIN_S = 20
END_WITHIN_S = 10
NGINX = shutil.which("nginx", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))
_NGINX_CONF = """
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 12000; }}
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

Row: TypeAlias = Mapping[str, Any]
"""A line of a results file."""


def parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def chosen(options: argparse.ArgumentParser, asked: str, cases: Collection[str]) -> list[str]:
    """Returns the cases that are asked for, with commas between them, or all of them; ends if there is none such."""
    names = asked.split(",") if asked else list(cases)
    if unknown := set(names) - set(cases):
        options.error(f"unknown cases: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    return names


# --- cores


@contextmanager
def on_cores(cores: Set[int]) -> Iterator[None]:
    """Starts the processes of the block on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def client_cores(count: int = 1) -> frozenset[int]:
    """Returns a core for each of so many clients, without those of the server; fewer if there are no more."""
    free = sorted(os.sched_getaffinity(0) - SERVER_CORES)
    if not free:
        raise SystemExit("two cores are needed: one for the server, one for the client")
    return frozenset(free[:count])


# --- servers


@contextmanager
def uvicorn(app: str, *, directory: Path = HERE, path: str = "/tiny", **environment: str) -> Iterator[str]:
    """Runs an app under uvicorn with one worker; gives its URL as soon as that path answers."""
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
def nginx() -> Iterator[str]:
    """Runs nginx, which answers `/tiny` and never closes a connection; gives its URL."""
    assert NGINX is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="fileperf-nginx-") as directory:
        configuration = Path(directory) / "nginx.conf"
        configuration.write_text(_NGINX_CONF.format(directory=directory, port=port), encoding="utf-8")
        command = [NGINX, "-e", f"{directory}/error.log", "-p", directory, "-c", str(configuration)]
        with on_cores(SERVER_CORES):
            process = subprocess.Popen(command)
        with _serving(process, port, "/tiny") as url:
            yield url


@contextmanager
def _serving(process: subprocess.Popen[bytes], port: int, path: str) -> Iterator[str]:
    deadline_s = time.monotonic() + READY_WITHIN_S
    try:
        while True:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"no answer within {READY_WITHIN_S} s; the server ended with {process.returncode}")
            asking = HTTPConnection("127.0.0.1", port, timeout=READY_WITHIN_S)
            with suppress(ConnectionError), closing(asking):
                asking.request("GET", path)
                if asking.getresponse().status == 200:
                    break
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- runs of pytest


def pytest(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a process of its own, for at most ten minutes."""
    command, env = [*PYTEST, *options], {**ENVIRONMENT, **environment}
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=600, check=False)


def reported(
    directory: Path, *options: str, keep: Path | None = None, **environment: str
) -> tuple[int, list[dict[str, Any]]]:
    """Runs the load tests of a directory; returns the exit code and the results in `--fileperf-json`.

    That file is kept as `keep`, compressed.
    """
    with tempfile.TemporaryDirectory(prefix="fileperf-report-") as reports:
        report = Path(reports) / "report.json"
        done = pytest(directory, "--fileperf", f"--fileperf-json={report}", *options, **environment)
        content = report.read_bytes() if report.exists() else b"{}"
    results = json.loads(content).get("results")
    if not results:
        raise SystemExit(f"{directory}: nothing was measured\n{done.stdout}\n{done.stderr}")
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_bytes(gzip.compress(content))
    return done.returncode, results


def measured(call: str, *, generators: int = 1) -> list[dict[str, Any]]:
    """Returns the results of `fileperf.…` in a test of its own, on a core for each generator if there are enough."""
    with tempfile.TemporaryDirectory(prefix="fileperf-measured-") as directory:
        names = "from pathlib import Path\nfrom pytest_fileperf import Url, part, payload"
        (Path(directory) / "test_it.py").write_text(f"{names}\ndef test_it(fileperf):\n    fileperf.{call}\n")
        with on_cores(client_cores(generators)):
            status, results = reported(Path(directory), PYTHONPATH=PYTHONPATH)
    if status:
        raise SystemExit(f"{call}\nended with {status}: {results[0]['failures']} {results[0]['notes']}")
    return results


# --- campaigns: runs that can be stopped at any time and go on where they were


def campaign(
    results: Path,
    cases: Sequence[str],
    run: Callable[[str], tuple[Row, str]],
    *,
    runs: int,
    minutes: float,
    at_once: int = 1,
) -> None:
    """Makes runs until each case has enough of them or the time is over, and adds each to the results at once.

    Cases take turns, so that all of them have seen the same machine. `run` returns a row and what is printed of it; one
    with a `problem` does not count for later campaigns.
    """
    ends_s, guard = time.monotonic() + 60 * minutes, threading.Lock()
    counts = Counter(row["case"] for row in read(results) if "problem" not in row)

    def work() -> None:
        while time.monotonic() < ends_s:
            with guard:
                fewest = min((counts[case] for case in cases), default=runs)
                if fewest >= runs:
                    return
                case = random.choice([case for case in cases if counts[case] == fewest])
                counts[case] += 1
            began_s = time.monotonic()
            row, said = run(case)
            line = {"case": case, "at": round(time.time()), "seconds": round(time.monotonic() - began_s, 1), **row}
            with guard, results.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            print(f"{case} {counts[case]}/{runs} in {line['seconds']:.0f} s: {said}", flush=True)

    others = [threading.Thread(target=work) for _ in range(at_once - 1)]
    for other in others:
        other.start()
    work()
    for other in others:
        other.join()


def read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


# --- tables


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; the first column is text, the others are figures."""
    lines = [heading, ["---", *("---:" for _ in heading[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: Iterable[float | None], form: str) -> str:
    """Returns `1.02 (1.00 to 1.10)`: the median of the known values, the least and the greatest."""
    known = sorted(value for value in values if value is not None)
    return f"{median(known):{form}} ({known[0]:{form}} to {known[-1]:{form}})" if known else "–"
