"""Any value as one that JSON can hold: never NaN or Infinity, never an object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import PurePath
from typing import TypeAlias

__all__ = ("JsonValue", "json_value")

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def json_value(value: object) -> JsonValue:
    """Returns the value for `json.dumps`: None for NaN and Infinity, keys as texts, objects by their `repr`."""
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
        case _:
            return json_value(repr(value))
