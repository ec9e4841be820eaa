"""Annotations: what is said at which line, in GitHub's commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from report.in_turn import compared
from report.samples import PASSED, REGRESSED, TOO_FEW, every_kind, result

from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.report.annotations import github_commands


def at_line(shown: Result, line: int | None) -> Result:
    return replace(shown, test=replace(shown.test, line=line))


def commands(*results: Result, root: str = "") -> list[str]:
    return github_commands(session_record(results), root=root)


def test_a_regression_is_an_error_at_the_line_of_its_test() -> None:
    blamed = Explanation(text="CPU per request grew by 18.2 µs (+22.0 %), of it\n  15.1 µs in digest (app/main.py:31)")
    shown = replace(at_line(compared(), 12), explanation=blamed)
    assert commands(shown, root="service") == [
        "::error file=service/tests/test_files.py,line=12,title=REGRESSED test_upload::"
        "rps −6.4 %25 [−7.1, −5.7], 8,760/s → 8,200/s, tolerance 1.5 %25"
        "%0ACPU per request grew by 18.2 µs (+22.0 %25), of it%0A15.1 µs in digest (app/main.py:31)"
    ]


def test_each_standing_has_its_level_and_regressions_come_first() -> None:
    found = commands(*reversed(every_kind()))
    told = [re.fullmatch(r"::(\w+) file=[^,]+,line=1,title=([A-Z ]+) test_.*?::(.+)", each) for each in found]
    kinds = [(each[1], each[2]) for each in told if each]
    assert len(kinds) == len(found)
    assert kinds[0] == ("error", "REGRESSED")
    assert set(kinds) == {
        ("error", "REGRESSED"),
        ("error", "LIMIT"),
        ("error", "FAILED"),
        ("warning", "INCONCLUSIVE"),
        ("warning", "SATURATED"),
        ("warning", "NEW"),
    }
    assert [level for level, _ in kinds] == sorted(level for level, _ in kinds)
    assert all(each and all(each[3].split("%0A")) for each in told)


def test_what_passes_is_not_annotated() -> None:
    assert commands(result(verdict=Verdict(comparisons=(PASSED,))), result()) == []


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
