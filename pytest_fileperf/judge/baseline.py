"""Stored baselines: one JSON file for each test module and machine profile, made to be committed.

    <directory>/<profile>/tests__api__test_upload.py.json    (a digest and the end of a path of more than 200 bytes)

History of the format
    1  {schema, module, environment, tests: {key: {captured, commit, reason, summary, packages, identity, evidence}}}
       evidence: {stabilised, boots: [{latency: HdrHistogram V2 text, requests, rounds: {metric: [value, …]}, runs}]}
       The first files had no `reason` and no `summary`. Nothing reads the summary back: it is for reviewers.
    2  An entry has `tree`, `precision` and `busy` too, and `packages` are all that were installed. Files of schema 1
       are read. Storing into one makes it a file of schema 2, in which older entries may lack what is new.
    3  The file has `salt`, and in an identity a digest stands for each value of a request and for the command of a
       server: names alone are in clear. Earlier schemas had the values. They are read, and storing into such a file
       or removing from it makes digests of all values in it. Later entries have `loaded` too, digests of what the
       server loaded and the tree does not have, and `conditions`.

Two runs may store at once: each takes the lock `<directory>/.local/lock`, reads the file anew and adds its entry to it.

Entries are sorted. Each begins with a line for each fact that a person reviews, and ends with the evidence, a line for
each boot, so a diff shows what changed. Storing or removing an entry leaves the lines of others unchanged. The tree has
a line of its own, by which `git log -S` finds the commit that brought it. A file that cannot be read is an error and is
never skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.files import put_bytes, put_text
from pytest_fileperf.judge.entry import FLAT, Entry, entry_from_json, entry_to_json, tree_in
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.layout import laid_out
from pytest_fileperf.judge.long_file import LongFile
from pytest_fileperf.judge.sealed import SALT, new_salt, of_earlier_schema, sealed
from pytest_fileperf.judge.stored import mapping_in, text_in, whole_in
from pytest_fileperf.locks import locked

__all__ = ("LOCAL", "SCHEMA", "BaselineStore", "Entry", "Found", "keep_local")

SCHEMA = 3
_DIGESTS_SINCE = 3
"""The schema that has no values of requests any more."""
LOCAL = ".local"
"""What is of this machine alone, below the directory of the baselines. Git ignores it."""
_LOCK_S = 30.0
"""Storing takes milliseconds: who holds the lock for longer is stopped, or on a disk that hangs."""
_LONGEST_NAME = 200
"""Bytes of a file's name: file systems allow 255."""
_LONG = 4 << 20
"""Characters of a file that takes long to read as a whole. Of a longer one only the entry that is asked for is read."""
_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_PROFILES = "*-" + "[0-9a-f]" * 8
"""Matches machine profiles, so that other JSON files near the baselines are left alone."""


