"""Stores baselines: one JSON file for each test module and kind of machine, made to be committed.

    <directory>/<machine profile>/tests__api__test_upload.py.json

History of the format
    1  {schema, module, environment, tests: {key: {captured, commit, reason, summary, packages, identity, evidence}}}
       evidence: {stabilised, boots: [{latency: HdrHistogram V2 text, requests, rounds: {metric: [value, …]}, runs}]}
       The first files had no `reason` and no `summary`. Nothing reads the summary: it is for reviewers.
    2  Adds `tree`, `precision` and `busy` to an entry, and `packages` lists all installed ones. Files of schema 1 are
       still read. The next entry that is stored makes such a file schema 2. Its older entries may lack the new fields.
    3  Adds `salt` to the file. Digests hide the values of requests and the server's command; names stay readable. Files
       of schema 1 and 2 are still read. The first change to such a file turns these values into digests. Later entries
       add `loaded` (digests of loaded files outside the tree), `conditions`, and `loaded_files` (names of loaded files
       in the tree: {directory: names in it, joined by `/`}).

Two runs may store at once: each takes the lock `<directory>/.local/lock`, reads the file again and adds its entry.
Diffs are readable, because entries are sorted, and each fact that people review has its own line. A change to one entry
leaves other entries' lines unchanged. The Git hash `tree` has its own line, so `git log -S` finds the commit that added
it. A file that cannot be read is an error, never skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from glob import escape
from pathlib import Path

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.host.files import put_bytes, put_text
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge.environment import Environment, differences, was_is
from pytest_fileperf.judge.evidence import Evidence, significant, value_of
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.plan.request import PLAIN, described_argument, described_recipes, described_url, digest, shown_url

# --- One test's baseline: figures with their code, packages and time

_BUSY = ("server", "generator", "host")
FLAT = ("busy", "commit", "conditions", "loaded", "loaded_files", "packages", "precision")
"""Keys of a stored entry. The value under each takes one line of the file."""
_READABLE: Mapping[Unit, tuple[str, float]] = {
    Unit.PER_SECOND: ("", 1.0),
    Unit.SECONDS: (" ms", 1e3),
    Unit.BYTES: (" MiB", 1 / (1 << 20)),
    Unit.BYTES_PER_SECOND: (" MiB/s", 1 / (1 << 20)),
    Unit.SHARE: (" %", 100.0),
    Unit.COUNT: ("", 1.0),
}
"""By unit: the suffix of a metric's name in a summary, and the factor from SI units. Both are fixed, so that values in
a diff compare at a glance."""
_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    identity: Mapping[str, object]
    """The requests, the server and the load, as JSON values. The figures of two entries compare only if their
    identities are equal."""
    evidence: Evidence
    captured: str
    """When the entry was stored, in ISO 8601 with the offset from UTC."""
    tree: str | None = None
    """Git's hash of the source tree without the baselines' directory. None if unknown."""
    commit: Mapping[str, object] | None = None
    """Facts from version control about the measured code, as JSON values. None if unknown."""
    reason: str | None = None
    """Why the user stored this baseline, on one line. None if the user gave no reason."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of all installed packages, by name."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Causes of slowness besides packages, such as the container's CPU limit, by name. Empty if unknown."""
    precision: Mapping[str, float] = field(default_factory=dict)
    """By metric: the standard error of its figure's logarithm."""
    busy: Busy | None = None
    """How much other programs used the machine during the measurement. None if unknown."""
    loaded: Mapping[str, str] | None = None
    """Digests of files that the server loaded from outside the source tree, by file name. None if unknown."""
    files: tuple[str, ...] | None = None
    """Files of the source tree that the server loaded, relative to the repository. None if unknown, or if the entry is
    for a part or step of a load."""
    salt: str = field(default="", compare=False)
    """The salt for the digests in `identity`. Empty for a new entry, and for an entry from a file of schema 1 or 2."""
    differences: Mapping[str, str] = field(default_factory=dict, compare=False)
    """By field of `Environment`: how this machine differs from the baseline's machine, such as `cores was 2, is 4`."""

    @property
    def captured_at(self) -> datetime:
        """The time in `captured`. If the text isn't a time, the earliest possible time."""
        try:
            at = datetime.fromisoformat(self.captured)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


