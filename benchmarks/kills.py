"""Kills runs of pytest at every stage, with every kind of server, and counts what is left of them after 5 s.

    python benchmarks/kills.py RESULTS [--each 10] [--minutes 60] [--at-once 2] [--only uvicorn,load]

A case is a kind of server, a stage of the run, an app (one that behaves, or one that takes Python's lock at that stage
and never gives it back) and a signal. Each app has also detached a process from itself. What counts as left: processes,
known by a variable of their environment; ports that accept connections; directories. They are counted until nothing is
left, for 5 s at the longest from the end of pytest. Ctrl-C (SIGINT) goes to pytest and what shares its terminal.

Each result is a line of the file RESULTS, in random order, until each case has as many as asked for; another call goes
on where one has ended. Several runs at once make each of them slower, so that what is left after 5 s can only be more.
Linux only.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path

import psutil
from bench import PYTEST, Row, parser, read, table

WAIT_S = 5.0
REACHED_S = 60.0
ENDED_S = 60.0
MARK = "FILEPERF_KILLS"
KINDS = {
    "uvicorn": "Uvicorn()",
    "uvicorn x2": "Uvicorn(workers=2)",
    "gunicorn x2": "Gunicorn(workers=2)",
    "command": 'Command(["{python}", "-m", "uvicorn", "app:app", "--port={port}", "--log-level=warning"])',
    "in-process": "InProcess()",
}
STAGES = ("boot", "warm-up", "load", "profile", "teardown")
APPS = ("polite", "holding")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
LEFT = ("processes", "ports", "directories")
APP = """
import asyncio, os, re, time
from pathlib import Path

STAGE, HOLDS, DETACHES = os.environ["STAGE"], os.environ["HOLDS"] == "1", os.environ["DETACHES"] == "1"
REACHED = Path(__file__).with_name("reached")
requests = 0

def reach():
    REACHED.touch()
    if HOLDS:
        re.match("(a+)+$", "a" * 60 + "b")

if DETACHES and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ("sleep", "300"))
    os._exit(0)
if STAGE == "boot":
    reach()
    time.sleep(20)

async def app(scope, receive, send):
    global requests
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.shutdown" and STAGE == "teardown":
                reach()
                await asyncio.sleep(20)
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    requests += 1
    if STAGE == "warm-up" or (STAGE == "load" and requests > 20):
        reach()
    if STAGE == "profile" and HOLDS and REACHED.with_name("profiled").exists():
        reach()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
TEST = """
from pytest_fileperf import Command, Gunicorn, InProcess, Uvicorn

def test_it(fileperf):
    times = dict(warmup="{warmup}", duration="{duration}")
    fileperf.get("/", app="app:app", server={server}, connections=2, gate="none", **times)
"""

Case = tuple[str, str, str, str]
"""Kind, stage, app, signal."""


def cases() -> list[Case]:
    """Returns all that can be: an app that holds the lock of pytest's own process keeps that from seeing a Ctrl-C."""
    return [
        case
        for case in product(KINDS, STAGES, APPS, SIGNALS)
        if case[0] != "in-process" or (case[1] != "profile" and (case[2] == "polite" or case[3] != "SIGINT"))
    ]


