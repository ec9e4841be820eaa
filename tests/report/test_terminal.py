"""Texts, tables and reports on a terminal of any width, and progress; what reports show is in `test_goldens`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import known
from report.samples import CPU_REGRESSED, ERRORS, NEW, PASSED, recording, result, stored
from texts import CHARACTERS, texts

from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.judge.baseline import Why
from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.progress import LiveProgress, PlainProgress, ProgressLine, SilentProgress, progress_text
from pytest_fileperf.report.table import grid_lines, grid_of, member_names, share, sides_of
from pytest_fileperf.report.terminal import report_lines, stale_lines, undecided_lines
from pytest_fileperf.report.text import (
    Screen,
    Style,
    cells,
    pad,
    plain,
    shorten,
    show_what_it_can,
)

# --- reports


@pytest.mark.parametrize(
    "session,narrowest",
    [("open_loops", 40), ("variants", 40), ("worlds", 40), ("every_kind", 75), ("limits", 75)],  # profiles never wrap
)
def test_no_line_is_too_wide_and_colour_changes_nothing_else(session: str, narrowest: int) -> None:
    for width, verbosity in ((narrowest, -1), (narrowest, 2), (81, 0), (100, 1), (200, 0)):
        lines, _ = report_lines(stored(session), Screen(width=width), verbosity=verbosity)
        assert max(map(cells, lines), default=0) <= width
        coloured, _ = report_lines(stored(session), Screen(width=width, colour=True), verbosity=verbosity)
        assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == lines


@settings(max_examples=15)
@given(
    name=texts(min_size=1, max_size=200),
    label=st.none() | texts(max_size=80),
    example=texts(max_size=400),
    reason=texts(max_size=200),
    width=st.integers(40, 160),
    verbosity=st.integers(-1, 2),
)
def test_no_text_breaks_the_columns(
    name: str, label: str | None, example: str, reason: str, width: int, verbosity: int
) -> None:
    failed = recording(requests=4, boots=1, rounds=1, failures=(Failure(kind="size", count=10**9, example=example),))
    absent = Reason(kind=ReasonKind.ABSENT, text=reason)
    verdict = Verdict(
        limits=(ERRORS,), comparisons=(CPU_REGRESSED, PASSED, *(replace(new, reason=absent) for new in NEW))
    )
    odd = result(name, label=label, recorded=failed, verdict=verdict, group=label, work=name)
    record = session_record([odd, *stored("first_run").results])
    lines, _ = report_lines(record, Screen(width=width), verbosity=verbosity)
    assert max(map(cells, lines)) <= width
    rows = [line for line in lines if line.endswith("  REGRESSED") and not line.startswith(" ")]
    if verbosity < 1:
        assert rows
        return
    heading = next(line for line in lines if line.startswith("test ") and line.endswith("outcome"))
    assert cells(heading.removesuffix("outcome")) in {cells(row.removesuffix("REGRESSED")) for row in rows}


@pytest.mark.parametrize(
    "reason, said",
    [
        (
            Reason(
                kind=ReasonKind.INCOMPARABLE, text="./a\x1b[31m (b)\nhas another answer", differences=("status 404",)
            ),
            "rps: ./a\N{REPLACEMENT CHARACTER}[31m (b) has another answer",
        ),
        (
            Reason(kind=ReasonKind.NOT_MEASURED, metric="rps", side="now", text="some ended"),
            "rps: requests/s was not measured in this run",
        ),
    ],
    ids=["control characters", "details"],
)
def test_what_is_undecided_is_told_in_short_and_printable(reason: Reason, said: str) -> None:
    undecided = replace(PASSED, outcome=Outcome.INCONCLUSIVE, change=None, reason=reason)
    lines = undecided_lines("test_a", [result(verdict=Verdict(comparisons=(undecided,)))], Screen(width=200))
    assert lines == [f"INCONCLUSIVE test_a - {said}"]


# --- the lines about baselines whose tests are gone

ONE = {"tests/test_a.py::test_old[\x1b]": Why.NO_TEST}
MANY = {f"tests/test_b.py::test_{at:02}": Why.NO_MODULE for at in range(12)}


def test_each_is_named_with_why_and_what_to_do() -> None:
    assert stale_lines(ONE, Screen(), entries=1, removed=False) == [
        "1 stale baseline. Remove it with --fileperf-prune",
        "  tests/test_a.py::test_old[\N{REPLACEMENT CHARACTER}]: no such test",
    ]
    assert stale_lines(ONE, Screen(), entries=3, removed=True)[0] == "removed 3 stale baselines"


def test_many_are_cut_short_unless_asked_for() -> None:
    lines = stale_lines(MANY, Screen(), entries=24, removed=False)
    assert lines[0] == "24 stale baselines. Remove them with --fileperf-prune"
    assert lines[10:] == ["  tests/test_b.py::test_09: no such file", "  2 more (-v shows all)"]
    assert len(stale_lines(MANY, Screen(), entries=24, removed=False, verbosity=1)) == 13
    assert len(stale_lines(MANY, Screen(), entries=24, removed=False, verbosity=-1)) == 1


# --- which results are ranked, and which parameters make a grid


@pytest.mark.parametrize(
    "members",
    [
        [result(group="of one")],
        [result(group="one without an answer"), result(recorded=recording(requests=0), group="one without an answer")],
        [result(group="smoke", smoke=True), result(group="smoke", smoke=True)],
        [result(), result()],
    ],
)
def test_what_cannot_be_ranked_stays_alone(members: list[Result]) -> None:
    assert session_record(members) == SessionRecord(results=tuple(members))


def cross(names: str, *values: Iterable[object]) -> list[Result]:
    """Returns a result for each combination given, as `parametrize` makes them."""
    keys = names.split(",")
    return [
        result(f"test_get[{'-'.join(map(str, combination))}]", params=dict(zip(keys, combination, strict=True)))
        for combination in values
    ]


FULL = [(size, server) for size in ("1KiB", "1MiB", "9MiB") for server in ("uvicorn-1", "uvicorn-2")]


def test_two_parameters_make_a_grid_with_the_longer_one_as_rows() -> None:
    """One that is the same everywhere, or follows from another, does not matter, nor does one hole."""
    for results in (
        cross("size,server", *FULL),
        cross("server,size", *((server, size) for size, server in FULL)),
        cross("kind,size,how,server", *(("get", size, f"with {size}", server) for size, server in FULL)),
    ):
        grid = known(grid_of(results))
        assert grid == (("size", "server"), {pair: at for at, pair in enumerate(FULL)})
        assert sides_of(grid) == (("1KiB", "1MiB", "9MiB"), ("uvicorn-1", "uvicorn-2"))
    grid = known(grid_of(cross("size,server", *FULL[:-1])))
    assert ("9MiB", "uvicorn-2") not in grid[1]


@pytest.mark.parametrize(
    "results",
    [
        cross("size", *(("1KiB",), ("1MiB",))),
        cross("size,server", *FULL[:2]),
        cross("size,server", FULL[0], FULL[3]),
        cross("a,b,c", *((a, b, c) for a in range(2) for b in range(2) for c in range(2))),
        [*cross("size,server", *FULL), result("test_other")],
        [result("test_one"), result("test_two")],
        [*cross("size,server", *FULL), *(replace(each) for each in cross("size,server", *FULL))],
    ],
    ids=["one parameter", "one row", "half empty", "three parameters", "one without", "none", "two in each cell"],
)
def test_there_is_no_grid_without_two_parameters_that_tell_all_apart(results: list[Result]) -> None:
    assert grid_of(results) is None


# --- rules for any group


@pytest.mark.parametrize(
    "width,heading",
    [
        (80, ["requests/s by stack and loop", "stack      uvloop  asyncio  3.13 free-threaded  3.14 free-threaded"]),
        (60, ["requests/s by loop and stack", "loop                  bare  protocol"]),
        (20, []),
    ],
)
def test_a_grid_is_turned_or_left_out_where_it_is_too_wide(width: int, heading: list[str]) -> None:
    group = stored("variants").groups[1]
    grid = known(grid_of(group.results))
    columns = ("uvloop", "asyncio", "3.13 free-threaded", "3.14 free-threaded")
    shown = [(row, column) for row in ("bare", "protocol") for column in columns]
    lines = grid_lines((grid[0], {each: grid[1].get(each, 0) for each in shown}), group, Screen(width=width))
    assert lines[:2] == heading


def test_members_are_called_by_their_parameters_where_they_differ_in_nothing_else() -> None:
    uploads, stacks, gated = (group.results for group in stored("variants").groups)
    assert member_names(stacks)[:3] == ("application-uvloop", "application-asyncio", "bare-uvloop")
    assert member_names(uploads)[:2] == ("binary stream, async write", "form, whole, async write")
    assert member_names(gated) == ("test_json", "test_form", "test_down")
    assert member_names([*stacks, *gated])[0] == "test_get[application-uvloop]"
    assert member_names([result("test_get[]"), result("test_get[a]")]) == ("test_get[]", "test_get[a]")


def test_shares_have_two_digits_or_more() -> None:
    texts = {1.0: "100", 0.834: "83", 0.0999: "10", 0.0994: "9.9", 0.0012: "0.12", 12.5: "1,250"}
    assert {ratio: share(ratio) for ratio in texts} == texts


# --- texts in cells

AWKWARD = st.text(
    alphabet=st.one_of(CHARACTERS, st.sampled_from("aé漢字📷👩🏽\u200d🔬❤️\ufe0f\u0301\x1b\n\t…ﾊ한🇩🇪")),
    max_size=60,
)


@pytest.mark.parametrize(
    "text, width",
    [
        ("", 0),
        ("upload", 6),
        ("naïve", 5),
        ("nai\u0308ve", 5),
        ("写真", 4),
        ("ﾊﾝ", 2),
        ("📷", 2),
        ("❤\ufe0f", 2),
        ("👩🏽", 2),
        ("👩\u200d🔬", 2),
        ("🇩🇪", 2),
        (" \ufe0f", 1),  # a space does not become an emoji
        ("\u200d ", 1),  # a joiner does not swallow what is no emoji
        ("a\u200db", 2),
        ("2,190/s → 2,050/s −6.4 %", 24),
    ],
)
def test_width_in_terminal_cells(text: str, width: int) -> None:
    assert cells(text) == width


@pytest.mark.parametrize(
    "text, width, short",
    [
        ("test_upload", 11, "test_upload"),
        ("test_upload", 10, "test_…load"),
        ("test_upload", 5, "te…ad"),
        ("test_upload", 1, "…"),
        ("test_upload", 0, ""),
        ("写真のアップロード", 9, "写真…ード"),
        ("写真のアップロード", 8, "写真…ド"),
        ("👩\u200d🔬👩\u200d🔬👩\u200d🔬", 5, "👩\u200d🔬…👩\u200d🔬"),
    ],
)
def test_shortened_in_the_middle_between_characters(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


@given(text=AWKWARD, width=st.integers(0, 40), right=st.booleans())
def test_padded_text_takes_exactly_its_cells(text: str, width: int, right: bool) -> None:
    assert cells(pad(plain(text), width, right=right)) == width


@given(text=AWKWARD)
def test_plain_text_is_one_printable_line(text: str) -> None:
    line = plain(text)
    assert line.splitlines() in ([], [line])
    assert not {char for char in line if ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000}
    line.encode()


@given(pieces=st.lists(AWKWARD, max_size=8), width=st.integers(12, 60), gap=st.integers(1, 2))
def test_flowing_text_keeps_every_character_and_the_width(pieces: list[str], width: int, gap: int) -> None:
    clean = [plain(piece) for piece in pieces]
    lines = Screen(width=width).flow([(piece, Style.NONE) for piece in clean], indent=2, gap=gap)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(clean).replace(" ", "")


def test_a_piece_longer_than_a_line_breaks_between_words_and_keeps_numbers_and_units_together() -> None:
    pieces = [("boots stabilised: hash seed, addresses", Style.NONE)]
    assert Screen(width=24).flow(pieces) == ["boots stabilised: hash", "  seed, addresses"]
    assert Screen(width=15).flow([("server CPU 6 % of a core", Style.NONE)]) == ["server CPU", "  6 % of a core"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_looks_alike_or_is_a_question_mark(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    show_what_it_can(stream)
    stream.write("rps \N{MINUS SIGN}17.3 % ━━ 漢\udc80")
    stream.flush()
    assert raw.getvalue().decode(encoding) == "rps -17.3 % -- ??"


# --- progress


RUN = RunProgress(phase="round", elapsed_ns=0, requests=412, rps=2050.0, p99_ns=31_000_000, failed=0)
HURT = replace(RUN, failed=3)
LINE = ProgressLine(title="test_upload", run=RUN, boot=2, boots=3, elapsed_s=3.24, total_s=6.5, requests=6412)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


LINES = (
    (LINE, 100, "test_upload  measuring 2/3  ━━━━━━╌╌╌╌╌╌  3.2/6.5 s  2,050/s  p99 31.0 ms  6,412 requests"),
    (LINE, 80, "test_upload  measuring 2/3  3.2/6.5 s  2,050/s  p99 31.0 ms  6,412 requests"),
    (LINE, 60, "test_upload  measuring 2/3  3.2/6.5 s  2,050/s  p99 31.0 ms"),
    (LINE, 50, "test_upload  measuring 2/3  3.2/6.5 s  2,050/s"),
    (
        replace(LINE, run=replace(RUN, phase="warm-up"), boot=1, elapsed_s=0.0, total_s=None, requests=0),
        80,
        "test_upload  warming up 1/3",
    ),
    (
        replace(LINE, run=replace(HURT, phase="drain", p99_ns=None), boots=1, boot=1, elapsed_s=7.0),
        100,
        "test_upload  waiting for last answers  ━━━━━━━━━━━━  7.0/6.5 s  2,050/s  6,412 requests  3 failed",
    ),
    (replace(LINE, run=HURT), 50, "test_upload  measuring 2/3  3.2/6.5 s  3 failed"),
)


@pytest.mark.parametrize("line, width, text", LINES)
def test_one_line_that_fits(line: ProgressLine, width: int, text: str) -> None:
    assert progress_text(line, width) == text


@given(title=texts(max_size=80), width=st.integers(1, 130), failures=st.integers(0, 10**9))
def test_no_title_makes_the_line_too_long_or_two(title: str, width: int, failures: int) -> None:
    shown = progress_text(replace(LINE, title=title, run=replace(RUN, failed=failures)), width)
    assert cells(shown) <= width
    assert len(shown.splitlines()) <= 1


def test_live_progress_rewrites_one_line_ten_times_a_second_and_clears_it() -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveProgress(stream.write, columns=lambda: 48, clock=clock)
    for tick in range(100):
        clock.now_s = tick / 100
        live.update(replace(LINE, elapsed_s=tick / 100))
    writes = stream.getvalue().split("\r")[1:]
    assert len(writes) == 10
    assert writes[0] == "test_upload  measuring 2/3  0.0/6.5 s  2,050/s"
    assert "\n" not in stream.getvalue()
    live.done()
    assert stream.getvalue().endswith("\r" + " " * len(writes[-1]) + "\r")


def test_live_progress_leaves_the_last_column_free_and_writes_nothing_when_nothing_was_shown() -> None:
    stream = io.StringIO()
    live = LiveProgress(stream.write, columns=lambda: 30, clock=Clock())
    live.done()
    assert stream.getvalue() == ""
    live.update(replace(LINE, title="test_" + "x" * 80))
    assert len(stream.getvalue()) == 1 + 29


def test_plain_progress_is_one_line_for_each_test_that_takes_long() -> None:
    stream, clock = io.StringIO(), Clock()
    log = PlainProgress(stream.write, clock=clock)
    for title, seconds in (("test_short", 29), ("test_upload", 90), ("test_more", 31)):
        for tick in range(4 * seconds):
            clock.now_s += 0.25
            log.update(replace(LINE, title=title, elapsed_s=tick / 4, total_s=90.0))
        log.done()
    assert stream.getvalue().splitlines() == [
        "fileperf: test_upload  measuring 2/3  30.0/90.0 s  2,050/s  p99 31.0 ms  6,412 requests",
        "fileperf: test_more  measuring 2/3  30.0/90.0 s  2,050/s  p99 31.0 ms  6,412 requests",
    ]


def test_plain_progress_cuts_nothing() -> None:
    """A log has no width, and who reads it cannot make it wider."""
    title = "test_upload[form-of-many-parts], again: p99 is not known well, as its boots differ by more than 1.5 %"
    stream, clock = io.StringIO(), Clock()
    log = PlainProgress(stream.write, clock=clock)
    for now_s in (0.0, 31.0):
        clock.now_s = now_s
        log.update(replace(LINE, title=title, run=HURT))
    (text,) = stream.getvalue().splitlines()
    assert text.startswith(f"fileperf: {title}  measuring 2/3  ")
    assert text.endswith("  2,050/s  p99 31.0 ms  6,412 requests  3 failed")


def test_silent_progress_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    silent = SilentProgress()
    silent.update(LINE)
    silent.done()
    assert capfd.readouterr() == ("", "")
