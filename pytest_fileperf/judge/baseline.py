"""Stored baselines: one JSON file for each test module and machine profile, made to be committed.

    <directory>/<profile>/tests__api__test_upload.py.json

History of the format
    1  {schema, module, environment, tests: {key: {captured, commit, reason, summary, packages, identity, evidence}}}
       evidence: {stabilised, boots: [{latency: HdrHistogram V2 text, requests, rounds: {metric: [value, …]}, runs}]}
       The first files had no `reason` and no `summary`. Nothing reads the summary back: it is for reviewers.

Entries are sorted. Each begins with a line for each fact that a person reviews, and ends with the evidence, a line for
each boot, so a diff shows what changed. Storing or removing an entry leaves the lines of others unchanged. A file that
cannot be read is an error and is never skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.files import put_text
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.layout import laid_out
from pytest_fileperf.judge.level import level_of
from pytest_fileperf.judge.stored import mapping_in, optional_text_in, text_in, value_in, whole_in
from pytest_fileperf.measure.metrics import METRICS, Unit

__all__ = ("SCHEMA", "BaselineStore", "Entry", "ForeignProfile")

SCHEMA = 1
SUMMARY_DIGITS = 5
"""Significant digits of an entry's summary, as many as the evidence has."""
_PROFILES = "*-" + "[0-9a-f]" * 8
"""Matches machine profiles, so that other JSON files near the baselines are left alone."""
_READABLE: Mapping[Unit, tuple[str, float]] = {
    Unit.PER_SECOND: ("", 1.0),
    Unit.SECONDS: (" ms", 1e3),
    Unit.BYTES: (" MiB", 1 / (1 << 20)),
    Unit.BYTES_PER_SECOND: (" MiB/s", 1 / (1 << 20)),
    Unit.SHARE: (" %", 100.0),
}
"""How a summary shows a unit: always alike, so that two values compare at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The baseline of one test."""

    identity: Mapping[str, object]
    """Work, server and load as JSON values: only entries with an equal identity compare."""
    evidence: Evidence
    captured: str
    """When, in ISO 8601 with its offset."""
    commit: Mapping[str, object] | None = None
    """What version control said about the code."""
    reason: str | None = None
    """Why it was stored, on one line, where the user said so."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions installed then; `write` fills them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProfile:
    """There is a baseline, but of another machine profile."""

    profile: str
    """The profile that differs least."""
    differences: tuple[str, ...]
    """`cores was 2, is 4`, one for each thing that differs."""


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The files under one directory."""

    directory: Path

    def path_of(self, module: str, environment: Environment) -> Path:
        """Returns the file of a test module (its path with `/`) for this environment."""
        return self.directory / environment.profile / _file_name(module)

    def find(self, module: str, key: str, environment: Environment) -> Entry | ForeignProfile | None:
        """Returns the entry for this environment; else how the nearest other one differs; None where there is none.

        Raises BaselineError, naming the file, when a file it reads is damaged, too new or not readable.
        """
        own = self.path_of(module, environment)
        profiles: list[ForeignProfile] = []
        others = sorted(path for path in self.directory.glob(f"*/{_file_name(module)}") if path != own)
        for path in (own, *others):
            stored = _read(path)
            if stored is None or key not in stored.tests:
                continue
            differences = environment.differences(stored.environment)
            if not differences:
                return _entry(path, key, stored.tests[key])
            profiles.append(ForeignProfile(profile=path.parent.name, differences=differences))
        return min(profiles, key=lambda other: len(other.differences), default=None)

    def write(
        self, module: str, key: str, entry: Entry, environment: Environment, *, summary_of: Iterable[str] = ()
    ) -> Path:
        """Stores the entry, leaves the module's other entries unchanged, and returns the file.

        `summary_of` names the metrics in the entry's summary. The text goes to a temporary file, which then replaces
        the old one. Raises BaselineError when the old file is damaged or too new, or the new one cannot be written.
        """
        path = self.path_of(module, environment)
        stored = _read(path)
        tests = dict(stored.tests) if stored else {}
        tests[key] = _entry_json(replace(entry, packages=dict(environment.packages)), summary_of)
        content = {"environment": environment.to_json(), "module": module, "schema": SCHEMA}
        _write(path, {**content, "tests": dict(sorted(tests.items()))})
        return path

    def keys(self) -> Mapping[str, int]:
        """Returns the keys of all entries of every module, each with the number of machine profiles that have it.

        Raises BaselineError when any file is damaged, too new or not readable.
        """
        return Counter(key for stored in self._files().values() for key in stored.tests)

    def remove(self, keys: Collection[str]) -> int:
        """Removes these entries from every machine profile, and what is empty then; returns how many were removed.

        Raises BaselineError before anything is removed when a file is damaged, too new or not readable, and when a file
        cannot be written.
        """
        removed = 0
        for path, stored in self._files().items():
            kept = {key: entry for key, entry in stored.tests.items() if key not in keys}
            if len(kept) == len(stored.tests):
                continue
            if kept:
                _write(path, {**stored.content, "tests": kept})
            else:
                _delete(path)
            removed += len(stored.tests) - len(kept)
        return removed

    def _files(self) -> dict[Path, _Stored]:
        found = {path: _read(path) for path in sorted(self.directory.glob(f"{_PROFILES}/*.json"))}
        return {path: stored for path, stored in found.items() if stored is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    content: Mapping[str, object]
    """All of the file."""
    environment: Environment
    tests: Mapping[str, object]


def _file_name(module: str) -> str:
    return module.replace("\\", "/").replace("/", "__") + ".json"


def _read(path: Path) -> _Stored | None:
    """Returns the file's content, its entries still as JSON; None when there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"baseline {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _damaged(path, str(error)) from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"not JSON: {error}") from error
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
        return _Stored(content=content, environment=environment, tests=mapping_in(content, "tests", ""))
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _entry(path: Path, key: str, stored: object) -> Entry:
    where = f"tests[{key!r}]"
    try:
        if not isinstance(stored, dict):
            raise ValueError(f"{where} is not an object")
        commit = value_in(stored, "commit", where)
        packages = mapping_in(stored, "packages", where)
        evidence = mapping_in(stored, "evidence", where)
        return Entry(
            identity=mapping_in(stored, "identity", where),
            evidence=Evidence.from_json(evidence, f"{where}.evidence"),
            captured=text_in(stored, "captured", where),
            commit=None if commit is None else mapping_in(stored, "commit", where),
            reason=optional_text_in(stored, "reason", where),
            packages={name: text_in(packages, name, f"{where}.packages") for name in packages},
        )
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _entry_json(entry: Entry, summary_of: Iterable[str]) -> dict[str, object]:
    """Returns the entry as JSON values, in the order in which a reviewer reads it."""
    return {
        "captured": entry.captured,
        "commit": None if entry.commit is None else dict(entry.commit),
        "reason": entry.reason,
        "summary": _summary(entry.evidence, summary_of),
        "packages": dict(sorted(entry.packages.items())),
        "identity": json.loads(json.dumps(entry.identity, sort_keys=True)),
        "evidence": entry.evidence.to_json(),
    }


def _summary(evidence: Evidence, names: Iterable[str]) -> dict[str, float | None]:
    """Returns the levels that comparisons show, in readable units: `{"rps": 5210.0, "p99 ms": 31.2}`."""
    summary = {}
    for metric in (METRICS[name] for name in names):
        unit, factor = _READABLE[metric.unit]
        level = level_of(metric, evidence)
        summary[metric.name + unit] = None if level is None else float(f"{level.value * factor:.{SUMMARY_DIGITS}g}")
    return summary


def _write(path: Path, content: Mapping[str, object]) -> None:
    try:
        text = laid_out(content, flat=("commit",)) + "\n"
    except ValueError as error:  # a number in another entry that JSON does not have
        raise _damaged(path, str(error)) from error
    try:
        put_text(path, text)
    except OSError as error:
        raise BaselineError(
            f"baseline {path} cannot be written: {error.strerror or error}; "
            "--fileperf-baselines=DIR names another directory"
        ) from error


def _delete(path: Path) -> None:
    """Removes the file, and its directory where that is empty then."""
    try:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        raise BaselineError(f"baseline {path} cannot be removed: {error.strerror or error}") from error


def _damaged(path: Path, reason: str) -> BaselineError:
    return BaselineError(
        f"baseline {path} is damaged: {reason}\n"
        "restore it from version control, or delete it and store a new one with --fileperf-update"
    )
