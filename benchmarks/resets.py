"""Loads a server that resets every 10th connection in the middle of an answer, on uvloop and on asyncio's loop in turn.

    python benchmarks/resets.py [--turns 9] [--seconds 2] [--connections 64] [--every 10]

uvloop tells a reader once of bytes and a reset that come together, and asyncio's loop as long as either is there: a
connection that misses the reset hangs until its time limit. So the loads are to be as fast on both, and to have no
timeouts. Part of a head, part of a body and a whole answer before the reset take turns. Ratios are those of the
successful requests/s of neighbouring turns, whose order changes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from statistics import median, quantiles

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import run_load
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

LOOPS = {"uvloop": new_event_loop, "asyncio": asyncio.SelectorEventLoop}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
PARTS = (ANSWER[:20], ANSWER[:80], ANSWER)
"""Of a head, of a body, and all of it."""
RESETS = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing is a reset."""
TIMEOUT_S = 5


class Resetting(asyncio.Protocol):
    """Answers, and resets every so manieth connection after a part of the answer."""

    def __init__(self, requests: count[int], every: int) -> None:
        self._requests = requests
        self._every = every
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers a request, which comes as a whole."""
        transport, number = self._transport, next(self._requests)
        assert transport is not None
        if number % self._every:
            transport.write(ANSWER)
            return
        transport.write(PARTS[number // self._every % len(PARTS)])
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        transport.abort()


def serve(listening: socket.socket, every: int) -> None:
    """Serves until this process is ended; on asyncio's loop, whose transports write at once."""

    async def main() -> None:
        requests = count(1)
        server = await asyncio.get_running_loop().create_server(lambda: Resetting(requests, every), sock=listening)
        await server.serve_forever()

    asyncio.run(main())


def load(loop: str, url: str, seconds: float, connections: int) -> dict[str, object]:
    """Returns the requests/s of a load on this loop, and its failures by kind."""
    plan = LoadPlan(
        connections=connections,
        warmup_ns=200_000_000,
        round_ns=round(seconds * 1e9),
        rounds=1,
        timeout_ns=TIMEOUT_S * 1_000_000_000,
    )
    with closing(PayloadFiles()) as files, asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        (result,) = runner.run(
            run_load(
                (Operation(method="GET", url="/"),),
                plan,
                (Target(boot=0, url=url),),
                files=files,
                server_cpu=(lambda: None,),
                progress=lambda _: None,
            )
        )
    (measured, *_) = result.rounds
    failures: Counter[str] = Counter()
    for round_ in result.rounds:
        failures.update({failure.kind: failure.count for failure in round_.failures})
    return {"rps": measured.requests / measured.duration_ns * 1e9, "failures": failures}


def loaded_apart(loop: str, url: str, seconds: float, connections: int) -> tuple[float, Counter[str]]:
    """Makes a load in a process of its own."""
    order = json.dumps([loop, url, seconds, connections])
    done = subprocess.run([sys.executable, __file__, "--order", order], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found["rps"], Counter(found["failures"])


def main() -> None:
    """Prints the ratios of requests/s, and how requests failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--order", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.order:
        print(json.dumps(load(*json.loads(asked.order))))
        return
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listening, asked.every), daemon=True)
    server.start()
    listening.close()
    rates: dict[str, list[float]] = {name: [] for name in LOOPS}
    failures: dict[str, Counter[str]] = {name: Counter() for name in LOOPS}
    try:
        for turn in range(asked.turns):
            for name in list(LOOPS)[:: 1 if turn % 2 else -1]:
                rps, failed = loaded_apart(name, url, asked.seconds, asked.connections)
                rates[name].append(rps)
                failures[name] += failed
    finally:
        server.kill()
    told(rates, failures)


def told(rates: dict[str, list[float]], failures: dict[str, Counter[str]]) -> None:
    """Prints what was seen."""
    for name, found in rates.items():
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(failures[name].items()))
        print(f"{name}: {median(found):,.0f} requests/s; {failures[name]['timeout']} timeouts; failed: {kinds}")
    ratios = [ours / theirs for ours, theirs in zip(rates["uvloop"], rates["asyncio"], strict=True)]
    print(f"uvloop / asyncio: {median(ratios):.2f} {_range(ratios)}")


def _range(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return f"(quartiles {low:.2f} to {high:.2f}, all {min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
