"""Calls with a mistake. mypy and pyright reject every one, and so does the package: see test_calls.py.

Each comment names the error that a checker must find there: a checker that finds none says that the comment is not
needed, which fails.
"""

from __future__ import annotations

import httpx

from pytest_fileperf import AsyncFilePerf, FilePerf, Measurement, Uvicorn, part


async def journey(client: httpx.AsyncClient) -> None:
    await client.get("/")


async def without_client() -> None:
    return None


async def plain_steps(client: httpx.AsyncClient) -> None:
    async with client.step("login"):  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        await client.get("/")


def plain(client: httpx.AsyncClient) -> None:
    client.build_request("GET", "/")


def report(result: Measurement) -> str:
    return str(result)


def names(fileperf: FilePerf) -> None:
    fileperf.get("/", conections=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.post("/", contents=b"")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.put("/", max_p98="80ms")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.patch("/", except_status=200)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.delete("/", min_p99="80ms")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.request("GET", "/", verify=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.run(journey, expect_status=200)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.run(journey, json={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def streams(fileperf: FilePerf) -> None:
    fileperf.stream("/", event=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.get("/", events=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.run(journey, listen_for="1s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.stream("/", events=2.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.stream("/", each=2.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def values(fileperf: FilePerf) -> None:
    fileperf.get("/", connections=2.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", duration=b"5s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", min_rps="800")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", max_rss=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", tolerance=["5%"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", gate=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", ramp=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", group=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", server=Uvicorn)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", server=8000)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", expect_status="200")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", expect_bytes=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", expect_body={"a": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.post("/", content={"a": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.post("/", data=b"raw")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.post("/", files=b"raw")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/{id}", feed=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/{id}", feed=["a"], order="random")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", pause=["1s"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.mix({part.get("/"): "1"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", setup="fill")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.get(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.request(5, "/")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def capacities(fileperf: FilePerf) -> None:
    fileperf.capacity.get("/", max_p98="100ms")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.capacity.get("/", max_p99=b"100ms")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def journeys(fileperf: FilePerf) -> None:
    fileperf.run(journey(httpx.AsyncClient()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.run(without_client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.run(journey, steps=["login"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.run(journey, steps={"login": {"max_p98": 1}})  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportArgumentType]
    fileperf.run(journey, steps={"login": {"max_rss": 1}})  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportArgumentType]
    fileperf.get("/", steps={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.get("/", http2=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fileperf.run(journey, http2="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fileperf.run(plain)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def awaited(afileperf: AsyncFilePerf) -> str:
    afileperf.get("/")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await afileperf.get("/", conections=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return report(afileperf.get("/"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
