from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.measure.metrics import Unit
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
