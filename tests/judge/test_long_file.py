from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.judge.baseline import LongFile, laid_out

PLAIN = st.none() | st.integers() | st.text(max_size=5)
VALUES = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=3), PLAIN, max_size=3)
ENTRY = st.dictionaries(st.text(min_size=1, max_size=3), VALUES, min_size=1, max_size=3)
ENTRIES = st.dictionaries(st.text(max_size=3), ENTRY, min_size=1, max_size=5)


def written(tests: dict[str, object]) -> bytes:
    head = {"environment": {"cpu": "x"}, "module": "a.py", "schema": 3}
    text = laid_out({**head, "tests": dict(sorted(tests.items()))}) + "\n"
    return text.encode("utf-8", "backslashreplace")


@given(ENTRIES)
def test_it_has_what_json_reads(tests: dict[str, object]) -> None:
    found = LongFile(written(tests))
    assert dict(found) == tests
    assert found.content == {"environment": {"cpu": "x"}, "module": "a.py", "schema": 3, "tests": {}}
    assert len(found) == len(tests)
    assert all(key in found and not found.has_twice(key) for key in tests)
    assert "no such key" not in found


@given(ENTRIES, st.text(max_size=3), ENTRY)
def test_with_an_entry_it_is_as_if_all_were_written_anew(tests: dict[str, object], key: str, entry: object) -> None:
    assert LongFile(written(tests)).with_entry(key, entry) == written({**tests, key: entry})


def test_a_key_that_is_there_twice_is_seen() -> None:
    assert LongFile(written({"a": {"x": 1}, "b": {"x": 1}}).replace(b'"b"', b'"a"')).has_twice("a")


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"tests": {"a": {}}}), '{\n "tests": {\n  "a": {}\n }'])
def test_what_is_laid_out_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="otherwise"):
        LongFile(text.encode())


def test_a_damaged_entry_is_an_error_once_it_is_read() -> None:
    found = LongFile(written({"a": {"x": 1}, "b": {"x": 1}}).replace(b'"x": 1', b'"x": ', 1))
    assert found["b"] == {"x": 1}
    with pytest.raises(ValueError, match="Expecting value"):
        found["a"]
