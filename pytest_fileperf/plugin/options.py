"""Options and ini values, and whether load tests are on.

Every pytest run imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

SKIP_REASON = "needs --fileperf (or --fileperf-smoke for a few requests)"
MEASURING_FIXTURES = ("fileperf", "afileperf")
_SERVING_FIXTURES = (*MEASURING_FIXTURES, "fileperf_server")
DEFAULT_BASELINES = ".fileperf"
CHOICES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "confirm": (
        ("always", "never"),
        "measure the code of a stored baseline again, in turn with the code here (always, the default), or compare "
        "with its stored figures only (never)",
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
    "client": (
        ("httpx", "httpx2"),
        "the package whose clients journeys, setups and fileperf_server.client() get: httpx (the default), or httpx2 "
        "(extra: httpx2); a function whose annotation names a client gets that one",
    ),
}
"""Options and ini values with a few allowed words: the words, the default first, and a help text."""
OF_BASELINES = ("confirm", "base_packages")
"""Options about comparisons with stored baselines."""

LOAD_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "app": ("APP", "string", 'the app under test: "module:attribute", or "module:factory()"'),
    "server": (
        "SERVER",
        "string",
        "what serves it: uvicorn, gunicorn, granian, uvicorn:workers=2,loop=asyncio, inprocess, "
        '"command:./server --port {port}", or http://… on this machine',
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
"""Keys with an option and an ini value: metavar, the ini value's type, and a help text."""
_HOST_HELP = (
    "the address of this machine at which servers that are booted listen, and are loaded (default 127.0.0.1); load has "
    "to be allowed to go there"
)
_COVERAGE_HELP = (
    "let coverage trace servers and load generators too, where it traces this run (its settings need patch = subprocess"
    " and sigterm = true); otherwise they run untraced"
)
_BUDGET_HELP = (
    "the time for all comparisons together, as in 3min, in place of max_duration: what one does not need is for others,"
    " and what is undecided is measured once more while time is left"
)
_HISTORY_HELP = (
    "append what both versions of each comparison show to a history, for `python -m pytest_fileperf trend` (default "
    "history.jsonl in the directory of the baselines)"
)
_STRICT_HELP = "tests that are NEW or INCONCLUSIVE fail too"
INI: Mapping[str, tuple[str, str]] = {
    **{key: ("string", help_text) for key, (_, help_text) in CHOICES.items()},
    **{key: (kind, help_text) for key, (_, kind, help_text) in LOAD_OPTIONS.items()},
    "tolerance": (
        "string",
        "the worsening that gates let pass: a share for all metrics (5%), or by metric (rps=5%, p99=20%); with a floor"
        " (p99=15% and 2ms) only a loss beyond both fails",
    ),
    "gate": ("string", 'the metrics compared with the baseline (default "rps, p99"), or "none"'),
    "watch": (
        "string",
        "other metrics to compare and to show, as in rss, if a test's server has them; none fails a test",
    ),
    "baselines": ("string", "directory of the stored baselines, relative to the rootdir (default .fileperf)"),
    "cluster": ("string", "make the load from the workers of a Dask cluster, as --fileperf-cluster says it"),
    "host": ("string", _HOST_HELP),
    "allow_host": ("linelist", "addresses, or names for some, that load may go to besides this machine"),
    "group_by": ("string", "which tests are ranked together, as --fileperf-group-by says it"),
    "keep_trees": (
        "bool",
        "keep uncommitted code that a baseline is stored of, under refs/fileperf/ of this repository (default true)",
    ),
    "coverage": ("bool", _COVERAGE_HELP),
    "strict": ("bool", _STRICT_HELP),
    "budget": ("string", _BUDGET_HELP),
    "history": ("string", "the file to which each run appends its line, as --fileperf-history says it"),
}
"""Every ini value by its key: its type, and a help text."""
INI_SETTINGS = (*LOAD_OPTIONS, "tolerance", "gate", "watch")
"""Ini values that are settings of tests."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("fileperf", "load tests of ASGI apps")

    def option(name: str, help_text: str, **how: object) -> None:
        dest = f"fileperf{name.replace('-', '_') or '_on'}"
        group.addoption(f"--fileperf{name}", dest=dest, help=help_text, **how)

    def flag(name: str, help_text: str) -> None:
        option(name, help_text, action="store_true", default=False)

    flag(
        "",
        "run the load tests, and compare them with their baselines; without this, or an option that writes, stores or "
        "compares results, they are skipped",
    )
    flag("-smoke", "run the load tests with a few requests each, and check only that requests succeed")
    option(
        "-update",
        "store missing baselines, and those of tests that IMPROVED, measured in turn; only missing ones (new), or all "
        "of them, also what got worse (all)",
        nargs="?",
        const="passed",
        metavar="all|new",
    )
    option("-reason", "why baselines are stored: kept with them, and shown where a test regresses", metavar="TEXT")
    flag("-update-in-ci", "let --fileperf-update store baselines where the environment variable CI is set")
    flag("-prune", "remove baselines of tests that no longer exist")
    option(
        "-against",
        "compare with another version, measured in turn: a Git ref, a directory, a server that runs on this machine, "
        "or the same code on another Python",
        metavar="REF|DIR|URL|python:PATH",
    )
    option(
        "-changed",
        "measure only tests that a change since this Git ref can affect, by what their servers had loaded when their "
        "baselines were stored; skip the others",
        metavar="REF",
    )
    flag("-aa", "compare the code with itself: how small a change would show here; only limits are judged")
    option(
        "-cluster",
        "make the load from the workers of a Dask cluster: the address of its scheduler, or its scheduler file (extra: "
        "cluster)",
        metavar="SCHEDULER",
    )
    option("-host", _HOST_HELP, metavar="ADDRESS")
    option(
        "-allow-host",
        "an address, or a name for one, that load may go to; without it load goes to this machine only; may be given "
        "more than once",
        metavar="ADDRESS",
        action="append",
    )
    flag("-profile", "say which functions of the app cost most CPU")
    flag("-queries", "count the database queries of each request, by SQLAlchemy and Django; that costs some requests/s")
    flag("-coverage", _COVERAGE_HELP)
    flag("-strict", _STRICT_HELP)
    option("-budget", _BUDGET_HELP, metavar="TIME")
    option("-json", "write all figures and verdicts to a JSON file", metavar="PATH")
    option("-html", "write tables and charts to one HTML file (extra: html)", metavar="PATH")
    option("-markdown", "write a summary for a pull request as Markdown", metavar="PATH")
    option(
        "-save",
        "save the run in pytest-benchmark's storage, under this name (extra: benchmark)",
        nargs="?",
        const="",
        metavar="NAME",
    )
    option("-history", _HISTORY_HELP, nargs="?", const="", metavar="PATH")
    option("-baselines", f"directory of the baselines (default {DEFAULT_BASELINES} in the rootdir)", metavar="DIR")
    for key, (words, help_text) in CHOICES.items():
        option(f"-{key.replace('_', '-')}", help_text, metavar="|".join(words))
    option(
        "-group-by",
        "which tests are ranked together: those of the same group (default), name, func, fullname, fullfunc, param, or "
        "param:NAME, or several of these joined by commas, as in func,param:size",
        metavar="LABELS",
    )
    for key, (metavar, _, help_text) in LOAD_OPTIONS.items():
        option(f"-{key.replace('_', '-')}", help_text, metavar=metavar)
    for key, (kind, help_text) in INI.items():
        # The type must be exact: pytest checks a native [tool.pytest] table against it and converts nothing.
        parser.addini(f"fileperf_{key}", help_text, type=kind, default=None)  # type: ignore[arg-type]


def is_enabled(config: pytest.Config) -> bool:
    """Returns whether load tests are on: by `--fileperf`, or by an option about their results."""
    flags = ("on", "smoke", "prune", "aa", "profile", "queries")
    values = ("update", "against", "changed", "reason", "json", "html", "markdown", "save", "history")
    return any(config.getoption(f"fileperf_{name}") not in (None, False) for name in (*flags, *values))


def runs_in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def is_load_test(item: pytest.Item) -> bool:
    """Returns whether the test runs only if load tests are on."""
    fixtures = getattr(item, "fixturenames", ())
    return any(name in fixtures for name in _SERVING_FIXTURES) or item.get_closest_marker("fileperf") is not None


def refuse_no_values(config: pytest.Config) -> None:
    """Raises UsageError for an option with the value `--`: older argparse removes it, and leaves an empty list."""
    for name, value in vars(config.option).items():
        values = value if isinstance(value, list) else [value]  # an option that may be repeated has a list of texts
        if name.startswith("fileperf") and (not values or "--" in values or [] in values):
            raise pytest.UsageError(f"fileperf: --{name.replace('_', '-')}: -- is no value")


def marker_keys(item: pytest.Item) -> dict[str, object]:
    """Returns the keys of a test's `fileperf` markers. The test's own beat its class's, then its module's."""
    keys: dict[str, object] = {}
    for marker in item.iter_markers("fileperf"):
        for key, value in marker.kwargs.items():
            keys.setdefault(key, value)
    return keys


def app_named_in(item: pytest.Item) -> object | None:
    """Returns the app that marker, command line or ini name, unchecked; None if they name none."""
    keys = marker_keys(item)
    if keys.get("app") is not None:
        return keys["app"]
    option: object = item.config.getoption("fileperf_app")
    ini: object = item.config.getini("fileperf_app")
    return option if option is not None else ini
