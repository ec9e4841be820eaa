"""What a run writes: files, also of tests that failed for another reason than a figure, and what services show."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from plugin.conftest import Run
from versions.repositories import Repo, needs_git

from pytest_fileperf.__main__ import main
from pytest_fileperf.errors import PlanError, RegressionError
from pytest_fileperf.plugin.outcomes import not_by_verdict

TESTS = """
import pytest

def test_asserts(fileperf):
    assert fileperf.get("/").requests == -1

def test_wrong_key(fileperf):
    fileperf.get("/", conections=2)

def fill(client):
    raise OSError("no such table: items")

def test_setup(fileperf):
    fileperf.get("/", setup=fill)

def test_figures(fileperf):
    fileperf.get("/status/500")

def test_group(fileperf):
    try:
        fileperf.get("/status/500")
    except AssertionError as error:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error])

def test_group_of_others(fileperf):
    fileperf.get("/")
    raise ExceptionGroup("unhandled errors in a TaskGroup", [OSError("gone")])

@pytest.fixture
def broken(fileperf):
    yield
    raise KeyError("left over")

def test_teardown(broken, fileperf):
    fileperf.get("/")

@pytest.mark.xfail
def test_expected(fileperf):
    fileperf.get("/", conections=2)

def test_of_other_things():
    assert False

@pytest.mark.parametrize("size", [1])
def test_two(fileperf, size):
    fileperf.get("/")
    fileperf.post("/", content=b"x" * size)
