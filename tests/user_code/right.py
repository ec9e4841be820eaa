"""Calls that a user may write. mypy and pyright accept every one, and so does the package: see test_calls.py."""

from __future__ import annotations

import asyncio
import functools
import io
from http import HTTPStatus
from typing import IO, Unpack

import httpx

from pytest_fileperf import (
    AsyncFilePerf,
    Capacity,
    CapacityEnd,
    Client,
    Command,
    FilePerf,
    Gunicorn,
    InProcess,
    LimitKind,
    MarkerKeys,
    Measurement,
    PartOfLoad,
    Payload,
    RequestKeywords,
    RunningServer,
    StepKeywords,
    Url,
    Uvicorn,
    __version__,
    exponential,
    part,
    payload,
    uniform,
)


class Signed(httpx.Auth):
    """An authentication of the user's own."""


async def journey(client: httpx.AsyncClient) -> None:
    (await client.get("/")).raise_for_status()


async def sized(client: httpx.AsyncClient, size: int) -> int:
    return len((await client.get("/", params={"size": size})).content)


async def fill(client: httpx.AsyncClient) -> list[str]:
    return [(await client.post("/items")).json()["id"]]


async def thoughtful(client: Client) -> None:
    (await client.get("/")).raise_for_status()
    await client.pause("1s")
    await client.pause(uniform(0.5, "2s", seed=7))


async def thoughtful_with(client: Client, ids: list[str]) -> None:
    await client.pause(exponential("1s"))
    await client.get(f"/items/{ids[0]}")


async def stepping(client: Client) -> None:
    async with client.step("login"):
        (await client.post("/login")).raise_for_status()
        async with client.step("token"):
            await client.pause("1ms")


def fill_plainly(client: httpx.Client) -> list[str]:
    return [client.post("/items").json()["id"]]


async def empty(client: httpx.AsyncClient, ids: list[str]) -> None:
    for one in ids:
        await client.delete(f"/items/{one}")


def empty_plainly(client: httpx.Client, ids: list[str]) -> None:
    for one in ids:
        client.delete(f"/items/{one}")


async def get_one(client: httpx.AsyncClient, ids: list[str]) -> None:
    await client.get(f"/items/{ids[0]}")


def requests(fileperf: FilePerf) -> None:
    fileperf.get("/")
    fileperf.get(httpx.URL("/"), params={"page": 2, "tag": ["a", "b"]}, follow_redirects=True)
    fileperf.get("/", params=[("page", "2")], headers={"Accept": "text/plain"}, cookies={"session": "1"})
    fileperf.get("/", params="page=2", headers=[("Accept", "text/plain")], cookies=httpx.Cookies({"session": "1"}))
    fileperf.get("/", cookies=httpx.Cookies({"session": "1"}).jar)
    fileperf.get("/", auth=("name", "password"), extensions={"sni_hostname": "example"})
    fileperf.get("/", auth=Signed(), headers=httpx.Headers({"X-Trace": "1"}), params=httpx.QueryParams(page=2))
    fileperf.delete("/", expect_status=HTTPStatus.NO_CONTENT, json={"ids": [1, 2]})
    fileperf.request("OPTIONS", "/", expect_status=(200, 204), timeout=2)
    fileperf.request(method="GET", url="/", expect_status=None, connections=None)


def bodies(fileperf: FilePerf, file: IO[bytes]) -> None:
    body: Payload = payload("256KiB", kind="text")
    fileperf.post("/", content=body, expect_body=body, expect_bytes="256KiB")
    fileperf.post("/", content="text", expect_body="text")
    fileperf.post("/", content=b"bytes", expect_body=bytearray(b"bytes"), expect_bytes=5)
    fileperf.post("/", content=[b"one", b"two"])
    fileperf.post("/", content=memoryview(b"bytes"))
    fileperf.put("/", content=file, expect_status={200, 201})
    fileperf.put("/", content=io.BytesIO(b"bytes"), expect_status=range(200, 300))
    fileperf.patch("/", json=[1, {"a": None}])
    fileperf.post("/", data={"name": "a", "sizes": [1, 2]}, files={"file": body})
    fileperf.post("/", files={"file": ("a.txt", b"bytes", "text/plain"), "other": file})
    fileperf.post("/", files=[("file", ("a.txt", "text")), ("file", b"bytes")])
    fileperf.post("/", files={"file": ("a.txt", b"bytes", None, {"X-Part": "1"})})


