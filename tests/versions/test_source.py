"""The code of a baseline is found again, or a sentence says why not and what to do. The repository stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from judge.sides import known
from serve.processes import posix
from versions.repositories import Repo, git, needs_git

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.checkout import parse_against
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.repository import find_repository
from pytest_fileperf.versions.source import Source, SourceState, instead_of_itself, needed_among, other_branch
from pytest_fileperf.versions.tree import CodeTree

pytestmark = needs_git

BASELINES = ".fileperf"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo.make(tmp_path_factory.mktemp("made once") / "repo")
    repo.commit(app_py="first")
    repo.commit(app_py="second")
    return repo


@pytest.fixture
def repo(made: Repo, tmp_path: Path) -> Repo:
    """Two commits of `app.py`; the name of its directory has a space and letters that are not ASCII."""
    return made.copied(tmp_path / "a répo")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go. Nothing of them is left after each test."""
    directory = tmp_path / "temporary files"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    yield directory
    assert list(directory.iterdir()) == []


def source(repo: Repo, baselines: str = BASELINES, *, below: str = ".", keeps_trees: bool = True) -> Source:
    return Source(repo.top / below, repo.top / below / baselines, keeps_trees=keeps_trees)


def state(repo: Repo, baselines: str = BASELINES, *, below: str = ".") -> SourceState:
    """Returns which code is here, and proves that finding it out changes nothing."""
    before = everything(repo)
    with source(repo, baselines, below=below) as opened:
        here = opened.here
    assert everything(repo) == before
    assert isinstance(here, SourceState), here
    return here


def sentence(repo: Repo, baselines: str = BASELINES) -> str:
    with source(repo, baselines) as opened:
        here = opened.here
    assert isinstance(here, str)
    return here


def everything(repo: Repo) -> dict[str, object]:
    return {**repo.state(), "objects": sorted(str(path) for path in (repo.shared / "objects").rglob("*"))}


def kept(opened: Source) -> None:
    here = opened.here
    assert isinstance(here, SourceState)
    opened.keep(here)


def store(repo: Repo, *, keeps_trees: bool = True) -> SourceState:
    """Stores a baseline of the code that is here, as a session does."""
    with source(repo, keeps_trees=keeps_trees) as opened:
        here = opened.here
        assert isinstance(here, SourceState), here
        repo.write(f"{BASELINES}/machine/test_app.json", f'{{"tree": "{here.tree}"}}')
        kept(opened)
        assert opened.notes == ()
    return here


def content(repo: Repo, stored: SourceState, path: str = "app.py") -> tuple[str, str]:
    """Returns the title of the baseline's code, and the content of a file there."""
    before = everything(repo)
    with source(repo) as opened:
        code_tree = opened.code(stored.tree, stored.commit)
        assert opened.code(stored.tree, stored.commit) is code_tree
        assert code_tree.there is not None
        assert (code_tree.here, code_tree.there.name) == (repo.top, repo.top.name)
        said = (code_tree.title, (code_tree.there / path).read_text())
    assert everything(repo) == before
    assert not code_tree.there.exists()
    return said


def why_not(repo: Repo, stored: SourceState) -> str:
    with source(repo) as opened, pytest.raises(PlanError) as raised:
        opened.code(stored.tree, stored.commit)
    return str(raised.value)


def is_here(repo: Repo, stored: SourceState) -> bool:
    with source(repo) as opened:
        try:
            code_tree = opened.code(stored.tree, stored.commit)
        except PlanError:
            return False
        if code_tree.is_here:
            assert code_tree == CodeTree(title=code_tree.title, here=repo.top)
        return code_tree.is_here


def refs(repo: Repo) -> list[str]:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/fileperf/").split()


def is_forgotten(repo: Repo, stored: SourceState) -> bool:
    with source(repo) as opened:
        opened.forget(["1" * 40, "--all", stored.tree])
    return refs(repo) == []


