"""Figures that are shown were measured: requests/s agree with latency, and both sides of a comparison were counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from contracts.project import Project, results

SLEEPS = """
import asyncio
import random


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    least, more = scope["path"].strip("/").split("-")
    await asyncio.sleep(float(least) + random.random() * float(more))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
COMPARED = """
def test_get(fileperf):
    fileperf.get("/", connections=4, max_duration="8s", gate=["rps", "p99"])
"""


def by_law(summary: Mapping[str, Any]) -> float:
    return float(summary["connections"] / summary["latency"]["mean"])


LAW = {
    "long": '"/0.4-0", connections=16, duration="0.7s"',
    "longest": '"/0.6-0", connections=5, duration="2s", boots=3',
    "short": '"/0.1-0", connections=10, duration="0.6s"',
    "drawn": '"/0.2-0.6", connections=60, duration="1.5s"',
    "cut": '"/0.6-0", connections=8, duration="0.25s"',
}


def test_sleeps_have_the_rate_of_littles_law(project: Project) -> None:
    """Of a request longer than its run that is rough, and said."""
    tests = (
        f'def test_{name}(fileperf):\n    fileperf.get({load}, gate="none", warmup="0.1s")\n'
        for name, load in LAW.items()
    )
    ran = project.write({"app.py": SLEEPS, "test_load.py": "".join(tests)}).run("-v")
    assert ran.status == 0, ran.text
    found = {name: results(ran)[f"test_{name}"]["summary"] for name in LAW}
    for name, summary in found.items():
        assert summary["rps"] == pytest.approx(by_law(summary), rel=0.10 if name == "drawn" else 0.04), name
    for name, true in {"long": 16 / 0.4, "longest": 5 / 0.6, "short": 10 / 0.1}.items():
        assert found[name]["rps"] == pytest.approx(true, rel=0.15), name
    assert "unclear what limited the load: 10 requests" not in ran.said, ran.text
    assert "requests/s are rough, because a request takes 6" in ran.said, ran.text


def test_both_sides_of_a_comparison_were_counted(project: Project) -> None:
    """The old code stalls now and then. Typical moments are alike, and the counts are not."""
    app = """
    import time

    STALL_S = {stall}
    started = time.monotonic()
    stalls = 0


    async def app(scope, receive, send):
        global stalls
        if scope["type"] != "http":
            return
        if STALL_S and time.monotonic() - started > stalls * 0.2:
            stalls = int((time.monotonic() - started) / 0.2) + 1
            time.sleep(STALL_S)
        time.sleep(0.002)
        await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
        await send({{"type": "http.response.body", "body": b"ok"}})
    """
    project.write({"app.py": app.format(stall=0.08), "test_load.py": COMPARED}).commit()
    ran = project.write({"app.py": app.format(stall=0)}).commit().run("-v", "--fileperf-against=HEAD~1")

    compared = results(ran)["test_get"]
    shown = {item["metric"]: item for item in compared["verdict"]["comparisons"]}
    rounds = [one for one in compared["base"]["rounds"] if one["phase"] == "round"]
    counted = sum(one["requests"] for one in rounds) / sum(one["duration"] for one in rounds)
    rps, p99 = shown["rps"], shown["p99"]
    assert rps["base"] == pytest.approx(counted, rel=0.05)
    assert rps["now"] == compared["summary"]["rps"]
    assert rps["change"] == pytest.approx(rps["now"] / rps["base"] - 1)
    assert rps["low"] <= rps["change"] <= rps["high"]
    assert p99["base"] > p99["now"] > 0


COLD = """
import asyncio

seen = set()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await asyncio.sleep(0.02 if scope["client"] in seen else 0.6)
    seen.add(scope["client"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def test_first_requests_of_connections_are_warm_up(project: Project) -> None:
    """They log in, or open connections to a database: no turn has them, and turns are as long as later ones need."""
    project.write({"app.py": COLD, "test_load.py": COMPARED}).commit()
    ran = project.write({"app.py": f"{COLD}\n# changed"}).commit().run("-v", "--fileperf-against=HEAD~1")
    compared = results(ran)["test_get"]
    alone = project.write({"test_load.py": "def test_get(fileperf): fileperf.get('/', boots=1)"}).run("-v")
    for side in (compared, compared["base"], results(alone)["test_get"]):
        known = [one["p99"] for one in side["rounds"] if one["phase"] == "round" and one["requests"]]
        assert max(known) < 0.5, ran.text + alone.text


LOGIN = """
import asyncio
import secrets

tokens = set()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = secrets.token_hex(4).encode()
    if scope["path"] == "/login":
        await asyncio.sleep(0.3)
        tokens.add(body)
    status = 200 if scope["path"] == "/login" or dict(scope["headers"]).get(b"token") in tokens else 401
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"8")]})
    await send({"type": "http.response.body", "body": body})
"""


def test_a_token_of_one_version_is_never_sent_to_the_other(project: Project) -> None:
    """A login that connections share would else be made again in each turn."""
    users = """
    import httpx
    from pytest_fileperf import part


    class Login(httpx.Auth):
        requires_response_body = True
        token = "none"

        def auth_flow(self, request):
            request.headers["token"] = self.token
            if (yield request).status_code == 401:
                answer = yield httpx.Request("GET", request.url.join("/login"))
                request.headers["token"] = self.token = answer.text
                yield request


    tokens = []


    async def visit(client):
        if not tokens:
            tokens.append((await client.get("/login")).text)
        (await client.get("/", headers={"token": tokens[0]})).raise_for_status()


    def test_mix(fileperf):
        both = {part.get("/", auth=Login()): 1, part.run(visit): 1}
        fileperf.mix(both, connections=2, max_duration="6s", gate="rps")
    """
    project.write({"app.py": LOGIN, "test_load.py": users}).commit()
    ran = project.write({"app.py": f"{LOGIN}\n# changed"}).commit().run("-v", "--fileperf-against=HEAD~1")
    compared = results(ran)["test_mix"]
    for side in (compared, compared["base"]):
        known = [one["p99"] for one in side["rounds"] if one["phase"] == "round" and one["requests"]]
        assert max(known) < 0.3, ran.text
        assert sum(one["failed"] for one in side["rounds"]) == 0, ran.text
