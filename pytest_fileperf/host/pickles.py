"""Pickles values for other processes, which may be unable to import the values' classes."""

from __future__ import annotations

import io
from collections import ChainMap
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cloudpickle


@cache
def pickler() -> type[cloudpickle.Pickler]:
    """Returns cloudpickle's pickler, changed so that tracebacks and profiles show the code's file name.

    Since 3.1.3, cloudpickle replaces the file name by `<dynamic-code>`.
    """
    import cloudpickle

    table = cloudpickle.Pickler.dispatch_table

    def reduced(code: CodeType) -> tuple[object, tuple[object, ...]]:
        make, given = table[CodeType](code)
        return make, tuple(code.co_filename if one == "<dynamic-code>" else one for one in given)

    return type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": ChainMap({CodeType: reduced}, table)})


def by_value(value: object) -> bytes:
    with io.BytesIO() as file:
        pickler()(file).dump(value)
        return file.getvalue()