def test_a_clean_tree_is_that_of_its_commit_and_a_committed_baseline_changes_none(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    stored = store(repo)
    assert stored == SourceState(tree=repo.git("rev-parse", "HEAD^{tree}"), commit=head, dirty=False)
    assert stored.title == head[:7]
    repo.write("services/other/.fileperf/machine/test_app.json", "{}")  # of another project
    head = repo.commit()
    assert state(repo) == SourceState(tree=stored.tree, commit=head, dirty=False)
    assert is_here(repo, stored)
    assert refs(repo) == []


def test_what_python_and_pytest_write_changes_no_tree_committed_or_not(repo: Repo) -> None:
    before = state(repo)
    caches = [f"{name}/x.py" for name in (".benchmarks", ".hypothesis", ".tox", "a/.mypy_cache", ".ruff_cache")]
    data = [".coverage", ".coverage.host.1", "deep/__pycache__/x", ".pytest_cache/v/README.md"]
    for path in ("__pycache__/app.cpython-313.pyc", "old.pyc", *caches, *data):
        repo.write(path, "compiled")
    assert state(repo) == before
    repo.commit()
    after = state(repo)
    assert (after.tree, after.dirty) == (before.tree, False)


def test_settings_of_tools_are_in_the_tree(repo: Repo) -> None:
    before = state(repo).tree
    for path in (".coveragerc", ".toxrc", ".env"):
        repo.write(path, "[run]")
    repo.git("add", "--all")
    tree = state(repo).tree
    assert tree != before
    assert repo.git("write-tree") == tree


def test_outputs_change_no_tree_committed_or_not(repo: Repo) -> None:
    repo.write("out/settings.py", "code")
    repo.commit()
    outputs = [repo.top / "run.json", Path("out"), repo.top / "../elsewhere.html", repo.top, repo.top.parent]

    def tree() -> str:
        with Source(repo.top, repo.top / BASELINES, outputs=outputs) as opened:
            assert isinstance(opened.here, SourceState)
            return opened.here.tree

    before = tree()
    for path in ("run.json", "out/deep/report.html"):
        repo.write(path, "written")
        assert tree() == before
    repo.commit()
    assert tree() == before
    for path in ("out/settings.py", "run.json2.py", "app.py"):
        repo.write(path, "changed")
        assert tree() != before
        before = tree()


def test_a_dirty_tree_is_kept_found_and_forgotten(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    repo.write("app.py", "third")
    repo.write("näw file.py", "untracked")
    stored = store(repo)
    assert (stored.commit, stored.dirty, stored.title) == (head, True, f"{head[:7]} with uncommitted changes")
    assert refs(repo) == [f"refs/fileperf/{stored.tree}"]
    repo.write("app.py", "fourth")
    assert content(repo, stored) == (f"{head[:7]} with uncommitted changes", "third")
    assert content(repo, stored, "näw file.py")[1] == "untracked"
    repo.git("gc", "--quiet", "--prune=now")
    assert content(repo, stored)[1] == "third"
    assert not is_forgotten(repo, stored)  # its baseline is there
    shutil.rmtree(repo.top / BASELINES)
    assert is_forgotten(repo, stored)
    repo.git("gc", "--quiet", "--prune=now")
    said = why_not(repo, stored)
    assert "its history was rewritten, or some files were never committed" in said
    assert "Commit source and baseline together, or store the baseline again with `--fileperf-update=all`" in said


def test_keeping_changes_nothing_but_its_ref_and_objects(repo: Repo) -> None:
    repo.write("staged.py", "staged")
    repo.git("add", "staged.py")
    repo.write("staged.py", "changed")
    before = repo.state()
    with source(repo) as opened:
        kept(opened)
        kept(opened)
    after = repo.state()
    del before["refs"], after["refs"]
    assert after == before
    (ref,) = refs(repo)
    assert repo.git("log", "--format=%an %ad %p %s", "--date=unix", "--max-count=1", ref) == (
        f"pytest-fileperf 0 {repo.git('rev-parse', '--short', 'HEAD')} "
        f"{repo.git('rev-parse', 'HEAD')[:7]} with uncommitted changes, kept for a baseline of pytest-fileperf"
    )
    assert repo.git("cat-file", "blob", f"{ref}:staged.py") == "changed"
    repo.git("fsck", "--strict")


def test_the_commit_that_was_checked_out_then(repo: Repo) -> None:
    repo.commit(**{".fileperf/machine/other_json": "{}"})
    stored = store(repo)  # no object has its tree: the commit has another baseline
    repo.commit(app_py="third")
    assert stored.commit is not None
    assert content(repo, stored) == (stored.commit[:7], "second")


def test_the_commit_that_brought_the_baseline_together_with_its_code(repo: Repo) -> None:
    for setting, value in (("follow", "true"), ("showRoot", "false"), ("showSignature", "true"), ("diffMerges", "on")):
        repo.git("config", f"log.{setting}", value)
    repo.write("app.py", "third")
    stored = store(repo, keeps_trees=False)
    together = repo.commit()
    assert is_here(repo, stored)
    repo.commit(app_py="fourth")
    assert content(repo, stored) == (together[:7], "third")
    shutil.rmtree(repo.top / BASELINES)
    repo.commit(app_py="fifth")
    assert content(repo, stored) == (together[:7], "third")


def test_code_that_was_committed_before_its_baseline(repo: Repo) -> None:
    repo.commit(**{".fileperf/machine/other_json": "{}"})
    repo.write("app.py", "third")
    stored = store(repo, keeps_trees=False)
    repo.git("commit", "--quiet", "--message", "code", "app.py")
    alone = repo.git("rev-parse", "HEAD")
    repo.write("notes.txt", "")
    repo.git("add", "notes.txt")
    repo.git("commit", "--quiet", "--message", "notes")
    repo.commit()
    repo.commit(app_py="fourth")
    assert content(repo, stored) == (alone[:7], "third")


def test_a_shallow_clone(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store(repo)
    repo.commit(app_py="third")
    git(tmp_path, "clone", "--quiet", "--depth=1", repo.top.as_uri(), "shallow")
    shallow = Repo(tmp_path / "shallow")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert why_not(shallow, stored).endswith("is cut off (a shallow clone). Run `git fetch --unshallow`")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert why_not(shallow, stored).endswith("`git fetch --unshallow`, or set `fetch-depth: 0` for actions/checkout")
    shallow.git("fetch", "--quiet", "--unshallow")
    assert content(shallow, stored)[1] == "second"


def test_a_partial_clone_that_lacks_files_of_the_tree_takes_them_from_the_commit(repo: Repo, tmp_path: Path) -> None:
    stored = state(repo)
    repo.commit(app_py="third")
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", repo.top.as_uri(), "partial")
    partial = Repo(tmp_path / "partial")
    with source(partial) as opened:
        there = known(opened.code(stored.tree, stored.commit).there)
        assert (there / "app.py").read_text() == "second"


def test_no_git(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = state(repo)
    loaded = LoadedFiles(modules=(str(repo.top / "app.py"),), is_known=True)
    with source(repo) as opened:
        assert isinstance(opened.here, SourceState)
        monkeypatch.setenv("PATH", str(tmp_path))  # gone after the load
        assert opened.shared_modules(loaded, CodeTree(here=repo.top, there=repo.top)) == ()
        assert opened.loaded_beside(loaded) is None
        assert opened.changed()[0].startswith("the code (")
    assert sentence(repo) == why_not(repo, stored)
    assert "Git is not installed (no `git` on the PATH)" in sentence(repo)
    with source(repo) as opened:
        opened.keep(stored)
        opened.forget([stored.tree])
        with pytest.raises(PlanError, match="Git is not installed"):
            opened.code(stored.tree, None)


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with Source(tmp_path, tmp_path / BASELINES) as opened:
        with pytest.raises(PlanError, match=re.escape(str(opened.here))):
            opened.code("1" * 40, None)
        assert f"{tmp_path} isn't in a Git repository" in str(opened.here)
        assert opened.changed() == ()
        assert opened.ignored_since(datetime(2000, 1, 1, tzinfo=UTC)) == ()


@posix
def test_repositories_whose_tree_cannot_be_told(
    repo: Repo, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repo.top), "bare")
    assert "Run pytest in a clone of it" in sentence(Repo(tmp_path / "bare"))
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(temporary / "nowhere"))
        assert "Set TMPDIR to a directory" in sentence(repo)
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # Git's own tests say so
        assert "git config --global --add safe.directory" in sentence(repo)
    with repo.write("data/large.so", "").open("r+b") as file:
        file.truncate(3 << 30)
    said = sentence(repo)
    assert "3.00 GiB" in said
    assert "data/large.so" in said
    assert "List files that are not code in .gitignore, or compare only stored figures (`fileperf_confirm" in said
    (repo.top / "data" / "large.so").unlink()
    Repo.make(repo.top / "inner").write("x.py", "")
    assert "inner" in sentence(repo)
    assert "List files that are not code in .gitignore" in sentence(repo)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "new")
    repo.write("app.py", "first")
    stored = store(repo)
    assert (stored.commit, stored.dirty, stored.title) == (None, True, "uncommitted code")
    assert is_here(repo, stored)
    repo.write("app.py", "second")
    assert content(repo, stored) == ("uncommitted code", "first")


def test_damaged_entries(repo: Repo) -> None:
    stored = state(repo)
    with source(repo) as opened:
        for tree in ("--all", "HEAD", "../" + "1" * 37):
            with pytest.raises(PlanError, match=r"damaged. To replace it, store the baseline again with"):
                opened.code(tree, None)
        for commit in ("unknown", "unversioned", "main", "--all", "", None):
            assert opened.code(stored.tree, commit).is_here
            with pytest.raises(PlanError, match="the baseline's code is not in the Git repository"):
                opened.code("1" * 40, commit)
        with pytest.raises(PlanError, match=r"does not say which code it belongs to. In a Git repository, store"):
            opened.code(None, repo.git("rev-parse", "HEAD"))
        for name in ("HEAD", "HEAD:app.py"):
            with pytest.raises(PlanError):
                opened.code(repo.git("rev-parse", name), None)


@posix
@pytest.mark.parametrize("baselines", ["bäse lines/[x]", "../elsewhere", "link"])
def test_baselines_elsewhere(baselines: str, repo: Repo) -> None:
    before = state(repo, baselines)
    if baselines == "link":
        (repo.top / "real").mkdir()
        (repo.top / baselines).symlink_to("real")
    repo.write(f"{baselines}/machine/test_app.json", "{}")
    assert state(repo, baselines) == before
    repo.commit()
    assert state(repo, baselines).tree == before.tree


def test_baselines_beside_code_are_refused(repo: Repo) -> None:
    """Their directory is not in the tree: changed code in it would be taken for the same."""
    repo.write("tests/slow_app.py", "")
    for baselines in (".", "tests"):
        assert "Give the baselines their own directory (`fileperf_baselines`)" in sentence(repo, baselines)
    repo.commit()
    assert "Give the baselines their own directory (`fileperf_baselines`)" in sentence(repo, "tests")


def test_a_rootdir_below_the_top_has_the_tree_of_the_whole_repository(repo: Repo) -> None:
    repo.write("service/main.py", "")
    repo.commit()
    stored = state(repo, below="service")
    assert stored.tree == repo.git("rev-parse", "HEAD^{tree}")
    repo.write("service/.fileperf/x.json", "{}")
    assert state(repo, below="service") == stored
    repo.write("app.py", "changed above")
    assert state(repo, below="service").dirty


def test_a_rootdir_that_git_ignores_has_no_tree(repo: Repo) -> None:
    """As in a home directory whose repository has some settings only: changed code would be taken for the same."""
    repo.write(".gitignore", "*\n")
    repo.write("project/app.py", "")
    with Source(repo.top / "project", repo.top / "project" / BASELINES) as opened:
        assert "ignores" in str(opened.here)
        assert "so no commit contains its code. Run `git init` there" in str(opened.here)
    repo.git("add", "--force", "project")
    repo.git("commit", "--quiet", "--message", "a project")
    assert not state(repo, below="project").dirty


def test_a_linked_worktree(repo: Repo, tmp_path: Path) -> None:
    repo.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "-b", "other", "HEAD~1")
    linked = Repo(tmp_path / "linked")
    linked.write("app.py", "in the worktree")
    before = repo.state()
    stored = store(linked)
    linked.write("app.py", "later")
    assert content(linked, stored)[1] == "in the worktree"
    assert content(repo, stored)[1] == "in the worktree"
    assert {**repo.state(), "refs": ""} == {**before, "refs": ""}


