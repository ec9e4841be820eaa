"""Which requests a document's endpoints accept: values by their schemas, and what only the author knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.endpoints import Endpoint, covered, document_of, endpoints_of


def endpoint(operation: dict[str, Any], *, path: str = "/", method: str = "post", **document: Any) -> Endpoint:
    (found,) = endpoints_of({"paths": {path: {method: operation}}, **document})
    return found


def in_body(schema: dict[str, Any], kind: str = "application/json", **schemas: Any) -> Endpoint:
    body = {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}
    return endpoint(body, components={"schemas": schemas})


A_TREE = {
    "type": "object",
    "required": ["name", "left"],
    "properties": {
        "name": {"type": "string"},
        "left": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Tree"}]},
    },
}
ALL_OF = {
    "allOf": [
        {"$ref": "#/components/schemas/Named"},
        {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "minimum": 3}}},
    ]
}
CAT = {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}}
PETS = {
    "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"type": "object"}],
    "discriminator": {"propertyName": "kind", "mapping": {"a cat": "#/components/schemas/Cat"}},
}
NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "more": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6, "maxLength": 8}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "enum": ["red", "blue"]}, "red"),
        ({"type": "string", "const": "car"}, "car"),
        ({"type": "integer", "default": 7}, 7),
        ({"type": "integer", "examples": [5, 6]}, 5),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 10, "multipleOf": 7}, 14),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "exclusiveMaximum": 1}, 0),
        ({"type": "number"}, 1.0),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.75}, 0.375),
        ({"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.75}, 0.5),
        ({"type": "number", "minimum": 2, "maximum": 2, "multipleOf": 0.5}, 2.0),
        ({"type": "boolean"}, True),
        ({"type": ["null", "integer"]}, 1),
        ({"type": "null"}, None),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "maxItems": 0}, []),
        ({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}], "minItems": 2}, [True, 1]),
        ({"type": "array", "items": {"type": "object"}}, [{}]),
        ({"type": "string", "format": "ipv4network"}, "127.0.0.0/8"),
        ({"type": "string", "pattern": "^(asc|desc)$"}, "asc"),
        ({"type": "string", "pattern": r"^\d$"}, "1"),
        ({"anyOf": [{"type": "string", "pattern": "^!$"}, {"type": "integer"}]}, 1),
        ({"$ref": "#/components/schemas/Named"}, {"name": "text"}),
        (ALL_OF, {"name": "text", "size": 3}),
        ({"oneOf": [{"type": "null"}, ALL_OF]}, {"name": "text", "size": 3}),
        ({"$ref": "#/components/schemas/Nowhere"}, "text"),
        (PETS, {"kind": "a cat"}),
        (PETS | {"discriminator": {"propertyName": "kind"}}, {"kind": "Cat"}),
    ],
)
def test_a_value_is_one_that_the_schema_accepts(schema: dict[str, Any], expected: object) -> None:
    found = in_body(schema, Named=NAMED, Cat=CAT)
    assert (found.json, found.needs) == (expected, ())
    assert type(found.json) is type(expected)


def test_a_schema_that_holds_itself_ends() -> None:
    text = json.dumps(in_body({"$ref": "#/components/schemas/Tree"}, Tree=A_TREE).json)
    assert 3 < text.count("name") < 20


def test_a_list_that_holds_itself_ends() -> None:
    lists = {"type": "array", "items": {"$ref": "#/components/schemas/Lists"}}
    assert in_body(lists, Lists=lists).json == [[[[[]]]]]
    form = {"type": "object", "required": ["a"], "properties": {"a": lists}}
    assert in_body(form, "multipart/form-data", Lists=lists).files == ()


def test_a_path_may_be_a_reference_and_extensions_are_none() -> None:
    paths = {"x-more": "text", "/a": {"$ref": "#/components/pathItems/A"}}
    (found,) = endpoints_of({"paths": paths, "components": {"pathItems": {"A": {"get": {}}}}})
    assert (found.method, found.path) == ("get", "/a")


SENT = {
    "/items/{id}": ("GET", "/items/{item_id}"),
    "items/7": ("GET", "/items/{item_id}"),
    "/items/special": ("GET", "/items/special"),
    "/items/7/a.b": ("GET", "/items/{item_id}/a.b"),
    "/items/7/a-b": ("GET", "/{path}"),
    "/files/x/y.txt": ("GET", "/files/{path}"),
    "/v1/a%20b": ("GET", "/a b"),
    "/nowhere": ("GET", "/{path}"),
    "": None,
}


@pytest.mark.parametrize("path", SENT)
def test_a_request_goes_to_the_endpoint_with_the_fewest_parameters(path: str) -> None:
    paths: dict[str, object] = {
        one: {"get": {}, "post": {}} for one in ("/items/{item_id}", "/items/special", "/items/{item_id}/a.b", "/a b")
    }
    text = [{"name": "path", "in": "path", "schema": {"type": "string"}}]
    paths |= {one: {"get": {"parameters": text}} for one in ("/{path}", "/files/{path}")}
    document = {"paths": paths, "servers": [{"url": "http://a.example/v1"}]}
    found = [name for name, is_covered in covered(document, [("GET", path)]).items() if is_covered]
    assert found == ([] if (expected := SENT[path]) is None else [" ".join(expected)])


@pytest.mark.parametrize("document", [{}, {"paths": []}, {"paths": {"/": 5}}, {"paths": {}}])
def test_a_document_without_endpoints_tells_none(document: dict[str, Any]) -> None:
    assert covered(document, [("GET", "/")]) == {}


def test_forms_and_files() -> None:
    fields = {
        "note": {"type": "string"},
        "file": {"type": "string", "format": "binary"},
        "more": {"type": "array", "items": {"type": "string", "contentMediaType": "application/octet-stream"}},
        "optional": {"type": "string", "format": "binary"},
    }
    form = {"type": "object", "required": ["note", "file", "more"], "properties": fields}
    found = in_body(form, "multipart/form-data")
    assert (found.data, found.files) == ({"note": "text"}, ("file", "more"))
    optional = in_body({"type": "object", "properties": fields}, "multipart/form-data")
    assert (optional.data, optional.files) == ({"note": "text"}, ("file", "more", "optional"))
    assert in_body({"type": "object"}, "multipart/form-data").needs == ("the body (its fields are not documented)",)
    assert in_body({"type": "string"}, "application/octet-stream").has_bytes
    assert in_body({"type": "string"}, "application/xml").needs == ("a body of application/xml",)


def test_what_only_the_author_knows_is_named() -> None:
    def asked(place: str, schema: dict[str, Any], **more: object) -> Endpoint:
        parameter = {"name": "id", "in": place, "required": True, "schema": schema, **more}
        schemas = {"Colour": {"enum": ["red", "blue"]}}
        return endpoint({"parameters": [parameter]}, path="/a/{id}", method="get", components={"schemas": schemas})

    assert asked("path", {"type": "integer"}).needs == ("id in the path",)
    assert asked("path", {"type": "integer"}, example=5).url == "/a/5"
    assert asked("path", {"type": "string"}, examples={"one": {"value": "b/c"}}).url == "/a/b%2Fc"
    assert asked("path", {"$ref": "#/components/schemas/Colour"}).url == "/a/red"
    assert asked("header", {"type": "string"}).needs == ("id in the headers",)
    assert asked("header", {"type": "string", "default": "x"}).headers == {"id": "x"}
    assert asked("cookie", {"type": "string", "examples": ["x"]}).headers == {"cookie": "id=x"}
    assert asked("query", {"type": "integer"}).params == {"id": 1}
    assert asked("query", {"type": "array", "items": {"type": "string"}}).needs == ("id in the query",)
    assert asked("query", {"type": "string"}).needs == ("id in the query",)
    assert asked("query", {"type": "string", "enum": ["a"]}).needs == ()
    assert asked("query", {"type": "object"}).needs == ("id in the query",)
    assert asked("query", {}, content={"application/json": {}}).needs == ("id in the query",)
    assert asked("query", {"type": "string", "pattern": "^![a-z]$"}).needs == ("id (it matches ^![a-z]$)",)
    assert asked("query", {"type": "string", "pattern": "(?<x"}).needs == ("id (it matches (?<x)",)
    own = {
        "password": {"type": "string"},
        "key": {"type": "string", "format": "password"},
        "flow_id": {"type": "string", "format": "uuid"},
        "userId": {"type": "integer"},
        "team_id": {"type": "integer", "default": 1},
        "id": {"type": "integer"},
        "width": {"type": "integer"},
    }
    assert in_body({"required": list(own), "properties": own}).needs == ("password", "key", "flow_id", "userId")
    assert in_body({"type": "object"}).needs == ("the body (its fields are not documented)",)
    assert in_body({"type": "array", "minItems": 2, "uniqueItems": True}).needs == ("the body (its items must differ)",)
    assert asked("query", {"type": "string"}, required=False).params == {}
    assert endpoint({"security": [{"token": []}]}).needs == ("credentials",)
    assert endpoint({}, security=[{"token": []}]).needs == ("credentials",)
    assert endpoint({"security": [{}, {"token": []}]}).needs == ()


def test_all_cookies_are_sent() -> None:
    cookies = [
        {"name": name, "in": "cookie", "required": True, "schema": {"type": "string", "default": name}} for name in "ab"
    ]
    assert endpoint({"parameters": cookies}).headers == {"cookie": "a=a; b=b"}


def test_an_example_beside_the_schema_is_sent() -> None:
    content = {"schema": {"type": "integer"}, "examples": {"one": {"$ref": "#/components/examples/One"}}}
    body = {"requestBody": {"required": True, "content": {"application/json": content}}}
    assert endpoint(body, components={"examples": {"One": {"value": 0}}}).json == 0


@pytest.mark.parametrize(
    "responses, status",
    [({"307": {}}, 307), ({"200": {}, "302": {}}, None), ({"404": {}}, None), ({"3XX": {}}, None), ({}, None)],
)
def test_a_redirect_is_a_good_answer_of_what_only_redirects(responses: dict[str, Any], status: int | None) -> None:
    assert endpoint({"responses": responses}).expect_status == status


def test_a_stream_of_events_is_known_by_its_answer() -> None:
    assert endpoint({"responses": {"200": {"content": {"text/event-stream": {}}}}}).has_events


@pytest.mark.parametrize("url, expected", [("https://example.org/api/v1/", "/api/v1/a"), ("/", "/a"), ("/{v}", "/a")])
def test_paths_follow_that_of_the_server(url: str, expected: str) -> None:
    assert endpoint({}, path="/a", servers=[{"url": url}]).url == expected


def test_each_request_of_a_recording_comes_once(tmp_path: Path) -> None:
    def entry(
        method: str, url: str, posted: dict[str, Any] | None = None, *headers: str, status: int = 200
    ) -> dict[str, Any]:
        names = [{"name": name, "value": "x"} for name in headers]
        request = {"method": method, "url": url, "headers": names, "postData": posted}
        return {"request": request, "response": {"status": status}}

    of_json = {"mimeType": "application/json; charset=utf-8", "text": '{"a": 1}'}
    encoded = [{"name": "a", "value": "1"}, {"name": "b", "value": "t%20wo"}, {"name": "b", "value": "3"}]
    of_form = {"mimeType": "application/x-www-form-urlencoded", "text": "a=1&b=t%20wo&b=3", "params": encoded}
    entries = [
        entry("GET", "data:text/plain,x"),
        entry("GET", "http://example.org/a?x=0", status=500),
        entry("GET", "http://example.org/a?x=1&y="),
        entry("GET", "http://elsewhere.example.org/counted"),
        entry("OPTIONS", "http://example.org/b"),
        entry("GET", "http://example.org/old?x=1&x=2", status=301),
        entry("GET", "http://example.org/%20{kept}", status=304),
        entry("GET", "http://example.org/a?x=2"),
        entry("POST", "http://example.org/b", of_json, "Cookie"),
        entry("POST", "http://example.org/c", of_form),
        entry("CONNECT", "http://example.org/"),
        entry("PUT", "http://example.org/d", {"mimeType": "image/png"}),
    ]
    file = tmp_path / "recorded.har"
    file.write_text(json.dumps({"log": {"entries": entries}}), encoding="utf-8")
    assert [
        (one.method, one.url, one.params, one.json or one.expect_status, one.data, one.needs)
        for one in endpoints_of(document_of(str(file)))
    ] == [
        ("get", "/a", {"x": "1", "y": ""}, None, {}, ()),
        ("get", "/old", {"x": ["1", "2"]}, 301, {}, ()),
        ("get", "/%20%7Bkept%7D", {}, None, {}, ()),
        ("post", "/b", {}, {"a": 1}, {}, ("credentials",)),
        ("post", "/c", {}, None, {"a": "1", "b": ["t wo", "3"]}, ()),
        ("put", "/d", {}, None, {}, ("a body of image/png",)),
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"swagger": "2.0", "paths": {}}'])
def test_a_file_that_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=r"a\.json"):
        document_of(str(file))


@pytest.mark.parametrize(
    "document", [{"paths": []}, {"paths": {"/": 1}}, {"paths": {"/": {"get": {"parameters": [{}]}}}}, {"log": []}]
)
def test_a_damaged_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="is malformed"):
        endpoints_of(document)
