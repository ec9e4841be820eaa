"""The clients that `peers.py` compares: each loads one URL for some seconds, and says what it saw and what it cost.

Ours runs in pytest, as users run it, httpx's loops in a fresh Python, the other programs are taken from PATH.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psutil
import uvloop
from bench import client_cores, measured, on_cores

from pytest_fileperf import LoadTransport
from pytest_fileperf.units import parse_duration_ns

OURS, TWO_OF_OURS = "fileperf", "fileperf ×2"
TIMEOUT_S = 30
WARM_UP_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    title: str
    method: str = "GET"
    path: str = "/tiny"
    """`mix` is three parts, of which the upload has `body`."""
    body: str = ""
    """File with the request's body; empty for none."""
    connections: int = 32
    times_longer: int = 1
    """How much longer than others it must be loaded for enough requests to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    rps: float
    p50_s: float
    p99_s: float
    cpu_s: float
    """CPU time of the client's process per request."""
    peak_bytes: int = 0
    """Most memory its process ever held."""


def fileperf(case: Case, url: str, seconds: int, *, generators: int = 1) -> Figures:
    """Loads as a test does, without a comparison."""
    body = f"content=payload(Path({case.body!r}))" if case.body else ""
    if case.path == "mix":
        verb, asked = "mix", f"{{part.get('/item/1'): 6, part.get('/file/1'): 3, part.post('/upload/1', {body}): 1}}"
    else:
        verb, asked = case.method.lower(), f"{case.path!r}, {body}" if body else repr(case.path)
    call = (
        f"{verb}({asked}, server=Url({url!r}), connections={case.connections}, generators={generators},"
        f" duration={seconds}, rounds={2 * seconds}, warmup={WARM_UP_S}, timeout={TIMEOUT_S}, boots=1, gate='none')"
    )
    result = measured(call, generators=generators)[0]
    if result["engine"]["name"] != "replay":
        raise SystemExit(f"engine {result['engine']}: {call}")
    summary, series = result["summary"], result["boots"][0]["series"]
    own = series["generators"] or [series["generator"]]
    return Figures(
        rps=summary["rps"],
        p50_s=summary["latency"]["p50"],
        p99_s=summary["latency"]["p99"],
        cpu_s=summary["generator"]["cpu_per_request"],
        peak_bytes=sum(max(filter(None, one["rss"])) for one in own),
    )


def _in_python(name: str) -> Callable[[Case, str, int], Figures]:
    """Returns a client that sends by `TRANSPORTS[name]` in a fresh Python."""

    def load(case: Case, url: str, seconds: int) -> Figures:
        job = json.dumps({"name": name, "case": asdict(case), "url": url, "seconds": seconds})
        output, looks = _finished([sys.executable, __file__, job], seconds)
        return Figures(**{**json.loads(output), "peak_bytes": max(look[2] for look in looks)})

    return load


async def send_in_loops(case: Case, name: str, url: str, seconds: int, content: bytes | None) -> Figures:
    """Loads with a shared `httpx.AsyncClient`."""
    latencies: list[float] = []

    async def connection(client: httpx.AsyncClient, request: httpx.Request, until_s: float) -> None:
        while (started_s := time.perf_counter()) < until_s:
            response = await client.send(request)
            latencies.append(time.perf_counter() - started_s)
            response.raise_for_status()

    cpu_s = 0.0
    async with httpx.AsyncClient(transport=TRANSPORTS[name](case), timeout=TIMEOUT_S) as client:
        request = client.build_request(case.method, url + case.path, content=content)
        for length_s in (WARM_UP_S, seconds):
            latencies.clear()
            before_s, until_s = time.process_time(), time.perf_counter() + length_s
            await asyncio.gather(*(connection(client, request, until_s) for _ in range(case.connections)))
            cpu_s = time.process_time() - before_s
    percentiles, count = statistics.quantiles(latencies, n=100), len(latencies)
    return Figures(rps=count / seconds, p50_s=percentiles[49], p99_s=percentiles[98], cpu_s=cpu_s / count)


