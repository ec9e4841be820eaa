"""Kills runs of pytest at every stage, with every kind of server, and counts what is left of them after 5 s.

    python benchmarks/kills.py RESULTS [--each 10] [--minutes 60] [--at-once 2] [--only uvicorn,load]

A case is a kind of server, a stage of the run, an app (one that behaves, or one that takes Python's lock at that stage
and never gives it back) and a signal. Each app has also detached a process from itself. Processes, known by a variable
of their environment, ports that accept connections, and directories are counted until nothing is left, for at most 5 s
from the end of pytest. Ctrl-C (SIGINT) goes to pytest and what shares its terminal.

Each result is added to RESULTS at once, so another call goes on where one has ended. Linux only.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import psutil
from bench import PYTEST, Row, campaign, parser, read, table

WAIT_S, REACHED_S, ENDED_S = 5.0, 60.0, 60.0
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

CASES = [
    case
    for case in product(KINDS, STAGES, APPS, SIGNALS)
    # An app that holds the lock of pytest's own process keeps that from seeing a Ctrl-C.
    if case[0] != "in-process" or (case[1] != "profile" and (case[2] == "polite" or case[3] != "SIGINT"))
]


def marked(value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def words_of(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error, OSError):
        return list(process.cmdline())
    return []


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def killed(case: Sequence[str], *, ignores_ctrl_c: bool = False) -> dict[str, object]:
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


def made(case: str) -> tuple[Row, str]:
    row = killed(case.split(", "))
    found = {what: row[what] for what in (*LEFT, "names", "problem") if row.get(what)}
    return row, str(found or "nothing is left")


def summary(rows: Sequence[Row], each: int) -> str:
    """Returns a table: of each kind the runs, those of them that left something, and what that was."""
    counts = Counter(row["case"] for row in rows if "problem" not in row)
    lines = []
    for kind in KINDS:
        of_kind = [row for row in rows if row["case"].startswith(f"{kind}, ")]
        own = [row for row in of_kind if "problem" not in row]
        left = [sum(bool(row[what]) for row in own) for what in LEFT]
        slowest_s = max((row["ends_s"] + row["clean_s"] for row in own), default=0.0)
        lines.append([kind, *map(str, (len(own), len(of_kind) - len(own), *left)), f"{slowest_s:.1f}"])
    enough = sum(count >= each for count in counts.values())
    said = f"{counts.total():,} runs; {enough} of {len(CASES)} cases have {each}\n"
    bad = Counter(row["case"] for row in rows if any(row.get(what) for what in (*LEFT, "problem")))
    heading = ("server", "runs", "not reached", *(f"left {what}" for what in LEFT), "slowest end, s")
    return "\n".join([said, table(heading, lines), *(f"{count}× {case}" for case, count in sorted(bad.items()))])


def main() -> None:
    options = parser(__doc__)
    options.add_argument("results", type=Path)
    options.add_argument("--each", type=int, default=10)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--at-once", type=int, default=1)
    options.add_argument("--only", default="", help="words that a case must have, with commas")
    asked = options.parse_args()
    wanted = {word for word in asked.only.split(",") if word}
    cases = [", ".join(case) for case in CASES if wanted <= set(case)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and all below
    campaign(asked.results, cases, made, runs=asked.each, minutes=asked.minutes, at_once=asked.at_once)
    print(summary(read(asked.results), asked.each))


if __name__ == "__main__":
    main()
