"""HTML that is always escaped: only this module turns text into markup."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from pytest_fileperf.measure.codec import json_value
from pytest_fileperf.report.text import printable_char

_VOID = frozenset(("input", "meta"))
"""Elements without an end tag."""


class Markup(str):
    """HTML that is ready to be written. Any other text is still to be escaped, and so is what methods make of this."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Markup:
    """Returns the element with these children and attributes; `class_` is `class`, `data_chart` is `data-chart`.

    An attribute with an empty value is left out.
    """
    given = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value)
    head = "".join(f' {key}="{_escaped(value)}"' for key, value in given)
    if tag in _VOID:
        return Markup(f"<{tag}{head}>")
    content = "".join(child if isinstance(child, Markup) else _escaped(child) for child in children)
    return Markup(f"<{tag}{head}>{content}</{tag}>")


def raw_element(tag: str, content: str, /, **attributes: str) -> Markup:
    """Returns a `script` or `style` element, whose content is not escaped.

    Raises ValueError for content that would end the element.
    """
    if f"</{tag}" in content.lower() or "<!--" in content:
        raise ValueError(f"this would end its {tag} element early")
    return element(tag, Markup(content), **attributes)


def data_block(value: object, /, **attributes: str) -> Markup:
    """Returns the value as JSON in a script element that browsers do not run; no text in it can end the element."""
    text = json.dumps(json_value(value), separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return raw_element("script", text, type="application/json", **attributes)


def table(
    headings: Sequence[str], rows: Sequence[Markup], *, class_: str = "", above: Sequence[Markup] = (), title: str = ""
) -> Markup:
    """Returns a table that scrolls sideways where it is too wide. A heading with a leading `>` is one of numbers.

    `above` are rows over the headings. With a `title`, which is for a wide table, keys can scroll it too.
    """
    cells = (
        element("th", heading.removeprefix(">"), class_="number" if heading.startswith(">") else "", scope="col")
        if heading.removeprefix(">")
        else element("td")
        for heading in headings
    )
    head = element("thead", *above, element("tr", *cells))
    reached = {"role": "group", "aria_label": title, "tabindex": "0"} if title else {}
    whole = element("table", head, element("tbody", *rows), class_=class_)
    return element("div", whole, class_="scroll", **reached)


def document(*, head: tuple[Markup, ...], body: tuple[Markup, ...]) -> str:
    """Returns the text of a whole HTML document in English, each piece on a line of its own."""
    pieces = ("<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>")
    return "\n".join((*pieces, ""))


def _escaped(text: str) -> str:
    lines = text.replace("\r\n", "\n")
    return html.escape("".join(char if char in "\n\t" else printable_char(char) for char in lines))
