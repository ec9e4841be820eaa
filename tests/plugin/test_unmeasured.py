"""A test that was to measure and did not fails, in its call phase and with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

ON_ASYNCIO = 'pytest.mark.parametrize("anyio_backend", ["asyncio"])'


@pytest.fixture
def without_app(pytester: pytest.Pytester) -> pytest.Pytester:
    """A directory whose tests have no app: nothing can be measured."""
    pytester.makeini("[pytest]\nfileperf_server = inprocess\nfileperf_app = no.such:app\n")
    return pytester


def problem_of(result: pytest.RunResult) -> str:
    """Returns what the one failed test says, on one line."""
    lines = result.stdout.lines
    begin = next(index for index, line in enumerate(lines) if line.startswith("____"))
    end = next(index for index, line in enumerate(lines) if index > begin and line.startswith("===="))
    return " ".join(" ".join(lines[begin + 1 : end]).split())


@pytest.mark.parametrize("fixture", ["fileperf", "afileperf"])
def test_a_test_that_calls_no_verb_fails(without_app: pytest.Pytester, run: Run, fixture: str) -> None:
    without_app.makepyfile(f"def test_nothing({fixture}): pass")
    result = run("--fileperf-smoke")
    result.assert_outcomes(failed=1)
    call = "await afileperf.get(…)" if fixture == "afileperf" else "fileperf.get(…)"
    assert problem_of(result) == (
        f"this test uses {fixture} and measured nothing: call a verb, as in {call}, leave the fixture out (the marker"
        " fileperf alone makes a load test), or skip the test with pytest.skip(…) where there is nothing to measure"
    )


def test_a_fixture_asked_for_while_the_test_runs_counts(without_app: pytest.Pytester, run: Run) -> None:
    without_app.makepyfile("def test_late(request): request.getfixturevalue('fileperf')")
    run("--fileperf-smoke").assert_outcomes(failed=1)


OTHERWISE = """
import unittest

import pytest
from pytest_fileperf.errors import FilePerfError


def test_own_failure(fileperf):
    assert 1 == 2, "its own"

def test_skipped(fileperf):
    pytest.skip("its own")

def test_expected(fileperf):
    pytest.xfail("its own")

@pytest.mark.xfail(reason="measures nothing")
def test_expected_by_mark(fileperf):
    pass

def test_tried(fileperf):
    with pytest.raises(FilePerfError):
        fileperf.get("/")

@pytest.fixture
def measured(fileperf):
    with pytest.raises(FilePerfError):
        fileperf.get("/")

def test_measured_by_a_fixture(measured):
    pass

@pytest.mark.fileperf
def test_by_other_means():
    pass

class TestOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def give(self, fileperf):
        self.fileperf = fileperf

    def test_unittest(self):
        self.fail("its own")
