"""Finds the old code of a comparison: a commit, a directory, a server's URL or an interpreter."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import run
from pytest_fileperf.plan.network import URL_STARTS, url_problem
from pytest_fileperf.plan.request import without_queries
from pytest_fileperf.versions.packages import installed_packages, name_and_version, packages_of
from pytest_fileperf.versions.repository import NO_GIT, Repository, find_repository, is_git_installed
from pytest_fileperf.versions.tree import CodeTree

_PYTHON = "python:"
_OLDEST = (3, 11)
"""The oldest Python that can run this package."""
_ABOUT_PYTHON = "import sys; sys.stdout.write('%d %d %s' % (sys.version_info[0], sys.version_info[1], sys.prefix))"
"""A program that prints Python's version and its environment's directory. Even old Pythons can run it."""
_PATIENCE_S = 30.0
"""How long an interpreter may take to report its version."""


def parse_against(text: str, *, cwd: Path, rootdir: Path, option: str = "against") -> CodeTree:
    """Returns the code that `text` names: `python:INTERPRETER`, a URL, a directory relative to `cwd`, or a commit.

    The commit is in the repository of `rootdir`. Raises PlanError if the code doesn't exist. The error names
    `--fileperf-{option}`.
    """
    text = text.strip()
    try:
        if not text:
            raise PlanError("Give a Git ref, a directory, a URL or python:INTERPRETER")
        if text.startswith(_PYTHON):
            return _interpreter(text.removeprefix(_PYTHON), cwd)
        if text.lower().startswith(URL_STARTS):
            if problem := url_problem(text):
                raise PlanError(problem)
            return CodeTree(title=text, url=text)
        return _ref_or_directory(text, cwd, rootdir)
    except PlanError as error:
        raise PlanError(*error.problems, where=f"--fileperf-{option}={without_queries(text)}") from error.__cause__
    except (OSError, RuntimeError) as error:  # names that are too long, other users' directories, ~nobody
        raise PlanError(str(error), where=f"--fileperf-{option}={without_queries(text)}") from error


class Checkout:
    """Writes a commit's files to a directory that exists only within the `with` block.

    Servers of this code must end within the block. The user's files, index, branches and stash stay as they are.
    """

    # This isn't a generator function: in a fork, a discarded generator would run its `finally` and remove the files.

    def __init__(self, code_tree: CodeTree, rootdir: Path) -> None:
        """The commit is in the Git repository that contains `rootdir`."""
        self._code_tree, self._rootdir = code_tree, rootdir
        self._directory: Path | None = None

    def __enter__(self) -> CodeTree:
        title, here, commit = self._code_tree.title, self._code_tree.here, self._code_tree.commit
        if here is None or commit is None:
            return self._code_tree
        if (repository := find_repository(self._rootdir)) is None:
            raise PlanError(f"{self._rootdir} is no longer in a Git repository")
        self._directory = scratch.make("base")
        tree = self._directory / here.name  # some code depends on its directory's name
        try:
            empty = repository.copy(commit, tree, index=self._directory / ".index")
        except BaseException:
            self.__exit__()
            raise
        notes = (f"the submodule {path} is empty in {title}, because Git lacks its files" for path in empty)
        return CodeTree(title=title, here=here, there=tree, notes=(*self._code_tree.notes, *notes))

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            scratch.remove(self._directory)


def _ref_or_directory(text: str, cwd: Path, rootdir: Path) -> CodeTree:
    directory = Path(os.path.abspath(cwd / text))  # noqa: PTH100 # Path.absolute keeps `..`
    # No ref begins with `..`, which Git takes for a range.
    if Path(text).is_absolute() or Path(text).parts[:1] in ((), ("..",)) or text.startswith(("./", f".{os.sep}")):
        if directory.is_dir():
            return _directory(text, directory, rootdir)
        raise PlanError(_no_directory(directory))
    repository = _usable_repository(rootdir) if directory.is_dir() else find_repository(rootdir)
    commit = None if repository is None else _commit(repository, text)
    if repository is not None and commit is not None:
        title = commit[:7] if commit.startswith(text) else f"{text} ({commit[:7]})"
        both = f"{text!r} is a Git ref and a directory, and the ref is used. Write ./{text} for the directory"
        notes = (both,) if directory.is_dir() else ()
        return CodeTree(title=title, here=repository.top, commit=commit, notes=notes)
    if directory.is_dir():
        return _directory(text, directory, rootdir)
    if repository is None:
        why = f"{rootdir} isn't in a Git repository" if is_git_installed() else NO_GIT
        raise PlanError(f"{_no_directory(directory)}, and {text!r} isn't a Git ref: {why}")
    raise PlanError(_why_no_commit(repository, text))


def _usable_repository(directory: Path) -> Repository | None:
    """Returns the repository that contains the directory. None without one, or if Git refuses to read it."""
    try:
        return find_repository(directory)
    except PlanError:
        return None


def _directory(text: str, directory: Path, rootdir: Path) -> CodeTree:
    there, here = _usable_repository(directory), _usable_repository(rootdir)
    is_whole = here is not None and there is not None and there.top.samefile(directory)
    top = here.top if is_whole and here is not None else rootdir
    if top.samefile(directory):
        raise PlanError(
            f"{directory} contains the code under test, so both versions would be the same (--fileperf-aa compares "
            "it with itself)"
        )
    return CodeTree(title=text, here=top, there=directory)


def _no_directory(directory: Path) -> str:
    if directory.exists():
        return f"{directory} is a file, not a directory (write an interpreter as {_PYTHON}{directory})"
    return f"there is no directory {directory}"


def _commit(repository: Repository, text: str) -> str | None:
    """Returns the full hash of the commit that the text names. None if the text names no commit."""
    if text.startswith(("-", "^")):  # Git takes these for options and exclusions
        return None
    named = repository.answers("rev-parse", "--verify", text)
    return None if named is None else repository.answers("rev-parse", "--verify", f"{named}^{{commit}}")


def _why_no_commit(repository: Repository, text: str) -> str:
    if not repository.has_commits():
        return f"the Git repository {repository.top} has no commit yet. Commit the version to compare with"
    kind = None if text.startswith(("-", "^")) else repository.answers("cat-file", "-t", text)
    if kind is not None:
        return f"{text!r} is a {kind} in Git, not a commit. Name a branch, a tag or a commit"
    problem = f"{text!r} is neither a directory nor a ref in the Git repository {repository.top}"
    if advice := repository.how_to_get_history(_fetch(repository, text, "--depth=1")):
        return f"{problem}; {advice}"
    known = (repository.answers("for-each-ref", "--format=%(refname:short)") or "").splitlines()
    if near := difflib.get_close_matches(text, known, n=3):
        return f"{problem}. Did you mean {' or '.join(near)}?"
    fetch = _fetch(repository, text)
    return (
        f"{problem}. Run {fetch}is it misspelt?" if fetch else f"{problem}. Is it misspelt, or older than the history?"
    )


def _fetch(repository: Repository, text: str, *options: str) -> str:
    """Returns the command that fetches the ref, for a message. Empty if no command can do that."""
    if text.startswith(("-", "^")) or any(sign in text for sign in "~^@: "):
        return ""
    remotes = (repository.answers("remote") or "").splitlines()
    if not remotes:
        return ""
    remote, slash, branch = text.partition("/")
    if slash and remote in remotes:
        source = f"{remote} {branch}:refs/remotes/{text}"
    else:
        source = f"{'origin' if 'origin' in remotes else remotes[0]} {text}"
    return f"`{' '.join(('git fetch', *options, source))}`, or "


def _interpreter(name: str, cwd: Path) -> CodeTree:
    if not name:
        raise PlanError(f"Name the interpreter, as in {_PYTHON}/path/to/venv/bin/python")
    found = shutil.which(name) if Path(name).name == name and not (cwd / name).exists() else None
    python = Path(os.path.abspath(cwd / Path(found or name).expanduser()))  # noqa: PTH100 # a venv's python is a link
    if python.is_dir():
        raise PlanError(
            f"{python} is a directory. Name the interpreter in it, as in {_PYTHON}{python / 'bin' / 'python'}"
        )
    if not python.exists():
        raise PlanError(f"there is no interpreter {python}")
    if not os.access(python, os.X_OK):
        raise PlanError(f"{python} isn't executable. Is it an interpreter?")
    code_tree = CodeTree(title=f"python {python}", python=str(python))
    major, minor, prefix = _about(python, code_tree)
    if (major, minor) < _OLDEST:
        raise PlanError(f"{python} is Python {major}.{minor}, but at least {'.'.join(map(str, _OLDEST))} is needed")
    if Path(prefix) == Path(sys.prefix):
        raise PlanError(
            f"{python} belongs to pytest's own environment, {prefix}, so both versions would be the same "
            "(--fileperf-aa compares code with itself)"
        )
    return code_tree


def _about(python: Path, code_tree: CodeTree) -> tuple[int, int, str]:
    """Returns the interpreter's major and minor version, and the directory of its environment. Raises PlanError."""
    command = (str(python), "-E", "-c", _ABOUT_PYTHON)
    try:
        done = run(command, env=code_tree.env(os.environ, given={}), timeout_s=_PATIENCE_S)
        done.check_returncode()
        major, minor, prefix = os.fsdecode(done.stdout).split(" ", 2)
        return int(major), int(minor), prefix
    except subprocess.TimeoutExpired:
        raise PlanError(f"{python} did not report its version within {_PATIENCE_S:g} s") from None
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise PlanError(f"{python} does not work as a Python interpreter ({error}). Give another one") from error


