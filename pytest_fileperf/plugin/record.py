"""Makes the record of a session: what was measured, with when, where and of what it was."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import cast

import pytest

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.result import FailedTest, Result
from pytest_fileperf.judge.sealed import new_salt, sealed
from pytest_fileperf.plan.hidden import without_queries
from pytest_fileperf.plugin.invocation import Options
from pytest_fileperf.versions.commit import commit_info

__all__ = ("record_of",)


def record_of(
    results: Sequence[Result],
    failed: Sequence[FailedTest],
    config: pytest.Config,
    options: Options,
    said: Sequence[str],
) -> SessionRecord:
    """Returns the record. Commit and environment are only looked up where a file is written that has them."""
    record = replace(
        session_record(results, options.group_by),
        failed=tuple(failed),
        said=tuple(said),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        asked=_asked(config, options),
        versions={
            "pytest-fileperf": version("pytest-fileperf"),
            "pytest": pytest.__version__,
            "python": platform.python_version(),
        },
    )
    if options.json is None and options.html is None and options.save is None:
        return record
    record = replace(record, commit=commit_info(config.rootpath), environment=asdict(Environment.current()))
    return record if options.json is None else _sealed(record, options.baselines)


def _sealed(record: SessionRecord, baselines: Path) -> SessionRecord:
    """Returns the record with the digests that the baselines of its tests have, so that equal values are equal."""
    environment, store = Environment.current(), BaselineStore(baselines)

    @cache
    def salt_of(module: str) -> str:
        try:
            return store.salt_of(module, environment)
        except BaselineError:
            return new_salt()

    def hidden(result: Result) -> Result:
        identity = sealed(result.identity, salt_of(result.test.module))
        return replace(result, identity=cast("dict[str, object]", identity))

    sealed_of = {id(result): hidden(result) for result in record.results}
    return replace(
        record,
        results=tuple(sealed_of[id(result)] for result in record.results),
        alone=tuple(sealed_of[id(result)] for result in record.alone),
        groups=tuple(
            replace(group, results=tuple(sealed_of[id(result)] for result in group.results)) for group in record.groups
        ),
    )


def _asked(config: pytest.Config, options: Options) -> Asked:
    return Asked(
        command=shlex.join(("pytest", *_told(map(str, config.invocation_params.args), config.invocation_params.dir))),
        against=options.against or "",
        aa=options.aa,
        update=options.update or "",
        smoke=options.smoke,
        strict=options.strict,
        profile=options.profile,
        group_by=options.group_by,
    )


def _told(arguments: Iterable[str], directory: Path) -> Iterator[str]:
    """Yields arguments of pytest as reports may have them: names of options and paths; of other values only ours."""
    is_ours = False
    for argument in arguments:
        option, mark, _ = argument.partition("=")
        takes_ours, is_ours = is_ours, False
        if option.startswith("--fileperf"):
            is_ours = not mark
            yield without_queries(argument)
        elif option.startswith("--"):
            yield f"{option}=…" if mark and "::" not in option else option
        elif option.startswith("-"):
            yield argument if _FLAGS.issuperset(argument[1:]) else _cut(argument)
        else:
            is_shown = takes_ours or _exists(directory / argument.partition("::")[0])
            yield without_queries(argument) if is_shown else "…"


def _cut(argument: str) -> str:
    """Returns a short option without the value that may be attached to it."""
    return argument if len(argument) == len("-k") else f"{argument[:2]}…"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # it is no path
        return False


_FLAGS = frozenset("hlqsvx")
"""Short options of pytest that take no value."""
