"""Every kind of server starts, serves what it was told, and ends; and why one does not serve is told with its log."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from urllib.parse import quote

import psutil
import trustme
from contracts.answers import answering
from contracts.project import Project, results

TESTS = """
import pytest
from app import app, seen
from pytest_fileperf import Command, Granian, Gunicorn, InProcess, Url, Uvicorn

pytestmark = pytest.mark.fileperf(connections=2, requests=6, boots=1, warmup=0, gate="none")
ENV = {"OWN": "one", "BOOT": "{boot}", "WORKER": "{worker}", "PYTHONHASHSEED": "7"}
BUILD = ["{python}", "-c", "open('builds.txt', 'a').write('x')"]
START = "{python} -m uvicorn --log-level=warning --uds={uds} --ssl-certfile={certfile} --ssl-keyfile={keyfile} app:app"
COMMAND = Command(START, env=ENV, build=BUILD, title="own")
BOOTS = []
SERVERS = [
    Uvicorn(env=ENV, uds=True),
    Uvicorn(2, loop="asyncio", http="h11", env=ENV, tls=True),
    Gunicorn(2, env=ENV, tls=True, uds=True),
    Granian(env=ENV, tls=True),
    COMMAND,
]

async def trip(client):
    assert (await client.get("/")).text == "ok"

@pytest.mark.parametrize("server", [pytest.param(one, marks=pytest.mark.fileperf(server=one)) for one in SERVERS])
def test_kinds(fileperf, fileperf_server, server):
    assert fileperf.get("/").requests == 6
    assert fileperf.run(trip).errors == 0
    assert len(fileperf_server.worker_pids) == server.workers
    assert fileperf_server.url.startswith("https:" if server.is_tls else "http:")
    assert (fileperf_server.uds is None) is not server.uds
    with fileperf_server.sync_client() as client:
        found = client.get("/about").json()
    assert (found["OWN"], found.get("COV_CORE_SOURCE"), found["pid"] in fileperf_server.pids) == ("one", None, True)
    assert found["PYTHONHASHSEED"] == "7"
    assert "PYTEST_CURRENT_TEST" not in found
    assert found["BOOT"].isdecimal() and found["WORKER"] in ("0", "1")[: server.workers]
    assert found["BOOT"] not in BOOTS
    BOOTS.append(found["BOOT"])

def test_one_build(fileperf):
    fileperf.get("/", server=COMMAND, boots=2, requests=None, duration="0.3s")

@pytest.mark.parametrize("given", [app, lambda: app, "app:app"], ids=["object", "factory", "text"])
def test_here(fileperf, given):
    assert fileperf.get("/a%20b?c=%20", app=given, server=InProcess()).client.engine == "in-process"
    assert seen[-1][1:3] == ["/a b", "c=%20"]

def test_running(fileperf):
    assert fileperf.get("/", server=Url("URL", verify="cert.pem")).errors == 0

def test_wrong(fileperf):
    fileperf.get("/", server=Url("URL", verify="other.pem"))

def test_elsewhere(fileperf):
    fileperf.get("/", server="http://192.0.2.1:9")

def test_elsewhere_by_name(fileperf):
    fileperf.get("/", server="http://any.invalid:9")
"""
BROKEN = """
import sys
import pytest
from pytest_fileperf import Command, Granian, Gunicorn, InProcess, Uvicorn

pytestmark = pytest.mark.fileperf(connections=2, requests=6, boots=1, warmup=0, timeout="2s")
START = "{python} -m uvicorn app:app --port={port}"
SERVERS = {
    "/end": Uvicorn(),
    "/import": Uvicorn(env={"BREAK": "import"}),
    "/no-certificate": Granian(ssl_certfile="none.pem"),
    "/no-key": Gunicorn(ssl_certfile="no-key.pem"),
    "/other-key": Uvicorn(ssl_certfile="cert.pem", ssl_keyfile="other.pem"),
    "/without/trustme": Gunicorn(tls=True),
    "/without/granian": Granian(),
    "/build": Command(START, build=["{python}", "-c", "raise SystemExit('it does not compile')"]),
    "/exit": Command(["{python}", "-c", "print('wrong option {port}'); raise SystemExit(3)"]),
    "/late": Command(["{python}", "-c", "import time; time.sleep(60)  # {port}"], start_timeout_s=0.5),
    "/late/lifespan": Uvicorn(env={"BREAK": "late", "BOOT": "{boot}"}, start_timeout_s=0.1),
}

@pytest.mark.parametrize("path", SERVERS)
def test(fileperf, path, monkeypatch):
    monkeypatch.setitem(sys.modules, path.removeprefix("/without/"), None)
    fileperf.get(path, server=SERVERS[path])

def test_start(fileperf, monkeypatch):
    monkeypatch.setenv("BREAK", "start")
    fileperf.get("/", server=InProcess())