# --- The commit that is checked out, for stored baselines and reports


def commit_info(directory: Path) -> dict[str, object] | None:
    """Returns facts about the commit that is checked out, with pytest-benchmark's keys. None without a commit.

    `id` is the full hash, `time` and `author_time` are ISO 8601, and `branch` is a name or `(detached head)`. `dirty`
    is True if tracked files differ from the commit.
    """
    repository = _usable_repository(directory)
    shown = None if repository is None else repository.answers("show", "-s", "--format=%H%n%cI%n%aI", "HEAD")
    if repository is None or shown is None:
        return None
    commit, time, author_time = shown.splitlines()[-3:]  # Git may show a signature above
    branch = repository.answers("rev-parse", "--abbrev-ref", "HEAD")
    return {
        "id": commit,
        "time": time,
        "author_time": author_time,
        "dirty": bool(repository.answers("status", "--porcelain", "--untracked-files=no")),
        "branch": "(detached head)" if branch == "HEAD" else branch,
    }


def project_name(directory: Path) -> str:
    """Returns the name of the remote repository `origin`. Without a remote, returns the directory's name."""
    repository = _usable_repository(directory)
    remote = "" if repository is None else repository.answers("config", "--local", "remote.origin.url") or ""
    # A URL may contain a login before its host, and a token after its path.
    path = re.sub(r"^\w+://[^/]*|[?#].*|[/\s]+$", "", remote)
    name = re.split(r"[/:\\]", path)[-1].removesuffix(".git")
    return name if name and "@" not in name else directory.name


