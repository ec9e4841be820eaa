"""Finds an app's endpoints in its OpenAPI document or a browser's recording (HAR), with requests that they accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.app import app_spec

if TYPE_CHECKING:
    from pytest_fileperf.serve.running import RunningServer

_METHODS = ("get", "head", "options", "post", "put", "patch", "delete")
_JSON, _FORM, _MULTIPART, _BYTES = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/octet-stream",
)
_BODIES = (_JSON, _FORM, _MULTIPART, _BYTES, "text/plain")
"""The kinds of bodies that we can make. If an endpoint accepts several kinds, the first one here is used."""
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "PT1S",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "email": "someone@example.org",
    "uri": "http://example.org/",
    "hostname": "example.org",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "byte": "eHh4",
    "base64": "eHh4",
    "base64url": "eHh4",
    "uuid4": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "ipvanyaddress": "127.0.0.1",
    "ipv4network": "127.0.0.0/8",
    "ipv6network": "::/64",
    "ipvanynetwork": "127.0.0.0/8",
    "ipv4interface": "127.0.0.1/8",
    "ipv6interface": "::1/64",
    "ipvanyinterface": "127.0.0.1/8",
    "json-string": "{}",
}
_AUTHORS_OWN = re.compile(r"password|token|\w+_id|\w*[a-z]Id", re.ASCII)
"""Names of fields whose values only the app's author knows: secrets, and ids of rows that must exist."""
_PLACES = {"query": "query", "header": "headers", "cookie": "cookies"}
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
_NO_SLASH = "[^/]+"
_DEEP, _DEEPEST = 4, 12
"""A schema may contain itself. From depth 4 on, a sample has no optional values, and from depth 12 on no fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    """In lower case."""
    path: str
    """As in the document: `/items/{item_id}`."""
    url: str
    """The path with its parameters' examples, if there are any: `/items/7`."""
    summary: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    has_bytes: bool = False
    expect_status: int | None = None
    """The status of an endpoint that redirects; None for other endpoints."""
    has_events: bool = False
    """Whether the answer is a stream of events, which may never end."""
    needs: tuple[str, ...] = ()
    """Values that only the app's author knows, such as `item_id in the path`."""


