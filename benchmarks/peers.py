"""Measures our load next to wrk's and plain httpx's, and prints the ratios as Markdown tables.

    python benchmarks/peers.py [--pairs 9] [--seconds 4] [--cases tiny,upload,download,journey,file]

One uvicorn with one worker runs on core 0, the client under test on core 1. Clients alternate, in turns of reversed
order, so that drift hits all alike. A ratio is taken within a turn; the table shows the median of the turns and,
in brackets, their quartiles. Loopback only; takes about ten minutes as it stands.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clients import CLIENTS, MIB, Case, Figures, core

from pytest_fileperf.plan.payload import payload

OURS = "fileperf"
READY_WITHIN_S = 20
LARGE_BYTES = 100_000_000

Turn = Mapping[str, Figures]
"""The figures of every client, by its name, from one turn."""


@contextmanager
def server(app: str = "app:app", **environment: str) -> Iterator[str]:
    """Runs the app of this directory on core 0, with more in its environment; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    # uvicorn takes a socket given by number for a Unix socket and leaves Nagle's delay on; accepted ones inherit this.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    options = ["--app-dir", str(Path(__file__).parent), "--no-access-log", "--log-level", "critical"]
    with core(0):
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, *options, "--fd", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env={**os.environ, **environment},
        )
    address = listener.getsockname()
    listener.close()
    try:
        wait_until_ready(process, address)
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], address: tuple[str, int]) -> None:
    """Returns when the server answers; raises when it ends or takes too long."""
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        with socket.create_connection(address, timeout=READY_WITHIN_S) as connection:
            connection.sendall(b"GET /tiny HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if connection.recv(16).startswith(b"HTTP/1.1 200"):
                return
    raise SystemExit(f"the server did not answer within {READY_WITHIN_S} s")


def take_turns(case: Case, names: Sequence[str], url: str, *, pairs: int, seconds: int) -> list[Turn]:
    """Returns the figures of each turn; every other turn goes the other way round."""
    turns: list[Turn] = []
    for number in range(pairs):
        order = names if number % 2 == 0 else names[::-1]
        turns.append({name: CLIENTS[name](case, url, seconds * case.times_longer) for name in order})
        rates = ", ".join(f"{name} {turns[-1][name].rps:,.0f}/s" for name in names)
        print(f"{case.title}, turn {number + 1} of {pairs}: {rates}", file=sys.stderr)
    return turns


def median(turns: Sequence[Turn], name: str, value: Callable[[Figures], float]) -> float:
    """Returns a client's median over the turns."""
    return statistics.median(value(turn[name]) for turn in turns)


def ratio(turns: Sequence[Turn], name: str, other: str, value: Callable[[Figures], float]) -> str:
    """Returns `1.02 (1.01-1.03)`: the median and quartiles of the ratios within the turns."""
    ratios = [value(turn[name]) / value(turn[other]) for turn in turns]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; the first column is text, the others are figures."""
    lines = [heading, ["---", *("---:" for _ in heading[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures_table(results: Mapping[str, Sequence[Turn]]) -> str:
    """Returns every client's medians."""
    rows = []
    for title, turns in results.items():
        rows += [
            [
                title,
                name,
                f"{median(turns, name, lambda figures: figures.rps):,.0f}",
                f"{median(turns, name, lambda figures: figures.p50_s) * 1e3:.2f}",
                f"{median(turns, name, lambda figures: figures.p99_s) * 1e3:.2f}",
                f"{median(turns, name, lambda figures: figures.cpu_s) * 1e6:,.0f}",
                f"{median(turns, name, lambda figures: figures.peak_bytes) / MIB:,.0f}",
            ]
            for name in turns[0]
        ]
    return table(("case", "client", "requests/s", "p50 ms", "p99 ms", "CPU µs/request", "peak MiB"), rows)


def ratios_table(results: Mapping[str, Sequence[Turn]]) -> str:
    """Returns our figures over each other client's."""
    rows = []
    for title, turns in results.items():
        ours = next(iter(turns[0]))
        rows += [
            [
                title,
                f"{ours} / {other}",
                ratio(turns, ours, other, lambda figures: figures.rps),
                ratio(turns, ours, other, lambda figures: figures.p50_s),
                ratio(turns, ours, other, lambda figures: figures.p99_s),
                ratio(turns, ours, other, lambda figures: figures.cpu_s),
                ratio(turns, ours, other, lambda figures: figures.peak_bytes),
            ]
            for other in turns[0]
            if other != ours
        ]
    return table(("case", "ratio", "requests/s", "p50", "p99", "CPU/request", "peak memory"), rows)


def cases_in(directory: Path) -> dict[str, tuple[Case, tuple[str, ...]]]:
    """Returns each case with its clients, ours first; writes their bodies into the directory."""
    bodies = {}
    for name, size_bytes in (("body", 256 * 1024), ("large", LARGE_BYTES)):
        bodies[name] = str(directory / name)
        with Path(bodies[name]).open("wb") as file:
            file.writelines(payload(size_bytes).blocks())
    peers = (OURS, "wrk", "httpx")
    return {
        "tiny": (Case(title="tiny GET", method="GET", path="/tiny"), peers),
        "upload": (Case(title="256 KiB upload", method="POST", path="/upload", body=bodies["body"]), peers),
        "download": (Case(title="256 KiB download", method="GET", path="/download"), peers),
        "journey": (
            Case(title="tiny GET through `httpx.AsyncClient.send`", method="GET", path="/tiny"),
            ("httpx on LoadTransport", "httpx"),
        ),
        "file": (
            Case(
                title="100 MB upload, 8 at once",
                method="POST",
                path="/upload",
                body=bodies["large"],
                connections=8,
                times_longer=3,
            ),
            (OURS, "wrk"),
        ),
    }


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="turns per case (default: 9)")
    parser.add_argument("--seconds", type=int, default=4, help="length of one client's turn (default: 4)")
    parser.add_argument("--cases", default="tiny,upload,download,journey,file", help="which cases (default: all)")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two cores are needed: one for the server, one for the client")
    if shutil.which("wrk") is None:
        print("wrk is not on PATH: its column is left out (Debian and Ubuntu: apt install wrk)", file=sys.stderr)
    results = {}
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory, server() as url:
        cases = cases_in(Path(directory))
        if unknown := set(options.cases.split(",")) - set(cases):
            parser.error(f"unknown cases: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
        for name in options.cases.split(","):
            case, clients = cases[name]
            present = [client for client in clients if client != "wrk" or shutil.which("wrk")]
            CLIENTS[present[0]](case, url, 1)  # what a server does only once does not count
            results[case.title] = take_turns(case, present, url, pairs=options.pairs, seconds=options.seconds)
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"medians of {options.pairs} turns of {options.seconds} s each.\n")
    print(figures_table(results), ratios_table(results), sep="\n\n")


if __name__ == "__main__":
    main()