def test_a_submodule_is_the_commit_that_is_checked_out_in_it(repo: Repo, tmp_path: Path) -> None:
    library = Repo.make(tmp_path / "library")
    library.commit(lib_py="old")
    repo.git("submodule", "add", "--quiet", str(library.top), "libs/core")
    repo.commit()
    inner = Repo(repo.top / "libs" / "core")
    clean = state(repo)
    inner.write("__pycache__/lib.pyc", "")
    assert state(repo) == clean
    inner.write("lib.py", "changed")
    assert "libs/core" in sentence(repo)
    assert "has uncommitted changes. Commit them there" in sentence(repo)
    inner.git("commit", "--quiet", "--all", "--message", "new")
    stored = store(repo)
    assert stored.dirty
    inner.git("checkout", "--quiet", "HEAD~1")
    assert content(repo, stored, "libs/core/lib.py")[1] == "changed"


def test_a_change_of_equal_length_in_the_same_second_is_seen(repo: Repo) -> None:
    file = repo.top / "app.py"
    times = file.stat()
    os.utime(repo.top / ".git" / "index", ns=(times.st_atime_ns, times.st_mtime_ns))
    file.write_text("SECOND")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert state(repo).dirty


def test_a_changed_file_that_git_was_told_not_to_look_at(repo: Repo) -> None:
    clean = state(repo)
    for flag in ("--assume-unchanged", "--skip-worktree"):
        repo.git("update-index", flag, "app.py")
        assert state(repo) == clean
        repo.write("app.py", "changed and hidden")
        assert state(repo).dirty
        repo.write("app.py", "second")
        repo.git("update-index", flag.replace("--", "--no-"), "app.py")