def feeds(fileperf: FilePerf) -> None:
    fileperf.get("/files/{id}", feed=["a", "b"], order="zipf", seed=7)
    fileperf.get("/files/{id}", feed=range(100), order="shuffle", per_connection=True)
    fileperf.get("/{kind}/{id}", feed=[{"kind": "files", "id": 1}])
    fileperf.post("/items", json={"id": "{id}", "key": "{unique}"}, feed=(number for number in range(9)))
    fileperf.get("/items/{id}", feed=made_ids, setup=fill)
    fileperf.get("/items/{id}", feed=lambda: ["a"])
    fileperf.post("/", content=payload("256KiB", unique=True), order=None)


def many(fileperf: FilePerf) -> None:
    fileperf.requests([("GET", "/a"), ("POST", "/b", {"json": {}, "name": "b"})], order="shuffle", seed=3)
    fileperf.requests([part.get("/a", name="a"), httpx.Request("GET", "http://127.0.0.1/b"), {"url": "/c"}], rate=10)


def mixes(fileperf: FilePerf) -> None:
    upload: PartOfLoad = part.post("/", content=payload("1KiB", unique=True), name="upload", max_p99="80ms", gate="p50")
    files = part.get("/files/{id}", feed=["a"], tolerance={"p50": "5%"})
    fileperf.mix({upload: 1, files: 2.5, part.run(journey, name="walk"): 1, journey: 3}, rate=10, duration="2s")
    fileperf.mix({part.run(stepping, steps={"login": {"gate": "p50", "tolerance": "5%"}}, gate=False): 1})
    fileperf.mix({part.delete("/a"): 1, part.put("/a"): 1, part.patch("/a"): 1, part.request("HEAD", "/"): 1})


def made_ids(ids: list[str]) -> list[str]:
    return ids


def loads(fileperf: FilePerf) -> None:
    fileperf.get("/", connections=32, duration="10s", rounds=6, warmup=0.2, timeout="5s", boots="2")
    fileperf.get("/", requests=1000, max_duration=20)
    fileperf.get("/", burst="1000")
    fileperf.get("/", rate="300/min")
    fileperf.get("/", rate=10.5)
    fileperf.get("/", ramp="10s:100/s, 30s:100/s")
    fileperf.get("/", ramp=[("10s", 50), (30, "50")])
    stages = [["10s", "100/s"], ["30s", "100/s"]]
    fileperf.get("/", ramp=stages)


def servers(fileperf: FilePerf) -> None:
    fileperf.get("/", app="app.main:app", server="uvicorn:workers=2", workers=2)
    fileperf.get("/", app=servers, server=Uvicorn(workers=2, loop="asyncio"))
    fileperf.get("/", server=Gunicorn())
    fileperf.get("/", server=InProcess(), app=None)
    fileperf.get("/", server=Command(["./server", "--port", "{port}"], env={"A": "b"}))
    fileperf.get("/", server=Url("http://127.0.0.1:8000"), workers=None)


def limits(fileperf: FilePerf) -> None:
    fileperf.get("/", min_rps=800, min_throughput="50MiB/s", max_p50=0.02, max_p99="80ms", max_latency=1)
    fileperf.get("/", max_error_rate="1%", max_rss="512MiB", max_cpu_per_request="400us")
    fileperf.get("/", max_queries=3, gate="queries")
    fileperf.get("/", max_startup="3s", gate=("rps", "startup"), tolerance={"startup": "20%"})
    fileperf.get("/", max_error_rate=0.01, max_rss=1 << 29, max_mean="20ms", max_p999=None)
    fileperf.get("/", gate="none", group="sizes", label="small")
    fileperf.get("/", gate=False)
    fileperf.get("/", gate=["rps", "p50"], tolerance="5%")
    fileperf.get("/", gate={"rps"}, tolerance={"rps": "5%", "p99": 0.2})
    fileperf.get("/", gate="rps, p99", tolerance=0.05)
    fileperf.get("/", watch=("rss", "cpu_per_request"), tolerance={"p99": "15% and 2ms"})


