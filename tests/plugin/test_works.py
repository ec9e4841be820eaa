"""Kinds of work in whole runs: smoke runs, what is stored of parts, steps and streams, and how failures are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hostile.runs import Ran, once, project_in, ran
from plugin.conftest import Run

QUICK = ("--fileperf-duration=0.3s", "--fileperf-rounds=2", "--fileperf-boots=1", "--fileperf-warmup=0")
VISIT = """
async def visit(client):
    async with client.step("login"):
        (await client.get("/login")).raise_for_status()
    await client.pause("1ms")
    for _ in range(2):
        async with client.step("download"):
            (await client.get("/wait")).raise_for_status()
"""

# --- a few requests of what depends on how few they are, and whose app is loaded

FEW = """
import urllib.request
import pytest
from pytest_fileperf import CapacityEnd, part
from server_app import make

pids = set()

def ask(server):
    with urllib.request.urlopen(server.url + "/pid") as answer:
        pids.add(int(answer.read()))

def test_one(fileperf_server, fileperf):
    assert 200 in fileperf.get("/").statuses
    ask(fileperf_server)
    assert pids <= {process.pid for process in fileperf_server.processes}

def test_two(fileperf_server):
    ask(fileperf_server)
    assert len(pids) == 1, "the server is shared"

@pytest.mark.fileperf(app="other:app")
class TestMarker:
    def test_marker(self, fileperf):
        assert 299 in fileperf.get("/").statuses

    def test_verb(self, fileperf):
        assert 200 in fileperf.get("/", app="server_app:make()").statuses

class TestFixture:
    @pytest.fixture
    def fileperf_app(self):
        import other
        return other.app

    def test_fixture(self, fileperf):
        assert 299 in fileperf.get("/").statuses

    @pytest.mark.fileperf(app=make)
    def test_marker_before_fixture(self, fileperf):
        assert 200 in fileperf.get("/").statuses

@pytest.mark.fileperf(server="inprocess")
class TestFew:
    def test_capacity(self, fileperf):
        found = fileperf.capacity.get("/", max_p99="1us", min_capacity=1_000_000)
        assert found.ended is CapacityEnd.SMOKE and found.rate > 0

    def test_mix(self, fileperf):
        result = fileperf.mix({part.get("/"): 1, part.get("/b"): 999, part.post("/c"): 5})
        assert {name: one.requests for name, one in result.parts.items()} == {"GET /": 3, "GET /b": 3, "POST /c": 3}

    def test_events(self, fileperf):
        result = fileperf.stream("/events", events=5, connections=4, requests=8, min_event_rate=1, app="stream_app:app")
        assert (result.requests, result.events.first.count) == (8, 8)
        assert result.events.gap.p50 > 0.005
"""
OTHER_APP = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"other"})
"""
STREAM_APP = """
import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    kind = b"text/event-stream" if scope["path"] == "/events" else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    endless = scope["path"] == "/events"
    number = 0
    while endless or number < 8:
        await asyncio.sleep(0.01)
        number += 1
        await send({"type": "http.response.body", "body": b"data: %d\\n\\n" % number, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
"""


def test_a_few_requests_are_enough_and_the_closest_app_is_loaded(project: pytest.Pytester, run: Run) -> None:
    """Which app is asked for is seen in its process. Each verb is in the contracts of subjects."""
    project.makepyfile(other=OTHER_APP, stream_app=STREAM_APP, test_it=FEW)
    before = psutil.Process().children(recursive=True)
    # The order of tests is by chance, and pytest keeps no cache.
    run("--fileperf-smoke", "--fileperf-server=uvicorn", plugins=("randomly",)).assert_outcomes(passed=9)
    assert psutil.Process().children(recursive=True) == before, "servers end with the session"


# --- figures, and what is stored

