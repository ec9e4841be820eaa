"""Setups and teardowns in whole runs: keys, fixtures, every boot, and what a failure looks like."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apps import SOURCE

Run = Callable[..., pytest.RunResult]

STORE = f"""{SOURCE}
items = {{}}


async def app(scope, receive, send):
    "Keeps what is put, gives it, and forgets what is deleted."
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    body, path, method = await request_body(receive), scope["path"], scope["method"]
    if path == "/broken":
        raise OSError("no such table: items")
    if method == "PUT":
        items[path] = body
    elif method == "DELETE":
        del items[path]
    await respond(send, items.get(path, b""), 200 if path in items or method == "DELETE" else 404)
"""
STEPS = """
import pytest

async def fill(client):
    answer = await client.put("/items/1", content=b"one")
    answer.raise_for_status()
    return {"path": "/items/1"}

def remove(client, made):
    client.delete(made["path"]).raise_for_status()

async def get_made(client, made):
    assert (await client.get(made["path"])).content == b"one"
"""


@pytest.fixture
def store(project: pytest.Pytester) -> pytest.Pytester:
    project.makepyfile(server_app=STORE)
    return project


def test_it_reaches_every_boot_by_key_marker_and_fixture(store: pytest.Pytester, run: Run) -> None:
    store.makeconftest(
        f"""{STEPS}
@pytest.fixture
def fileperf_setup():
    return fill

@pytest.fixture
def fileperf_teardown():
    return remove
"""
    )
    store.makepyfile(
        test_it=f"""{STEPS}
def test_fixtures(fileperf):
    fileperf.get("/items/1", expect_body=b"one")

def test_journey(fileperf):
    fileperf.run(get_made)

def test_server(fileperf_server):
    with fileperf_server.sync_client() as client:
        assert client.get("/items/1").content == b"one"

async def other(client):
    await client.put("/items/2", content=b"two")

@pytest.mark.fileperf(setup=other, teardown=None)
def test_marker(fileperf):
    fileperf.get("/items/2", expect_body=b"two")

def test_verb(fileperf):
    fileperf.get("/items/2", setup=other, teardown=None)
"""
    )
    result = run("--fileperf", "--fileperf-boots=2", "--fileperf-duration=0.1s", "--fileperf-warmup=0")
    result.assert_outcomes(passed=5)


def test_both_sides_of_a_comparison_have_it(store: pytest.Pytester, run: Run) -> None:
    store.mkdir("before").joinpath("server_app.py").write_text(STORE)
    store.makepyfile(
        f"""{STEPS}
@pytest.mark.fileperf(setup=fill, teardown=remove, gate="rps", tolerance="400%", connections=2)
def test_in_turn(fileperf):
    assert fileperf.run(get_made).errors == 0
"""
    )
    result = run("--fileperf-against=./before", "--fileperf-max-duration=2s", "-v")
    assert result.parseoutcomes().get("failed", 0) == 0  # nobody asks which outcome the noise allows
    assert "in turn" in result.stdout.str()
    assert "NEW" not in result.stdout.str()


@pytest.mark.parametrize("server", ["inprocess", "uvicorn"])
def test_a_failure_is_the_test_s_with_its_place_and_the_server_s_log(
    store: pytest.Pytester, run: Run, server: str
) -> None:
    store.makepyfile(
        """
        async def fill(client):
            answer = await client.put("/broken")
            answer.raise_for_status()

        def test_fails(fileperf):
            fileperf.get("/items/1", setup=fill)
        """
    )
    result = run("--fileperf-smoke", f"--fileperf-server={server}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*SetupError: setup fill failed on *:", '*File "*test_a_failure*.py", line *, in fill']
    )
    if server == "uvicorn":
        result.stdout.fnmatch_lines(["*HTTPStatusError: *500*", "*last lines of its log:", "*no such table: items"])


def test_a_setup_that_measures_is_refused_at_once(store: pytest.Pytester, run: Run) -> None:
    """It would wait for the measurement that waits for it."""
    store.makepyfile(
        """
        import pytest

        def test_plain(fileperf):
            def fill(client):
                fileperf.get("/items/1")
            fileperf.get("/items/1", setup=fill)

        @pytest.mark.anyio
        async def test_async(afileperf):
            async def fill(client):
                await afileperf.get("/items/2")
            await afileperf.get("/items/2", setup=fill)

        def test_teardown(fileperf):
            def empty(client):
                fileperf.get("/items/3")
            fileperf.get("/items/3", teardown=empty)
        """
    )
    result = run("--fileperf-smoke", "--fileperf-server=inprocess", "-k", "asyncio or not async")
    result.assert_outcomes(failed=3)
    said = " ".join(result.stdout.str().replace("\nE", "").split())
    for step, path in (("setup fill", "/items/1"), ("setup fill", "/items/2"), ("teardown empty", "/items/3")):
        assert f"GET {path}: {step} calls a verb of fileperf, and the measurement that waits for this" in said
    assert "did not end within" not in said


def test_a_journey_without_its_setup_is_named(store: pytest.Pytester, run: Run) -> None:
    store.makepyfile(
        """
        async def needs(client, made): ...

        def test_nothing(fileperf):
            fileperf.run(needs)
        """
    )
    result = run("--fileperf-smoke", "--fileperf-app=nowhere:app")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the journey takes what a setup returned, and there is no setup*"])
