"""Texts on a terminal whose encoding lacks some of our characters: what looks alike in place of them, or `?`."""

from __future__ import annotations

import codecs
import io

__all__ = ("show_what_it_can",)

_ALIKE = str.maketrans("\N{MINUS SIGN}\N{EN DASH}—━─│┃×±…→·•µ█▇▆▅▄▃▂▁≥≤", "-----||x~.>..u########><")
"""One for one, so that columns stay as wide: the sign of a change must not become a question mark."""
_NAME = "fileperf-alike"


def show_what_it_can(stream: object) -> None:
    """Has a stream write what looks alike, or `?`, for what its encoding lacks; it would raise an error.

    Does nothing to a stream that has its own way with such characters.
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        codecs.register_error(_NAME, _alike)
        stream.reconfigure(errors=_NAME)


def _alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_ALIKE)
    return "".join(char if char.isascii() else "?" for char in lacking), error.end
