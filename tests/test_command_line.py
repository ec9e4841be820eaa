"""`python -m pytest_fileperf`: reports of a run that is over are those that the run has made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from report.stored import stored

from pytest_fileperf.__main__ import main
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import session_text


@pytest.fixture(autouse=True)
def _small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")


@pytest.fixture(scope="module")
def record() -> SessionRecord:
    return stored("every_kind")


@pytest.fixture
def run(record: SessionRecord, tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(results_json(record), encoding="utf-8")
    return path


def test_without_a_command_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "report" in capsys.readouterr().out


@pytest.mark.parametrize("options, verbosity", [((), 0), (("--text",), 0), (("-v",), 1)])
def test_it_prints_what_the_terminal_showed(
    options: tuple[str, ...], verbosity: int, record: SessionRecord, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), *options]) == 0
    assert capsys.readouterr().out == session_text(record, width=80, verbosity=verbosity)


def test_several_files_may_be_written_at_once(
    record: SessionRecord, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = run.with_name("page.html"), run.with_name("summary.md")
    assert main(["report", str(run), f"--html={page}", f"--markdown={summary}"]) == 0
    assert capsys.readouterr().out == f"wrote {page}\nwrote {summary}\n"
    assert page.read_text(encoding="utf-8") == results_html(record)
    assert summary.read_text(encoding="utf-8") == markdown_report(record)


def test_text_may_be_asked_for_besides(record: SessionRecord, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run.with_name("page.html")
    assert main(["report", str(run), f"--html={page}", "--text"]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n{session_text(record, width=80)}"


def test_on_a_terminal_it_is_as_wide_and_has_colours(
    record: SessionRecord, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == session_text(record, width=120, colour=True)


def test_a_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    assert main(["report", str(path)]) == 1
    assert capsys.readouterr().err == f"cannot read {path}: No such file or directory\n"
    path.write_text('{"schema": 2}', encoding="utf-8")
    assert main(["report", str(path), "--html=page.html"]) == 1
    assert "run the tests again with --fileperf-json" in capsys.readouterr().err


def test_charts_need_plotly(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.__main__.find_spec", lambda name: None)
    assert main(["report", str(run), "--html=page.html"]) == 2
    assert capsys.readouterr().err.startswith("--html: its charts need plotly, install it with pip install")


def test_what_is_not_an_option_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "--pdf=x"])
    assert ended.value.code == 2
    assert "--pdf=x" in capsys.readouterr().err


def test_it_runs_without_pytest(run: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['pytest'] = None; sys.argv = ['x', 'report', sys.argv[1]]; "
        "runpy.run_module('pytest_fileperf', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "test_upload" in done.stdout
