"""Turns frozen values into JSON and back by the types of their fields: what comes back is equal.

    dataclass           an object; without fields that have their default, and those that do not count for equality
    Histogram           a number: its place in a list of all histograms, in which each is once
    enumeration         the name of the member
    tuple, frozenset    a list; the latter is sorted
    sequence            a list, which becomes a tuple
    mapping             an object; keys that are numbers become texts
    float               a number; NaN and infinities become texts
    object              a JSON value, as such fields hold no others

A type that is not in this list is an error, so a field that could not be read back is found by the first test.
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

# --- Reads values from stored JSON; an error names the place of the first wrong one


@dataclass(frozen=True, slots=True)
class Placed:
    """A value that was read, and its place: each method raises ValueError that names it if the value is another one."""

    value: object
    where: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.mapping()

    def __getitem__(self, key: str) -> Placed:
        """Returns the value of a key that must be there."""
        held = self.mapping()
        if key not in held:
            raise ValueError(f"{self.where or 'it'} has no {key!r}")
        return Placed(held[key], f"{self.where}.{key}" if self.where else key)

    def get(self, key: str) -> Placed | None:
        """Returns the value of a key; None if it is `null` or not there."""
        return None if self.mapping().get(key) is None else self[key]

    def given(self, key: str, otherwise: object) -> Placed:
        """Returns the value of a key; this one if the key is not there."""
        return self[key] if key in self else Placed(otherwise)

    def mapping(self) -> Mapping[str, object]:
        """Returns an object."""
        return _object_at(self.value, self.where)

    def items(self) -> list[Placed]:
        """Returns the items of a list."""
        held = _list_at(self.value, self.where)
        return [Placed(item, f"{self.where}[{at}]") for at, item in enumerate(held)]

    def text(self) -> str:
        """Returns a text."""
        return self.value if isinstance(self.value, str) else self._refuse("a text")

    def whole(self) -> int:
        """Returns a whole number of 0 or more."""
        if isinstance(self.value, int) and not isinstance(self.value, bool) and self.value >= 0:
            return self.value
        return self._refuse("a whole number of 0 or more")

    def number(self) -> float:
        """Returns a finite number of 0 or more."""
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
            return float(value)
        return self._refuse("a finite number of 0 or more")

    def texts(self) -> dict[str, str]:
        """Returns an object of texts."""
        return {name: self[name].text() for name in self.mapping()}

    def list_of_texts(self) -> tuple[str, ...]:
        """Returns a list of texts."""
        texts = tuple(item.value for item in self.items() if isinstance(item.value, str))
        return texts if len(texts) == len(self.items()) else self._refuse("a list of texts")

    def numbers(self) -> dict[str, float]:
        """Returns an object of finite numbers of 0 or more."""
        return {name: self[name].number() for name in self.mapping()}

    def _refuse(self, wanted: str) -> NoReturn:
        raise ValueError(f"{self.where} is {_shown(self.value)}, not {wanted}")


# --- Turns any value into one that JSON can hold: never NaN or Infinity, never an object

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


# --- codec


class Encoder:
    """Makes JSON values, and gathers the histograms in them."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}
        self.histograms: list[list[object]] = []
        """Each as its HdrHistogram V2 text, and what that does not hold: minimum, maximum, sum, sum of squares."""

    def encode(self, value: object, type_: object) -> object:
        """Returns a value of this type, as a field's annotation says it, as one for `json.dumps`."""
        origin, arguments = get_origin(type_), get_args(type_)
        if origin in (Union, UnionType):
            return None if value is None else self.encode(value, _present(arguments))
        if origin is tuple:
            if not isinstance(value, tuple):
                raise TypeError(f"{value!r} is no tuple")
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
            return self._fields(value, type_)
        return _encoded_plain(value, type_)

    def _fields(self, value: object, type_: type) -> dict[str, object]:
        found = {}
        for field, annotation in _fields_of(type_):
            own = getattr(value, field.name)
            default = _default(field)
            if default is MISSING or own != default:
                found[field.name] = self.encode(own, annotation)
        return found

    def _place(self, histogram: Histogram) -> int:
        exact = [histogram.min_ns, histogram.max_ns, histogram.sum_ns, float(histogram.sum_squares)]
        key = (histogram.steps.tobytes(), histogram.counts.tobytes(), *exact)
        if key not in self._places:
            self._places[key] = len(self.histograms)
            self.histograms.append([histogram.encode(), *exact])
        return self._places[key]


