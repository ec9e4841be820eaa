"""The clients that `peers.py` compares: each loads one URL for some seconds and says what it saw and what it cost.

Ours and httpx's run here, each in a fresh Python; the programs of others are in `programs.py`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from programs import PROGRAMS
from watched import TIMEOUT_S, WARM_UP_S, Case, Figures, client_cores, finished

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.measure.recording import Recording
    from pytest_fileperf.plan.load import LoadPlan
    from pytest_fileperf.plan.work import Work

__all__ = ("CLIENTS", "OURS", "ours", "recorded", "replayed")

OURS, TWO_OF_OURS = "fileperf", "fileperf ×2"


def python_client(name: str, *, cores: int = 1) -> Callable[[Case, str, int], Figures]:
    """Returns a client that runs `WORKERS[name]` in a fresh Python, on so many cores where they are there."""

    def load(case: Case, url: str, seconds: int) -> Figures:
        job = json.dumps({"name": name, "case": asdict(case), "url": url, "seconds": seconds})
        output, watch = finished([sys.executable, __file__, job], seconds + 2 * TIMEOUT_S, cores=cores)
        return Figures(**{**json.loads(output), "peak_bytes": watch.peak_bytes})

    return load


def load_with_replay(case: Case, url: str, seconds: int, *, generators: int = 1) -> Figures:
    """Loads with so many of our generators, as the `fileperf` fixture does for one boot of a server."""
    from pytest_fileperf.plan.payload import payload
    from pytest_fileperf.plan.request import Operation

    operation = Operation(
        method=case.method, url=case.path, arguments={"content": payload(Path(case.body))} if case.body else {}
    )
    seen = replayed(operation, url, connections=case.connections, seconds=seconds, generators=generators)
    return ours(seen)


def replayed(
    work: Work,
    url: str,
    *,
    connections: int,
    seconds: int,
    rate: float | None = None,
    warmup_s: float = WARM_UP_S,
    generators: int = 1,
) -> Measurement:
    """Returns what our generators saw of this work, which they have to replay; raises where a request failed."""
    from pytest_fileperf.measure.measurement import measurement_of
    from pytest_fileperf.plan.load import LoadPlan

    plan = LoadPlan(
        connections=connections,
        rate=rate,
        warmup_ns=round(warmup_s * 1e9),
        round_ns=500_000_000,
        rounds=2 * seconds,
        timeout_ns=TIMEOUT_S * 1_000_000_000,
        generators=generators,
    )
    recording = recorded(work, url, plan)
    seen = measurement_of(recording)
    if seen.errors or seen.client.cpu_per_request is None or recording.engine != "replay":
        engine = f"{recording.engine} ({recording.why_engine})"
        raise SystemExit(f"{seen.requests} answers, engine {engine}: {seen.failures}")
    return seen


def recorded(work: Work, url: str, plan: LoadPlan) -> Recording:
    """Returns what our generators have recorded of a load, each on a core of its own where there are enough."""
    from pytest_fileperf.drive.group import Generators
    from pytest_fileperf.drive.preparation import Target
    from pytest_fileperf.measure.recording import Boot, Recording

    with closing(Generators()) as generators:
        made = generators.run(
            (work,),
            plan,
            (Target(boot=0, url=url),),
            pids=((),),
            cores=client_cores(plan.generators),
            progress=lambda _: None,
            check=lambda: None,
        )
    if made.lost:
        raise SystemExit(f"generators were lost: {made.lost}")
    (result,) = made.results
    return Recording(
        rounds=result.rounds,
        boots=(Boot(index=0),),
        connections=plan.connections,
        open_loop=plan.pacing().open_loop,
        engine=result.engine,
        why_engine=result.why_engine,
        wait_ns=result.wait_ns,
        attack_ns=result.attack_ns,
        due=result.due,
    )


def ours(seen: Measurement) -> Figures:
    """Returns what our generator saw, without its memory."""
    return Figures(
        rps=seen.rps,
        p50_s=seen.latency.p50,
        p99_s=seen.latency.p99,
        cpu_s=seen.client.cpu_per_request or 0.0,
    )


def load_with_pool(case: Case, url: str, seconds: int) -> Figures:
    """Loads with a shared `httpx.AsyncClient` on its own transport."""
    import httpx

    limits = httpx.Limits(max_connections=case.connections, max_keepalive_connections=case.connections)
    return _send_loop(case, url, seconds, lambda: httpx.AsyncHTTPTransport(limits=limits))


def load_with_transport(case: Case, url: str, seconds: int) -> Figures:
    """Loads with a shared `httpx.AsyncClient` on our transport, as journeys do."""
    from pytest_fileperf.wire.transport import LoadTransport

    return _send_loop(case, url, seconds, LoadTransport)


def _send_loop(case: Case, url: str, seconds: int, transport: Callable[[], httpx.AsyncBaseTransport]) -> Figures:
    import httpx
    import uvloop

    content = Path(case.body).read_bytes() if case.body else None
    latencies: list[float] = []

    async def connection(client: httpx.AsyncClient, request: httpx.Request, until_s: float) -> None:
        while (started_s := time.perf_counter()) < until_s:
            response = await client.send(request)
            latencies.append(time.perf_counter() - started_s)
            response.raise_for_status()

    async def load() -> float:
        async with httpx.AsyncClient(transport=transport(), timeout=TIMEOUT_S) as client:
            request = client.build_request(case.method, url + case.path, content=content)

            async def load_for(length_s: float) -> float:
                latencies.clear()
                started_s = time.process_time()
                until_s = time.perf_counter() + length_s
                await asyncio.gather(*(connection(client, request, until_s) for _ in range(case.connections)))
                return time.process_time() - started_s

            await load_for(WARM_UP_S)
            return await load_for(seconds)

    cpu_s = uvloop.run(load())
    percentiles = statistics.quantiles(latencies, n=100)
    return Figures(
        rps=len(latencies) / seconds, p50_s=percentiles[49], p99_s=percentiles[98], cpu_s=cpu_s / len(latencies)
    )


WORKERS: dict[str, Callable[[Case, str, int], Figures]] = {
    OURS: load_with_replay,
    TWO_OF_OURS: partial(load_with_replay, generators=2),
    "httpx": load_with_pool,
    "httpx on LoadTransport": load_with_transport,
}
CLIENTS: dict[str, Callable[[Case, str, int], Figures]] = {
    **PROGRAMS,
    **{name: python_client(name, cores=2 if name == TWO_OF_OURS else 1) for name in WORKERS},
}
"""Every client by name."""


def main() -> None:
    """Runs one client in this process and prints its figures."""
    job = json.loads(sys.argv[1])
    figures = WORKERS[job["name"]](Case(**job["case"]), job["url"], job["seconds"])
    print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
