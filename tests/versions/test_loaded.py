from __future__ import annotations

import os
import py_compile
import zipfile
from pathlib import Path

import pytest

from pytest_fileperf.versions.loaded import (
    LoadedFiles,
    differ,
    hidden_by_installed,
    is_among_packages,
    loaded_beside,
    stale_bytecode,
    used_by_both,
)
from pytest_fileperf.versions.tree import CodeTree


@pytest.fixture
def tree(tmp_path: Path) -> CodeTree:
    for side, text in (("here", "now"), ("there", "then")):
        for name in ("src/shop/__init__.py", "src/shop/main.py", "app.py"):
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("" if name.endswith("__init__.py") else f"{name} {text}")
    return CodeTree(here=tmp_path / "here", there=tmp_path / "there")


def installed(tmp_path: Path, text: str, name: str = "shop/main.py") -> LoadedFiles:
    path = tmp_path / "venv/lib/python3/site-packages" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return LoadedFiles(installed=(str(path),))


@pytest.mark.parametrize("text", ["src/shop/main.py now", "src/shop/main.py then"])
def test_an_installed_copy_of_either_version_hides_the_code(tree: CodeTree, tmp_path: Path, text: str) -> None:
    loaded = installed(tmp_path, text)
    assert hidden_by_installed(loaded, tree) == loaded.installed[0]


def test_a_package_of_the_same_name_that_is_no_copy_hides_nothing(tree: CodeTree, tmp_path: Path) -> None:
    assert hidden_by_installed(installed(tmp_path, "another shop"), tree) == ""
    assert hidden_by_installed(installed(tmp_path, "app.py now", "other/app.py"), tree) == ""


def test_a_copy_of_code_that_is_the_same_in_both_trees_hides_nothing(tree: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "there/src/shop/main.py").write_text("src/shop/main.py now")
    assert hidden_by_installed(installed(tmp_path, "src/shop/main.py now"), tree) == ""


def test_a_copy_in_an_archive_hides_the_code_too(tree: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    with zipfile.ZipFile(tmp_path / "site-packages/code.egg", "w") as archive:
        archive.writestr("shop/main.py", "src/shop/main.py now")
    file = str(tmp_path / "site-packages/code.egg/shop/main.py")
    assert hidden_by_installed(LoadedFiles(modules=(file,)), tree) == file


def test_what_no_tree_has_is_told_by_digests(tree: CodeTree, tmp_path: Path) -> None:
    paths = {
        "of the tree": tmp_path / "there/app.py",
        "ignored": tmp_path / "there/engine.py",
        "data": tmp_path / "there/data.json",
        "elsewhere": tmp_path / "library/lib/one.py",
        "data elsewhere": tmp_path / "library/data.json",
        "of a build": tmp_path / "there/_version.py",
        "of Git": tmp_path / "there/.git/HEAD",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (tmp_path / "library/lib/__init__.py").touch()
    modules = tuple(str(path) for name, path in paths.items() if "data" not in name and name != "of Git")
    read = tuple(str(path) for name, path in paths.items() if "data" in name or name == "of Git")
    found = loaded_beside(LoadedFiles(modules=modules, read=read), tree, {"app.py"})
    assert found == {"engine.py": "982d9e3e", "data.json": "982d9e3e", "…/lib/one.py": "982d9e3e"}


def test_files_of_a_repository_within_are_those_of_its_commit(tree: CodeTree, tmp_path: Path) -> None:
    path = tmp_path / "there/module/code.py"
    path.parent.mkdir()
    path.write_text("text")
    assert loaded_beside(LoadedFiles(modules=(str(path),)), tree, {"module"}) == {}


def test_installed_files_that_the_tree_has_too_are_told(tree: CodeTree, tmp_path: Path) -> None:
    loaded = installed(tmp_path, "text")
    assert loaded_beside(loaded, tree, {"src/shop/main.py"}) == {"…/shop/main.py": "982d9e3e"}
    assert loaded_beside(loaded, tree, {"src/main.py", "main.py"}) == {}


def test_modules_of_the_tree_here_on_the_other_side_are_named(tree: CodeTree, tmp_path: Path) -> None:
    generated = tmp_path / "here/generated/engine.py"
    generated.parent.mkdir()
    generated.write_text("text")
    (tmp_path / "there/link.py").symlink_to(tmp_path / "here/app.py")
    names = ("there/app.py", "here/generated/engine.py", "there/link.py", "here/_version.py", "library/one.py")
    modules = tuple(str(tmp_path / name) for name in names)
    assert used_by_both(LoadedFiles(modules=modules), tree) == ("app.py", "generated/engine.py")
    assert used_by_both(LoadedFiles(modules=modules), CodeTree()) == ()


def test_data_differs_by_its_content(tree: CodeTree, tmp_path: Path) -> None:
    assert differ(str(tmp_path / "here/app.py"), tree)
    (tmp_path / "there/app.py").write_text("app.py now")
    assert not differ(str(tmp_path / "here/app.py"), tree)


def test_a_compiled_file_of_other_code_with_the_same_time_and_size_is_found(tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_text("VALUE = 1\n")
    compiled = py_compile.compile(str(source), doraise=True)
    status = source.stat()
    assert stale_bytecode([str(source), str(tmp_path / "none.py")]) is None
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stale_bytecode([str(source)]) == (str(source), compiled)
    source.write_text("VALUE = 10\n")  # Python compiles it anew
    assert stale_bytecode([str(source)]) is None


def test_a_compiled_file_that_is_never_checked_is_found(tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_text("VALUE = 1\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
    source.write_text("VALUE = 20\n")
    assert stale_bytecode([str(source)]) == (str(source), compiled)


@pytest.mark.parametrize(
    "path,expected",
    [("/venv/lib/python3.11/site-packages/shop", True), ("/usr/lib/python3/dist-packages", True), ("/a/shop", False)],
)
def test_directories_of_packages(path: str, expected: bool) -> None:
    assert is_among_packages(Path(path)) is expected
