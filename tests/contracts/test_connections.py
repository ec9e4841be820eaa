"""How many connections a load opens: as many as it needs, when it needs them."""

from __future__ import annotations

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


def test_a_rate_and_users_open_no_more_connections_than_they_need(project: Project) -> None:
    tests = """
    from pytest_fileperf import uniform

    def say(client):
        print("OPENED", client.get("/opened").text)

    def test_rate(fileperf):
        fileperf.get("/", rate=20, duration="1s", boots=1, warmup="0.2s", gate="none", teardown=say)

    def test_users(fileperf):
        pause = uniform("0.3s", "0.6s")
        fileperf.get("/", connections=40, pause=pause, duration="1s", boots=1, warmup="0.3s", gate="none")
    """
    ran = project.write({"app.py": COUNTING, "test_load.py": tests}).run("-v", "-s")

    assert ran.status == 0, ran.text
    opened = int(ran.said.split("OPENED ")[1].split()[0])
    assert 1 <= opened < 20
    rate, users = (results(ran)[name]["summary"] for name in ("test_rate", "test_users"))
    assert 1 <= rate["most_open"] < 20
    assert 1 <= users["most_open"] < 40
    assert (rate["requests"], rate["errors"]) == (20, 0)
    assert f"at most {rate['most_open']} of 1,000 connections were open" in ran.said, ran.text


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork")
def test_a_sync_worker_answers_a_rate_and_its_reconnects_are_counted(project: Project) -> None:
    tests = """
    from pytest_fileperf import Command

    SYNC = Command(["{python}", "-m", "gunicorn", "-b", "127.0.0.1:{port}", "-w", "1", "app:app"], workers=1)

    def test_rate(fileperf):
        fileperf.get("/", server=SYNC, rate=50, duration="2s", boots=1, warmup="0.2s", timeout="8s", gate="none")

    def test_closed(fileperf):
        fileperf.get("/", server=SYNC, connections=4, duration="0.5s", boots=1, warmup="0.2s", gate="none")
    """
    ran = project.write({"app.py": WSGI, "test_load.py": tests}).run("-v")

    assert ran.status == 0, ran.text
    rate = results(ran)["test_rate"]["summary"]
    assert (rate["requests"], rate["errors"]) == (100, 0)
    assert rate["most_open"] < 64
    assert "the server closed the connection after each answer" in ran.said, ran.text
    assert rate["opened"] >= 90


def test_a_search_finds_rates_on_a_server_that_limits_its_connections(project: Project) -> None:
    """It begins with a closed loop, which asks with fewer connections if the server refuses most of them."""
    tests = """
    from pytest_fileperf import Command, part

    LIMITED = Command(["{python}", "-m", "uvicorn", "app:app", "--port", "{port}", "--limit-concurrency", "8"])

    def test_capacity(fileperf):
        load = {"max_p50": "500ms", "max_duration": "9s", "boots": 1, "gate": "none", "max_error_rate": "50%"}
        works = {part.get("/", name="one"): 1, part.get("/two", name="two"): 1}
        fileperf.capacity.mix(works, server=LIMITED, **load)
    """
    ran = project.write({"app.py": COUNTING, "test_load.py": tests}).run("-v")

    assert ran.status == 0, ran.text
    found = results(ran)["test_capacity"]["capacity"]
    assert found["rate"] > 20
    assert found["closed_rps"] > 20