def marked(value: str) -> list[psutil.Process]:
    """Returns the live processes that belong to a run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def words_of(process: psutil.Process) -> list[str]:
    """Returns its command line; nothing if it is gone."""
    with suppress(psutil.Error, OSError):
        return list(process.cmdline())
    return []


def is_open(port: int) -> bool:
    """Returns whether a port accepts connections."""
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0


def killed(case: Case, *, ignores_ctrl_c: bool = False) -> dict[str, object]:
    """Makes a run, kills it, and returns what was left.

    One that ignores Ctrl-C from its start, as those that a shell has started in the background, has a short load.
    """
    kind, stage, app, name = case
    value = f"{os.getpid()}-{random.getrandbits(40)}"
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as directory:
        project, temporary = Path(directory, "project"), Path(directory, "temporary")
        project.mkdir()
        temporary.mkdir()
        loads = {"warm-up": ("8s", "1s"), "load": ("0s", "8s"), "profile": ("0s", "0.5s")}
        warmup, duration = ("0s", "1.5s") if ignores_ctrl_c else loads.get(stage, ("0s", "0.5s"))
        (project / "app.py").write_text(APP)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "test_it.py").write_text(TEST.format(server=KINDS[kind], warmup=warmup, duration=duration))
        env = os.environ | {
            MARK: value,
            "TMPDIR": str(temporary),
            "STAGE": stage,
            "HOLDS": str(int(app == "holding")),
            "DETACHES": str(int(kind != "in-process")),  # pytest itself does not look after what is detached from it
            "PYTHONPATH": str(project),
        }
        command = (*PYTEST, "--fileperf", *["--fileperf-profile"] * (stage == "profile"))
        if ignores_ctrl_c:
            command = ("sh", "-c", 'trap "" INT; exec "$@"', "sh", *command)
        with (Path(directory) / "log.txt").open("w+b") as log:
            run = subprocess.Popen(
                command, cwd=project, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
            try:
                ports = _reach(stage, run, value, project)
                if ports is None:
                    log.seek(0)
                    return {"problem": log.read().decode(errors="replace")[-2000:]}
                begun_s = time.monotonic()
                os.killpg(run.pid, getattr(signal, name))
                with suppress(subprocess.TimeoutExpired):
                    run.wait(ENDED_S)
                ended_s = time.monotonic()
                left = _left(value, ports, temporary, project, ended_s + WAIT_S)
                times = {"ends_s": ended_s - begun_s, "clean_s": time.monotonic() - ended_s}
                return {"code": run.returncode, **times, **left}
            finally:
                for process in marked(value):
                    with suppress(psutil.Error):
                        process.kill()
                run.wait()


def _reach(stage: str, run: subprocess.Popen[bytes], value: str, project: Path) -> set[int] | None:
    """Waits until the run is at its stage; returns the ports it listens on, or None if it does not get there."""
    until_s = time.monotonic() + REACHED_S
    while time.monotonic() < until_s and run.poll() is None:
        time.sleep(0.02)
        if stage == "profile":
            time.sleep(0.1)
            if not any(word.endswith("py-spy") for process in marked(value) for word in words_of(process)[:1]):
                continue
            (project / "profiled").touch()
            time.sleep(0.5)
        elif (project / "reached").exists():
            time.sleep(random.uniform(0.1, 0.5))
        else:
            continue
        ports = set()
        for process in marked(value):
            with suppress(psutil.Error):
                connections = process.net_connections("tcp")
                ports |= {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
        return ports
    return None


def _left(value: str, ports: set[int], temporary: Path, project: Path, until_s: float) -> dict[str, object]:
    while True:
        processes = marked(value)
        directories = [*temporary.iterdir(), *project.rglob(".fileperf-*")]
        open_ports = [port for port in ports if is_open(port)]
        if not (processes or directories or open_ports) or time.monotonic() > until_s:
            names = [" ".join(words_of(process))[-200:] for process in processes]
            return {
                "processes": len(processes),
                "ports": len(open_ports),
                "directories": len(directories),
                "names": [*names, *map(str, directories)],
            }
        time.sleep(0.1)


def summary(rows: Sequence[Row], each: int) -> str:
    """Returns a table: of each kind the runs, those of them that left something, and what that was."""
    made = [row for row in rows if "problem" not in row]
    counts = Counter(tuple(row["case"]) for row in made)
    by_signal = Counter(row["case"][3] for row in made)
    lines = []
    for kind in KINDS:
        own = [row for row in made if row["case"][0] == kind]
        missed = sum(row["case"][0] == kind for row in rows) - len(own)
        left = [sum(bool(row[what]) for row in own) for what in LEFT]
        slowest_s = max((row["ends_s"] + row["clean_s"] for row in own), default=0.0)
        lines.append([kind, *map(str, (len(own), missed, *left)), f"{slowest_s:.1f}"])
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(by_signal.items()))
    enough = sum(count >= each for count in counts.values())
    said = f"{len(made):,} runs ({told}); {enough} of {len(cases())} cases have {each}"
    bad = Counter(tuple(row["case"]) for row in rows if any(row.get(what) for what in (*LEFT, "problem")))
    heading = ("server", "runs", "not reached", *(f"left {what}" for what in LEFT), "slowest end, s")
    return "\n".join(
        [
            f"{said}, {len(cases()) - len(counts)} have none\n",
            table(heading, lines),
            *(f"{count}× {', '.join(case)}" for case, count in sorted(bad.items())),
        ]
    )


def main() -> None:
    """Makes the runs that are missing, and prints the table."""
    options = parser(__doc__)
    options.add_argument("results", type=Path)
    options.add_argument("--each", type=int, default=10)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--at-once", type=int, default=1)
    options.add_argument("--only", default="", help="words that a case must have, with commas")
    asked = options.parse_args()
    wanted = {word for word in asked.only.split(",") if word}
    until_s = time.monotonic() + 60 * asked.minutes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and all below
    made = Counter(tuple(row["case"]) for row in read(asked.results) if "problem" not in row)
    left = [case for case in cases() if wanted <= set(case) for _ in range(asked.each - made[case])]
    random.shuffle(left)
    writing = threading.Lock()
    with ThreadPoolExecutor(asked.at_once) as pool, asked.results.open("a") as file:

        def make(case: Case) -> None:
            if time.monotonic() > until_s:
                return
            result = killed(case)
            with writing:
                file.write(json.dumps({"case": case, **result}) + "\n")
                file.flush()
            if any(result.get(what) for what in (*LEFT, "problem")):
                sys.stderr.write(f"{case}: {result}\n")

        list(pool.map(make, left))
    sys.stdout.write(summary(read(asked.results), asked.each) + "\n")


if __name__ == "__main__":
    main()
