"""Which code is the other version's, and which files of either were loaded."""

from __future__ import annotations

import os
import py_compile
import site
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from pytest_fileperf.versions.loaded import (
    LoadedFiles,
    hidden_by_installed,
    is_among_packages,
    loaded_beside,
    stale_bytecode,
    used_by_both,
)
from pytest_fileperf.versions.tree import HERE, CodeTree, outside_code

PYTHON = str(Path("/opt/py/bin/python"))
PACKAGES = sysconfig.get_paths()["purelib"]


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodeTree:
    """Two trees: `src/app.py` is in both, `new` in one only."""
    for tree, names in (("here", ("src", "new")), ("base", ("src",))):
        for name in names:
            (tmp_path / tree / name).mkdir(parents=True)
        (tmp_path / tree / "src" / "app.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    return CodeTree(title="main", here=tmp_path / "here", there=tmp_path / "base")


PATHS = {
    "the top": ("here", "base"),
    "a directory": ("here/src", "base/src"),
    "a file": ("here/src/app.py", "base/src/app.py"),
    "by a way round": ("here/nowhere/../src", "base/src"),
    "only here": ("here/new", "here/new"),
    "nowhere": ("here/nothing", "here/nothing"),
    "of the base": ("base/src", "base/src"),
    "elsewhere": ("other/src", "other/src"),
    "a longer name": ("here2/src", "here2/src"),
}


def test_path(trees: CodeTree, tmp_path: Path) -> None:
    found = {name: trees.path(tmp_path / entry) for name, (entry, _) in PATHS.items()}
    assert found == {name: tmp_path / counterpart for name, (_, counterpart) in PATHS.items()}
    assert trees.path(Path("src")) == tmp_path / "base" / "src"  # seen from the working directory
    assert trees.path(Path("new")) == Path("new")
    (tmp_path / "link").symlink_to(tmp_path / "here", target_is_directory=True)
    assert trees.path(tmp_path / "link" / "src") == tmp_path / "base" / "src"
    through = CodeTree(here=tmp_path / "link", there=tmp_path / "base")
    assert through.path(tmp_path / "here" / "src") == tmp_path / "base" / "src"


@pytest.mark.parametrize(
    "code_tree", [HERE, CodeTree(here=Path.cwd()), CodeTree(python=PYTHON)], ids=["here", "no other tree", "python"]
)
def test_without_another_tree_every_path_stays(code_tree: CodeTree) -> None:
    assert code_tree.path(Path(__file__)) == Path(__file__)
    assert code_tree.cwd() == Path.cwd()
    assert code_tree.word(__file__) == __file__
    if code_tree is HERE:
        assert HERE.env({"PWD": "/nowhere"}, given={}) == {"PWD": "/nowhere"}


def test_the_environment_of_the_test_run_is_shared_where_both_trees_have_one(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tree in ("here", "base"):
        (tmp_path / tree / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "here" / ".venv"))
    assert trees.path(tmp_path / "here" / ".venv" / "bin") == tmp_path / "here" / ".venv" / "bin"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "here"))  # an environment made at the top of the tree
    assert trees.path(tmp_path / "here" / "src") == tmp_path / "base" / "src"