STORED = f"""
from pytest_fileperf import part, payload
{VISIT}
LOAD = dict(connections=2, gate="p50", tolerance="900%")

def test_download(fileperf):
    assert fileperf.get("/wait", **LOAD).latency.p50 < 10

async def walk(client):
    (await client.get("/wait")).raise_for_status()

def test_mix(fileperf):
    upload = part.post("/wait", content=payload("1KiB", unique=True), name="upload", gate="p50", tolerance="900%")
    download = part.get("/wait/{{id}}", feed=["a", "b"], name="download", gate="none")
    result = fileperf.mix({{upload: 1, download: 2, walk: 1}}, **LOAD)
    assert set(result.parts) == {{"upload", "download", "walk"}}
    assert sum(one.requests for one in result.parts.values()) == result.requests
    assert result.parts["upload"].latency.p50 > 0

def test_visit(fileperf):
    steps = {{"login": {{"gate": "p50", "tolerance": "900%", "max_p50": "10s"}}}}
    result = fileperf.run(visit, steps=steps, **LOAD)
    assert set(result.steps) == {{"login", "download"}}
    assert abs(result.steps["download"].requests - 2 * result.requests) <= 4
    assert abs(result.http_requests - 3 * result.requests) <= 6
    assert result.http_rps > 2 * result.rps
    assert 0 < result.steps["login"].latency.p50 < result.latency.p50

def test_events(fileperf):
    fileperf.stream("/events", events=5, connections=4, app="stream_app:app")
"""
KEYS = (
    "test_download",
    "test_events",
    "test_mix",
    "test_mix#upload",
    "test_mix#walk",
    "test_visit",
    "test_visit#login",
)


