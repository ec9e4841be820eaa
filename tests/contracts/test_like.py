"""Like with like, and what was left out: memory, answers, warm-ups and start-ups are compared, or said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from contracts.project import Project, Ran, results

APP = """
import asyncio, mmap, sys, time
from pathlib import Path

kept, reading = [], []
SIZE = {size}
BODY = {body}
FILES = Path(__file__).parent
WAIT = {seconds}
def begin():
    global WAIT
    if {slower}:
        starts = FILES / "starts.txt"
        begun = int(starts.read_text() or 0) if starts.exists() else 0
        starts.write_text(str(begun + 1))
        WAIT = 0.01 * 2.2 ** (begun % 3)

def touch():
    memory = mmap.mmap(-1, 1 << 20)
    for at in range(0, 1 << 20, 4096):
        memory[at] = 1

async def app(scope, receive, send):
    if scope["type"] != "http":
        return begin()
    if scope["path"] == "/cold" and not reading:
        reading.append(time.monotonic())
        (FILES / "answers.txt").write_text("")
    kept.append(b"x" * SIZE)  # touched, so that it takes memory
    await asyncio.sleep(0.01 if scope["path"] == "/cold" else WAIT)
    status = 500 if scope["path"] == "/cold" and time.monotonic() < reading[0] + 0.15 else 200
    if scope["path"] == "/pages":
        touch()
    if scope["path"] == "/cold":
        with open(FILES / "answers.txt", "a") as file:
            file.write(str(status) + "\\n")
    length = [(b"content-length", str(len(BODY)).encode())]
    await send({{"type": "http.response.start", "status": status, "headers": length}})
    await send({{"type": "http.response.body", "body": BODY}})
"""


def app(*, size: int = 0, seconds: float = 0.002, body: str = 'b"ok"', slower: bool = False) -> str:
    return APP.format(size=size, seconds=seconds, body=body, slower=slower)


def gate_of(record: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    (found,) = (item for item in record["verdict"]["comparisons"] if item["metric"] == metric)
    return dict(found)


COMPARED = """
def test_same(fileperf):
    fileperf.get("/", app="app_same:app", connections=4, max_duration="8s", gate="rss")

def test_grown(fileperf):
    fileperf.get("/", app="app_grown:app", connections=4, max_duration="8s", gate="rss")

def test_answers(fileperf):
    fileperf.get("/", app="app_answers:app", connections=4, max_duration="8s", gate="rps")
"""
TOLD = {
    "same": "requests each",
    "grown": "REGRESSED",
    "answers": "answers have other sizes: 11.5 KiB before, 26 B now",
}


@pytest.mark.timeout(400)
def test_memory_is_compared_after_as_many_requests_and_other_answers_are_no_improvement(project: Project) -> None:
    """A leak counts by requests and not by speed: one that grew is worse though it is slower."""
    apps = {
        "same": (app(size=20_000, seconds=0.008), app(size=20_000)),
        "grown": (app(size=1_000), app(size=200_000, seconds=0.008)),
        "answers": (app(seconds=0.008, body='b"x" * 11_750'), app(body='b\'{"error": "no table here"}\'')),
    }
    for name, (before, now) in apps.items():
        project.write({f"before/app_{name}.py": before, f"app_{name}.py": now})
    project.write({"test_load.py": COMPARED})

    def missed(name: str, ran: Ran) -> list[str]:
        few = gate_of(results(ran)[f"test_{name}"], "rps" if name == "answers" else "rss")["change"] is None
        return ["a change"] * few + [TOLD[name]] * (TOLD[name] not in " ".join(paragraph(ran, name).split()))

    last = project.each_told(TOLD, missed, "--fileperf-against=./before")
    same, grown, answers = (results(last[name])[f"test_{name}"] for name in TOLD)

    memory = gate_of(same, "rss")
    assert memory["outcome"] != "REGRESSED", last["same"].text
    assert abs(memory["change"]) < 0.05
    assert f"is compared after {memory['after_requests']:,} requests" in last["same"].said, last["same"].text
    assert gate_of(grown, "rss")["outcome"] == "REGRESSED", last["grown"].text
    assert "is compared after" in " ".join(paragraph(last["grown"], "grown").split()), last["grown"].text
    assert re.search(r"rss rose by \d", last["grown"].said), last["grown"].text
    assert not grown.get("profile"), "memory costs no time: it has no cause among waits and functions"
    assert gate_of(answers, "rps")["outcome"] == "INCONCLUSIVE", last["answers"].text
    assert answers["standing"] == "INCONCLUSIVE"
    assert TOLD["answers"] in last["answers"].said, last["answers"].text
    (other,) = answers["other_answers"]
    assert (other["base"]["size"], other["now"]["size"]) == (11_750, 26)


def paragraph(ran: Ran, name: str) -> str:
    """Returns what the summary says of a test."""
    found = re.search(rf"^test_{name}  .*?(?=^\S)", ran.text, re.DOTALL | re.MULTILINE)
    return found[0] if found else ""


ALONE = """
def test_cold(fileperf):
    fileperf.get("/cold", connections=4, duration="0.4s", warmup="0.4s", boots=1, gate="none")

def test_pages(fileperf):
    fileperf.get("/pages", duration="0.5s", boots=1, gate="none")

def test_few(fileperf):
    fileperf.get("/", duration="0.5s", boots=1, gate="none")

def test_slower(fileperf):
    fileperf.get("/", app="app_slower:app", connections=4, duration="2s", warmup="0.1s", boots=3, gate="none")
"""


@pytest.mark.timeout(400)
def test_failed_warm_ups_and_start_ups_that_differ_are_said(project: Project) -> None:
    """Start-ups with many page faults have other memory, too; some get slower from one to the next."""
    fell = "requests/s fell from start-up to start-up"
    project.write({"app.py": app(), "app_slower.py": app(slower=True), "test_load.py": ALONE})
    ran = project.told(fell)

    assert ran.status == 0, ran.text
    assert fell in ran.said, ran.text
    assert "Start-ups share something" in ran.said, ran.text

    found = results(ran)
    failed = (project.top / "answers.txt").read_text().split().count("500")
    assert failed
    (boot,) = found["test_cold"]["boots"]
    assert boot["warm_up"]["failed"] == failed
    made = boot["warm_up"]["failed"] + boot["warm_up"]["requests"]
    assert f"{failed} of {made} warm-up requests failed: {failed} × status 500" in ran.said, ran.text

    pages, few = (set(found[name]["boots"][0]["stabilised"]) for name in ("test_pages", "test_few"))
    assert "hash seed" in pages
    assert "addresses" not in pages
    assert few - pages <= {"addresses"}