def keep_local(directory: Path) -> None:
    """Makes the directory, which Git is to ignore, where it is not there. Raises OSError."""
    ignored = directory / ".gitignore"
    if not ignored.exists():
        put_text(ignored, "*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The baseline of a test, of this machine profile or of another."""

    entry: Entry
    environment: Environment
    """Of the machine that stored it, without its packages."""
    differences: tuple[str, ...] = ()
    """How this machine differs, `cores was 2, is 4`; empty where the profile is the same."""
    salt: str = ""
    """Of the digests in the entry's identity; empty where they are plain ones, of an earlier schema."""


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The files under one directory."""

    directory: Path

    def path_of(self, module: str, environment: Environment) -> Path:
        """Returns the file of a test module (its path with `/`) for this environment."""
        return self.directory / environment.profile / _file_name(module)

    def find(self, module: str, key: str, environment: Environment) -> Found | None:
        """Returns the entry for this environment, else that of another one; None where there is none.

        Of others, those with a tree come first, as their code can be measured here; then those that differ least; then
        the newest. Raises BaselineError, naming the file, when a file it reads is damaged, too new or not readable.
        """
        own = self.path_of(module, environment)
        others = sorted(path for path in self.directory.glob(f"*/{escape(_file_name(module))}") if path != own)
        found = []
        for path in (own, *others):
            stored = _read(path)
            if stored is None or key not in stored.tests:
                continue
            entry, differences = _entry(path, key, stored), environment.differences(stored.environment)
            one = Found(entry=entry, environment=stored.environment, differences=differences, salt=stored.salt)
            if not differences:
                return one
            found.append(one)
        found.sort(key=lambda one: one.entry.captured, reverse=True)
        return min(found, key=lambda one: (one.entry.tree is None, len(one.differences)), default=None)

    def write(
        self, module: str, key: str, entry: Entry, environment: Environment, *, summary_of: Iterable[str] = ()
    ) -> Path:
        """Stores the entry, leaves the module's other entries unchanged, and returns the file.

        `summary_of` names the metrics in the entry's summary. The text goes to a temporary file, which then replaces
        the old one. Raises BaselineError when the old file is damaged or too new, or the new one cannot be written.
        """
        path = self.path_of(module, environment)
        with self._locked():
            stored = _read(path)
            salt = (stored.salt if stored else "") or new_salt()
            made = sealed(entry_to_json(entry, summary_of), salt)
            if stored is not None and stored.salt and isinstance(stored.tests, LongFile):
                _put(path, stored.tests.with_entry(key, made, flat=FLAT))
                return path
            tests = _sealed_tests(path, stored, salt) if stored else {}
            tests[key] = made
            content = {"environment": environment.to_json(), "module": module, "salt": salt, "schema": SCHEMA}
            _write(path, {**content, "tests": dict(sorted(tests.items()))})
        return path

    def salt_of(self, module: str, environment: Environment) -> str:
        """Returns the salt of the module's file for this environment, else of another one; a new one where none has.

        Raises BaselineError when a file it reads is damaged, too new or not readable.
        """
        others = sorted(self.directory.glob(f"{_PROFILES}/{escape(_file_name(module))}"))
        files = filter(None, map(_read, (self.path_of(module, environment), *others)))
        return next((stored.salt for stored in files if stored.salt), None) or new_salt()

    def keys(self) -> Mapping[str, int]:
        """Returns the keys of all entries of every module, each with the number of machine profiles that have it.

        Raises BaselineError when any file is damaged, too new or not readable.
        """
        return Counter(key for stored in self._files().values() for key in stored.tests)

    def trees(self) -> set[str]:
        """Returns every tree that any entry of any module names.

        Raises BaselineError when any file is damaged, too new or not readable.
        """
        found = set()
        for path, stored in self._files().items():
            for key, entry in stored.tests.items():
                try:
                    found.add(tree_in(entry, f"tests[{key!r}]"))
                except ValueError as error:
                    raise _damaged(path, str(error)) from error
        return {tree for tree in found if tree is not None}

    def remove(self, keys: Collection[str]) -> int:
        """Removes these entries from every machine profile, and what is empty then; returns how many were removed.

        Raises BaselineError before anything is removed when a file is damaged, too new or not readable, and when a file
        cannot be written.
        """
        removed = 0
        with self._locked():
            for path, stored in self._files().items():
                kept = {key: entry for key, entry in stored.tests.items() if key not in keys}
                if len(kept) == len(stored.tests):
                    continue
                if kept:
                    salt = stored.salt or new_salt()
                    kept = {key: entry for key, entry in _sealed_tests(path, stored, salt).items() if key in kept}
                    _write(path, {**stored.content, "salt": salt, "schema": SCHEMA, "tests": kept})
                else:
                    _delete(path)
                removed += len(stored.tests) - len(kept)
        return removed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other runs from storing. Raises BaselineError where one of them does not end."""
        with ExitStack() as held:
            try:
                keep_local(self.directory / LOCAL)
                held.enter_context(locked(self.directory / LOCAL / "lock", within_s=_LOCK_S))
            except TimeoutError as error:
                raise BaselineError(
                    f"another run has been storing baselines in {self.directory} for {_LOCK_S:g} s: "
                    "end it, and run again"
                ) from error
            except OSError as error:
                raise _not_written(self.directory, error) from error
            yield

    def _files(self) -> dict[Path, _Stored]:
        found = {path: _read(path) for path in sorted(self.directory.glob(f"{_PROFILES}/*.json"))}
        return {path: stored for path, stored in found.items() if stored is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    content: Mapping[str, object]
    """All of the file."""
    environment: Environment
    tests: Mapping[str, object]
    salt: str
    """Empty in files of earlier schemas."""


def _sealed_tests(path: Path, stored: _Stored, salt: str) -> dict[str, object]:
    """Returns the entries without the values that earlier schemas have."""
    if stored.salt:
        return dict(stored.tests)
    try:
        return {key: _sealed_entry(entry, salt) for key, entry in stored.tests.items()}
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _sealed_entry(entry: object, salt: str) -> object:
    if not isinstance(entry, dict) or not isinstance(identity := entry.get("identity"), dict):
        return entry  # damaged, which reading it says
    return {**entry, "identity": sealed(of_earlier_schema(identity), salt)}


def _file_name(module: str) -> str:
    """Returns the name of a module's file: its path, or of a long one the end, and a digest of all."""
    name = module.replace("\\", "/").replace("/", "__") + ".json"
    if len(name.encode(errors="surrogateescape")) <= _LONGEST_NAME:
        return name
    whole = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
    end = name.encode(errors="surrogateescape")[-_LONGEST_NAME + 20 :].decode(errors="ignore")
    return f"{whole}__{end}"


def _read(path: Path) -> _Stored | None:
    """Returns the file's content, its entries still as JSON; None when there is no file."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise BaselineError(f"baseline {path} cannot be read: it is a pipe and no file: remove it")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "remove it, or name another directory with --fileperf-baselines"
        raise BaselineError(f"baseline {path} cannot be read: {error.strerror or error}: {advice}") from error
    tests = _long(data)
    content = _whole(path, data) if tests is None else tests.content
    if not isinstance(content, dict):
        raise _damaged(path, "its content is not an object")
    try:
        schema = whole_in(content, "schema", "")
        if schema > SCHEMA:
            raise BaselineError(
                f"baseline {path} has schema {schema}, and this version reads up to {SCHEMA}: upgrade pytest-fileperf"
            )
        if schema < 1:
            raise ValueError(f"schema is {schema}, not a whole number of 1 or more")
        environment = Environment.from_json(mapping_in(content, "environment", ""))
        salt = text_in(content, "salt", "") if schema >= _DIGESTS_SINCE else ""
        if schema >= _DIGESTS_SINCE and not SALT.fullmatch(salt):
            raise ValueError("salt is not 32 hexadecimal digits")
        entries = mapping_in(content, "tests", "") if tests is None else tests
        return _Stored(content=content, environment=environment, tests=entries, salt=salt)
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _long(data: bytes) -> LongFile | None:
    """Returns the entries of a long file; None for another, or one that `_whole` shows to be damaged."""
    if len(data) > _LONG and b"\n<<<<<<< " not in data:
        with suppress(ValueError):
            return LongFile(data)
    return None


def _whole(path: Path, data: bytes) -> object:
    """Returns the content of a file, which is read as a whole. Raises BaselineError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, str(error)) from error
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except _TwiceError as error:
        raise _twice(path, error.key) from error
    except (ValueError, RecursionError) as error:
        if conflict := _CONFLICT.search(text):
            raise _in_conflict(path, text.count("\n", 0, conflict.start()) + 1) from error
        raise _damaged(path, f"not JSON: {error}") from error


class _TwiceError(Exception):
    """An object of a file has a key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Makes an object of its pairs. Raises _TwiceError where Python's reader would take the last one."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _TwiceError(next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
    return made


def _entry(path: Path, key: str, stored: _Stored) -> Entry:
    if isinstance(stored.tests, LongFile) and stored.tests.has_twice(key):
        raise _twice(path, key)
    try:
        entry = entry_from_json(stored.tests[key], f"tests[{key!r}]")
        return entry if stored.salt else replace(entry, identity=of_earlier_schema(entry.identity))
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _write(path: Path, content: Mapping[str, object]) -> None:
    try:
        text = laid_out(content, flat=FLAT) + "\n"
    except ValueError as error:  # a number in another entry that JSON does not have
        raise _damaged(path, str(error)) from error
    _put(path, text.encode("utf-8", "backslashreplace"))


def _put(path: Path, data: bytes) -> None:
    try:
        put_bytes(path, data)
    except OSError as error:
        raise _not_written(path, error) from error


def _delete(path: Path) -> None:
    """Removes the file, and its directory where that is empty then."""
    try:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        raise BaselineError(f"baseline {path} cannot be removed: {error.strerror or error}") from error


def _not_written(path: Path, error: OSError) -> BaselineError:
    return BaselineError(
        f"baseline {path} cannot be written: {error.strerror or error}; "
        "--fileperf-baselines=DIR names another directory"
    )


def _in_conflict(path: Path, line: int) -> BaselineError:
    return BaselineError(
        f"a baseline has the conflict markers of a merge, from line {line} on ({path})\n"
        "take one side whole, `git checkout --ours` or `--theirs` and the path, and store what the other side had with "
        "--fileperf-update=all"
    )


def _twice(path: Path, key: str) -> BaselineError:
    return BaselineError(
        f"a baseline has {key!r} twice, as a merge can leave it ({path})\n"
        "keep one of the two, or restore the file from version control"
    )


def _damaged(path: Path, reason: str) -> BaselineError:
    return BaselineError(
        f"a baseline is damaged: {reason} ({path})\n"  # the path may be long, and the line may be cut
        "restore it from version control, or delete it and store a new one with --fileperf-update"
    )
