"""Writes the files that were asked for, and tells what became of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_benchmark.utils import get_commit_info

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.result import Result
from pytest_fileperf.plugin.options import Invocation
from pytest_fileperf.report.benchmark_json import DEFAULT_STORAGE, benchmark_document, run_info, save_benchmarks
from pytest_fileperf.report.files import write_text
from pytest_fileperf.report.json_file import results_json
from pytest_fileperf.report.page.document import RunFacts, results_html

__all__ = ("write_files",)


def write_files(config: pytest.Config, invocation: Invocation, results: Sequence[Result]) -> tuple[list[str], bool]:
    """Writes the files that were asked for; returns lines that say where, and whether anything failed."""
    said: list[str] = []
    failed = False
    for write in _writers(config, invocation, results):
        try:
            said.append(write())
        except FilePerfError as error:
            said.append(f"fileperf: {error}")
            failed = True
    return said, failed


def _writers(config: pytest.Config, invocation: Invocation, results: Sequence[Result]) -> list[Callable[[], str]]:
    writers: list[Callable[[], str]] = []
    json, html, name = invocation.json, invocation.html, invocation.save
    if json is not None:
        writers.append(lambda: _write_json(json, results, invocation.group_by))
    if html is not None:
        writers.append(lambda: _write_html(config, html, results, invocation.group_by))
    if name is not None:
        writers.append(lambda: _save(config, name or None, results))
    return writers


def _write_json(path: Path, results: Sequence[Result], group_by: Sequence[str]) -> str:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    environment = asdict(Environment.current())
    write_text(path, results_json(results, environment=environment, created=created, group_by=group_by))
    return f"fileperf: wrote {path}"


def _write_html(config: pytest.Config, path: Path, results: Sequence[Result], group_by: Sequence[str]) -> str:
    facts = RunFacts(
        created=datetime.now(UTC),
        command=shlex.join(("pytest", *map(str, config.invocation_params.args))),
        commit=get_commit_info(),  # type: ignore[no-untyped-call]
        environment=asdict(Environment.current()),
    )
    write_text(path, results_html(results, facts, group_by))
    return f"fileperf: wrote {path}"


def _save(config: pytest.Config, name: str | None, results: Sequence[Result]) -> str:
    document = benchmark_document(results, run_info())
    if hasattr(config.hook, "pytest_benchmark_update_json"):  # pytest-benchmark's plugin may be switched off
        config.hook.pytest_benchmark_update_json(config=config, benchmarks=[], output_json=document)
    storage = config.getoption("benchmark_storage", default=DEFAULT_STORAGE)
    path = save_benchmarks(document, name=name, storage=storage)
    if path is None:
        return "fileperf: nothing saved, smoke runs and measurements without a successful request are left out"
    return f"fileperf: saved {path}"
