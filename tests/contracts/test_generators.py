"""Several load generators make exactly the load that was asked for; and what is said where one of them is lost."""

from __future__ import annotations

import re

import pytest
from contracts.answers import answering
from contracts.project import Project, results

TESTS = """
import os
from pathlib import Path

import pytest
from pytest_fileperf import Uvicorn

pytestmark = pytest.mark.fileperf(boots=1, warmup=0, gate="none")

@pytest.mark.fileperf(server=Uvicorn(tls=True, uds=True))
def test_number(fileperf, fileperf_server):
    result = fileperf.get("/number", requests=11, connections=5, generators=3)
    with fileperf_server.sync_client() as client:
        assert len(client.get("/seen").json()) == result.requests == 11
    assert sorted(own.connections for own in result.client.generators) == [1, 2, 2]

def test_rates(fileperf):
    result = fileperf.get("/", rate="6000/min", duration="0.4s", rounds=4, connections=20, generators=2)
    assert (result.due, result.requests) == (40, 40)
    assert result.due_rate == pytest.approx(40 / 0.39)
    rising = fileperf.get("/", ramp="0.4s:100/s, 0.2s:100/s, 0.2s:0/s", connections=20)
    assert 48 <= rising.due <= 52 and rising.requests == rising.due
    assert fileperf.get("/", ramp="0.2s:4, 0.2s:4", generators=2).most_open == 4
    # One connection makes at most 50 requests a second of 20 ms each, and the second one comes at the end.
    assert fileperf.get("/wait", ramp="0s:1, 0.5s:1, 0.3s:2", connections=2).requests <= 44
    result = fileperf.get("/", burst=15, connections=4, generators=2)
    assert (result.due, result.requests) == (15, 15)

async def breaks_one(client):
    try:
        Path(__file__).with_name("broken").touch(exist_ok=False)
    except FileExistsError:
        await client.get("/")
    else:
        os._exit(7)

def test_lost(fileperf):
    fileperf.run(breaks_one, duration="0.3s", connections=2, generators=2, gate="rps")

async def ends(client):
    os._exit(7)

def empty(client):
    Path(__file__).with_name("emptied").touch()

def test_torn_down(fileperf):
    with pytest.raises(Exception, match="exit code 7"):
        fileperf.run(ends, requests=1, teardown=empty)
    assert Path(__file__).with_name("emptied").exists()

async def computes(client):
    await client.get("/")
    sum(range(100_000))

def test_busy(fileperf):
    load = dict(duration="0.8s", warmup="0.2s")
    fileperf.run(computes, connections=16, **load)
    fileperf.get("/", app="busy:app", connections=4, **load)
"""


def test_all_together_make_the_load_that_was_asked_for(project: Project) -> None:
    busy = answering(0.002).replace("await asyncio.sleep(", "sum(range(100_000)) or (")
    project.write({"app.py": answering(0.002), "busy.py": busy, "test_it.py": TESTS})
    ran = project.run("--tb=short", "-v", "--fileperf-html=run.html", width=120)

    assert ran.status == 0, ran.text
    assert "exit code 7" in ran.said, ran.text
    found = results(ran)
    assert found["test_lost"]["standing"] == "INCONCLUSIVE"
    assert sum(own["lost"] != "" for own in found["test_lost"]["summary"]["generators"]) == 1
    limits = [one["limit"]["kind"] for one in ran.record["results"] if one["test"]["name"] == "test_busy"]
    for kind, right in zip(limits, ("load generator", "server CPU"), strict=True):
        assert kind == right or (kind == "unclear" and "the machine was busy" in ran.said), ran.text
    number = found["test_number"]
    assert number["identity"]["load"] == {"connections": 5, "generators": 3, "requests": 11}
    assert number["load"] == "5 connections, 11 requests, 3 generators"
    assert sum(own["rps"] for own in number["summary"]["generators"]) == pytest.approx(number["summary"]["rps"])
    assert re.search(r"^ *generator 3  .*\b[12] connections?  .*0 errors  CPU \d+ %", ran.text, re.MULTILINE), ran.text
    assert "Load generators" in (project.top / "run.html").read_text(encoding="utf-8")
