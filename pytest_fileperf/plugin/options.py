"""Options and ini values: which there are, what was given, and whether load tests are on.

Every pytest run imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY, parse_group_by

__all__ = (
    "MEASURING_FIXTURES",
    "SKIP_REASON",
    "Options",
    "add_options",
    "app_named_in",
    "is_enabled",
    "is_load_test",
    "marker_keys",
    "read_options",
    "runs_in_ci",
)

SKIP_REASON = "needs --fileperf (or --fileperf-smoke for a few requests)"
MEASURING_FIXTURES = ("fileperf", "afileperf")
_SERVING_FIXTURES = (*MEASURING_FIXTURES, "fileperf_server")
_UPDATES = ("passed", "all", "new")
_BASELINES = ".fileperf"

_LOAD_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "app": ("APP", "string", 'the app under test: "module:attribute", or "module:factory()"'),
    "server": (
        "SERVER",
        "string",
        "what serves it: uvicorn, uvicorn:loop=asyncio, inprocess, or http://… on this machine",
    ),
    "workers": ("N", "int", "worker processes of the server"),
    "connections": ("N", "int", "connections that make requests at the same time (default 32)"),
    "duration": ("TIME", "string", "time to measure each test for, as in 10s (default 6s)"),
    "max_duration": ("TIME", "string", "longest time for each test of --fileperf-against (default 60s)"),
    "rounds": ("N", "int", "rounds to divide that time into (default 12)"),
    "boots": ("N", "int", "starts of the server to spread them over (default 3)"),
    "warmup": ("TIME", "string", "time to load each boot before measuring (default 500ms)"),
    "timeout": ("TIME", "string", "time after which a request counts as failed (default 30s)"),
}
"""Keys with an option and an ini value. Each has its metavar, the ini value's type, and a help text."""
_JUDGE_INI: Mapping[str, str] = {
    "tolerance": "the worsening that gates let pass: a share for all metrics (5%), or by metric (rps=5%, p99=20%)",
    "gate": 'the metrics compared with the baseline (default "rps, p99"), or "none"',
}
"""Keys that have an ini value only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line and the ini file say."""

    smoke: bool
    update: str | None
    """`passed` (no value given), `all`, `new` or None."""
    reason: str | None
    """Why baselines are stored, on one line."""
    prune: bool
    against: str | None
    """Another version to compare with, as the user wrote it."""
    aa: bool
    """Compare the code with itself."""
    profile: bool
    """Say which functions cost CPU."""
    strict: bool
    json: Path | None
    html: Path | None
    save: str | None
    """The name to save under, empty for one made of commit and time; None saves nothing."""
    baselines: Path
    group_by: tuple[str, ...]
    """Labels that say which tests are ranked together."""
    command_line: Mapping[str, object]
    """Settings given on the command line, by key."""
    ini: Mapping[str, object]
    """Settings given in the ini file, by key."""


