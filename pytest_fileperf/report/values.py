"""Turns any value into one that JSON can hold: never NaN or Infinity, never an object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import PurePath
from typing import TypeAlias

from pytest_fileperf.serve.spec import ServerSpec, server_id

__all__ = ("JsonValue", "json_text", "json_value", "named")

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def json_value(value: object) -> JsonValue:
    """Returns the value for `json.dumps`: None for NaN and Infinity, keys as texts.

    Servers, functions and classes become what pytest calls them in a test's id, other objects their `repr`.
    """
    match value:
        case None | bool():
            return value
        case str():
            # An enum's member is written as its text; a lone surrogate has none in UTF-8.
            return str(value).encode("utf-8", "replace").decode("utf-8")
        case Integral():
            return int(value)
        case Real():
            number = float(value)
            return number if math.isfinite(number) else None
        case Mapping():
            return {str(json_value(str(key))): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case set() | frozenset():
            return [json_value(item) for item in sorted(value, key=repr)]
        case PurePath():
            return value.as_posix()
        case _ if isinstance(value, ServerSpec):
            return json_value(server_id(value))
        case _:
            name = getattr(value, "__name__", None)
            return json_value(name if isinstance(name, str) else repr(value))


def json_text(value: JsonValue, indent: str = "") -> str:
    """Returns the value as JSON text: keys sorted, two spaces a level, lists of plain values on one line."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        parts = [f"{json_text(key)}: {json_text(value[key], deeper)}" for key in sorted(value)]
        opened, closed = "{}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        parts = [json_text(item, deeper) for item in value]
        opened, closed = "[]"
    else:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    return "\n".join([opened, ",\n".join(deeper + part for part in parts), indent + closed])


def named(value: object, *names: str) -> dict[str, object]:
    """Returns these attributes of a value."""
    return {name: getattr(value, name) for name in names}
