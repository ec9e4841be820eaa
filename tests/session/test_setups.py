"""What a test does on each start-up of the server: with which client, and how its failures are told."""

from __future__ import annotations

from pathlib import Path

from contracts.project import Project, results

APP = """
import os

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    status = 404 if scope["path"] == "/missing" else 200
    body = {"/fill": b"filled", "/pid": b"%d" % os.getpid()}.get(scope["path"], b"hello")
    body = await sent(receive) or body
    print("asked for", scope["path"])
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-path", scope["path"].encode())]})
    await send({"type": "http.response.body", "body": body})

async def sent(receive):
    return (await receive()).get("body", b"")
"""
STEPS = """
import asyncio, json, re, sys, threading, time
import pytest
from pytest_fileperf import RequestsFailedError, SetupError

seen = []

async def in_async(client):
    await asyncio.sleep(0)
    return (await client.post("/fill")).text

def in_plain(client):
    answer = client.post("/there", content=b"filled")
    assert answer.headers["x-path"] == "/there"
    return answer.text

class Called:
    async def __call__(self, client):
        return await in_async(client)

def torn_down(client, value):
    seen.append((client.get("/").text, value))

@pytest.mark.parametrize("setup", [in_async, in_plain, Called()], ids=["async", "plain", "object"])
def test_value(fileperf, setup):
    fileperf.get("/", setup=setup, teardown=torn_down)
    assert seen.pop() == ("hello", "filled")

def test_without_value(fileperf):
    fileperf.get("/", teardown=lambda client: seen.append(client.get("/").text))
    assert seen.pop() == "hello"

def test_in_a_loop(fileperf):
    async def measure():
        fileperf.get("/", setup=in_async, teardown=torn_down)
    asyncio.run(measure())
    assert seen.pop() == ("hello", "filled")

class TestFixtures:
    @pytest.fixture
    def fileperf_setup(self):
        return in_async

    @pytest.fixture
    def fileperf_teardown(self):
        return torn_down

    def test_fixtures(self, fileperf):
        fileperf.get("/")
        assert seen.pop() == ("hello", "filled")

    @pytest.mark.fileperf(setup=in_plain, teardown=None)
    def test_marker(self, fileperf):
        fileperf.get("/")
        assert not seen

async def fails_in_async(client):
    (await client.get("/")).json()

def fails(client):
    client.get("/").json()

def exits(client):
    sys.exit("no database")

async def exits_in_async(client):
    sys.exit(3)

def skips(client):
    pytest.skip("why")

async def impatient(client):
    raise TimeoutError("enough")

async def slow_in_async(client):
    await asyncio.sleep(1000)

def slow(client):
    time.sleep(2)

def place(name):
    return rf'{name} failed on .*:\\n +File ".*test_it.py", line \\d+, in \\w+\\n(?!.*File "(?!.*test_it))[^|]*'

FAILS = {
    "async": ({"setup": fails_in_async}, place("setup fails_in_async") + "JSONDecodeError: Expecting value"),
    "plain": ({"setup": fails}, place("setup fails") + "JSONDecodeError: Expecting value"),
    "teardown": ({"teardown": fails}, place("teardown fails") + "JSONDecodeError: Expecting value"),
    "exit": ({"setup": exits}, r"it called sys\\.exit\\('no database'\\)"),
    "exit of teardown": ({"teardown": exits_in_async}, r"RuntimeError: it called sys\\.exit\\(3\\)"),
    "skip in teardown": ({"teardown": skips}, r"RuntimeError: it called pytest.skip\\('why'\\) after the load"),
    # asyncio before Python 3.14 makes another error, which has no frame.
    "own time limit": ({"setup": impatient}, r"setup impatient failed on .*:\\n(.*\\n)*  TimeoutError: enough"),
    "late async": ({"setup": slow_in_async, "timeout": "400ms"}, "setup slow_in_async did not end within 0.4 s on "),
    "late plain": ({"setup": slow, "timeout": "400ms"}, "setup slow did not end within 0.4 s on "),
    "not awaited": ({"setup": lambda client: in_async(client)}, "returned a coroutine. Write it as an async function"),
    "feed": ({"feed": lambda ids: [ids[9]]}, r"the feed of GET /\\{id\\} failed on .*:\\n.*\\n(.*\\n)*  IndexError"),
    "empty feed": ({"feed": lambda ids: []}, r"GET /\\{id\\} has no requests on .*: feed: it has no rows"),
    # Its setup has the same limit, and succeeds.
    "late feed": ({"feed": lambda ids: [time.sleep(2)], "timeout": "1s"}, r"the feed of GET /\\{id\\} did not end"),
}

@pytest.mark.parametrize("name", FAILS)
def test_fails(fileperf, name, monkeypatch):
    keys, said = FAILS[name]
    if "timeout" in keys:
        monkeypatch.setattr("pytest_fileperf.session.setup.LEAST_LIMIT_S", 0.4)
    path = "/{id}" if "feed" in keys else "/"
    with pytest.raises(SetupError) as raised:
        fileperf.get(path, **{"setup": in_plain, **keys})
    assert re.search(said, str(raised.value)), str(raised.value)
    monkeypatch.undo()
    fileperf.get("/", setup=in_plain)  # the server of this process goes on

def test_skips(fileperf):
    fileperf.get("/", setup=skips)
"""
ON_SERVERS = """
import pytest
from pytest_fileperf import RequestsFailedError, SetupError

pids = []

def note(client):
    pids.append(client.get("/pid").text)

async def fails(client):
    (await client.get("/")).json()

def test_left(fileperf):
    fileperf.get("/", setup=note)

def test_cleared(fileperf):
    fileperf.get("/", setup=note, teardown=lambda client: None)

def test_after(fileperf):
    fileperf.get("/", setup=note)
    assert pids[0] != pids[1] == pids[2]

def test_failed(fileperf):
    with pytest.raises(SetupError, match="Last lines of its log:\\n(.*\\n)*  . asked for /$"):
        fileperf.get("/", setup=fails)
    fileperf.get("/", setup=note)
    assert pids[3] not in pids[:3]

def test_put_on_one(fileperf, fileperf_server):
    with pytest.raises(RequestsFailedError, match="its data exists on one start-up of the server only"):
        fileperf.get("/missing")
"""
SMOKE = ("--fileperf-smoke", "-p", "no:randomly")


def test_steps_talk_to_the_server_and_fail_with_their_place(tmp_path: Path) -> None:
    ran = Project(top=tmp_path).write({"app.py": APP, "test_it.py": STEPS}).run("--fileperf-server=inprocess", *SMOKE)
    assert "20 passed, 1 skipped" in ran.said, ran.text
    identity = results(ran)["test_value[plain]"]["identity"]
    assert identity["setup"] == "in_plain"
    assert "setup" not in results(ran)["test_without_value"]["identity"]


def test_a_server_with_traces_of_a_setup_serves_no_other_test(tmp_path: Path) -> None:
    ran = Project(top=tmp_path).write({"app.py": APP, "test_it.py": ON_SERVERS}).run(*SMOKE)
    assert "5 passed" in ran.said, ran.text
