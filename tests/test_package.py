"""What `pytest_fileperf` itself offers, and that it is fetched when used."""

from __future__ import annotations

import ast
from importlib.metadata import version
from pathlib import Path
from types import FunctionType

import pytest

import pytest_fileperf
from pytest_fileperf import errors


def names_for_type_checkers() -> list[str]:
    tree = ast.parse(Path(pytest_fileperf.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]


NAMES = [name for name in pytest_fileperf.__all__ if name != "__version__"]


def test_every_public_name_is_there() -> None:
    found = {name: getattr(pytest_fileperf, name) for name in NAMES}
    # `part` is an object, which has no name of its own.
    assert [name for name, value in found.items() if getattr(value, "__name__", name) != name] == []
    assert set(NAMES) <= set(dir(pytest_fileperf))


def test_type_checkers_see_the_same_names() -> None:
    assert sorted(names_for_type_checkers()) == sorted(NAMES)


def test_all_that_users_see_has_a_docstring() -> None:
    seen = [(name, value) for name in NAMES if callable(value := getattr(pytest_fileperf, name))]
    seen += [
        (f"{name}.{member}", value)
        for name, public in seen
        for member, value in getattr(public, "__dict__", {}).items()
        if not member.startswith("_") and isinstance(value, FunctionType | property | classmethod | staticmethod)
    ]
    assert len(seen) > len(NAMES)
    assert [name for name, value in seen if not value.__doc__] == []


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert pytest_fileperf.__version__ == version("pytest-fileperf")
    assert "__version__" in pytest_fileperf.__all__


def test_every_error_is_public_and_that_of_its_part() -> None:
    names = {name for name in errors.__all__ if name.endswith("Error")}
    assert names <= set(pytest_fileperf.__all__)
    assert [name for name in names if getattr(pytest_fileperf, name) is not getattr(errors, name)] == []


def test_other_names_are_missing_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'pytest_fileperf' has no attribute 'nothing'"):
        _ = pytest_fileperf.nothing  # type: ignore[attr-defined]