def add_options(parser: pytest.Parser) -> None:
    """Registers every option and ini value."""
    group = parser.getgroup("fileperf", "load tests of ASGI apps")

    def option(name: str, **how: object) -> None:
        group.addoption(f"--fileperf{name}", dest=f"fileperf{name.replace('-', '_') or '_on'}", **how)

    option("", action="store_true", default=False, help="run load tests, and compare them with their baselines")
    option("-smoke", action="store_true", default=False, help="only a few requests each, nothing is judged")
    option(
        "-update",
        nargs="?",
        const="passed",
        metavar="all|new",
        help="store baselines: of tests that certainly did not get worse, only missing ones (new), or all (all)",
    )
    option("-reason", metavar="TEXT", help="why baselines are stored: kept with them, and said where a test regresses")
    option("-update-in-ci", action="store_true", default=False, help="store baselines also where CI is set")
    option("-prune", action="store_true", default=False, help="remove baselines of tests that no longer exist")
    option(
        "-against",
        metavar="REF|DIR|URL|python:PATH",
        help="compare with another version, measured in turn: a Git ref, a directory, a server that runs on this "
        "machine, or the same code on another Python",
    )
    option(
        "-aa", action="store_true", default=False, help="compare the code with itself: how small a change would show"
    )
    option("-profile", action="store_true", default=False, help="say which functions of the app cost most CPU")
    option("-strict", action="store_true", default=False, help="NEW and INCONCLUSIVE fail the test too")
    option("-json", metavar="PATH", help="write all figures and verdicts as JSON")
    option("-html", metavar="PATH", help="write tables and charts as one HTML file")
    option(
        "-save", nargs="?", const="", metavar="NAME", help="save the run in pytest-benchmark's storage, under this name"
    )
    option("-baselines", metavar="DIR", help=f"directory of the baselines (default {_BASELINES} in the rootdir)")
    option(
        "-group-by",
        metavar="LABELS",
        help="which tests are ranked together: those of the same group (default), name, func, fullname, fullfunc, "
        "param, or param:NAME, or several of these joined by commas, as in func,param:size",
    )
    for key, (metavar, kind, help_text) in _LOAD_OPTIONS.items():
        option(f"-{key.replace('_', '-')}", metavar=metavar, help=help_text)
        _add_ini(parser, key, help_text, kind)
    for key, help_text in _JUDGE_INI.items():
        _add_ini(parser, key, help_text, "string")
    _add_ini(parser, "baselines", "directory of the stored baselines, relative to the rootdir", "string")
    _add_ini(parser, "group_by", "which tests are ranked together, as --fileperf-group-by says it", "string")
    _add_ini(parser, "strict", "NEW and INCONCLUSIVE fail the test too", "bool")


def _add_ini(parser: pytest.Parser, key: str, help_text: str, kind: str) -> None:
    # It must be the exact type: pytest checks a native [tool.pytest] table against it and converts nothing.
    parser.addini(f"fileperf_{key}", help_text, type=kind, default=None)  # type: ignore[arg-type]


def is_enabled(config: pytest.Config) -> bool:
    """Returns whether load tests are on: by `--fileperf`, or by an option about their outcome."""
    flags = ("on", "smoke", "prune", "aa", "profile")
    values = ("update", "against", "reason", "json", "html", "save")
    return any(config.getoption(f"fileperf_{flag}") for flag in flags) or any(
        config.getoption(f"fileperf_{value}") is not None for value in values
    )


