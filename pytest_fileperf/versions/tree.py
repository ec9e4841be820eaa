"""Says where the old or the new code is, and which Python runs it."""

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
"""The prefix of setuptools' modules for editable installs. Each module has a `MAPPING` from names to paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """The old or the new code. The default is the code of the test run."""

    title: str = "this tree"
    """For messages: `origin/main (1a2b3c4)`, `../old`, `http://127.0.0.1:8000`, `python /opt/py/bin/python`."""
    here: Path | None = None
    """The top directory of the test run's code. If None, `path` returns every path unchanged."""
    there: Path | None = None
    """The top directory of the old code. None if the test run's files are used."""
    python: str | None = None
    """The old code's interpreter. None if the test run's interpreter is used."""
    url: str | None = None
    commit: str | None = None
    """The full hash of a commit or Git tree that is not checked out yet. Otherwise None."""
    tree: str = ""
    """The hash of the code's Git tree, which leaves out the baselines. Empty if unknown."""
    notes: tuple[str, ...] = ()
    """Sentences for users about surprises, such as missing files."""

    @property
    def is_here(self) -> bool:
        return self.there is None and self.python is None and self.url is None

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    def path(self, entry: Path) -> Path:
        """Returns the old code's path for `entry`, a path in the new code. If the old code lacks it, returns `entry`.

        Paths in the virtual environment stay unchanged, because old and new code share the environment.
        """
        counterpart = self._counterpart(entry)
        return entry if counterpart is None or not counterpart.exists() else counterpart

    def cwd(self) -> Path:
        return self.path(Path.cwd())

    def word(self, text: str) -> str:
        """Replaces absolute paths in a text, as `path` does. Other texts stay unchanged.

        Examples of such texts are `/app/x.toml`, `/app/lib:/app/src` and `--config=/app/x.toml`.
        """
        option, equals, value = ("", "", text) if Path(text).is_absolute() else text.rpartition("=")
        entries = value.split(os.pathsep)
        if all(Path(entry).is_absolute() for entry in entries):
            return option + equals + os.pathsep.join(map(self._mapped, entries))
        return text

    def sys_path(self, entries: Iterable[str]) -> tuple[str | None, ...]:
        """Returns this code's `sys.path`, made from the test run's `entries`.

        If the code has another interpreter, None stands for that interpreter's own entries, such as site-packages.
        """
        if self.is_here:
            return tuple(entries)
        paths = [Path(entry).absolute() for entry in entries]
        found = map(str, self._moved(_found_by_editable_installs()))
        if self.python is None:
            return (*(str(self.path(path)) for path in paths), *found)
        code = (*(str(self.path(path)) for path in paths if not is_of_the_interpreter(path)), *found)
        # Without another directory, the old code is the version that the other interpreter has installed.
        return (None, *code) if self.there is None else (*code, None)

    def env(self, env: Mapping[str, str], *, given: Mapping[str, str]) -> dict[str, str]:
        """Returns this code's environment variables, made from the test run's `env`.

        In the user's own variables `given`, paths are replaced as by `word`.
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
            # Otherwise, Python would find editable installs in the test run's code.
            editable = (*_listed_by_editable_installs(), *_found_by_editable_installs())
            named = result.get("PYTHONPATH", "").split(os.pathsep)
            entries = [entry for entry in (*map(self._mapped, named), *map(str, self._moved(editable))) if entry]
            if entries:
                result["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
        return result

    def holds(self, file: Path) -> bool:
        """Returns whether the tree `there` contains the file, after links are followed."""
        if self.there is None:
            return False
        there = self.there.resolve()
        return _is_of(file.resolve(), there, there if self.here is None else self.here.resolve())

    def is_only_here(self, file: Path) -> bool:
        counterpart = self._counterpart(file)
        return counterpart is not None and not counterpart.exists()

    def strays(self, files: Iterable[str]) -> tuple[str, ...]:
        """Returns the files in the directory `here` for which the directory `there` has a counterpart."""
        if self.here is None or self.there is None:
            return ()
        top = self.here.resolve()
        paths = [Path(file) for file in files]
        below = {directory for directory in {path.parent for path in paths} if directory.resolve().is_relative_to(top)}
        return tuple(
            str(path) for path in paths if path.parent in below and self.path(path) != path and not self.holds(path)
        )

    def _moved(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """Returns the results of `path`, without unchanged paths."""
        # Another interpreter lacks this one's editable installs, so it also needs unchanged paths.
        return tuple(self.path(path) for path in paths if self.python is not None or self.path(path) != path)

    def _counterpart(self, path: Path) -> Path | None:
        """Returns the path's counterpart in the directory `there`. None if the path isn't in the code."""
        if self.here is None or self.there is None or is_of_the_interpreter(path, top=self.here):
            return None
        for written in (_absolute, Path.resolve):  # Git follows links in a repository's path
            one, here, there = written(path), written(self.here), written(self.there)
            if _is_of(one, here, there):
                return self.there / one.relative_to(here)
        return None

    def _mapped(self, text: str) -> str:
        path = Path(text)
        return text if not path.is_absolute() or self.path(path) == path else str(self.path(path))


HERE = CodeTree()


def is_of_the_interpreter(path: Path, *, top: Path | None = None) -> bool:
    """Returns whether the path belongs to this Python, or to its virtual environment if that is below `top`."""
    path = _absolute(path)
    if any(path.is_relative_to(directory) for directory in _directories(sys.prefix, site.getusersitepackages())):
        return True
    environment = Path(sys.prefix)
    return top is not None and top in environment.parents and path.is_relative_to(environment)


def is_of_the_user(file: str) -> bool:
    """Returns whether a traceback's file is the user's code, and not this package's or Python's."""
    path = Path(file)
    return path.is_absolute() and not path.is_relative_to(_PACKAGE) and not is_of_the_interpreter(path)


def is_installed(path: Path) -> bool:
    directories = _directories(sys.prefix, site.getusersitepackages(), with_library=False)
    return any(_absolute(path).is_relative_to(directory) for directory in directories)


def outside_code(files: Iterable[str], tree: CodeTree) -> tuple[str, ...]:
    """Returns the directories of loaded `files` that belong neither to the code nor to the interpreter.

    Old and new code share such files, so a comparison misses their changes. Only outermost directories are returned,
    the shortest path first.
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
    """Returns the directory from which Python imports a module in `directory`: above the outermost `__init__.py`."""
    while (directory / "__init__.py").exists():
        directory = directory.parent
    return directory


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 # Path.absolute keeps `..`


def _is_of(path: Path, tree: Path, other: Path) -> bool:
    """Returns whether the path is in `tree`. If `other` lies within `tree`, paths in `other` do not count."""
    nested = other != tree and other.is_relative_to(tree)
    return path.is_relative_to(tree) and not (nested and path.is_relative_to(other))


@cache
def _directories(_prefix: str, _user_packages: str, *, with_library: bool = True) -> frozenset[Path]:
    """Returns this Python's directories, as written and with links followed.

    The unused arguments are part of the cache's key, because a program may change these values.
    """
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
    for directory in _package_directories():
        for file in sorted(directory.glob("*.pth")):
            with suppress(OSError):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                yield from (Path(line) for line in lines if Path(line).is_absolute())


def _found_by_editable_installs() -> Iterator[Path]:
    """Yields the directories in which setuptools's finders find modules outside of `sys.path`."""
    for name, module in sorted(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith(_FINDER_PREFIX) else None
        for dotted, path in (mapping or {}).items():
            yield Path(path).parents[dotted.count(".")]
