"""What a comparison is made with: what each text means, what it says when it means nothing, and commits on disk.

Every test that copies a commit proves that the repository is as it was, and that nothing is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from serve.processes import posix
from versions.repositories import Repo, git, needs_git

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.checkout import (
    Checkout,
    changed_packages,
    commit_info,
    dependency_notes,
    environment_notes,
    parse_against,
    project_name,
)
from pytest_fileperf.versions.packages import packages_of
from pytest_fileperf.versions.tree import CodeTree

pytestmark = needs_git


@pytest.fixture(scope="module")
def two_commits(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo.make(tmp_path_factory.mktemp("made once") / "repo")
    repo.write("app.py", "old")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "first")
    repo.commit(app_py="new", later_py="")
    repo.git("tag", "--annotate", "--message", "a release", "v1")
    return repo


@pytest.fixture
def repo(two_commits: Repo, tmp_path: Path) -> Repo:
    """Two commits: `app.py` says old, then new; the second is tagged. The name of its directory has a space."""
    return two_commits.copied(tmp_path / "a répo")


@pytest.fixture
def temporary(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of a commit go."""
    directory = tmp_path / "temporary files"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


def against(text: str, repo: Repo, *, below: str = ".") -> CodeTree:
    return parse_against(text, cwd=repo.top / below, rootdir=repo.top / below)


@contextmanager
def unchanged(repo: Repo, temporary: Path) -> Iterator[None]:
    """Proves that nothing is changed by the block, and nothing left of it."""
    before = repo.state()
    yield
    assert repo.state() == before
    assert list(temporary.iterdir()) == []


def content(text: str, repo: Repo, temporary: Path, path: str = "app.py") -> str:
    with unchanged(repo, temporary), Checkout(against(text, repo), repo.top) as code_tree:
        assert code_tree.there is not None
        return (code_tree.there / path).read_text()


def test_a_commit_is_there_for_the_length_of_the_block(repo: Repo, temporary: Path) -> None:
    old = repo.git("rev-parse", "HEAD~1")
    with unchanged(repo, temporary):
        found = against("HEAD~1", repo)
        assert (found.commit, found.title) == (old, f"HEAD~1 ({old[:7]})")
        with Checkout(found, repo.top) as code_tree:
            assert code_tree == CodeTree(title=found.title, here=repo.top, there=code_tree.there)
            assert code_tree.there is not None
            assert sorted(path.name for path in code_tree.there.iterdir()) == ["app.py"]
            assert code_tree.there.name == repo.top.name
            assert code_tree.path(repo.top / "app.py").read_text() == "old"
            assert code_tree.notes == found.notes == ()


def test_names_and_hashes_of_commits(repo: Repo, temporary: Path) -> None:
    first = repo.git("rev-parse", "HEAD~1")
    repo.git("branch", "old", first)
    repo.git("branch", "feature/of/mine", first)
    repo.git("update-ref", "refs/remotes/origin/old", first)
    repo.git("tag", "--annotate", "--message", "older", "v0", first)
    names = ["old", "feature/of/mine", "refs/heads/old", "origin/old", "v0", "HEAD~1", "@~1", ":/first", "old@{0}"]
    for text in (*names, f" {first} ", first[:10]):
        assert against(text, repo).commit == first
    assert content("origin/old", repo, temporary) == "old"
    assert against(first[:10], repo).title == first[:7]


@posix
def test_links_programs_filters_and_attributes_are_those_of_the_commit(repo: Repo, temporary: Path) -> None:
    repo.git("config", "filter.shout.smudge", "tr a-z A-Z")
    repo.git("config", "filter.shout.clean", "tr A-Z a-z")
    repo.commit(loud_txt="quiet", crlf_txt="line\n")
    repo.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (repo.top / "link.py").symlink_to("app.py")
    repo.write("dé f/à.txt", "ä")
    repo.write(".gitattributes", "loud.txt filter=shout\ncrlf.txt eol=crlf\n")
    repo.commit()
    repo.write(".gitattributes", "")
    with unchanged(repo, temporary), Checkout(against("HEAD", repo), repo.top) as code_tree:
        there = code_tree.there
        assert there is not None
        assert (there / "run.sh").stat().st_mode & stat.S_IXUSR
        assert str((there / "link.py").readlink()) == "app.py"
        assert (there / "dé f" / "à.txt").read_text() == "ä"
        assert (there / "loud.txt").read_bytes() == b"QUIET"
        assert (there / "crlf.txt").read_bytes() == b"line\r\n"
    assert content("HEAD~1", repo, temporary, "loud.txt") == "quiet"


