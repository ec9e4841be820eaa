"""Text for terminals: shortening, wrapping, colour, and values with their units.

Widths are in cells: most characters fill one cell, and some fill two. Control characters never reach the terminal.
"""

from __future__ import annotations

import codecs
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from wcwidth import iter_graphemes, wcswidth

from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.units import format_bytes, format_duration, format_rate, format_share

INDENT = 2
"""Lines below a row are indented by this many cells."""
_JOINER = "\u200d"
_ELLIPSIS = "…"
_BETWEEN_WORDS = re.compile(r" (?!(?:%|[nµm]?s|[KMG]i?B|B)(?![^\W_]))")


class Style(StrEnum):
    """How text looks; the value is the ANSI code."""

    NONE = ""
    BOLD = "1"
    DIM = "2"
    GOOD = "32"
    WARNING = "33"
    NEWS = "36"
    BAD = "1;31"


def paint(text: str, style: Style, *, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour and style and text else text


def plain(text: str) -> str:
    """Returns the text on one line: white space becomes single spaces, control characters become `�`."""
    return "".join(map(printable_char, " ".join(unicodedata.normalize("NFC", text).split())))


def plain_line(line: str) -> str:
    """Returns the same as `plain`, but spaces at the beginning stay."""
    return " " * (len(line) - len(line.lstrip(" "))) + plain(line)


def printable_char(char: str) -> str:
    """Returns the character, `�` for a control character, and an empty text for an invisible character."""
    category = unicodedata.category(char)
    if category in ("Cc", "Cs"):
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category == "Cf" and char != _JOINER else char


def cells(text: str) -> int:
    return len(text) if text.isascii() else sum(width for _, width in _clusters(text))


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yields the characters that a terminal draws, with their width in cells."""
    return ((cluster, max(0, wcswidth(cluster))) for cluster in iter_graphemes(text))


def shorten(text: str, width: int, *, tail: float = 0.5) -> str:
    """Returns the text in at most `width` cells, with `…` at the cut. `tail` is the share kept for the text's end."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    clusters = list(_clusters(text))
    tail_cells = int((width - 1) * tail)
    head = _take(clusters, width - 1 - tail_cells)
    end = _take(reversed(clusters), tail_cells)
    return "".join(chain(head, [_ELLIPSIS], reversed(end)))


def _take(clusters: Iterable[tuple[str, int]], room: int) -> list[str]:
    taken = []
    for cluster, width in clusters:
        room -= width
        if room < 0:
            break
        taken.append(cluster)
    return taken


def pad(text: str, width: int, *, right: bool = False, style: Style = Style.NONE, colour: bool = False) -> str:
    """Returns the text in exactly `width` cells: shortened, or followed by spaces. With `right`, spaces come first."""
    text = shorten(text, width)
    space = " " * (width - cells(text))
    painted = paint(text, style, colour=colour)
    return space + painted if right else painted + space


def _broken(pieces: Iterable[tuple[str, Style]], room: int) -> Iterator[tuple[str, Style]]:
    """Yields pieces that fit into `room` cells. Breaks long pieces between words, and long words at any character."""
    for text, style in pieces:
        line = ""
        for word in _BETWEEN_WORDS.split(text) if cells(text) > room else [text]:
            if line and cells(line) + 1 + cells(word) > room:
                yield line, style
                line = ""
            *whole, rest = _parts_of(word, room)
            yield from ((part, style) for part in whole)
            line = f"{line} {rest}" if line else rest
        if line:
            yield line, style


def _parts_of(word: str, room: int) -> list[str]:
    parts, used = [""], 0
    for cluster, width in _clusters(word):
        if parts[-1] and used + width > room:
            parts.append("")
            used = 0
        parts[-1] += cluster
        used += width
    return parts


def words(text: str, style: Style = Style.NONE) -> list[tuple[str, Style]]:
    """Returns a sentence's words as pieces for `Screen.flow`; a number and its unit stay together."""
    return [(word, style) for word in _BETWEEN_WORDS.split(text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A terminal's width in cells, and whether it shows colours."""

    width: int = 80
    colour: bool = False

    def flow(
        self, pieces: Iterable[tuple[str, Style]], *, indent: int = 0, hanging: int = 2, gap: int = 2
    ) -> list[str]:
        """Joins pieces with `gap` spaces into lines that fit the width.

        Lines after the first are indented by `hanging` more cells. A piece stays whole if it fits into a line.
        """
        lines: list[str] = []
        margin, used = indent + hanging, 0
        for text, style in _broken(pieces, self.width - margin):
            painted, size = paint(text, style, colour=self.colour), cells(text)
            if lines and used + gap + size <= self.width:
                lines[-1] += " " * gap + painted
                used += gap + size
            else:
                before = margin if lines else indent
                lines.append(" " * before + painted)
                used = before + size
        return lines

    def prose(
        self, text: str, style: Style = Style.NONE, *, lead: Sequence[tuple[str, Style]] = (), indent: int = 0
    ) -> list[str]:
        return self.flow([*lead, *words(text, style)], indent=indent, gap=1)

    def remarks(self, texts: Iterable[str], *, indent: int = 0) -> list[str]:
        """Returns sentences in dimmed lines, because they matter less than the lines above."""
        return [line for text in texts for line in self.prose(text, Style.DIM, indent=indent)]


def time_text(seconds: float) -> str:
    return format_duration(seconds * 1e9)


def amount(value: float, unit: Unit) -> str:
    """Returns the value in a suitable unit, such as `31.0 ms`. A rate lacks `/s`, which the column's heading has."""
    match unit:
        case Unit.PER_SECOND:
            return format_rate(value)
        case Unit.SECONDS:
            return time_text(value)
        case Unit.BYTES | Unit.BYTES_PER_SECOND:
            return format_bytes(value)
        case Unit.SHARE:
            return format_share(value)
        case Unit.COUNT:
            return f"{value:,.2f}".rstrip("0").rstrip(".")


def quantity(value: float, unit: Unit) -> str:
    """Returns the value with its full unit: `2,050/s`, `31.0 ms`, `574 MiB/s`, `0.5 %`."""
    return amount(value, unit) + ("/s" if unit in (Unit.PER_SECOND, Unit.BYTES_PER_SECOND) else "")


def rate_text(per_second: float) -> str:
    return quantity(per_second, Unit.PER_SECOND)


def queries_text(value: float) -> str:
    count = amount(value, Unit.COUNT)
    return f"{count} {'query' if count == '1' else 'queries'} a request"


def exact(value: float, unit: Unit) -> str:
    """Returns the value with nine digits, because rounded values may look equal."""
    suffix = {Unit.PER_SECOND: "/s", Unit.SHARE: "", Unit.COUNT: ""}.get(unit, f" {unit}")
    return f"{value:.9g}{suffix}"


# --- If a terminal's encoding lacks some of our characters, similar characters or `?` take their place

_ALIKE = str.maketrans("\N{MINUS SIGN}\N{EN DASH}—━─│┃×±…→·•µ█▇▆▅▄▃▂▁≥≤", "-----||x~.>..u########><")
"""For each of our characters, one similar ASCII character, so that columns keep their width."""
_NAME = "fileperf-alike"


def show_what_it_can(stream: object) -> None:
    """Makes the stream write similar characters, or `?`, if its encoding lacks some.

    Streams with an error handler of their own stay unchanged.
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        codecs.register_error(_NAME, _alike)
        stream.reconfigure(errors=_NAME)


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_ALIKE)
    return "".join(char if char.isascii() else "?" for char in lacking), error.end
