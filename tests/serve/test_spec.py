"""Server specs: what is written and what is refused, the names that a start fills in, and who gets which cores."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host import cores
from pytest_fileperf.serve.spec import (
    Command,
    Granian,
    Gunicorn,
    InProcess,
    ServerSpec,
    Url,
    Uvicorn,
    env_filled,
    fill_environment,
    filled,
    has_names,
    is_only_once,
    needs_app,
    parse_server,
    server_id,
    server_title,
    worker_count,
)

PARSED = {
    "uvicorn": Uvicorn(),
    " uvicorn ": Uvicorn(),
    "uvicorn:": Uvicorn(),
    "inprocess": InProcess(),
    "uvicorn:workers=2,loop=asyncio,stabilise=no": Uvicorn(workers=2, loop="asyncio", stabilise=False),
    "uvicorn: workers = 2 , http = h11": Uvicorn(workers=2, http="h11"),
    "uvicorn:access_log=yes": Uvicorn(access_log=True),
    "gunicorn:access_log=on": Gunicorn(access_log=True),
    "uvicorn:port=8000,stabilise=YES": Uvicorn(port=8000),
    "uvicorn:tls=yes,uds=on": Uvicorn(tls=True, uds=True),
    "gunicorn:ssl_certfile=a.pem,ssl_keyfile=b.pem": Gunicorn(ssl_certfile="a.pem", ssl_keyfile=Path("b.pem")),
    "uvicorn:start_timeout=2m,stop_timeout=500ms": Uvicorn(start_timeout_s=120, stop_timeout_s=0.5),
    "gunicorn": Gunicorn(),
    "gunicorn:workers=2,loop=asyncio": Gunicorn(workers=2, loop="asyncio"),
    "command:python server.py --port {port}": Command(["python", "server.py", "--port", "{port}"]),
    'command: {python} -c "a = 1, 2" :{port}': Command(["{python}", "-c", "a = 1, 2", ":{port}"]),
    "http://127.0.0.1:8000": Url("http://127.0.0.1:8000"),
    "granian:workers=2,tls=yes": Granian(workers=2, tls=True),
    "http+unix://%2Frun%2Fapp.sock": Url("http+unix://%2Frun%2Fapp.sock"),
    "https://localhost:8443/api/": Url("https://localhost:8443/api/"),
    "http://[::1]:80": Url("http://[::1]:80"),
    "http://127.9.9.9": Url("http://127.9.9.9"),
}

REFUSED = {
    "": ["unknown server ''", "uvicorn, gunicorn, granian, inprocess, command or an http:// URL"],
    "apache": ["unknown server 'apache'", "uvicorn, gunicorn, granian, inprocess, command or an http:// URL"],
    "gunicorn:port=1": ["'port'", "workers, loop, http, access_log, stabilise, start_timeout, stop_timeout, uds, tls"],
    "gunicorn:loop=trio": ["loop='trio'", "auto, uvloop, asyncio"],
    "command": ["server 'command'", "command:python server.py --port {port}"],
    "command: ": ["command:python server.py --port {port}"],
    "command:server": ["server does not get its port", "{port}"],
    "command:server '{port}": ["cannot be split into words: No closing quotation"],
    "inprocess:workers=2": ["inprocess takes no settings"],
    "uvicorn:worker=2": ["'worker'", "workers, loop, http, access_log", "uds, tls, ssl_certfile, ssl_keyfile, port"],
    "uvicorn:port=80,uds=yes": ["uds=True and port=80 are two places to listen at"],
    "gunicorn:ssl_keyfile=key.pem": ["ssl_keyfile is the key of a certificate", "ssl_certfile"],
    "uvicorn:workers=two": ["workers=two", "whole number"],
    "uvicorn:workers": ["workers=", "whole number"],
    "uvicorn:workers=0": ["workers=0", "1 or more"],
    "uvicorn:workers=1,workers=2": ["workers is given twice"],
    "uvicorn:loop=trio": ["loop='trio'", "auto, uvloop, asyncio"],
    "uvicorn:http=h2": ["http='h2'", "auto, httptools, h11"],
    "uvicorn:port=70000": ["port=70000", "65535"],
    "uvicorn:stabilise=maybe": ["stabilise=maybe", "yes or no"],
    "uvicorn:start_timeout=10x": ["start_timeout=10x", "isn't a duration"],
    "uvicorn:start_timeout=0": ["start_timeout=0", "isn't a duration"],
    "uvicorn:stop_timeout=0s": ["stop_timeout_s=0.0", "above 0"],
    "uvicorn:loop=trio,colour=red,workers=x": ["3 problems", "loop='trio'", "'colour'", "workers=x"],
    "http://localhost@example.com": ["@example.com", "without user name"],
    "http://": ["http://127.0.0.1:8000"],
    "http+unix://app.sock": ["names no Unix socket", "http+unix://%2Frun%2Fapp.sock"],
    "ftp://localhost": ["unknown server 'ftp'"],
    "granian:http=h11": ["unknown setting 'http'"],
    "http://127.0.0.1:0": ["0 isn't a port"],
    "http://127.0.0.1:99999": ["http://127.0.0.1:99999"],
    "http://127.0.0.1/?a=1": ["without user name, query or fragment"],
}


@pytest.mark.parametrize("text,spec", PARSED.items())
def test_parsed(text: str, spec: ServerSpec) -> None:
    assert parse_server(text) == spec


@pytest.mark.parametrize("text,parts", REFUSED.items())
def test_refused_with_what_is_valid(text: str, parts: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        parse_server(text)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("kind", [Uvicorn, Gunicorn])
def test_every_problem_of_a_spec_is_named(kind: Callable[..., ServerSpec]) -> None:
    with pytest.raises(PlanError) as caught:
        kind(
            workers=True,
            loop="x",
            http="y",
            start_timeout_s=0,
            stop_timeout_s=float("inf"),
            env={"A": 1},
            ssl_keyfile=1,
            uds="yes",
            tls="my.pem",
        )
    assert len(caught.value.problems) == 10
    with pytest.raises(PlanError, match="a Unix socket has no port"):
        kind(uds=True, env={"AT": "{port}"})


def test_what_granian_does_not_have_is_told() -> None:
    with pytest.raises(PlanError, match="Granian: http='h11' does not work with granian"):
        Granian(http="h11")
    with pytest.raises(PlanError, match=r"Granian: env has \{worker\}, but the program itself starts its workers"):
        Granian(workers=2, env={"A": "{worker}"})


@pytest.mark.parametrize("verify", [None, 5])
def test_what_trusts_no_certificate_is_refused(verify: object) -> None:
    make: Callable[..., Url] = Url
    with pytest.raises(PlanError, match=f"Url: verify={verify} must be the path of a PEM file, True or False"):
        make("https://localhost:1", verify=verify)


@pytest.mark.parametrize("kind", [Uvicorn, Gunicorn])
def test_there_may_be_no_unix_sockets(kind: Callable[..., ServerSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    with pytest.raises(PlanError, match=r"Python lacks on this system. Use a port"):
        kind(uds=True)


COMMANDS_REFUSED: Mapping[str, tuple[dict[str, object], str]] = {
    "no words": ({"command": []}, "must be a program and its arguments"),
    "no program": ({"command": ["", "{port}"]}, "must be a program and its arguments"),
    "no text": ({"command": ["server", 80]}, "must be a program and its arguments"),
    "no sequence": ({"command": None}, "command must be a program"),
    "no port": ({"command": ["server"]}, "server does not get its port. Write {port} in an argument"),
    "two places": ({"command": ["server", "{port}", "{uds}"]}, "two places to listen at"),
    "no key": ({"command": ["server", "{uds}", "{certfile}"]}, "Write both {certfile} and {keyfile}"),
    "no file of it": ({"command": ["server", "{uds}", "{keyfile}"], "ssl_certfile": "a.pem"}, "as ssl_keyfile"),
    "build": ({"build": "go 'build"}, "build cannot be split into words: No closing quotation"),
    "cwd": ({"cwd": 3}, "cwd=3 must be the path of a directory"),
    "ready": ({"ready": "health"}, "ready='health' must be a path"),
    "ready that no request can ask for": ({"ready": "/gesund heit"}, "ready='/gesund heit' must be a path"),
    "ready in other letters": ({"ready": "/größe"}, "ready='/größe' must be a path"),
    "title": ({"title": " "}, "title=' ' must be a text"),
    "workers": ({"workers": 0}, "workers=0 must be a whole number"),
    "env": ({"env": ["A=1"]}, "must be names and values"),
    "workers without numbers": (
        {"env": {"ID": "{worker}"}, "workers": 2},
        "env has {worker}, but the program itself starts its workers",
    ),
}


@pytest.mark.parametrize("given,said", COMMANDS_REFUSED.values(), ids=COMMANDS_REFUSED)
def test_a_bad_command_is_refused(given: dict[str, object], said: str) -> None:
    make: Callable[..., Command] = Command
    with pytest.raises(PlanError) as caught:
        make(**({"command": ["server", "{port}"]} | given))
    (problem,) = caught.value.problems
    assert said in problem


def test_specs_are_keys_whatever_they_were_written_with() -> None:
    specs = {
        Uvicorn(), Uvicorn(workers=1), Uvicorn(env=(("A", "1"),)), Uvicorn(env={"A": "1"}),
        Gunicorn(), Gunicorn(env={"A": "1"}), Gunicorn(env=[("A", "1")]),
        InProcess(), Url("http://localhost:1"),
        Command("./server {port}", cwd=Path("a")), Command(["./server", "{port}"], cwd="a"),
    }  # fmt: skip
    assert len(specs) == 7
    assert Command(["server"], env={"PORT": "{port}"}).env == (("PORT", "{port}"),)


SPECS: Sequence[tuple[ServerSpec, str, str, int | None, bool, bool]] = (
    (Uvicorn(), "uvicorn-1", "uvicorn ×1", 1, False, True),
    (Uvicorn(port=80), "uvicorn-1", "uvicorn ×1", 1, True, True),
    (Uvicorn(workers=2, loop="asyncio"), "uvicorn-2-asyncio", "uvicorn ×2", 2, False, True),
    (Gunicorn(workers=2, loop="uvloop", http="h11"), "gunicorn-2-uvloop-h11", "gunicorn ×2", 2, False, True),
    (Uvicorn(ssl_certfile="a.pem", uds=True), "uvicorn-1-tls-uds", "uvicorn ×1", 1, False, True),
    (Command("./bin/server {port}", workers=3), "server", "server ×3", 3, False, False),
    (Command("{python} -m granian --port {port}"), "granian", "granian ×1", 1, False, False),
    (Command("{python} server.py {port}"), "python", "python ×1", 1, False, False),
    (Command("./bin/server {port}", title="Go, net/http"), "Go, net/http", "Go, net/http ×1", 1, False, False),
    (Granian(workers=2, uds=True), "granian-2-uds", "granian ×2", 2, False, True),
    (Url("https+unix://%2Frun%2Fa.sock"), "a.sock", "https+unix://%2Frun%2Fa.sock", None, True, False),
    (InProcess(), "inprocess", "in-process", None, True, True),
    (Url("http://127.0.0.1:8000/api"), "127.0.0.1:8000", "http://127.0.0.1:8000/api", None, True, False),
)


@pytest.mark.parametrize("spec,name,title,workers,once,app", SPECS, ids=[server_id(spec) for spec, *_ in SPECS])
def test_a_server_has_a_name_for_ids_a_title_and_workers_may_be_there_once_and_may_need_an_app(
    spec: ServerSpec, name: str, title: str, workers: int | None, once: bool, app: bool
) -> None:
    assert (server_id(spec), server_title(spec), worker_count(spec)) == (name, title, workers)
    assert (is_only_once(spec), needs_app(spec)) == (once, app)


# --- The names in braces that a server's start fills in


@pytest.mark.parametrize(
    "text,result",
    [
        ("sqlite:///data-{boot}.db", "sqlite:///data-0007.db"),
        ("{boot}:{port}/{worker}", "0007:8000/1"),
        ('{"port": {"boot": 1}}', '{"port": {"boot": 1}}'),
        ("{other} {Boot} {boot!r} {{boot}}", "{other} {Boot} {boot!r} {0007}"),
        ("", ""),
    ],
)
def test_known_names_are_filled_in_and_all_else_stays(text: str, result: str) -> None:
    assert filled(text, boot=7, port=8000, worker=1) == result


def test_what_is_not_known_yet_or_not_the_user_s_stays() -> None:
    assert filled("{boot} {port} {worker}", boot=12345) == "12345 {port} {worker}"
    assert has_names("{worker}")
    assert not has_names("{python}")
    env = {"OURS": "{boot}", "PS1": "{boot}"}
    assert env_filled(env, ["OURS"], boot=1) == {"OURS": "0001", "PS1": "{boot}"}


def test_workers_of_a_boot_have_numbers_from_0_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for worker in range(3):
        monkeypatch.setenv("AT", "{port}/{worker}")
        fill_environment(["AT", "GONE"], port=80, run_directory=tmp_path)
        assert os.environ["AT"] == f"80/{worker}"


# --- How cores are shared out between server and generator

Split = tuple[frozenset[int], frozenset[int]] | None

TWO_THREADS_A_CORE = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
NEIGHBOURS = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
FOUR_AND_FOUR = {0: "0-1,8-9", 1: "0-1,8-9", 2: "2", 8: "0-1,8-9"}

SPLITS: dict[str, tuple[set[int], dict[int, str], int, Split]] = {
    "two": ({0, 1}, {}, 1, (frozenset({1}), frozenset({0}))),
    "one": ({0}, {}, 1, None),
    "too few for two workers": ({0, 1}, {}, 2, None),
    "two workers": ({2, 3, 5}, {}, 2, (frozenset({3, 5}), frozenset({2}))),
    "spare ones stay free": (set(range(8)), {}, 2, (frozenset({1, 2}), frozenset({0}))),
    "own physical cores first": ({0, 4, 5, 1}, TWO_THREADS_A_CORE, 1, (frozenset({1}), frozenset({0}))),
    "neighbouring threads": ({0, 1, 2, 3}, NEIGHBOURS, 1, (frozenset({2}), frozenset({0}))),
    "four threads a core": ({0, 1, 2, 8}, FOUR_AND_FOUR, 1, (frozenset({2}), frozenset({0}))),
    "second threads when there is no other way": ({0, 1, 2, 3}, NEIGHBOURS, 2, (frozenset({2, 1}), frozenset({0}))),
}


@pytest.mark.parametrize("available,siblings,workers,split", SPLITS.values(), ids=SPLITS)
def test_split(
    available: set[int],
    siblings: dict[int, str],
    workers: int,
    split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for core, listed in siblings.items():
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{listed}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: available, raising=False)
    monkeypatch.setattr(cores, "CPUS", tmp_path)
    assert cores.split_cores(workers) == split


def test_each_of_several_generators_has_a_core_where_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "CPUS", tmp_path)
    for available, generators, own in (
        (8, 3, {0, 3, 4}), (5, 3, {0, 3, 4}), (4, 3, {0, 3}), (3, 3, {0}), (8, 1, {0})
    ):  # fmt: skip
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, count=available: set(range(count)), raising=False)
        assert cores.split_cores(2, generators) == (frozenset({1, 2}), frozenset(own))


def test_without_affinity_nothing_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.split_cores(1) is None
