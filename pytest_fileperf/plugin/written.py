"""Writes the files that the user asked for."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import cast

import pytest

from pytest_fileperf.errors import BaselineError, FilePerfError
from pytest_fileperf.host.files import write_text
from pytest_fileperf.judge.baseline import BaselineStore, new_salt, sealed
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.history import Trend, trends_of
from pytest_fileperf.judge.record import FailedTest, Result
from pytest_fileperf.plan.request import without_queries
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import STEP_LIMIT_BYTES, markdown_report
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.settings.settings import Options
from pytest_fileperf.versions.checkout import commit_info, project_name

# --- GitHub Actions: the summary of the CI step, and annotations


def tell_ci(config: pytest.Config, record: SessionRecord) -> Iterator[str]:
    """Adds a report to the CI step's summary. Yields lines to print, such as GitHub's annotations."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if summary and not record.asked.smoke:
        yield from _add_summary(Path(summary), record)
    if _on_github():
        yield from github_commands(record, root=_root_in_repository(config))


def no_command(line: str) -> str:
    """Changes a line that GitHub would take for a command, such as `::error` or `##[error]`."""
    if not _on_github():
        return line
    line = line.replace("##[", "# #[")
    return line.replace("::", ": :", 1) if line.lstrip().startswith("::") else line


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _add_summary(path: Path, record: SessionRecord) -> Iterator[str]:
    try:
        written = path.stat().st_size if path.exists() else 0
        room = STEP_LIMIT_BYTES - written - 2
        if room < 2048:  # a shorter summary says nothing
            yield "fileperf: the CI step's summary is full. Write the report to a file with --fileperf-markdown"
            return
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write("\n" * bool(written) + markdown_report(record, limit_bytes=room))
    except OSError as error:
        yield f"fileperf: cannot add the report to the CI step's summary {path}: {error.strerror or error}"


def _root_in_repository(config: pytest.Config) -> str:
    """Returns pytest's root directory relative to the repository on GitHub's machine, or an empty text."""
    with suppress(ValueError, OSError):
        if top := os.environ.get("GITHUB_WORKSPACE", ""):
            return config.rootpath.resolve().relative_to(Path(top).resolve()).as_posix()
    return ""


# --- The files that the user asked for


def write_files(config: pytest.Config, options: Options, record: SessionRecord) -> tuple[list[str], bool]:
    """Writes all files that `options` ask for. Returns (lines about the files, whether any could not be written)."""

    def write(path: Path, text_of: Callable[[SessionRecord], str]) -> str:
        write_text(path, text_of(record))
        return f"wrote {path}"

    page = partial(results_html, trends=_trends(options))
    reports = ((options.json, results_json), (options.html, page), (options.markdown, markdown_report))
    writers = [partial(write, path, text_of) for path, text_of in reports if path is not None]
    if options.save is not None:
        writers.append(partial(_save, config, options.save or None, record))
    said: list[str] = []
    failed = False
    for writer in writers:
        try:
            said.append(f"fileperf: {writer()}")
        except FilePerfError as error:
            said.append(f"fileperf: {error}")
            failed = True
    return said, failed


def _trends(options: Options) -> Sequence[Trend]:
    if options.html is None or options.history is None or not options.history.exists():
        return ()
    try:
        return trends_of([options.history])[0]
    except FilePerfError:  # a damaged history, for which the run has already failed
        return ()


def _save(config: pytest.Config, name: str | None, record: SessionRecord) -> str:
    from pytest_fileperf.report.benchmark_json import DEFAULT_STORAGE, benchmarks_of, run_document, save_benchmarks

    try:
        document = run_document(record.commit, project_name(Path.cwd()))
    except OSError as error:  # it starts programs
        raise FilePerfError(f"saved nothing, because the facts about this machine cannot be read: {error}") from error
    document["benchmarks"] = benchmarks_of(record)
    if hasattr(config.hook, "pytest_benchmark_update_json"):  # pytest-benchmark's plugin may be switched off
        config.hook.pytest_benchmark_update_json(config=config, benchmarks=[], output_json=document)
    storage = config.getoption("benchmark_storage", default=DEFAULT_STORAGE)
    path = save_benchmarks(document, name=name, storage=storage)
    if path is None:
        return "saved nothing, because smoke runs and measurements without a successful request are left out"
    return f"saved {path}"


# --- The record of a session


def record_of(
    results: Sequence[Result],
    failed: Sequence[FailedTest],
    config: pytest.Config,
    options: Options,
    said: Sequence[str],
    endpoints: Mapping[str, Mapping[str, bool]],
) -> SessionRecord:
    if options.json is not None:
        results = _sealed(results, options.baselines)
    # Looking up commit and environment takes time.
    tells_where = options.json is not None or options.html is not None or options.save is not None
    return replace(
        session_record(results, options.group_by),
        failed=tuple(failed),
        said=tuple(said),
        endpoints=endpoints,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        asked=Asked(
            command=shlex.join(("pytest", *_told(config.invocation_params))),
            against=options.against or "",
            aa=options.aa,
            update=options.update or "",
            smoke=options.smoke,
            strict=options.strict,
            profile=options.profile,
            group_by=options.group_by,
        ),
        versions={
            "pytest-fileperf": version("pytest-fileperf"),
            "pytest": pytest.__version__,
            "python": platform.python_version(),
        },
        commit=commit_of(config.rootpath) if tells_where else None,
        environment=asdict(Environment.current()) if tells_where else {},
    )


def commit_of(directory: Path) -> dict[str, object] | None:
    """Returns Git's facts about the commit. None if unknown. In CI, `url` may be the commit's web page."""
    commit = commit_info(directory)
    given = {name: os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "CI_PROJECT_URL")}
    pages = (f"{given['GITHUB_SERVER_URL']}/{given['GITHUB_REPOSITORY']}", f"{given['CI_PROJECT_URL']}/-")
    page = next((page for page in pages if page.startswith(("https://github.com/", "https://gitlab.com/"))), "")
    return {**commit, "url": f"{page}/commit/{commit['id']}"} if commit and page else commit


def _sealed(results: Iterable[Result], baselines: Path) -> list[Result]:
    """Returns the results with salted digests in place of secret values. Equal values have equal digests."""
    environment, store = Environment.current(), BaselineStore(baselines)

    @cache
    def salt_of(module: str) -> str:
        try:
            return store.salt_of(module, environment)
        except BaselineError:
            return new_salt()

    def hidden(result: Result) -> dict[str, object]:
        return cast("dict[str, object]", sealed(result.identity, salt_of(result.test.module)))

    return [replace(result, identity=hidden(result)) for result in results]


def _told(given: pytest.Config.InvocationParams) -> Iterator[str]:
    """Yields pytest's arguments for reports. `…` replaces values of other plugins' options, which may be secret."""
    is_ours = False
    for argument in map(str, given.args):
        option, mark, _ = argument.partition("=")
        takes_ours, is_ours = is_ours, False
        if option.startswith("--fileperf"):
            is_ours = not mark
            yield without_queries(argument)
        elif option.startswith("--"):
            yield f"{option}=…" if mark and "::" not in option else option
        elif option.startswith("-"):
            # A value may be attached to a short option.
            is_bare = set("hlqsvx").issuperset(argument[1:]) or len(argument) == len("-k")
            yield argument if is_bare else f"{argument[:2]}…"
        else:
            is_shown = takes_ours or _exists(given.dir / argument.partition("::")[0])
            yield without_queries(argument) if is_shown else "…"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a path
        return False
