"""Options and ini values: which there are, and whether load tests are on.

Every pytest run imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

__all__ = (
    "CHOICES",
    "DEFAULT_BASELINES",
    "JUDGE_INI",
    "LOAD_OPTIONS",
    "MEASURING_FIXTURES",
    "OF_BASELINES",
    "SKIP_REASON",
    "add_options",
    "app_named_in",
    "is_enabled",
    "is_load_test",
    "marker_keys",
    "refuse_no_values",
    "runs_in_ci",
)

SKIP_REASON = "needs --fileperf (or --fileperf-smoke for a few requests)"
MEASURING_FIXTURES = ("fileperf", "afileperf")
_SERVING_FIXTURES = (*MEASURING_FIXTURES, "fileperf_server")
DEFAULT_BASELINES = ".fileperf"
CHOICES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "confirm": (
        ("auto", "always", "never"),
        "whether the code of a stored baseline is measured again, in turn with the code here: where stored figures "
        "alone cannot decide (auto, the default), always, or never",
    ),
    "base_packages": (
        ("now", "stored"),
        "packages that the code of a stored baseline runs with: those installed here (now, the default), or those "
        "that were stored with it (stored)",
    ),
    "preload": (
        ("auto", "never"),
        "import the app once in a session and fork for each start-up of uvicorn with one worker, unless something "
        "keeps the app from that (auto, the default), or import it for each start-up (never)",
    ),
}
"""Options and ini values that are one of a few words. Each has these words, the default first, and a help text."""
OF_BASELINES = ("confirm", "base_packages")
"""Those that say how stored baselines are compared with."""

LOAD_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "app": ("APP", "string", 'the app under test: "module:attribute", or "module:factory()"'),
    "server": (
        "SERVER",
        "string",
        'what serves it: uvicorn, gunicorn, uvicorn:workers=2,loop=asyncio, inprocess, "command:./server --port '
        '{port}", or http://… on this machine',
    ),
    "workers": ("N", "int", "worker processes of the server"),
    "connections": ("N", "int", "connections that make requests at the same time (default 32)"),
    "duration": ("TIME", "string", "how long to measure, over all boots of the server, as in 10s (default 4s)"),
    "max_duration": (
        "TIME",
        "string",
        "the longest time for a test that is measured in turn with another version, boots included (default 30s), and "
        "for a search for a capacity (default 60s)",
    ),
    "rounds": ("N", "int", "how many rounds the duration is divided into; the statistics count rounds (default 12)"),
    "boots": ("N", "int", "how many boots of the server share the duration (default 3, and 1 where there is no gate)"),
    "generators": (
        "N|auto",
        "string",
        "processes on this machine that make the load together (default 1), or as many as it takes (auto)",
    ),
    "warmup": ("TIME", "string", "how long each boot is loaded before it is measured (default 300ms)"),
    "timeout": ("TIME", "string", "a request that takes longer has failed (default 30s)"),
}
"""Keys with an option and an ini value. Each has its metavar, the ini value's type, and a help text."""
JUDGE_INI: Mapping[str, str] = {
    "tolerance": "the worsening that gates let pass: a share for all metrics (5%), or by metric (rps=5%, p99=20%)",
    "gate": 'the metrics compared with the baseline (default "rps, p99"), or "none"',
}
"""Keys that have an ini value only."""


_COVERAGE_HELP = (
    "let coverage trace servers and load generators too, where it traces this run; otherwise they run untraced"
)


_HOST_HELP = (
    "the address of this machine at which servers that are booted listen, and are loaded (default 127.0.0.1); load has "
    "to be allowed to go there"
)
_ALLOW_HELP = "an address, or a name for one, that load may go to; without it load goes to this machine only"
_CLUSTER_HELP = "make the load from the workers of a Dask cluster, as --fileperf-cluster says it"


