"""Values in words that are equal in every process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from unittest.mock import Mock

import pytest

from pytest_fileperf.serve.described import describe

HERE = __name__


class Kind(Enum):
    ONE = 1


class Plain:
    pass


@dataclass
class Shown:
    url: str
    held: object


class Failing:
    def __repr__(self) -> str:
        raise RuntimeError("not yet")


def outer(held: object) -> Callable[[], object]:
    return lambda: held


VALUES = (
    (None, "None"),
    (1.5, "1.5"),
    ("text", "'text'"),
    (Kind.ONE, f"{HERE}.Kind.ONE"),
    ({"b": 1, "a": Plain()}, f"{{'a': {HERE}.Plain, 'b': 1}}"),
    ([1, {"z"}], "(1, ('z'))"),
    (frozenset({"b", "a", "c"}), "('a', 'b', 'c')"),
    (json, "json"),
    (Plain, f"{HERE}.Plain"),
    (outer, f"{HERE}.outer"),
    (Shown("a", 1).__eq__, "Shown(url='a', held=1).__eq__"),
    (partial(outer, 1), f"{HERE}.outer(1)"),
    (partial(outer, held=Plain), f"{HERE}.outer(held={HERE}.Plain)"),
    (Plain(), f"{HERE}.Plain"),
    (Failing(), f"{HERE}.Failing"),
    (Shown("a", Plain()), f"Shown(url='a', held=<{HERE}.Plain object at …>)"),
    (threading.Lock(), "<unlocked _thread.lock object at …>"),
    (Mock(), "<Mock …>"),
)


@pytest.mark.parametrize("value,text", VALUES, ids=[text for _, text in VALUES])
def test_values(value: object, text: str) -> None:
    assert describe(value) == text


def test_functions_that_were_made_alike_differ_by_what_they_hold() -> None:
    assert describe(outer("a")).startswith(f"{HERE}.outer.<locals>.<lambda>:")
    assert describe(outer("a")) == describe(outer("a"))
    assert describe(outer("a")) != describe(outer("b"))


def test_what_holds_itself_has_an_end() -> None:
    held: list[object] = []
    held.append(held)
    assert describe(held) == "((((builtins.list))))"


def test_long_texts_are_told_apart() -> None:
    assert len(describe("x" * 10_000)) < 250
    assert describe("x" * 10_000) != describe("x" * 9_999)
