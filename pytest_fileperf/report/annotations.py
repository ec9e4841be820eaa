"""What got worse or is undecided, each at the line of its test: for reviewers who look at the code.

GitHub Actions reads commands from the output of a step:

    ::error file=tests/test_files.py,line=12,title=REGRESSED test_upload::rps −6.4 % [−8.1, −4.7], 2,190/s → 2,050/s
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.report.details import limit_text, reasons
from pytest_fileperf.report.story import SLOWER_WORLD, figures_text, undecided_texts
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.wording import first_line, where_failed, world_outcome, world_text

__all__ = ("Annotation", "Level", "annotations_of", "github_commands")

_SHOWN = 10
"""How many of each level GitHub shows of one step."""


class Level(Enum):
    """How much it matters, in GitHub's words."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What is said at one line of the code."""

    level: Level
    file: str
    """From the top of the repository on, with `/`."""
    line: int | None
    kind: str
    """`REGRESSED`, `SLOWER WORLD`."""
    test: str
    """The test's node id."""
    name: str
    lines: tuple[str, ...]
    """What happened, the most telling first."""


def annotations_of(
    results: Iterable[Result], failed: Iterable[FailedTest] = (), *, root: str = ""
) -> tuple[Annotation, ...]:
    """Returns what there is to say, errors first, and of these regressions first.

    `failed` are the tests that failed for another reason than a figure.
    `root` is where paths of test modules begin, as seen from the top of the repository.
    """
    found = [annotation for result in results for annotation in _of(result, PurePosixPath(root))]
    found += [_of_failed(test, PurePosixPath(root)) for test in failed]
    return tuple(sorted(found, key=_weight))


def _weight(annotation: Annotation) -> tuple[bool, bool]:
    return annotation.level is not Level.ERROR, annotation.kind != Standing.REGRESSED.value


def _of(result: Result, root: PurePosixPath) -> Iterator[Annotation]:
    standing, test = result.standing, result.test

    def said(level: Level, kind: str, lines: Iterable[str]) -> Annotation:
        told = tuple(plain(line) for line in lines) or (kind,)
        file = (root / test.module).as_posix()
        return Annotation(
            level=level, file=file, line=test.line, kind=kind, test=test.nodeid, name=plain(test.name), lines=told
        )

    if standing.fails:
        yield said(Level.ERROR, standing.value, _failing(result))
    elif standing.is_undecided:
        yield said(Level.WARNING, standing.value, undecided_texts(result))
    elif standing is Standing.NEW and not result.baseline_written:
        yield said(Level.WARNING, standing.value, (why.text for why in reasons(result)))
    if world_outcome(result.verdict) is Outcome.REGRESSED:
        yield said(Level.WARNING, SLOWER_WORLD, [world_text(result.verdict)])


def _of_failed(test: FailedTest, root: PurePosixPath) -> Annotation:
    return Annotation(
        level=Level.ERROR,
        file=(root / test.module).as_posix(),
        line=test.line,
        kind=Standing.FAILED.value,
        test=test.nodeid,
        name=plain(test.name),
        lines=(first_line(test) or where_failed(test),),
    )


def _failing(result: Result) -> Iterator[str]:
    """Yields what got worse and by how much, and the functions to blame where they are known."""
    verdict = result.verdict
    yield from (figures_text(item) for item in verdict.comparisons if item.outcome is Outcome.REGRESSED)
    yield from (limit_text(check) for check in verdict.limits if not check.holds)
    if kinds := result.measurement.error_kinds:
        yield f"failed requests: {', '.join(f'{count:,} × {kind}' for kind, count in kinds.items())}"
    if result.explanation is not None:
        yield from result.explanation.text.splitlines()


# --- GitHub


def github_commands(found: Sequence[Annotation]) -> list[str]:
    """Returns a line of output for each annotation. GitHub shows ten of each level: the last one counts the others."""
    return [command for level in Level for command in _commands([each for each in found if each.level is level])]


def _commands(found: Sequence[Annotation]) -> Iterator[str]:
    shown = found if len(found) <= _SHOWN else found[: _SHOWN - 1]
    for each in shown:
        place = {"file": each.file, "line": str(each.line or 1), "title": f"{each.kind} {each.name}"}
        yield _command(each.level, place, "\n".join(each.lines))
    if rest := found[len(shown) :]:
        names = ", ".join(each.test for each in rest)
        yield _command(rest[0].level, {"title": f"and {len(rest)} more tests"}, names)


def _command(level: Level, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level.value} {given}::{_data(message)}"


def _data(text: str) -> str:
    """Returns the text as `escapeData` of GitHub's toolkit (packages/core/src/command.ts) makes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Returns the text as `escapeProperty` of the same file makes it."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
