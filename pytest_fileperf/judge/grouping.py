"""Groups measurements by the labels of `--fileperf-group-by`, which are pytest-benchmark's.

Every pytest run imports this module, so it loads nothing large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_fileperf.judge.parameters import param_id, param_texts

if TYPE_CHECKING:
    from pytest_fileperf.judge.result import Result, TestId

__all__ = ("DEFAULT_GROUP_BY", "grouped", "parse_group_by", "unknown_params")

DEFAULT_GROUP_BY = ("group",)
_LABELS = ("group", "name", "func", "fullname", "fullfunc", "param")
_PARAM = "param:"


def parse_group_by(text: str) -> tuple[str, ...]:
    """Returns the labels of `func,param:size`; raises ValueError that names the valid ones."""
    labels = tuple(label.strip() for label in text.split(","))
    for label in labels:
        if label not in _LABELS and (label == _PARAM or not label.startswith(_PARAM)):
            valid = f"{', '.join(_LABELS)} or {_PARAM}NAME, where NAME is a parameter's"
            raise ValueError(f"{label!r} is no way to group tests: use {valid}, or several of these joined by commas")
    return labels


def grouped(results: Iterable[Result], labels: Sequence[str]) -> dict[str, list[Result]]:
    """Returns the results by the title of their group, in order of appearance; "" holds those without one.

    With `name` and `fullname`, several measurements of one test make a group: they share the test's name.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(" ".join(filter(None, (_part(result.test, label) for label in labels))), []).append(result)
    return groups


def _part(test: TestId, label: str) -> str | None:
    """Returns a test's part of a group's title under a label; None where it has none."""
    in_brackets, full_name = param_id(test), test.nodeid.removesuffix(test.further)
    match label:
        case "group":
            return test.group
        case "name":
            return test.name
        case "func":
            return test.name.removesuffix(f"[{in_brackets}]")
        case "fullname":
            return full_name
        case "fullfunc":
            return full_name.removesuffix(f"[{in_brackets}]")
        case "param":
            return in_brackets
        case _:
            name = label.removeprefix(_PARAM)
            value = param_texts(test).get(name)
            return None if value is None else f"{name}={value}"


def unknown_params(results: Iterable[Result], labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in `param:NAME` that none of these tests has as a parameter."""
    known = {name for result in results for name in result.test.params}
    named = (label.removeprefix(_PARAM) for label in labels if label.startswith(_PARAM))
    return tuple(name for name in named if name not in known)