def runs_in_ci() -> bool:
    """Returns whether the environment variable CI is set to a true value."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def is_load_test(item: pytest.Item) -> bool:
    """Returns whether the test runs only where load tests are on."""
    fixtures = getattr(item, "fixturenames", ())
    return any(name in fixtures for name in _SERVING_FIXTURES) or item.get_closest_marker("fileperf") is not None


def marker_keys(item: pytest.Item) -> dict[str, object]:
    """Returns the keys of a test's `fileperf` markers: the test's own come before its class's and its module's."""
    keys: dict[str, object] = {}
    for marker in item.iter_markers("fileperf"):
        for key, value in marker.kwargs.items():
            keys.setdefault(key, value)
    return keys


def app_named_in(item: pytest.Item) -> object | None:
    """Returns the app that marker, command line or ini name for a test, unchecked; None where none does."""
    keys = marker_keys(item)
    if keys.get("app") is not None:
        return keys["app"]
    option: object = item.config.getoption("fileperf_app")
    ini: object = item.config.getini("fileperf_app")
    return option if option is not None else ini


def read_options(config: pytest.Config) -> tuple[Options, tuple[str, ...]]:
    """Returns the options, and everything wrong with those that are not settings."""

    def given(name: str) -> Any:
        return config.getoption(f"fileperf_{name}")

    ini, wrong_types = _read_ini(config)
    group_by, wrong_labels = _group_by(given("group_by"), ini.pop("group_by", None))
    directory, reason = config.invocation_params.dir, given("reason")
    options = Options(
        smoke=bool(given("smoke")),
        update=given("update"),
        reason=None if reason is None else _on_one_line(reason),
        prune=bool(given("prune")),
        against=given("against"),
        aa=bool(given("aa")),
        profile=bool(given("profile")),
        strict=bool(given("strict") or ini.pop("strict", False)),
        json=_optional_path(directory, given("json")),
        html=_optional_path(directory, given("html")),
        save=given("save"),
        baselines=_baselines(config, ini.pop("baselines", None)),
        group_by=group_by,
        command_line={key: value for key in _LOAD_OPTIONS if (value := given(key)) is not None},
        ini=ini,
    )
    in_ci = runs_in_ci() and not given("update_in_ci")
    return options, (*_problems(options, directory, in_ci=in_ci), *wrong_types, *wrong_labels)


def _problems(options: Options, directory: Path, *, in_ci: bool) -> Iterator[str]:
    """Yields what is wrong with the options; `in_ci` is whether no baselines may be stored because CI is set."""
    update, reason, smoke, save = options.update, options.reason, options.smoke, options.save
    if update is not None and update not in _UPDATES:
        yield (
            f"--fileperf-update={update}: it is all or new, or has no value; "
            "give it after the paths, or the next path is taken for its value"
        )
    elif update is not None and smoke:
        yield "--fileperf-update: a few requests make no baseline, leave out --fileperf-smoke"
    if update is not None and in_ci:
        yield (
            "--fileperf-update: CI is set, and baselines that nobody looks at accept what got slower: store them where "
            "you see the figures and commit them, or add --fileperf-update-in-ci"
        )
    if reason == "":
        yield '--fileperf-reason: it is empty, say why, as in --fileperf-reason="responses are signed now"'
    elif reason is not None and update is None:
        yield "--fileperf-reason: it is stored with baselines, and none are stored without --fileperf-update"
    if options.prune and smoke:
        yield "--fileperf-prune: a few requests prune nothing, leave out --fileperf-smoke"
    if options.against and options.aa:
        yield "--fileperf-against and --fileperf-aa: both say what to compare with, give one of them"
    elif options.against or options.aa:
        name = "--fileperf-aa" if options.aa else "--fileperf-against"
        if update is not None:
            yield f"{name}: it measures two versions, and stores neither: leave out --fileperf-update"
        if smoke:
            yield f"{name}: a few requests compare nothing, leave out --fileperf-smoke"
        if options.profile:
            yield f"{name}: it profiles regressions by itself, leave out --fileperf-profile"
    if save and ("/" in save or "\\" in save or "::" in save or (directory / save).exists()):
        yield f"--fileperf-save={save}: that is a path, not a name; write --fileperf-save=NAME before paths"
    if options.html is not None and find_spec("plotly") is None:
        yield '--fileperf-html: its charts need plotly, install it with pip install "pytest-fileperf[html]"'


def _read_ini(config: pytest.Config) -> tuple[dict[str, object], list[str]]:
    """Returns the given ini values by key, and which of them have a wrong type."""
    values: dict[str, object] = {}
    problems = []
    for key in (*_LOAD_OPTIONS, *_JUDGE_INI, "baselines", "group_by", "strict"):
        try:
            value: object = config.getini(f"fileperf_{key}")
        except (TypeError, ValueError, pytest.UsageError) as error:  # which one depends on pytest's version
            problems.append(f"fileperf_{key}: {error}")
        else:
            if value is not None:
                values[key] = value
    return values, problems


def _group_by(option: str | None, ini: object) -> tuple[tuple[str, ...], list[str]]:
    """Returns the labels of the option, else of the ini value, and what is wrong with them."""
    given, where = (option, "--fileperf-group-by") if option is not None else (ini, "fileperf_group_by")
    if given is None:
        return DEFAULT_GROUP_BY, []
    try:
        return parse_group_by(str(given)), []
    except ValueError as error:
        return DEFAULT_GROUP_BY, [f"{where}: {error}"]


def _baselines(config: pytest.Config, ini: object) -> Path:
    given: str | None = config.getoption("fileperf_baselines")
    if given is not None:
        return config.invocation_params.dir / given
    return config.rootpath / str(ini or _BASELINES)


def _optional_path(directory: Path, given: str | None) -> Path | None:
    return None if given is None else directory / given


def _on_one_line(text: str) -> str:
    """Returns the text with single spaces for white space and marks for control characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
