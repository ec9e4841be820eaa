"""Turns frozen values into JSON, and back into equal values, by the types of their fields.

    dataclass           an object, without fields that have their default or do not count for equality
    Histogram           a number: its place in a list that has each histogram once
    enumeration         the name of the member
    tuple, frozenset    a list; a frozenset's list is sorted
    sequence            a list, which becomes a tuple
    mapping             an object; keys that are numbers become texts
    float               a number; NaN and infinities become texts
    object              any JSON value

Other types raise an error, so the first test finds a field that could not be read back.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.serve.spec import ServerSpec, server_id

# --- Reads values from stored JSON; an error names the place of the first wrong value


@dataclass(frozen=True, slots=True)
class Placed:
    """A value of stored JSON, and its place in the file. Methods raise ValueError with the place for a wrong type."""

    value: object
    where: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.mapping()

    def __getitem__(self, key: str) -> Placed:
        held = self.mapping()
        if key not in held:
            raise ValueError(f"{self.where or 'it'} has no {key!r}")
        return Placed(held[key], f"{self.where}.{key}" if self.where else key)

    def get(self, key: str) -> Placed | None:
        """Returns the value of a key; None if it is `null` or missing."""
        return None if self.mapping().get(key) is None else self[key]

    def given(self, key: str, otherwise: object) -> Placed:
        return self[key] if key in self else Placed(otherwise)

    def mapping(self) -> Mapping[str, object]:
        return self.value if isinstance(self.value, dict) else self.refuse("an object")

    def items(self) -> list[Placed]:
        held = self.value if isinstance(self.value, list) else self.refuse("a list")
        return [Placed(item, f"{self.where}[{at}]") for at, item in enumerate(held)]

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self.refuse("a text")

    def whole(self) -> int:
        if isinstance(self.value, int) and not isinstance(self.value, bool) and self.value >= 0:
            return self.value
        return self.refuse("a whole number of 0 or more")

    def number(self) -> float:
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
            return float(value)
        return self.refuse("a finite number of 0 or more")

    def texts(self) -> dict[str, str]:
        return {name: self[name].text() for name in self.mapping()}

    def list_of_texts(self) -> tuple[str, ...]:
        texts = tuple(item.value for item in self.items() if isinstance(item.value, str))
        return texts if len(texts) == len(self.items()) else self.refuse("a list of texts")

    def numbers(self) -> dict[str, float]:
        return {name: self[name].number() for name in self.mapping()}

    def refuse(self, wanted: str) -> NoReturn:
        raise ValueError(f"{self.where} is {_shown(self.value)}, not {wanted}")


# --- Turns any value into valid JSON: without NaN, Infinity or objects of Python

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def json_value(value: object) -> JsonValue:
    """Returns the value for `json.dumps`: None for NaN and Infinity, keys as texts.

    Servers become the text that pytest shows in a test's id. Functions and classes become their name, and other objects
    their `repr`.
    """
    match value:
        case None | bool():
            return value
        case str():
            # An enum's member is written as its text. A lone surrogate has no UTF-8 form.
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
    """Returns JSON text that diffs well: sorted keys, two spaces of indent, lists of plain values on one line."""
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
    return {name: getattr(value, name) for name in names}


# --- codec


class Encoder:
    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}
        self.histograms: list[list[object]] = []
        """For each histogram: its HdrHistogram V2 text, then minimum, maximum, sum and sum of squares, which the text
        lacks."""

    def encode(self, value: object, type_: object) -> object:
        """Returns a value for `json.dumps`. `type_` is the annotation of the value's field."""
        origin, arguments = get_origin(type_), get_args(type_)
        if origin in (Union, UnionType):
            return None if value is None else self.encode(value, _present(arguments))
        if origin is tuple:
            if not isinstance(value, tuple):
                raise TypeError(f"{value!r} isn't a tuple")
            return [self.encode(*pair) for pair in zip(value, _types(value, arguments), strict=True)]
        if origin is Sequence:
            return [self.encode(item, arguments[0]) for item in cast("Sequence[object]", value)]
        if origin is frozenset:
            return [self.encode(item, arguments[0]) for item in sorted(cast("frozenset[Any]", value))]
        if origin is Mapping:
            held = cast("Mapping[object, object]", value)
            return {str(self.encode(key, arguments[0])): self.encode(held[key], arguments[1]) for key in held}
        if type_ is Histogram:
            return self._place(cast("Histogram", value))
        if isinstance(type_, type) and is_dataclass(type_):
            return {
                field.name: self.encode(own, annotation)
                for field, annotation in _fields_of(type_)
                if (own := getattr(value, field.name)) != _default(field)
            }
        return _encoded_plain(value, type_)

    def _place(self, histogram: Histogram) -> int:
        exact = [histogram.min_ns, histogram.max_ns, histogram.sum_ns, float(histogram.sum_squares)]
        key = (histogram.steps.tobytes(), histogram.counts.tobytes(), *exact)
        if key not in self._places:
            self._places[key] = len(self.histograms)
            self.histograms.append([histogram.encode(), *exact])
        return self._places[key]


