"""Compares the files that a server loaded with the files in its code's Git tree.

A Git tree lacks files that Git ignores, and files outside the repository.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import re
import struct
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import TypeAlias

from pytest_fileperf.versions.tree import CodeTree, import_directory, is_installed, is_of_the_interpreter

Digests: TypeAlias = Mapping[str, str]
"""A digest of each file's content, by name. Names are relative to the tree's top.

A file outside the tree has the name `…/PATH`. PATH is relative to the directory from which Python imports the file.
"""
_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\](?:[^/\\]+\.(?:egg|whl|zip)[/\\])?", re.DOTALL)
_OF_BUILDS = re.compile(r"_?_?version_?_?\.py")
"""Names of files that contain only the version. Builds write such a file anew for each commit."""
_HEADER = struct.Struct("<4sIII")
"""A compiled file's header: magic number, flags, and the source's modification time (seconds) and size (bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFiles:
    modules: tuple[str, ...] = ()
    """Files of the server's modules, without the interpreter's.

    If the server is a command, such as `./server --port 80`: its directory, its program and files in its arguments.
    """
    installed: tuple[str, ...] = ()
    """Loaded files of installed packages.

    If the server is a command: installed files that Python finds instead of the old code's files.
    """
    read: tuple[str, ...] = ()
    """Other files that the server read while its app was imported and started."""
    is_known: bool = False
    """Whether the other fields contain every loaded file. Always False if the server is a command."""

    def among(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Returns the paths that lead to files in `modules` or `read`, after links are followed."""
        real = {Path(file).resolve() for file in (*self.modules, *self.read)}
        return frozenset(path for path in paths if path.resolve() in real)


def loaded_beside(loaded: LoadedFiles, tree: CodeTree, paths: Collection[str]) -> Digests:
    """Returns digests of the loaded files that are missing in `paths`, the files of a Git tree."""
    tops = [top.resolve() for top in (tree.there, tree.here) if top is not None]
    found, modules = {}, set(loaded.modules)
    for file in (*loaded.modules, *loaded.read):
        path, real = Path(file), Path(file).resolve()
        if not is_code(real) or is_of_the_interpreter(path, top=tree.here) or path.is_dir():
            continue
        top = next((one for one in tops if real.is_relative_to(one)), None)
        if top is not None:
            name = real.relative_to(top).as_posix()
            above = (directory.as_posix() for directory in PurePosixPath(name).parents)
            # For a repository inside the tree, Git lists only that repository's directory.
            is_known = top == tops[0] and (name in paths or any(directory in paths for directory in above))
        else:  # outside of the code's directory, only modules count
            name, is_known = f"…/{_from_import(real).as_posix()}", file not in modules
        if not is_known and ".git" not in real.parts:
            found[name] = _digest_of(real)
    # The ends of each path, as `b/c.py` for `a/b/c.py`. They have at least two parts: many files have the name `c.py`.
    split = (path.split("/") for path in paths if loaded.installed and path.endswith(".py"))
    ends = {"/".join(parts[at:]) for parts in split for at in range(len(parts) - 1)}
    for path in map(Path, loaded.installed):
        name = _PACKAGES.sub("", str(path), count=1).replace(os.sep, "/")
        if name in ends and is_code(path):  # it may be an installed copy of a file in the Git tree
            found[f"…/{name}"] = _digest_of(path)
    return found


def changed_beside(stored: Digests, top: Path) -> str:
    """Returns the first file below `top` that has changed since `loaded_beside`. Otherwise empty."""
    return next((name for name, digest in stored.items() if _digest_of(top / name) != digest), "")


def loaded_inside(loaded: LoadedFiles, top: Path, paths: Collection[str]) -> tuple[str, ...]:
    """Returns the loaded files that are in `paths`, a Git tree's files. The results are relative to `top`, and sorted.

    For files in a submodule, returns only the submodule's path.
    """
    real = (Path(file).resolve() for file in (*loaded.modules, *loaded.read))
    inner = [PurePosixPath(one.relative_to(top).as_posix()) for one in real if one.is_relative_to(top) and is_code(one)]
    places = (next((place for place in map(str, (one, *one.parents)) if place in paths), "") for one in inner)
    return tuple(sorted(set(filter(None, places))))


def used_by_both(loaded: LoadedFiles, tree: CodeTree) -> tuple[str, ...]:
    """Returns the relative paths of modules that the old code loaded from the new code's directory."""
    if tree.here is None or tree.there is None:
        return ()
    here = tree.here.resolve()
    names = (
        real.relative_to(here).as_posix()
        for path, real in ((Path(file), Path(file).resolve()) for file in loaded.modules)
        if real.is_relative_to(here) and not tree.holds(real) and is_code(real) and not real.is_dir()
        if not is_of_the_interpreter(path, top=tree.here)
    )
    return tuple(sorted(names))


def hidden_by_installed(loaded: LoadedFiles, tree: CodeTree) -> str:
    """Returns an installed file that hides a difference between old and new code. Otherwise empty.

    Both versions would load the same installed copy of the project.
    """
    if tree.here is None or tree.there is None:
        return ""
    packages: dict[str, dict[Path, Path]] = {}
    for path in map(Path, (*loaded.installed, *loaded.modules)):
        if not (tree.holds(path) or (path.resolve().is_relative_to(tree.here.resolve()) and not is_installed(path))):
            among = Path(_PACKAGES.sub("", str(path), count=1))
            inner = _from_import(path) if among.is_absolute() else among
            packages.setdefault(inner.parts[0], {})[inner] = path
    for top in _directories_with(tree.there, packages.keys()):
        here = tree.here / top.relative_to(tree.there)
        for name, files in packages.items():
            if not (os.path.lexists(top / name) or os.path.lexists(here / name)):
                continue
            bytes_of = {file: tuple(map(_bytes, (file, top / inner, here / inner))) for inner, file in files.items()}
            # Another project's package may have the same name, but has none of these files.
            is_copy = any(own and own in (there, now) for own, there, now in bytes_of.values())
            changed = next((file for file, (_, there, now) in bytes_of.items() if there != now), None)
            if is_copy and changed is not None:
                return str(changed)
    return ""


def differ(file: str, tree: CodeTree) -> bool:
    return _bytes(Path(file)) != _bytes(tree.path(Path(file)))


def is_among_packages(path: Path) -> bool:
    """Returns whether a path is in any Python's `site-packages` or `dist-packages`."""
    return _PACKAGES.match(f"{path}{os.sep}") is not None


def stale_bytecode(files: Iterable[str]) -> tuple[str, str] | None:
    """Returns the first (source, compiled file) for which Python would run outdated code. Otherwise None.

    Python compares only the source's size and its time in whole seconds, so it can miss a change.
    """
    for file in files:
        with suppress(OSError, ValueError, SyntaxError, EOFError, TypeError, NotImplementedError):
            source = Path(file)
            compiled = Path(importlib.util.cache_from_source(file))
            if source.suffix == ".py" and _is_stale(source, compiled):
                return file, str(compiled)
    return None


def _is_stale(source: Path, compiled: Path) -> bool:
    of_source, of_compiled = source.stat(), compiled.stat()
    if of_compiled.st_mtime_ns > of_source.st_ctime_ns:
        return False
    data = compiled.read_bytes()
    magic, flags, seconds, size = _HEADER.unpack_from(data)
    is_by_time = flags == 0 and seconds == int(of_source.st_mtime) & 0xFFFFFFFF and size == of_source.st_size
    if magic != importlib.util.MAGIC_NUMBER or not (is_by_time or flags == 1):
        return False
    code = marshal.loads(data[_HEADER.size :])  # noqa: S302 # what Python itself would run
    return isinstance(code, CodeType) and code != compile(source.read_bytes(), str(source), "exec", dont_inherit=True)


def _digest_of(path: Path) -> str:
    return hashlib.sha256(_bytes(path) or b"").hexdigest()[:8]  # too short to guess a file's secrets from it


def _bytes(path: Path) -> bytes | None:
    """Returns a file's content, even from an archive of modules. None if the file cannot be read."""
    with suppress(OSError):
        return path.read_bytes()
    if (archive := _archive_of(path)) is not None:
        with suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(archive) as opened:
            return opened.read(path.relative_to(archive).as_posix())
    return None


def is_code(path: str | Path) -> bool:
    """Returns False for a file such as `_version.py`, because builds write this file."""
    return _OF_BUILDS.fullmatch(Path(path).name) is None


def _from_import(path: Path) -> Path:
    """Returns the path relative to the directory or archive from which Python imports it."""
    return path.relative_to(_archive_of(path) or import_directory(path.parent))


def _archive_of(path: Path) -> Path | None:
    return next((above for above in path.parents if above.is_file()), None)


def _directories_with(top: Path, names: Collection[str]) -> Iterator[Path]:
    for directory, inner, files in os.walk(top):
        inner[:] = [name for name in inner if name not in (".git", "node_modules", "__pycache__")]
        if any(name in names for name in (*inner, *files)):
            yield Path(directory)
