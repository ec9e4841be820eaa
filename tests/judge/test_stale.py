"""Which baselines are stale: only those of which nothing is in doubt."""

from __future__ import annotations

import pytest

from pytest_fileperf.judge.baseline import Seen, Why, stale_among

SEEN = Seen(
    whole=frozenset({"whole.py"}),
    tests=frozenset({"whole.py::test_passed", "whole.py::test_failed", "whole.py::test_p[a]", "part.py::test_one"}),
    passed=frozenset({"whole.py::test_passed", "whole.py::test_p[a]", "part.py::test_one"}),
    measured=frozenset({"whole.py::test_passed", "whole.py::test_passed#2"}),
)


@pytest.mark.parametrize(
    "key,why",
    [
        ("whole.py::test_passed", None),
        ("whole.py::test_passed#2", None),
        ("whole.py::test_passed#3", Why.FEWER),
        ("whole.py::test_p[a]", Why.FEWER),
        ("whole.py::test_failed", None),
        ("whole.py::test_failed#2", None),
        ("whole.py::test_p[b]", Why.NO_TEST),
        ("whole.py::test_p", Why.NO_TEST),
        ("whole.py::TestOld::test_passed", Why.NO_TEST),
        ("whole.py::test_old#2", Why.NO_TEST),
        ("part.py::test_one", None),
        ("part.py::test_one#2", None),
        ("part.py::test_two", None),
        ("gone.py::test_one", Why.NO_MODULE),
        ("gone.py::test_one[x::y]#2", Why.NO_MODULE),
        ("not_collected.py::test_one", None),
    ],
)
def test_a_key(key: str, why: Why | None) -> None:
    expected = {} if why is None else {key: why}
    assert stale_among([key], SEEN, is_gone=lambda module: module == "gone.py") == expected


def test_a_number_sign_may_be_part_of_a_test_s_own_name() -> None:
    seen = Seen(whole=frozenset({"a.yaml"}), tests=frozenset({"a.yaml::case #2"}))
    assert stale_among(["a.yaml::case #2"], seen, is_gone=lambda _: False) == {}


def test_they_come_sorted() -> None:
    found = stale_among(["b.py::t", "a.py::t"], Seen(), is_gone=lambda _: True)
    assert list(found) == ["a.py::t", "b.py::t"]
