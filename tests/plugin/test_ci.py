"""What a run writes for pull requests and for the services that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

TESTS = """
    import pytest

    QUICK = dict(connections=1, requests=50, warmup=0, gate="none")

    def test_fast_enough(fileperf):
        fileperf.get("/", min_rps=1, **QUICK)

    class TestMore:
        @pytest.mark.parametrize("size", ["a,b:c%"])
        def test_too_slow(self, fileperf, size):
            fileperf.get("/", min_rps=1e9, **QUICK)
"""
FAILED = "tests/test_it.py::TestMore::test_too_slow[a,b:c%]"
LINE = 9
"""Of that test, with its decorator, as pytest counts."""


@pytest.fixture
def measured(project: pytest.Pytester) -> pytest.Pytester:
    """A project with one test that passes and one that fails, in a directory of its repository."""
    project.mkdir("tests")
    made = project.makepyfile(TESTS)
    made.rename(project.path / "tests" / "test_it.py")
    return project


def test_a_summary_is_written_where_it_was_asked_for(measured: pytest.Pytester, run_load: Run) -> None:
    result = run_load("--fileperf-markdown=out/summary.md")
    result.assert_outcomes(passed=1, failed=1)
    path = measured.path / "out" / "summary.md"
    result.stdout.fnmatch_lines([f"fileperf: wrote {path}"])
    text = path.read_text(encoding="utf-8")
    assert text.startswith("## Load tests: 2 measured: 1 LIMIT, 1 not gated\n")
    assert f"| `{FAILED}` | min\\_rps 1,000,000,000/s, measured " in text
    assert "::error" not in result.stdout.str()


def test_what_cannot_be_written_fails_the_run(measured: pytest.Pytester, run_load: Run) -> None:
    (measured.path / "file").write_text("")
    result = run_load("--fileperf-smoke", "--fileperf-markdown=file/it", "-k", "test_fast_enough")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["fileperf: cannot write */file/it: *"])


def test_a_step_of_github_s_has_a_summary_and_annotations(
    measured: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = tmp_path / "summary"
    summary.write_text("of another command\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(measured.path.parent))
    result = run_load("--fileperf")
    result.assert_outcomes(passed=1, failed=1)
    commands = [line for line in result.stdout.lines if line.startswith("::")]
    assert len(commands) == 1
    file = f"{measured.path.name}/tests/test_it.py"
    assert commands[0].startswith(
        f"::error file={file},line={LINE},title=LIMIT test_too_slow[a%2Cb%3Ac%25]::min_rps 1,000,000,000/s, measured "
    )
    assert summary.read_text(encoding="utf-8").startswith("of another command\n\n## Load tests: 2 measured: ")


def test_a_few_requests_leave_the_summary_alone(
    measured: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    run_load("--fileperf-smoke").assert_outcomes(passed=2)
    assert not (tmp_path / "summary").exists()


@pytest.mark.parametrize("full", [False, True])
def test_a_summary_that_cannot_be_written_is_said_and_fails_nothing(
    full: bool, measured: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = tmp_path / "summary"
    if full:
        summary.write_bytes(b"x" * (1 << 20))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary if full else tmp_path))
    result = run_load("--fileperf", "-k", "test_fast_enough")
    assert result.ret == pytest.ExitCode.OK
    said = "the summary of this step is full: *" if full else f"cannot write the summary of this step to {tmp_path}: *"
    result.stdout.fnmatch_lines([f"fileperf: {said}"])


def test_annotations_come_once_from_a_run_in_several_processes(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile("def test_bad(fileperf): fileperf.get('/status/500', connections=1)\ndef test_plain(): pass")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run_load("--fileperf-smoke", "-n2", plugins=("xdist",))
    commands = [line for line in result.stdout.lines if line.startswith("::")]
    assert len(commands) == 1
    assert ",line=1,title=FAILED test_bad::" in commands[0]
