"""Reads values from stored JSON; an error names the place of the first wrong one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

__all__ = ("list_in", "mapping_in", "number_in", "optional_text_in", "text_in", "texts_in", "value_in", "whole_in")


def value_in(holder: Mapping[str, object], key: str, where: str) -> object:
    """Returns the value of a key that must be there; raises ValueError naming the place."""
    if key not in holder:
        raise ValueError(f"{where or 'it'} has no {key!r}")
    return holder[key]


def mapping_in(holder: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    """Returns the object under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    return value if isinstance(value, dict) else _refuse(where, key, value, "an object")


def list_in(holder: Mapping[str, object], key: str, where: str) -> Sequence[object]:
    """Returns the list under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    return value if isinstance(value, list) else _refuse(where, key, value, "a list")


def text_in(holder: Mapping[str, object], key: str, where: str) -> str:
    """Returns the text under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    return value if isinstance(value, str) else _refuse(where, key, value, "a text")


def optional_text_in(holder: Mapping[str, object], key: str, where: str) -> str | None:
    """Returns the text under a key, None where it is `null` or not there; raises ValueError naming the place."""
    return None if holder.get(key) is None else text_in(holder, key, where)


def texts_in(holder: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """Returns the list of texts under a key; raises ValueError naming the place."""
    values = list_in(holder, key, where)
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(values) else _refuse(where, key, values, "a list of texts")


def whole_in(holder: Mapping[str, object], key: str, where: str) -> int:
    """Returns the whole number, 0 or more, under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return _refuse(where, key, value, "a whole number of 0 or more")


def number_in(holder: Mapping[str, object], key: str, where: str) -> float:
    """Returns the finite number, 0 or more, under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
        return float(value)
    return _refuse(where, key, value, "a finite number of 0 or more")


def _refuse(where: str, key: str, value: object, wanted: str) -> NoReturn:
    shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:39] + "…"
    raise ValueError(f"{f'{where}.{key}' if where else key} is {shown}, not {wanted}")
