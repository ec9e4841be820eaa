"""Calls that a user of httpx2 may write. pyright accepts every one, and so does the package: see test_calls.py."""

from __future__ import annotations

import httpx2

from pytest_fileperf import FilePerf, RunningServer, part


class Signed(httpx2.Auth):  # type: ignore[misc]  # mypy does not look at that package: it may not be installed
    """An authentication of the user's own."""


def sign(request: httpx2.Request) -> httpx2.Request:
    request.headers["X-Signed"] = "yes"
    return request


async def journey(client: httpx2.AsyncClient) -> None:
    (await client.get("/")).raise_for_status()


async def fill(client: httpx2.AsyncClient) -> list[str]:
    return [(await client.post("/items")).json()["id"]]


def fill_plainly(client: httpx2.Client) -> list[str]:
    return [client.post("/items").json()["id"]]


def empty_plainly(client: httpx2.Client, ids: list[str]) -> None:
    for one in ids:
        client.delete(f"/items/{one}")


async def get_one(client: httpx2.AsyncClient, ids: list[str]) -> None:
    await client.get(f"/items/{ids[0]}")


def verbs(fileperf: FilePerf) -> None:
    fileperf.get(httpx2.URL("/"), params=httpx2.QueryParams(page=2), headers=httpx2.Headers({"X-Trace": "1"}))
    fileperf.get("/", auth=Signed(), cookies=httpx2.Cookies({"session": "1"}))
    fileperf.get("/", auth=httpx2.DigestAuth("name", "password"))
    fileperf.get("/", auth=sign)
    fileperf.requests([part.get("/a", name="a"), httpx2.Request("GET", "http://127.0.0.1/b"), {"url": "/c"}])


def journeys(fileperf: FilePerf) -> None:
    fileperf.run(journey, connections=20)
    fileperf.run(get_one, setup=fill, teardown=empty_plainly)
    fileperf.get("/", setup=fill_plainly, teardown=fill)
    fileperf.mix({part.run(journey, name="walk"): 1, journey: 3})


async def server(fileperf_server: RunningServer) -> int:
    async with fileperf_server.client(family="httpx2", auth=Signed(), timeout=httpx2.Timeout(5)) as client:
        return (await client.get("/")).status_code
