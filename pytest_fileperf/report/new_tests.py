"""Writes a module with a load test for each endpoint of an app, which the user then edits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, count
from urllib.parse import unquote

from pytest_fileperf.serve.endpoints import Endpoint

_WIDTH = 110
_VERBS = ("get", "post", "put", "patch", "delete")
_WHY_LEFT_OUT = "It deletes data: load it only with data that each request creates."


def new_tests(endpoints: Sequence[Endpoint], app: str | None, source: str) -> str:
    """Returns the module's text. `app` is an import string, or None if the ini file has it. The text names `source`."""
    tests = [_test(endpoint, name) for endpoint, name in zip(endpoints, _names(endpoints), strict=True)]
    mark = [] if app is None else [f"pytestmark = pytest.mark.fileperf(app={_code(app, 0)})", ""]
    lines = [f'"""Load tests made from {_docstring_text(source)}. They are yours now: edit them."""', ""]
    if mark or any(endpoint.needs for endpoint in endpoints):
        lines += ["import pytest", ""]
    if any(endpoint.files or endpoint.has_bytes for endpoint in endpoints):
        lines += ["from pytest_fileperf import payload", ""]
    lines += mark
    for test in tests:
        lines += ["", *test, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _names(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Returns a different name for each test, even for paths such as `/a/b`, `/a-b` and `/a/b/2`."""
    names: dict[str, None] = {}
    for endpoint in endpoints:
        words = re.sub(r"\W+", "_", unquote(endpoint.path), flags=re.ASCII).strip("_").lower()
        name = f"test_{endpoint.method}_{words or 'root'}"
        numbered = (f"{name}_{number}" for number in count(2))
        names[next(one for one in chain([name], numbered) if one not in names)] = None
    return tuple(names)


def is_left_out(endpoint: Endpoint) -> bool:
    """Whether the endpoint's test is commented out, because the request deletes data."""
    return endpoint.method == "delete"


def _test(endpoint: Endpoint, name: str) -> list[str]:
    verb = "stream" if endpoint.has_events else endpoint.method if endpoint.method in _VERBS else "request"
    given = [_code(endpoint.method.upper(), 2)] * (verb == "request") + [_code(endpoint.url, 2)]
    for key in ("params", "headers", "json", "data"):
        value = getattr(endpoint, key)
        if value not in ({}, None) or (key == "json" and value == {}):
            given.append(f"{key}={_code(value, 2)}")
    if endpoint.has_bytes:
        given.append('content=payload("64KiB")')
    if endpoint.files:
        given.append("files={" + ", ".join(f'{_code(field, 2)}: payload("64KiB")' for field in endpoint.files) + "}")
    if endpoint.has_events:
        given += [f"method={_code(endpoint.method.upper(), 0)}"] * (endpoint.method != "get") + ["events=1"]
    if endpoint.expect_status is not None:
        given.append(f"expect_status={endpoint.expect_status}")
    lines = [f"def {name}(fileperf):"]
    if not set(re.findall(r"\w+", endpoint.summary.lower())) <= set(name.split("_")):
        lines.append(f'    """{_docstring_text(endpoint.summary)}"""')
    call = f"    fileperf.{verb}({', '.join(given)})"
    if len(call) > _WIDTH or "\n" in call:
        inner = "".join(f"        {value},\n" for value in given)
        call = f"    fileperf.{verb}(\n{inner}    )"
    lines += call.split("\n")
    if endpoint.needs:
        lines.insert(0, f"@pytest.mark.skip(reason={_code('fill in ' + ', '.join(endpoint.needs), 0)})")
    if is_left_out(endpoint):
        lines = [f"# {line}" for line in (_WHY_LEFT_OUT, *lines)]
    return lines


def _docstring_text(text: str) -> str:
    shown = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(shown.replace("\\", "/").replace('"', "'").split())


def _code(value: object, depth: int) -> str:
    """Returns a value as Python code, `depth` indents deep."""
    if isinstance(value, str):
        return repr(value) if '"' in value else '"' + repr("'" + value)[2:]
    if not isinstance(value, dict | list):
        return repr(value)
    inner = [_code(one, depth + 1) for one in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        inner = [f"{_code(key, 0)}: {one}" for key, one in zip(value, inner, strict=True)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    line, indent = f"{begin}{', '.join(inner)}{end}", "    " * depth
    if len(indent) + len(line) <= _WIDTH - 10 and "\n" not in line:
        return line
    return f"{begin}\n" + "".join(f"{indent}    {one},\n" for one in inner) + f"{indent}{end}"