# --- Whether two trees need the same packages, and which packages differ between two environments

_SHOWN = 8
_FILES = (
    "pyproject.toml", "requirements*.txt", "setup.cfg", "setup.py",
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock",
)  # fmt: skip


def dependency_notes(here: Path, there: Path) -> tuple[str, ...]:
    """Returns a sentence for each dependency file, such as pyproject.toml, that differs between the directories."""
    return tuple(
        f"{name} differs between the versions, but both run with the packages installed here. To compare "
        "dependencies, use --fileperf-against=python:…"
        for pattern in _FILES
        for name in sorted(path.name for path in here.glob(pattern) if path.is_file())
        if (there / name).is_file() and _differs(here / name, there / name)
    )


def environment_notes(python: Path) -> tuple[str, ...]:
    changed = sorted(set(changed_packages(python).values()))
    more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return (f"different packages: {', '.join(changed[:_SHOWN])}{more}",) if changed else ()


def changed_packages(python: Path) -> dict[str, str]:
    """Returns the packages whose versions differ between the environment of `python` and this one.

    An entry is for example `{"PIL": "pillow 10.0 → 11.0"}`. The key is an importable file or directory. The last
    version is this environment's. Empty if `python` has another Python version.
    """
    there = packages_of(python.parent.parent)
    if not there.is_dir():
        return {}
    old, new = dict(map(name_and_version, distributions(path=[str(there)]))), installed_packages()
    changed: dict[str, str] = {}
    for distribution in (*distributions(path=[str(there)]), *distributions()):
        name, _ = name_and_version(distribution)
        was, now = old.get(name), new.get(name, "").partition(" ")[0]
        if was and now and was != now and name != "pytest-fileperf":  # the copy here serves both old and new code
            tops = {file.parts[0] for file in distribution.files or () if file.parts}
            imported = sorted(top for top in tops if re.fullmatch(r"\w+(\.py|\.so)?", top))
            changed |= dict.fromkeys(imported, f"{name} {was} → {now}")
    return changed


def _differs(path: Path, other: Path) -> bool:
    try:
        return _content(path) != _content(other)
    except OSError:  # it cannot be read, so no package came from it
        return False


def _content(path: Path) -> object:
    """Returns a file's bytes. For a pyproject.toml, returns only its values about dependencies and the build."""
    content = path.read_bytes()
    if path.name != "pyproject.toml":
        return content
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except ValueError:
        return content
    project, poetry = _table(tables, "project"), _table(_table(tables, "tool"), "poetry")
    return (
        [project.get(name) for name in ("dependencies", "optional-dependencies")],
        [poetry.get(name) for name in ("dependencies", "dev-dependencies", "group", "extras")],
        tables.get("build-system"),
    )


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = tables.get(name)
    return table if isinstance(table, dict) else {}
