"""What an operation is known by, and what a good answer is; texts show no logins and no values of queries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation, without_queries


def arguments_of(**arguments: object) -> Mapping[str, object]:
    identity = Operation(method="POST", url="/upload", arguments=arguments).identity()
    assert json.loads(json.dumps(identity)) == identity
    described = identity["arguments"]
    assert isinstance(described, dict)
    return described


def plain(value: str | bytes) -> str:
    return "sha256:" + hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def test_an_operation_is_named_by_method_and_url_without_values() -> None:
    assert Operation(method="GET", url="/files?id=3&flag&to={place}&=").name == "GET /files?id=…&…&to={place}&="
    assert Operation(method="GET", url="/files").name == "GET /files"


def test_identity_holds_method_path_and_names_with_digests_in_order() -> None:
    operation = Operation(
        method="POST", url="/upload?token=s3cret&a={id}", arguments={"params": {"b": 1}, "json": {"x": [1, None]}}
    )
    identity = operation.identity()
    assert identity["url"] == "/upload"
    assert identity["query"] == {"token": plain("s3cret"), "a": "{id}"}
    assert arguments_of(params={"b": 1}, json={"x": {"y": "v"}}) == {
        "json": {"x": {"y": plain("v")}},
        "params": {"b": plain("json 1")},
    }
    assert list(arguments_of(params={}, json=[])) == ["json", "params"]


def test_a_number_is_not_its_text_and_lists_tell_their_order() -> None:
    different = [arguments_of(json=value) for value in (1, "1", True, None, [1, 2], [2, 1], ["1", 2], {"a": [1]}, {})]
    assert all(one != other for place, one in enumerate(different) for other in different[:place])


def test_payloads_are_known_by_their_content(tmp_path: Path) -> None:
    body = payload("1KiB")
    assert arguments_of(content=body) == {"content": body.identity()}
    (tmp_path / "a.bin").write_text("s3cret")
    described = arguments_of(files={"file": ("a.bin", payload(tmp_path / "a.bin"))})["files"]
    assert described == {
        "file": [plain("a.bin"), {"size_bytes": 6, "kind": "file", "seed": 0, "sha256": plain("s3cret")}]
    }


@pytest.mark.parametrize("content", ["x" * 201, b"x", "s3cret"])
def test_texts_and_bytes_are_known_by_their_digest(content: str | bytes) -> None:
    assert arguments_of(content=content) == {"content": plain(content)}


def test_many_values_have_one_digest() -> None:
    many = {str(number): number for number in range(51)}
    assert isinstance(arguments_of(json=many)["json"], str)
    assert arguments_of(json=many) == arguments_of(json=dict(reversed(many.items())))
    assert arguments_of(json=many) != arguments_of(json={**many, "1": 0})
    assert arguments_of(extensions={"trace": object()}) == {"extensions": {"trace": "object"}}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer s3cret", "X-Kind": "a"},
        [("Authorization", "Bearer s3cret"), ("X-Kind", "a")],
        [(b"Authorization", b"Bearer s3cret"), (b"X-Kind", b"a")],
    ],
)
def test_credential_headers_are_known_by_name_only(headers: object) -> None:
    """They may be other ones in each run."""
    assert arguments_of(headers=headers) == {"headers": {"Authorization": "hidden", "X-Kind": plain("a")}}


def test_a_name_that_is_there_twice_has_both_values() -> None:
    both = {"X-Kind": [plain("a"), plain("b")]}
    assert arguments_of(headers=[("X-Kind", "a"), ("X-Kind", "b")]) == {"headers": both}
    assert arguments_of(params=httpx.QueryParams("X-Kind=a&X-Kind=b")) == {"params": both}


def test_auth_and_cookies_show_no_secret() -> None:
    assert arguments_of(auth=("me", "s3cret"), cookies={"session": "s3cret"}) == {
        "auth": "tuple",
        "cookies": {"session": "hidden"},
    }
    assert arguments_of(headers=httpx.Headers({"Cookie": "s3cret"})) == {"headers": {"cookie": "hidden"}}
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


@pytest.mark.parametrize(
    "text,shown",
    [
        pytest.param("no answer of http://bob:pw@localhost/x", "no answer of http://…@localhost/x", id="a login"),
        pytest.param("HTTPS://bob:pw@localhost/x", "HTTPS://…@localhost/x", id="capitals"),
        pytest.param("http://bob:p@w@localhost/x", "http://…@localhost/x", id="an @ in the password"),
        pytest.param("http://localhost/a@b", "http://localhost/a@b", id="an @ in the path"),
    ],
)
def test_logins_are_hidden(text: str, shown: str) -> None:
    assert without_queries(text) == shown
