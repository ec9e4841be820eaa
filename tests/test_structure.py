"""The package keeps its shape: data moves one way, importing starts nothing, what is declared is true."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from marking import HOSTILE, TESTS

import pytest_fileperf
from pytest_fileperf import errors, plugin

ROOT = Path(__file__).parents[1]
PACKAGE = Path(pytest_fileperf.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

STAGES = (
    "units",
    "errors",
    "host",  # all that the operating system gives
    "plan",
    "wire",  # before serve, which hands out clients over our transport
    "versions",
    "serve",
    "measure",  # before drive, which writes into the recorder it is handed
    "drive",
    "judge",
    "report",
    "settings",
    "session",
    "__main__",  # the command line
    "plugin",
)
"""A part imports itself and what stands before it."""

LARGE = (
    "cloudpickle",
    "dask",
    "distributed",
    "httptools",
    "httpx",
    "httpx2",
    "numpy",
    "psutil",
    "rich",
    "scipy",
    "uvicorn",
    "uvloop",
)
DISTRIBUTIONS = {
    "_pytest": "pytest",
    "pytest_benchmark": "pytest-benchmark",
    "uvicorn_worker": "uvicorn-worker",
}
"""Distributions named other than what they import as."""
OF_THE_PACKAGE = ("benchmark", "cluster", "gunicorn", "tls")
"""Extras that the package itself imports from."""


def dotted(module: Path) -> str:
    parts = module.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def stage_of(name: str) -> str | None:
    """Returns the part of the package a dotted name lies in; None for the package itself and for other packages."""
    parts = name.split(".")
    return parts[1] if parts[0] == "pytest_fileperf" and len(parts) > 1 else None


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


@cache
def imports_of(module: Path) -> tuple[tuple[str, str | None], ...]:
    return tuple(_imports_of(module))


def _imports_of(module: Path) -> Iterator[tuple[str, str | None]]:
    """Yields (module, name or None) for every import, those inside functions too."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{dotted(module)}:{node.lineno} imports relatively"
            assert node.module is not None
            for alias in node.names:
                yield node.module, alias.name


def declared(requirements: list[str]) -> dict[str, str]:
    """Returns the lower bound of each requirement by name."""
    bounds = {}
    for requirement in requirements:
        match = re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z0-9]+\])?(?:>=([0-9.]+))?(?:; .*)?", requirement)
        assert match, requirement
        bounds[match[1]] = match[2]
    return bounds


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        content = tomllib.load(file)["project"]
    assert isinstance(content, dict)
    return content


def test_no_stage_reaches_back() -> None:
    back = [
        f"{dotted(module)} imports {imported}"
        for module in MODULES
        if (own := stage_of(dotted(module))) is not None  # the package's own namespace offers names of every stage
        for imported, name in imports_of(module)
        if (other := stage_of(imported if imported != "pytest_fileperf" else f"{imported}.{name}")) is not None
        and STAGES.index(other) > STAGES.index(own)
    ]
    assert back == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {dotted(module) for module in MODULES}
    left = {
        dotted(module): {
            imported
            for node in tree_of(module).body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
            for imported in (node.module, f"{node.module}.{alias.name}")
            if imported in names - {dotted(module), "pytest_fileperf"}
        }
        for module in MODULES
    }
    while free := [name for name, imported in left.items() if not imported & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_only_the_plugin_imports_pytest_and_nobody_its_private_names() -> None:
    imported = {dotted(module): {name.split(".")[0] for name, _ in imports_of(module)} for module in MODULES}
    # No public name runs a test whose reports wait: plugins that run tests again import this one, too.
    private = {module: {name for name, _ in imports_of(module) if name.startswith("_pytest")} for module in MODULES}
    assert {dotted(module): names for module, names in private.items() if names} == {
        "pytest_fileperf.plugin.again": {"_pytest.runner"}
    }
    assert {stage_of(module) for module, names in imported.items() if "pytest" in names} == {"plugin"}


def test_pytest_benchmark_is_needed_for_its_own_files_only() -> None:
    users = {"pytest_benchmark", "pytest_benchmark.utils", "pytest_fileperf.report.benchmark_json"}
    needing = {
        dotted(module)
        for module in MODULES
        for node in tree_of(module).body
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
        )
        if name in users
    }
    assert needing == {"pytest_fileperf.report.benchmark_json"}


