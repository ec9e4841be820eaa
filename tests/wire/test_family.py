"""Objects of one package, httpx or httpx2, with the client of the other."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Generator
from typing import Any

import pytest
from families import module_of

from pytest_fileperf.errors import LoadError
from pytest_fileperf.wire.family import FamilyClient, SyncFamilyClient, family_named

BOTH = pytest.mark.parametrize("own, other", [("httpx", "httpx2"), ("httpx2", "httpx")])
BASE = "http://127.0.0.1:8000"
CHALLENGE = {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"', "Set-Cookie": "session=1"}
NO_TOKEN = gzip.compress(json.dumps({"login": "/login"}).encode())


def arguments_of(package: Any) -> dict[str, Any]:
    return {
        "params": package.QueryParams([("a", "1"), ("a", "2")]),
        "headers": package.Headers([("X-Own", "1"), ("X-Own", "2")]),
        "cookies": package.Cookies({"session": "s"}),
        "timeout": package.Timeout(5, read=1),
    }


@pytest.mark.parametrize("by_client", [False, True])
@BOTH
def test_arguments_of_either_make_the_same_request(own: str, other: str, by_client: bool) -> None:
    package, requests = module_of(own), []
    for of in (package, module_of(other)):
        arguments = arguments_of(of)
        options = arguments if by_client else {}
        client = FamilyClient(family=own, base_url=of.URL(BASE), transport=package.MockTransport(None), **options)
        request: Any = client.build_request("GET", of.URL("/files"), **({} if by_client else arguments))
        assert isinstance(request, package.Request)
        assert (str(request.url), request.headers.get_list("X-Own")) == (f"{BASE}/files?a=1&a=2", ["1", "2"])
        requests.append((request.headers.raw, request.extensions))
    assert requests[0] == requests[1]


def login_of(package: Any) -> Any:
    """Returns an auth that asks for a token where an answer says so, with a request of its own."""

    class Login(package.Auth):  # type: ignore[misc]  # the package is chosen by the test
        requires_request_body = True
        requires_response_body = True

        def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
            assert request.content == b"content"
            response = yield request
            if response.status_code == 401:
                answer = yield package.Request("POST", request.url.join(response.json()["login"]), json={"user": "u"})
                request.headers["Authorization"] = f"Bearer {answer.json()['token']}"
                yield request

    return Login()


def served(package: Any, request: Any) -> Any:
    """Answers as a server that wants a login at each of its paths."""
    sent = request.headers.get("Authorization", "")
    if request.url.path == "/login":
        return package.Response(200, json={"token": f"of {json.loads(request.content)['user']}"})
    if request.url.path == "/token" and sent != "Bearer of u":
        return package.Response(401, content=NO_TOKEN, headers={"Content-Encoding": "gzip"})
    if request.url.path == "/digest" and not (
        sent.startswith("Digest ") and "session=1" in request.headers.get("Cookie", "")
    ):
        return package.Response(401, headers=CHALLENGE)
    if request.url.path == "/basic" and sent != "Basic dTpw":
        return package.Response(401)
    return package.Response(200, content=b"good" if request.content == b"content" else b"other content")


@pytest.mark.parametrize("kind", ["basic", "digest", "token"])
@BOTH
def test_an_auth_of_the_other_package_sees_requests_and_answers_of_its_own(own: str, other: str, kind: str) -> None:
    package, theirs = module_of(own), module_of(other)
    auths = {"basic": theirs.BasicAuth("u", "p"), "digest": theirs.DigestAuth("u", "p"), "token": login_of(theirs)}
    auth = auths[kind]
    options: dict[str, Any] = {
        "family": own,
        "base_url": BASE,
        "transport": package.MockTransport(lambda request: served(package, request)),
    }

    async def asked() -> Any:
        async with FamilyClient(**options, auth=auth) as client:
            by_client = await client.post(f"/{kind}", content=b"content")
        async with (
            FamilyClient(**options) as client,
            client.stream("POST", f"/{kind}", content=b"content", auth=auth) as response,
        ):
            return by_client, response, await response.aread()

    by_client, response, body = asyncio.run(asked())
    plain: Any = SyncFamilyClient(**options)
    with plain:
        plainly = plain.post(f"/{kind}", content=b"content", auth=auth)
    for answer in (by_client, response, plainly):
        assert isinstance(answer, package.Response)
        assert answer.status_code == 200
    assert by_client.content == body == plainly.content == b"good"


@BOTH
def test_a_request_of_the_other_package_is_sent(own: str, other: str) -> None:
    package, theirs = module_of(own), module_of(other)

    async def blocks() -> Any:
        yield b"content"

    async def asked(content: Any) -> Any:
        transport = package.MockTransport(lambda request: served(package, request))
        async with FamilyClient(family=own, transport=transport) as client:
            return await client.send(theirs.Request("POST", "http://any/", content=content))

    for content in (b"content", blocks()):
        response = asyncio.run(asked(content))
        assert (type(response.request), response.content) == (package.Request, b"good")


def test_a_package_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    family_named.cache_clear()
    with pytest.raises(LoadError, match=r'pip install "pytest-fileperf\[httpx2\]"'):
        FamilyClient(family="httpx2")
    with pytest.raises(ValueError, match="'requests' is not one of httpx, httpx2"):
        FamilyClient(family="requests")
