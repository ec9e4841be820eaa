"""Values in words that are equal in every process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from unittest.mock import Mock

import pytest

from pytest_fileperf.serve.likeness import describe, kind_of, outline

HERE = __name__


class Kind(Enum):
    ONE = 1


class Plain:
    pass


@dataclass
class Shown:
    url: str
    held: object


class Own:
    def __init__(self, url: str, held: object) -> None:
        self.url, self.held = url, held

    def __repr__(self) -> str:
        return f"Own({self.held})"


class Held:
    def __init__(self, url: str, held: object = None) -> None:
        self._url, self.lock = url, threading.Lock()
        if held is not None:
            self.held = held


class Client:
    def __init__(self, url: str) -> None:
        self._url = PurePosixPath(url)


class Slots:
    __slots__ = ("empty", "url")

    def __init__(self, url: str) -> None:
        self.url = url


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
    (Shown("a", 1).__eq__, f"{HERE}.Shown(held=1, url='a').__eq__"),
    (partial(outer, 1), f"{HERE}.outer(1)"),
    (partial(outer, held=Plain), f"{HERE}.outer(held={HERE}.Plain)"),
    (Plain(), f"{HERE}.Plain"),
    (Failing(), f"{HERE}.Failing"),
    (Shown("a", Plain()), f"{HERE}.Shown(held={HERE}.Plain, url='a')"),
    (Shown("a", frozenset("cab")), f"{HERE}.Shown(held=('a', 'b', 'c'), url='a')"),
    (Own("z", {"c", "a", "b"}), "Own({'a', 'b', 'c'}) with url='z'"),
    (Held("a"), f"{HERE}.Held(_url='a', lock=_thread.lock)"),
    (Slots("a"), f"{HERE}.Slots(url='a')"),
    (Shown("a", {"password": "x"}), f"{HERE}.Shown(held={{password=…4755bd1b}}, url='a')"),
    (Path("a"), "PosixPath('a')" if os.name == "posix" else "WindowsPath('a')"),
    (threading.Lock(), "_thread.lock"),
    (logging.getLogger(HERE), "logging.Logger"),
    (Mock(), "<Mock …>"),
)


@pytest.mark.parametrize("value,text", VALUES, ids=[text for _, text in VALUES])
def test_values(value: object, text: str) -> None:
    assert describe(value) == text


def test_functions_that_were_made_alike_differ_by_what_they_hold() -> None:
    assert describe(outer("a")).startswith(f"{HERE}.outer.<locals>.<lambda>:")
    assert describe(outer("a")) == describe(outer("a"))
    assert describe(outer("a")) != describe(outer("b"))


@pytest.mark.parametrize(
    "one, other",
    [
        ("run 3f2b9c1d-0a4e-4c55-9d7e-1f2a3b4c5d6e", "run 00000000-1111-2222-3333-444444444444"),
        (1.5, 7),
        (None, True),
        (Held("a", 1), Held("a", 2)),
        ({"a": [1, "x"]}, {"a": [2, "x"]}),
    ],
)
def test_an_outline_leaves_out_what_time_and_chance_change(one: object, other: object) -> None:
    assert describe(one) != describe(other)
    assert outline(one) == outline(other)


@pytest.mark.parametrize(
    "one, other", [("a", "b"), (Held("a"), Held("b")), (Client("a"), Client("b")), (Held("a", "x"), Held("a", "y"))]
)
def test_an_outline_has_texts(one: object, other: object) -> None:
    assert outline(one) != outline(other)
    assert kind_of(one) == kind_of(other)


def test_what_is_long_or_leads_in_circles_is_described_in_little_time() -> None:
    held: list[object] = [Held("a") for _ in range(50)]
    for one in held:
        vars(one)["held"] = held
    assert describe(held) == describe(held)
    itself: list[object] = []
    itself.append(itself)
    assert describe(itself) == "((((builtins.list))))"
    assert describe(list(range(100_000))) == "builtins.list of 100000"
    assert len(describe("x" * 10_000)) < 250
    assert describe("x" * 10_000) != describe("x" * 9_999)


def test_sets_are_described_alike_in_every_process() -> None:
    code = """if True:
        from dataclasses import dataclass
        from pydantic import BaseModel
        from pytest_fileperf.serve.likeness import describe

        @dataclass
        class Kept:
            hosts: frozenset

        class Model(BaseModel):
            hosts: set
            inner: object

        names = ("alpha", "beta", "gamma", "delta")
        print(describe(Model(hosts=set(names), inner=Kept(frozenset(names)))), describe({frozenset(names): 1}))
    """
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in "12"
    }
    assert len(told) == 1
    assert "hosts=('alpha', 'beta', 'delta', 'gamma')" in told.pop()
