"""Options and ini values, and whether load tests are on. Every pytest run imports this module."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

SKIP_REASON = "needs --fileperf (or --fileperf-smoke for a few requests)"
_MEASURING_FIXTURES = {"fileperf", "afileperf"}
DEFAULT_BASELINES = ".fileperf"
CHOICES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "confirm": (
        ("always", "never"),
        "Measure a baseline's code again, alternately with yours (always, the default), or compare with its stored "
        "figures only (never).",
    ),
    "base_packages": (
        ("now", "stored"),
        "Run a baseline's code with the packages installed here (now, the default). Or run it with the packages that "
        "were stored with it (stored).",
    ),
    "preload": (
        ("auto", "never"),
        "Import the app once in a run, and fork that process for each start-up (auto, the default). This needs "
        "uvicorn with one worker, and an app that allows it. Or import the app for each start-up (never).",
    ),
    "client": (
        ("httpx", "httpx2"),
        "Give journeys, setups and fileperf_server.client() a client of httpx (the default) or httpx2 (extra: httpx2). "
        "A function whose annotation names a client gets that one.",
    ),
}
"""Options and ini values with a few allowed words. Each has these words, the default first, and a help text."""

LOAD_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "app": ("APP", "string", 'Test this app: "module:attribute", or "module:factory()".'),
    "server": (
        "SERVER",
        "string",
        "Serve the app with this: uvicorn, gunicorn, granian, uvicorn:workers=2,loop=asyncio, inprocess, "
        '"command:./server --port {port}", or http://… on this machine.',
    ),
    "workers": ("N", "int", "Start N worker processes of the server."),
    "connections": ("N", "int", "Make requests on N connections at the same time (default 32)."),
    "duration": ("TIME", "string", "Measure for this time, over all start-ups of the server, as in 10s (default 4s)."),
    "max_duration": (
        "TIME",
        "string",
        "End a comparison of two versions after this time, start-ups included (default 30s). With fileperf.capacity, "
        "end the search after it (default 60s).",
    ),
    "rounds": (
        "N",
        "int",
        "Divide the duration into N rounds (default 12). Their differences show how exact a figure is.",
    ),
    "boots": (
        "N",
        "int",
        "Start the server N times, and divide the duration among these start-ups (default 3; 1 without a gate).",
    ),
    "generators": (
        "N|auto",
        "string",
        "Make the load with N processes on this machine (default 1), or with as many as it takes (auto).",
    ),
    "warmup": (
        "TIME",
        "string",
        "Load each start-up of the server for this time before measuring it (default 300ms). Slow first requests, such "
        "as logins, make it longer, unless it is 0.",
    ),
    "timeout": ("TIME", "string", "Count a request as failed if it takes longer (default 30s)."),
}
"""Keys that are both an option and an ini value. Each has a metavar, the ini value's type, and a help text."""
_HOST_HELP = (
    "Let started servers listen at this address of this machine (default 127.0.0.1). --fileperf-allow-host must allow "
    "load to go there."
)
_COVERAGE_HELP = (
    "Let coverage also trace servers and load generators. Its settings need patch = subprocess and sigterm = true. "
    "Without this they run untraced."
)
_BUDGET_HELP = (
    "Limit the time of all comparisons together, as in 3min, in place of max_duration. Time that one test does not "
    "need is for the others, and undecided tests go on while time is left."
)
_STRICT_HELP = "Fail tests that are NEW or INCONCLUSIVE."
INI: Mapping[str, tuple[str, str]] = {
    **{key: ("string", help_text) for key, (_, help_text) in CHOICES.items()},
    **{key: (kind, help_text) for key, (_, kind, help_text) in LOAD_OPTIONS.items()},
    "tolerance": (
        "string",
        "Let a test pass if it is worse by at most this. Give 5% for all metrics, or rps=5%, p99=20% by metric. With a "
        "floor (p99=15% and 2ms), fail only if the loss is greater than both.",
    ),
    "gate": ("string", 'Compare these metrics with the baseline (default "rps, p99"), or "none".'),
    "watch": (
        "string",
        "Compare and show these metrics, such as rss, if a test's server has them. They fail no test.",
    ),
    "baselines": ("string", "Keep baselines in this directory, relative to the rootdir (default .fileperf)."),
    "cluster": ("string", "Make the load from the workers of a Dask cluster, as --fileperf-cluster does."),
    "host": ("string", _HOST_HELP),
    "allow_host": ("linelist", "Let load go to these addresses or names, besides this machine."),
    "group_by": ("string", "Rank these tests together, as --fileperf-group-by does."),
    "keep_trees": (
        "bool",
        "Keep the uncommitted code of a baseline under refs/fileperf/ of this repository (default true).",
    ),
    "coverage": ("bool", _COVERAGE_HELP),
    "strict": ("bool", _STRICT_HELP),
    "budget": ("string", _BUDGET_HELP),
    "history": ("string", "Append a line to this file in each run, as --fileperf-history does."),
}
"""Every ini value: its type, and a help text."""
INI_SETTINGS = (*LOAD_OPTIONS, "tolerance", "gate", "watch")
"""Ini values that are also keys of the marker `fileperf`."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("fileperf", "load tests of ASGI apps")

    def option(name: str, help_text: str, **how: object) -> None:
        dest = f"fileperf{name.replace('-', '_') or '_on'}"
        group.addoption(f"--fileperf{name}", dest=dest, help=help_text, **how)

    def flag(name: str, help_text: str) -> None:
        option(name, help_text, action="store_true", default=False)

    flag(
        "",
        "Run the load tests, and compare them with their baselines. Without it they are skipped, unless another option "
        "writes, stores or compares results.",
    )
    flag("-smoke", "Run the load tests with a few requests each, and check only that requests succeed.")
    option(
        "-update",
        "Store baselines of tests that are NEW, or that IMPROVED when measured alternately with the old code. With "
        "new, store only missing baselines. With all, store all of them, even slower ones.",
        nargs="?",
        const="passed",
        metavar="all|new",
    )
    option("-reason", "Keep this reason with the stored baselines. A later regression shows it.", metavar="TEXT")
    flag("-update-in-ci", "Let --fileperf-update store baselines although the environment variable CI is set.")
    flag("-prune", "Remove baselines of tests that no longer exist.")
    option(
        "-against",
        "Compare with another version: a Git ref, a directory, a URL on this machine, or another Python. Both "
        "versions are measured alternately.",
        metavar="REF|DIR|URL|python:PATH",
    )
    option(
        "-changed",
        "Measure only tests that a change since this Git ref can affect. Baselines know which files the servers had "
        "loaded.",
        metavar="REF",
    )
    flag("-aa", "Compare the code with itself, to see how small a change this machine shows. Only limits fail tests.")
    option(
        "-cluster",
        "Make the load from the workers of a Dask cluster. Give its scheduler's address or file (extra: cluster).",
        metavar="SCHEDULER",
    )
    option("-host", _HOST_HELP, metavar="ADDRESS")
    option(
        "-allow-host",
        "Let load go to this address or name. Without it load goes to this machine only. You can give it more than "
        "once.",
        metavar="ADDRESS",
        action="append",
    )
    flag("-profile", "Show which of the app's functions cost most CPU.")
    flag("-queries", "Count the database queries of each request (SQLAlchemy and Django). This costs some requests/s.")
    flag("-coverage", _COVERAGE_HELP)
    flag("-strict", _STRICT_HELP)
    option("-budget", _BUDGET_HELP, metavar="TIME")
    option("-json", "Write all figures and verdicts to a JSON file.", metavar="PATH")
    option("-html", "Write tables and charts to one HTML file.", metavar="PATH")
    option("-markdown", "Write a summary for a pull request as Markdown.", metavar="PATH")
    option(
        "-save",
        "Save the run in pytest-benchmark's storage, under this name (extra: benchmark).",
        nargs="?",
        const="",
        metavar="NAME",
    )
    option(
        "-history",
        "Append the change in each comparison to a history, for `python -m pytest_fileperf trend` (default "
        "history.jsonl in the directory of the baselines).",
        nargs="?",
        const="",
        metavar="PATH",
    )
    option(
        "-baselines", f"Keep baselines in this directory (default {DEFAULT_BASELINES} in the rootdir).", metavar="DIR"
    )
    for key, (words, help_text) in CHOICES.items():
        option(f"-{key.replace('_', '-')}", help_text, metavar="|".join(words))
    option(
        "-group-by",
        "Rank tests together that have the same group (default), name, func, fullname, fullfunc, param, or param:NAME. "
        "Join several by commas, as in func,param:size.",
        metavar="LABELS",
    )
    for key, (metavar, _, help_text) in LOAD_OPTIONS.items():
        option(f"-{key.replace('_', '-')}", help_text, metavar=metavar)
    for key, (kind, help_text) in INI.items():
        # The type must be exact: pytest checks a native [tool.pytest] table against it and converts nothing.
        parser.addini(f"fileperf_{key}", help_text, type=kind, default=None)  # type: ignore[arg-type]


def is_enabled(config: pytest.Config) -> bool:
    """Returns whether load tests are on. An option that needs load tests' results also switches them on."""
    flags = ("on", "smoke", "prune", "aa", "profile", "queries")
    values = ("update", "against", "changed", "reason", "json", "html", "markdown", "save", "history")
    return any(config.getoption(f"fileperf_{name}") not in (None, False) for name in (*flags, *values))


