"""What got worse or is undecided, each at the line of its test: for reviewers who look at the code.

GitHub Actions reads commands from the output of a step:

    ::error file=tests/test_files.py,line=12,title=REGRESSED test_upload::rps −6.4 % [−8.1, −4.7], 2,190/s → 2,050/s
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import FailedTest, Result, Standing, TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.report.story import reasons, undecided_texts
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.wording import figures_text, first_line, limit_text, where_failed

_SHOWN = 10
"""How many of each level GitHub shows of one step."""


def github_commands(record: SessionRecord, *, root: str = "") -> list[str]:
    """Returns a line of output for each thing to say: errors first, and of these regressions.

    GitHub shows ten of each level: the last one counts the others. `root` is where paths of test modules begin, as seen
    from the top of the repository.
    """
    top = PurePosixPath(root)
    # The level in GitHub's words, such as `REGRESSED`, the test, and what happened, the most telling first.
    told: list[tuple[str, str, TestId | FailedTest, Sequence[str]]] = []
    for result in record.results:
        standing = result.standing
        if standing.fails:
            told.append(("error", standing.value, result.test, [*_failing(result)]))
        elif standing.is_undecided:
            told.append(("warning", standing.value, result.test, undecided_texts(result)))
        elif standing is Standing.NEW and not result.baseline_written:
            told.append(("warning", standing.value, result.test, [text for _, text, _ in reasons(result)]))
    told += (("error", Standing.FAILED.value, test, [first_line(test) or where_failed(test)]) for test in record.failed)
    told.sort(key=lambda each: each[1] != Standing.REGRESSED.value)
    lines = []
    for level in ("error", "warning"):
        found = [each[1:] for each in told if each[0] == level]
        shown = found if len(found) <= _SHOWN else found[: _SHOWN - 1]
        for kind, test, texts in shown:
            place = {"file": (top / test.module).as_posix(), "line": str(test.line or 1)}
            named = {**place, "title": f"{kind} {plain(test.name)}"}
            lines.append(_command(level, named, "\n".join(map(plain, texts)) or kind))
        if rest := found[len(shown) :]:
            names = ", ".join(test.nodeid for _, test, _ in rest)
            lines.append(_command(level, {"title": f"and {len(rest)} more tests"}, names))
    return lines


def _failing(result: Result) -> Iterator[str]:
    """Yields what got worse and by how much, and the functions to blame where they are known."""
    verdict = result.verdict
    yield from (figures_text(item) for item in verdict.comparisons if item.outcome is Outcome.REGRESSED)
    yield from map(limit_text, verdict.broken)
    if kinds := result.measurement.error_kinds:
        yield f"failed requests: {', '.join(f'{count:,} × {kind}' for kind, count in kinds.items())}"
    if result.explanation is not None:
        yield from result.explanation.text.splitlines()


def _command(level: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(
        f"{name}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items()
    )
    return f"::{level} {given}::{_data(message)}"


def _data(text: str) -> str:
    """Returns the text as `escapeData` of GitHub's toolkit (packages/core/src/command.ts) makes it.

    Properties have `:` and `,` escaped besides, as by its `escapeProperty`.
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
