"""Markup from text, which is always escaped. No other module writes tags."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files

from pytest_fileperf.report.text import printable_char

_VOID = frozenset(("input", "meta"))
"""Elements without an end tag."""


class Markup(str):
    """HTML that `element` does not escape. `str` methods such as `strip` return plain text, which `element` escapes."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Markup:
    """Returns an element; `class_` stands for `class`, `data_chart` for `data-chart`.

    Escapes children other than Markup. Leaves out attributes with an empty value.
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


def table(
    headings: Sequence[str], rows: Sequence[Markup], *, class_: str = "", above: Sequence[Markup] = (), title: str = ""
) -> Markup:
    """Returns a table that scrolls sideways if it is too wide. A heading that begins with `>` is for numbers.

    `above` are further rows over the headings. Give a wide table a `title`, so that the keyboard can scroll it.
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


def document(title: str, *body: Markup, script: str = "") -> str:
    """Returns an HTML document, in English.

    `script` is a file in this directory. A policy forbids browsers to run or load anything else, such as a script in a
    test's name.
    """
    run = _part(script) if script else ""
    digest = base64.b64encode(hashlib.sha256(run.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'" + f"; script-src 'sha256-{digest}'" * bool(run)
    pieces = (
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        raw_element("style", _part("style.css")),
        "</head>",
        "<body>",
        *body,
        *([raw_element("script", run)] if run else []),
        "</body>",
        "</html>",
        "",
    )
    return "\n".join(pieces)


def _part(name: str) -> str:
    return files("pytest_fileperf.report.page").joinpath(name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    if text.isprintable():
        return html.escape(text)
    lines = text.replace("\r\n", "\n")
    return html.escape("".join(char if char in "\n\t" else printable_char(char) for char in lines))
