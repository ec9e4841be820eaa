"""Like with like, and what was left out: memory, answers, warm-ups and start-ups are compared, or said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from contracts.project import Project, results

pytestmark = pytest.mark.timeout(300)  # up to three comparisons on a busy machine
APP = """
import asyncio, os, sys, time
from pathlib import Path

kept, reading = [], []
SIZE = {size}
BODY = {body}
MISSING = {missing}
starts = Path(os.environ.get("STARTS_FILE", os.devnull))
WAIT = {seconds}
def begin():
    global WAIT
    if os.environ.get("STARTS_FILE"):
        begun = int(starts.read_text() or 0) if starts.exists() else 0
        starts.write_text(str(begun + 1))
        WAIT = 0.02 * 2.2 ** (begun % 3)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return begin()
    if scope["path"] == "/cold" and not reading:
        reading.append(time.monotonic())
    kept.append(bytes(SIZE))
    await asyncio.sleep(0.01 if scope["path"] == "/cold" else WAIT)
    status = 500 if scope["path"] == "/cold" and time.monotonic() < reading[0] + 0.15 else 200
    if log := os.environ.get("ANSWERS_LOG"):
        with open(log, "a") as file:
            file.write(str(status) + "\\n")
    length = [(b"content-length", str(len(BODY)).encode())]
    await send({{"type": "http.response.start", "status": MISSING or status, "headers": length}})
    await send({{"type": "http.response.body", "body": BODY}})
"""
TESTS = """
def test_it(fileperf):
    fileperf.get({path!r}, connections=4, {keys})
"""


def app(*, size: int = 0, seconds: float = 0.002, body: str = 'b"ok"', missing: int = 0) -> str:
    return APP.format(size=size, seconds=seconds, body=body, missing=missing)


def load_of(keys: str, path: str = "/") -> str:
    return TESTS.format(path=path, keys=keys)


def gate_of(record: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    (found,) = (item for item in record["verdict"]["comparisons"] if item["metric"] == metric)
    return dict(found)


def test_a_leak_counts_by_requests_and_not_by_speed(project: Project) -> None:
    keys = 'max_duration="8s", gate=("rss",)'
    slow = app(size=20_000, seconds=0.008)
    project.write({"before/app.py": slow, "app.py": app(size=20_000), "test_load.py": load_of(keys)})

    same = project.told("requests each", "--fileperf-against=./before")
    assert same.status == 0, same.text
    memory = gate_of(results(same)["test_it"], "rss")
    assert memory["outcome"] != "REGRESSED"
    assert abs(memory["change"]) < 0.05
    assert f"memory after {memory['after_requests']:,} requests each" in same.said, same.text


def test_a_leak_that_grew_is_worse_though_it_is_slower(project: Project) -> None:
    keys = 'max_duration="8s", gate=("rss",)'
    leaks = app(size=200_000, seconds=0.008)
    project.write({"before/app.py": app(size=1_000), "app.py": leaks, "test_load.py": load_of(keys)})

    grown = project.told("REGRESSED", "--fileperf-against=./before")
    assert grown.status == 1, grown.text
    assert gate_of(results(grown)["test_it"], "rss")["outcome"] == "REGRESSED"
    assert "requests each" in grown.said, grown.text


def test_other_answers_are_said_and_are_no_improvement(project: Project) -> None:
    before = app(seconds=0.008, body='b"x" * 11_750')
    broken = app(body='b\'{"error": "no table here"}\'')
    keys = 'max_duration="8s", gate=("rps",)'
    project.write({"before/app.py": before, "app.py": broken, "test_load.py": load_of(keys)})

    ran = project.told("answers have other sizes", "--fileperf-against=./before")
    assert ran.status == 0, ran.text
    assert gate_of(results(ran)["test_it"], "rps")["outcome"] == "INCONCLUSIVE"
    assert "answers have other sizes: 11.5 KiB before, 26 B now" in ran.said, ran.text
    (other,) = results(ran)["test_it"]["other_answers"]
    assert (other["base"]["size"], other["now"]["size"]) == (11_750, 26)


def test_failed_requests_of_warm_ups_are_counted_as_the_app_does(project: Project, tmp_path: Path) -> None:
    keys = 'duration="0.4s", warmup="0.4s", boots=1, gate="none"'
    project.write({"app.py": app(), "test_load.py": load_of(keys, "/cold")})
    log = tmp_path / "answers.log"

    ran = project.run(env={"ANSWERS_LOG": str(log)})
    assert ran.status == 0, ran.text
    failed = log.read_text().split().count("500")
    assert failed
    (boot,) = results(ran)["test_it"]["boots"]
    assert boot["warm_up"]["failed"] == failed
    made = boot["warm_up"]["failed"] + boot["warm_up"]["requests"]
    assert f"{failed} of {made} warm-up requests failed: {failed} × status 500" in ran.said, ran.text


def test_start_ups_that_get_slower_are_said(project: Project, tmp_path: Path) -> None:
    keys, fell = 'duration="5s", warmup="0.1s", boots=3, gate="none"', "requests/s fell from start-up to start-up"
    project.write({"app.py": app(), "test_load.py": load_of(keys)})

    ran = project.told(fell, env={"STARTS_FILE": str(tmp_path / "starts")})
    assert ran.status == 0, ran.text
    assert fell in ran.said, ran.text
    assert "something is kept between start-ups" in ran.said, ran.text


def test_start_ups_with_many_page_faults_are_not_said_to_have_memory_alike(project: Project) -> None:
    faulty = app().replace("    await asyncio.sleep(", "    touch(scope['path'])\n    await asyncio.sleep(")
    faulty += """
import mmap

def touch(path):
    if path == "/pages":
        memory = mmap.mmap(-1, 1 << 20)
        for at in range(0, 1 << 20, 4096):
            memory[at] = 1
"""
    load = 'fileperf.get("{}", duration="0.5s", boots=1, gate="none")'
    tests = f"def test_pages(fileperf): {load.format('/pages')}\ndef test_few(fileperf): {load.format('/')}\n"
    ran = project.write({"app.py": faulty, "test_load.py": tests}).run()

    pages, few = (set(results(ran)[name]["boots"][0]["stabilised"]) for name in ("test_pages", "test_few"))
    assert "hash seed" in pages
    assert "addresses" not in pages
    assert few - pages <= {"addresses"}