def test_cwd(trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trees.cwd() == tmp_path / "base"
    monkeypatch.chdir(tmp_path)
    assert trees.cwd() == tmp_path


WORDS = {
    "a path": ("{here}/src", "{base}/src"),
    "an option": ("--app-dir={here}/src", "--app-dir={base}/src"),
    "a list": ("{here}/src:{here}/new:/usr", "{base}/src:{here}/new:/usr"),
    "an option with a list": ("-Dpath={here}/src:{here}", "-Dpath={base}/src:{base}"),
    "a path with a sign": ("{here}/src/app.py", "{base}/src/app.py"),
    "a relative path": ("src", "src"),
    "a word": ("--port={{port}}", "--port={{port}}"),
    "nothing": ("", ""),
    "an address": ("sqlite:///{here}/src/app.py", "sqlite:///{here}/src/app.py"),
    "another path, letter by letter": ("/usr//lib/", "/usr//lib/"),
}


@pytest.mark.skipif(os.name != "posix", reason="paths of another form")
def test_words_of_commands(trees: CodeTree) -> None:
    names = {"here": trees.here, "base": trees.there}
    found = {name: trees.word(text.format(**names)) for name, (text, _) in WORDS.items()}
    assert found == {name: mapped.format(**names) for name, (_, mapped) in WORDS.items()}


def test_sys_path_of_another_tree(trees: CodeTree, tmp_path: Path) -> None:
    entries = [str(tmp_path / "here" / "src"), str(tmp_path / "here" / "new"), PACKAGES]
    assert trees.sys_path(entries) == (str(tmp_path / "base" / "src"), *entries[1:])
    both = CodeTree(here=trees.here, there=trees.there, python=PYTHON)  # before the packages of another interpreter
    assert both.sys_path([str(tmp_path / "here" / "src")]) == (str(tmp_path / "base" / "src"), None)
    assert HERE.sys_path(["", "src"]) == ("", "src")


def test_sys_path_of_another_interpreter_has_nothing_of_this_one_s(tmp_path: Path) -> None:
    of_this_one = [entry for entry in sys.path if "python3" in entry]
    own = [*of_this_one, PACKAGES, *site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["stdlib"]]
    code = str(tmp_path)
    assert CodeTree(python=PYTHON).sys_path([*own, code]) == (None, code)


@pytest.fixture
def finder(trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable install by setuptools, of a directory that is not on sys.path."""
    module = ModuleType("__editable___app_finder")
    module.__dict__["MAPPING"] = {
        "app": str(tmp_path / "here" / "src" / "app"),
        "ns.x": str(tmp_path / "a" / "ns" / "x"),
    }
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("finder")
def test_what_a_finder_finds_here_is_found_on_the_sys_path_there(trees: CodeTree, tmp_path: Path) -> None:
    assert trees.sys_path([PACKAGES]) == (PACKAGES, str(tmp_path / "base" / "src"))


@pytest.mark.usefixtures("finder")
def test_another_interpreter_gets_every_editable_install_of_this_one(trees: CodeTree, tmp_path: Path) -> None:
    both = CodeTree(here=trees.here, there=trees.there, python=PYTHON)
    found = [str(tmp_path / "base" / "src"), str(tmp_path / "a")]
    assert both.sys_path([PACKAGES]) == (*found, None)
    assert both.env({"PATH": "/bin"}, given={})["PYTHONPATH"].split(os.pathsep)[-2:] == found
    assert CodeTree(python=PYTHON).sys_path([]) == (None, str(tmp_path / "here" / "src"), str(tmp_path / "a"))


@pytest.mark.usefixtures("finder")
def test_pythonpath_leads_to_the_code_of_the_other_tree(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "editable.pth").write_text(f"import sys\n{tmp_path / 'here'}\n")
    monkeypatch.setattr(site, "USER_SITE", str(packages))
    given = {"PYTHONPATH": os.pathsep.join(("lib", str(tmp_path / "here" / "src"))), "A": "1"}
    env = trees.env(given, given={})
    assert env == {
        "PYTHONPATH": os.pathsep.join(("lib", str(tmp_path / "base" / "src"), str(tmp_path / "base"))),
        "A": "1",
    }


def test_variables_the_user_asked_for_are_mapped_and_stay(trees: CodeTree, tmp_path: Path) -> None:
    asked = {"CONFIG": str(tmp_path / "here" / "src" / "app.py")}
    env = trees.env({"OTHER": asked["CONFIG"], "PWD": "/", **asked}, given=asked)
    assert env["CONFIG"] == str(tmp_path / "base" / "src" / "app.py")
    assert env["OTHER"] == asked["CONFIG"]
    assert env["PWD"] == str(tmp_path / "base")


def test_another_interpreter_takes_nothing_that_is_meant_for_this_one() -> None:
    given = {"PYTHONHOME": "/a", "PYTHONPATH": "/b", "VIRTUAL_ENV": "/c", "PYTHONHASHSEED": "1", "PATH": "/usr/bin"}
    env = CodeTree(python=PYTHON).env(given, given={"PYTHONPATH": "/b"})
    programs = str(Path(PYTHON).parent)
    assert env == {"PYTHONHASHSEED": "1", "PATH": os.pathsep.join((programs, "/usr/bin")), "PYTHONPATH": "/b"}


def test_a_file_that_is_linked_to_this_tree_is_not_of_the_other_one(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "base" / "linked.py").symlink_to(tmp_path / "here" / "src" / "app.py")
    assert trees.holds(tmp_path / "base" / "src" / "app.py")
    assert not trees.holds(tmp_path / "base" / "linked.py")
    assert not trees.holds(tmp_path / "here" / "src" / "app.py")


def test_strays_are_files_of_this_tree_that_the_other_one_has_too(trees: CodeTree, tmp_path: Path) -> None:
    stray = str(tmp_path / "here" / "src" / "app.py")
    others = (str(tmp_path / "here" / "new" / "x.py"), str(tmp_path / "base" / "src" / "app.py"), os.__file__)
    assert trees.strays([stray, *others]) == (stray,)
    assert HERE.strays([stray]) == ()
    assert trees.is_only_here(Path(others[0]))
    assert not trees.is_only_here(Path(stray))
    assert not trees.is_only_here(Path(os.__file__))


def test_code_from_outside_the_other_tree_is_named_by_its_directories(trees: CodeTree, tmp_path: Path) -> None:
    package = tmp_path / "library" / "src" / "lib"
    for name in ("__init__.py", "inner/__init__.py", "inner/deep.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    loaded = [
        str(path)
        for path in (
            package / "inner" / "deep.py",
            package / "__init__.py",
            tmp_path / "library" / "src" / "namespace" / "part.py",
            tmp_path / "here" / "ignored" / "made.py",
            tmp_path / "base" / "src" / "app.py",
            Path(os.__file__),
            Path(pytest.__file__),
            tmp_path,  # the working directory of a command
        )
    ]
    library, ignored = str(tmp_path / "library" / "src"), str(tmp_path / "here" / "ignored")
    assert outside_code(loaded, trees) == tuple(sorted((library, ignored), key=len))
    assert outside_code(loaded, CodeTree(here=tmp_path / "here")) == (str(tmp_path / "base" / "src"), library)
    assert outside_code(loaded, HERE) == ()


# --- files that were loaded


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


def test_loaded_files_are_looked_up_once_for_many_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 500 loaded files and 300 new ones, each stored baseline took 4 s of CPU time."""
    paths = [tmp_path / f"{number}.py" for number in range(30)]
    loaded = LoadedFiles(modules=tuple(map(str, paths[:10])), read=(str(paths[10]),))
    resolve, calls = Path.resolve, list[Path]()

    def counted(path: Path) -> Path:
        calls.append(path)
        return resolve(path)

    monkeypatch.setattr(Path, "resolve", counted)
    assert loaded.among(paths) == set(paths[:11])
    assert len(calls) == 11 + 30
