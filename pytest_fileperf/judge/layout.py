"""Lays out JSON for diffs: a line for each fact that a person reviews, few lines for the rest."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

__all__ = ("laid_out",)


def laid_out(value: object, *, flat: Collection[str] = (), indent: str = "") -> str:
    """Returns the value as JSON text, keys in the order they have; raises ValueError for numbers that JSON lacks.

    An object has a line for each key. Objects under a key in `flat`, objects in a list, and lists of plain values are
    one line each. Laying out what was read back gives an equal text. Lines after the first begin with `indent`.
    """
    return _spread(value, indent, flat)


def _spread(value: object, indent: str, flat: Collection[str]) -> str:
    inner = f"{indent} "
    if isinstance(value, Mapping) and value:
        items = [
            f"{_line(key)}: {_line(item) if key in flat else _spread(item, inner, flat)}" for key, item in value.items()
        ]
        return _block("{", items, "}", indent)
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        return _block("[", [_line(item) for item in value], "]", indent)
    return _line(value)


def _block(opened: str, items: list[str], closed: str, indent: str) -> str:
    lines = f",\n{indent} ".join(items)
    return f"{opened}\n{indent} {lines}\n{indent}{closed}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
