"""The Markdown of a session with any text, and where it is too long: what it shows is in `test_goldens`."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape

from report.samples import PASSED, REGRESSED, recording, result

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.markdown import markdown_report

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
