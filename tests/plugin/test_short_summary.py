"""A test that decides nothing is no green dot: its own letter, count and lines, and to all else it has passed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

TESTS = """
    def test_limits(fileperf):
        fileperf.get("/", connections=1, requests=50, warmup=0, gate="none", min_rps=1)

    def test_undecided(fileperf):
        fileperf.get("/", connections=1, requests=50, warmup=0, gate="none")
        fileperf.get("/", connections=1, requests=50, warmup=0, gate="p999")  # no p99.9 can be told of 50 requests

    def test_plain():
        pass
"""
LINES = ("INCONCLUSIVE test_it.py::test_undecided - p999 * %, tolerance 24 % (#2)",)
LETTER, WORD = "\x1b[33mI\x1b[0m", "\x1b[33mINCONCLUSIVE\x1b[0m"


def test_it_has_a_letter_a_count_and_figures_in_the_short_summary(project: pytest.Pytester, run_load: Run) -> None:
    """To JUnit XML and to pruning it has passed: its second baseline is stale when it is not measured any more."""
    project.makepyfile(test_it=TESTS)
    assert run_load("--fileperf-update=all").parseoutcomes() == {"passed": 3}
    result = run_load("--fileperf")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*= short test summary info =*", *LINES, "*= 2 passed, 1 inconclusive in *"])
    start = next(at for at, line in enumerate(result.stdout.lines) if line.startswith("INCONCLUSIVE "))
    assert max(map(len, result.stdout.lines[start:])) <= 80
    coloured = run_load("--fileperf", "--color=yes").stdout.str()
    assert LETTER in coloured
    assert f"{WORD} \x1b[1mtest_it.py::test_undecided" in coloured
    assert run_load("--fileperf", "-p", "no:terminal").ret == pytest.ExitCode.OK
    assert run_load("--fileperf", "--fileperf-strict").parseoutcomes() == {"passed": 2, "failed": 1}

    first, _, rest = TESTS.partition('gate="none")\n        fileperf.get("/", connections=1, requests=50, warmup=0, ')
    assert rest
    project.makepyfile(test_it=first + rest)
    run_load("--fileperf-update=all").assert_outcomes(passed=3)
    result = run_load("--fileperf-prune", "--junitxml=report.xml")
    assert result.parseoutcomes() == {"passed": 2, "inconclusive": 1}
    result.stdout.fnmatch_lines(["  test_it.py::test_undecided#2: its test no longer makes this measurement"])
    (case,) = ET.parse(project.path / "report.xml").getroot().findall(".//testcase[@name='test_undecided']")
    assert [child.tag for child in case] == ["properties"]
    found = {item.get("name"): item.get("value") for item in case.findall(".//property")}
    assert found["fileperf_outcome"] == "INCONCLUSIVE"


OTHERS = """
    import pytest

    def test_saturated(record_property):
        record_property("fileperf_outcome", "PASS")
        record_property("fileperf_outcome#2", "SATURATED")

    def test_decided_when_it_ran_again(record_property):
        record_property("fileperf_outcome", "INCONCLUSIVE")
        record_property("fileperf_outcome", "PASS")

    @pytest.mark.xfail(reason="one day")
    def test_expected_to_fail(record_property):
        record_property("fileperf_outcome", "INCONCLUSIVE")

    def test_fails(record_property):
        record_property("fileperf_outcome", "INCONCLUSIVE")
        raise AssertionError
"""


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_what_is_not_undecided_keeps_its_category(pytester: pytest.Pytester, run: Run, processes: str) -> None:
    """The properties of the reports tell, also those from another process."""
    pytester.makepyfile(OTHERS)
    result = run("--fileperf-smoke", processes, plugins=("xdist",))
    assert result.parseoutcomes() == {"passed": 1, "inconclusive": 1, "xpassed": 1, "failed": 1}
    heading = "*= short test summary info =*"
    result.stdout.fnmatch_lines([heading, "FAILED *::test_fails*", "INCONCLUSIVE *::test_saturated"], consecutive=True)
    assert sum("short test summary info" in line for line in result.stdout.lines) == 1


@pytest.mark.parametrize(
    "argument,is_listed", [("-q", True), ("-rs", True), ("-rw", False), ("-rN", False), ("--no-summary", False)]
)
def test_its_line_is_shown_unless_no_summary_is_wanted(
    pytester: pytest.Pytester, run: Run, argument: str, is_listed: bool
) -> None:
    pytester.makepyfile('def test_it(record_property): record_property("fileperf_outcome", "INCONCLUSIVE")')
    result = run("--fileperf", argument)
    assert result.parseoutcomes() == {"inconclusive": 1}
    assert any(line.startswith("INCONCLUSIVE ") for line in result.stdout.lines) is is_listed


def test_ids_are_relative_to_the_current_directory(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        **{"sub/test_it": 'def test_it(record_property): record_property("fileperf_outcome", "SATURATED")'}
    )
    (pytester.path / "sub" / "pytest.ini").touch()
    run("--fileperf", "sub").stdout.fnmatch_lines(["INCONCLUSIVE sub/test_it.py::test_it"])


FAILS = """
    from pytest_fileperf import RegressionError, ServerDiedError

    SLOWER = (
        "rps −33.6 % [−41.0, −24.1], worse than\\n  its baseline of 2026-11-20\\n\\n"
        "metric  baseline\\n\\nwhat to do"
    )

    def test_slower():
        raise RegressionError(SLOWER)

    def test_dead():
        raise ServerDiedError("the server died", log=["Killed"])
"""


@pytest.mark.parametrize("ci", [False, True])
def test_a_failure_is_one_line_that_begins_with_figures(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, ci: bool
) -> None:
    """Under CI too, where pytest shows the whole message of other failures. JUnit XML has the same line."""
    pytester.makepyfile(test_it=FAILS)
    monkeypatch.setenv("COLUMNS", "80")
    if ci:
        monkeypatch.setenv("CI", "true")
    result = run("--fileperf", "--junitxml=report.xml")
    whole = "rps −33.6 % [−41.0, −24.1], worse than its baseline of 2026-11-20"
    line = f"FAILED test_it.py::test_slower - {whole}"
    assert (line if ci else f"{line[:77]}...") in result.stdout.lines
    assert "FAILED test_it.py::test_dead - the server died" in result.stdout.lines
    assert [result.stdout.str().count(text) for text in ("what to do", "metric  baseline", "| Killed")] == [1, 1, 1]
    cases = ET.parse(pytester.path / "report.xml").getroot().findall(".//testcase/failure")
    assert [case.get("message") for case in cases] == [whole, "the server died"]
