from __future__ import annotations

from collections.abc import Callable

import pytest
from report.samples import result

from pytest_fileperf import Command, InProcess, Uvicorn
from pytest_fileperf.judge.grouping import param_id, param_texts
from pytest_fileperf.measure.codec import json_value


@pytest.mark.parametrize(
    "in_brackets,params,expected",
    [
        ("1KiB", {"size": "1KiB"}, {"size": "1KiB"}),
        (
            "0.3-1000-True-None",
            {"s": 0.3, "n": 1000, "b": True, "x": None},
            {"s": "0.3", "n": "1000", "b": "True", "x": "None"},
        ),
        ("a-b-uvicorn-2", {"path": "a-b", "server": "uvicorn-2"}, {"path": "a-b", "server": "uvicorn-2"}),
        # The user's own ids, and pytest's for what has no short text.
        ("small-uvicorn-2", {"size": [1, 2], "server": "uvicorn-2"}, {"size": "small", "server": "uvicorn-2"}),
        ("small-two", {"size": 1024, "server": "uvicorn-2"}, {"size": "small", "server": "two"}),
        ("payload0", {"payload": "Payload(size_bytes=1024, …)"}, {"payload": "payload0"}),
        # Where the parts of the id cannot be told apart, the values themselves.
        ("small-two-x", {"size": 1024, "server": "uvicorn-2"}, {"size": "1024", "server": "uvicorn-2"}),
        ("", {}, {}),
    ],
)
def test_what_parameters_are_called(in_brackets: str, params: dict[str, object], expected: dict[str, str]) -> None:
    name = f"test_upload[{in_brackets}]" if in_brackets else "test_upload"
    test = result(name, params=params).test
    assert param_id(test) == in_brackets
    assert param_texts(test) == expected


def small() -> None:
    pass


@pytest.mark.parametrize(
    "value,text",
    [
        (Uvicorn(workers=2, loop="asyncio"), "uvicorn-2-asyncio"),
        (InProcess(), "inprocess"),
        (Command("./server --port {port}", title="Go"), "Go"),
        (small, "small"),
        (Uvicorn, "Uvicorn"),
    ],
)
def test_servers_and_functions_are_called_as_in_ids(value: Callable[[], None], text: str) -> None:
    assert json_value(value) == text