def test_shutdown(fileperf):
    fileperf.get("/", server=Uvicorn(env={"BREAK": "shutdown"}))

def test_exit(fileperf):
    fileperf.get("/", server=Uvicorn(env={"BREAK": "exit"}))
"""
TOLD = {
    "/end": "exit code 9.*a line",
    "test_start": "the app's lifespan failed at startup: no database, says the app",
    "/import": "no settings, says the app",
    "/no-certificate": "Granian: ssl_certfile: there is no file .*none.pem",
    "/no-key": "no-key.pem isn't a certificate with a key .*Give its key file as ssl_keyfile",
    "/without/trustme": "pip install .pytest-fileperf.tls.",
    "/without/granian": "pip install .pytest-fileperf.granian.",
    "/other-key": "cert.pem isn't a certificate with a key .*is this its key",
    "/build": "the build of .*it does not compile",
    "/exit": "exit code 3.*wrong option",
    "/late": r"was not ready within 0\.5 s",
    "/late/lifespan": r"uvicorn was not ready to serve app:app within 0\.1 s \(0 of 1 workers were\).*in its lifespan",
}


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def certificates(project: Project) -> None:
    """Writes two certificates with their keys, and the first one alone."""
    issued, other = (trustme.CA().issue_cert("localhost") for _ in range(2))
    issued.cert_chain_pems[0].write_to_path(project.top / "no-key.pem")
    for name, made in (("cert.pem", issued), ("other.pem", other)):
        made.private_key_and_cert_chain_pem.write_to_path(project.top / name)


def test_each_kind_serves_what_it_was_told(project: Project) -> None:
    certificates(project)
    where = tempfile.mkdtemp()  # the path of a Unix socket is short
    url = f"https+unix://{quote(where, '')}%2Fs"
    project.write({"app.py": answering(), "test_it.py": TESTS.replace("URL", url)})
    listening = [f"--uds={where}/s", "--ssl-certfile=cert.pem", "--ssl-keyfile=cert.pem", "--log-level=warning"]
    with subprocess.Popen([sys.executable, "-m", "uvicorn", "app:app", *listening], cwd=project.top) as running:
        try:
            ran = project.run("--tb=short", env={"COV_CORE_SOURCE": "app", "OWN": "of the run"}, width=120)
            assert running.poll() is None, "it is not ours to end"
        finally:
            running.terminate()
    shutil.rmtree(where)

    assert {one["name"] for one in ran.record["failed"]} == {
        "test_elsewhere",
        "test_elsewhere_by_name",
        "test_wrong",
    }, ran.text
    assert re.search(r"an untrusted certificate \(.*\). Check that .*other.pem contains the authority", ran.said), (
        ran.text
    )
    for host in ("192.0.2.1", "any.invalid"):
        assert f"'http://{host}:9' isn't on this machine: load goes only to this machine" in ran.said, ran.text
    assert (project.top / "builds.txt").read_text() == "x"
    servers = {name: one["identity"]["server"] for name, one in results(ran).items()}
    two = servers["test_kinds[uvicorn-2-asyncio-h11-tls]"]
    assert two.items() >= {"kind": "uvicorn", "workers": 2, "loop": "asyncio", "http": "h11", "tls": True}.items()
    both = {name: one for name, one in servers.items() if name in ("test_kinds[gunicorn-2-tls-uds]", "test_kinds[own]")}
    assert [(one["kind"], one["tls"], one["uds"]) for one in both.values()] == [
        ("gunicorn", True, True),
        ("command", True, True),
    ]
    assert servers["test_running"].items() >= {"kind": "url", "tls": True, "uds": True}.items()
    written = json.dumps(ran.record["results"])
    assert [word for word in ("PRIVATE", ".pem", "/uds") if word in written] == []


def test_why_a_server_does_not_serve_is_told_with_its_log(project: Project) -> None:
    project.write({"app.py": answering(), "test_it.py": BROKEN})
    certificates(project)
    ran = project.run("--tb=short", "--fileperf-smoke", width=200)

    told = {one["name"].removeprefix("test[").removesuffix("]"): one["message"] for one in ran.record["failed"]}
    assert (ran.status, set(told)) == (1, set(TOLD)), ran.text
    assert not [path for path, words in TOLD.items() if not re.search(words, told[path], re.DOTALL)], told
    assert "it ends now" in ran.text, "the last line of a long log"
    assert re.search("failed while it shut down: .*it cannot end, says the app", ran.said), ran.text
    assert "failed while it shut down: it ended with exit code 3" in ran.said, ran.text
    if sys.platform == "linux":
        detached = (project.top / "detached.txt").read_text().split()
        assert detached
        assert not any(map(is_alive, map(int, detached))), "what a server has detached ends with it"
