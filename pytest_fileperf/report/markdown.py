"""The results as Markdown for a pull request: failures and undecided tests first, passed tests folded.

    ## Load tests: 3 measured: 1 REGRESSED, 2 PASS
    | test | metric | before → after | change | tolerance | outcome |
    |---|---|---|---|---|---|
    | `tests/test_files.py::test_upload` | rps | 2,190/s → 2,050/s | −6.4 % [−8.1, −4.7] | 5 % | **REGRESSED** |

    `tests/test_files.py::test_upload`

    - limited by server CPU, at 97 % of 1 core

Test names and servers' answers cannot become markup, links or mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.record import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report import remarks, story, wording
from pytest_fileperf.report.table import RUN_METRICS, metric_text, ranked_rows
from pytest_fileperf.report.terminal import session_text
from pytest_fileperf.report.text import Screen, Style, plain, plain_line, printable_char, shorten
from pytest_fileperf.units import format_bytes, format_count

STEP_LIMIT_BYTES = 1 << 20
"""GitHub does not show a step's summary that is longer than this."""
COMMENT_LIMIT_BYTES = 64_000
"""GitHub allows 65,536 characters. This leaves room for other text around the report."""
_COMMENT_ROWS = 20
_GATE_HEADINGS = ("test", "metric", "before → after", "change", "tolerance", "outcome")
_MARKUP = re.compile(r"[\\`*_\[\]|~<>&$]|^[#+=-](?=\s)")
_LINK = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=GH-)(?=\d)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
"""Places in plain text where GitHub and GitLab see a mention, an issue or an address. A backslash does not prevent
that."""
_APART = "\N{ZERO WIDTH SPACE}"
_NEEDS_NO_ESCAPE = re.compile(r"[^`|\\]+")


def markdown_report(record: SessionRecord, *, limit_bytes: int = STEP_LIMIT_BYTES) -> str:
    """Returns Markdown for GitHub and GitLab. A report longer than `limit_bytes` in UTF-8 is cut, and says so."""
    results = record.results
    urgent = story.pressing(results)
    calm = [result for result in results if not any(result is other for other in urgent)]
    common = story.shared(results, story.setting) if results else ()
    common += story.shared(results, story.telling) if len(results) > 1 else ()
    blocks = [[f"## Load tests: {_escaped(story.summary_line(record))}", ""], *_failed(record.failed)]
    if urgent:
        rows = [row for result in urgent for row in _gate_rows(result)]
        blocks += ([*_table(_GATE_HEADINGS, rows), ""], *(_about(result, common) for result in urgent))
    if calm:
        lost = [(result, text) for result in calm for text in remarks.release_texts(result, only_losses=True)]
        if lost:
            blocks.append([*(f"- {_code(result.test.nodeid)}: {_escaped(text)}" for result, text in lost), ""])
        blocks.append(_calm(calm, common))
    blocks += map(_ranked, record.groups)
    if common:
        blocks.append(["Of all tests:", "", *(f"- {_escaped(text)}" for text in common), ""])
    if endpoints := story.endpoint_texts(record, most=50):
        blocks.append([*(f"- {_escaped(text)}" for text in endpoints), ""])
    if record.said:
        blocks.append(_block("\n".join(record.said)))
    return _within([line for block in blocks for line in block], limit_bytes)