def is_load_test(item: pytest.Item) -> bool:
    is_marked = item.get_closest_marker("fileperf") is not None
    return is_marked or measures(item) or "fileperf_server" in getattr(item, "fixturenames", ())


def measures(item: pytest.Item) -> bool:
    """Returns whether the test must make a measurement, because it uses `fileperf` or `afileperf`."""
    return not _MEASURING_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def refuse_no_values(config: pytest.Config) -> None:
    """Raises UsageError for an option with the value `--`, which older argparse turns into an empty list."""
    for name, value in vars(config.option).items():
        values = value if isinstance(value, list) else [value]
        if name.startswith("fileperf") and (not values or "--" in values or [] in values):
            raise pytest.UsageError(f"fileperf: --{name.replace('_', '-')} needs a value, and -- isn't a value")


def marker_keys(item: pytest.Item) -> dict[str, object]:
    """Returns the keys of a test's `fileperf` markers. The test's own keys win over its class's and module's."""
    keys: dict[str, object] = {}
    for marker in item.iter_markers("fileperf"):  # the closest one first
        keys = {**marker.kwargs, **keys}
    return keys


def app_named_in(item: pytest.Item) -> object | None:
    """Returns the app from the marker, the command line or the ini file. None if nothing names an app."""
    named = (marker_keys(item).get("app"), item.config.getoption("fileperf_app"), item.config.getini("fileperf_app"))
    return next((app for app in named if app is not None), None)