"""


def test_what_else_a_test_may_do_stays_as_it_is(without_app: pytest.Pytester, run: Run) -> None:
    without_app.makepyfile(OTHERWISE)
    result = run("--fileperf-smoke", "-rfsxX")
    result.assert_outcomes(passed=3, failed=2, skipped=1, xfailed=2)
    result.stdout.no_fnmatch_line("*measured nothing*")
    result.stdout.fnmatch_lines(["E * AssertionError: its own", "FAILED *::test_own_failure*"])


@pytest.mark.parametrize("kind", ["sync", "anyio", "asyncio"])
def test_a_verb_that_is_not_awaited_fails_the_test_and_warns_of_nothing(
    without_app: pytest.Pytester, run_apart: Run, kind: str
) -> None:
    mark = {"sync": "", "anyio": f"@pytest.mark.anyio\n@{ON_ASYNCIO}", "asyncio": "@pytest.mark.asyncio"}[kind]
    without_app.makepyfile(
        test_it=f"import pytest\n{mark}\n{'' if kind == 'sync' else 'async '}def test_forgotten(afileperf):\n"
        "    afileperf.get('/')\n    afileperf.post('/x', content=b'')\n"
    )
    result = run_apart("--fileperf-smoke", "-Werror", plugins=("asyncio",) if kind == "asyncio" else ())
    result.assert_outcomes(failed=1)
    line = mark.count("\n") + 4
    assert problem_of(result) == (
        f"test_it.py:{line}: GET / was called and not awaited test_it.py:{line + 1}: POST /x was called and not awaited"
        " so it was not measured: write `await` before the call, in an async test"
    )
    assert "never awaited" not in result.stdout.str() + result.stderr.str()


def test_the_own_failure_of_a_test_with_such_a_verb_comes_first_without_a_warning(
    without_app: pytest.Pytester, run_apart: Run
) -> None:
    without_app.makepyfile("def test_forgotten(afileperf):\n    afileperf.get('/')\n    assert 1 == 2, 'its own'\n")
    result = run_apart("--fileperf-smoke", "-Werror")
    result.assert_outcomes(failed=1)
    assert "awaited" not in result.stdout.str() + result.stderr.str()


def test_a_verb_that_still_runs_at_the_end_has_measured_nothing(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        f"""
        import asyncio
        import pytest

        @pytest.mark.anyio
        @{ON_ASYNCIO}
        async def test_left(afileperf):
            task = asyncio.create_task(afileperf.get("/", duration="20s", gate="none"))
            await asyncio.sleep(0.01)
        """
    )
    result = run_load("--fileperf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_*.py:7: GET / was cancelled before it was measured"])


@pytest.mark.parametrize("then", ["", "assert (await afileperf.get('/', requests=20, gate='none')).requests == 20"])
def test_a_test_whose_only_verb_was_cancelled_has_measured_nothing(
    project: pytest.Pytester, run_load: Run, then: str
) -> None:
    project.makepyfile(
        test_it=f"""
        import asyncio
        import pytest

        @pytest.mark.asyncio
        async def test_impatient(afileperf):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await afileperf.get("/", duration="30s", gate="none")
            {then}
        """
    )
    result = run_load("--fileperf", plugins=("asyncio",))
    if then:
        result.assert_outcomes(passed=1)
        return
    result.assert_outcomes(failed=1)
    assert problem_of(result) == (
        "test_it.py:8: GET / was cancelled before it was measured so this test measured nothing: let the call come to"
        " its end, make it shorter with duration= or requests=, or skip the test with pytest.skip(…) where there is"
        " nothing to measure"
    )


def test_gathered_verbs_are_measured_one_at_a_time(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        f"""
        import asyncio
        import pytest

        @pytest.mark.anyio
        @{ON_ASYNCIO}
        async def test_both(afileperf):
            paths = [f"/status/{{status}}" for status in (201, 202, 203, 206, 207)]
            verbs = [afileperf.get(path, expect_status=int(path[-3:])) for path in paths]
            measured = await asyncio.gather(*verbs)
            assert [[*one.statuses] for one in measured] == [[int(path[-3:])] for path in paths]
        """
    )
    result = run_load("--fileperf-smoke", "-Werror", "--fileperf-json=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["fileperf: *::test_both* GET /status/* waited for the measurement *"])
    results = json.loads((project.path / "run.json").read_text(encoding="utf-8"))["results"]
    found = [(one["test"]["nodeid"].partition("::")[2], one["work"]) for one in results]
    assert found == [
        (f"test_both[asyncio]{further}", f"GET /status/{status}")
        for further, status in zip(("", "#2", "#3", "#4", "#5"), (201, 202, 203, 206, 207), strict=True)
    ]


def test_verbs_in_threads_are_measured_one_at_a_time(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        from concurrent.futures import ThreadPoolExecutor

        def test_both(fileperf):
            def status(path):
                return [*fileperf.get(path, expect_status=int(path[-3:])).statuses]

            paths = [f"/status/{status}" for status in (201, 202, 203, 206, 207)]
            with ThreadPoolExecutor() as pool:
                assert [*pool.map(status, paths)] == [[int(path[-3:])] for path in paths]
        """
    )
    result = run_load("--fileperf-smoke")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["fileperf: *::test_both: GET /status/* waited for the measurement *"])
