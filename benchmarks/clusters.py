"""Loads through Dask clusters: on two machines that are network namespaces of this one, and by simulated generators.

    python benchmarks/clusters.py clocks [--times 10]    what is said of a clock that is 3 s ahead, 20 ms away
    python benchmarks/clusters.py faults [--times 10]    a worker killed, stopped, or cut off, in the middle of a load
    python benchmarks/clusters.py many [--workers 200]   split, collect and merge, without any load
    python benchmarks/clusters.py start [--times 10]     how much later a run ends that is made by a cluster

The first two make namespaces and remove them, which needs root. Nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from pytest_fileperf.drive import remote
from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.generator import Begin, LoadOrder, Ready
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunResult
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Phase, Round
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation

HERE_IS = Path(__file__).parent
TESTS = HERE_IS.parent / "tests"
sys.path.append(str(TESTS))

from machines import HERE, DaskCluster, dask_cluster, machines  # noqa: E402 - a test's, as its own tests use it

AHEAD_NS = 3_000_000_000
LOAD_S, TIMEOUT_S = 4.0, 2.0
MARK = f"FILEPERF_CLUSTERS_{os.getpid()}"
"""An environment variable of the workers, which their generators inherit."""
STARTED = "def test_start(fileperf): fileperf.get('/tiny', requests=100, gate='none', max_error_rate='100%')"
FAULTS = ("killed", "stopped", "cut off")


def main() -> None:
    """Runs what is asked for, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("clocks", "faults", "many", "start"))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--faults", default=",".join(FAULTS), help="which of them: %(default)s")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # namespaces are removed then, too
    if asked.what == "many":
        many(asked.workers)
    elif asked.what == "start":
        start(asked.times)
    elif asked.what == "clocks":
        clocks(asked.times)
    else:
        faults(asked.faults.split(","), asked.times)


def clocks(times: int) -> None:
    """Compares what each load says of the workers' clocks with the truth."""
    off_ms: list[float] = []
    said_ms: list[float] = []
    with far_cluster(delay_ms=20, jitter_ms=5) as far:
        for _ in range(times):
            found = load_of(far, seconds=0.4)
            for ahead_ns, error_ns, _ in found["clocks"]:
                off_ms.append(abs(ahead_ns - AHEAD_NS) / 1e6)
                said_ms.append(error_ns / 1e6)
    held = sum(off <= said for off, said in zip(off_ms, said_ms, strict=True))
    print("| loads | workers | off by, median | greatest | error that is said, median | holds |")
    print("|--:|--:|--:|--:|--:|--:|")
    print(
        f"| {times} | 2 | {median(off_ms):.2f} ms | {max(off_ms):.2f} ms | {median(said_ms):.1f} ms"
        f" | {held} of {len(off_ms)} |"
    )


def faults(which: Sequence[str], times: int) -> None:
    """Does each fault to one of two workers, on a new cluster each time; prints how loads ended."""
    print("| fault | times | ended after the fault (median, longest) | said so | rest kept | left after 5 s |")
    print("|---|--:|--:|--:|--:|--:|")
    for fault in which:
        seconds: list[float] = []
        said = kept = left = 0
        for _ in range(times):
            with far_cluster(near=1) as far:
                found, took_s = load_with(far, fault)
                seconds.append(took_s)
                said += found.get("lost", {}) != {} and len(found["lost"]) == 1
                kept += [count for *_, count in found.get("rounds", ())][-1:] == [1] and found["requests"] > 0
                for worker in far.workers:
                    worker.send_signal(signal.SIGCONT)
                far.machines.join()
                left += left_behind(far)
        ended = f"{median(seconds):.1f} s, {max(seconds):.1f} s"
        print(f"| {fault} | {times} | {ended} | {said} | {kept} | {left} |", flush=True)


