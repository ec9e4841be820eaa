"""Compares the figures of steps with a server that takes a known time: 30 ms for a login, 5 ms for a download.

    python benchmarks/steps.py [--users 2] [--seconds 8]

Each user logs in, thinks for 20 ms, and downloads twice. The server keeps a core busy, so that it sees a request and
answers it within a few microseconds of the exact time. The last column is what a plain socket sees that does as one
user does. Needs two free cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from pytest_fileperf.drive.journey import Client
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.serve.spec import Url, split_cores
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings

TAKES_S = {"login": 0.030, "download": 0.005}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def visit(client: Client) -> None:
    """Logs in, thinks, and downloads twice."""
    async with client.step("login"):
        await client.get("/login")
    await client.pause("20ms")
    for _ in range(2):
        async with client.step("download"):
            await client.get("/download")


def main() -> None:
    """Prints a line for each step, and one for the journey."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8)
    asked = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listening,), daemon=True)
    server.start()
    listening.close()
    settings = Settings(
        server=Url(f"http://127.0.0.1:{port}"),
        connections=asked.users,
        duration_ns=round(asked.seconds * 1e9),
        boots=1,
        gate=(),
    )
    test = TestId(nodeid="benchmarks/steps.py::visit", module="benchmarks/steps.py", name="visit")
    with (
        tempfile.TemporaryDirectory(prefix="fileperf-steps-") as scratch,
        Session(Options(baselines=Path(scratch)), Rig()) as session,
    ):
        found = session.measure(Journey(name="visit", function=visit), settings, test)
    by_socket = _by_socket(port, found.requests)
    for name, takes_s in TAKES_S.items():
        step, plain_s = found.steps[name].latency, by_socket[name]
        print(
            f"{name:9} takes {1e3 * takes_s:6.2f} ms   p50 {1e3 * step.p50:6.2f} ms {_off(step.p50, takes_s)}"
            f"   mean {1e3 * step.mean:6.2f} ms {_off(step.mean, takes_s)}   plain socket p50 {1e3 * plain_s:6.2f} ms"
        )
    whole_s = TAKES_S["login"] + 2 * TAKES_S["download"]
    print(f"journey   takes {1e3 * whole_s:6.2f} ms   p50 {1e3 * found.latency.p50:6.2f} ms", end="")
    print(f" {_off(found.latency.p50, whole_s)}")
    print(f"{found.requests:,} iterations, {found.http_requests:,} HTTP requests, {found.errors} errors")
    server.kill()


def _off(seen: float, true: float) -> str:
    return f"{100 * (seen / true - 1):+5.2f} %"


def _serve(listening: socket.socket) -> None:
    """Answers each request at the exact time; it never sleeps, so nothing has to wake it up."""
    if split := split_cores(1):
        os.sched_setaffinity(0, split[0])
    listening.setblocking(False)
    connections: list[socket.socket] = []
    due: list[tuple[float, socket.socket]] = []
    while True:
        with suppress(BlockingIOError):
            connections.append(listening.accept()[0])
            connections[-1].setblocking(False)
            connections[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for connection in tuple(connections):
            with suppress(BlockingIOError):
                if request := connection.recv(65536):
                    due.append((perf_counter() + TAKES_S["login" if b" /login" in request else "download"], connection))
                else:
                    connections.remove(connection)
        for answer in tuple(due):
            if perf_counter() >= answer[0]:
                due.remove(answer)
                with suppress(OSError):  # the client may have gone
                    answer[1].sendall(ANSWER)


def _by_socket(port: int, visits: int) -> dict[str, float]:
    """Returns the median time from sending a request to having its answer, of each step."""
    taken: dict[str, list[float]] = {name: [] for name in TAKES_S}
    if split := split_cores(1):
        os.sched_setaffinity(0, split[1])  # where the load generator was
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(visits):
            for name in ("login", "download", "download"):
                began_s = perf_counter()
                connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                connection.recv(65536)
                taken[name].append(perf_counter() - began_s)
                if name == "login":
                    sleep(0.020)
    return {name: median(times) for name, times in taken.items()}


if __name__ == "__main__":
    main()
