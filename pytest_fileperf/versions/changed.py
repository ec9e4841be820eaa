"""Decides whether a changed file can matter to a server, given the files that the server has loaded.

    known      the server's files when its baseline was stored, and the files of its test
    reached    the known files, and each module that a reached file names, because the server may import it later

A file names the module `app.db` if it contains the words `app` and `db`. The first word must be in an import or a
string. Only words are compared, not syntax. So too many files may count, but hardly ever too few.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

_WORD = re.compile(r"\w+")
_FIRST = re.compile(r"""\b(?:from|import)\s[^\n(]*(?:\([^)]*\))?|["'/][./]*\w+|[\s=]\w+(?=(?:[./]\w+)+[:"'])""")
"""Finds imports, strings, paths and commands. A module's first word must be in one of these.

Elsewhere, as in `app = FastAPI()`, the word `app` mostly isn't the package `app`.
"""
_MODULES = (".py", ".pyd", ".so")
_FINDERS = frozenset(("__import__", "import_module", "iter_modules", "walk_packages"))
"""A file with one of these words may import modules from its own package without naming them."""
_UNNAMED = re.compile(r"(?:^|/)(?:\.env[^/]*|gunicorn\.conf\.py|(?:site|user)customize\.py)\Z")
"""Files that Python and servers read although no file names them."""


class Change:
    """The files in which the new code differs from a commit."""

    def __init__(self, begun: str, changed: Mapping[str, str], paths: Iterable[str], top: Path) -> None:
        """`changed` has the paths that changed since the commit `begun`, each with Git's letter, such as `A` for added.

        `paths` are the new code's files. All paths are relative to the repository's top, with `/`. The path `top`
        contains no links.
        """
        self.begun, self.top = begun, top
        self._changed = dict(sorted(changed.items()))
        self._modules = sorted({path for path in (*paths, *changed) if path.endswith(_MODULES)})
        self._packages = {_directory(path) for path in self._modules if path.endswith("/__init__.py")}
        self._words: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._found: dict[tuple[frozenset[str], frozenset[str]], str] = {}

    def touching(self, loaded: Collection[str], of_test: Collection[str]) -> str:
        """Returns a changed file that may matter to the server or to its test. Otherwise empty."""
        key = frozenset(loaded), frozenset(of_test)
        if key not in self._found:  # many tests have the same server
            self._found[key] = next(self._touching(*key), "")
        return self._found[key]

    def _touching(self, loaded: frozenset[str], of_test: frozenset[str]) -> Iterator[str]:
        known = loaded | of_test
        yield from (path for path in self._changed if path in known or _UNNAMED.search(path))
        # Names in pytest's settings file need not be followed: `loaded` already has the app that this file names.
        sources = loaded | {path for path in of_test if path.endswith(_MODULES)}
        reached = self._reached(sources) if self._changed else set()
        directories = {_directory(path) for path in loaded if path.endswith(_MODULES)}
        for path, letter in self._changed.items():
            if path.endswith(_MODULES):
                is_new = letter == "A" and (_directory(path) in directories & self._packages or self._hides(path))
                matters = path in reached or is_new
            else:
                above = set(map(str, PurePosixPath(path).parents)) - {"."}
                matters = not above.isdisjoint(directories) or self._is_named(path, reached, directories)
            if matters:
                yield path

    def _is_named(self, path: str, reached: Iterable[str], directories: Collection[str]) -> bool:
        """Returns whether a file in `reached` names the file `path`, or a directory above `path`."""
        *above, name = path.split("/")
        # At the repository's top, the suffix is enough, as in `"*.html"`.
        is_beside = not above and "" in directories
        of_name = set(_WORD.findall(PurePosixPath(name).suffix if is_beside else name))
        of_above = [words for directory in above if (words := _WORD.findall(directory))]
        return any(
            (of_name and of_name <= words) or any(one[0] in first and words.issuperset(one) for one in of_above)
            for words, first in map(self._words_of, reached)
        )

    def _hides(self, path: str) -> bool:
        """Returns whether the new module `path` has the name of an installed or standard module."""
        names, installed = self._names_of(path, {self._root_of(path)}), [sysconfig.get_path("purelib")]
        is_outermost = len(names) == 1
        return is_outermost and (names[0] in sys.stdlib_module_names or bool(PathFinder.find_spec(names[0], installed)))

    def _reached(self, known: Collection[str]) -> set[str]:
        """Returns the known files, the modules that these files name, and so on from module to module."""
        # Python imports modules from the known files' directories, and from `sys.path`.
        entries = (Path(entry).resolve() for entry in sys.path)
        roots = {entry.relative_to(self.top).as_posix() for entry in entries if entry.is_relative_to(self.top)}
        roots = {"" if root == "." else root for root in roots} | {self._root_of(path) for path in known}
        index: dict[str, list[tuple[list[str], str]]] = {}
        for path in self._modules:
            if names := self._names_of(path, roots):
                index.setdefault(names[-1], []).append((names, path))
        reached, left = set(known), list(known)
        while left:
            path = left.pop()
            inside = f"{_directory(path)}/".removeprefix("/")
            words, first = (found | {*inside.split("/")} for found in self._words_of(path))  # for relative imports
            named = (pair for word in words & index.keys() for pair in index[word])
            found = {one for names, one in named if first.issuperset(names[:1]) and words.issuperset(names)}
            if not words.isdisjoint(_FINDERS):
                while (above := _directory(inside[:-1])) in self._packages:
                    inside = f"{above}/"
                found |= {one for one in self._modules if one.startswith(inside)}
            left += found - reached
            reached |= found
        return reached

    def _names_of(self, path: str, roots: Collection[str]) -> list[str]:
        """Returns a module's dotted name as words, such as `["app", "db"]`. Empty outside of `roots`."""
        root = self._root_of(path)
        while root not in roots:
            if not root:
                return []
            root = _directory(root)
        *above, name = path.removeprefix(root).removeprefix("/").split("/")
        stem = name.partition(".")[0]
        return above if stem == "__init__" else [*above, stem]

    def _root_of(self, path: str) -> str:
        directory = _directory(path)
        while directory in self._packages:
            directory = _directory(directory)
        return directory

    def _words_of(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Returns (a file's words, its words in matches of `_FIRST`). Empty for directories and data."""
        if path not in self._words:
            text, file = "", self.top / path
            with suppress(OSError):
                if file.is_file() and file.stat().st_size <= 1 << 20:  # larger files are data
                    text = file.read_text("utf-8", "replace")
            first = "\n".join(_FIRST.findall(text)) if path.endswith(_MODULES) else text
            self._words[path] = frozenset(_WORD.findall(text)), frozenset(_WORD.findall(first))
        return self._words[path]


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
