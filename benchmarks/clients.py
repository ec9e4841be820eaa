"""The clients that `peers.py` compares: each loads one URL for some seconds and says what it saw and what it cost.

Each runs in a process of its own, so that CPU time and peak memory are the client's alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pytest_fileperf.units import parse_duration_ns

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plan.work import Work

__all__ = ("CLIENTS", "Case", "Figures", "core", "finished", "ours", "replayed")

TIMEOUT_S = 30
POLL_S = 0.02
WARM_UP_S = 0.3
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is asked of the server."""

    title: str
    method: str
    path: str
    body: str = ""
    """File with the request's body; empty for none."""
    connections: int = 32
    times_longer: int = 1
    """How much longer than others it must be loaded for enough requests to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one client saw in one run."""

    rps: float
    p50_s: float
    p99_s: float
    cpu_s: float
    """CPU time of the client's process per request."""
    peak_bytes: int = 0
    """Most memory its process ever held."""


@contextmanager
def core(number: int) -> Iterator[None]:
    """Starts the processes of the block on that core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def finished(command: list[str], limit_s: float) -> tuple[str, Watch]:
    """Returns the output of a process on core 1, and what was seen of it; raises when it fails or hangs."""
    with core(1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    watch.start()
    try:
        output, _ = process.communicate(timeout=limit_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        watch.stop()
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{output}")
    return output, watch


class Watch(threading.Thread):
    """Looks at a process until stopped; at its child, where it has started one to do the work."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._samples: list[tuple[float, float]] = []
        self._started_s = time.perf_counter()
        self._process = psutil.Process(pid)
        self._ended = threading.Event()

    def run(self) -> None:
        """Polls memory's high-water mark (`ru_maxrss` of a child would begin at its parent's) and CPU time."""
        while not self._ended.wait(POLL_S):
            try:
                process = (self._process.children(recursive=True) or [self._process])[-1]
                times = process.cpu_times()
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            except (psutil.Error, OSError):
                continue
            self._samples.append((time.perf_counter() - self._started_s, times.user + times.system))
            if match := re.search(r"VmHWM:\s+(\d+) kB", status):
                self.peak_bytes = max(self.peak_bytes, int(match[1]) * 1024)

    def stop(self) -> None:
        """Ends the polling."""
        self._ended.set()
        self.join()

    def cpu_share(self, since_s: float, until_s: float) -> float:
        """Returns CPU seconds per second between two instants, in seconds since the process began."""
        inside = [sample for sample in self._samples if since_s <= sample[0] <= until_s]
        (first_s, first_cpu_s), (last_s, last_cpu_s) = inside[0], inside[-1]
        return (last_cpu_s - first_cpu_s) / (last_s - first_s)


def wrk(case: Case, url: str, seconds: int) -> Figures:
    """Loads with wrk, one thread."""
    command = ["wrk", "-t1", f"-c{case.connections}", f"-d{seconds}s", f"--timeout={TIMEOUT_S}s", "--latency"]
    if case.body:
        script = Path(case.body).with_suffix(".lua")
        script.write_text(f'wrk.method = "{case.method}"\nwrk.body = io.open("{case.body}", "rb"):read("*a")\n')
        command += ["-s", str(script)]
    output, watch = finished([*command, url + case.path], seconds + 2 * TIMEOUT_S)
    if "Socket errors" in output or "Non-2xx" in output or " 0 requests in" in output:
        raise SystemExit(f"wrk saw failures, or no answer in time:\n{output}")
    percentiles = dict(re.findall(r"^\s+(50|99)%\s+(\S+)$", output, re.MULTILINE))
    rate = re.search(r"^Requests/sec:\s+([\d.]+)", output, re.MULTILINE)
    assert rate
    return Figures(
        rps=float(rate[1]),
        p50_s=parse_duration_ns(percentiles["50"]) / 1e9,
        p99_s=parse_duration_ns(percentiles["99"]) / 1e9,
        # Not over the whole run: reading a large body into Lua costs more than sending it.
        cpu_s=watch.cpu_share(seconds / 4, seconds) / float(rate[1]),
        peak_bytes=watch.peak_bytes,
    )


def python_client(name: str) -> Callable[[Case, str, int], Figures]:
    """Returns a client that runs `WORKERS[name]` in a fresh Python."""

    def load(case: Case, url: str, seconds: int) -> Figures:
        job = json.dumps({"name": name, "case": asdict(case), "url": url, "seconds": seconds})
        output, watch = finished([sys.executable, __file__, job], seconds + 2 * TIMEOUT_S)
        return Figures(**{**json.loads(output), "peak_bytes": watch.peak_bytes})

    return load


def load_with_replay(case: Case, url: str, seconds: int) -> Figures:
    """Loads with our generator, as the `fileperf` fixture does for one boot of a server."""
    from pytest_fileperf.plan.operation import Operation
    from pytest_fileperf.plan.payload import payload

    operation = Operation(
        method=case.method, url=case.path, arguments={"content": payload(Path(case.body))} if case.body else {}
    )
    seen = replayed(operation, url, connections=case.connections, seconds=seconds)
    return ours(seen)


def replayed(
    work: Work, url: str, *, connections: int, seconds: int, rate: float | None = None, warmup_s: float = WARM_UP_S
) -> Measurement:
    """Returns what our generator saw of this work, which it has to replay; raises where a request failed."""
    from pytest_fileperf.drive.preparation import Target
    from pytest_fileperf.drive.process import Generator
    from pytest_fileperf.measure.measurement import measurement_of
    from pytest_fileperf.measure.recording import Boot, Recording
    from pytest_fileperf.plan.load import LoadPlan

    plan = LoadPlan(
        connections=connections,
        rate=rate,
        warmup_ns=round(warmup_s * 1e9),
        round_ns=500_000_000,
        rounds=2 * seconds,
        timeout_ns=TIMEOUT_S * 1_000_000_000,
    )
    with closing(Generator()) as generator:
        (result,) = generator.run(
            (work,),
            plan,
            (Target(boot=0, url=url),),
            pids=((),),
            cores=None,
            progress=lambda _: None,
            check=lambda: None,
        )
    seen = measurement_of(
        Recording(
            rounds=result.rounds,
            boots=(Boot(index=0),),
            connections=connections,
            open_loop=rate is not None,
            engine=result.engine,
            why_engine=result.why_engine,
            wait_ns=result.wait_ns,
            attack_ns=result.attack_ns,
            due=result.due,
        )
    )
    if seen.errors or seen.client.cpu_per_request is None or result.engine != "replay":
        raise SystemExit(f"{seen.requests} answers, engine {result.engine} ({result.why_engine}): {seen.failures}")
    return seen


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
    "fileperf": load_with_replay,
    "httpx": load_with_pool,
    "httpx on LoadTransport": load_with_transport,
}
CLIENTS: dict[str, Callable[[Case, str, int], Figures]] = {
    "wrk": wrk,
    **{name: python_client(name) for name in WORKERS},
}
"""Every client by name."""


def main() -> None:
    """Runs one client in this process and prints its figures."""
    job = json.loads(sys.argv[1])
    figures = WORKERS[job["name"]](Case(**job["case"]), job["url"], job["seconds"])
    print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