def test_a_sparse_checkout_has_the_tree_of_its_commit(repo: Repo) -> None:
    repo.write("docs/index.txt", "")
    repo.write("src/app.py", "")
    repo.commit()
    whole = state(repo)
    for words in (["--cone"], ["--cone", "--sparse-index"]):
        repo.git("sparse-checkout", "set", *words, "src")
        assert not (repo.top / "docs").exists()
        assert state(repo) == whole


def test_conflicts_deletions_and_directories_in_place_of_files(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "-b", "other", "HEAD~1")
    repo.commit(app_py="other", gone_py="")
    with pytest.raises(Exception, match="merge"):
        repo.git("merge", "--quiet", "main")
    (repo.top / "gone.py").unlink()
    repo.write("gone.py/now a directory.py", "")
    stored = store(repo)
    assert repo.git("ls-tree", "-r", "--name-only", stored.tree).splitlines() == [
        "app.py",
        "gone.py/now a directory.py",
    ]


@posix
def test_files_that_git_cannot_read_in_time(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = state(repo)
    repo.commit(app_py="third")
    repo.git("config", "filter.slow.clean", "sleep 5; cat")
    repo.write(".gitattributes", "slow.py filter=slow\n")
    repo.write("slow.py", "text" * 99)
    monkeypatch.setattr("pytest_fileperf.versions.snapshot._PATIENCE_S", 0.5)
    with source(repo) as opened:
        said = str(opened.here)
        assert "within 0.5 s (the largest new file is slow.py, 396 B). List files that are not" in said
        assert not opened.code(stored.tree, stored.commit).is_here


def test_what_cannot_be_kept_is_noted(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write("app.py", os.urandom(3 << 20))
    before = everything(repo)
    with monkeypatch.context() as patch, source(repo) as opened:
        patch.setattr("pytest_fileperf.versions.snapshot._MOST_BYTES", 2 << 20)
        kept(opened)
        assert "3.00 MiB of files are neither committed nor ignored" in opened.notes[0]
    assert everything(repo) == before
    repo.write(".git/refs/fileperf", "a file in the way")
    with source(repo) as opened:
        kept(opened)
        (note,) = opened.notes
    assert "cannot be kept for its baseline" in note
    assert note.endswith("Commit source and baseline together")


def test_new_files_that_are_no_source_are_in_a_tree_only_where_a_server_has_read_them(repo: Repo) -> None:
    repo.write("new.py", "")
    data, secret = repo.write("data.json", "{}"), repo.write(".env", "PASSWORD=x")
    with source(repo) as opened:
        here = opened.here
        read = opened.here_with(LoadedFiles(read=(str(data),), is_known=True))
        assert isinstance(here, SourceState)
        assert isinstance(read, SourceState)
        opened.keep(read)
    names = repo.git("ls-tree", "-r", "--name-only", read.tree).split()
    assert {"new.py", "data.json"} <= set(names)
    assert ".env" not in names
    assert here.tree != read.tree
    with source(repo) as opened:  # it is still the code that is here
        assert opened.code(read.tree, None).is_here
    secret.unlink()
    repo.commit()
    with source(repo) as opened:
        assert isinstance(opened.here, SourceState)
        assert opened.here.tree == read.tree


def test_ignored_files_that_were_written_later_are_named(repo: Repo) -> None:
    repo.write(".gitignore", "*.env\n*.pyc\nold/\n.fileperf/\n.pytest_cache\n")
    for path in ("new.env", "lib/new.env", "x.pyc", "old/x.env", ".fileperf/x.env", ".pytest_cache", "lib/code.py"):
        repo.write(path, "")
    os.utime(repo.write("old.env", ""), (10**9, 10**9))
    with source(repo) as opened:
        assert opened.ignored_since(datetime.fromtimestamp(10**9, UTC)) == (".gitignore", "lib/new.env", "new.env")
        assert opened.ignored_since(datetime(2999, 1, 1, tzinfo=UTC)) == ()
        for number in range(9):
            repo.write(f"{number}.env", "")
        assert len(opened.ignored_since(datetime.fromtimestamp(10**9, UTC))) == 5


@posix
def test_files_that_git_ignores_are_the_same_on_both_sides(repo: Repo, tmp_path: Path) -> None:
    repo.write(".gitignore", "local_*.py\n.env\n*.bin\nwhole/\nlink\n")
    repo.write("pkg/app.py", "from pkg import local_settings")
    repo.write("local_tracked.py", "old")
    repo.git("add", "--force", "local_tracked.py")
    repo.commit()
    stored = state(repo)
    repo.git("rm", "--quiet", "--cached", "local_tracked.py")
    repo.commit(app_py="third")
    for path in ("pkg/local_settings.py", ".env", "local_tracked.py", "whole/local_x.py"):
        repo.write(path, "here")
    (repo.top / "link").symlink_to(tmp_path)
    with repo.write("data.bin", "").open("r+b") as file:
        file.truncate((16 << 20) + 1)
    with source(repo) as opened:
        there = known(opened.code(stored.tree, stored.commit).there)
        names = sorted(str(path.relative_to(there)) for path in there.rglob("*") if not path.is_dir())
        assert names == [".env", ".gitignore", "app.py", "local_tracked.py", "pkg/app.py", "pkg/local_settings.py"]
        assert (there / "pkg/local_settings.py").read_text() == "here"
        assert (there / "local_tracked.py").read_text() == "old"
        (note,) = opened.notes
    assert "data.bin" in note
    assert "16.0 MiB each or 64.0 MiB together" in note


@posix
def test_no_ignored_file_is_copied_through_a_link(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repo.top / "conf").symlink_to(tmp_path / "outside")
    repo.commit()
    stored = state(repo)
    (repo.top / "conf").unlink()
    repo.write(".gitignore", "*.env\n")
    repo.write("conf/x.env", "")
    repo.write("conf/code.py", "")
    with source(repo) as opened:
        opened.code(stored.tree, stored.commit)
    assert list((tmp_path / "outside").iterdir()) == []


def test_code_that_another_branch_or_working_tree_needs_is_not_forgotten(repo: Repo, tmp_path: Path) -> None:
    repo.write("app.py", "third")
    stored = store(repo)
    repo.git("checkout", "--quiet", "-b", "other")
    repo.git("add", "--force", BASELINES)
    repo.git("commit", "--quiet", "--message", "a baseline")
    repo.git("checkout", "--quiet", "--force", "main")
    assert not (repo.top / BASELINES).exists()
    assert not is_forgotten(repo, stored)
    linked = tmp_path / "a linked tree"
    repo.git("worktree", "add", "--quiet", "--detach", str(linked), "other")
    repo.git("branch", "--quiet", "-D", "other")
    git(linked, "rm", "--quiet", "-r", BASELINES)
    assert not is_forgotten(repo, stored)  # the commit that is checked out has it
    git(linked, "reset", "--quiet", "--hard")
    git(linked, "reset", "--quiet", "--soft", "main")
    assert not is_forgotten(repo, stored)  # now the files only
    shutil.rmtree(linked)
    assert is_forgotten(repo, stored)


def test_code_that_a_baseline_outside_the_repository_needs_is_not_forgotten(repo: Repo) -> None:
    repo.write("app.py", "third")
    stored = state(repo)
    with source(repo, "../elsewhere") as opened:
        kept(opened)
        file = repo.write("../elsewhere/machine/test_app.json", stored.tree)
        opened.forget([stored.tree])
        assert len(refs(repo)) == 1
        file.unlink()
        opened.forget([stored.tree])
    assert refs(repo) == []


def test_code_is_kept_where_git_cannot_say_in_time_who_needs_it(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    found = known(find_repository(repo.top))
    assert needed_among(found, {"1" * 40}, repo.top / BASELINES) == set()
    monkeypatch.setattr("pytest_fileperf.versions.source._NEEDED_PATIENCE_S", 0)
    assert needed_among(found, {"1" * 40}, repo.top / BASELINES) == {"1" * 40}


# --- What is compared with if the commit that is checked out is named: what was there before


@pytest.fixture
def pushed(tmp_path: Path) -> Repo:
    """Three commits on main; a remote branch of that name is there too."""
    pushed = Repo.make(tmp_path / "repo")
    for number in range(3):
        pushed.commit(app_py=f"{number}")
    pushed.git("update-ref", "refs/remotes/origin/main", "main")
    return pushed


def instead(name: str, pushed: Repo, env: Mapping[str, str] | None = None) -> CodeTree:
    against = parse_against(name, cwd=pushed.top, rootdir=pushed.top)
    with Source(pushed.top, Path(".fileperf")) as source:
        return instead_of_itself(against, name, source, env or {})


def test_the_commit_before_the_one_that_is_checked_out(pushed: Repo) -> None:
    parent = pushed.git("rev-parse", "HEAD~1")
    pushed.write(".fileperf/test_it.json", "{}")
    pushed.write("__pycache__/app.pyc", "")
    for name in ("origin/main", "HEAD"):
        against = instead(name, pushed)
        assert (against.commit, against.title) == (parent, f"{parent[:7]} (the commit before {name})")
        said = f"{name} is the commit that is checked out, so the comparison uses the commit before it, {parent[:7]}"
        assert against.notes == (said,)


def test_of_a_merge_it_is_the_first_parent(pushed: Repo) -> None:
    pushed.git("checkout", "--quiet", "-b", "side", "HEAD~1")
    pushed.commit(other_py="")
    pushed.git("checkout", "--quiet", "main")
    before = pushed.git("rev-parse", "HEAD")
    pushed.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    assert instead("main", pushed).commit == before


def test_another_commit_and_a_first_one_stay(pushed: Repo) -> None:
    first = pushed.git("rev-parse", "HEAD~2")
    assert instead("HEAD~2", pushed).commit == first
    pushed.git("checkout", "--quiet", first)
    assert instead("HEAD", pushed).commit == first


def of_github(pushed: Repo, before: object) -> dict[str, str]:
    event = pushed.write(".git/event.json", json.dumps({"before": before}))
    sha = pushed.git("rev-parse", "HEAD")
    return {"GITHUB_EVENT_NAME": "push", "GITHUB_SHA": sha, "GITHUB_EVENT_PATH": str(event)}


def of_gitlab(pushed: Repo, before: str) -> dict[str, str]:
    return {"CI_COMMIT_SHA": pushed.git("rev-parse", "HEAD"), "CI_COMMIT_BEFORE_SHA": before}


@pytest.mark.parametrize("service", [of_github, of_gitlab])
def test_what_ci_says_was_there_before_the_push(service: object, pushed: Repo) -> None:
    assert callable(service)
    first = pushed.git("rev-parse", "HEAD~2")
    against = instead("origin/main", pushed, service(pushed, first))
    assert (against.commit, against.title) == (first, f"{first[:7]} (origin/main before this push)")
    assert against.notes[0].endswith(f"so the comparison uses the commit before this push, {first[:7]}")


def test_what_ci_says_is_left_where_it_is_no_use(pushed: Repo) -> None:
    head, parent, first = (pushed.git("rev-parse", f"HEAD~{back}") for back in range(3))
    pushed.git("checkout", "--quiet", "--orphan", "elsewhere")
    rewritten = pushed.commit()
    pushed.git("checkout", "--quiet", "main")
    for before in ("0" * 40, "f" * 40, head, rewritten, "HEAD~2", None, 1):
        assert instead("main", pushed, of_github(pushed, before)).commit == parent
    assert instead("main", pushed, {**of_gitlab(pushed, first), "CI_COMMIT_SHA": first}).commit == parent
    assert instead("main", pushed, {**of_github(pushed, first), "GITHUB_EVENT_PATH": "nowhere"}).commit == parent
    assert instead("main", pushed, {**of_github(pushed, first), "GITHUB_EVENT_NAME": "schedule"}).commit == parent


@pytest.mark.parametrize(
    "variable,advice", [("GITHUB_ACTIONS", "`fetch-depth: 0` for actions/checkout"), ("GITLAB_CI", "`GIT_DEPTH: 0`")]
)
def test_a_clone_without_it_is_told_how_to_get_it(
    variable: str, advice: str, pushed: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", pushed.top.as_uri(), "shallow")
    monkeypatch.setenv(variable, "true")
    with pytest.raises(PlanError) as raised:
        instead("origin/main", Repo(tmp_path / "shallow"))
    said = str(raised.value)
    assert "the commit before it is missing" in said
    assert "`git fetch --depth=2`" in said
    assert advice in said


def test_the_same_code_is_recognised(pushed: Repo) -> None:
    pushed.commit()
    with Source(pushed.top, Path(".fileperf")) as source:
        assert source.is_that_of("HEAD~1")
        assert not source.is_that_of("HEAD~2")
        assert not source.is_that_of("f" * 40)
    pushed.write("app.py", "changed")
    with Source(pushed.top, Path(".fileperf")) as source:
        assert not source.is_that_of("HEAD")


@pytest.mark.parametrize(
    "env, branch",
    [
        ({}, ""),
        ({"CI": "true"}, ""),
        ({"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}, ""),
        ({"CI_COMMIT_BRANCH": "topic", "CI_DEFAULT_BRANCH": "main"}, "the branch topic"),
        ({"CI_DEFAULT_BRANCH": "main", "CI_MERGE_REQUEST_IID": "7"}, "a pull request"),
        ({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request_target"}, "a pull request"),
        ({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "main"}, ""),
        ({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "push", "GITHUB_REF_NAME": "topic"}, "the branch topic"),
    ],
)
def test_which_branches_only_read_a_history(tmp_path: Path, env: dict[str, str], branch: str) -> None:
    event = tmp_path / "event.json"
    event.write_text('{"repository": {"default_branch": "main"}}')
    assert other_branch({**env, "GITHUB_EVENT_PATH": str(event)}) == branch