def _entry_from_json(stored: Placed, *, salt: str, differences: Mapping[str, str]) -> Entry:
    """Raises ValueError that names the first wrong place. `salt` is empty for a file of schema 1 or 2."""
    tree, commit, busy, reason = tree_in(stored), stored["commit"], stored.get("busy"), stored.get("reason")
    conditions, loaded, files = stored.get("conditions"), stored.get("loaded"), stored.get("loaded_files")
    identity = stored["identity"].mapping()
    return Entry(
        evidence=Evidence.from_json(stored["evidence"]),
        captured=stored["captured"].text(),
        tree=tree,
        commit=None if commit.value is None else commit.mapping(),
        reason=None if reason is None else reason.text(),
        packages=stored["packages"].texts(),
        conditions={} if conditions is None else conditions.texts(),
        precision=stored.given("precision", {}).numbers(),
        busy=None if busy is None else Busy(**{name: busy[name].number() for name in _BUSY}),
        loaded=None if loaded is None else loaded.texts(),
        files=None if files is None else _from_directories(files.texts()),
        identity=identity if salt else of_earlier_schema(identity),
        salt=salt,
        differences=differences,
    )


def tree_in(stored: Placed) -> str | None:
    """Returns the Git hash under `tree`, or None. Raises ValueError if the text there isn't a Git hash."""
    if not isinstance(stored.value, dict):
        raise ValueError(f"{stored.where} is not an object")
    if (tree := stored.get("tree")) is None:
        return None
    if not _TREE.fullmatch(tree.text()):  # it becomes an argument of Git
        raise ValueError(f"{tree.where} is {tree.text()[:80]!r}, not a Git hash")
    return tree.text()


def entry_to_json(entry: Entry, summary_of: Iterable[str]) -> dict[str, object]:
    busy = entry.busy
    return {
        "captured": entry.captured,
        "tree": entry.tree,
        "commit": None if entry.commit is None else dict(entry.commit),
        "reason": entry.reason,
        "summary": _summary(entry.evidence, summary_of),
        "precision": {name: significant(error, 2) for name, error in sorted(entry.precision.items())},
        "busy": None if busy is None else {name: significant(getattr(busy, name), 2) for name in _BUSY},
        "packages": dict(sorted(entry.packages.items())),
        **({"conditions": dict(sorted(entry.conditions.items()))} if entry.conditions else {}),
        **({} if entry.loaded is None else {"loaded": dict(sorted(entry.loaded.items()))}),
        **({} if entry.files is None else {"loaded_files": _by_directory(entry.files)}),
        "identity": json.loads(json.dumps(entry.identity, sort_keys=True)),
        "evidence": entry.evidence.to_json(),
    }


def _by_directory(paths: Iterable[str]) -> dict[str, str]:
    """Returns file names by directory: `{"app": "db.py/main.py"}`. This saves space in the file."""
    found: dict[str, list[str]] = {}
    for directory, _, name in sorted(path.rpartition("/") for path in paths):
        found.setdefault(directory, []).append(name)
    return {directory: "/".join(names) for directory, names in found.items()}


def _from_directories(stored: Mapping[str, str]) -> tuple[str, ...]:
    pairs = ((directory, name) for directory, names in stored.items() for name in names.split("/"))
    return tuple(sorted(f"{directory}/{name}".removeprefix("/") for directory, name in pairs))


def _summary(evidence: Evidence, names: Iterable[str]) -> dict[str, float | None]:
    """Returns rounded values by metric and unit: `{"rps": 5210.0, "p99 ms": 31.2}`."""
    summary = {}
    for metric in (METRICS[name] for name in names):
        unit, factor = _READABLE[metric.unit]
        value = value_of(metric, evidence)
        summary[metric.name + unit] = None if value is None else significant(value * factor)
    return summary


# --- Lays out JSON for diffs: a line per fact that people review, few lines for the rest


