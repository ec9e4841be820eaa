"""A process that does as it is told, for what is seen of it from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from pytest_fileperf.host.threads import RUNNING, Observation, ThreadWatch

PATIENCE_S = 20.0

SCRIPT = """
import select, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(4)
go_on = threading.Event()
lock = threading.Lock()
work, files = [], []

def told():
    return bool(select.select([sys.stdin], [], [], 0)[0])

def nap():
    while not go_on.is_set():
        time.sleep(0.02)

def wait():
    with lock:
        pass

threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("here", flush=True)
for line in sys.stdin:
    what, _, count = line.strip().partition(" ")
    if what == "nap":
        go_on.clear()
        work.extend(pool.submit(nap) for _ in range(int(count)))
    elif what == "wait":
        lock.acquire()
        work.extend(pool.submit(wait) for _ in range(int(count)))
    elif what == "rest":
        go_on.set()
        if lock.locked():
            lock.release()
        for one in work:
            one.result()
        work.clear()
    elif what == "open":
        files.extend(open(sys.executable, "rb") for _ in range(int(count)))
    print("done", flush=True)
    while what == "spin" and not told():
        pass
    while what == "sleep" and not told():
        time.sleep(0.02)
"""


class Scripted:
    """Its main thread waits for orders, and one of its threads sleeps all the time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def do(self, what: str) -> None:
        """Returns when it has begun: `nap` and `wait` with so many threads of 4, `spin` and `sleep` with the main one.

        `rest` ends what threads do, and returns when they have.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.read("done")

    def read(self, answer: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{answer}\n"


@contextmanager
def scripted() -> Iterator[Scripted]:
    """Runs such a process, and ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            found = Scripted(process)
            found.read("here")
            with closing(ThreadWatch(found.pid)) as watch:  # it has said so, and its threads may not wait yet
                until(lambda: RUNNING not in watch.observe().places)
            yield found
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def settled(watch: ThreadWatch) -> Observation:
    """Returns an observation of threads that have come to where they go, the main one apart."""
    before = watch.observe()
    while True:
        time.sleep(0.01)
        now = watch.observe()
        if now.places[1:] == before.places[1:] and RUNNING not in now.places[1:]:
            return now
        before = now
