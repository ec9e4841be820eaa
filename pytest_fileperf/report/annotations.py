"""Annotations for GitHub: losses and undecided metrics, at the line of their test.

GitHub Actions reads them as commands from a step's output:

    ::error file=tests/test_files.py,line=12,title=REGRESSED test_upload::rps −6.4 % [−8.1, −4.7], 2,190/s → 2,050/s
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import FailedTest, Standing, TestId
from pytest_fileperf.report.story import is_pressing, pressing_texts
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.wording import first_line, where_failed

_SHOWN = 10
"""GitHub shows this many errors of a workflow step, and this many warnings."""


def github_commands(record: SessionRecord, *, root: str = "") -> list[str]:
    """Returns a GitHub command for each failed, undecided or new test. Regressions are first, and new tests last.

    GitHub shows only the first commands. `root` is pytest's root directory, relative to the repository.
    """
    top = PurePosixPath(root)
    # GitHub's severity, a word such as `REGRESSED`, the test, and texts, the most telling first.
    told: list[tuple[str, str, TestId | FailedTest, Sequence[str]]] = []
    for result in filter(is_pressing, record.results):
        level = "error" if result.standing.fails else "warning"
        told.append((level, result.standing.value, result.test, pressing_texts(result)))
    told += (("error", Standing.FAILED.value, test, [first_line(test) or where_failed(test)]) for test in record.failed)
    told.sort(key=lambda each: (each[1] != Standing.REGRESSED.value, each[1] == Standing.NEW.value))
    lines = []
    for level in ("error", "warning"):
        found = [each[1:] for each in told if each[0] == level]
        shown = found if len(found) <= _SHOWN else found[: _SHOWN - 1]
        for kind, test, texts in shown:
            place = {"file": (top / test.module).as_posix(), "line": str(test.line or 1)}
            named = {**place, "title": f"{kind} {plain(test.name)}"}
            lines.append(_command(level, named, "\n".join(map(plain, texts)) or kind))
        if rest := found[len(shown) :]:
            did = "failed" if level == "error" else "need attention"
            names = ", ".join(test.nodeid for _, test, _ in rest)
            lines.append(_command(level, {"title": f"{len(rest)} more tests {did}"}, names))
    return lines


def _command(level: str, properties: dict[str, str], message: str) -> str:
    # Like `escapeProperty`, which is in the same file of GitHub's toolkit as `escapeData`.
    given = ",".join(
        f"{name}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items()
    )
    return f"::{level} {given}::{_data(message)}"


def _data(text: str) -> str:
    """Escapes a command's text as `escapeData` does in GitHub's toolkit (packages/core/src/command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