def test_settings_that_would_hold_files_back_or_write_beside_the_index(repo: Repo, temporary: Path) -> None:
    repo.git("config", "core.splitIndex", "true")
    repo.git("config", "core.sparseCheckout", "true")
    repo.write(".git/info/sparse-checkout", "nothing\n")
    assert content("HEAD~1", repo, temporary) == "old"


@posix
@pytest.mark.hostile
def test_no_hook_runs(repo: Repo, tmp_path: Path, temporary: Path) -> None:
    for name in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        hook = repo.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", ".git/hooks/fsmonitor-watchman")
    with Checkout(against("HEAD~1", repo), repo.top):
        assert not (tmp_path / "ran").exists()


@pytest.mark.hostile
def test_what_git_tells_its_hooks_is_not_heeded(repo: Repo, tmp_path: Path, temporary: Path) -> None:
    other = Repo.make(tmp_path / "other")
    other.commit(app_py="another repository")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "GIT_DIR": other.top / ".git", "GIT_WORK_TREE": other.top, "GIT_INDEX_FILE": other.top / ".git" / "index",
            "GIT_OBJECT_DIRECTORY": other.top / ".git" / "objects", "GIT_PREFIX": "below/",
        }.items():  # fmt: skip
            patch.setenv(name, str(value))
        with unchanged(other, temporary):
            assert content("HEAD~1", repo, temporary) == "old"


@posix
@pytest.mark.hostile
def test_everything_is_removed_whatever_ends_the_block_and_what_was_made_in_it(repo: Repo, temporary: Path) -> None:
    def interrupted(code_tree: CodeTree) -> None:
        assert code_tree.there is not None
        closed = code_tree.there / "made" / "closed"
        closed.mkdir(parents=True)
        (closed / "file").touch(mode=0o400)
        (closed / "link").symlink_to(repo.top)
        closed.chmod(0)
        closed.parent.chmod(0o500)
        raise KeyboardInterrupt

    with (
        unchanged(repo, temporary),
        pytest.raises(KeyboardInterrupt),
        Checkout(against("HEAD", repo), repo.top) as code_tree,
    ):
        interrupted(code_tree)


@pytest.mark.hostile
def test_a_file_that_cannot_be_written_is_told(repo: Repo, temporary: Path) -> None:
    repo.git("config", "filter.broken.smudge", "false")
    repo.git("config", "filter.broken.clean", "cat")
    repo.git("config", "filter.broken.required", "true")
    repo.commit(app_py="x")
    repo.write(".gitattributes", "app.py filter=broken\n")
    repo.git("add", ".gitattributes")
    repo.git("commit", "--quiet", "--message", "filtered")
    found = against("HEAD", repo)
    with (
        unchanged(repo, temporary),
        pytest.raises(PlanError, match=r"(?s)cannot be written to .*broken"),
        Checkout(found, repo.top),
    ):
        pass