def _pool(case: Case) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(max_connections=case.connections, max_keepalive_connections=case.connections)
    return httpx.AsyncHTTPTransport(limits=limits)


TRANSPORTS: Mapping[str, Callable[[Case], httpx.AsyncBaseTransport]] = {
    "httpx": _pool,
    "httpx on LoadTransport": lambda _: LoadTransport(),
}


# --- other programs


def wrk(case: Case, url: str, seconds: int) -> Figures:
    command = ["wrk", "-t1", f"-c{case.connections}", f"-d{seconds}s", f"--timeout={TIMEOUT_S}s", "--latency"]
    if case.body:
        script = Path(case.body).with_suffix(".lua")
        script.write_text(f'wrk.method = "{case.method}"\nwrk.body = io.open("{case.body}", "rb"):read("*a")\n')
        command += ["-s", str(script)]
    output, looks = _finished([*command, url + case.path], seconds)
    if "Socket errors" in output or "Non-2xx" in output or " 0 requests in" in output:
        raise SystemExit(f"wrk saw failures, or no answer in time:\n{output}")
    found = dict(re.findall(r"^\s*(50%|99%|Requests/sec:)\s+(\S+) *$", output, re.MULTILINE))
    p50_s, p99_s = (parse_duration_ns(found[name]) / 1e9 for name in ("50%", "99%"))
    return _figures(float(found["Requests/sec:"]), p50_s, p99_s, looks, seconds)


def oha(case: Case, url: str, seconds: int) -> Figures:
    command = ["oha", "--no-tui", "--output-format=json", f"-z{seconds}s", f"-c{case.connections}", f"-m{case.method}"]
    command += [f"-t{TIMEOUT_S}s", *(["-D", case.body] if case.body else []), url + case.path]
    output, looks = _finished(command, seconds)
    found = json.loads(output)
    # What is under way at the end is cut off by oha itself.
    errors = {kind: count for kind, count in found["errorDistribution"].items() if "deadline" not in kind}
    if errors or set(found["statusCodeDistribution"]) != {"200"}:
        raise SystemExit(f"oha saw failures: {found['statusCodeDistribution']} {errors}")
    rps, latencies = found["summary"]["requestsPerSec"], found["latencyPercentiles"]
    return _figures(rps, latencies["p50"], latencies["p99"], looks, seconds)


def vegeta(case: Case, url: str, seconds: int) -> Figures:
    """Loads with vegeta, as fast as it can; it writes its results to a file, as it usually does."""
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory:
        targets, results = Path(directory) / "targets", Path(directory) / "vegeta.bin"
        body = f"@{case.body}\n" if case.body else ""
        targets.write_text(f"{case.method} {url}{case.path}\n{body}", encoding="utf-8")
        command = ["vegeta", "attack", f"-targets={targets}", f"-duration={seconds}s", f"-output={results}"]
        command += [f"-timeout={TIMEOUT_S}s", "-rate=0", f"-max-connections={case.connections}"]
        command += [f"-workers={case.connections}", f"-max-workers={case.connections}"]
        _, looks = _finished(command, seconds, directory=directory)
        report = subprocess.run(["vegeta", "report", "-type=json", str(results)], capture_output=True, check=True)
    found = json.loads(report.stdout)
    if set(found["status_codes"]) != {"200"}:
        raise SystemExit(f"vegeta saw failures: {found['status_codes']} {found['errors'][:3]}")
    latencies = found["latencies"]
    return _figures(found["throughput"], latencies["50th"] / 1e9, latencies["99th"] / 1e9, looks, seconds)


