"""Mixes in whole runs: figures, gates and baselines of each part and of the whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pytest_fileperf.report.record_file import read_record

Run = Callable[..., pytest.RunResult]
QUICK = ("--fileperf-duration=0.3s", "--fileperf-rounds=2", "--fileperf-boots=1", "--fileperf-warmup=0")
MIX = """
    from pytest_fileperf import part, payload

    async def walk(client):
        (await client.get("/")).raise_for_status()

    UPLOAD = part.post("/up", content=payload("1KiB", unique=True), name="upload", gate="p50", tolerance="900%")
    DOWNLOAD = part.get("/{{id}}", feed=["a", "b"], name="download", {limit})

    def test_mix(fileperf):
        result = fileperf.mix({{UPLOAD: 1, DOWNLOAD: 2, walk: 1}}, connections=2, gate="p50", tolerance="900%")
        assert set(result.parts) == {{"upload", "download", "walk"}}
        assert sum(one.requests for one in result.parts.values()) == result.requests
        assert result.parts["upload"].latency.p50 > 0
"""


def test_each_part_has_figures_a_baseline_and_a_verdict(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(MIX.format(limit='gate="none"'))
    stored = run_load("--fileperf-update=new", *QUICK)
    stored.assert_outcomes(passed=1)
    stored.stdout.fnmatch_lines(["test_mix *NEW*", "test_mix #upload *NEW*", "test_mix #download*", "test_mix #walk*"])
    (file,) = (project.path / ".fileperf").rglob("*.json")
    keys = [key.partition("::")[2] for key in json.loads(file.read_text())["tests"]]
    assert keys == ["test_mix", "test_mix#upload", "test_mix#walk"]

    compared = run_load("--fileperf", "--fileperf-json=out.json", "--fileperf-confirm=never", "-v", *QUICK)
    compared.stdout.no_fnmatch_line("*stale*")
    record = read_record(project.path / "out.json")
    tests = {result.test.part: result for result in record.results}
    assert list(tests) == ["", "upload", "download", "walk"]
    assert [comparison.metric for comparison in tests["upload"].verdict.comparisons] == ["p50"]
    assert tests["download"].verdict.comparisons == ()
    assert tests[""].recording.latency().count == sum(tests[name].recording.latency().count for name in tests if name)


def test_the_limit_of_a_part_fails_the_test(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(MIX.format(limit='max_p50="1ns"'))
    result = run_load("--fileperf", *QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*LimitExceededError: *#download*", "test_mix #download *LIMIT*"])


@pytest.mark.parametrize("server", ["uvicorn", "inprocess"])
def test_a_smoke_run_makes_a_few_of_each(project: pytest.Pytester, run_load: Run, server: str) -> None:
    project.makepyfile(
        """
        from pytest_fileperf import part

        def test_mix(fileperf):
            result = fileperf.mix({part.get("/"): 1, part.get("/b"): 999, part.post("/c"): 5})
            assert {name: one.requests for name, one in result.parts.items()} == {"GET /": 3, "GET /b": 3, "POST /c": 3}
        """
    )
    run_load("--fileperf-smoke", f"--fileperf-server={server}").assert_outcomes(passed=1)


def test_bad_mixes_get_sentences(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import pytest
        from pytest_fileperf import PlanError, part

        def plain(client): ...

        CASES = {
            "mix takes weights by parts": {},
            "GET /: its weight is 0, not a number above 0": {part.get("/"): 0},
            "run(plain): run takes an async function": {plain: 1},
            "5 is no part": {5: 1},
            "two parts are called 'GET /'": {part.get("/"): 1, part.get("/"): 2},
            "GET /{id}: '/{id}' has a field": {part.get("/{id}"): 1},
            "a: rate: said of the whole load": {part.get("/", name="a", rate=5): 1},
            "name: 'a#b' is not a name": {part.get("/", name="a#b"): 1},
            "the feed is a function of what a setup returned": {part.get("/{id}", feed=lambda ids: ids): 1},
        }

        @pytest.mark.parametrize("problem", CASES)
        def test_problem(fileperf, problem):
            with pytest.raises(PlanError) as caught:
                fileperf.mix(CASES[problem])
            assert problem in str(caught.value)
            fileperf.get("/")
        """
    )
    run_load("--fileperf-smoke").assert_outcomes(passed=9)