@posix
@pytest.mark.hostile
def test_a_full_disk_is_told_in_a_few_lines_with_what_to_do(
    repo: Repo, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git says a line for each file, and not why."""
    found = against("HEAD", repo)
    without_room = tmp_path / "bin" / "git"
    without_room.parent.mkdir()
    complaints = 'for n in 0 1 2 3 4 5 6 7 8; do echo "error: unable to write file $n" >&2; done; exit 1'
    real = f'exec "{shutil.which("git")}" "$@"'
    without_room.write_text(f'#!/bin/sh\ncase "$*" in *checkout-index*) {complaints};; *) {real};; esac\n')
    without_room.chmod(0o755)
    monkeypatch.setenv("PATH", str(without_room.parent), prepend=os.pathsep)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    with unchanged(repo, temporary), pytest.raises(PlanError) as told, Checkout(found, repo.top):
        pass
    first, *others, more, why = str(told.value).splitlines()
    assert "cannot be written to" in first
    assert others == ["error: unable to write file 1", "error: unable to write file 2"]
    assert more == "… and 6 more lines"
    assert why == "only 1.00 MiB are free there. Free some space, or set TMPDIR to a directory with more"


@pytest.fixture(scope="module")
def two_submodules(two_commits: Repo, tmp_path_factory: pytest.TempPathFactory) -> Repo:
    made = tmp_path_factory.mktemp("made once")
    repo = two_commits.copied(made / "repo")
    innermost, library = Repo.make(made / "innermost"), Repo.make(made / "library")
    innermost.commit(deep_py="deep")
    library.commit(lib_py="old")
    library.git("submodule", "add", "--quiet", str(innermost.top), "deep")
    library.commit()
    repo.git("submodule", "add", "--quiet", "--name", "core", str(library.top), "libs/core")
    repo.git("submodule", "update", "--quiet", "--init", "--recursive")
    repo.commit()
    library.commit(lib_py="new")
    git(repo.top / "libs" / "core", "pull", "--quiet", "origin", "main")
    repo.commit()
    return repo


@pytest.fixture
def nested(two_submodules: Repo, tmp_path: Path) -> Repo:
    """Two commits record versions of a submodule `libs/core`, which has a submodule too; its name is not its path."""
    return two_submodules.copied(tmp_path / "nested")


def test_submodules_are_there_as_they_were_recorded(nested: Repo, temporary: Path) -> None:
    inner, deep = Repo(nested.top / "libs" / "core"), Repo(nested.top / "libs" / "core" / "deep")
    with (
        unchanged(inner, temporary),
        unchanged(deep, temporary),
        unchanged(nested, temporary),
        Checkout(against("HEAD~1", nested), nested.top) as code_tree,
    ):
        assert code_tree.there is not None
        assert (code_tree.there / "libs" / "core" / "lib.py").read_text() == "old"
        assert (code_tree.there / "libs" / "core" / "deep" / "deep.py").read_text() == "deep"
        assert not list(code_tree.there.rglob(".git"))
        assert code_tree.notes == ()
    nested.git("rm", "--quiet", "-r", "libs/core")  # it is found by its name
    nested.commit()
    assert content("HEAD~1", nested, temporary, "libs/core/lib.py") == "new"


def test_a_submodule_without_files_here_has_none_there(nested: Repo, tmp_path: Path, temporary: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(nested.top), "fresh")
    fresh = Repo(tmp_path / "fresh")
    found = against("HEAD", fresh)
    with unchanged(fresh, temporary), Checkout(found, fresh.top) as code_tree:
        assert code_tree.there is not None
        assert list((code_tree.there / "libs" / "core").iterdir()) == []
        assert code_tree.notes == (f"the submodule libs/core is empty in {found.title}, because Git lacks its files",)


def test_a_submodule_that_lacks_the_recorded_commit_is_named_with_what_fetches_it(
    nested: Repo, tmp_path: Path, temporary: Path
) -> None:
    wanted = "1" * 40
    nested.git("update-index", "--cacheinfo", f"160000,{wanted},libs/core")
    nested.git("commit", "--quiet", "--message", "not pushed")
    found = against("HEAD", nested)
    with unchanged(nested, temporary), pytest.raises(PlanError) as caught, Checkout(found, nested.top):
        pass
    said = str(caught.value)
    assert "the submodule libs/core lacks commit 111111111111" in said
    assert f"`git -C {nested.top / 'libs' / 'core'} fetch origin {wanted}`" in said
    assert "`git submodule update --init libs/core`" in said


def test_a_directory_is_compared_from_the_rootdir_and_a_clone_from_the_top(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    found = against("../old", repo)
    assert (found.title, found.commit) == ("../old", None)
    assert found == CodeTree(title="../old", here=repo.top, there=tmp_path / "old")
    with Checkout(found, repo.top) as code_tree:
        assert code_tree is found
    (repo.top / "service").mkdir()
    git(tmp_path, "clone", "--quiet", str(repo.top), "clone")
    (tmp_path / "clone" / "service").mkdir()
    whole = against("../../clone", repo, below="service")
    part = against("../../clone/service", repo, below="service")
    assert (whole.here, whole.there) == (repo.top, tmp_path / "clone")
    assert (part.here, part.there) == (repo.top / "service", tmp_path / "clone" / "service")


def test_a_directory_needs_no_repository_and_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "old"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    for text in ("../old", str(tmp_path / "old")):
        found = parse_against(text, cwd=tmp_path / "here", rootdir=tmp_path / "here")
        assert (found.here, found.there) == (tmp_path / "here", tmp_path / "old")
    assert is_directory(parse_against("old", cwd=tmp_path, rootdir=tmp_path / "here"))


def test_a_ref_wins_over_a_directory_of_its_name_and_a_note_says_so(repo: Repo) -> None:
    for name in ("v1", "v2", "--all"):
        (repo.top / name).mkdir()
    found = against("v1", repo)
    assert found.commit == repo.git("rev-parse", "v1^{commit}")
    assert found.notes == ("'v1' is a Git ref and a directory, and the ref is used. Write ./v1 for the directory",)
    assert all(is_directory(against(text, repo)) for text in ("./v1", "v2", "--all"))


def test_a_url_is_a_server(repo: Repo) -> None:
    found = against("http://127.0.0.1:8000", repo)
    assert found == CodeTree(title="http://127.0.0.1:8000", url="http://127.0.0.1:8000")
    with Checkout(found, repo.top) as code_tree:
        assert code_tree is found


def is_directory(found: CodeTree) -> bool:
    return found.there is not None and found.commit is found.url is None


def problem(text: str, directory: Path) -> str:
    with pytest.raises(PlanError) as caught:
        parse_against(text, cwd=directory, rootdir=directory)
    assert str(caught.value).startswith(f"--fileperf-against={text}: ")
    return str(caught.value)


MEANINGLESS = (
    ("", ["Give a Git ref, a directory, a URL or python:INTERPRETER"]),
    (
        "nowhere",
        ["'nowhere' is neither a directory nor a ref", "Is it misspelt, or older than the history?"],
    ),
    ("mian", ["Did you mean main?"]),
    ("1" * 40, ["neither a directory nor a ref"]),
    ("HEAD~7", ["neither a directory nor a ref"]),
    ("--all", ["neither a directory nor a ref"]),
    ("^HEAD", ["neither a directory nor a ref"]),
    ("HEAD~1..HEAD", ["neither a directory nor a ref"]),
    ("HEAD^{tree}", ["'HEAD^{tree}' is a tree in Git, not a commit"]),
    ("HEAD:app.py", ["is a blob in Git, not a commit"]),
    ("./app.py", ["is a file, not a directory"]),
    ("./nowhere", ["there is no directory"]),
    ("../nowhere", ["there is no directory"]),
    (".", ["contains the code under test"]),
    ("http://", ["is not a server's address"]),
)


def test_what_means_nothing_is_told_with_what_to_do(repo: Repo) -> None:
    unsaid = {text: [part for part in parts if part not in problem(text, repo.top)] for text, parts in MEANINGLESS}
    assert {text: parts for text, parts in unsaid.items() if parts} == {}


SHALLOW = {
    "origin/old": "`git fetch --depth=1 origin old:refs/remotes/origin/old`, or `git fetch --unshallow`",
    "v9": "`git fetch --depth=1 origin v9`, or `git fetch --unshallow`",
    "HEAD~1": "(a shallow clone). Run `git fetch --unshallow`",
}


def test_a_shallow_clone_says_how_to_get_the_rest_and_that_is_enough(
    repo: Repo, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.git("branch", "old", "HEAD~1")
    git(tmp_path, "clone", "--quiet", "--depth=1", repo.top.as_uri(), "shallow")
    shallow = Repo(tmp_path / "shallow")
    assert content("origin/main", shallow, temporary) == "new"
    for text, advice in SHALLOW.items():
        assert problem(text, shallow.top).endswith(advice)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "`fetch-depth: 0` for actions/checkout" in problem("HEAD~1", shallow.top)
    shallow.git("fetch", "--quiet", "--depth=1", "origin", "old:refs/remotes/origin/old")
    assert content("origin/old", shallow, temporary) == "old"


def test_an_empty_repository(tmp_path: Path) -> None:
    empty = Repo.make(tmp_path / "empty")
    assert "has no commit yet" in problem("HEAD", tmp_path / "empty")
    # Code that is not committed was kept for a baseline.
    empty.write("app.py", "app")
    empty.git("add", "--all")
    kept = empty.git("commit-tree", empty.git("write-tree"), "-m", "kept")
    empty.git("update-ref", "refs/fileperf/kept", kept)
    assert "has no commit yet" in problem("HEAD", tmp_path / "empty")


def test_what_a_remote_may_have_can_be_fetched_and_other_things_cannot(repo: Repo) -> None:
    not_there = f"{repo.top}. Is it misspelt, or older than the history?"
    assert problem("nowhere", repo.top).endswith(not_there)
    repo.git("remote", "add", "origin", "https://127.0.0.1:9/none")
    assert "Run `git fetch origin nowhere`, or is it misspelt?" in problem("nowhere", repo.top)
    assert "`git fetch origin main:refs/remotes/origin/main`" in problem("origin/main", repo.top)
    assert problem("HEAD~999", repo.top).endswith(not_there)


def test_without_git_without_a_repository_and_in_a_bare_one(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repo.top), "bare")
    assert "Run pytest in a clone of it" in problem("main", tmp_path / "bare")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert f"{tmp_path} isn't in a Git repository" in problem("main", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Git is not installed" in problem("main", repo.top)


@pytest.mark.hostile
@pytest.mark.parametrize("damage", ["head", "objects"])
def test_a_damaged_repository_is_called_that(tmp_path: Path, damage: str) -> None:
    repo = Repo.make(tmp_path / "project")
    repo.commit(app_py="one")
    if damage == "head":
        (repo.top / ".git" / "HEAD").write_text("garbage")
    for file in (repo.top / ".git" / "objects").rglob("*"):
        if damage == "objects" and file.is_file():
            file.chmod(0o644)
            file.write_text("garbage")
    with pytest.raises(
        PlanError, match=r"--fileperf-against=main: the Git repository .*project is damaged \(`git fsck`"
    ):
        parse_against("main", cwd=repo.top, rootdir=repo.top)
    assert commit_info(repo.top) is None


def test_a_login_in_an_option_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        parse_against("http://user:s3cret@127.0.0.1/", cwd=tmp_path, rootdir=tmp_path)
    assert "s3cret" not in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
@pytest.mark.hostile
def test_a_repository_of_another_user_is_told_with_what_to_do(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # Git's own tests say so
    said = problem("main", repo.top)
    assert "dubious ownership" in said
    assert "If you trust whoever owns that directory, run `git config --global --add safe.directory" in said
    (repo.top / "old").mkdir()
    assert is_directory(against("old", repo))


@pytest.mark.hostile
def test_git_that_does_not_answer_has_an_end(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(process: subprocess.Popen[bytes], given: bytes, *, timeout: float) -> object:
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", silent)
    assert "`git rev-parse` did not end within 60 s" in problem("main", repo.top)


@pytest.fixture
def interpreter(tmp_path: Path) -> Callable[[str], Path]:
    """Makes programs that play an interpreter."""

    def make(script: str) -> Path:
        path = tmp_path / "bin dir" / "python"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@posix
def test_an_interpreter(interpreter: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = interpreter("printf '3 13 /opt/a b'")
    texts = (f"python:{path}", "python:bin dir/python", "python:bin dir/../bin dir/python")
    for found in [parse_against(text, cwd=tmp_path, rootdir=tmp_path) for text in texts]:
        assert found == CodeTree(title=f"python {path}", python=str(path))
        assert found.title == f"python {path}"
        with Checkout(found, tmp_path) as code_tree:
            assert code_tree is found
    monkeypatch.setenv("PATH", str(path.parent))
    assert parse_against("python:python", cwd=tmp_path, rootdir=tmp_path).python == str(path)


NO_INTERPRETERS = (
    ("printf '3 8 /opt'", "is Python 3.8, but at least 3.11 is needed"),
    ("echo hello", "does not work as a Python interpreter"),
    ("exit 1", "does not work as a Python interpreter"),
)


@posix
def test_what_is_no_interpreter_that_can_serve(
    interpreter: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for script, said in NO_INTERPRETERS:
        assert said in problem(f"python:{interpreter(script)}", tmp_path)
    monkeypatch.setattr("pytest_fileperf.versions.checkout._PATIENCE_S", 0.2)
    silent = interpreter("exec sleep 60")
    assert "did not report its version within 0.2 s" in problem(f"python:{silent}", tmp_path)
    silent.chmod(0o644)
    assert "isn't executable" in problem(f"python:{silent}", tmp_path)
    assert "Name the interpreter, as in python:/path/to/venv/bin/python" in problem("python:", tmp_path)
    assert f"there is no interpreter {tmp_path / 'nowhere'}" in problem("python:nowhere", tmp_path)
    assert f"Name the interpreter in it, as in python:{tmp_path / 'bin'}" in problem(f"python:{tmp_path}", tmp_path)
    assert "belongs to pytest's own environment" in problem(f"python:{sys.executable}", tmp_path)


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_filter_that_does_not_end_goes_with_the_test_run(name: str, repo: Repo, tmp_path: Path) -> None:
    told = tmp_path / "told"
    repo.write(".gitattributes", "app.py filter=hanging")
    repo.commit()
    repo.git("config", "filter.hanging.smudge", f"echo $$ > {told}; trap '' INT TERM; while :; do sleep 0.2; done")
    code = f"""
from pathlib import Path
from pytest_fileperf.versions.checkout import Checkout, parse_against
where = Path({str(repo.top)!r})
with Checkout(parse_against("HEAD", cwd=where, rootdir=where), where):
    pass
"""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL) as run:
        while not (told.exists() and told.read_text()):
            assert run.poll() is None
            time.sleep(0.02)
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(getattr(signal, name))
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    deadline = time.monotonic() + 5
    while list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(temporary.iterdir()) == []


# --- The commit that stored baselines and reports name


@pytest.fixture
def project(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "project")


def test_all_of_a_commit_is_told(project: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_info(project.top) is None
    assert commit_info(tmp_path) is None
    commit = project.commit(app_py="one")
    (project.top / "below").mkdir()
    times = project.git("show", "-s", "--format=%cI %aI").split()
    told = {"id": commit, "time": times[0], "author_time": times[1], "dirty": False, "branch": "main"}
    assert commit_info(project.top / "below") == told
    project.write("new.py", "new")  # not a change
    assert commit_info(project.top) == told
    project.write("app.py", "two")
    project.git("checkout", "--quiet", "--detach")
    assert commit_info(project.top) == {**told, "dirty": True, "branch": "(detached head)"}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_info(project.top) is None


REMOTES = {
    "https://user:canary@host.invalid/group/files.git": "files",
    "https://host.invalid/files.git?token=canary": "files",
    "https://user:canary@host.invalid": "project",
    "https://canary@host.invalid/": "project",
    "canary@host.invalid": "project",
    "/srv/git/files.git/": "files",
    "file:///srv/files": "files",
}


def test_a_project_has_the_name_of_its_remote_repository_or_of_its_directory(project: Repo, tmp_path: Path) -> None:
    assert project_name(project.top) == "project"
    project.git("remote", "add", "origin", "git@example.invalid:someone/files.git")
    assert project_name(project.top) == "files"
    for url, name in REMOTES.items():
        project.git("remote", "set-url", "origin", url)
        assert project_name(project.top) == name
    assert project_name(tmp_path) == tmp_path.name


# --- Which files of two trees say that they need other packages


PROJECT = '[project]\nname = "a"\nversion = "{version}"\ndependencies = ["fastapi{bound}"]\n'
POETRY = '[tool.poetry]\nversion = "{version}"\n[tool.poetry.group.dev.dependencies]\nfastapi = "{bound}"\n'

FILES = {
    "equal": ("requirements.txt", "a==1", "a==1", False),
    "requirements": ("requirements.txt", "a==1", "a==2", True),
    "more requirements": ("requirements-dev.txt", "a==1", "a==2", True),
    "lock": ("uv.lock", "1", "2", True),
    "setup": ("setup.py", "1", "2", True),
    "another file": ("notes.txt", "1", "2", False),
    "version": ("pyproject.toml", PROJECT.format(version=1, bound=""), PROJECT.format(version=2, bound=""), False),
    "dependency": ("pyproject.toml", PROJECT.format(version=1, bound=""), PROJECT.format(version=1, bound=">1"), True),
    "poetry version": ("pyproject.toml", POETRY.format(version=1, bound=1), POETRY.format(version=2, bound=1), False),
    "poetry group": ("pyproject.toml", POETRY.format(version=1, bound=1), POETRY.format(version=1, bound=2), True),
    "build system": ("pyproject.toml", "", '[build-system]\nrequires = ["hatchling"]\n', True),
    "extra": ("pyproject.toml", "", "[project.optional-dependencies]\na = []\n", True),
    "settings": ("pyproject.toml", "", "[tool.ruff]\nline-length = 9\n", False),
    "other settings than expected": ("pyproject.toml", "tool = 1\nproject = 2", "tool = 1\nproject = 2\n", False),
    "damaged": ("pyproject.toml", "=", "==", True),
}


def test_differences_of_files_that_name_packages(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for case, (name, one, other, differs) in FILES.items():
        for tree, text in ((here, one), (there, other)):
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir()
            (tree / name).write_text(text)
        note = (
            f"{name} differs between the versions, but both run with the packages installed here. "
            "To compare dependencies, use --fileperf-against=python:…"
        )
        assert dependency_notes(here, there) == ((note,) if differs else ()), case
    (here / "uv.lock").touch()
    (here / "requirements.txt").mkdir()
    assert dependency_notes(here, tmp_path) == dependency_notes(tmp_path, here) == ()  # a file of one side alone


# --- The packages with another version in another interpreter's environment


def installed(packages: Path, name: str, version: str, files: str) -> None:
    about = packages / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    (about / "RECORD").write_text(f"{files},,\n{about.name}/METADATA,,\n", encoding="utf-8")
    # importlib_metadata, which Dask brings, tells only of files that are there.
    (packages / files).parent.mkdir(exist_ok=True)
    (packages / files).touch()


def test_packages_that_differ_are_listed_by_what_they_import_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(packages_of(tmp_path / "old"), "slow-lib", "1.0", "slow/parse.py")
    installed(packages_of(tmp_path / "old"), "same", "1.0", "same.py")
    installed(packages_of(tmp_path / "old"), "only-there", "1.0", "there.py")
    installed(tmp_path / "here", "slow-lib", "2.0", "slow_lib/parse.py")
    installed(tmp_path / "here", "same", "1.0", "same.py")
    monkeypatch.syspath_prepend(tmp_path / "here")
    python = tmp_path / "old" / "bin" / "python"

    assert changed_packages(python) == {"slow": "slow-lib 1.0 → 2.0", "slow_lib": "slow-lib 1.0 → 2.0"}
    assert environment_notes(python) == ("different packages: slow-lib 1.0 → 2.0",)
    assert environment_notes(tmp_path / "bin" / "python") == ()
