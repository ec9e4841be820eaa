"""What a run tells the service that it runs on: a summary of the step and annotations, under GitHub Actions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.report.annotations import Annotation, annotations_of, github_commands
from pytest_fileperf.report.markdown import STEP_LIMIT_BYTES, markdown_report

__all__ = ("no_command", "tell_ci")

_TOPS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Environment variables in which GitHub and GitLab name the top of the repository."""
_LEAST_BYTES = 2048
"""A summary of less says nothing."""


def tell_ci(config: pytest.Config, record: SessionRecord) -> Iterator[str]:
    """Adds the summary of this step, and yields lines to print: annotations, or why there is no summary."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if summary and not record.asked.smoke:
        yield from _add_summary(Path(summary), record)
    if _on_github():
        yield from github_commands(_annotations(config, record))


def no_command(line: str) -> str:
    """Returns a line that GitHub takes for no command, whatever the names in it: `::error` where it begins so.

    An older form, `##[error]`, is one anywhere in a line.
    """
    if not _on_github():
        return line
    line = line.replace("##[", "# #[")
    return line.replace("::", ": :", 1) if line.lstrip().startswith("::") else line


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _add_summary(path: Path, record: SessionRecord) -> Iterator[str]:
    """Writes the report behind what other commands of the step have written; yields why it could not."""
    try:
        written = path.stat().st_size if path.exists() else 0
        room = STEP_LIMIT_BYTES - written - 2
        if room < _LEAST_BYTES:
            yield "fileperf: the summary of this step is full: --fileperf-markdown writes ours to a file"
            return
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write("\n" * bool(written) + markdown_report(record, limit_bytes=room))
    except OSError as error:
        yield f"fileperf: cannot write the summary of this step to {path}: {error.strerror or error}"


def _annotations(config: pytest.Config, record: SessionRecord) -> tuple[Annotation, ...]:
    """Returns what there is to say at lines of the code, with paths from the top of the repository."""
    return annotations_of(record.results, record.failed, root=_root_in_repository(config))


def _root_in_repository(config: pytest.Config) -> str:
    """Returns the path to the directory of the test run from the top of the repository, where a CI service names it."""
    for name in _TOPS:
        with suppress(ValueError, OSError):
            if top := os.environ.get(name, ""):
                return config.rootpath.resolve().relative_to(Path(top).resolve()).as_posix()
    return ""
