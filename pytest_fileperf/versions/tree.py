"""Where the code of one side of a comparison lives: the tree it is read from, and the Python that runs it."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_OF_ONE_PYTHON = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_PACKAGE = Path(__file__).parents[1]
_FINDER_PREFIX = "__editable___"
"""How the names of modules begin by which setuptools finds editable installs. Each has a `MAPPING`: names to paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """The code of one side; the default is that of the test run. Its methods only read."""

    title: str = "this tree"
    """How messages call it: `origin/main (1a2b3c4)`, `../old`, `http://127.0.0.1:8000`, `python /opt/py/bin/python`."""
    here: Path | None = None
    """The top of the tree that the test run is in. None leaves every path as it is."""
    there: Path | None = None
    """The top of the tree that takes its place, on the other side."""
    python: str | None = None
    """Another interpreter, with its own environment."""
    url: str | None = None
    """A server that runs already, in place of code that is booted."""
    commit: str | None = None
    """The full hash of a commit, or of a tree, whose files are there within a `Checkout` only."""
    tree: str = ""
    """Its hash as baselines name code, if it is known."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, who may have meant something else, or misses something in it."""

    @property
    def is_here(self) -> bool:
        return self.there is None and self.python is None and self.url is None

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    def path(self, entry: Path) -> Path:
        """Returns the path's counterpart in the tree there, or the path as it is if there is none.

        A virtual environment in the tree, such as `.venv`, has none: both sides run with it.
        """
        counterpart = self._counterpart(entry)
        return entry if counterpart is None or not counterpart.exists() else counterpart

    def cwd(self) -> Path:
        return self.path(Path.cwd())

    def word(self, text: str) -> str:
        """Returns a text with the counterparts of absolute paths: alone, in a list as in PATH, or behind a `=`."""
        option, equals, value = ("", "", text) if Path(text).is_absolute() else text.rpartition("=")
        entries = value.split(os.pathsep)
        if all(Path(entry).is_absolute() for entry in entries):
            return option + equals + os.pathsep.join(map(self._mapped, entries))
        return text

    def sys_path(self, entries: Iterable[str]) -> tuple[str | None, ...]:
        """Returns the `sys.path` of this side for that of the test run; None stands for the interpreter's own entries.

        What belongs to this interpreter, such as its site-packages, is never mapped, and another one doesn't get it.
        That one's own packages come first, so that a version installed there is used, unless a tree was asked for.
        """
        if self.is_here:
            return tuple(entries)
        paths = [Path(entry).absolute() for entry in entries]
        found = map(str, self._moved(_found_by_editable_installs()))
        if self.python is None:
            return (*(str(self.path(path)) for path in paths), *found)
        code = (*(str(self.path(path)) for path in paths if not is_of_the_interpreter(path)), *found)
        return (None, *code) if self.there is None else (*code, None)

    def env(self, env: Mapping[str, str], *, given: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment variables of this side's processes for those of the test run.

        Those that the user has `given` stay, with their paths mapped. PYTHONPATH leads to the code of this side, even
        to editable installs: any Python program would otherwise find them in the tree of the test run.
        """
        if self.is_here:
            return dict(env)
        result = {name: value for name, value in env.items() if self.python is None or name not in _OF_ONE_PYTHON}
        if "PWD" in result:
            result["PWD"] = str(self.cwd())
        if self.python is not None:
            programs = str(Path(self.python).parent)
            result["PATH"] = os.pathsep.join((programs, *filter(None, [result.get("PATH")])))
        result |= {name: self.word(value) for name, value in given.items()}
        if self.there is not None:
            editable = (*_listed_by_editable_installs(), *_found_by_editable_installs())
            named = result.get("PYTHONPATH", "").split(os.pathsep)
            entries = [entry for entry in (*map(self._mapped, named), *map(str, self._moved(editable))) if entry]
            if entries:
                result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
        return result

    def holds(self, file: Path) -> bool:
        """Returns whether the file, links followed, is of the tree there."""
        if self.there is None:
            return False
        there = self.there.resolve()
        return _is_of(file.resolve(), there, there if self.here is None else self.here.resolve())

    def is_only_here(self, file: Path) -> bool:
        """Returns whether the tree here has the file, and the tree there has none in its place."""
        counterpart = self._counterpart(file)
        return counterpart is not None and not counterpart.exists()

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Returns the files of the tree here that the tree there has too."""
        if self.here is None or self.there is None:
            return ()
        top = self.here.resolve()
        paths = [Path(file) for file in files]
        below = {directory for directory in {path.parent for path in paths} if directory.resolve().is_relative_to(top)}
        return tuple(
            str(path) for path in paths if path.parent in below and self.path(path) != path and not self.holds(path)
        )

    def _moved(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Returns the counterparts of the directories of editable installs, without those that have none.

        Another interpreter gets those too, as they are: it has no editable installs of this one.
        """
        return tuple(self.path(path) for path in paths if self.python is not None or self.path(path) != path)

    def _counterpart(self, path: Path) -> Path | None:
        """Returns where the path would be there; None if it isn't in the tree here, or belongs to the interpreter.

        Paths are compared as they are written, and then with links followed, as Git names the top of a repository.
        """
        if self.here is None or self.there is None or is_of_the_interpreter(path, top=self.here):
            return None
        for written in (_absolute, Path.resolve):
            one, here, there = written(path), written(self.here), written(self.there)
            if _is_of(one, here, there):
                return self.there / one.relative_to(here)
        return None

    def _mapped(self, text: str) -> str:
        path = Path(text)
        return text if not path.is_absolute() or self.path(path) == path else str(self.path(path))


HERE = CodeTree()
"""The code of the test run."""


def is_of_the_interpreter(path: Path, *, top: Path | None = None) -> bool:
    """Returns whether the path belongs to the Python of this process: its library, its packages.

    All of its virtual environment counts, programs too, if that lies below the given top of a tree.
    """
    path = _absolute(path)
    if any(path.is_relative_to(directory) for directory in _directories(sys.prefix, site.getusersitepackages())):
        return True
    environment = Path(sys.prefix)
    return top is not None and top in environment.parents and path.is_relative_to(environment)


def is_of_the_user(file: str) -> bool:
    """Returns whether a line of a traceback in this file is the user's own code: not this package's, not Python's."""
    path = Path(file)
    return path.is_absolute() and not path.is_relative_to(_PACKAGE) and not is_of_the_interpreter(path)


def is_installed(path: Path) -> bool:
    """Returns whether the path is in a directory that pip installs into."""
    directories = _directories(sys.prefix, site.getusersitepackages(), with_library=False)
    return any(_absolute(path).is_relative_to(directory) for directory in directories)


def outside_code(files: Iterable[str], tree: CodeTree) -> tuple[str, ...]:
    """Returns the directories of files that the server of a tree loaded from outside it, shortest first.

    No comparison of trees sees that code, and both sides run the same: editable installs elsewhere, directories on
    `sys.path`, and, on the side of another tree, what Git ignores here. The interpreter's own files are left out, and
    the working directory of a command. A package counts by the directory it lies in, links followed; none is below
    another one.
    """
    if tree.here is None:
        return ()
    whole = tree if tree.there is not None else CodeTree(there=tree.here)
    outside = {
        import_directory(path.resolve().parent)
        for path in map(Path, files)
        if not (whole.holds(path) or is_of_the_interpreter(path) or is_of_the_interpreter(path.resolve()))
        and not path.is_dir()
    }
    tops = (directory for directory in outside if outside.isdisjoint(directory.parents))
    return tuple(sorted(map(str, tops), key=lambda top: (len(top), top)))


def import_directory(directory: Path) -> Path:
    """Returns the directory that a package is imported from: above the outermost `__init__.py`."""
    while (directory / "__init__.py").exists():
        directory = directory.parent
    return directory


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 # Path.absolute keeps `..`


def _is_of(path: Path, tree: Path, other: Path) -> bool:
    """Returns whether the path is of a tree, and not of the other tree, which may lie in the first."""
    nested = other != tree and other.is_relative_to(tree)
    return path.is_relative_to(tree) and not (nested and path.is_relative_to(other))


@cache
def _directories(_prefix: str, _user_packages: str, *, with_library: bool = True) -> frozenset[Path]:
    """Returns this Python's directories, links followed too. The two texts are what a program may set meanwhile."""
    found = set(_package_directories())
    if with_library:
        standard = Path(sysconfig.get_path("stdlib"))
        archive = standard.with_name(f"python{sys.version_info.major}{sys.version_info.minor}.zip")
        found |= {archive, standard, Path(sysconfig.get_path("platstdlib"))}
    return frozenset(found | {directory.resolve() for directory in found})


def _package_directories() -> tuple[Path, ...]:
    library = sysconfig.get_paths()
    names = (library["purelib"], library["platlib"], *site.getsitepackages(), site.getusersitepackages())
    return tuple(dict.fromkeys(map(Path, names)))


def _listed_by_editable_installs() -> Iterator[Path]:
    """Yields the directories that `.pth` files put on `sys.path`."""
    for directory in _package_directories():
        for file in sorted(directory.glob("*.pth")):
            with suppress(OSError):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                yield from (Path(line) for line in lines if Path(line).is_absolute())


def _found_by_editable_installs() -> Iterator[Path]:
    """Yields the directories in which the finders of setuptools find modules that are not on `sys.path`."""
    for name, module in sorted(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith(_FINDER_PREFIX) else None
        for dotted, path in (mapping or {}).items():
            yield Path(path).parents[dotted.count(".")]
