"""Where the code of one side of a comparison lives: the tree it is read from, and the Python that runs it.

Most servers run the code of the test run. The other side of an A/B comparison runs another tree, or by another
interpreter. Paths of this side then have counterparts there.
"""

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
"""Environment variables that are for one interpreter, and not for another one."""
_PACKAGE = Path(__file__).parents[1]
_FINDER_PREFIX = "__editable___"
"""How the names of modules begin by which setuptools finds editable installs. Each has a `MAPPING`: names to paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """The code of one side; the default is that of the test run. Its methods only read."""

    title: str = "this tree"
    """How messages call it: `origin/main (1a2b3c4)`, `../old`, `python /opt/py/bin/python`."""
    here: Path | None = None
    """The top of the tree that the test run is in. None leaves every path as it is."""
    there: Path | None = None
    """The top of the tree that takes its place, on the other side."""
    python: str | None = None
    """Another interpreter, with its own environment."""
    url: str | None = None
    """A server that runs already, in place of code that is booted."""

    @property
    def is_here(self) -> bool:
        """Whether it is the code of the test run itself."""
        return self.there is None and self.python is None and self.url is None

    @property
    def interpreter(self) -> str:
        """The Python that runs this side."""
        return self.python or sys.executable

    def path(self, entry: Path) -> Path:
        """Returns the counterpart of a path in the tree, where there is one; otherwise the path as it is.

        A virtual environment in the tree, such as `.venv`, has none: both sides run with it.
        """
        inner = self._inner(entry)
        if inner is None or self.there is None:
            return entry
        counterpart = self.there / inner
        return counterpart if counterpart.exists() else entry

    def cwd(self) -> Path:
        """Returns the working directory of this side."""
        return self.path(Path.cwd())

    def word(self, text: str) -> str:
        """Returns a word of a command, or the value of an environment variable, with the paths in it mapped.

        Only absolute paths are seen: alone, in a list as in PATH, or behind a `=`, as in an option.
        """
        option, equals, value = ("", "", text) if Path(text).is_absolute() else text.rpartition("=")
        entries = value.split(os.pathsep)
        if all(Path(entry).is_absolute() for entry in entries):
            return option + equals + os.pathsep.join(map(self._mapped, entries))
        return text

    def sys_path(self, entries: Iterable[str]) -> tuple[str | None, ...]:
        """Returns the `sys.path` of this side for that of the test run; None stands for the interpreter's own entries.

        What belongs to the interpreter of the test run, such as its site-packages, is never mapped. Another interpreter
        does not get it. Its own packages come first, so that a version installed there is used, unless the code of a
        tree was asked for.
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

        What the user asked for stays, with its paths mapped. PYTHONPATH leads to the code of this side, also to that of
        editable installs: any Python program would otherwise find it in the tree of the test run.
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
        """Returns whether the file itself, links followed, is of the tree on the other side."""
        if self.there is None:
            return False
        there = self.there.resolve()
        return _is_of(file.resolve(), there, there if self.here is None else self.here.resolve())

    def is_only_here(self, file: Path) -> bool:
        """Returns whether the file is of the tree here, and the tree there has none in its place."""
        inner = self._inner(file)
        return inner is not None and self.there is not None and not (self.there / inner).exists()

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Returns those of the files that are of the tree here, though the tree there has them too."""
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

    def _inner(self, path: Path) -> Path | None:
        """Returns the path from the top on; None where it is not in the tree, or belongs to the interpreter.

        Paths are compared as they are written, and then with links followed: Git names the top of a repository so.
        """
        if self.here is None or self.there is None or is_of_the_interpreter(path, top=self.here):
            return None
        for written in (_absolute, Path.resolve):
            one, here, there = written(path), written(self.here), written(self.there)
            if _is_of(one, here, there):
                return one.relative_to(here)
        return None

    def _mapped(self, text: str) -> str:
        """Returns the counterpart of an absolute path, and any other text as it is."""
        path = Path(text)
        return text if not path.is_absolute() or self.path(path) == path else str(self.path(path))


HERE = CodeTree()
"""The code of the test run."""


def is_of_the_interpreter(path: Path, *, top: Path | None = None) -> bool:
    """Returns whether the path belongs to the Python of this process: its library, its packages.

    All of its virtual environment counts, programs too, where that lies below the given top of a tree.
    """
    path = _absolute(path)
    directories = _directories_of_the_interpreter(sys.prefix, site.getusersitepackages())
    if any(path.is_relative_to(directory) for directory in directories):
        return True
    environment = Path(sys.prefix)
    return top is not None and top in environment.parents and path.is_relative_to(environment)


def is_of_the_user(file: str) -> bool:
    """Returns whether a line of a traceback in this file is the user's own code: not this package's, not Python's."""
    path = Path(file)
    return path.is_absolute() and not path.is_relative_to(_PACKAGE) and not is_of_the_interpreter(path)


def is_installed(path: Path) -> bool:
    """Returns whether the path is that of an installed package: in a directory that pip installs into."""
    directories = _installed_in(sys.prefix, site.getusersitepackages())
    return any(_absolute(path).is_relative_to(directory) for directory in directories)


def outside_code(files: Iterable[str], tree: CodeTree) -> tuple[str, ...]:
    """Returns the directories of files that the server of a tree loaded from outside it, shortest first.

    No comparison of trees sees that code, and both sides run the same: editable installs elsewhere, directories on
    `sys.path`, and, on the side of another tree, what Git ignores here. The interpreter's own is left out. A package
    counts by the directory it lies in, links followed; none lies in another. The working directory of a command, which
    is among its files, is no code.
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
def _directories_of_the_interpreter(_prefix: str, _user_packages: str) -> tuple[Path, ...]:
    """Returns the directories of this Python. The arguments are what a program may set, so that it is known anew."""
    library = sysconfig.get_paths()
    archive = Path(library["stdlib"]).with_name(f"python{sys.version_info.major}{sys.version_info.minor}.zip")
    found = {archive, Path(library["stdlib"]), Path(library["platstdlib"]), *_package_directories()}
    return tuple(found | {directory.resolve() for directory in found})


@cache
def _installed_in(_prefix: str, _user_packages: str) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(place for one in _package_directories() for place in (one, one.resolve())))


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
