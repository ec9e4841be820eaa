"""Reads the command line and the ini file into `Options`, and lists every problem."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_fileperf.drive.scheduler import scheduler_address
from pytest_fileperf.errors import GeneratorError
from pytest_fileperf.host.cores import split_cores
from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY, parse_group_by
from pytest_fileperf.plan.network import Network
from pytest_fileperf.plugin.options import (
    CHOICES,
    DEFAULT_BASELINES,
    INI,
    INI_SETTINGS,
    LOAD_OPTIONS,
)
from pytest_fileperf.serve.spec import AsgiSpec, ServerSpec, Url, server_title, worker_count
from pytest_fileperf.settings.keys import parse_seconds
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.units import format_duration, printable

if TYPE_CHECKING:
    from pytest_fileperf.versions.tree import CodeTree

_T = TypeVar("_T")

# --- Networks: the servers' address, and allowed destinations of load

_WRITE = "Write an address as in 10.0.0.5, or a name, without a port"
_NUMERIC = re.compile(r"[0-9]*|0[xX][0-9a-fA-F]*")


def read_network(
    host_option: str | None, allowed: Sequence[str] | None, ini: Mapping[str, object]
) -> tuple[Network, tuple[str, ...]]:
    """Returns (the servers' address and the allowed hosts, problems with these values). Options beat the ini file.

    Host names are looked up only here. So load does not follow a name that later leads elsewhere.
    """
    spelling, lines = "--fileperf-allow-host={}", ini.get("allow_host")
    if allowed is None:
        spelling = "fileperf_allow_host = {}"
        allowed = [str(line).strip() for line in lines] if isinstance(lines, list) else []
    addresses: set[str] = set()
    problems = []
    for name in allowed:
        try:
            addresses |= _addresses(name)
        except ValueError as error:
            problems.append(f"{spelling.format(name)}: {error}")
    network = Network(addresses=frozenset(addresses))
    host, where = _said("host", host_option, ini)
    if host is not None:
        if problem := _why_not_host(str(host), network):
            problems.append(f"{where}: {problem}")
        else:
            network = Network(host=str(host), addresses=network.addresses)
    return network, tuple(problems)


def _said(key: str, option: object, ini: Mapping[str, object]) -> tuple[object, str]:
    """Returns (value from option or ini file, the user's spelling, such as `--fileperf-host=10.0.0.5`)."""
    if option is not None:
        return option, f"--fileperf-{key.replace('_', '-')}={option}"
    return ini.get(key), f"fileperf_{key} = {ini.get(key)}"


def server_problems(server: ServerSpec, network: Network) -> tuple[str, ...]:
    """Returns a problem if load may not go to the server's URL."""
    problem = network.problem_of(server.url) if isinstance(server, Url) else None
    return () if problem is None else (f"server: {problem}",)


def _addresses(name: str) -> set[str]:
    """Returns a host name's addresses. An address stays as it is. Raises ValueError if the host is unknown."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        if problem := _why_not_one_machine(address):
            raise ValueError(problem)
        return {str(address)}
    # The system takes a name that ends in a number for an address. Readers see another one: 010.0.0.1 is 8.0.0.1.
    if not name or any(char in name for char in "/:@ *%") or _NUMERIC.fullmatch(name.rstrip(".").rpartition(".")[2]):
        raise ValueError(_WRITE)
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label is empty or too long
        raise ValueError(_WRITE) from error
    except OSError as error:
        raise ValueError(f"there is no such host ({error.strerror or error})") from error
    return {str(each[4][0]) for each in found}


def _why_not_one_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        return "it is not the address of one machine. Write one, as in 10.0.0.5"
    if address.is_link_local and address.version == 6:
        return "a link-local address (fe80::…) can belong to a different machine in each network. Use another one"
    return None


def _why_not_host(host: str, network: Network) -> str | None:
    """Returns why servers cannot listen at `host`, or why load may not go there. None if all is well."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "Write an address of this machine, as in 10.0.0.5"
    if address.is_unspecified:
        return "it stands for all addresses of this machine. Write one of these, as in 10.0.0.5"
    if problem := _why_not_one_machine(address):
        return problem
    if not network.allows(host):
        return f"load would go there. Allow it with --fileperf-allow-host={host}"
    return None


# --- All options, and their problems

_REPORTS = {"json": b'{\n  "asked"', "html": b"<!doctype html>", "markdown": b"## Load tests"}
"""The first bytes of each report."""


def read_options(config: pytest.Config) -> tuple[Options, tuple[str, ...]]:
    """Returns the run's options, and all problems with them."""

    def given(name: str) -> Any:
        return config.getoption(f"fileperf_{name}")

    def path(name: str) -> Any:
        return _optional_path(directory, given(name))

    directory = config.invocation_params.dir
    ini, wrong = _read_ini(config)
    words = {}
    for key, (allowed, _) in CHOICES.items():
        word, where = _said(key, given(key), ini)
        words[key] = next((each for each in allowed if each == word), allowed[0])
        if word is not None and word not in allowed:
            wrong.append(f"{where}: it is {' or '.join(allowed)}")
    group_by = _parsed(parse_group_by, *_said("group_by", given("group_by"), ini), wrong) or DEFAULT_GROUP_BY
    budget_s = _parsed(parse_seconds, *_said("budget", given("budget"), ini), wrong)
    if rivals := [name for name in ("smoke", "update", "aa") if given(name)]:
        budget_s = None
        if given("budget") is not None:
            wrong.append(
                f"--fileperf-budget only works for comparisons. Leave out --fileperf-budget or --fileperf-{rivals[0]}"
            )
    network, wrong_hosts = read_network(given("host"), given("allow_host"), ini)
    cluster, _ = _said("cluster", given("cluster"), ini)
    baselines = path("baselines") or config.rootpath / str(ini.get("baselines") or DEFAULT_BASELINES)
    history: Path | None = None
    if given("history") is not None:
        history = path("history") if given("history") else baselines / "history.jsonl"
    elif ini.get("history") and not given("smoke") and not given("aa"):
        history = config.rootpath / str(ini["history"])
    reason = given("reason")
    plain = ("smoke", "update", "prune", "against", "changed", "aa", "queries", "profile", "save")
    options = Options(
        **{name: given(name) for name in plain},
        **{name: path(name) for name in _REPORTS},
        reason=None if reason is None else printable(" ".join(reason.split())),
        coverage=given("coverage") or bool(ini.get("coverage")),
        strict=given("strict") or bool(ini.get("strict")),
        budget_s=budget_s,
        ci=os.environ.get("CI", "").lower() not in ("", "0", "false"),
        history=history,
        baselines=baselines,
        confirm=words["confirm"],
        base_packages=words["base_packages"],
        preloads=words["preload"] == "auto",
        client=words["client"],
        keeps_trees=bool(ini.get("keep_trees", True)),
        cluster=None if cluster is None else str(cluster),
        network=network,
        group_by=group_by,
        command_line={key: value for key in LOAD_OPTIONS if (value := given(key)) is not None},
        ini={key: ini[key] for key in INI_SETTINGS if key in ini},
    )
    in_ci = options.ci and not given("update_in_ci")
    of_baselines = [key for key in ("confirm", "base_packages") if given(key) is not None]
    problems = (
        *_problems(options, directory, in_ci=in_ci),
        *_taken_for_tests(config),
        *_unused_choices(options, of_baselines),
        *wrong,
        *wrong_hosts,
    )
    return options, problems


def _problems(options: Options, directory: Path, *, in_ci: bool) -> Iterator[str]:
    """Yields problems of options that do not fit each other. With `in_ci`, no baselines may be stored."""
    update, reason, smoke, save = options.update, options.reason, options.smoke, options.save
    if update not in (None, "passed", "all", "new"):
        yield (
            f"--fileperf-update={update}: its value is all, new or left out. Put the option after the paths, "
            "so that no path becomes its value"
        )
    elif update is not None and smoke:
        yield "--fileperf-update: too few requests for a baseline. Leave out --fileperf-smoke"
    if update is not None and in_ci:
        yield (
            "--fileperf-update: the variable CI is set, and a baseline stored in CI would hide slower code. Store "
            "baselines on your machine and commit them, or add --fileperf-update-in-ci"
        )
    if reason == "":
        yield '--fileperf-reason is empty. Give a reason, as in --fileperf-reason="responses are signed now"'
    elif reason is not None and update is None:
        yield "--fileperf-reason is stored with baselines, so it needs --fileperf-update"
    if options.prune and smoke:
        yield "--fileperf-prune does not work with --fileperf-smoke. Leave out one of them"
    if options.against and options.aa:
        yield "--fileperf-against and --fileperf-aa exclude each other. Give one of them"
    elif options.against or options.aa:
        name = "--fileperf-aa" if options.aa else "--fileperf-against"
        if update is not None:
            yield f"{name} measures two versions and stores neither. Leave out --fileperf-update"
        if smoke:
            yield f"{name} does not work with --fileperf-smoke. Leave out one of them"
        if options.profile:
            yield f"{name} profiles regressions anyway. Leave out --fileperf-profile"
    if options.changed is not None and smoke:
        yield "--fileperf-changed does not work with --fileperf-smoke, which runs every test. Leave out one of them"
    if save and ("/" in save or "\\" in save or "::" in save or (directory / save).exists()):
        yield f"--fileperf-save={save} is a path, not a name. Write --fileperf-save=NAME, or put it after the paths"
    if options.history is not None:
        if smoke or options.aa:
            name = "--fileperf-smoke" if smoke else "--fileperf-aa"
            yield f"--fileperf-history needs a comparison of two versions. Leave out {name}"
        if options.history.is_dir() or options.history.suffix == ".py" or "::" in str(options.history):
            yield f"--fileperf-history={options.history} isn't a history. Put the option after the paths of tests"
    if save is not None and find_spec("pytest_benchmark") is None:
        yield ('--fileperf-save needs pytest-benchmark: pip install "pytest-fileperf[benchmark]"')
    if options.client == "httpx2" and find_spec("httpx2") is None:
        yield '--fileperf-client=httpx2 needs httpx2: pip install "pytest-fileperf[httpx2]"'
    yield from _file_problems(options)
    if options.cluster is not None:
        yield from _cluster_problems(options.cluster)


def _cluster_problems(cluster: str) -> Iterator[str]:
    if not cluster.strip():
        yield "--fileperf-cluster is empty. Give a scheduler's address, as in tcp://127.0.0.1:8786"
        return
    if find_spec("distributed") is None:
        yield '--fileperf-cluster needs Dask: pip install "pytest-fileperf[cluster]"'
    try:
        scheduler_address(cluster)
    except GeneratorError as error:
        yield f"--fileperf-cluster: {error}"


def _unused_choices(options: Options, on_command_line: Collection[str]) -> Iterator[str]:
    """Yields a problem for each option about stored baselines that has no effect in this run."""
    rival = "--fileperf-against" if options.against else "--fileperf-aa" if options.aa else ""
    for key in on_command_line:
        name = f"--fileperf-{key.replace('_', '-')}"
        if options.smoke:
            yield f"{name} does not work with --fileperf-smoke. Leave out one of them"
        elif rival:
            yield f"{name} needs stored baselines, but {rival} uses none. Leave out one of them"
    # An option may switch off a setting of the ini file, but not use one that is switched off.
    overrides = "confirm" in on_command_line and "base_packages" not in on_command_line
    if options.confirm == "never" and options.base_packages == "stored" and not overrides:
        yield (
            "--fileperf-base-packages=stored needs the baseline's code measured again, but "
            "--fileperf-confirm=never forbids that. Change one of them"
        )


def _read_ini(config: pytest.Config) -> tuple[dict[str, object], list[str]]:
    values: dict[str, object] = {}
    problems = []
    for key in INI:
        try:
            value: object = config.getini(f"fileperf_{key}")
        except (TypeError, ValueError, pytest.UsageError) as error:  # which one depends on pytest's version
            problems.append(f"fileperf_{key}: {error}")
        else:
            if value is not None:
                values[key] = value
    return values, problems


def _parsed(parse: Callable[[Any], _T], given: object, where: str, wrong: list[str]) -> _T | None:
    """Returns the parsed value. If the value is wrong, returns None, and adds a problem to `wrong`."""
    try:
        return None if given is None else parse(given)
    except ValueError as error:
        wrong.append(f"{where.partition('=')[0].rstrip()}: {error}")
        return None


def _optional_path(directory: Path, given: str | None) -> Path | None:
    """Returns a path with `~` expanded, because a shell does not expand `~` behind `=`."""
    if given is None:
        return None
    try:
        return directory / Path(given).expanduser()
    except RuntimeError:
        return directory / given


def _taken_for_tests(config: pytest.Config) -> Iterator[str]:
    """Yields a problem if pytest took an option's value for a test path, as in `--fileperf-json /tmp/a.json`.

    pytest may then choose another root directory, and read another ini file.
    """
    directory, ini = config.invocation_params.dir, config.inipath
    if ini is not None and directory.is_relative_to(ini.parent):
        return
    arguments = [str(argument) for argument in config.invocation_params.args]
    for option, value in pairwise(arguments):
        if option.startswith("--fileperf-") and "=" not in option and not value.startswith("-"):
            path = (directory / value).resolve()
            if path.exists() and not path.is_relative_to(directory) and path.is_relative_to(config.rootpath):
                yield (
                    f"{option} {value}: pytest takes the value for a path of tests, so it read its settings "
                    f"from {config.rootpath}. Write {option}={value}"
                )


def _file_problems(options: Options) -> Iterator[str]:
    """Yields problems if two reports have the same file, or a report would replace another kind of file."""
    named = {name: path for name in _REPORTS if (path := getattr(options, name)) is not None}
    places: dict[Path, str] = {}
    for name, path in named.items():
        real = path.resolve()
        if not _is_free(path, _REPORTS[name]):
            yield f"--fileperf-{name}={path} would replace an existing file of another kind. Name another path"
        if real in places and not (path.exists() and not path.is_file()):
            yield (
                f"--fileperf-{places[real]} and --fileperf-{name} write the same file {path}. Give each its own path"
            )
        places.setdefault(real, name)


def _is_free(path: Path, beginning: bytes) -> bool:
    """Returns whether the file is missing, empty, or an earlier report. A report starts with `beginning`."""
    if not path.is_file():
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(beginning)) in (b"", beginning)
    except OSError:
        return True


# --- The line above all tests


def header_words(
    config: pytest.Config, options: Options, settings: Settings, against: CodeTree | None, since: str | None
) -> list[str]:
    """Returns the parts of the line above all tests. `since` names the version of --fileperf-changed."""
    said = ["smoke run with a few requests for each test" if options.smoke else "measuring"]
    if since is not None:
        said.append(f"only tests that a change since {since} can affect")
    if options.update:
        which = {"new": "new baselines", "all": "all baselines, even worse ones"}
        said.append(f"storing {which.get(options.update, 'baselines')}")
    if options.prune:
        said.append("removing stale baselines")
    if options.budget_s is not None:
        said.append(f"at most {format_duration(round(1e9 * options.budget_s))} for all comparisons")
    workers = worker_count(settings.server)
    said.append(server_title(settings.server))
    if isinstance(settings.server, AsgiSpec):
        said.append(f"access log {'on' if settings.server.access_log else 'off'}")
    if workers is not None:
        said.append(f"server and load on {'the same' if split_cores(workers) is None else 'separate'} cores")
    if options.cluster is not None:
        said.append(f"load from the Dask cluster at {options.cluster}")
    if against is not None:
        said.append(f"against {against.title}")
    elif options.aa:
        said.append("against itself")
    else:
        directory, root = options.baselines, config.rootpath
        said.append(f"baselines in {directory.relative_to(root) if directory.is_relative_to(root) else directory}")
    return said