def comment_report(record: SessionRecord) -> str:
    """Returns a comment for a pull request: a table of the changes, and the terminal's report folded.

    The record's texts appear as code, so their markup has no effect. This matters because the account that posts the
    comment may have more rights than the record's author.
    """
    outcomes = [counted for _, counted in story.counts(record.results)]
    failed = wording.failed_count(record)
    title = "; ".join(filter(None, (", ".join(outcomes), failed))) or "no measurement"
    changed = [*story.pressing(record.results), *(one for one in record.results if one.standing is Standing.IMPROVED)]
    rows = [row for result in changed for row in _gate_rows(result)]
    told = [f"## Load tests: {title}", ""]
    if rows:
        told += [*_table(_GATE_HEADINGS, rows[:_COMMENT_ROWS]), ""]
    if len(rows) > _COMMENT_ROWS:
        told += [f"And {format_count(len(rows) - _COMMENT_ROWS, 'more row')}.", ""]
    text = session_text(record, Screen(width=100))
    # Fences are replaced last, because removing characters from a line may create a fence.
    lines = ("".join(map(printable_char, line)).replace("```", "'''") for line in text.splitlines())
    # An answer by mail quotes code as plain text, in which `@name` is a mention again.
    head, body = ([line.replace("@", f"@{_APART}") for line in part] for part in (told, lines))
    title_and_table = _within(head, COMMENT_LIMIT_BYTES // 2)
    rest = _within(body, COMMENT_LIMIT_BYTES - len(title_and_table.encode()) - 128).rstrip("\n")
    return "\n".join((title_and_table, *_folded("all results", ["```text", rest, "```"])))


# --- tables


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table. The cells are already Markdown."""
    heading, *lines = (f"| {' | '.join(cells)} |" for cells in (headings, *rows))
    return [heading, "|" + "---|" * len(headings), *lines]


def _gate_rows(result: Result) -> Iterator[tuple[str, ...]]:
    name, verdict = _code(result.test.nodeid), result.verdict
    for item in verdict.comparisons:
        sides = _escaped(wording.sides_text(item))
        change = wording.change_and_interval(item) if item in story.compared(result) else ""
        yield name, item.metric, sides, _escaped(change), wording.tolerance_text(item), _marked(item.outcome)
    for check in verdict.broken:
        yield name, _code(wording.limit_text(check)), "", "", "", _marked(Standing.LIMIT)
    if not verdict.comparisons and not verdict.broken:
        yield name, "", "", "", "", _marked(result.standing)


def _calm(results: Sequence[Result], common: Sequence[str]) -> list[str]:
    headings = ("test", *(METRICS[name].title for name in RUN_METRICS), "errors", "change", "outcome")
    rows = (
        (
            _code(result.test.nodeid),
            *(_escaped(metric_text(name, result)) for name in RUN_METRICS),
            f"{result.measurement.errors:,}",
            ", ".join(
                f"{item.metric} {_escaped(wording.change_and_interval(item))}" for item in story.compared(result)
            ),
            wording.word_of(result.standing),
        )
        for result in results
    )
    said = [
        f"- {_code(result.test.nodeid)}: {_escaped('; '.join(own))}"
        for result in results
        if (own := [text for text in story.telling(result) if text not in common])
    ]
    title = f"{format_count(len(results), 'measurement')} without findings"
    return _folded(title, [*_table(headings, rows), "", *said])


def _ranked(group: RankedGroup) -> list[str]:
    rows = (
        (rank, _code(name), value, _escaped(share + interval), limit, wording.word_of(result.standing))
        for result, _, (rank, name, value, share, interval, limit) in ranked_rows(group)
    )
    headings = ("rank", "test", METRICS[group.metric].title, "of best", "limited by", "outcome")
    return _folded(f"ranked: <code>{escape(plain(group.title))}</code>", _table(headings, rows))


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    # The line of `<summary>` is HTML. Markdown starts again after an empty line.
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


# --- remarks


def _about(result: Result, common: Sequence[str]) -> list[str]:
    failures, rest = story.first_failures(result.measurement.failures)
    said = [
        f"- {failure.count:,} × {_escaped(failure.kind)}{f': {_code(example)}' if example else ''}"
        for failure, example in failures
    ]
    said += [f"- {rest}"] if rest else []
    said += [f"- {_escaped(text)}" for text in story.telling(result) if text not in common]
    text = "" if result.explanation is None else result.explanation.text
    blamed = _block(text) if text else []
    return [_code(result.test.nodeid), "", *said, "", *blamed] if said or blamed else []


def _failed(tests: Sequence[FailedTest]) -> Iterator[list[str]]:
    if not tests:
        return
    told = ((test, f"{wording.where_failed(test)}: {_escaped(wording.first_line(test))}") for test in tests)
    yield [*(f"- {_code(test.nodeid)} {text}" for test, text in told), ""]
    if longer := [test for test in tests if len(test.message.splitlines()) > 1]:
        said = (line for test in longer for line in (_code(test.nodeid), "", *_block(test.message)))
        yield _folded("messages of these tests", said)


# --- markup


def _escaped(text: str) -> str:
    """Returns the text on one line, with all markup escaped, even for a table's cell."""

    def shown(found: re.Match[str]) -> str:
        if (char := found[0]) == "$":
            return "<span>$</span>"  # as in GitHub's guide: text between two `$` is a formula
        return f"&#{ord(char)};" if char in r"\|<>&" else f"\\{char}"

    return _MARKUP.sub(shown, _LINK.sub(_APART, plain(text)))


def _code(text: str) -> str:
    # Both characters and cells are limited, because any number of accents fits in one cell.
    text = shorten(plain(text)[:400], 200)
    return f"`{text}`" if _NEEDS_NO_ESCAPE.fullmatch(text) else f"<code>{_escaped(text)}</code>"


def _marked(outcome: Outcome | Standing) -> str:
    calm = story.STYLES[outcome] in (Style.GOOD, Style.NONE)
    return wording.word_of(outcome) if calm else f"**{outcome.value}**"


def _block(text: str) -> list[str]:
    """Returns the lines of a code block that contains the text. No line of the text can end the block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    # The block is one item, because a report that is too long is cut between items.
    return ["\n".join((f"{fence}text", *(plain_line(line) for line in text.splitlines()), fence)), ""]


def _within(lines: Sequence[str], limit_bytes: int) -> str:
    whole = "\n".join(lines).strip("\n") + "\n"
    if len(whole.encode()) <= limit_bytes:
        return whole
    kept, left = list[str](), limit_bytes - 512  # for the note that it was cut
    for line in lines:
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept.append(line)
    is_open = kept.count("<details>") > kept.count("</details>")
    said = f"The report was cut here: it is longer than {format_bytes(limit_bytes)}."
    return "\n".join((*kept, *(["", "</details>"] if is_open else []), "", said)) + "\n"