def laid_out(value: object, indent: str = "") -> str:
    """Returns the value as JSON text for readable diffs. Raises ValueError for infinity and NaN.

    An object usually has a line per key. Lines after the first begin with `indent`.
    """
    if isinstance(value, Mapping) and value:
        items = [
            f"{_line(key)}: {_line(item) if key in FLAT else laid_out(item, f'{indent} ')}"
            for key, item in value.items()
        ]
        return _block("{", items, "}", indent)
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        return _block("[", [_line(item) for item in value], "]", indent)
    return _line(value)


def _block(opened: str, items: list[str], closed: str, indent: str) -> str:
    lines = f",\n{indent} ".join(items)
    return f"{opened}\n{indent} {lines}\n{indent}{closed}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# --- Entries of a long file: only the wanted entry is read, and all others stay as they are
#
# Searching hundreds of megabytes of bytes takes tenths of a second. Reading them as JSON would take a minute.

_OPENED, _CLOSED = b'\n "tests": {\n', b"\n }\n}\n"
_ENTRY = b'\n  "'
"""The bytes before each entry's key. No other line begins with exactly two spaces."""
_BETWEEN = b",\n"


class LongFile(Mapping[str, object]):
    """The entries of a large file, by key. Only the entries that a caller asks for are parsed."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError if `laid_out` did not write `data`, or if it is damaged outside of the entries."""
        at = data.find(_OPENED)
        if at < 0 or not data.endswith(_CLOSED):
            raise ValueError("it has another layout")
        self.content: object = json.loads(data[: at + len(_OPENED)] + b"}}")
        self._data = data
        self._begins = at + len(_OPENED) - 1
        self._ends = len(data) - len(_CLOSED)

    def __getitem__(self, key: str) -> object:
        """Raises ValueError if the entry is damaged."""
        start = self._find(key, self._begins)
        if start < 0:
            raise KeyError(key)
        (found,) = json.loads(b"{%b}" % self._data[start + 1 : self._end_of(start)]).values()
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key, self._begins) >= 0

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._keys())

    def __len__(self) -> int:
        return self._data.count(_ENTRY, self._begins)

    def has_twice(self, key: str) -> bool:
        start = self._find(key, self._begins)
        return start >= 0 and self._find(key, start + 1) >= 0

    def with_entry(self, key: str, entry: object) -> bytes:
        """Returns the file's bytes with this entry. An older entry with the same key is replaced."""
        new = b"  %b: %b" % (_long_line(key), laid_out(entry, "  ").encode("utf-8", "backslashreplace"))
        data, start = self._data, self._find(key, self._begins)
        if start >= 0:
            return b"".join((data[: start + 1], new, data[self._end_of(start) :]))
        after = next((at for other, at in self._keys() if other > key), -1)
        if after < 0:
            return b"".join((data[: self._ends], _BETWEEN, new, data[self._ends :]))
        return b"".join((data[: after + 1], new, _BETWEEN, data[after + 1 :]))

    def _keys(self) -> Iterator[tuple[str, int]]:
        """Yields each entry's key, with the position of the newline before the entry."""
        at = self._begins
        while (at := self._data.find(_ENTRY, at)) >= 0:
            line = self._data[at + 1 : self._data.index(b"\n", at + 1)]
            yield str(json.loads(line[: line.rindex(b":")])), at
            at += len(_ENTRY)

    def _find(self, key: str, at: int) -> int:
        """Returns the position of the newline before the key's entry, or -1. The search begins at `at`."""
        return self._data.find(b"\n  %b: {\n" % _long_line(key), at)

    def _end_of(self, start: int) -> int:
        following = self._data.find(_ENTRY, start + 1)
        return self._ends if following < 0 else following + 1 - len(_BETWEEN)


def _long_line(key: str) -> bytes:
    return json.dumps(key, ensure_ascii=False).encode("utf-8", "surrogatepass")