"""
FILES = ("--fileperf-json=out/run.json", "--fileperf-markdown=out/run.md")


def failed_in(path: Path) -> dict[str, tuple[str, int, str]]:
    """Returns phase, line and first line of each failed test, by its name."""
    document: Any = json.loads(path.read_text(encoding="utf-8"))
    return {one["name"]: (one["phase"], one["line"], one["message"].split("\n")[0]) for one in document["failed"]}


def require_failures(out: Path, measured: str, others: int = 5) -> None:
    """Looks at what the files have of these tests."""
    failed = failed_in(out / "run.json")
    failed.pop("test_zero", None)
    assert failed == {
        "test_asserts": ("call", 3, failed["test_asserts"][2]),
        "test_wrong_key": ("call", 6, failed["test_wrong_key"][2]),
        "test_setup": ("call", 12, "setup fill failed on in-process (uvloop):"),
        "test_group_of_others": ("call", 24, "OSError: gone"),
        "test_teardown": ("teardown", 33, "KeyError: 'left over'"),
    }
    assert failed["test_asserts"][2].startswith("assert ")
    assert "conections" in failed["test_wrong_key"][2]
    text = (out / "run.md").read_text(encoding="utf-8")
    assert text.startswith(f"## Load tests: {measured}, 2 FAILED; {others} tests failed for other reasons; smoke: ")
    assert "test_setup` failed: setup fill failed on in-process (uvloop): OSError: no such table: items\n" in text


def test_every_file_that_was_asked_for_is_written_and_named(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports are made of the run's file again. A few requests leave the summary of a step alone."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary"))
    project.makepyfile(test_it=TESTS)
    files = (*FILES, "--fileperf-html=out/page.html", "--junitxml=junit.xml")
    shown = run_load("--fileperf-smoke", *files).stdout
    out = project.path / "out"
    shown.fnmatch_lines([f"fileperf: wrote {out / name}" for name in ("run.json", "page.html", "run.md")])
    assert "::error" not in shown.str()
    assert not (project.path / "summary").exists()
    require_failures(out, "7 measured")

    document = json.loads((out / "run.json").read_text())
    tests = [result["test"] for result in document["results"] if result["test"]["name"].startswith("test_two")]
    assert [test["nodeid"] for test in tests] == ["test_it.py::test_two[1]", "test_it.py::test_two[1]#2"]
    assert (tests[0]["module"], tests[0]["params"]) == ("test_it.py", {"size": 1})
    assert " ".join(files[:3]) in document["asked"]["command"]
    assert set(document["versions"]) == {"pytest-fileperf", "pytest", "python"}
    assert document["environment"]["packages"]
    case = ET.parse(project.path / "junit.xml").findall(".//testcase[@name='test_two[1]']//property")
    names = [item.get("name") for item in case]
    assert names[:3] == ["fileperf_rps", "fileperf_p99", "fileperf_outcome"]
    page = (out / "page.html").read_text(encoding="utf-8")
    assert "--fileperf-smoke --fileperf-json=out/run.json" in page
    assert "test_two" in page

    again = [f"--html={out / 'again.html'}", f"--markdown={out / 'again.md'}"]
    assert main(["report", str(out / "run.json"), *again]) == 0
    assert (out / "again.html").read_text(encoding="utf-8") == page
    assert (out / "again.md").read_text(encoding="utf-8") == (out / "run.md").read_text(encoding="utf-8")


def test_under_xdist_the_controller_reports_what_all_have_measured(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    zero = "import pytest\n@pytest.mark.fileperf(connections=0)\ndef test_zero(fileperf): fileperf.get('/')"
    project.makepyfile(test_it=TESTS, test_marker=zero)
    result = run_load("--fileperf-smoke", *FILES, "-n2", plugins=("xdist",))
    result.stdout.fnmatch_lines(["E*PlanError: GET /: connections: 0 is not a whole number of 1 or more"])
    result.stdout.fnmatch_lines(["*= fileperf =*", "test_two?1? *", "fileperf: wrote */run.json"])
    require_failures(project.path / "out", "7 measured", others=6)
    commands = [line for line in result.stdout.lines if line.startswith("::")]
    assert sum(",line=15,title=FAILED test_figures::" in line for line in commands) == 1
    assert len(commands) == len(set(commands))


def test_a_verdict_in_a_group_is_told_by_its_result_and_others_by_themselves() -> None:
    verdict, other, usage = RegressionError("slower"), OSError("gone"), PlanError("unknown key")
    inner = ExceptionGroup("inner", [verdict, usage])
    assert not_by_verdict(verdict) == not_by_verdict(None) == ()
    assert not_by_verdict(ExceptionGroup("all", [verdict, RegressionError("too")])) == ()
    assert not_by_verdict(ExceptionGroup("some", [other, verdict, inner])) == (other, usage)
    assert not_by_verdict(other) == (other,)


def test_a_run_that_measures_nothing_writes_only_what_failed(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/')")
    path = project.path / "run.json"
    path.write_text('{\n  "asked": of an earlier run')
    files = ("--fileperf-json=run.json", "--fileperf-html=run.html", "--fileperf-markdown=run.md")
    run_load("--fileperf-smoke", "--fileperf-app=no.such:app", *files).assert_outcomes(failed=1)
    assert list(failed_in(path)) == ["test_it"]
    for name in ("run.html", "run.md"):
        assert "nothing was measured; 1 test failed" in (project.path / name).read_text(encoding="utf-8")

    project.makepyfile("def test_of_other_things(): assert False")
    nothing = f"fileperf: nothing was measured, so {path} was not written"
    run_load("--fileperf-json=run.json").stdout.fnmatch_lines([f"{nothing}: the file there is of an earlier run"])
    path.unlink()
    run_load("--fileperf-json=run.json").stdout.fnmatch_lines([nothing])
    assert not path.exists()
    run_load("--fileperf-json=run.json", "--collect-only").stdout.no_fnmatch_line("*nothing was measured*")


@pytest.mark.hostile
def test_what_cannot_be_written_fails_the_run(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/')")
    (project.path / "file").touch()
    result = run_load("--fileperf-smoke", "--fileperf-json=file/run.json", "--fileperf-markdown=file/it")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random(
        ["fileperf: cannot write */file/run.json: *", "fileperf: cannot write */file/it: *"]
    )


# --- services

LIMITS = """
    import pytest

    QUICK = dict(connections=1, requests=50, warmup=0, gate="none")

    def test_fast_enough(fileperf):
        fileperf.get("/", min_rps=1, **QUICK)

    class TestMore:
        @pytest.mark.parametrize("size", ["a,b:c%"])
        def test_too_slow(self, fileperf, size):
            fileperf.get("/", min_rps=1e9, **QUICK)
