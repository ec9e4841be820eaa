"""How what was measured differs from what a baseline is of, in words: of hidden values that they changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_fileperf.judge.environment import flat, shown
from pytest_fileperf.judge.sealed import is_digest

__all__ = ("work_differences",)

_PLACE = re.compile(
    r"work\.(?:(?:mix|requests)\.(?P<part>.+?)\.)?"
    r"(?:arguments\.(?P<argument>[a-z]+)|(?P<query>query))(?:\.(?P<name>.*))?"
)
_WORDS: Mapping[str, str] = {
    "content": "content",
    "data": "form field",
    "extensions": "extension",
    "files": "file",
    "headers": "header",
    "json": "JSON field",
    "params": "parameter",
    "query": "parameter",
}


def work_differences(was: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    """Returns what differs between two identities: `load.rounds was 4, is 8`, `header 'X-Token' changed`.

    A header, a parameter or another part of a request that only one of them has is `new` or `gone`.
    """
    before, after = dict(flat(was)), dict(flat(now))
    return tuple(
        _difference(key, before, after)
        for key in sorted(before.keys() | after.keys())
        if key not in before or key not in after or before[key] != after[key]
    )


def _difference(key: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    if not any(is_digest(values.get(key)) for values in (before, after)):
        return f"{key} was {shown(before, key)}, is {shown(after, key)}"
    what = "gone" if key not in after else "new" if key not in before else ""
    return f"{_name_of(key)} {f'is {what}' if what else 'changed'}"


def _name_of(key: str) -> str:
    """Returns `header 'X-Token'` for `work.arguments.headers.X-Token`; others as they are."""
    place = _PLACE.fullmatch(key)
    if place is None or (kind := place["argument"] or place["query"]) not in _WORDS:
        return "the server's command" if key == "server.command" else key
    part = place["part"] or ""
    of_part = f" of {f'request {part}' if part.isdecimal() else part}" if part else ""
    if place["name"]:
        return f"{_WORDS[kind]} {place['name']!r}{of_part}"
    return f"{'content' if kind == 'content' else f'{_WORDS[kind]}s'}{of_part}"  # a text, or many values