def test_public_modules_name_what_they_offer() -> None:
    for module in (pytest_fileperf, errors, plugin):
        exports = module.__all__
        assert isinstance(exports, tuple), module.__name__
        assert [name for name in exports if not hasattr(module, name)] == [], module.__name__


def test_nobody_takes_a_private_name_of_another_module() -> None:
    taken = [
        f"{dotted(module)} takes {imported}.{name}"
        for module in MODULES
        for imported, name in imports_of(module)
        if imported.startswith("pytest_fileperf") and name is not None and re.match(r"_[^_]", name)
    ]
    assert taken == []


def test_names_are_neither_the_standard_library_s_nor_empty_words() -> None:
    names = {dotted(module).rpartition(".")[2] for module in MODULES}
    assert names & sys.stdlib_module_names == set()
    assert names & {"common", "helper", "helpers", "manager", "misc", "tools", "util", "utils"} == set()


def test_nothing_is_printed() -> None:
    names = ((module, node) for module in MODULES for node in ast.walk(tree_of(module)) if isinstance(node, ast.Name))
    assert [f"{dotted(module)}:{node.lineno}" for module, node in names if node.id == "print"] == []


@pytest.mark.parametrize("name,also", [("pytest_fileperf", ("pytest",)), ("pytest_fileperf.plugin", ())])
def test_importing_loads_nothing_large(name: str, also: tuple[str, ...], tmp_path: Path) -> None:
    code = f"import sys, {name}; print(sorted(set(sys.modules) & set({(*LARGE, *also)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_tree_of_errors_is_drawn_whole() -> None:
    assert errors.__doc__ is not None
    drawn = set(re.findall(r"\b\w+Error\b", errors.__doc__)) - {"ValueError", "AssertionError"}
    assert drawn == {name for name in errors.__all__ if name.endswith("Error")}


def test_dependencies_are_what_the_package_imports(project: dict[str, object]) -> None:
    imported = {name.split(".")[0] for module in MODULES for name, _ in imports_of(module)}
    imported -= {*sys.stdlib_module_names, "pytest_fileperf"}
    dependencies, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list)
    assert isinstance(extras, dict)
    optional = [requirement for extra in OF_THE_PACKAGE for requirement in extras[extra]]
    assert {DISTRIBUTIONS.get(name, name) for name in imported} == set(declared([*dependencies, *optional]))


def test_every_lower_bound_is_installed_in_an_environment_of_tox(project: dict[str, object]) -> None:
    extras = project["optional-dependencies"]
    dependencies = project["dependencies"]
    assert isinstance(extras, dict)
    assert isinstance(dependencies, list)
    bounds = declared([*dependencies, *(requirement for extra in extras.values() for requirement in extra)])
    del bounds["pytest-fileperf"]
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    lines = "\n".join(tox[f"testenv:{name}"]["deps"] for name in ("lowest", "httpx2")).split("\n")
    pins = [line.replace("==", ">=") for line in lines if line]
    assert declared(pins) == bounds


def test_files_that_are_marked_or_run_again_are_there() -> None:
    text = (ROOT / "tox.ini").read_text(encoding="utf-8")
    again = re.findall(r"^    .*?(tests/[\w/.]+)(?:::(\w+))?", text, re.MULTILINE)
    assert len(again) > 10
    assert [name for name, _ in again if not (ROOT / name).exists()] == []
    assert [test for name, test in again if test and f"def {test}(" not in (ROOT / name).read_text("utf-8")] == []
    assert [name for name in HOSTILE if not (TESTS / name).exists()] == []
