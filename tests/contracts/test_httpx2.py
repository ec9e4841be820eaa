"""Users of httpx2 get its clients, and give its objects; users of httpx never import it."""

from __future__ import annotations

from contracts.answers import answering
from contracts.project import Project, results
from families import module_of

BOTH = """
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import httpx
import httpx2
import httpx2 as newer
import pytest
from pytest_fileperf import Client, LoadTransport, part, payload

if TYPE_CHECKING:
    from httpx2 import Response

pytestmark = pytest.mark.fileperf(connections=2, requests=4, boots=1, warmup=0, gate="none")


class Signed(httpx2.Auth):
    requires_response_body = True

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        assert isinstance(request.url, httpx2.URL)
        answer = yield httpx2.Request("POST", request.url.join("/sign"), json={})
        assert isinstance(answer, httpx2.Response) and answer.text == "ok"
        request.headers["Authorization"] = "Basic dTpw"
        yield request


def objects(auth):
    return {
        "auth": auth,
        "params": httpx2.QueryParams([("a", "1"), ("a", "2")]),
        "headers": httpx2.Headers({"X-Own": "1"}),
        "cookies": httpx2.Cookies({"session": "s"}),
    }


def check(seen):
    method, path, query, headers, *_ = seen
    assert (method, path, query) == ("POST", "/given", "a=1&a=2")
    assert (headers["x-own"], headers["cookie"], headers["authorization"]) == ("1", "session=s", "Basic dTpw")


def seen_by(server):
    with server.sync_client() as client:
        return client.get("/seen").json()


@pytest.mark.parametrize("auth, engine", [(httpx2.BasicAuth("u", "p"), "replay"), (Signed(), "client")])
def test_arguments(fileperf, fileperf_server, auth, engine):
    result = fileperf.post(httpx2.URL("/given"), **objects(auth), files={"file": ("a", b"x")})
    assert result.client.engine in (engine, "in-process")
    check(seen_by(fileperf_server)[-1])


def test_requests(fileperf):
    assert fileperf.requests([httpx2.Request("PUT", "http://any/a", content=b"x")]).errors == 0


async def asks(client, package):
    assert isinstance(client, package.AsyncClient) and isinstance(client, Client)
    async with client.step("send"):
        sent = await client.post("/given", content=payload("2MiB"), timeout=httpx2.Timeout(5))
    assert isinstance(sent.raise_for_status(), package.Response)
    await client.post("/given", auth=Signed(), timeout=httpx.Timeout(5), headers=httpx.Headers({"X-Own": "1"}))
    with pytest.raises(package.HTTPStatusError):
        (await client.get("/moved")).raise_for_status()
    await refused(client, package)
    async with client.stream("GET", "/events") as response:
        assert [line async for line in response.aiter_lines()]
    if hasattr(client, "sse"):
        async with client.sse("/events") as events:
            assert [event.data async for event in events] == ["0", "1", "2", "3"]


async def refused(client, package):
    try:
        (await client.get("/moved" if client.base_url.host == "in-process" else NOBODY)).raise_for_status()
    except package.HTTPStatusError as error:
        assert client.base_url.host == "in-process" and error.response.status_code == 302
    except package.HTTPError as error:
        assert type(error) is package.ConnectError and error.request.url.port == 9
    else:
        raise AssertionError("something listens")


async def by_name(client: httpx2.AsyncClient) -> None:
    await asks(client, httpx2)


async def by_text(client: "newer.AsyncClient") -> None:
    await asks(client, newer)


async def by_text_alone(client: "httpx2.AsyncClient", found: "Response | None" = None) -> None:
    await asks(client, httpx2)


async def of_httpx(client: httpx.AsyncClient) -> None:
    await asks(client, httpx)


async def unsaid(client) -> None:
    await asks(client, DEFAULT)


async def with_steps(client: Client) -> None:
    await asks(client, DEFAULT)


NOBODY = "http://127.0.0.1:9/"
DEFAULT = httpx2 if "--fileperf-client=httpx2" in sys.argv else httpx
JOURNEYS = [by_name, by_text, by_text_alone, of_httpx, unsaid, with_steps]


def test_journeys(fileperf):
    result = fileperf.mix({part.run(one): 1 for one in JOURNEYS}, requests=12)
    assert (result.errors, result.requests) == (0, 12)
    assert result.parts["unsaid"].steps["send"].requests == 2


def test_steps(fileperf):
    assert fileperf.run(by_name, steps={"send": {"max_p99": "30s"}}).errors == 0


async def fill(client: httpx2.AsyncClient) -> str:
    await refused(client, httpx2)
    return str(isinstance(client, httpx2.AsyncClient))


def fill_plainly(client: "httpx2.Client") -> str:
    assert client.get("/given", timeout=httpx.Timeout(5), auth=httpx.BasicAuth("u", "p")).text == "ok"
    if client.base_url.host != "in-process":
        with pytest.raises(httpx2.ConnectError):
            client.get(NOBODY)
    return str(isinstance(client, httpx2.Client))


def fill_unsaid(client) -> str:
    return str(isinstance(client, DEFAULT.Client))


async def sees(client, found: str) -> None:
    assert found == "True"


@pytest.mark.parametrize("setup", [fill, fill_plainly, fill_unsaid])
def test_setups(fileperf, setup):
    assert fileperf.run(sees, setup=setup).errors == 0


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_clients(fileperf_server):
    for options, package in (({}, DEFAULT), ({"family": "httpx2"}, httpx2), ({"family": "httpx"}, httpx)):
        with fileperf_server.sync_client(**options, **objects(Signed())) as client:
            assert isinstance(client, package.Client)
            check(client.post("/given") and client.get("/seen", auth=None).json()[-1])
        if fileperf_server.kind == "in-process":
            continue
        async with fileperf_server.client(**options, **objects(httpx2.BasicAuth("u", "p"))) as client:
            assert isinstance(client, package.AsyncClient)
            await client.post("/given", timeout=httpx2.Timeout(5))
            check((await client.get("/seen")).json()[-1])
            await refused(client, package)
        async with httpx2.AsyncClient(transport=LoadTransport(), base_url=fileperf_server.url) as client:
            assert (await client.get("/given")).text == "ok"
"""
HTTP2 = """
import asyncio

import httpx
import httpx2
import pytest
from pytest_fileperf import Granian, InProcess, Uvicorn, part

pytestmark = pytest.mark.fileperf(connections=2, requests=6, boots=1, warmup=0, gate="none")


async def by_httpx(client: httpx.AsyncClient) -> None:
    for answer in await asyncio.gather(*(client.get("/size/9") for _ in range(3))):
        assert (type(answer), answer.http_version, answer.text) == (httpx.Response, "HTTP/2", "x" * 9)


async def by_httpx2(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/")
    assert (type(answer), answer.http_version) == (httpx2.Response, "HTTP/2")
    with pytest.raises(httpx2.ConnectError, match="192.0.2.1 isn't this machine"):
        await client.get("/elsewhere", follow_redirects=True)


async def plain(client) -> None:
    assert (await client.get("/")).http_version == "HTTP/1.1"


def test_http2(fileperf):
    works = {part.run(by_httpx, http2=True): 1, part.run(by_httpx2, http2=True): 1, plain: 1}
    result = fileperf.mix(works, server=Granian(tls=True))
    assert (result.errors, result.http_requests, result.client.engine) == (0, 12, "http2")
    assert [result.parts[name].bytes_received for name in ("by_httpx", "by_httpx2", "plain")] == [54, 8, 4]


def test_without_tls(fileperf):
    assert fileperf.run(by_httpx, http2=True, server=Granian()).errors == 0


@pytest.mark.parametrize("server", [Uvicorn(), Uvicorn(tls=True)])
def test_not_spoken(fileperf, server):
    with pytest.raises(Exception, match=r"Does\\s+the\\s+server\\s+support\\s+HTTP/2"):
        fileperf.run(by_httpx, http2=True, server=server)


def test_no_connection(fileperf):
    with pytest.raises(Exception, match="http2 needs a network connection, but an inprocess server has none"):
        fileperf.run(by_httpx, http2=True, server=InProcess())
"""
ONE = """
import sys
import httpx

async def fill(client):
    assert isinstance(client, httpx.AsyncClient)

async def journey(client):
    assert "httpx2" not in sys.modules, "in the load generator"
    await client.get("/", timeout=httpx.Timeout(5))

def test_it(fileperf, fileperf_server):
    assert fileperf.run(journey, setup=fill, requests=4, gate="none").errors == 0
    assert fileperf.get("/", auth=httpx.DigestAuth("u", "p"), requests=4, gate="none").errors == 0
    assert isinstance(fileperf_server.client(), httpx.AsyncClient)
    assert "httpx2" not in sys.modules
"""


def test_objects_and_clients_of_httpx2_work_wherever_those_of_httpx_do(project: Project) -> None:
    module_of("httpx2")
    project.write({"app.py": answering(), "test_it.py": BOTH})
    for options in ((), ("--fileperf-client=httpx2", "--fileperf-server=inprocess")):
        ran = project.run("-p", "anyio", *options)
        assert ran.status == 0, ran.text


def test_a_journey_speaks_http2_by_the_transport_of_its_client_s_package(project: Project) -> None:
    module_of("httpx2")
    project.write({"app.py": answering(), "test_it.py": HTTP2})
    ran = project.run()
    assert ran.status == 0, ran.text
    assert "by_httpx: HTTP/2, by httpx; by_httpx2: HTTP/2, by httpx2; plain: a journey is code, which " in ran.said
    identity = results(ran)["test_without_tls"]["identity"]
    assert (identity["engine"], identity["work"]["http2"]) == ("http2", True)


def test_who_uses_httpx_alone_does_not_import_httpx2(project: Project) -> None:
    project.write({"app.py": answering(), "test_it.py": ONE})
    ran = project.run()
    assert ran.status == 0, ran.text