# --- Digests that can be committed: a slow, salted digest of a value's digest (`plan.request`)
#
# Readers of the file can find equal values in it. They can test a guess in some 50 ms and 16 MiB. A password from a
# short list can still be found, but not a random token. Salts differ between files, so nothing can be computed for many
# files at once.

_SEALED = "scrypt:"
_DIGEST = re.compile(rf"(?:{_SEALED}[0-9a-f]{{16}}|{PLAIN}[0-9a-f]{{64}})")


def new_salt() -> str:
    return secrets.token_hex(16)


def sealed(value: object, salt: str) -> object:
    """Returns a copy of the JSON value in which `slow_digest` has replaced each plain digest."""
    if isinstance(value, Mapping):
        return {key: sealed(item, salt) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sealed(item, salt) for item in value]
    is_plain = isinstance(value, str) and value.startswith(PLAIN) and is_digest(value)
    return slow_digest(str(value), salt) if is_plain else value


@lru_cache(maxsize=4096)
def slow_digest(plain: str, salt: str) -> str:
    return _SEALED + hashlib.scrypt(plain.encode(), salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1, dklen=8).hex()


def is_digest(value: object) -> bool:
    """Returns whether a JSON value is a digest or a list of digests."""
    if isinstance(value, list):
        return bool(value) and all(map(is_digest, value))
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def of_earlier_schema(identity: Mapping[str, object]) -> dict[str, object]:
    """Returns an identity from a file of schema 1 or 2, with digests in place of its readable values.

    Raises ValueError if no version of this package stored such an identity.
    """
    found = dict(identity)
    if isinstance(work := found.get("work"), dict):
        try:
            found["work"] = _work(work)
        except (AttributeError, TypeError, ValueError) as error:  # a value of another form leads to these
            raise ValueError(f"identity.work has a form that no version of pytest-fileperf stored: {error}") from error
    if isinstance(server := found.get("server"), dict) and isinstance(command := server.get("command"), str):
        found["server"] = {**server, "command": digest(command)}
    return found


def _work(work: Mapping[str, object]) -> dict[str, object]:
    found = dict(work)
    if isinstance(parts := work.get("mix"), list):
        found["mix"] = [
            {**_work(part), "name": shown_url(str(part.get("name")))} if isinstance(part, dict) else part
            for part in parts
        ]
    if isinstance(recipes := work.get("requests"), list) and all(isinstance(recipe, dict) for recipe in recipes):
        found["requests"] = described_recipes([_work(recipe) for recipe in recipes])
    if isinstance(names := work.get("names"), list):
        found["names"] = [shown_url(str(name)) for name in names]
    if isinstance(rows := work.get("rows"), dict) and "sha256" in rows:
        found["rows"] = {"count": rows.get("count"), "digest": f"{PLAIN}{rows['sha256']}"}
    if isinstance(url := work.get("url"), str) and isinstance(given := work.get("arguments"), dict):
        described = {key: described_argument(key, value, is_stored=True) for key, value in given.items()}
        found.update(described_url(url), arguments=described)
    return found


# --- baseline

