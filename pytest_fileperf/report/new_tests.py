"""Load tests of an app's endpoints, as the text of a module that its author edits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pytest_fileperf.serve.endpoints import Endpoint

_WIDTH = 110
_WHY_LEFT_OUT = "It destroys what is there: load it only with data that each request makes anew."


def new_tests(endpoints: Sequence[Endpoint], app: str | None, source: str) -> str:
    """Returns the text; `app` is an import string, None where the ini file names the app."""
    payload = any(endpoint.files or endpoint.has_bytes for endpoint in endpoints)
    lines = [f'"""Load tests made from {source}. They are yours now: edit them."""', "", "import pytest", ""]
    lines += ["from pytest_fileperf import payload", ""] * payload
    if app is not None:
        lines += [f"pytestmark = pytest.mark.fileperf(app={_code(app, 0)})", ""]
    names: dict[str, int] = {}
    for endpoint in endpoints:
        words = re.sub(r"\W+", "_", endpoint.path, flags=re.ASCII).strip("_").lower()
        name = f"test_{endpoint.method}_{words or 'root'}"
        names[name] = names.get(name, 0) + 1
        lines += ["", *_test(endpoint, name if names[name] == 1 else f"{name}_{names[name]}"), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def is_left_out(endpoint: Endpoint) -> bool:
    """Whether its test is a comment: a load of it destroys what is there."""
    return endpoint.method == "delete"


def _test(endpoint: Endpoint, name: str) -> list[str]:
    given = [_code(endpoint.url, 2)]
    for key in ("params", "headers", "json", "data"):
        value = getattr(endpoint, key)
        if value not in ({}, None) or (key == "json" and value == {}):
            given.append(f"{key}={_code(value, 2)}")
    if endpoint.has_bytes:
        given.append('content=payload("64KiB")')
    if endpoint.files:
        given.append("files={" + ", ".join(f'{_code(field, 2)}: payload("64KiB")' for field in endpoint.files) + "}")
    lines = [f"def {name}(fileperf):"]
    if endpoint.summary:
        summary = endpoint.summary.replace("\\", "/").replace('"', "'")
        lines.append(f'    """{summary}"""')
    call = f"    fileperf.{endpoint.method}({', '.join(given)})"
    if len(call) > _WIDTH or "\n" in call:
        inner = "".join(f"        {value},\n" for value in given)
        call = f"    fileperf.{endpoint.method}(\n{inner}    )"
    lines += call.split("\n")
    if endpoint.needs:
        lines.insert(0, f"@pytest.mark.skip(reason={_code('fill in ' + ', '.join(endpoint.needs), 0)})")
    if is_left_out(endpoint):
        lines = [f"# {line}" for line in (_WHY_LEFT_OUT, *lines)]
    return lines


def _code(value: object, depth: int) -> str:
    """Returns a value as Python code, at a depth of indents; a collection that is long has a line for each entry."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
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
