"""Stored baselines: one JSON file for each test module and machine profile, made to be committed.

    <directory>/<profile>/tests__api__test_upload.py.json

History of the format
    1  {schema, module, environment, tests: {key: {captured, commit, evidence, identity, packages}}}
       evidence: {stabilised, boots: [{latency: HdrHistogram V2 text, requests, rounds: {metric: [value, …]}, runs}]}

Keys are sorted and a list of numbers is one line, so that a diff shows what moved. A file that cannot be read as it is,
is an error and never skipped.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.stored import mapping_in, text_in, value_in, whole_in

__all__ = ("SCHEMA", "BaselineStore", "Entry", "ForeignProfile")

SCHEMA = 1
_NUMBERS = re.compile(r"\[\n\s+((?:(?:-?[0-9][0-9.eE+-]*|null)(?:,\n\s+)?)+)\n\s+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The baseline of one test."""

    identity: Mapping[str, object]
    """Work, server and load as JSON values: only an equal one compares."""
    evidence: Evidence
    captured: str
    """When, in ISO 8601 with its offset."""
    commit: Mapping[str, object] | None = None
    """What version control said, as the caller gave it."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions installed then; `write` fills them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProfile:
    """There is a baseline, but of another machine profile."""

    profile: str
    """The nearest one: that which differs least."""
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
        """Returns the entry for this environment, else how the nearest other one differs, else None.

        Raises BaselineError, naming the file, when one that is looked into is damaged, too new or not readable.
        """
        own = self.path_of(module, environment)
        foreign: list[ForeignProfile] = []
        others = sorted(path for path in self.directory.glob(f"*/{_file_name(module)}") if path != own)
        for path in (own, *others):
            stored = _read(path)
            if stored is None or key not in stored.tests:
                continue
            differences = environment.differences(stored.environment)
            if not differences:
                return _entry(path, key, stored.tests[key])
            foreign.append(ForeignProfile(profile=path.parent.name, differences=differences))
        return min(foreign, key=lambda other: len(other.differences), default=None)

    def write(self, module: str, key: str, entry: Entry, environment: Environment) -> Path:
        """Stores the entry, leaves the module's others as they are, and returns the file.

        Written to a temporary file that then takes the place of the old one. Raises BaselineError when the file there
        is damaged or too new, or cannot be written.
        """
        path = self.path_of(module, environment)
        stored = _read(path)
        tests = dict(stored.tests) if stored else {}
        tests[key] = _entry_json(replace(entry, packages=dict(environment.packages)))
        content = {"schema": SCHEMA, "module": module, "environment": environment.to_json(), "tests": tests}
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        _replace(path, _NUMBERS.sub(_on_one_line, text) + "\n")
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
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
        return _Stored(environment=environment, tests=mapping_in(content, "tests", ""))
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
            packages={name: text_in(packages, name, f"{where}.packages") for name in packages},
        )
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _entry_json(entry: Entry) -> dict[str, object]:
    return {
        "captured": entry.captured,
        "commit": None if entry.commit is None else dict(entry.commit),
        "evidence": entry.evidence.to_json(),
        "identity": dict(entry.identity),
        "packages": dict(entry.packages),
    }


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{', '.join(part.strip() for part in match[1].split(','))}]"


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A directory of our own, as mkstemp's file would be readable for its owner alone.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fileperf-") as temporary:
            fresh = Path(temporary) / path.name
            with fresh.open("w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(path)
    except OSError as error:
        raise BaselineError(
            f"baseline {path} cannot be written: {error.strerror or error}; "
            "--fileperf-baselines=DIR names another directory"
        ) from error


def _damaged(path: Path, reason: str) -> BaselineError:
    return BaselineError(
        f"baseline {path} is damaged: {reason}\n"
        "restore it from version control, or delete it and store a new one with --fileperf-update"
    )
