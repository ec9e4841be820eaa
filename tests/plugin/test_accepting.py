"""Accepting a level: why it is stored, where it may be, and what becomes of baselines whose tests are gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from judge.sides import side

from pytest_fileperf.judge.baseline import BaselineStore, Entry
from pytest_fileperf.judge.environment import Environment

Run = Callable[..., pytest.RunResult]
QUICK = (
    "--fileperf-server=inprocess",
    "--fileperf-duration=0.1s",
    "--fileperf-rounds=4",
    "--fileperf-boots=1",
    "--fileperf-warmup=0",
)
HERE = Environment(system="Linux", machine="x86_64", cpu="CPU", cores=2, python="CPython 3.11")
ELSEWHERE = Environment(system="Darwin", machine="arm64", cpu="CPU", cores=8, python="CPython 3.12")
ENTRY = Entry(identity={}, evidence=side(2000, 2010), captured="2026-01-02T03:04:05+00:00")


def store(directory: Path, *keys: str, environment: Environment = HERE) -> BaselineStore:
    """Stores a baseline for each node id."""
    baselines = BaselineStore(directory)
    for key in keys:
        baselines.write(key.partition("::")[0], key, ENTRY, environment)
    return baselines


def problem_of(result: pytest.RunResult) -> str:
    """Returns the only problem of a usage error."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.startswith("ERROR: fileperf: ")]
    return line.removeprefix("ERROR: fileperf: ")


# --- why


def test_a_reason_is_stored_and_told_to_whoever_regresses_from_it(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        def test_get(fileperf):
            fileperf.get("/", connections=1, gate=("rps", "p50"), tolerance={"p50": "9900%"})
        """
    )
    reason = "--fileperf-reason=responses are signed\n  since #12"
    run_load("--fileperf-update=all", reason, *QUICK).assert_outcomes(passed=1)
    (file,) = (project.path / ".fileperf").rglob("*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    (entry,) = content["tests"].values()
    assert entry["reason"] == "responses are signed since #12"
    reviewed = ["captured", "tree", "commit", "reason", "summary", "precision", "busy", "packages"]
    also = [name for name in ("conditions", "loaded") if name in entry]
    assert also[:1] == ["conditions"]
    assert list(entry) == [*reviewed, *also, "identity", "evidence"]
    assert list(entry["summary"]) == ["rps", "p50 ms"]

    for boot in entry["evidence"]["boots"]:
        boot["rounds"]["rps"] = [value * 1e9 for value in boot["rounds"]["rps"]]
    file.write_text(json.dumps(content), encoding="utf-8")
    result = run_load("--fileperf", *QUICK)
    result.assert_outcomes(failed=1)
    text = " ".join(re.sub(r"^E? *", "", line) for line in result.stdout.lines)
    day = entry["captured"][:10]
    told = f"the baseline of {day} was stored because: responses are signed since #12"
    assert text.count(told) == 1, "in the failure, and nowhere else"


def test_without_a_reason_none_is_stored(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile('def test_get(fileperf): fileperf.get("/", connections=1, gate="rps")')
    run_load("--fileperf-update=all", *QUICK).assert_outcomes(passed=1)
    (file,) = (project.path / ".fileperf").rglob("*.json")
    assert '   "reason": null,\n' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [(), ("--fileperf",)])
def test_a_reason_is_for_stored_baselines(pytester: pytest.Pytester, run: Run, arguments: tuple[str, ...]) -> None:
    assert problem_of(run("--fileperf-reason=why", *arguments)) == (
        "--fileperf-reason: it is stored with baselines, and none are stored without --fileperf-update"
    )


@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_a_reason_says_something(pytester: pytest.Pytester, run: Run, blank: str) -> None:
    problem = problem_of(run("--fileperf-update", f"--fileperf-reason={blank}"))
    assert problem.startswith("--fileperf-reason: it is empty, say why")


def test_a_reason_cannot_steer_a_terminal(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        from pytest_fileperf.plugin.active import ACTIVE

        def test_shown(request):
            print(ascii(request.config.stash[ACTIVE].options.reason))
        """
    )
    run("--fileperf-update", "--fileperf-reason=a\x1b[2Jb\r\nµ", "-s").stdout.fnmatch_lines([r"*'a\ufffd?2Jb \xb5'"])


# --- where


