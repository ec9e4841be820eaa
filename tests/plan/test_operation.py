"""What an operation is known by, and what a good answer is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import httpx
import pytest

from pytest_fileperf.plan.operation import Expectation, Journey, Operation
from pytest_fileperf.plan.payload import payload


def arguments_of(**arguments: object) -> Mapping[str, object]:
    identity = Operation(method="POST", url="/upload", arguments=arguments).identity()
    assert json.loads(json.dumps(identity)) == identity
    described = identity["arguments"]
    assert isinstance(described, dict)
    return described


def test_an_operation_is_named_by_method_and_url() -> None:
    assert Operation(method="GET", url="/files?id=3").name == "GET /files?id=3"


def test_identity_holds_method_url_and_arguments_in_order() -> None:
    operation = Operation(method="POST", url="/upload", arguments={"params": {"b": 1}, "json": [1, None, True, 2.5]})
    assert operation.identity() == {
        "method": "POST",
        "url": "/upload",
        "arguments": {"json": [1, None, True, 2.5], "params": {"b": 1}},
    }
    assert list(arguments_of(params={}, json=[])) == ["json", "params"]


def test_payloads_are_known_by_their_content() -> None:
    body = payload("1KiB")
    assert arguments_of(content=body) == {"content": body.identity()}
    assert arguments_of(files={"file": ("a.bin", body)}) == {"files": {"file": ["a.bin", body.identity()]}}


@pytest.mark.parametrize("content", ["x" * 201, b"x"])
def test_long_texts_and_bytes_are_known_by_length_and_digest(content: str | bytes) -> None:
    raw = content.encode() if isinstance(content, str) else content
    assert arguments_of(content=content) == {
        "content": {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    }


def test_other_objects_are_known_by_their_type() -> None:
    assert arguments_of(extensions={"trace": object()}) == {"extensions": {"trace": "object"}}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer s3cret", "X-Kind": "a"},
        [("Authorization", "Bearer s3cret"), ("X-Kind", "a")],
        [(b"Authorization", b"Bearer s3cret"), (b"X-Kind", "a")],
    ],
)
def test_credential_headers_are_known_by_name_only(headers: object) -> None:
    assert arguments_of(headers=headers) == {"headers": [["Authorization", "hidden"], ["X-Kind", "a"]]}


def test_httpx_headers_are_described_too() -> None:
    assert arguments_of(headers=httpx.Headers({"Cookie": "s3cret"})) == {"headers": [["cookie", "hidden"]]}


def test_auth_and_cookies_show_no_secret() -> None:
    assert arguments_of(auth=("me", "s3cret"), cookies={"session": "s3cret"}) == {
        "auth": "tuple",
        "cookies": [["session", "hidden"]],
    }
    assert arguments_of(auth=httpx.BasicAuth("me", "s3cret")) == {"auth": "BasicAuth"}


def test_a_journey_is_known_by_its_name() -> None:
    async def roundtrip(client: httpx.AsyncClient) -> None: ...

    assert Journey(name="roundtrip", function=roundtrip).identity() == {"journey": "roundtrip"}


@pytest.mark.parametrize(
    "statuses,status,allowed",
    [((), 200, True), ((), 204, True), ((), 199, False), ((), 302, False), ((404,), 404, True), ((404,), 200, False)],
)
def test_any_2xx_is_good_unless_statuses_are_given(statuses: tuple[int, ...], status: int, allowed: bool) -> None:
    assert Expectation(statuses=statuses).allows_status(status) is allowed