def streams(fileperf: FilePerf) -> None:
    fileperf.stream("/events")
    fileperf.stream("/events", events=20, listen_for="2s", connections=100, gate="event_rate")
    fileperf.stream("/events", each="64KiB", expect_bytes="1MiB", min_event_rate=100, max_first_event_p50="80ms")
    fileperf.stream("/complete", method="POST", json={}, each="line", max_event_gap_p99=0.2)
    fileperf.stream(httpx.URL("/"), each=1000, events=None, listen_for=1.5)


def journeys(fileperf: FilePerf) -> None:
    fileperf.run(journey)
    fileperf.run(journey, connections=20, max_p99="1s", gate=("rps",))
    fileperf.run(thoughtful, pause="1s")
    asked: dict[str, StepKeywords] = {"login": {"max_p99": "50ms", "max_error_rate": "1%"}, "token": {}}
    fileperf.run(stepping, steps=asked, rate=10)
    fileperf.run(stepping, http2=True)
    fileperf.run(thoughtful_with, setup=fill, pause=0.5)
    fileperf.get("/", pause=exponential("1s"))
    fileperf.get("/", pause=uniform("0.5s", "2s"), requests=10)
    fileperf.run(functools.partial(sized, size=5), rate=10)


def figures_of_steps(result: Measurement) -> float:
    return result.steps["login"].latency.p50 + result.parts["visit"].steps["login"].rps + result.http_rps


def wrapped(fileperf: FilePerf, **keywords: Unpack[RequestKeywords]) -> Measurement:
    shared: MarkerKeys = {"connections": 8, "duration": "2s"}
    fileperf.run(journey, **shared)
    fileperf.run(get_one, setup=fill, teardown=empty)
    fileperf.get("/", setup=fill_plainly, teardown=empty_plainly)
    fileperf.get("/", setup=fill, teardown=fill_plainly)
    return fileperf.get("/", **keywords)


def figures(fileperf: FilePerf) -> tuple[float, int | None, bool, str]:
    result = fileperf.get("/")
    limited = result.limit.kind is LimitKind.SERVER_CPU
    return result.latency.p99 + result.latency.percentile(99.5), result.server.peak_rss, limited, __version__


def capacities(fileperf: FilePerf) -> float:
    found: Capacity = fileperf.capacity.get("/", max_p99="100ms", max_error_rate="0.1%")
    fileperf.capacity.post("/", content=b"bytes", max_p50=0.01, min_capacity=200, max_duration="30s", gate="none")
    fileperf.capacity.run(journey, max_p999="1s", tolerance="10%")
    slow = [load.rate for load in found.tried if not load.holds and load.p99 is not None]
    is_found = found.ended is CapacityEnd.FOUND and found.limit.kind is LimitKind.SERVER_CPU
    return is_found * found.rate + found.low + found.high + sum(slow)


async def awaited(afileperf: AsyncFilePerf) -> float:
    result: Measurement = await afileperf.get("/", connections=4)
    await afileperf.post("/", content=payload("1KiB"), min_rps=1)
    await afileperf.put("/", json={})
    await afileperf.patch("/", json={})
    await afileperf.delete("/", expect_status=204)
    await afileperf.request("HEAD", "/", timeout="1s")
    await afileperf.run(journey, connections=2)
    await afileperf.stream("/events", events=5)
    capacity: Capacity = await afileperf.capacity.get("/", max_p99="100ms")
    assert capacity.low <= capacity.rate <= capacity.high
    task = asyncio.create_task(afileperf.get("/"))
    return result.rps + (await task).rps


async def server(fileperf_server: RunningServer) -> tuple[str, ...]:
    async with fileperf_server.client(auth=("name", "password"), timeout=5) as client:
        answer: httpx.Response = await client.post(fileperf_server.url, json={})
    lines: tuple[str, ...] = fileperf_server.log
    memory = sum(process.memory_info().rss for process in fileperf_server.processes)
    return (*lines, str(answer.status_code), str(memory))
