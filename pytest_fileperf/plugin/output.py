"""Writes the files that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.files import write_text
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.plugin.invocation import Options
from pytest_fileperf.report.json_file import results_json
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.versions.commit import project_name

__all__ = ("write_files",)


def write_files(config: pytest.Config, options: Options, record: SessionRecord) -> tuple[list[str], bool]:
    """Writes the files that were asked for; returns lines that say where, and whether anything failed."""
    said: list[str] = []
    failed = False
    for write in _writers(config, options, record):
        try:
            said.append(write())
        except FilePerfError as error:
            said.append(f"fileperf: {error}")
            failed = True
    return said, failed


def _writers(config: pytest.Config, options: Options, record: SessionRecord) -> list[Callable[[], str]]:
    writers: list[Callable[[], str]] = []
    json, html, markdown, name = options.json, options.html, options.markdown, options.save
    if json is not None:
        writers.append(lambda: _write(json, results_json(record)))
    if html is not None:
        writers.append(lambda: _write(html, results_html(record)))
    if markdown is not None:
        writers.append(lambda: _write(markdown, markdown_report(record)))
    if name is not None:
        writers.append(lambda: _save(config, name or None, record))
    return writers


def _write(path: Path, text: str) -> str:
    write_text(path, text)
    return f"fileperf: wrote {path}"


def _save(config: pytest.Config, name: str | None, record: SessionRecord) -> str:
    from pytest_fileperf.report.benchmark_json import DEFAULT_STORAGE, benchmark_document, run_info, save_benchmarks

    try:
        info = run_info(record.commit, project_name(Path.cwd()))
    except OSError as error:  # it starts programs
        raise FilePerfError(f"nothing saved, as the facts about this machine cannot be found out: {error}") from error
    document = benchmark_document(record, info)
    if hasattr(config.hook, "pytest_benchmark_update_json"):  # pytest-benchmark's plugin may be switched off
        config.hook.pytest_benchmark_update_json(config=config, benchmarks=[], output_json=document)
    storage = config.getoption("benchmark_storage", default=DEFAULT_STORAGE)
    path = save_benchmarks(document, name=name, storage=storage)
    if path is None:
        return "fileperf: nothing saved, smoke runs and measurements without a successful request are left out"
    return f"fileperf: saved {path}"
