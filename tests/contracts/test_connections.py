"""How many connections a load opens: as many as it needs, when it needs them."""

from __future__ import annotations

import re
import sys

import pytest
from contracts.project import Project, results

COUNTING = """
import asyncio

opened = set()

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    opened.add(tuple(scope["client"]))
    if scope["path"] == "/opened":
        body = str(len(opened) - 1).encode()
    else:
        await asyncio.sleep(0.005)
        body = b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
WSGI = """
import time

def app(environ, start_response):
    time.sleep(0.005)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
"""


TESTS = """
from pytest_fileperf import Command, part, uniform

SYNC = ["{python}", "-m", "gunicorn", "-b", "127.0.0.1:{port}", "wsgi:app"]
ONE = Command([*SYNC, "-w", "1"], workers=1)
RESTARTING = Command([*SYNC, "-w", "2", "--max-requests", "50"])
LIMITED = Command(["{python}", "-m", "uvicorn", "app:app", "--port", "{port}", "--limit-concurrency", "8"])

def say(client):
    print("OPENED", client.get("/opened").text)

def test_rate(fileperf):
    fileperf.get("/", rate=20, duration="1s", boots=1, warmup="0.2s", gate="none", teardown=say)

def test_users(fileperf):
    pause = uniform("0.3s", "0.6s")
    fileperf.get("/", connections=40, pause=pause, duration="1s", boots=1, warmup="0.3s", gate="none")

def test_capacity(fileperf):
    load = {"max_p50": "500ms", "max_duration": "4s", "boots": 1, "gate": "none", "max_error_rate": "50%"}
    works = {part.get("/", name="one"): 1, part.get("/two", name="two"): 1}
    fileperf.capacity.mix(works, server=LIMITED, **load)

def test_sync_rate(fileperf):
    fileperf.get("/", server=ONE, rate=50, duration="1s", boots=1, warmup="0.2s", timeout="8s", gate="none")

def test_sync_closed(fileperf):
    fileperf.get("/", server=ONE, connections=4, duration="0.5s", boots=1, warmup="0.2s", gate="none")

def test_restarting(fileperf):
    fileperf.get("/", server=RESTARTING, connections=2, duration="1.5s", boots=1, gate="none", max_error_rate=1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork")
def test_a_load_opens_no_more_connections_than_it_needs_and_counts_them(project: Project) -> None:
    ran = project.write({"app.py": COUNTING, "wsgi.py": WSGI, "test_load.py": TESTS}).run("-v", "-s")

    assert ran.status == 0, ran.text
    found = results(ran)
    opened = int(ran.said.split("OPENED ")[1].split()[0])
    assert 1 <= opened < 20
    rate, users, sync = (found[name]["summary"] for name in ("test_rate", "test_users", "test_sync_rate"))
    assert 1 <= rate["most_open"] < 20
    assert 1 <= users["most_open"] < 40
    assert (rate["requests"], rate["errors"]) == (20, 0)
    assert f"at most {rate['most_open']} of 1,000 connections were open" in ran.said, ran.text

    # A sync worker answers a rate, and its reconnects are counted.
    assert (sync["requests"], sync["errors"]) == (50, 0)
    assert sync["most_open"] < 64
    assert sync["opened"] >= 45
    closed = re.findall(r"the server closed the connection after each answer: [\d,]+ connections for", ran.said)
    assert len(closed) >= 3, ran.text

    # A search begins with a closed loop, which asks with fewer connections if the server refuses most of them.
    capacity = found["test_capacity"]["capacity"]
    assert capacity["rate"] > 20
    assert capacity["closed_rps"] > 20

    (boot,) = found["test_restarting"]["boots"]
    assert boot["processes_ended"] >= 1
    ended = rf"\b{boot['processes_ended']} process(es)? of the server ended during the load"
    assert re.search(ended, ran.said), ran.text