SCHEMA = 3
_LOCAL = ".local"
"""Subdirectory for files of this machine alone. Git ignores it."""
_LOCK_S = 30.0
"""Longest wait for the lock, in seconds. Storing takes milliseconds, so a process that keeps the lock for longer
hangs."""
_LONG = 4 << 20
"""A file with more bytes is read as `LongFile`, because parsing the whole file takes long."""
_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_PROFILES = "*-" + "[0-9a-f]" * 8
"""Pattern for directories such as `linux-x86_64-2-cpython3.11-1f0c9a2b`. JSON files elsewhere are left alone."""


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The baseline files in one directory. Methods raise BaselineError if a file is damaged, too new or unreadable."""

    directory: Path

    def path_of(self, module: str, environment: Environment) -> Path:
        """Returns the file for a test module's baselines. `module` is the module's path, with `/`."""
        return self.directory / environment.profile / _file_name(module)

    def find(self, module: str, key: str, environment: Environment) -> Entry | None:
        """Returns the entry for this environment, else the best entry for another environment, else None.

        An entry with a `tree` is best, because its code can be measured here. Among several, the most similar
        environment counts, then the newest entry.
        """
        own = self.path_of(module, environment)
        others = sorted(path for path in self.directory.glob(f"*/{escape(_file_name(module))}") if path != own)
        found = []
        for path in (own, *others):
            stored = _read(path)
            if stored is None or key not in stored.tests:
                continue
            if isinstance(stored.tests, LongFile) and stored.tests.has_twice(key):
                raise _twice(path, key)
            with _reading(path):
                placed = Placed(stored.tests[key], f"tests[{key!r}]")
                differing = environment.differences(stored.environment)
                entry = _entry_from_json(placed, salt=stored.salt, differences=differing)
            if not entry.differences:
                return entry
            found.append(entry)
        found.sort(key=lambda entry: entry.captured, reverse=True)
        return min(found, key=lambda entry: (entry.tree is None, len(entry.differences)), default=None)

    def write(
        self, module: str, key: str, entry: Entry, environment: Environment, *, summary_of: Iterable[str] = ()
    ) -> Path:
        """Stores the entry, and returns the path of its file. `summary_of` names the metrics in the entry's summary.

        Also raises BaselineError if the file cannot be written.
        """
        path = self.path_of(module, environment)
        with self._locked():
            stored = _read(path)
            salt = (stored.salt if stored else "") or new_salt()
            made = sealed(entry_to_json(entry, summary_of), salt)
            if stored is not None and stored.salt and isinstance(stored.tests, LongFile):
                _put(path, stored.tests.with_entry(key, made))
                return path
            tests = _sealed_tests(path, stored, salt) if stored else {}
            tests[key] = made
            content = {"environment": environment.to_json(), "module": module, "salt": salt, "schema": SCHEMA}
            _write(path, {**content, "tests": dict(sorted(tests.items()))})
        return path

    def salt_of(self, module: str, environment: Environment) -> str:
        """Returns the salt of the module's file, or of its file for another machine, or else a new salt."""
        others = sorted(self.directory.glob(f"{_PROFILES}/{escape(_file_name(module))}"))
        files = filter(None, map(_read, (self.path_of(module, environment), *others)))
        return next((stored.salt for stored in files if stored.salt), None) or new_salt()

    def keys(self) -> Mapping[str, int]:
        """Returns the keys of all entries, each with the number of machines that have an entry for it."""
        found: Counter[str] = Counter()
        for path, stored in self._files().items():
            with _reading(path):
                found.update(iter(stored.tests))
        return found

    def trees(self) -> set[str]:
        found = set()
        for path, stored in self._files().items():
            with _reading(path):
                found |= {tree_in(Placed(entry, f"tests[{key!r}]")) for key, entry in stored.tests.items()}
        return {tree for tree in found if tree is not None}

    def remove(self, keys: Collection[str]) -> int:
        """Removes all machines' entries with these keys. Returns the number of removed entries.

        If any file is damaged, nothing is removed. Also raises BaselineError if a file cannot be written.
        """
        removed = 0
        with self._locked():
            for path, stored in self._files().items():
                with _reading(path):
                    gone = [key for key in stored.tests if key in keys]
                removed += len(gone)
                if gone and len(gone) < len(stored.tests):
                    salt = stored.salt or new_salt()
                    kept = {key: entry for key, entry in _sealed_tests(path, stored, salt).items() if key not in keys}
                    _write(path, {**stored.content, "salt": salt, "schema": SCHEMA, "tests": kept})
                elif gone:
                    try:
                        path.unlink()
                        if not any(path.parent.iterdir()):
                            path.parent.rmdir()
                    except OSError as error:
                        raise BaselineError(
                            f"baseline {path} cannot be removed: {error.strerror or error}. Remove it by hand"
                        ) from error
        return removed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                ignored = self.directory / _LOCAL / ".gitignore"
                if not ignored.exists():
                    put_text(ignored, "*\n")
                held.enter_context(locked(self.directory / _LOCAL / "lock", within_s=_LOCK_S))
            except TimeoutError as error:
                raise BaselineError(
                    f"another run has been storing baselines in {self.directory} for {_LOCK_S:g} s. End it "
                    "and run again"
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
    environment: Environment
    tests: Mapping[str, object]
    salt: str
    """Empty in a file of schema 1 or 2."""


def _sealed_tests(path: Path, stored: _Stored, salt: str) -> dict[str, object]:
    """Returns the file's entries by key, with digests in place of readable values from schema 1 and 2."""
    with _reading(path):
        made = dict(stored.tests)
        for key, entry in made.items() if not stored.salt else ():
            identity = entry.get("identity") if isinstance(entry, dict) else None
            if isinstance(entry, dict) and isinstance(identity, dict):  # else reading the entry reports it
                made[key] = {**entry, "identity": sealed(of_earlier_schema(identity), salt)}
    return made


def _file_name(module: str) -> str:
    """Returns the module's path with `__` for `/`. For a long path, returns a digest and the path's end."""
    name = module.replace("\\", "/").replace("/", "__") + ".json"
    encoded = name.encode(errors="surrogateescape")
    if len(encoded) <= 200:  # file systems allow 255 bytes
        return name
    return f"{hashlib.sha256(encoded).hexdigest()[:16]}__{encoded[-180:].decode(errors='ignore')}"


def _read(path: Path) -> _Stored | None:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise BaselineError(f"baseline {path} cannot be read, because it is a pipe. Remove it")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        advice = "Remove it, or name another directory with --fileperf-baselines"
        raise BaselineError(f"baseline {path} cannot be read: {error.strerror or error}. {advice}") from error
    tests = None
    if len(data) > _LONG and b"\n<<<<<<< " not in data:
        with suppress(ValueError):  # `_whole` explains the problem
            tests = LongFile(data)
    content = _whole(path, data) if tests is None else tests.content
    if not isinstance(content, dict):
        raise _damaged(path, "its content is not an object")
    with _reading(path):
        held = Placed(content)
        schema = held["schema"].whole()
        if schema > SCHEMA:
            raise BaselineError(
                f"baseline {path} was stored by a newer pytest-fileperf (its schema is {schema}, and this version "
                f"reads up to {SCHEMA}). Upgrade pytest-fileperf"
            )
        if schema < 1:
            raise ValueError(f"schema is {schema}, not a whole number of 1 or more")
        environment = Environment.from_json(held["environment"])
        salt = held["salt"].text() if schema >= 3 else ""
        if schema >= 3 and not re.fullmatch("[0-9a-f]{32}", salt):
            raise ValueError("salt is not 32 hexadecimal digits")
        entries = held["tests"].mapping() if tests is None else tests
        return _Stored(content=content, environment=environment, tests=entries, salt=salt)


@lru_cache(maxsize=2)  # many tests ask for entries in the same file
def _whole(path: Path, data: bytes) -> object:
    """Returns the file's JSON value, which is cached: do not change it. Raises BaselineError if it is damaged."""
    with _reading(path):
        text = data.decode("utf-8")

    def once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)  # like Python's reader it takes the last of equal keys
        if len(made) < len(pairs):
            raise _twice(path, next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
        return made

    try:
        return json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError) as error:
        if conflict := _CONFLICT.search(text):
            line = text.count("\n", 0, conflict.start()) + 1
            raise BaselineError(
                f"a baseline has conflict markers of a merge, from line {line} on ({path})\nKeep one version of "
                "the whole file, with `git checkout --ours` or `--theirs` and the path. Then run with "
                "--fileperf-update=all, to store the baselines that only the other version has"
            ) from error
        raise _damaged(path, f"not JSON: {error}") from error


