"""Where the code of one side of a comparison lives: the tree it is read from, and the Python that runs it.

Most servers run what is here. The other side of an A/B comparison runs another tree, or another interpreter: each path
of this side then has a counterpart there.
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

__all__ = ("HERE", "CodeTree", "is_of_the_interpreter")

_OF_ONE_PYTHON = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Environment variables that another interpreter is not to take from this one's."""
_FINDER_PREFIX = "__editable___"
"""How setuptools calls the modules that find editable installs; each has a `MAPPING` of names to paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """The code of one side; the default is the code as it is here. Its methods look, and change nothing."""

    title: str = "this tree"
    """How messages call it: `origin/main (1a2b3c4)`, `../old`, `python /opt/py/bin/python`."""
    root: Path | None = None
    """The top of the tree on this side. None leaves every path as it is."""
    base: Path | None = None
    """The top of the tree that takes its place."""
    python: str | None = None
    """Another interpreter, with its own environment."""

    @property
    def is_here(self) -> bool:
        """Whether it is the code of the test run itself."""
        return self.base is None and self.python is None

    @property
    def interpreter(self) -> str:
        """The Python that runs this side."""
        return self.python or sys.executable

    def path(self, entry: Path) -> Path:
        """Returns the counterpart of a path below the root, where there is one; otherwise the path as it is.

        An environment that lies in the tree, such as `.venv`, has none: both sides run with the same one.
        """
        inner = self._inner(entry)
        if inner is None or self.base is None:
            return entry
        counterpart = self.base / inner
        return counterpart if counterpart.exists() else entry

    def cwd(self) -> Path:
        """Returns the working directory of this side."""
        return self.path(Path.cwd())

    def word(self, text: str) -> str:
        """Returns a word of a command, or the value of an environment variable, with the paths in it mapped.

        They are seen where they are absolute: alone, in a list as in PATH, or behind a `=`, as in an option.
        """
        option, equals, value = ("", "", text) if Path(text).is_absolute() else text.rpartition("=")
        entries = value.split(os.pathsep)
        if all(Path(entry).is_absolute() for entry in entries):
            return option + equals + os.pathsep.join(map(self._mapped, entries))
        return text

    def sys_path(self, entries: Iterable[str]) -> tuple[str | None, ...]:
        """Returns the `sys.path` of this side for that of the test run; None stands for the interpreter's own entries.

        What belongs to the interpreter of the test run, as its site-packages, is never mapped, and is nothing for
        another interpreter. That one's own packages come first, so that a version that is installed there is used,
        unless there is a tree whose code was asked for.
        """
        if self.is_here:
            return tuple(entries)
        paths = [Path(entry).absolute() for entry in entries]
        found = map(str, self._moved(_found_by_editable_installs()))
        if self.python is None:
            return (*(str(self.path(path)) for path in paths), *found)
        code = (*(str(self.path(path)) for path in paths if not is_of_the_interpreter(path)), *found)
        return (None, *code) if self.base is None else (*code, None)

    def env(self, env: Mapping[str, str], *, asked: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment variables of this side's processes for those of the test run.

        What the user asked for stays, with its paths mapped. PYTHONPATH leads to the code of this side: that of
        editable installs too, which would otherwise be found here by any Python program.
        """
        if self.is_here:
            return dict(env)
        result = {name: value for name, value in env.items() if self.python is None or name not in _OF_ONE_PYTHON}
        if "PWD" in result:
            result["PWD"] = str(self.cwd())
        if self.python is not None:
            programs = str(Path(self.python).parent)
            result["PATH"] = os.pathsep.join((programs, *filter(None, [result.get("PATH")])))
        result |= {name: self.word(value) for name, value in asked.items()}
        if self.base is not None:
            editable = (*_listed_by_editable_installs(), *_found_by_editable_installs())
            named = result.get("PYTHONPATH", "").split(os.pathsep)
            entries = [entry for entry in (*map(self._mapped, named), *map(str, self._moved(editable))) if entry]
            if entries:
                result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
        return result

    def holds(self, file: Path) -> bool:
        """Returns whether the file itself, links followed, is of the tree that takes the root's place."""
        if self.base is None:
            return False
        file, base = file.resolve(), self.base.resolve()
        return _is_of(file, base, base if self.root is None else self.root.resolve())

    def is_only_here(self, file: Path) -> bool:
        """Returns whether the file is of the tree of this side, and the other tree has none in its place."""
        inner = self._inner(file)
        return inner is not None and self.base is not None and not (self.base / inner).exists()

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Returns those of the files that are of the tree of this side, though the other tree has them too."""
        if self.root is None or self.base is None:
            return ()
        top = self.root.resolve()
        paths = [Path(file) for file in files]
        below = {directory for directory in {path.parent for path in paths} if directory.resolve().is_relative_to(top)}
        return tuple(
            str(path) for path in paths if path.parent in below and self.path(path) != path and not self.holds(path)
        )

    def _moved(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Returns the counterparts of those paths that have one."""
        return tuple(self.path(path) for path in paths if self.path(path) != path)

    def _inner(self, path: Path) -> Path | None:
        """Returns the path from the root on; None where it is not below the root, or has nothing to do with the code.

        Paths are compared as they are written, and with links followed: the top of a repository is told without any.
        """
        if self.root is None or self.base is None or is_of_the_interpreter(path, top=self.root):
            return None
        for written in (_absolute, Path.resolve):
            one, root, base = written(path), written(self.root), written(self.base)
            if _is_of(one, root, base):
                return one.relative_to(root)
        return None

    def _mapped(self, text: str) -> str:
        """Returns the counterpart of what is an absolute path, and anything else letter by letter."""
        path = Path(text)
        return text if not path.is_absolute() or self.path(path) == path else str(self.path(path))


HERE = CodeTree()
"""The code of the test run."""


def is_of_the_interpreter(path: Path, *, top: Path | None = None) -> bool:
    """Returns whether the path belongs to the Python of this process: its library, its packages.

    Its whole environment, programs too, where that lies below the given top of a tree.
    """
    path = _absolute(path)
    if any(path.is_relative_to(directory) for directory in _directories_of_the_interpreter()):
        return True
    environment = Path(sys.prefix)
    return top is not None and top in environment.parents and path.is_relative_to(environment)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 # which knows what `..` means; Path.absolute does not


def _is_of(path: Path, tree: Path, other: Path) -> bool:
    """Returns whether the path is of a tree, and not of the other one, which may lie in it."""
    nested = other != tree and other.is_relative_to(tree)
    return path.is_relative_to(tree) and not (nested and path.is_relative_to(other))


@cache
def _directories_of_the_interpreter() -> tuple[Path, ...]:
    library = sysconfig.get_paths()
    archive = Path(library["stdlib"]).with_name(f"python{sys.version_info.major}{sys.version_info.minor}.zip")
    found = {archive, Path(library["stdlib"]), Path(library["platstdlib"]), *_package_directories()}
    return tuple(found | {directory.resolve() for directory in found})


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
    """Yields the directories in which the finders of setuptools find what is on no `sys.path`."""
    for name, module in sorted(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith(_FINDER_PREFIX) else None
        for dotted, path in (mapping or {}).items():
            yield Path(path).parents[dotted.count(".")]
