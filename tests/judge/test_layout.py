"""The layout of baseline files: the same JSON, on lines that a diff shows well."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.judge.baseline import laid_out

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def test_objects_are_spread_but_those_named_flat_and_those_in_lists() -> None:
    content = {"b": {"x": 1, "empty": {}}, "busy": {"y": {"z": 2}}, "list": [1, None, "µ"], "rows": [{"a": [1]}, {}]}
    assert laid_out(content).splitlines() == [
        "{",
        ' "b": {',
        '  "x": 1,',
        '  "empty": {}',
        " },",
        ' "busy": {"y": {"z": 2}},',
        ' "list": [1, null, "µ"],',
        ' "rows": [',
        '  {"a": [1]},',
        "  {}",
        " ]",
        "}",
    ]


@pytest.mark.once  # many examples of plain arithmetic
@given(VALUES)
def test_what_is_read_back_is_the_same_and_laid_out_the_same(value: object) -> None:
    text = laid_out(value)
    assert json.loads(text) == value
    assert laid_out(json.loads(text)) == text


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        laid_out({"a": [float("inf")]})