"""
LINE = 9
"""Of the test that is too slow, with its decorator, as pytest counts."""


def test_a_step_of_github_s_has_a_summary_and_annotations(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.mkdir("tests")
    project.makepyfile(LIMITS).rename(project.path / "tests" / "test_it.py")
    summary = tmp_path / "summary"
    summary.write_text("of another command\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    files = ("--fileperf-markdown=out/summary.md", "--fileperf-save=one")
    result = run_load("--fileperf", *files, plugins=("benchmark",))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["fileperf: saved *0001_one.json"])
    (saved,) = (project.path / ".benchmarks").rglob("0001_one.json")
    assert json.loads(saved.read_text())["benchmarks"][0]["name"] == "test_fast_enough"
    (command,) = [line for line in result.stdout.lines if line.startswith("::")]
    file = f"{project.path.name}/tests/test_it.py"
    assert command.startswith(
        f"::error file={file},line={LINE},title=LIMIT test_too_slow[a%2Cb%3Ac%25]::min_rps 1,000,000,000/s, measured "
    )
    text = (project.path / "out" / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("## Load tests: 2 measured: 1 LIMIT, 1 not gated\n")
    assert "| `tests/test_it.py::TestMore::test_too_slow[a,b:c%]` | min\\_rps 1,000,000,000/s, measured " in text
    assert summary.read_text(encoding="utf-8").startswith("of another command\n\n## Load tests: 2 measured: ")

    full = tmp_path / "full"
    full.write_bytes(b"x" * (1 << 20))
    for path, said in (
        (full, "the summary of this step is full: *"),
        (tmp_path, f"cannot write the summary of this step to {tmp_path}: *"),
    ):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
        result = run_load("--fileperf", "-k", "test_fast_enough")
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines([f"fileperf: {said}"])


# --- commits, and a machine without pytest-benchmark


@needs_git
@pytest.mark.skipif(os.name == "nt", reason="the hook is a shell script")
def test_facts_about_the_commit_run_no_hook_and_leave_the_index(repo: Repo, run_load: Run) -> None:
    hook = repo.write(".git/hooks/fsmonitor", "#!/bin/sh\necho called >> .git/called\nexit 1\n")
    hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(hook))
    os.utime(repo.top / "server_app.py", (1e9, 1e9))  # Git would note it in the index
    (repo.top / ".git" / "called").unlink(missing_ok=True)
    before = (repo.top / ".git" / "index").read_bytes()
    run_load("--fileperf-smoke", "--fileperf-save", "--fileperf-html=out.html").assert_outcomes(passed=1)
    assert not (repo.top / ".git" / "called").exists()
    assert (repo.top / ".git" / "index").read_bytes() == before


NOT_INSTALLED = """
import sys

assert "pytest_benchmark" not in sys.modules
sys.modules["pytest_benchmark"] = None  # as if it were not installed
"""


@needs_git
def test_without_pytest_benchmark_only_saving_is_missed(repo: Repo, run_apart: Run) -> None:
    repo.write("conftest.py", NOT_INSTALLED)
    commit = repo.commit()
    short = ("--fileperf-server=inprocess", "--fileperf-duration=0.3s", "--fileperf-rounds=3")
    result = run_apart("--fileperf-update=all", *short, "--fileperf-html=x.html", "--fileperf-json=x.json")
    result.assert_outcomes(passed=1)
    (baseline,) = repo.top.glob(".fileperf/*/*.json")
    (entry,) = json.loads(baseline.read_text(encoding="utf-8"))["tests"].values()
    assert entry["commit"]["id"] == commit
    assert entry["commit"]["branch"] == repo.git("rev-parse", "--abbrev-ref", "HEAD")
    assert json.loads((repo.top / "x.json").read_text(encoding="utf-8"))["environment"]["cpu"]
    assert commit[:7] in (repo.top / "x.html").read_text(encoding="utf-8")

    result = run_apart("--fileperf-save=one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    install = 'install it with pip install "pytest-fileperf?benchmark?"'
    result.stderr.fnmatch_lines([f"ERROR: fileperf: --fileperf-save: it writes pytest-benchmark's files, {install}"])
