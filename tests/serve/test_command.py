"""Programs of any kind as servers: real ones that start, are told a port, fail in every way there is, and end."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from serve.processes import Boot, check_until, facts, get, launch, linux, posix, remaining_after, started

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.plan.request import digest
from pytest_fileperf.serve import command
from pytest_fileperf.serve.command import CommandLaunch, free_port, without_temporary_paths
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import PORT, PYTHON, Command

pytestmark = posix
OnPorts = Callable[..., CommandLaunch]

PROGRAM = str(Path(__file__).with_name("program.py"))
SCRIPT = ("{python}", PROGRAM)
SERVER = (*SCRIPT, "--port={port}")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.fixture
def on_ports(monkeypatch: pytest.MonkeyPatch) -> OnPorts:
    """Makes a launch of the program that tries these ports first, though they may not be free."""

    def made(ports: Iterable[int], *words: str, ready: str | None = "/", timeout_s: float = 30.0) -> CommandLaunch:
        chosen = iter(ports)
        monkeypatch.setattr(command, "free_port", lambda host: next(chosen, None) or free_port(host))
        spec = Command((*SERVER, *words), ready=ready, start_timeout_s=timeout_s)
        return CommandLaunch(spec, StartUp(), {})

    return made


@pytest.fixture(scope="module")
def tiny() -> Iterator[RunningServer]:
    """A server that is booted once, for tests that only look at it."""
    with launch(Command(SERVER, title="tiny")) as server:
        yield server


def test_a_program_is_served_on_the_port_it_is_told(tiny: RunningServer) -> None:
    assert tiny.title == "tiny ×1"
    assert tiny.url.startswith("http://127.0.0.1:")
    assert tiny.pids == tiny.worker_pids == (facts(tiny)["pid"],)
    assert "the program's own words" in tiny.log
    assert tiny.identity() == {
        "kind": "command", "command": digest("tiny"), "workers": 1, "loop": None, "http": None,
        "stabilised": list(tiny.stabilised),
    }  # fmt: skip
    tiny.check()
    # What watches over it is none of its processes, and idle.
    supervisor = tiny.processes[0].parent()
    assert supervisor is not None
    assert supervisor.pid not in tiny.pids
    before = supervisor.cpu_times()
    for _ in range(20):
        assert facts(tiny)["session"] != os.getsid(0)
    assert supervisor.cpu_times() == before


def test_a_file_that_is_named_for_one_start_up_is_not_its_code(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "data-0000").touch()
    server = boot(Command(("sh", "-c", 'exec "$0" "$1" "$2"', *SERVER, str(tmp_path / "data-{boot}"))))
    assert PROGRAM in server.loaded.modules
    assert str(tmp_path / "data-0000") not in server.loaded.modules


@pytest.mark.parametrize(
    "command,without",
    [
        (
            "./server --data /tmp/pytest-of-me/pytest-7/test_x0/data --port {port}",
            "./server --data {tmp} --port {port}",
        ),
        ("./server --data=/tmp/pytest-of-me/pytest-7/test_x0", "./server --data={tmp}"),
        ("./server --db sqlite:////tmp/tmpab12/app.db?mode=ro", "./server --db sqlite:///{tmp}?mode=ro"),
        ("./server /tmp", "./server {tmp}"),
        ("./server /real/tmp/x/y", "./server {tmp}"),
        ("./server PATH=/bin:/tmp/a/bin:/usr/bin", "./server PATH=/bin:{tmp}:/usr/bin"),
        (
            "./server /tmpfiles /var/tmp/x /srv/app tmp/x ../tmp/y",
            "./server /tmpfiles /var/tmp/x /srv/app tmp/x ../tmp/y",
        ),
    ],
)
def test_a_temporary_path_is_no_part_of_an_identity(
    command: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setattr(Path, "resolve", lambda path: Path("/real") / path.relative_to("/"))
    assert without_temporary_paths(command) == without


@linux
def test_it_keeps_to_its_cores_and_seed_and_heeds_broken_pipes(boot: Boot, tiny: RunningServer) -> None:
    core = max(os.sched_getaffinity(0))
    shell = ["sh", "-c", 'cat /proc/$$/status >&2; exec "$0" "$@"', *SERVER]
    server = boot(Command(shell, workers=2), cores=frozenset({core}))
    seen = facts(server)
    assert seen["cores"] == [core]
    assert "hash seed" in server.stabilised
    assert facts(tiny)["hash"] == seen["hash"] != facts(boot(Command(SERVER), number=1))["hash"]
    assert server.identity()["command"] == digest(without_temporary_paths(" ".join(shell)))
    (ignored,) = (int(line.split()[1], 16) for line in server.log if line.startswith("SigIgn:"))
    assert not ignored & 1 << signal.SIGPIPE - 1


# --- ready


@pytest.mark.parametrize("ready", ["/nothing/here", None])
def test_any_answer_or_a_connection_is_enough(ready: str | None, boot: Boot) -> None:
    server = boot(Command((*SERVER, "--status=404"), ready=ready))
    assert get(server.url).status_code == 404


@pytest.mark.parametrize(
    "command, workers, processes",
    [((*SERVER, "--workers=2"), 2, 3), (("sh", "-c", '"$0" "$@"; exit', *SERVER), 1, 2)],
    ids=["workers", "wrapper"],
)
def test_workers_are_seen_and_not_what_starts_them(
    command: Sequence[str], workers: int, processes: int, boot: Boot
) -> None:
    server = boot(Command(command, workers=workers))
    assert (len(server.worker_pids), len(server.pids)) == (workers, processes)
    assert facts(server)["pid"] in server.worker_pids
    assert server.pids[0] not in server.worker_pids


@pytest.mark.hostile
@pytest.mark.parametrize(
    "flag, ready, said",
    [
        ("--deaf", "/", r"not ready within 1 s: it does not listen on 127.0.0.1 port"),
        ("--elsewhere", "/", r"it listens on 127.0.0.1 port \d+ instead of 127.0.0.1 port \d+"),
        ("--garbage", "/x", r"gave no HTTP answer to GET /x \(BadStatusLine: garbage"),
    ],
)
def test_a_program_that_does_not_get_ready_is_told_with_what_it_does(
    flag: str, ready: str, said: str, boot: Boot
) -> None:
    with pytest.raises(ServerStartError, match=said) as caught:
        boot(Command((*SERVER, flag), start_timeout_s=1, ready=ready))
    assert flag != "--deaf" or "the program's own words" in caught.value.log


@linux
@pytest.mark.hostile
def test_another_program_s_server_is_never_taken_for_ours(taken: int, on_ports: OnPorts) -> None:
    said = f"does not listen on 127.0.0.1 port {taken}, but process {os.getpid()}, which isn't its own, does"
    starting = on_ports([taken], "--deaf", ready=None, timeout_s=0.3)
    with pytest.raises(ServerStartError, match=said), started(starting):
        pass


@linux
@pytest.mark.hostile
def test_a_port_shared_with_another_program_is_given_up(on_ports: OnPorts) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with started(on_ports([port], "--share")) as server:
            assert httpx.URL(server.url).port != port
            assert "pid" in facts(server)


# --- failures


@pytest.mark.hostile
def test_another_port_is_tried_where_another_program_took_it_meanwhile(taken: int, on_ports: OnPorts) -> None:
    with started(on_ports([taken, taken])) as server:
        assert httpx.URL(server.url).port != taken
        assert "pid" in facts(server)


def test_ports_are_not_tried_forever(taken: int, scratch: Path, on_ports: OnPorts) -> None:
    said = f"Another program took port {taken}"
    with pytest.raises(ServerStartError, match=said) as caught, started(on_ports(itertools.repeat(taken))):
        pass
    assert any("Address already in use" in line for line in caught.value.log)
    assert list(scratch.iterdir()) == []


@pytest.mark.hostile
def test_a_program_that_goes_to_the_background_is_told_with_its_words(boot: Boot, scratch: Path) -> None:
    with pytest.raises(ServerStartError, match=r"exit code 0 .*It must stay in the foreground") as caught:
        boot(Command((*SERVER, "--exit=0")))
    assert "the program's own words" in caught.value.log
    assert list(scratch.iterdir()) == []


MISSING = {
    "on the PATH": (["no-such-program", "{port}"], {}, "no program 'no-such-program' on the PATH. Install it"),
    "in the directory": (["./no-such-program", "{port}"], {}, "there is no program .*/no-such-program. Is it built"),
    "isn't executable": ([PROGRAM, "{port}"], {}, "isn't executable. Run `chmod"),
    "directory": (SERVER, {"cwd": "no/such/place"}, "cwd='no/such/place' isn't a directory in"),
    "of a build": (SERVER, {"build": "no-such-compiler"}, "no program 'no-such-compiler'"),
}


@pytest.mark.parametrize("words,options,said", MISSING.values(), ids=MISSING)
def test_what_is_missing_is_told_with_what_to_do(
    words: Sequence[str], options: dict[str, Any], said: str, boot: Boot, scratch: Path
) -> None:
    with pytest.raises(PlanError, match=said):
        boot(Command(words, **options))
    assert list(scratch.iterdir()) == []


def test_a_file_that_is_no_program_is_told(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "server").write_bytes(b"\x00\x01")
    (tmp_path / "server").chmod(0o755)
    with pytest.raises(ServerStartError, match="exit code 126") as caught:
        boot(Command(["./server", "{port}"], cwd=tmp_path))
    assert any("cannot execute" in line and "Exec format error" in line for line in caught.value.log)


def test_without_signals_there_are_no_commands(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.host.scratch.IS_SUPERVISED", False)
    with pytest.raises(PlanError, match=r"on this system fileperf cannot start .* Start the server yourself, .*Url"):
        boot(Command(SERVER))


# --- the end


@pytest.mark.hostile
@pytest.mark.parametrize("flag", ["--child=beside", "--child=apart", "--workers=2", "--stubborn", "--child=late"])
def test_everything_is_gone_at_the_end(flag: str, scratch: Path) -> None:
    with launch(Command((*SERVER, flag), stop_timeout_s=0.3)) as server:
        pids = server.pids
        assert len(pids) > (flag not in ("--stubborn", "--child=late"))
        word = f"--port={httpx.URL(server.url).port}"
    assert remaining_after(0, pids) == []
    # What it starts when it is asked to end is gone too.
    of_it = (process.pid for process in psutil.process_iter(["cmdline"]) if word in (process.info["cmdline"] or ()))
    assert remaining_after(0, of_it) == []
    assert list(scratch.iterdir()) == []


@linux
@pytest.mark.parametrize("flag", ["--child=beside", "--child=apart"])
@pytest.mark.hostile
def test_what_a_dead_program_leaves_behind_ends_too(flag: str, boot: Boot) -> None:
    server = boot(Command((*SERVER, flag)))
    pids = server.pids
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(ServerDiedError):
        check_until(5, server)
    assert remaining_after(5, pids) == []


@linux
@pytest.mark.hostile
def test_the_program_ends_with_its_supervisor(boot: Boot) -> None:
    server = boot(Command(SERVER))
    (pid,) = server.pids
    parent = psutil.Process(pid).parent()
    assert parent is not None
    parent.kill()
    assert remaining_after(5, [pid]) == []
    with pytest.raises(ServerDiedError, match="SIGKILL"):
        server.check()


# --- the build


def building(script: str) -> tuple[str, ...]:
    return ("{python}", "-c", script)


def test_a_build_is_made_once_in_the_environment_of_the_program_but_without_a_port(tmp_path: Path) -> None:
    build = building(
        f"import os, shutil; shutil.copy({PROGRAM!r}, 'server.py')\n"
        "open('built', 'a').write(os.environ['COLOUR'] + os.environ.get('APP_PORT', ' none'))"
    )
    env = {"APP_PORT": PORT, "COLOUR": "red"}
    spec = Command((PYTHON, "server.py"), cwd=tmp_path, build=build, env=env)
    with closing(ServerPool()) as pool:
        assert len({facts(pool.boot(spec, None, number, None))["pid"] for number in range(2)}) == 2
    assert (tmp_path / "built").read_text() == "red none"


def test_a_build_that_fails_is_told_with_its_last_words_and_not_tried_again(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'tried')!r}, 'a').write('x'); print('undefined: main'); raise SystemExit(2)"
    spec = Command(SERVER, build=building(script), title="tiny")
    with closing(ServerPool()) as pool:
        for _ in range(2):
            with pytest.raises(ServerStartError, match=r"the build of tiny \(`.*`\) failed with exit code 2") as caught:
                pool.boot(spec, None, 0, None)
            assert caught.value.log == ("undefined: main",)
    assert (tmp_path / "tried").read_text() == "x"


@pytest.mark.hostile
def test_a_build_that_does_not_end_is_ended(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BUILD_S", 0.3)
    before = time.monotonic()
    spec = Command(SERVER, build=building("import time; time.sleep(60)"))
    with pytest.raises(ServerStartError, match=r"did not end within 0\.3 s"), launch(spec):
        pass
    assert time.monotonic() - before < 10
    assert list(scratch.iterdir()) == []
