"""What is loaded: requests as they were asked for, rows in their order, parts, steps, streams, and data of a setup."""

from __future__ import annotations

from contracts.answers import answering
from contracts.project import Project

TESTS = """
import io
import pytest
from pytest_fileperf import part, payload
from visits import checks

pytestmark = pytest.mark.fileperf(connections=1, boots=1, warmup=0, gate="none", timeout="3s")
ROWS = list("abcdefghij")

@pytest.fixture
def seen(fileperf_server):
    def told(begin):
        with fileperf_server.sync_client() as client:
            return [one for one in client.get("/seen").json() if one[1].startswith(begin)]
    return told

def test_order(fileperf, seen):
    fileperf.get("/cycle/{id}", feed=ROWS, requests=20)
    assert [one[1][-1] for one in seen("/cycle/")] == ROWS * 2
    fileperf.get("/shuffle/{id}", feed=ROWS, order="shuffle", seed=3, requests=20)
    found = [one[1][-1] for one in seen("/shuffle/")]
    assert found[:10] == found[10:] != ROWS
    assert sorted(found[:10]) == ROWS
    fileperf.get("/seed/{id}", feed=ROWS, order="shuffle", seed=4, requests=10)
    assert sorted(order := [one[1][-1] for one in seen("/seed/")]) == ROWS and order != found[:10]
    fileperf.get("/zipf/{id}", feed=ROWS, order="zipf", requests=200)
    found = [one[1][-1] for one in seen("/zipf/")]
    assert found.count("a") > 3 * found.count("j")
    for way, each, rows in (("all", False, "abcd"), ("each", True, "acfh")):
        fileperf.get(f"/{way}/{{id}}", feed=ROWS, per_connection=each, connections=4, requests=4)
        assert sorted(one[1][-1] for one in seen(f"/{way}/")) == list(rows)

def test_bodies(fileperf, seen):
    fileperf.post("/unique", content=payload("4KiB", unique=True), requests=5)
    assert ({one[4] for one in seen("/unique")}, len({one[5] for one in seen("/unique")})) == ({4096}, 5)
    fileperf.post("/decimal", content=payload("1MB"), requests=1)
    assert [one[4] for one in seen("/decimal")] == [1_000_000]
    for kind in ("text", "crlf"):
        fileperf.post(f"/{kind}", content=payload("1KiB", kind=kind), requests=1)
    (text,), (lines,) = seen("/text"), seen("/crlf")
    assert text[6].replace(" ", "").replace("\\n", "").isalpha() and lines[6].count("\\r\\n") == 75
    assert payload("1KiB").sha256() != payload("1KiB", seed=1).sha256()
    large = payload("9MiB")
    fileperf.put("/large", content=large, requests=2, min_throughput="100KiB/s")
    assert [(one[0], one[4], one[5]) for one in seen("/large")] == [("PUT", 9 << 20, large.sha256())] * 2
    assert fileperf.put("/plain", content=b"x" * (6 << 20), requests=2).bytes_sent == 12 << 20
    assert [one[4] for one in seen("/plain")] == [6 << 20] * 2
    file = payload("1KiB", filename="a.own", content_type="image/x-own")
    fileperf.post("/form", files={"file": file}, data={"name": "value"}, requests=1)
    (form,) = seen("/form")
    assert 'filename="a.own"' in form[6] and "Content-Type: image/x-own" in form[6] and "value" in form[6]
    read = io.BytesIO(b"a whole file")
    read.seek(8)
    fileperf.post("/files", files={"read": read, "file": ("b", file, "image/given")}, requests=1)
    (form,) = seen("/files")
    assert "a whole file" in form[6] and "Content-Type: image/given" in form[6]

def test_requests(fileperf, seen):
    given = dict(params={"q": "1"}, headers={"x-own": "h"}, cookies={"c": "d"}, auth=("user", "word"))
    fileperf.patch("/given", json={"a": 1}, requests=2, **given)
    method, _, query, headers, _, _, body = seen("/given")[-1]
    assert (method, query, headers["x-own"], headers["cookie"]) == ("PATCH", "q=1", "h", "c=d")
    assert headers["authorization"].startswith("Basic ") and body.replace(" ", "") == '{"a":1}'
    assert fileperf.get("/nothing", requests=4).statuses == {204: 4}
    assert fileperf.get("/same", expect_status=304, requests=4).statuses == {304: 4}
    assert fileperf.request("HEAD", "/head", requests=4).bytes_received == 0
    moved = fileperf.delete("/moved", follow_redirects=True, requests=3)
    assert (moved.requests, moved.http_requests, len(seen("/new"))) == (3, 6, 3)
    with pytest.raises(AssertionError, match="192.0.2.1 isn't this machine"):
        fileperf.get("/elsewhere", follow_redirects=True, requests=2)
    fileperf.requests("targets/list.txt", requests=1)
    assert [(one[0], one[3]["x-own"], one[6]) for one in seen("/target")] == [("POST", "h", "a body")]
    fileperf.requests([("GET", "/m/1"), ("POST", "/m/2")], requests=6)
    assert [one[0] for one in seen("/m/")] == ["GET", "POST"] * 3

def test_good_answers(fileperf):
    result = fileperf.get("/size/{n}", feed=[2, 3, 4], requests=9, expect_bytes=3, max_error_rate="70%")
    assert (result.requests, result.bytes_received, dict(result.error_kinds)) == (3, 9, {"size": 6})
    body = fileperf.get("/{way}", feed=["size/1", "size/2", "good"], requests=6, expect_body=b"xx", max_error_rate=0.7)
    assert (body.requests, dict(body.error_kinds)) == (2, {"digest": 2, "size": 2})
    assert fileperf.get("/moved", expect_status=(302, 404), requests=2).errors == 0
    rows = ["good", "never", "good", "cut", "moved"]
    result = fileperf.get("/{way}", feed=rows, requests=5, timeout="1s", max_error_rate=0.6)
    assert dict(result.error_kinds) == {"disconnected": 1, "status 302": 1, "timeout": 1}
    with pytest.raises(AssertionError, match="none of 8 requests succeeded"):  # also if it comes before a look at it
        fileperf.get("/wait", requests=8, timeout="10ms", max_error_rate=1)
    result = fileperf.get("/wait", requests=500, duration="0.2s", max_error_rate=1)
    assert (result.requests + result.errors, result.error_kinds) == (500, {"not sent": result.errors})

def test_parts(fileperf, seen):
    parts = {part.get("/part/a", name="a"): 1, part.get("/part/b", name="b"): 3}
    result = fileperf.mix(parts, requests=40, connections=2)
    assert {name: own.requests for name, own in result.parts.items()} == {"a": 10, "b": 30}
    assert sum(one[1] == "/part/b" for one in seen("/part/")) == 30

async def visit(client):
    async with client.step("look"):
        await client.pause("300ms")
        await client.get("/wait/look")
    await client.get("/wait/more")

async def ignores(client):
    await client.get("/bad")
    await client.get("/")  # which does not mend it

def test_users(fileperf):
    with pytest.raises(AssertionError, match="none of 2 requests succeeded: status 500"):
        fileperf.run(ignores, requests=2)
    with pytest.raises(AssertionError, match="visits.py:6: no such word"):
        fileperf.run(checks, requests=1)
    result = fileperf.run(visit, requests=3, connections=3)
    assert 0.04 <= result.latency.p50 < 0.3 and 0.02 <= result.steps["look"].latency.p50 < 0.3
    assert (result.requests, result.http_requests, result.steps["look"].requests) == (3, 6, 3)
    assert fileperf.get("/", requests=4, pause="100ms").elapsed >= 0.3

def test_streams(fileperf):
    result = fileperf.stream("/events", requests=2)
    assert (result.requests, result.events.count) == (2, 8)
    assert result.events.first.p50 < result.latency.min >= 0.06
    assert result.ttfb.p50 < result.latency.min
    assert result.events.gap.max >= 0.012  # a busy machine reads some events together
    with pytest.raises(AssertionError, match="the answer ended after 4 of 9 events"):
        fileperf.stream("/events", events=9, requests=2)
    assert fileperf.stream("/events", events=2, requests=2).latency.min < result.latency.min
    assert fileperf.stream("/events", burst=3, connections=1).events.first.max >= 0.12  # it waits for the others

def test_bursts(fileperf):
    result = fileperf.get("/wait", burst=20, connections=2)
    assert (result.requests, result.due, result.dropped) == (20, 20, 0)
    assert result.late >= 18 and result.latency.max >= 0.19 and result.service.p50 < result.latency.p90

async def fill(client):
    (await client.put("/filled")).raise_for_status()
    return "value"

def empty(client, value):
    client.put(f"/emptied/{value}")

async def walk(client, value):
    await client.get(f"/walked/{value}")

def test_setup_and_teardown(fileperf, seen):
    fileperf.run(walk, setup=fill, teardown=empty, requests=2)
    assert [one[1] for one in seen("/")][-4:] == ["/filled", "/walked/value", "/walked/value", "/emptied/value"]
    fileperf.get("/", setup=fill, requests=1)

def test_nothing_is_left_of_a_setup_without_teardown(fileperf, seen):
    fileperf.get("/", requests=1)
    assert not seen("/filled")

@pytest.mark.fileperf(setup=fill, requests=1)
def test_a_server_has_the_data_of_the_setup_before_a_load(fileperf, seen):
    assert len(seen("/filled")) == 1
    fileperf.get("/")

@pytest.mark.anyio
async def test_async(afileperf, anyio_backend):
    assert (await afileperf.get("/", requests=2)).requests == 2

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
VISITS = """
async def checks(client):
    refuses(await client.get("/"))


def refuses(answer):
    raise ValueError("no such word")
"""


def test_what_was_asked_for_is_what_the_server_got(project: Project) -> None:
    targets = "POST http://any/target\nX-Own: h\n@body.txt\n"
    project.write({"targets/list.txt": targets, "targets/body.txt": "a body"})
    project.write({"app.py": answering(), "test_it.py": TESTS, "visits.py": VISITS})
    ran = project.run("-p", "anyio.pytest_plugin", "--tb=short")

    assert (ran.status, ran.record["failed"]) == (0, []), ran.text
    own = {(one["test"]["name"], one["test"]["part"], one["test"]["step"]) for one in ran.record["results"]}
    assert {("test_parts", "a", ""), ("test_parts", "b", ""), ("test_users", "", "look")} <= own
