"""Makes the record of a session: what was measured, with when, where and of what it was."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version

import pytest

from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.result import FailedTest, Result
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
    return replace(record, commit=commit_info(config.rootpath), environment=asdict(Environment.current()))


def _asked(config: pytest.Config, options: Options) -> Asked:
    return Asked(
        command=shlex.join(("pytest", *map(str, config.invocation_params.args))),
        against=options.against or "",
        aa=options.aa,
        update=options.update or "",
        smoke=options.smoke,
        strict=options.strict,
        profile=options.profile,
        group_by=options.group_by,
    )
