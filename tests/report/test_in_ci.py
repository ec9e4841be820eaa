"""What CI shows, with any names and text, and of many tests: what is said otherwise is in `test_goldens`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape

import pytest
from report.samples import PASSED, REGRESSED, TOO_FEW, recording, result, stored

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import markdown_report

# --- annotations, as GitHub's commands


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


# --- Markdown


EVIL = "a|b`c`<img src=x>*d*_e_[f](g)~~h~~@someone#1&amp;\\|\n| x |"


def report(*results: Result, limit_bytes: int = 1 << 20) -> str:
    return markdown_report(session_record(results), limit_bytes=limit_bytes)


def test_nothing_measured() -> None:
    assert markdown_report(SessionRecord()) == "## Load tests: nothing was measured\n"


def test_no_text_becomes_markup() -> None:
    failed = recording(failures=(Failure(kind=EVIL, count=1, example=EVIL),))
    evil = result(EVIL, recorded=failed, server=EVIL, group=EVIL, verdict=Verdict(comparisons=(REGRESSED,)))
    evil = replace(evil, explanation=Explanation(text=f"{EVIL}\n```\n````"))
    calm = result(EVIL, module="other.py", label=EVIL, group=EVIL, verdict=Verdict(comparisons=(PASSED,)))
    text = report(evil, calm)
    block = re.search(r"^(`{5,})text\n.*?\n\1$", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    for line in text.replace(block[0], "").splitlines():
        if line.startswith("<summary>ranked: "):
            assert line == f"<summary>ranked: <code>{escape(' '.join(EVIL.split()))}</code></summary>"
            continue
        tags = re.findall(r"<(/?\w+)", line)
        assert {*tags} <= {"code", "/code", "details", "/details", "summary", "/summary"}
        assert not re.search(r"(?<!\\)[`*_\[](?!`)", re.sub(r"`[^`]*`|\*\*[A-Z]+\*\*", "", line)), line
        if line.startswith("|"):
            assert line.count("|") in (7, 8), line  # six or seven columns


def test_a_long_report_is_cut_after_a_line_and_says_so() -> None:
    regressed = (result(f"test_ü{number}", verdict=Verdict(comparisons=(REGRESSED,))) for number in range(20))
    passed = (result(f"test_{number}", verdict=Verdict(comparisons=(PASSED,))) for number in range(200))
    results = (*regressed, *passed)
    for limit_bytes in (2_000, 10_000):
        text = report(*results, limit_bytes=limit_bytes)
        assert limit_bytes - 1000 < len(text.encode()) <= limit_bytes
        assert text.count("<details>") == text.count("</details>")
        assert re.search(r"\n\nThe report was cut here: it is longer than .*\n\Z", text)
        assert text.startswith("## Load tests: 220 measured: 200 PASS, 20 REGRESSED")
