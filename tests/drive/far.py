"""Makes loads through a cluster for whoever writes orders to it, as in another network namespace: prints what it found.

python far.py SCHEDULER

Each order is a line of JSON, and may have: `host`, where the server is; `allow`, an address that the load may go to;
`url`, where it goes in place of the server; `redirect`, where the server sends its clients; `seconds`; `generators`;
`anew`, for a connection and generators of its own; and `set`, names of the package with the values that they get.
The answer is a line `begun` once the load is going, and a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from contextlib import ExitStack, closing
from typing import Any

import httpx
from drive.scripted import GET, MS, answer, hello, saying, scripted

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.network import Network
from pytest_fileperf.plan.request import Journey


async def follow(client: httpx.AsyncClient) -> None:
    """Goes where the server sends it."""
    await client.get("/", follow_redirects=True)


def load(order: dict[str, Any], cluster: Cluster, generators: Generators) -> dict[str, object]:
    """Makes one load; returns what it found, or the error."""
    count, redirect = order.get("generators", 2), order.get("redirect", "")
    round_ns = round(order.get("seconds", 0.3) * 1000 * MS / 2)
    plan = LoadPlan(connections=6, warmup_ns=0, round_ns=round_ns, rounds=2, timeout_ns=2000 * MS, generators=count)
    told: list[RunProgress] = []

    def tell(moment: RunProgress) -> None:
        if not told:
            print("begun", flush=True)
        told.append(moment)

    served = saying(answer(b"", "302 Found", f"Location: {redirect}\r\n")) if redirect else hello
    network = Network(addresses=frozenset(filter(None, [order.get("allow")])))
    with scripted(served, host=order["host"]) as url:
        begun_s = time.monotonic()
        try:
            (result,) = generators.run(
                (Journey(name="follow", function=follow) if redirect else GET,),
                plan,
                (Target(boot=1, url=order.get("url", url), network=network),),
                cores=None,
                progress=tell,
                check=lambda: None,
            )
        except (FilePerfError, httpx.ConnectError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
    members = [generators.member(number) for number in range(1, count + 1)]
    return {
        "lost": result.lost,
        "silent": len(cluster.workers()[1]),
        "failures": sorted({failure.example for own in result.rounds for failure in own.failures}),
        "rounds": [
            [own.started_ns / 1e9 - begun_s, own.ended_ns / 1e9 - begun_s, len(own.generators)]
            for own in result.rounds
            if own.phase is Phase.ROUND
        ],
        "clocks": [[own.ahead_ns, own.clock_error_ns, own.distance_ns] for own in members],
    }


def main(scheduler: str) -> None:
    """Carries out all orders."""
    with ExitStack() as stack:
        cluster = stack.enter_context(closing(Cluster(scheduler)))
        generators = stack.enter_context(closing(Generators(cluster=cluster)))
        for line in sys.stdin:
            order = json.loads(line)
            for name, value in order.get("set", {}).items():
                module, _, attribute = name.rpartition(".")
                setattr(importlib.import_module(f"pytest_fileperf.{module}"), attribute, value)
            if order.get("anew"):
                with closing(Cluster(scheduler)) as other, closing(Generators(cluster=other)) as own:
                    found = load(order, other, own)
            else:
                found = load(order, cluster, generators)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
