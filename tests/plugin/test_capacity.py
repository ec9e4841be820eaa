"""`fileperf.capacity`: whole runs of a search for the highest rate that holds its limits."""

from __future__ import annotations

import json

import pytest
from plugin.conftest import Run

TESTS = """
import pytest
from pytest_fileperf import CapacityEnd


@pytest.mark.fileperf(max_p99="1s", max_duration="1500ms", boots=1, connections=4)
def test_found(fileperf):
    found = fileperf.capacity.get("/")
    assert found.tried and found.closed_rps > 0
    assert found.rate > 0 and found.low <= found.rate <= found.high
"""


def test_a_capacity_is_found_and_every_report_has_it(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(TESTS)
    done = run_load(
        "--fileperf", "-v", "--fileperf-json=out.json", "--fileperf-html=out.html", "--fileperf-markdown=out.md",
        "--junitxml=out.xml",
    )  # fmt: skip
    done.assert_outcomes(passed=1)
    done.stdout.re_match_lines([r".*capacity .*/s.* with .*max_p99 1.00 s"])
    (result,) = json.loads((project.path / "out.json").read_text())["results"]
    assert result["capacity"]["rate"] > 0
    assert len(result["capacity"]["tried"]["rate"]) == len(result["capacity"]["tried"]["holds"])
    assert result["identity"]["load"]["capacity"] == {"max_error_rate": 0.0, "max_p99": 1.0}
    assert "Latency over rate" in (project.path / "out.html").read_text()
    assert "capacity" in (project.path / "out.md").read_text()
    assert 'name="fileperf_capacity"' in (project.path / "out.xml").read_text()


def test_a_smoke_run_makes_a_few_requests(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        from pytest_fileperf import CapacityEnd

        def test_smoke(fileperf):
            found = fileperf.capacity.get("/", max_p99="1us", min_capacity=1_000_000)
            assert found.ended is CapacityEnd.SMOKE and found.rate > 0
        """
    )
    run_load("--fileperf-smoke").assert_outcomes(passed=1)


def test_where_no_rate_holds_the_test_fails_and_says_so(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        def test_none(fileperf):
            fileperf.capacity.get("/", max_p99="1us", max_duration="1500ms", boots=1, gate="none")
        """
    )
    done = run_load("--fileperf")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*max_p99*", "*no rate that was tried holds max_p99*"])


def test_an_endpoint_without_good_answers_fails_at_once(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        def test_missing(fileperf):
            fileperf.capacity.get("/status/404", max_p99="1s")
        """
    )
    done = run_load("--fileperf")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*status 404*"])


def test_what_a_search_needs_is_said_before_anything_is_booted(project: pytest.Pytester, run: Run) -> None:
    project.makepyfile(
        """
        def test_without_limit(fileperf):
            fileperf.capacity.get("/", rate=10)
        """
    )
    done = run("--fileperf", "--fileperf-server=command:no-such-program {port}")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*rate: a capacity is searched for*", "*none is given: say max_p99*"])


def test_an_async_test_awaits_it(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.anyio
        async def test_awaited(afileperf, anyio_backend):
            found = await afileperf.capacity.get("/", max_p99="1s")
            assert found.rate > 0

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """
    )
    run_load("--fileperf-smoke").assert_outcomes(passed=1)