def _write(path: Path, content: Mapping[str, object]) -> None:
    with _reading(path):  # another entry may have a number that JSON lacks
        text = laid_out(content) + "\n"
    _put(path, text.encode("utf-8", "backslashreplace"))


def _put(path: Path, data: bytes) -> None:
    try:
        put_bytes(path, data)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> BaselineError:
    return BaselineError(
        f"baseline {path} cannot be written: {error.strerror or error}. Name another directory with "
        "--fileperf-baselines=DIR"
    )


def _twice(path: Path, key: str) -> BaselineError:
    return BaselineError(
        f"a baseline has the key {key!r} twice, maybe after a merge ({path})\nKeep one of the two, or restore the file "
        "from version control"
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns a ValueError inside the `with` block into the BaselineError for a damaged file."""
    try:
        yield
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> BaselineError:
    return BaselineError(
        f"a baseline is damaged: {reason} ({path})\nRestore it from version control, or delete it and store a "
        "new one with --fileperf-update"
    )


# --- How a run's identity differs from a baseline's, in words. A hidden value is only "changed"

_PLACE = re.compile(
    r"work\.(?:(?:mix|requests)\.(?P<part>.+?)\.)?"
    r"(?:arguments\.(?P<argument>[a-z]+)|(?P<query>query))(?:\.(?P<name>.*))?"
)
_WORDS: Mapping[str, str] = {
    "content": "content",
    "data": "form field",
    "extensions": "extension",
    "files": "file",
    "headers": "header",
    "json": "JSON field",
    "params": "parameter",
    "query": "parameter",
}


def work_differences(was: Mapping[str, object], now: Mapping[str, object]) -> dict[str, str]:
    """Returns how two identities differ, by place: `{"load.rounds": "load.rounds was 4, is 8"}`.

    If digests hide the values, a text is `header 'X-Token' changed`, `… is new` or `… is gone`.
    """
    return differences(was, now, said=_difference)


def _difference(key: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    if not any(is_digest(values.get(key)) for values in (before, after)):
        return was_is(key, before, after)
    return f"{_name_of(key)} {'is gone' if key not in after else 'is new' if key not in before else 'changed'}"


def _name_of(key: str) -> str:
    """Returns words for the place of a value: `header 'X-Token'` for `work.arguments.headers.X-Token`."""
    place = _PLACE.fullmatch(key)
    if place is None or (kind := place["argument"] or place["query"]) not in _WORDS:
        return "the server's command" if key == "server.command" else key
    part = place["part"] or ""
    of_part = f" of {f'request {part}' if part.isdecimal() else part}" if part else ""
    if place["name"]:
        return f"{_WORDS[kind]} {place['name']!r}{of_part}"
    return f"{'content' if kind == 'content' else f'{_WORDS[kind]}s'}{of_part}"  # a text, or many values


# --- Finds stored baselines without a test, by the tests of a session
#
# A baseline is stale
#     NO_MODULE  if its module is gone,
#     NO_TEST    if its module was collected as a whole, without its test,
#     FEWER      if its module was collected as a whole, and its test passed without this measurement: it makes no
#                second one (`#2`) any more, or none at all.
#
# If in doubt, a baseline is kept. A module that was collected in part or with an error shows nothing. Neither does a
# test that was skipped, failed or not run.


class Why(StrEnum):
    """Why no test makes a stored baseline any more. Reports use these words."""

    NO_MODULE = "no such file"
    NO_TEST = "no such test"
    FEWER = "its test no longer makes this measurement"


def stale_among(
    keys: Iterable[str],
    *,
    whole: Collection[str],
    tests: Collection[str],
    passed: Collection[str],
    measured: Collection[str],
    is_gone: Callable[[str], bool],
) -> dict[str, Why]:
    """Returns the keys that no test stores any more, sorted, each with the reason.

    A key is a test's id. It may end with `#2` for the test's second measurement, or with `#upload` for a part of a
    load. `whole` has the modules whose tests were all collected. `tests` has all collected tests, even deselected ones.
    `measured` has the keys that the tests in `passed` measured. `is_gone` says whether a module's file is gone.
    """
    found = {}
    for key in sorted(keys):
        module, test = key.partition("::")[0], key
        while test not in tests and "#" in test:
            test = test.rpartition("#")[0]
        if module not in whole:
            if is_gone(module):
                found[key] = Why.NO_MODULE
        elif test not in tests:
            found[key] = Why.NO_TEST
        elif test in passed and key not in measured:
            found[key] = Why.FEWER
    return found