_K6_SCRIPT = """
import http from "k6/http";

export const options = {{ discardResponseBodies: true, vus: {vus}, duration: "{seconds}s" }};
const body = {body};
export default function () {{ {code} }}
export function handleSummary(data) {{ return {{ {summary}: JSON.stringify(data.metrics) }}; }}
"""
_K6_MIX = """const chance = Math.random() * 10;
  if (chance < 6) http.get("URL/item/1");
  else if (chance < 9) http.get("URL/file/1");
  else http.post("URL/upload/1", body);"""


def k6(case: Case, url: str, seconds: int) -> Figures:
    """Loads with k6; in a mix chance chooses among the parts."""
    code = f'http.request("{case.method}", "{url}{case.path}", body);'
    code, body = _K6_MIX.replace("URL", url) if case.path == "mix" else code, f'open("{case.body}", "b")'
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory:
        script, summary = Path(directory) / "script.js", Path(directory) / "summary.json"
        facts = {"vus": case.connections, "seconds": seconds, "summary": json.dumps(str(summary))}
        text = _K6_SCRIPT.format(code=code, body=body if case.body else "null", **facts)
        script.write_text(text, encoding="utf-8")
        command = ["k6", "run", "--quiet", "--no-usage-report", "--address=", "--summary-trend-stats=med,p(99)"]
        _, looks = _finished([*command, str(script)], seconds, directory=directory)
        metrics: Mapping[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
    found = {name: metric["values"] for name, metric in metrics.items()}
    if found["http_req_failed"]["rate"]:
        raise SystemExit(f"k6 saw failures: {found['http_req_failed']}")
    durations = found["http_req_duration"]
    return _figures(found["http_reqs"]["rate"], durations["med"] / 1e3, durations["p(99)"] / 1e3, looks, seconds)


PROGRAMS: Mapping[str, Callable[[Case, str, int], Figures]] = {"wrk": wrk, "oha": oha, "vegeta": vegeta, "k6": k6}
CLIENTS: Mapping[str, Callable[[Case, str, int], Figures]] = {
    OURS: fileperf,
    TWO_OF_OURS: lambda case, url, seconds: fileperf(case, url, seconds, generators=2),
    **PROGRAMS,
    **{name: _in_python(name) for name in TRANSPORTS},
}


# --- watching

Look: TypeAlias = tuple[float, float, int]
"""When a process was looked at, since it began, its CPU time until then, and the most memory that it ever held."""


def _finished(command: list[str], seconds: int, *, directory: str | None = None) -> tuple[str, list[Look]]:
    """Returns the output of a process, and how it looked meanwhile; raises if it fails or hangs."""
    looks, began_s = list[Look](), time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with on_cores(client_cores()):
            process = subprocess.Popen(command, cwd=directory, stdout=output)
        try:
            while process.poll() is None and (at_s := time.perf_counter() - began_s) < seconds + 2 * TIMEOUT_S:
                with suppress(psutil.Error, OSError):
                    times = psutil.Process(process.pid).cpu_times()
                    # `ru_maxrss` of a child would begin at its parent's.
                    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
                    looks.append((at_s, times.user + times.system, int(peak[1]) * 1024 if peak else 0))
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{output.read()}")
        return output.read(), looks


def _figures(rps: float, p50_s: float, p99_s: float, looks: Sequence[Look], seconds: int) -> Figures:
    """Returns figures with CPU as of the steady part of the run: what comes before it may cost more than the load."""
    steady = [look for look in looks if seconds / 4 <= look[0] <= seconds]
    (first_s, first_cpu_s, _), (last_s, last_cpu_s, _) = steady[0], steady[-1]
    cpu_s = (last_cpu_s - first_cpu_s) / (last_s - first_s) / rps
    return Figures(rps=rps, p50_s=p50_s, p99_s=p99_s, cpu_s=cpu_s, peak_bytes=max(look[2] for look in looks))


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    asked = Case(**job["case"])
    content = Path(asked.body).read_bytes() if asked.body else None
    seen = uvloop.run(send_in_loops(asked, job["name"], job["url"], job["seconds"], content))
    print(json.dumps(asdict(seen)))
