"""The load programs of others that benchmarks compare ours with: wrk, oha, vegeta and k6. Each runs on one core.

[wrk](https://github.com/wg/wrk), [oha](https://github.com/hatoo/oha), [vegeta](https://github.com/tsenart/vegeta) and
[k6](https://github.com/grafana/k6) are taken from PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from watched import TIMEOUT_S, Case, Figures, Watch, finished

from pytest_fileperf.units import parse_duration_ns

__all__ = ("PROGRAMS", "absent", "k6_run", "vegeta_attack")

_K6_SCRIPT = """
import http from "k6/http";

export const options = {{ discardResponseBodies: true, scenarios: {{ load: {scenario} }} }};
{before}
export default function () {{
  {code}
}}

export function handleSummary(data) {{
  return {{ {summary}: JSON.stringify(data.metrics) }};
}}
"""


def absent() -> frozenset[str]:
    """Returns which of the programs are not on PATH."""
    return frozenset(name for name in PROGRAMS if shutil.which(name) is None)


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
    percentiles = dict(re.findall(r"^\s+(50|99)%\s+(\S+) *$", output, re.MULTILINE))
    rate = re.search(r"^Requests/sec:\s+([\d.]+)", output, re.MULTILINE)
    assert rate
    p50_s, p99_s = (parse_duration_ns(percentiles[name]) / 1e9 for name in ("50", "99"))
    return _figures(float(rate[1]), p50_s, p99_s, watch, seconds)


def oha(case: Case, url: str, seconds: int) -> Figures:
    """Loads with oha."""
    command = ["oha", "--no-tui", "--output-format=json", f"-z{seconds}s", f"-c{case.connections}", f"-m{case.method}"]
    command += [f"-t{TIMEOUT_S}s", *(["-D", case.body] if case.body else []), url + case.path]
    output, watch = finished(command, seconds + 2 * TIMEOUT_S)
    found = json.loads(output)
    # What is under way at the end is cut off by oha itself.
    errors = {kind: count for kind, count in found["errorDistribution"].items() if "deadline" not in kind}
    if errors or set(found["statusCodeDistribution"]) != {"200"}:
        raise SystemExit(f"oha saw failures: {found['statusCodeDistribution']} {errors}")
    rps, latencies = found["summary"]["requestsPerSec"], found["latencyPercentiles"]
    return _figures(rps, latencies["p50"], latencies["p99"], watch, seconds)


def vegeta(case: Case, url: str, seconds: int) -> Figures:
    """Loads with vegeta, as fast as it can."""
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory:
        targets = Path(directory) / "targets"
        body = f"@{case.body}\n" if case.body else ""
        targets.write_text(f"{case.method} {url}{case.path}\n{body}", encoding="utf-8")
        return vegeta_attack(targets, seconds, connections=case.connections)


def vegeta_attack(targets: Path, seconds: int, *, connections: int, rate: int | None = None) -> Figures:
    """Loads with vegeta, from a file of targets; it writes its results beside that, as it usually does."""
    results = targets.with_name("vegeta.bin")
    command = ["vegeta", "attack", f"-targets={targets}", f"-duration={seconds}s", f"-output={results}"]
    command += [f"-timeout={TIMEOUT_S}s", f"-rate={rate or 0}", f"-max-connections={connections}"]
    command += [f"-workers={connections}", f"-max-workers={connections}"]
    _, watch = _finished_in(targets.parent, command, seconds)
    report = subprocess.run(["vegeta", "report", "-type=json", str(results)], capture_output=True, check=True)
    found = json.loads(report.stdout)
    if set(found["status_codes"]) != {"200"}:
        raise SystemExit(f"vegeta saw failures: {found['status_codes']} {found['errors'][:3]}")
    latencies = found["latencies"]
    return _figures(found["throughput"], latencies["50th"] / 1e9, latencies["99th"] / 1e9, watch, seconds)


def k6(case: Case, url: str, seconds: int) -> Figures:
    """Loads with k6."""
    before = f'const body = open("{case.body}", "b");' if case.body else "const body = null;"
    code = f'http.request("{case.method}", "{url}{case.path}", body);'
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory:
        return k6_run(Path(directory), code, seconds, before=before, connections=case.connections)


def k6_run(
    directory: Path, code: str, seconds: int, *, before: str, connections: int, rate: int | None = None
) -> Figures:
    """Loads with k6: each user runs the code again and again, and once what is `before`. Writes to the directory."""
    script, summary = directory / "script.js", directory / "summary.json"
    scenario: dict[str, object] = {"duration": f"{seconds}s"}
    if rate is None:
        scenario |= {"executor": "constant-vus", "vus": connections}
    else:
        scenario |= {"executor": "constant-arrival-rate", "rate": rate, "timeUnit": "1s"}
        scenario |= {"preAllocatedVUs": connections, "maxVUs": connections}
    text = _K6_SCRIPT.format(scenario=json.dumps(scenario), before=before, code=code, summary=json.dumps(str(summary)))
    script.write_text(text, encoding="utf-8")
    command = ["k6", "run", "--quiet", "--no-usage-report", "--address=", "--summary-trend-stats=med,p(99)"]
    _, watch = _finished_in(directory, [*command, str(script)], seconds)
    found = {name: metric["values"] for name, metric in json.loads(summary.read_text(encoding="utf-8")).items()}
    if found["http_req_failed"]["rate"]:
        raise SystemExit(f"k6 saw failures: {found['http_req_failed']}")
    durations = found["http_req_duration"]
    return _figures(found["http_reqs"]["rate"], durations["med"] / 1e3, durations["p(99)"] / 1e3, watch, seconds)


def _finished_in(directory: Path, command: list[str], seconds: int) -> tuple[str, Watch]:
    return finished(["env", "-C", str(directory), *command], seconds + 2 * TIMEOUT_S)


def _figures(rps: float, p50_s: float, p99_s: float, watch: Watch, seconds: int) -> Figures:
    """Returns figures with CPU as of the steady part of the run: what comes before it may cost more than the load."""
    cpu_s = watch.cpu_share(seconds / 4, seconds) / rps
    return Figures(rps=rps, p50_s=p50_s, p99_s=p99_s, cpu_s=cpu_s, peak_bytes=watch.peak_bytes)


PROGRAMS: dict[str, Callable[[Case, str, int], Figures]] = {"wrk": wrk, "oha": oha, "vegeta": vegeta, "k6": k6}
"""Each of them by its name on PATH."""
