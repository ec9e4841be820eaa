"""A load through a cluster, made by a process of its own, as one in another network namespace: prints what it found.

python far.py SCHEDULER HOST SECONDS [--allow ADDRESS] [--url URL] [--generators 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import closing

import httpx
from drive.scripted import Handler, answer, scripted

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.network import Network
from pytest_fileperf.plan.request import Journey, Operation

MS = 1_000_000


async def hello(number: int, writer: asyncio.StreamWriter) -> None:
    """Answers at once."""
    writer.write(answer(b"hello"))


def leading_to(url: str) -> Handler:
    """Returns what sends every client there."""

    async def handler(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", "302 Found", f"Location: {url}\r\n"))

    return handler


async def follow(client: httpx.AsyncClient) -> None:
    """Goes where the server sends it."""
    await client.get("/", follow_redirects=True)


def main() -> None:
    """Makes the load and prints one line of JSON, after a line `begun`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scheduler")
    parser.add_argument("host")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--allow", default="")
    parser.add_argument("--url", default="")
    parser.add_argument("--redirect", default="", help="where the server sends its clients")
    parser.add_argument("--silent", action="store_true", help="say how many workers do not answer")
    parser.add_argument("--generators", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=2.0)
    parser.add_argument("--loads", type=int, default=1)
    asked = parser.parse_args()
    plan = LoadPlan(
        connections=4,
        warmup_ns=0,
        round_ns=round(asked.seconds * 1000 * MS / 2),
        rounds=2,
        timeout_ns=round(asked.timeout * 1000 * MS),
        generators=asked.generators,
    )
    told = False

    def tell(_: RunProgress) -> None:
        nonlocal told
        if not told:
            told = True
            print("begun", flush=True)

    with (
        scripted(leading_to(asked.redirect) if asked.redirect else hello, host=asked.host) as url,
        closing(Cluster(asked.scheduler)) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        target = Target(boot=1, url=asked.url or url, network=Network(addresses=frozenset(filter(None, [asked.allow]))))
        for _ in range(asked.loads):
            begun_s = time.monotonic()
            found: dict[str, object] = {}
            try:
                (result,) = generators.run(
                    (Journey(name="follow", function=follow) if asked.redirect else Operation(method="GET", url="/"),),
                    plan,
                    (target,),
                    pids=((),),
                    cores=None,
                    progress=tell,
                    check=lambda: None,
                )
            except (FilePerfError, httpx.ConnectError) as error:
                found["error"] = f"{type(error).__name__}: {error}"
            else:
                found["lost"] = result.lost
                if asked.silent:
                    found["silent"] = len(cluster.workers().silent)
                found["requests"] = sum(own.requests for own in result.rounds)
                found["failures"] = sorted({failure.example for own in result.rounds for failure in own.failures})
                found["rounds"] = [
                    [own.started_ns / 1e9 - begun_s, own.ended_ns / 1e9 - begun_s, len(own.generators)]
                    for own in result.rounds
                    if own.phase is Phase.ROUND
                ]
                members = [generators.member(number) for number in range(1, asked.generators + 1)]
                found["clocks"] = [[own.clock.ahead_ns, own.clock.error_ns, own.clock.distance_ns] for own in members]
            found["seconds"] = time.monotonic() - begun_s
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
