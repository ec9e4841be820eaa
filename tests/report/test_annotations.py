"""Annotations as GitHub's commands, with any name, and of many tests: what they say is in `test_goldens`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from report.samples import REGRESSED, TOO_FEW, result
from report.stored import stored

from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.report.annotations import github_commands


def commands(*results: Result) -> list[str]:
    return github_commands(session_record(results))


def test_regressions_come_first_and_errors_before_warnings() -> None:
    results = stored("every_kind").results
    found = [re.match(r"::(\w+) file=[^,]+,line=\d+,title=([A-Z]+) ", each) for each in commands(*reversed(results))]
    kinds = [(each[1], each[2]) for each in found if each]
    assert len(kinds) == len(found)
    assert kinds[0] == ("error", "REGRESSED")
    assert [level for level, _ in kinds] == sorted(level for level, _ in kinds)


@pytest.mark.parametrize(
    "name,title",
    [
        ("test_a[x:y,z]", "LIMIT test_a[x%3Ay%2Cz]"),
        ("test_a[50%]", "LIMIT test_a[50%25]"),
        ("test_a[%0A]", "LIMIT test_a[%250A]"),
        ("test_a[1\r\n::error::x]", "LIMIT test_a[1 %3A%3Aerror%3A%3Ax]"),
    ],
)
def test_no_name_ends_a_command_or_begins_another(name: str, title: str) -> None:
    (command,) = commands(result(name, module="a:b,c.py", verdict=Verdict(limits=(TOO_FEW,))))
    assert command == f"::error file=a%3Ab%2Cc.py,line=1,title={title}::min_rps 2,400/s, measured 2,050/s"


def many(count: int) -> Sequence[Result]:
    return [result(f"test_{number}", verdict=Verdict(comparisons=(REGRESSED,))) for number in range(count)]


def test_of_more_than_github_shows_the_last_one_counts_the_others() -> None:
    assert len(commands(*many(10))) == 10
    shown = commands(*many(12))
    assert len(shown) == 10
    names = ", ".join(f"tests/test_files.py::test_{number}" for number in (9, 10, 11))
    assert shown[-1] == f"::error title=and 3 more tests::{names}"