@pytest.mark.parametrize("option", ["--fileperf-update", "--fileperf-update=new", "--fileperf-update=all"])
@pytest.mark.parametrize("ci", ["true", "1", "yes"])
def test_storing_in_ci_needs_its_own_word(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, option: str, ci: str
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.fileperf\ndef test_some(): pass")
    monkeypatch.setenv("CI", ci)
    assert problem_of(run(option)) == (
        "--fileperf-update: CI is set, and baselines that nobody looks at accept what got slower: "
        "store them where you see the figures and commit them, or add --fileperf-update-in-ci"
    )
    run(option, "--fileperf-update-in-ci").assert_outcomes(passed=1)


@pytest.mark.parametrize("ci", ["", "0", "false", "False"])
def test_ci_may_be_said_to_be_off(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.fileperf\ndef test_some(): pass")
    monkeypatch.setenv("CI", ci)
    run("--fileperf-update").assert_outcomes(passed=1)


def test_the_word_alone_changes_nothing(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_some(fileperf): pass")
    run("--fileperf-update-in-ci").assert_outcomes(skipped=1)


# --- stale

MODULE = """
import pytest

def test_kept(): pass

@pytest.mark.parametrize("size", ["1"])
class TestClass:
    def test_param(self, size): pass

def test_failed(): raise AssertionError

@pytest.mark.skip(reason="today")
def test_skipped(): pass

@pytest.mark.xfail(strict=False, reason="perhaps")
def test_expected_to_fail(): pass
"""
NOT_TOLD = ("test_a.py::test_failed", "test_a.py::test_skipped#2", "test_a.py::test_expected_to_fail")
"""Tests that are there and did not pass."""
STALE = ("test_a.py::TestClass::test_param[2]", "test_a.py::test_kept#2", "test_a.py::test_old", "test_gone.py::test_x")
LISTED = [
    "5 stale baselines; --fileperf-prune removes them",
    "  test_a.py::TestClass::test_param?2?: no such test",
    "  test_a.py::test_kept#2: its test passed without this measurement",
    "  test_a.py::test_old: no such test",
    "  test_gone.py::test_x: no such file",
]


@pytest.fixture
def stored(pytester: pytest.Pytester, run: Run) -> BaselineStore:
    """A project whose baselines are stale in part, on two machines."""
    pytester.makepyfile(test_a=MODULE, test_b="import pytest\n@pytest.mark.skip\ndef test_old(): pass")
    baselines = store(pytester.path / ".fileperf", *NOT_TOLD, *STALE, "test_b.py::test_old")
    store(baselines.directory, "test_gone.py::test_x", environment=ELSEWHERE)
    return baselines


def test_what_is_stale_is_listed_and_kept(stored: BaselineStore, run: Run) -> None:
    before = stored.keys()
    result = run("--fileperf")
    result.stdout.fnmatch_lines(["*= fileperf =*", *LISTED], consecutive=True)
    result.stdout.no_fnmatch_line("*test_b.py::test_old: *")
    assert stored.keys() == before


def test_what_is_stale_is_removed_where_that_is_asked_for(stored: BaselineStore, run: Run) -> None:
    result = run("--fileperf", "--fileperf-prune", "test_a.py")
    result.stdout.fnmatch_lines(["fileperf: measuring; removing stale baselines; *"])
    result.stdout.fnmatch_lines(["*= fileperf =*", "removed 5 stale baselines", *LISTED[1:]], consecutive=True)
    assert stored.keys() == dict.fromkeys((*NOT_TOLD, "test_b.py::test_old"), 1)
    assert {path.name for path in stored.directory.iterdir()} - {".local"} == {HERE.profile}
    run("--fileperf-prune").stdout.fnmatch_lines(["*no stale baselines in the modules that were collected whole"])


def test_with_q_they_are_only_counted(stored: BaselineStore, run: Run) -> None:
    result = run("--fileperf", "-q", "test_a.py")
    result.stdout.fnmatch_lines([LISTED[0]])
    result.stdout.no_fnmatch_line(LISTED[3])


@pytest.mark.parametrize(
    "arguments",
    [
        ("test_a.py::test_kept",),
        ("test_a.py::TestClass", "test_b.py"),
        ("-k", "test_kept"),
        ("-k", "not test_kept"),
        ("-m", "skip"),
        ("--deselect", "test_a.py::test_failed"),
    ],
)
def test_of_modules_collected_in_part_nothing_is_said(
    stored: BaselineStore, run: Run, arguments: tuple[str, ...]
) -> None:
    """What is left is the module that is not there any more."""
    run("--fileperf", "--fileperf-prune", *arguments)
    assert not stored.keys().keys() & {"test_gone.py::test_x"}
    assert stored.keys().keys() >= {*NOT_TOLD, *STALE[:-1]}


def test_nothing_is_said_of_modules_that_the_last_failures_leave_out(stored: BaselineStore, run: Run) -> None:
    run("--fileperf", plugins=("cacheprovider",)).assert_outcomes(passed=2, failed=1, skipped=2, xpassed=1)
    run("--fileperf", "--fileperf-prune", "--lf", plugins=("cacheprovider",)).assert_outcomes(failed=1)
    assert stored.keys().keys() >= {*NOT_TOLD, *STALE[:-1], "test_b.py::test_old"}


def test_of_modules_that_are_skipped_or_not_collected_nothing_is_said(
    pytester: pytest.Pytester, stored: BaselineStore, run: Run
) -> None:
    pytester.makepyfile(test_a='import pytest\npytest.skip("here", allow_module_level=True)')
    run("--fileperf", "--fileperf-prune", "test_a.py").stdout.fnmatch_lines(["removed 2 stale baselines"])
    assert stored.keys().keys() == {*NOT_TOLD, *STALE[:-1], "test_b.py::test_old"}


def test_a_module_without_tests_is_collected_whole(pytester: pytest.Pytester, stored: BaselineStore, run: Run) -> None:
    pytester.makepyfile(test_b="")
    result = run("--fileperf", "--fileperf-prune", "test_b.py")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["removed 3 stale baselines", "  test_b.py::test_old: no such test"])


@pytest.mark.parametrize(
    "test_c,arguments,why",
    [
        ("import missing_module", ("--continue-on-collection-errors",), "collection had errors"),
        ("import missing_module", (), "*"),
        ("", ("--collect-only",), "tests were only collected"),
        ("import pytest\ndef test_c(): pytest.exit('enough')", (), "the session was not finished"),
    ],
    ids=["errors, and on", "errors", "only collected", "interrupted"],
)
def test_nothing_is_removed_where_nobody_knows(
    pytester: pytest.Pytester, stored: BaselineStore, run: Run, test_c: str, arguments: tuple[str, ...], why: str
) -> None:
    before = stored.keys()
    pytester.makepyfile(test_c=test_c)
    result = run("--fileperf", "--fileperf-prune", *arguments)
    result.stdout.fnmatch_lines([f"fileperf: no baselines removed, {why}"])
    result = run("--fileperf", *arguments)
    result.stdout.no_fnmatch_line("*stale*")
    assert stored.keys() == before


def test_a_few_requests_prune_nothing(stored: BaselineStore, run: Run) -> None:
    assert problem_of(run("--fileperf-smoke", "--fileperf-prune")) == (
        "--fileperf-prune: a few requests prune nothing, leave out --fileperf-smoke"
    )
    run("--fileperf-smoke").stdout.no_fnmatch_line("*stale*")


def test_a_smoke_run_of_several_processes_says_nothing(stored: BaselineStore, run_load: Run) -> None:
    before = stored.keys()
    run_load("--fileperf-smoke", "-n2", plugins=("xdist",)).stdout.no_fnmatch_line("*stale*")
    assert stored.keys() == before


def test_baselines_outside_the_root_may_be_of_other_projects(
    pytester: pytest.Pytester, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("shared")
    pytester.makepyfile(test_a=MODULE)
    baselines = store(shared, *STALE)
    run("--fileperf", "--fileperf-prune", f"--fileperf-baselines={shared}").stdout.fnmatch_lines(
        ["removed 3 stale baselines"]
    )
    assert baselines.keys().keys() == {"test_gone.py::test_x"}


def test_a_damaged_file_is_told_and_fails_only_where_something_was_to_be_removed(
    stored: BaselineStore, run: Run
) -> None:
    path = stored.path_of("test_other.py", ELSEWHERE)
    path.write_text("{", encoding="utf-8")
    told = [f"fileperf: a baseline is damaged: not JSON: * ({path})"]
    listed = run("--fileperf", "test_b.py")
    listed.stdout.fnmatch_lines(told)
    assert listed.ret == pytest.ExitCode.OK
    pruned = run("--fileperf", "--fileperf-prune", "test_b.py")
    pruned.stdout.fnmatch_lines(told)
    assert pruned.ret == pytest.ExitCode.TESTS_FAILED
    path.unlink()
    assert stored.keys()["test_gone.py::test_x"] == 2


def test_a_damaged_file_that_a_test_failed_for_is_told_once(stored: BaselineStore, run: Run) -> None:
    path = stored.path_of("test_other.py", ELSEWHERE)
    path.write_text("{", encoding="utf-8")
    Path("test_failing.py").write_text(
        "from pytest_fileperf.judge.baseline import BaselineStore\n"
        f"def test_failing(): BaselineStore(__import__('pathlib').Path({str(path.parents[1])!r})).keys()\n"
    )
    told = run("--fileperf", "test_failing.py").stdout.str()
    assert "BaselineError: a baseline is damaged: not JSON: " in told
    assert "fileperf: a baseline" not in told
    short = next(line for line in told.splitlines() if line.startswith("FAILED "))
    assert short.startswith("FAILED test_failing.py::test_failing - a baseline is damaged: not JSON")


def test_what_is_still_measured_is_not_stale(project: pytest.Pytester, run_load: Run) -> None:
    twice = """
        def test_twice(fileperf):
            fileperf.get("/", connections=1, gate="rps", tolerance="9900%")
            fileperf.get("/pid", connections=1, gate="rps", tolerance="9900%")
    """
    project.makepyfile(test_a=twice)
    run_load("--fileperf-update=all", "--fileperf-prune", *QUICK).stdout.fnmatch_lines(
        ["2 baselines stored", "fileperf: no stale baselines in the modules that were collected whole"]
    )
    project.makepyfile(test_a=twice.replace('fileperf.get("/pid"', '# fileperf.get("/pid"'))
    run_load("--fileperf", *QUICK).stdout.fnmatch_lines(
        ["1 stale baseline; --fileperf-prune removes it", "  test_a.py::test_twice#2: its test passed without *"]
    )


def test_nothing_stored_is_nothing_said(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_some(fileperf): pass")
    run("--fileperf").stdout.no_fnmatch_line("*= fileperf =*")
