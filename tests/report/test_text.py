"""Texts in the cells of a terminal, and lines that show progress."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.progress import LiveProgress, PlainProgress, ProgressLine, SilentProgress, progress_text
from pytest_fileperf.report.text import (
    Screen,
    Style,
    amount,
    cells,
    pad,
    paint,
    plain,
    quantity,
    shorten,
    show_what_it_can,
)

AWKWARD = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("aé漢字📷👩🏽\u200d🔬❤️\ufe0f\u0301\x1b\n\t…ﾊ한🇩🇪")),
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


def test_colour_is_around_the_text_only_and_only_when_asked_for() -> None:
    assert paint("PASS", Style.GOOD, colour=True) == "\x1b[32mPASS\x1b[0m"
    assert paint("PASS", Style.GOOD, colour=False) == "PASS"
    assert paint("PASS", Style.NONE, colour=True) == "PASS"


@pytest.mark.parametrize(
    "value, unit, in_column, in_full",
    [
        (2050.4, Unit.PER_SECOND, "2,050", "2,050/s"),
        (0.0310, Unit.SECONDS, "31.0 ms", "31.0 ms"),
        (68 * 2**20, Unit.BYTES, "68.0 MiB", "68.0 MiB"),
        (574 * 2**20, Unit.BYTES_PER_SECOND, "574 MiB", "574 MiB/s"),
        (0.00113, Unit.SHARE, "0.113 %", "0.113 %"),
        (1.0, Unit.SHARE, "100 %", "100 %"),
    ],
)
def test_each_unit_has_one_spelling(value: float, unit: Unit, in_column: str, in_full: str) -> None:
    assert (amount(value, unit), quantity(value, unit)) == (in_column, in_full)


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
        "test_upload  waiting for the last  ━━━━━━━━━━━━  7.0/6.5 s  2,050/s  6,412 requests  3 failed",
    ),
    (replace(LINE, run=HURT), 50, "test_upload  measuring 2/3  3.2/6.5 s  3 failed"),
)


@pytest.mark.parametrize("line, width, text", LINES)
def test_one_line_that_fits(line: ProgressLine, width: int, text: str) -> None:
    assert progress_text(line, width) == text


@given(title=st.text(max_size=80), width=st.integers(1, 130), failures=st.integers(0, 10**9))
def test_no_title_makes_the_line_too_long_or_two(title: str, width: int, failures: int) -> None:
    shown = progress_text(replace(LINE, title=title, run=replace(RUN, failed=failures)), width)
    assert cells(shown) <= width
    assert len(shown.splitlines()) <= 1


def test_live_progress_rewrites_one_line_ten_times_a_second_and_clears_it() -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveProgress(stream, columns=lambda: 48, clock=clock)
    for tick in range(100):
        clock.now_s = tick / 100
        live.update(replace(LINE, elapsed_s=tick / 100))
    writes = stream.getvalue().split("\r")[1:]
    assert len(writes) == 10
    assert writes[0] == "test_upload  measuring 2/3  0.0/6.5 s  2,050/s"
    assert "\n" not in stream.getvalue()
    live.done()
    assert stream.getvalue().endswith("\r" + " " * len(writes[-1]) + "\r")


def test_live_progress_covers_a_longer_line_before() -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveProgress(stream, columns=lambda: 80, clock=clock)
    live.update(LINE)
    first = len(stream.getvalue())
    live.update(replace(LINE, run=replace(RUN, phase="warm-up"), requests=0, total_s=None, elapsed_s=0.0))
    assert stream.getvalue()[first:] == "\r" + "test_upload  warming up 2/3".ljust(first - 1)


def test_live_progress_leaves_the_last_column_free_and_writes_nothing_when_nothing_was_shown() -> None:
    stream = io.StringIO()
    live = LiveProgress(stream, columns=lambda: 30, clock=Clock())
    live.done()
    assert stream.getvalue() == ""
    live.update(replace(LINE, title="test_" + "x" * 80))
    assert len(stream.getvalue()) == 1 + 29


def test_plain_progress_is_one_line_for_each_test_that_takes_long() -> None:
    stream, clock = io.StringIO(), Clock()
    log = PlainProgress(stream, clock=clock)
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
    log = PlainProgress(stream, clock=clock)
    for now_s in (0.0, 31.0):
        clock.now_s = now_s
        log.update(replace(LINE, title=title, run=HURT))
    (text,) = stream.getvalue().splitlines()
    assert text.startswith(f"fileperf: {title}  measuring 2/3  ")
    assert text.endswith("  2,050/s  p99 31.0 ms  6,412 requests  3 failed")


def test_a_stream_that_cannot_show_a_character_gets_a_question_mark() -> None:
    stream, clock = io.TextIOWrapper(io.BytesIO(), encoding="ascii"), Clock()
    log = PlainProgress(stream, clock=clock)
    for now_s in (0.0, 31.0):
        clock.now_s = now_s
        log.update(replace(LINE, title="写真", run=replace(RUN, p99_ns=30_000)))
    stream.seek(0)
    assert stream.read() == "fileperf: ??  measuring 2/3  3.2/6.5 s  2,050/s  p99 30.0 ?s  6,412 requests\n"


def test_silent_progress_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    silent = SilentProgress()
    silent.update(LINE)
    silent.done()
    assert capfd.readouterr() == ("", "")