class Decoder:
    """Makes values of JSON again; every method raises ValueError that names the place of the first thing wrong."""

    def __init__(self, histograms: object) -> None:
        self._histograms = [
            _histogram(item, f"histograms[{at}]") for at, item in enumerate(_list_at(histograms, "histograms"))
        ]

    def decode(self, held: object, type_: Any, where: str) -> Any:
        """Returns the value of this type; `where` names its place."""
        origin, arguments = get_origin(type_), get_args(type_)
        if origin in (Union, UnionType):
            return None if held is None else self.decode(held, _present(arguments), where)
        if origin is tuple:
            return self._tuple(_list_at(held, where), arguments, where)
        if origin is Sequence:
            return self._tuple(_list_at(held, where), (*arguments, ...), where)
        if origin is frozenset:
            return frozenset(self._tuple(_list_at(held, where), (*arguments, ...), where))
        if origin is Mapping:
            return {
                _key(key, arguments[0], where): self.decode(item, arguments[1], f"{where}.{key}")
                for key, item in _object_at(held, where).items()
            }
        if type_ is Histogram:
            return self._histogram(held, where)
        if isinstance(type_, type) and is_dataclass(type_):
            return self._dataclass(_object_at(held, where), type_, where)
        return _decoded_plain(held, type_, where)

    def _tuple(self, held: Sequence[object], arguments: Sequence[object], where: str) -> tuple[object, ...]:
        if arguments[-1:] != (...,) and len(arguments) != len(held):
            raise ValueError(f"{where} has {len(held)} items, not {len(arguments)}")
        types = _types(held, arguments)
        return tuple(
            self.decode(item, type_, f"{where}[{at}]") for at, (item, type_) in enumerate(zip(held, types, strict=True))
        )

    def _dataclass(self, held: Mapping[str, object], type_: type, where: str) -> object:
        values = {}
        for field, annotation in _fields_of(type_):
            if field.name in held:
                place = f"{where}.{field.name}".removeprefix(".")
                values[field.name] = self.decode(held[field.name], annotation, place)
            elif _default(field) is MISSING:
                raise ValueError(f"{where or 'it'} has no {field.name!r}")
        return type_(**values)

    def _histogram(self, held: object, where: str) -> Histogram:
        place = _decoded_plain(held, int, where)
        if not isinstance(place, int) or not 0 <= place < len(self._histograms):
            raise ValueError(f"{where} is {held!r}, and there are {len(self._histograms)} histograms")
        return self._histograms[place]


# --- types


@cache
def _fields_of(type_: type) -> tuple[tuple[Field[Any], object], ...]:
    hints = get_type_hints(type_)
    return tuple((field, hints[field.name]) for field in fields(type_) if field.compare)


def _default(field: Field[Any]) -> object:
    """Returns the value that a field has where none is given; MISSING where it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _types(values: object, arguments: Sequence[object]) -> Sequence[object]:
    """Returns the type of each item: of `tuple[int, ...]` always the same."""
    return [arguments[0]] * len(cast("Sequence[object]", values)) if arguments[-1:] == (...,) else arguments


def _present(arguments: Sequence[object]) -> object:
    """Returns the type in `TYPE | None`."""
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


def _decoded_plain(held: object, type_: Any, where: str) -> object:
    if type_ is object:
        return held
    if isinstance(type_, type) and issubclass(type_, Enum):
        if held not in type_.__members__:
            raise ValueError(f"{where} is {_shown(held)}, not one of {', '.join(type_.__members__)}")
        return type_.__members__[cast("str", held)]
    if type_ is float and isinstance(held, str) and held in ("nan", "inf", "-inf"):
        return float(held)
    wanted = (int, float) if type_ is float else type_
    if not isinstance(held, wanted) or (isinstance(held, bool) and type_ is not bool):
        raise ValueError(f"{where} is {_shown(held)}, not of type {type_.__name__}")
    return held


def _key(key: str, type_: object, where: str) -> object:
    if type_ is str:
        return key
    try:
        return int(key) if type_ is int else float(key)
    except ValueError:
        raise ValueError(f"{where} has the key {_shown(key)}, which is no number") from None


def _histogram(held: object, where: str) -> Histogram:
    if len(parts := _list_at(held, where)) != 5:
        raise ValueError(f"{where} has {len(parts)} items, not 5")
    text, low, high, total, squares = parts
    if not isinstance(text, str):
        raise ValueError(f"{where} begins with {_shown(text)}, not with a text")
    exact = {
        name: _decoded_plain(value, type_, where)
        for name, value, type_ in (
            ("min_ns", low, int),
            ("max_ns", high, int),
            ("sum_ns", total, int),
            ("sum_squares", squares, float),
        )
    }
    try:
        decoded = Histogram.decode(text)
        return Histogram(held=decoded.held, count=decoded.count, **exact)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _list_at(held: object, where: str) -> Sequence[object]:
    if not isinstance(held, list):
        raise ValueError(f"{where} is {_shown(held)}, not a list")
    return held


def _object_at(held: object, where: str) -> Mapping[str, object]:
    if not isinstance(held, dict):
        raise ValueError(f"{where} is {_shown(held)}, not an object")
    return held


def _shown(held: object) -> str:
    text = repr(held)
    return text if len(text) <= 40 else f"{text[:39]}…"