def document_of(source: str) -> Mapping[str, Any]:
    """Returns an app's or a file's document. `source` is `"module:attribute"`, or a path to `.json` or `.har`.

    Raises PlanError if there is no document, and AppLoadError if the app cannot be imported.
    """
    if source.endswith((".json", ".har")):
        try:
            document = json.loads(Path(source).read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise PlanError(f"{source}: {error}") from error
    else:
        app: Any = app_spec(source).load()
        of_litestar = getattr(getattr(app, "openapi_schema", None), "to_schema", None)
        made = getattr(app, "openapi", of_litestar)
        if not callable(made):
            raise PlanError(
                f"{source} makes no OpenAPI document, as apps of FastAPI and Litestar do. Give a file: its "
                "OpenAPI document, or a browser's recording (HAR)"
            )
        # The servers in the document are for clients. An app on its own has no path in front of its endpoints.
        document = {**made(), "servers": ()}
    if isinstance(document, dict) and "swagger" in document:
        raise PlanError(f"{source} is a Swagger 2.0 document. Convert it to OpenAPI 3")
    if not isinstance(document, dict) or not {"paths", "log"} & document.keys():
        raise PlanError(f"{source} is neither an OpenAPI document nor a browser's recording (HAR)")
    return document


def endpoints_of(document: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    """Raises PlanError for a malformed document."""
    schemas = _Schemas(document)
    try:
        if "log" in document:
            return tuple(_recorded(document["log"]))
        return tuple(_endpoint(schemas, *operation) for operation in _operations(schemas))
    except _MALFORMED as error:
        raise PlanError(f"the OpenAPI document or HAR is malformed ({type(error).__name__}: {error})") from error


def _operations(schemas: _Schemas) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields each endpoint's method and path, and the path's item in the document."""
    for path, reference in schemas.document["paths"].items():
        item = schemas.resolve(reference) if path.startswith("/") else {}  # else it is an extension
        yield from ((method, path, item) for method in _METHODS if isinstance(item.get(method), dict))


def _parameters(schemas: _Schemas, method: str, item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return map(schemas.resolve, (*item.get("parameters", ()), *item[method].get("parameters", ())))


def _endpoint(schemas: _Schemas, method: str, path: str, item: Mapping[str, Any]) -> Endpoint:
    operation: Mapping[str, Any] = item[method]
    url, needs = schemas.prefix + path, list[str]()
    params, headers = dict[str, Any](), dict[str, str]()
    for parameter in _parameters(schemas, method, item):
        name, place = str(parameter["name"]), parameter["in"]
        schema = {**parameter.get("schema", {})}
        if (value := schemas.example_beside(parameter)) is not None:
            schema["example"] = value
        if place == "path":
            if (value := _example_in(schemas.merged(schema))) is None:
                needs.append(f"{name} in the path")
            else:
                url = url.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif parameter.get("required"):
            is_known = place == "query" and "content" not in parameter and not schemas.is_free_text(schema)
            value = schemas.sample(schema, needs, name) if is_known else _example_in(schemas.merged(schema))
            if value is None or isinstance(value, dict):
                needs.append(f"{name} in the {_PLACES.get(place, place)}")
                params |= {name: "text"} if place == "query" else {}
            elif place == "query":
                params[name] = value
            elif place == "cookie":
                headers["cookie"] = "; ".join([*filter(None, [headers.get("cookie")]), f"{name}={value}"])
            else:
                headers[name] = str(value)
    security = operation.get("security", schemas.document.get("security", ()))
    if security and {} not in security:
        needs.append("credentials")
    body = _body(schemas, operation, needs)
    return Endpoint(
        method=method,
        path=path,
        url=url,
        summary=" ".join(str(operation.get("summary") or "").split()),
        params=params,
        headers=headers,
        expect_status=_redirect(operation),
        has_events=any(
            "text/event-stream" in schemas.resolve(one).get("content", {})
            for one in operation.get("responses", {}).values()
        ),
        needs=tuple(dict.fromkeys(needs)),
        **body,
    )


def _redirect(operation: Mapping[str, Any]) -> int | None:
    good = [str(status) for status in operation.get("responses") or () if str(status)[:1] in "23"]
    return int(good[0]) if good and good[0].isdigit() and all(status[0] == "3" for status in good) else None


def _example_in(schema: Mapping[str, Any]) -> Any:
    """Returns a value that a schema names: its example, constant, default or first choice."""
    examples = schema.get("examples")
    if isinstance(examples, list) and examples:
        return examples[0]
    enum = schema.get("enum") or [None]
    return next((schema[key] for key in ("example", "const", "default") if schema.get(key) is not None), enum[0])


def _body(schemas: _Schemas, operation: Mapping[str, Any], needs: list[str]) -> dict[str, Any]:
    """Returns a request's body as keywords for `Endpoint`. Adds to `needs` the values that only the author knows."""
    asked = schemas.resolve(operation.get("requestBody", {}))
    content = {kind.partition(";")[0].strip(): schemas.resolve(own) for kind, own in asked.get("content", {}).items()}
    if not content or not asked.get("required", True):
        return {}
    kind = next((kind for kind in _BODIES if kind in content), None)
    if kind is None:
        needs.append(f"a body of {' or '.join(content)}")
        return {}
    own = content[kind]
    schema = own.get("schema", {})
    if (value := schemas.example_beside(own)) is not None:
        schema = {**schemas.resolve(schema), "example": value}
    if kind in (_BYTES, "text/plain"):
        return {"has_bytes": True}
    if kind == _JSON:
        value = schemas.sample(schema, needs, "the body")
        needs += ["the body (its fields are not documented)"] * (value == {} and schemas.names_no_field(schema))
        return {"json": value}
    form = schemas.merged(schema)
    fields = {name: schemas.resolve(one) for name, one in form.get("properties", {}).items()}
    # If all fields are optional, all are sent: else there would be no body.
    wanted = [name for name in fields if name in form.get("required", ())] or list(fields)
    needs += ["the body (its fields are not documented)"] * (not fields)
    files = [name for name in wanted if schemas.is_file(fields[name])]
    data = {name: schemas.sample(fields[name], needs, name) for name in wanted if name not in files}
    return {"data": data, "files": tuple(files)}


@dataclass(frozen=True, slots=True)
class _Schemas:
    document: Mapping[str, Any]

    @property
    def prefix(self) -> str:
        """The path of the document's first server, which stands in front of all paths."""
        servers: Sequence[Mapping[str, Any]] = self.document.get("servers") or ({},)
        path = urlsplit(str(servers[0].get("url", ""))).path.rstrip("/")
        return "" if "{" in path else path

    def resolve(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_DEEPEST):
            if "$ref" not in value:
                break
            found: Any = self.document
            for part in str(value["$ref"]).removeprefix("#/").split("/"):
                found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
            value = {**found, **{key: own for key, own in value.items() if key != "$ref"}}
        return value

    def merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a schema without references, merged with its `allOf` and one choice of its `anyOf` or `oneOf`."""
        schema = self.resolve(schema)
        whole: dict[str, Any] = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf")}
        choices = [choice for key in ("anyOf", "oneOf") for choice in schema.get(key, ())]
        choices = [choice for choice in choices if self.resolve(choice).get("type") != "null"]
        chosen = min(choices, key=lambda choice: "pattern" in self.resolve(choice), default=None)
        if chosen is not None and "propertyName" in (discriminator := schema.get("discriminator", {})):
            names = {reference: name for name, reference in discriminator.get("mapping", {}).items()}
            reference = str(chosen.get("$ref", ""))
            kind = {"const": names.get(reference, reference.rpartition("/")[2])}
            tag = {"properties": {discriminator["propertyName"]: kind}, "required": [discriminator["propertyName"]]}
            chosen = {"allOf": [tag, chosen]}
        for part in (*map(self.resolve, schema.get("allOf", ())), *([] if chosen is None else [chosen])):
            own = self.merged(part)
            properties = {**own.get("properties", {}), **whole.get("properties", {})}
            required = [*own.get("required", ()), *whole.get("required", ())]
            whole = {**own, **whole, **({"properties": properties, "required": required} if properties else {})}
        return whole

    def example_beside(self, value: Mapping[str, Any]) -> Any:
        """Returns an example that stands next to a schema, not in the schema."""
        named = value.get("examples")
        examples = [self.resolve(one).get("value") for one in named.values()] if isinstance(named, dict) else []
        return next((one for one in (value.get("example"), *examples) if one is not None), None)

    def is_free_text(self, schema: Mapping[str, Any]) -> bool:
        """Whether the schema accepts any text, and gives no example."""
        own = self.merged(schema)
        if own.get("type") == "array" and _example_in(own) is None:
            own = self.merged(own.get("items", {}))
        return (
            own.get("type", "string") == "string"
            and not {"format", "pattern"} & own.keys()
            and _example_in(own) is None
        )

    def names_no_field(self, schema: Mapping[str, Any]) -> bool:
        own = self.merged(schema)
        return not own.get("properties") and _example_in(own) is None

    def is_file(self, schema: Mapping[str, Any]) -> bool:
        own = self.merged(schema)
        if own.get("type") == "array":
            own = self.merged(own.get("items", {}))
        return own.get("format") == "binary" or "contentMediaType" in own

    def sample(self, schema: Mapping[str, Any], needs: list[str], name: str, depth: int = 0) -> Any:
        """Returns a value that the schema accepts. Adds `name` to `needs` if only the author knows a useful value."""
        own = self.merged(schema)
        if (value := _example_in(own)) is not None:
            return value
        if depth >= _DEEP and self._takes_null(schema):
            return None
        kind = own.get("type")
        if isinstance(kind, list):
            kind = next((one for one in kind if one != "null"), "null")
        kind = kind or ("object" if "properties" in own else "array" if "items" in own else None)
        if kind in ("string", "integer") and (own.get("format") == "password" or _AUTHORS_OWN.fullmatch(name)):
            needs.append(name)
        match kind:
            case "object":
                asked = own.get("required", ()) if depth < _DEEPEST else ()
                fields = own.get("properties", {})
                return {one: self.sample(fields.get(one, {}), needs, one, depth + 1) for one in dict.fromkeys(asked)}
            case "array":
                count = max(own.get("minItems", 0), 1 if depth < _DEEP and own.get("maxItems", 1) else 0)
                if own.get("uniqueItems") and count > 1:
                    needs.append(f"{name} (its items must differ)")
                prefix = [self.sample(one, needs, name, depth + 1) for one in own.get("prefixItems", ())]
                if count <= len(prefix):
                    return prefix
                return prefix + [self.sample(own.get("items", {}), needs, name, depth + 1)] * (count - len(prefix))
            case "string":
                return self._text(own, needs, name)
            case "integer" | "number":
                return _number(own, whole=kind == "integer")
            case "boolean":
                return True
        return None if kind == "null" else "text"

    def _text(self, own: Mapping[str, Any], needs: list[str], name: str) -> str:
        if own.get("format") in _FORMATS:
            return _FORMATS[own["format"]]
        text = "text"[: own.get("maxLength", 4)].ljust(own.get("minLength", 0), "x")
        matching = _matching(str(own.get("pattern", "")), text)
        if matching is None:
            needs.append(f"{name} (it matches {own['pattern']})")
        return text if matching is None else matching

    def _takes_null(self, schema: Mapping[str, Any]) -> bool:
        schema = self.resolve(schema)
        choices = [self.resolve(choice) for key in ("anyOf", "oneOf") for choice in schema.get(key, ())]
        return schema.get("nullable") is True or any("null" in (one.get("type") or ()) for one in (schema, *choices))


def _matching(pattern: str, text: str) -> str | None:
    """Returns a text that matches the pattern, such as `asc` for `^(asc|desc)$`."""
    try:
        return next((one for one in (text, *re.findall(r"\w+", pattern), "a", "1") if re.search(pattern, one)), None)
    except re.error:
        return None


def _number(own: Mapping[str, Any], *, whole: bool) -> float:
    """Returns 1 if the schema accepts it, else a number near the schema's limits or between them."""
    step = own.get("multipleOf") or 1
    any_fraction = not whole and not own.get("multipleOf")
    keys = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    # In older documents, `exclusiveMinimum` is a boolean beside `minimum`.
    least, above, most, below = (own[key] if type(own.get(key)) in (int, float) else None for key in keys)
    ends = [end for end in (least, above, most, below) if end is not None]
    near = [(end // step + more) * step for end in ends for more in (0, 1, -1)]
    between = sum(ends) / max(1, len(ends))
    for value in (1, *near, step, between):
        too_low = (least is not None and value < least) or (above is not None and value <= above)
        too_high = (most is not None and value > most) or (below is not None and value >= below)
        if not too_low and not too_high and (any_fraction or value % step == 0):
            return int(value) if whole else float(value)
    return 1


def _recorded(log: Mapping[str, Any]) -> Iterator[Endpoint]:
    """Yields an endpoint for each recorded method and path, from the first successful request to it."""
    seen, host = set(), None
    for entry in log.get("entries", ()):
        request, status = entry["request"], entry.get("response", {}).get("status", 200)
        address, method = urlsplit(request["url"]), str(request["method"]).lower()
        if address.scheme not in ("http", "https"):
            continue
        host = host or address.netloc  # only this host's requests count
        # A browser asks OPTIONS on its own, before a request to another origin.
        asks = method in _METHODS and method != "options" and address.netloc == host and 200 <= status < 400
        if not asks or (method, address.path) in seen:
            continue
        seen.add((method, address.path))
        given = {str(one["name"]).lower() for one in request.get("headers", ())}
        posted = request.get("postData") or {}
        kind, body, needs = str(posted.get("mimeType", "")).partition(";")[0], {}, []
        if given & {"authorization", "cookie"}:
            needs.append("credentials")
        if kind == _JSON:
            try:
                body = {"json": json.loads(posted.get("text") or "null")}
            except ValueError:
                needs.append("the body")
        elif kind == _FORM:
            pairs = [(one["name"], one["value"]) for one in posted.get("params", ())]
            body = {"data": _grouped(parse_qsl(posted.get("text") or "", keep_blank_values=True) or pairs)}
        elif kind:
            needs.append(f"a body of {kind}")
        yield Endpoint(
            method=method,
            path=address.path,
            url=(address.path or "/").replace("{", "%7B").replace("}", "%7D"),
            params=_grouped(parse_qsl(address.query, keep_blank_values=True)),
            expect_status=status if 300 <= status < 400 and status != 304 else None,  # 304 is from a cache
            needs=tuple(needs),
            **body,
        )


# --- Which of an app's endpoints have a load test, by its document and the requests that a session has sent


def served_document(running: RunningServer) -> Mapping[str, Any] | None:
    """Returns an empty document if the server has none, and None if the server does not answer."""
    # An app in this process may raise anything.
    with suppress(Exception), running.quick_client(timeout=3.0) as client:
        for path in ("/openapi.json", "/schema/openapi.json"):  # of FastAPI, and of Litestar
            answer = client.get(path)
            document: object = answer.json() if answer.status_code == 200 else None
            if isinstance(document, dict) and "paths" in document:
                return document
        return {}
    return None


def covered(document: Mapping[str, Any], sent: Iterable[tuple[str, str]]) -> Mapping[str, bool]:
    """Returns for each endpoint, such as `GET /items/{item_id}`, whether a request (method, path) in `sent` goes to it.

    If a path matches several endpoints, the endpoint with the fewest parameters counts, as OpenAPI says.
    """
    try:
        schemas = _Schemas(document)
        all_of_path = {(method, path): item for method, path, item in _operations(schemas)} if document else {}
        texts = {own for own, item in all_of_path.items() if _ends_in_text(schemas, *own, item)}
    except _MALFORMED:
        return {}
    known = dict.fromkeys(all_of_path, False)
    patterns = [
        (method, path, re.compile(re.sub(r"\\\{[^/]*?\\\}", _NO_SLASH, re.escape(path))))
        for method, path in sorted(known, key=lambda one: one[1].count("{"))
    ]
    # A parameter at the end may contain slashes, as in Starlette's `{path:path}`, but no document shows this.
    last = sorted((one for one in patterns if one[:2] in texts), key=lambda one: -one[1].index("{"))
    patterns += [(method, path, re.compile(one.pattern.removesuffix(_NO_SLASH) + ".+")) for method, path, one in last]
    for method, path in sent:
        own = unquote(f"/{path.lstrip('/')}".removeprefix(schemas.prefix))
        found = (one[:2] for one in patterns if one[0] == method.lower() and one[2].fullmatch(own))
        known |= dict.fromkeys(islice(found, 1), True)
    return {f"{method.upper()} {path}": is_sent for (method, path), is_sent in known.items()}


def _ends_in_text(schemas: _Schemas, method: str, path: str, item: Mapping[str, Any]) -> bool:
    parameters = _parameters(schemas, method, item)
    last = [one for one in parameters if one["in"] == "path" and path.endswith(f"{{{one['name']}}}")]
    return any(schemas.merged(one.get("schema", {})).get("type") == "string" for one in last)


def _grouped(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns values by name. A repeated name has the list of its values."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}
