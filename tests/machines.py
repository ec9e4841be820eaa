"""Two machines on this one: network namespaces joined by a cable (a veth pair), made and removed by the test.

    here  10.77.0.1 ═════════ 10.77.0.2  there
          scheduler, server              workers, whose clock may be another

Nothing of it reaches a real network: both ends of the cable are in the two namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil

__all__ = ("HERE", "OTHER", "THERE", "DaskCluster", "Machines", "NotAllowedError", "dask_cluster", "machines")

HERE, THERE = "10.77.0.1", "10.77.0.2"
OTHER = "load.test"
"""What the machine there is called in both."""
_PORT = 8786
_PATIENCE_S = 60.0
_numbers = count()


class NotAllowedError(Exception):
    """This system lets nobody, or not this user, make network namespaces; the message says what it said."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The two namespaces. Processes are started in them by what comes before their command."""

    here: str
    there: str

    def on(self, namespace: str, *, ahead_s: int = 0) -> list[str]:
        """Returns what a command begins with that runs in a namespace; its clock may be ahead."""
        clock = ["unshare", "--time", "--monotonic", str(ahead_s), "--boottime", str(ahead_s)] if ahead_s else []
        return ["ip", "netns", "exec", namespace, *clock]

    def cut(self) -> None:
        """Takes the cable out."""
        _ip("-n", self.there, "link", "set", "cable", "down")

    def join(self) -> None:
        """Puts the cable back in."""
        _ip("-n", self.there, "link", "set", "cable", "up")


@contextmanager
def machines(*, delay_ms: float = 0.0, jitter_ms: float = 0.0) -> Iterator[Machines]:
    """Gives two namespaces, and removes them; the cable takes that long, each way. Raises NotAllowedError."""
    number = next(_numbers)
    here, there = (f"fileperf-{os.getpid()}-{number}-{place}" for place in ("here", "there"))
    with ExitStack() as closing:
        try:
            for name in (here, there):
                _ip("netns", "add", name)
                closing.callback(_removed, name)
                _name_hosts(name, closing)
                _ip("-n", name, "link", "set", "lo", "up")
            if delay_ms:
                closing.enter_context(_slow_cable(here, there, delay_ms, jitter_ms))
            else:
                _ip("-n", here, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", there)
            for name, address in ((here, HERE), (there, THERE)):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                _ip("-n", name, "link", "set", "cable", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotAllowedError(str(getattr(error, "stderr", "") or error).strip()) from error
        yield Machines(here, there)


@dataclass(slots=True)
class DaskCluster:
    """A scheduler here, and workers."""

    machines: Machines
    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)


@contextmanager
def dask_cluster(
    joined: Machines,
    logs: Path,
    *,
    workers: int = 2,
    near: int = 0,
    ahead_s: int = 0,
    environment: Sequence[tuple[str, str]] = (),
) -> Iterator[DaskCluster]:
    """Gives a Dask cluster of plain `dask` processes, and ends them; their output goes to files below `logs`.

    The first `near` workers are on the scheduler's machine. `ahead_s` is by how much the clock of all workers is ahead.
    """
    address = f"tcp://{HERE}:{_PORT}"
    with ExitStack() as closing:
        arguments = ["scheduler", "--host", HERE, "--port", str(_PORT), "--dashboard-address", "127.0.0.1:0"]
        scheduler = closing.enter_context(
            _started(joined.on(joined.here), arguments, logs / "scheduler.log", environment)
        )
        _wait_for(logs / "scheduler.log", "Scheduler at:")
        cluster = DaskCluster(joined, address, scheduler)
        for number in range(workers):
            place, host = (joined.here, HERE) if number < near else (joined.there, THERE)
            arguments = [
                "worker",
                address,
                "--host",
                host,
                "--no-nanny",
                "--dashboard-address",
                "127.0.0.1:0",
                "--nthreads",
                "1",
            ]
            prefix, log = joined.on(place, ahead_s=ahead_s), logs / f"worker-{number}.log"
            cluster.workers.append(closing.enter_context(_started(prefix, arguments, log, environment)))
        for number in range(workers):
            _wait_for(logs / f"worker-{number}.log", "Registered to")
        yield cluster


@contextmanager
def _started(
    prefix: list[str], arguments: list[str], log: Path, environment: Sequence[tuple[str, str]]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "dask", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **dict(environment)},
            cwd=log.parent,
        )
    try:
        yield process
    finally:
        with suppress(psutil.Error):
            for child in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
                with suppress(psutil.Error):
                    child.kill()
        process.wait(10)


def _wait_for(log: Path, words: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while words not in log.read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log.name} never said {words!r}:\n{log.read_text(encoding='utf-8', errors='replace')}")
        time.sleep(0.05)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)


@contextmanager
def _slow_cable(here: str, there: str, delay_ms: float, jitter_ms: float) -> Iterator[None]:
    script = str(Path(__file__).with_name("slow_cable.py"))
    with subprocess.Popen(
        [sys.executable, script, here, there, str(delay_ms), str(jitter_ms)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline() != "joined\n":
                raise OSError(process.stderr.read())
            yield
        finally:
            process.kill()


def _name_hosts(namespace: str, closing: ExitStack) -> None:
    """Gives the namespace a name for the machine there: processes that `ip netns exec` starts in it see this file."""
    etc = Path("/etc/netns") / namespace
    etc.mkdir(parents=True)
    closing.callback(shutil.rmtree, etc)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{THERE} {OTHER}\n", encoding="ascii")


def _removed(namespace: str) -> None:
    with suppress(subprocess.CalledProcessError):
        _ip("netns", "delete", namespace)