def test_parts_steps_and_streams_have_figures_baselines_and_verdicts(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(stream_app=STREAM_APP, test_it=STORED)
    stored = run_load("--fileperf-update=all", "--fileperf-json=new.json", *QUICK)  # on a busy machine, too
    stored.assert_outcomes(passed=4)
    rows = "test_download *NEW,test_mix *NEW*,test_mix #upload *NEW*,test_mix #download*,test_mix #walk*"
    steps = "test_visit *NEW,test_visit #login *NEW,test_visit #download *-"
    stored.stdout.fnmatch_lines_random([*rows.split(","), *steps.split(","), "7 baselines stored"])
    (file,) = (project.path / ".fileperf").rglob("*.json")
    assert tuple(sorted(key.partition("::")[2] for key in json.loads(file.read_text())["tests"])) == KEYS

    more = ("--fileperf-json=out.json", "--fileperf-html=out.html", "--fileperf-confirm=never", "-v")
    compared = run_load("--fileperf", *more, *QUICK)
    assert compared.ret == pytest.ExitCode.OK  # INCONCLUSIVE where others are busy
    compared.stdout.no_fnmatch_line("* stale baseline*")
    compared.stdout.fnmatch_lines(["*events/s*first event p50*"])
    results = json.loads((project.path / "out.json").read_text())["results"]
    found = {"#".join(filter(None, (one["test"][key] for key in ("name", "part", "step")))): one for one in results}
    gates = {name: [gate["metric"] for gate in one["verdict"]["comparisons"]] for name, one in found.items()}
    p50 = {key: ["p50"] for key in KEYS}
    assert gates == p50 | {
        "test_mix#download": [],
        "test_visit#download": [],
        "test_events": ["event_rate", "first_event_p50"],
    }
    assert found["test_mix#walk"]["verdict"]["comparisons"][0]["tolerance"] == 9.0  # the test's
    assert [limit["name"] for limit in found["test_visit#login"]["verdict"]["limits"]] == ["max_p50"]
    requests = {name: one["summary"]["requests"] for name, one in found.items()}
    assert requests["test_mix"] == sum(count for name, count in requests.items() if name.startswith("test_mix#"))
    assert requests["test_visit#login"] >= requests["test_visit"]
    assert found["test_visit"]["summary"]["http_requests"] > 2 * requests["test_visit"]
    assert found["test_visit#login"]["work"] == "step login of visit"
    assert found["test_events"]["summary"]["events"]["count"] > 10
    page = (project.path / "out.html").read_text()
    assert "test_visit #download" in page
    for text in (page, stored.stdout.str()):
        assert "requests/s counts iterations: " in text


# --- failures

LOST = """
known = set()

async def fill(client):
    (await client.put("/broken")).raise_for_status()

async def no_steps(client):
    await client.get("/")

async def steps_fail(client):
    async with client.step("login"):
        (await client.get("/")).raise_for_status()
    async with client.step("download"):
        (await client.get("/status/404")).raise_for_status()

async def steps_may_fail(client):
    for path in ("/", "/status/404"):
        try:
            async with client.step("download"):
                (await client.get(path)).raise_for_status()
        except Exception:
            pass

async def logs_in_once(client):
    if client not in known:
        known.add(client)
        async with client.step("login"):
            await client.get("/")
    await client.get("/")

async def needs(client, made): ...

def plain(client): ...
"""
MEASURES = "calls fileperf again, but it runs inside of a measurement"
FAILS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "limit": (
        "fileperf.get('/', connections=2, min_rps=1e9, gate='none')",
        ("LimitExceededError: ", "min_rps 1,000,000,000/s, measured "),
    ),
    "status": ("fileperf.get('/status/500')", ("RequestsFailedError: ", "status 500")),
    "keyword": ("fileperf.get('/', conections=1)", ("unknown key 'conections' (did you mean connections?)",)),
    # parts
    "part": (
        "fileperf.mix({part.get('/', name='one'): 1, part.get('/', name='two', max_p50='1ns'): 1}, gate='none')",
        ("LimitExceededError: ", "#two"),
    ),
    "no_part": ("fileperf.mix({})", ("mix takes weights by parts",)),
    "weight": ("fileperf.mix({part.get('/'): 0})", ("GET /: its weight is 0, not a number above 0",)),
    "plain": ("fileperf.mix({plain: 1})", ("run(plain): run takes an async function",)),
    "number": ("fileperf.mix({5: 1})", ("5 isn't a part",)),
    "alike": ("fileperf.mix({part.get('/'): 1, part.get('/'): 2})", ("two parts are called 'GET /'",)),
    "field": ("fileperf.mix({part.get('/{id}'): 1})", ("GET /{id}: '/{id}' has a field",)),
    "rate": ("fileperf.mix({part.get('/', name='a', rate=5): 1})", ("a: rate: keys for the whole load only",)),
    "name": ("fileperf.mix({part.get('/', name='a#b'): 1})", ("name: 'a#b' isn't a name",)),
    "feed": (
        "fileperf.mix({part.get('/{id}', feed=lambda ids: ids): 1})",
        ("the feed's function needs a setup's value",),
    ),
    # steps
    "step": (
        "fileperf.run(visit, steps={'download': {'max_p50': '1ns'}}, gate='none')",
        ("LimitExceededError: ", "#download"),
    ),
    "step_fails": (
        "fileperf.run(steps_fail, gate='none', steps={'login': {'max_error_rate': 0}, 'download': {}})",
        ("#download: none of ", " requests succeeded: status 404"),
    ),
    "step_may_not_fail": (
        "fileperf.run(steps_may_fail, gate='none', steps={'download': {'max_error_rate': 0}})",
        ("#download",),
    ),
    "warm_up_s_step": (
        "fileperf.run(logs_in_once, steps={'login': {}}, connections=1, warmup='0.1s', gate='none')",
        ("only the warm-up reached step 'login', so it has no figures. Give the test warmup=0, or",),
    ),
    "no_such_step": (
        "fileperf.run(visit, steps={'logout': {}})",
        ("step 'logout' was never reached. Reached steps: download, login",),
    ),
    "no_step": (
        "fileperf.run(no_steps, steps={'login': {}})",
        ("step 'login' was never reached. No step was reached",),
    ),
    "part_s_step": (
        "fileperf.mix({part.run(visit, steps={'logout': {}}): 1})",
        ("step 'visit#logout' was never reached. Reached steps: visit#download, visit#login",),
    ),
    "steps_as_a_list": ("fileperf.run(visit, steps=['login'])", ("steps: ['login'] isn't a mapping",)),
    "steps_as_texts": ("fileperf.run(visit, steps={'login': '50ms'})", ("steps: login: '50ms' isn't a mapping",)),
    "step_s_name": ("fileperf.run(visit, steps={'a#b': {}})", ("steps: a#b: 'a#b' isn't a name",)),
    "step_s_key": (
        "fileperf.run(visit, steps={'login': {'max_p98': 1}})",
        ("steps: login: unknown key 'max_p98' (did you mean max_p99?)",),
    ),
    "step_s_memory": ("fileperf.run(visit, steps={'login': {'max_rss': 1}})", ("steps: login: unknown key 'max_rss'",)),
    "step_s_gate": (
        "fileperf.run(visit, steps={'login': {'gate': 'rss'}})",
        ("steps: login: gate: rss can be known only for the whole load, not for a step",),
    ),
    "part_s_gate": (
        "fileperf.mix({part.get('/a', gate='startup'): 1})",
        ("gate: startup can be known only for the whole load, not for a part",),
    ),
    "step_s_limit": ("fileperf.run(visit, steps={'login': {'max_p99': 'soon'}})", ("steps: login: max_p99: ",)),
    "step_s_rate": (
        "fileperf.mix({part.run(visit, steps={'login': {'rate': 5}}): 1})",
        ("steps: login: unknown key 'rate'",),
    ),
    "steps_of_a_search": (
        "fileperf.capacity.run(visit, steps={'login': {}}, max_p99='1s')",
        ("steps: a capacity search",),
    ),
    # capacities
    "none_is_good": ("fileperf.capacity.get('/status/404', max_p99='1s', max_duration='500ms')", ("status 404",)),
    "no_limit": (
        "fileperf.capacity.get('/', rate=10, server='command:no-such-program {port}')",
        ("rate: a capacity search chooses its own rates", "none is given. Write max_p99"),
    ),
    # streams
    "no_events": (
        "fileperf.get('/lines', min_event_rate=5)",
        ("only streams have events. Measure min_event_rate with fileperf.stream",),
    ),
    "too_long": (
        "fileperf.stream('/events', listen_for='5s', timeout='2s')",
        ("listen_for is 5.00 s, but requests fail after the timeout of 2.00 s. Raise the timeout",),
    ),
    # setups
    "setup": (
        "fileperf.get('/', setup=fill)",
        (
            "SetupError: setup fill failed on ",
            "in fill",
            "HTTPStatusError: ",
            "Last lines of its log:",
            "no such table",
        ),
    ),
    "setup_here": (
        "fileperf.get('/', setup=fill, server='inprocess')",
        ("SetupError: setup fill failed on ", "in fill"),
    ),
    "setup_measures": (
        "fileperf.get('/1', setup=lambda client: fileperf.get('/1'), server='inprocess')",
        (f"GET /1: setup <lambda> {MEASURES}",),
    ),
    "teardown_measures": (
        "fileperf.get('/3', teardown=lambda client: fileperf.get('/3'), server='inprocess')",
        (f"GET /3: teardown <lambda> {MEASURES}",),
    ),
    "no_setup": (
        "fileperf.run(needs, app='nowhere:app')",
        ("the journey needs a setup's value, but there is no setup",),
    ),
}
"""What a test measures, and what is said of it."""
EXPECTED = """
def test_expected(fileperf):
    result = fileperf.run(steps_may_fail, gate="none", steps={"download": {"max_error_rate": None}})
    assert result.errors == 0 < result.steps["download"].errors
"""
ASYNC_FAILS = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_async(afileperf):
    await afileperf.get("/status/500")

