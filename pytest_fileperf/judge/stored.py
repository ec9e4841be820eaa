"""Reads values from stored JSON; an error names the place of the first wrong one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

__all__ = ("list_in", "mapping_in", "number_in", "optional_text_in", "text_in", "texts_in", "value_in", "whole_in")


def value_in(holder: Mapping[str, object], key: str, where: str) -> object:
    """Returns the value of a key that must be there; raises ValueError naming the place."""
    if key not in holder:
        raise ValueError(f"{where or 'it'} has no {key!r}")
    return holder[key]


def mapping_in(holder: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    """Returns the object under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if not isinstance(value, dict):
        raise _wrong(where, key, value, "an object")
    return value


def list_in(holder: Mapping[str, object], key: str, where: str) -> Sequence[object]:
    """Returns the list under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if not isinstance(value, list):
        raise _wrong(where, key, value, "a list")
    return value


def text_in(holder: Mapping[str, object], key: str, where: str) -> str:
    """Returns the text under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if not isinstance(value, str):
        raise _wrong(where, key, value, "a text")
    return value


def optional_text_in(holder: Mapping[str, object], key: str, where: str) -> str | None:
    """Returns the text under a key, None where it is `null` or not there; raises ValueError naming the place."""
    return None if holder.get(key) is None else text_in(holder, key, where)


def texts_in(holder: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """Returns the list of texts under a key; raises ValueError naming the place."""
    values = list_in(holder, key, where)
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise _wrong(where, key, values, "a list of texts")
    return texts


def whole_in(holder: Mapping[str, object], key: str, where: str) -> int:
    """Returns the whole number, 0 or more, under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(where, key, value, "a whole number of 0 or more")
    return value


def number_in(holder: Mapping[str, object], key: str, where: str) -> float:
    """Returns the finite number, 0 or more, under a key; raises ValueError naming the place."""
    value = value_in(holder, key, where)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
        return float(value)
    raise _wrong(where, key, value, "a finite number of 0 or more")


def _wrong(where: str, key: str, value: object, wanted: str) -> ValueError:
    shown = repr(value)
    if len(shown) > 40:
        shown = shown[:39] + "…"
    place = f"{where}.{key}" if where else key
    return ValueError(f"{place} is {shown}, not {wanted}")
