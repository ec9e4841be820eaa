"""Groups measurements by the labels of `--fileperf-group-by`, which are pytest-benchmark's.

Every pytest run imports this module, so it loads nothing large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import Result, TestId

# --- The parts of a test's id: its parameters in words, and its number if a test measures several times

FURTHER = re.compile(r"#[0-9]+$")
"""Matches the end of an id if a test measures several times: `#2` for the second measurement."""


def param_id(name: str) -> str:
    """Returns the text in brackets after the name of a test function: `a-1` for `test_upload[a-1]`."""
    return name.partition("[")[2].removesuffix("]")


def param_texts(test: TestId) -> dict[str, str]:
    """Returns each parameter's part of the test's id, by parameter name: `a` and `1` for `test_upload[a-1]`.

    A part may itself contain `-`. If the id cannot be divided for sure, returns the values as text.
    """
    literal = [str(value) if isinstance(value, str | int | float | None) else None for value in test.params.values()]
    own = [str(value) for value in test.params.values()]
    id_ = param_id(test.name)
    found = _parts(id_, literal) or _parts(id_, [None] * len(literal)) or own
    return dict(zip(test.params, found, strict=True))


def told_params(params: Mapping[str, object], name: str) -> dict[str, object]:
    """Returns the parameters for reports, which must not show more than the test's id does.

    A text, number or flag that is in the id stays. Another value becomes its part of the id. If this part is uncertain,
    it becomes the name of its type.
    """
    id_ = param_id(name)
    known = [str(value) if _is_in(value, id_) else None for value in params.values()]
    parts = _parts(id_, known) or [type(value).__name__ for value in params.values()]
    return {
        key: value if _is_in(value, id_) else part for (key, value), part in zip(params.items(), parts, strict=True)
    }


def _is_in(value: object, id_: str) -> bool:
    """Returns whether the value is a part of the id, or several neighbouring parts."""
    return isinstance(value, str | int | float | None) and f"-{value}-" in f"-{id_}-"


def _parts(whole: str, known: list[str | None]) -> list[str] | None:
    """Divides an id at `-` into parts. `known` has the text of each known part, and None for an unknown part.

    Returns None unless the id can be divided in exactly one way.
    """
    greedy, lazy = (
        re.fullmatch("-".join(rest if text is None else re.escape(text) for text in known), whole)
        for rest in ("(.+)", "(.+?)")
    )
    if greedy is None or lazy is None or greedy.groups() != lazy.groups():
        return None
    others = iter(greedy.groups())
    return [next(others) if text is None else text for text in known]


# --- grouping

DEFAULT_GROUP_BY: tuple[str, ...] = ("group",)
_LABELS = ("group", "name", "func", "fullname", "fullfunc", "param")
_PARAM = "param:"


def parse_group_by(text: str) -> tuple[str, ...]:
    """Returns the labels in a text such as `func,param:size`. Raises ValueError that names the valid labels."""
    labels = tuple(label.strip() for label in text.split(","))
    for label in labels:
        if label not in _LABELS and (label == _PARAM or not label.startswith(_PARAM)):
            valid = f"{', '.join(_LABELS)} or {_PARAM}NAME with the name of a parameter"
            raise ValueError(f"{label!r} cannot group tests. Use {valid}, or several of these joined by commas")
    return labels


def grouped(results: Iterable[Result], labels: Sequence[str]) -> dict[str, list[Result]]:
    """Returns the results by the title of their group, in order of appearance. "" has the results without a group."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(" ".join(filter(None, (_part(result.test, label) for label in labels))), []).append(result)
    return groups


def _part(test: TestId, label: str) -> str | None:
    """Returns the text that a label adds to the title of the test's group. None if it adds nothing."""
    in_brackets, full_name = param_id(test.name), test.item
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
    """Returns the names from labels `param:NAME` that aren't parameters of any of these tests."""
    known = {name for result in results for name in result.test.params}
    named = (label.removeprefix(_PARAM) for label in labels if label.startswith(_PARAM))
    return tuple(name for name in named if name not in known)