@pytest.mark.anyio
async def test_async_setup_measures(afileperf):
    async def fill(client):
        await afileperf.get("/2")
    await afileperf.get("/2", setup=fill)

@pytest.mark.fileperf(app="missing_module:app")
def test_server(fileperf_server):
    pass
"""
TESTS = f"import pytest\nfrom pytest_fileperf import part\n{LOST}{VISIT}{EXPECTED}{ASYNC_FAILS}\n" + "".join(
    f"def test_{name}(fileperf):\n    {call}\n\n" for name, (call, _) in FAILS.items()
)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run with all of these failures."""

    def make(directory: Path) -> Ran:
        return ran(project_in(directory, TESTS), "--fileperf", "-pfileperf", *QUICK, "--fileperf-duration=0.1s")

    return once(tmp_path_factory, "failures", make)


@pytest.mark.parametrize("name", FAILS)
def test_a_failure_is_told_with_its_place_and_in_a_sentence(failed: Ran, name: str) -> None:
    call, words = FAILS[name]
    outcome, text = failed.tests[name]
    assert outcome == "failed"
    said = " ".join(text.replace("\nE", "").split())
    assert f"> {call}" in said
    place = TESTS[: TESTS.index(f"def test_{name}(")].count("\n") + 2
    missing = [each for each in (f"test_it.py:{place}: ", *words) if each not in said]
    assert missing == [], text
    assert "pytest_fileperf/" not in text, "no frame is ours"
    assert "did not end within" not in text


def test_async_failures_are_told_at_the_line_of_the_test_too(failed: Ran) -> None:
    outcome, text = failed.tests["async"]
    assert outcome == "failed"
    assert 'await afileperf.get("/status/500")' in text
    assert "to_thread" not in text
    assert "pytest_fileperf/" not in text
    assert f"GET /2: setup fill {MEASURES}" in " ".join(failed.tests["async_setup_measures"][1].split())
    assert failed.tests["expected"][0] == "passed"
    assert failed.tests["server"][0] == "error"
    assert "No module named 'missing_module'" in failed.tests["server"][1]
    for row in ("test_part #two .*LIMIT", "test_step #download .*LIMIT", "test_step_fails #download .*FAILED"):
        pytest.LineMatcher(failed.text.splitlines()).re_match_lines([row])