def load_with(far: DaskCluster, fault: str) -> tuple[dict[str, Any], float]:
    """Makes a load, in the middle of which the fault happens; returns what it found, and how long after it ended."""
    with running(far, LOAD_S) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0.2, 0.6) * LOAD_S)
        if fault == "cut off":
            far.machines.cut()
        else:
            far.workers[1].send_signal(signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        at_s = time.monotonic()
        return answer_of(process), time.monotonic() - at_s


def left_behind(far: DaskCluster) -> int:
    """Returns how many generators run on workers 5 s later."""
    deadline = time.monotonic() + 5
    while (count := len(generator_processes())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return count


def generator_processes() -> list[psutil.Process]:
    """Returns every process that runs a generator of ours."""
    found = psutil.process_iter(["cmdline", "environ"])
    return [
        process
        for process in found
        if "pytest_fileperf.drive" in (process.info["cmdline"] or ()) and MARK in (process.info["environ"] or ())
    ]


@contextmanager
def far_cluster(*, near: int = 0, delay_ms: float = 0.0, jitter_ms: float = 0.0) -> Iterator[DaskCluster]:
    """Gives two workers whose clock is 3 s ahead; all but some `near` ones are on another machine."""
    with (
        tempfile.TemporaryDirectory(prefix="fileperf-clusters-") as logs,
        machines(delay_ms=delay_ms, jitter_ms=jitter_ms) as joined,
        dask_cluster(
            joined, Path(logs), near=near, ahead_s=3, environment=(("PYTHONPATH", str(TESTS)), (MARK, "1"))
        ) as far,
    ):
        yield far


def load_of(far: DaskCluster, *, seconds: float) -> dict[str, Any]:
    """Returns what one load found."""
    with running(far, seconds) as process:
        return answer_of(process)


@contextmanager
def running(far: DaskCluster, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Gives the process that makes a load."""
    joined, script = far.machines, str(TESTS / "drive" / "far.py")
    command = [*joined.on(joined.here), sys.executable, script, far.address, HERE, str(seconds), "--allow", HERE]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        [*command, "--timeout", str(TIMEOUT_S)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns what the process found."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


# --- the start of a run


def start(times: int) -> None:
    """Compares a short test run with and without a cluster of two workers, in turn."""
    from distributed import LocalCluster

    local_s: list[float] = []
    cluster_s: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="fileperf-clusters-") as directory,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
    ):
        project = Path(directory)
        (project / "pytest.ini").write_text("[pytest]\npythonpath = .\nfileperf_app = app:app\n", encoding="ascii")
        (project / "app.py").write_text((HERE_IS / "app.py").read_text(encoding="utf-8"), encoding="utf-8")
        (project / "test_start.py").write_text(STARTED, encoding="ascii")
        for _ in range(times):
            local_s.append(_run_s(project, "--fileperf-generators=2"))
            cluster_s.append(_run_s(project, f"--fileperf-cluster={local.scheduler_address}"))
    later = [one - other for one, other in zip(cluster_s, local_s, strict=True)]
    print("| two processes here | two workers | later by (median, quickest, slowest) |\n|--:|--:|--:|")
    by = f"{median(later):.2f} s, {min(later):.2f}, {max(later):.2f}"
    print(f"| {median(local_s):.2f} s | {median(cluster_s):.2f} s | {by} |")


def _run_s(project: Path, option: str) -> float:
    begun_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--fileperf", option, str(project)]
    subprocess.run(command, check=True, capture_output=True, cwd=project, timeout=60)
    return time.monotonic() - begun_s


# --- many generators


class Simulated:
    """A generator that has measured as soon as it is told to begin."""

    pid = 0
    results: Sequence[RunResult] = ()
    numbers = count()

    def __init__(self, *, path: tuple[str, ...]) -> None:
        self._put: Callable[[object], None] = lambda _: None
        self._found = self.results[next(self.numbers) % len(self.results)]

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Is ready at once."""
        self._put = put
        put(Ready())

    def send(self, message: object) -> None:
        """Answers with rounds as a load of 12 rounds has them, which are known: other machines would make them."""
        if isinstance(message, Begin):
            self._put((self._found,))

    def ended(self) -> str:
        """Never ends."""
        return ""

    log_tail = ended

    def shorten_log(self) -> None:
        """Has no log."""

    close = shorten_log


def result_of() -> RunResult:
    """Returns what a generator found."""
    values = np.random.default_rng().lognormal(17, 0.3, 5_000).astype(np.int64)
    latency = Histogram.of(values)
    rounds = tuple(
        Round(
            boot=0,
            index=index,
            phase=Phase.ROUND,
            started_ns=index * 10**9,
            ended_ns=(index + 1) * 10**9,
            requests=latency.count,
            latency=latency,
            ttfb=latency,
            bytes_sent=0,
            bytes_received=latency.count,
            server_cpu_ns=None,
        )
        for index in range(12)
    )
    return RunResult(
        boot=0,
        rounds=rounds,
        engine="replay",
        why_engine="",
        attack=(0, 12 * 10**9),
        attack_ns=12 * 10**9,
    )


def many(workers: int) -> None:
    """Makes loads by so many simulated generators, on workers that are threads of this process."""
    import dask
    from distributed import LocalCluster

    # So many workers of one process would look at it all the time.
    dask.config.set({"distributed.admin.system-monitor.interval": "1h", "distributed.worker.profile.enabled": False})
    Simulated.results = [result_of() for _ in range(16)]
    setattr(remote, "Generator", Simulated)  # noqa: B010 - no name that the module offers
    plan = LoadPlan(connections=workers, warmup_ns=0, round_ns=10**9, rounds=12, timeout_ns=10**9, generators=workers)
    target = Target(boot=0, url="http://127.0.0.1:9")
    print("| load | split, collected, merged in | memory | requests |\n|---|--:|--:|--:|")
    with (
        LocalCluster(
            n_workers=workers,
            protocol="tcp",
            processes=False,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
        ) as local,
        closing(Cluster(local.scheduler_address)) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        print(f"(workers answered: {cluster.workers().count})")
        process = psutil.Process()
        for name in ("first", "second", "third"):
            before_bytes, begun_s = process.memory_info().rss, time.monotonic()
            made = generators.run(
                (Operation(method="GET", url="/"),),
                replace(plan),
                (target,),
                pids=((),),
                cores=None,
                progress=lambda _: None,
                check=lambda: None,
            )
            took_s = time.monotonic() - begun_s
            grew = (process.memory_info().rss - before_bytes) / 2**20
            requests = sum(own.requests for own in made.results[0].rounds)
            print(f"| {name} | {took_s:.2f} s | +{grew:.0f} MiB | {requests:,} |", flush=True)
            assert requests == workers * 12 * 5_000
            assert not made.lost


if __name__ == "__main__":
    main()