class Decoder:
    """Reads values back from an `Encoder`'s output. Raises ValueError with the place of the first wrong value."""

    def __init__(self, histograms: Placed) -> None:
        self._histograms = [_histogram(item) for item in histograms.items()]

    def decode(self, stored: Placed, type_: Any) -> Any:
        origin, arguments = get_origin(type_), get_args(type_)
        if origin in (Union, UnionType):
            return None if stored.value is None else self.decode(stored, _present(arguments))
        if origin is tuple:
            return self._tuple(stored, arguments)
        if origin is Sequence:
            return self._tuple(stored, (*arguments, ...))
        if origin is frozenset:
            return frozenset(self._tuple(stored, (*arguments, ...)))
        if origin is Mapping:
            key_type, item_type = arguments
            return {_key(key, key_type, stored.where): self.decode(stored[key], item_type) for key in stored.mapping()}
        if type_ is Histogram:
            place = _decoded_plain(stored, int)
            if not 0 <= place < len(self._histograms):
                raise ValueError(f"{stored.where} is {place!r}, but there are {len(self._histograms)} histograms")
            return self._histograms[place]
        if isinstance(type_, type) and is_dataclass(type_):
            held = stored.mapping()
            return type_(
                **{
                    field.name: self.decode(stored[field.name], annotation)
                    for field, annotation in _fields_of(type_)
                    if field.name in held or _default(field) is MISSING
                }
            )
        return _decoded_plain(stored, type_)

    def _tuple(self, stored: Placed, arguments: Sequence[object]) -> tuple[object, ...]:
        items = stored.items()
        if arguments[-1:] != (...,) and len(arguments) != len(items):
            raise ValueError(f"{stored.where} has {len(items)} items, not {len(arguments)}")
        return tuple(map(self.decode, items, _types(items, arguments)))


# --- types


@cache
def _fields_of(type_: type) -> tuple[tuple[Field[Any], object], ...]:
    hints = get_type_hints(type_)
    return tuple((field, hints[field.name]) for field in fields(type_) if field.compare)


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _types(values: Sequence[object], arguments: Sequence[object]) -> Sequence[object]:
    return [arguments[0]] * len(values) if arguments[-1:] == (...,) else arguments


def _present(arguments: Sequence[object]) -> object:
    (type_,) = (type_ for type_ in arguments if type_ is not NoneType)
    return type_


# --- plain values


def _encoded_plain(value: object, type_: object) -> object:
    if type_ is float:
        number = cast("float", value)
        return (int(number) if isinstance(number, int) else float(number)) if math.isfinite(number) else str(number)
    if type_ is int:
        return int(cast("int", value))
    if isinstance(type_, type) and issubclass(type_, Enum):
        return cast("Enum", value).name
    if type_ in (bool, str):
        return value
    if type_ is object:
        return json_value(value)
    raise TypeError(f"no field may be {type_!r}")


def _decoded_plain(stored: Placed, type_: Any) -> Any:
    held = stored.value
    if type_ is object:
        return held
    if isinstance(type_, type) and issubclass(type_, Enum):
        if held not in type_.__members__:
            stored.refuse(f"one of {', '.join(type_.__members__)}")
        return type_.__members__[cast("str", held)]
    if type_ is float and held in ("nan", "inf", "-inf"):
        return float(held)
    wanted = (int, float) if type_ is float else type_
    if not isinstance(held, wanted) or (isinstance(held, bool) and type_ is not bool):
        stored.refuse(f"of type {type_.__name__}")
    if isinstance(held, int) and abs(held) >= 1 << 63:  # JSON allows numbers beyond a float's range
        stored.refuse("a number of 64 bits")
    return held


def _key(key: str, type_: object, where: str) -> object:
    if type_ is str:
        return key
    try:
        return int(key) if type_ is int else float(key)
    except ValueError:
        raise ValueError(f"{where} has the key {_shown(key)}, which isn't a number") from None


def _histogram(stored: Placed) -> Histogram:
    parts = [Placed(item.value, stored.where) for item in stored.items()]
    if len(parts) != 5:
        raise ValueError(f"{stored.where} has {len(parts)} items, not 5")
    if not isinstance(text := parts[0].value, str):
        raise ValueError(f"{stored.where} begins with {_shown(text)}, not with a text")
    low, high, total, squares = map(_decoded_plain, parts[1:], (int, int, int, float))
    try:
        decoded = Histogram.decode(text)
    except ValueError as error:
        raise ValueError(f"{stored.where}: {error}") from error
    return Histogram(decoded.held, min_ns=low, max_ns=high, sum_ns=total, sum_squares=squares)


def _shown(held: object) -> str:
    text = repr(held)
    return text if len(text) <= 40 else f"{text[:39]}…"