def add_options(parser: pytest.Parser) -> None:
    """Registers every option and ini value."""
    group = parser.getgroup("fileperf", "load tests of ASGI apps")

    def option(name: str, **how: object) -> None:
        group.addoption(f"--fileperf{name}", dest=f"fileperf{name.replace('-', '_') or '_on'}", **how)

    option(
        "",
        action="store_true",
        default=False,
        help="run the load tests, and compare them with their baselines; without this, or an option that writes, "
        "stores or compares results, they are skipped",
    )
    option(
        "-smoke",
        action="store_true",
        default=False,
        help="run the load tests with a few requests each, and check only that requests succeed",
    )
    option(
        "-update",
        nargs="?",
        const="passed",
        metavar="all|new",
        help="store missing baselines, and those of tests that IMPROVED, measured in turn; only missing ones (new), or "
        "all of them, also what got worse (all)",
    )
    option(
        "-reason",
        metavar="TEXT",
        help="why baselines are stored: kept with them, and shown where a test regresses",
    )
    option(
        "-update-in-ci",
        action="store_true",
        default=False,
        help="let --fileperf-update store baselines where the environment variable CI is set",
    )
    option("-prune", action="store_true", default=False, help="remove baselines of tests that no longer exist")
    option(
        "-against",
        metavar="REF|DIR|URL|python:PATH",
        help="compare with another version, measured in turn: a Git ref, a directory, a server that runs on this "
        "machine, or the same code on another Python",
    )
    option(
        "-aa",
        action="store_true",
        default=False,
        help="compare the code with itself: how small a change would show here; only limits are judged",
    )
    option(
        "-cluster",
        metavar="SCHEDULER",
        help="make the load from the workers of a Dask cluster: the address of its scheduler, or its scheduler file "
        "(extra: cluster)",
    )
    option("-host", metavar="ADDRESS", help=_HOST_HELP)
    option("-allow-host", metavar="ADDRESS", action="append", help=f"{_ALLOW_HELP}; may be given more than once")
    option("-profile", action="store_true", default=False, help="say which functions of the app cost most CPU")
    option("-coverage", action="store_true", default=False, help=_COVERAGE_HELP)
    option("-strict", action="store_true", default=False, help="tests that are NEW or INCONCLUSIVE fail too")
    option("-json", metavar="PATH", help="write all figures and verdicts to a JSON file")
    option("-html", metavar="PATH", help="write tables and charts to one HTML file (extra: html)")
    option("-markdown", metavar="PATH", help="write a summary for a pull request as Markdown")
    option(
        "-save",
        nargs="?",
        const="",
        metavar="NAME",
        help="save the run in pytest-benchmark's storage, under this name (extra: benchmark)",
    )
    option("-baselines", metavar="DIR", help=f"directory of the baselines (default {DEFAULT_BASELINES} in the rootdir)")
    for key, (words, help_text) in CHOICES.items():
        option(f"-{key.replace('_', '-')}", metavar="|".join(words), help=help_text)
        _add_ini(parser, key, help_text, "string")
    option(
        "-group-by",
        metavar="LABELS",
        help="which tests are ranked together: those of the same group (default), name, func, fullname, fullfunc, "
        "param, or param:NAME, or several of these joined by commas, as in func,param:size",
    )
    for key, (metavar, kind, help_text) in LOAD_OPTIONS.items():
        option(f"-{key.replace('_', '-')}", metavar=metavar, help=help_text)
        _add_ini(parser, key, help_text, kind)
    for key, help_text in JUDGE_INI.items():
        _add_ini(parser, key, help_text, "string")
    _add_ini(
        parser, "baselines", "directory of the stored baselines, relative to the rootdir (default .fileperf)", "string"
    )
    _add_ini(parser, "cluster", _CLUSTER_HELP, "string")
    _add_ini(parser, "host", _HOST_HELP, "string")
    _add_ini(parser, "allow_host", "addresses, or names for some, that load may go to besides this machine", "linelist")
    _add_ini(parser, "group_by", "which tests are ranked together, as --fileperf-group-by says it", "string")
    _add_ini(
        parser,
        "keep_trees",
        "keep uncommitted code that a baseline is stored of, under refs/fileperf/ of this repository (default true)",
        "bool",
    )
    _add_ini(parser, "coverage", _COVERAGE_HELP, "bool")
    _add_ini(parser, "strict", "tests that are NEW or INCONCLUSIVE fail too", "bool")


def _add_ini(parser: pytest.Parser, key: str, help_text: str, kind: str) -> None:
    # It must be the exact type: pytest checks a native [tool.pytest] table against it and converts nothing.
    parser.addini(f"fileperf_{key}", help_text, type=kind, default=None)  # type: ignore[arg-type]


def is_enabled(config: pytest.Config) -> bool:
    """Returns whether load tests are on: by `--fileperf`, or by an option about their outcome."""
    flags = ("on", "smoke", "prune", "aa", "profile")
    values = ("update", "against", "reason", "json", "html", "markdown", "save")
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


def refuse_no_values(config: pytest.Config) -> None:
    """Raises UsageError for an option whose value is `--`: argparse takes it away, and leaves a list."""
    given = [(name, value) for name, value in vars(config.option).items() if name.startswith("fileperf")]
    lists = [(name, value) for name, value in given if isinstance(value, list)]
    # What may be given more than once is a list of texts.
    if names := [name for name, value in lists if not value or not all(isinstance(one, str) for one in value)]:
        raise pytest.UsageError(f"fileperf: --{names[0].replace('_', '-')}: -- is no value")


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
