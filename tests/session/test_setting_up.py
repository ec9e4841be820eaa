"""What a test does on each boot: with which client, how a failure is told, and on which boots it runs."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections import abc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from drive.scripted import answer, scripted
from session.fakes import Host, rig_of
from session.test_comparison import PLAIN, RPS, SETTINGS, Compare, Comparing, compare  # noqa: F401 # a fixture
from session.test_stored import NEW, OLD, Code, Project, project  # noqa: F401 # a fixture

from pytest_fileperf.errors import BaseDiedError, BaseSetupError, SetupError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.plan.feed import Maker, Requests
from pytest_fileperf.plan.load import Side
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work, with_value
from pytest_fileperf.report.wording import notes_text
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.inprocess import InProcessLaunch
from pytest_fileperf.serve.running import RunningServer, UrlLaunch
from pytest_fileperf.serve.spec import Url
from pytest_fileperf.session.session import Session
from pytest_fileperf.session.setup import running_step, set_up, work_of_boot
from pytest_fileperf.settings.settings import Options, Settings

MS = 1_000_000
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
ALONE = Settings(app="an_app:app", connections=2, duration_ns=300 * MS, warmup_ns=0, rounds=6, gate=("rps",))


async def hello(number: int, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"hello"))


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    """Answers with the body that it got, after that of a form."""
    if scope["type"] == "http":
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["path"].encode())]})
        await send({"type": "http.response.body", "body": b"hello" + body})


@pytest.fixture(params=["url", "in-process"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with ExitStack() as stack:
        if request.param == "url":
            yield UrlLaunch(Url(stack.enter_context(scripted(hello)))).ready()
        else:
            launch = InProcessLaunch(AppSpec(app))
            stack.callback(launch.stop)
            launch.start()
            yield launch.ready()


async def in_async(client: httpx.AsyncClient) -> str:
    await asyncio.sleep(0)
    return (await client.post("/fill")).text


def in_plain(client: httpx.Client) -> str:
    return client.post("/fill").text


class Callable:
    async def __call__(self, client: httpx.AsyncClient) -> str:
        return await in_async(client)


@pytest.mark.parametrize("setup", [in_async, in_plain, Callable()], ids=["async", "plain", "object"])
def test_it_talks_to_the_boot_and_what_it_returns_is_given(server: RunningServer, setup: object) -> None:
    assert callable(setup)
    torn_down = []
    steps = Settings(setup=setup, teardown=lambda client, value: torn_down.append((client.get("/").text, value)))
    with set_up(steps, server) as value:
        assert value == "hello"
        assert torn_down == []
    assert torn_down == [("hello", "hello")]


def test_a_server_that_ends_while_it_accepts_leaves_nothing_open() -> None:
    """A warning about a socket that nobody closed would fail this test or the next one."""
    for _ in range(20):
        with scripted(hello) as url:
            client = socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0))
        client.close()
    gc.collect()


def test_a_plain_client_of_an_app_in_this_process_sends_bodies_and_gets_headers() -> None:
    launch = InProcessLaunch(AppSpec(app))
    try:
        launch.start()
        with launch.ready().sync_client() as client:
            answered = client.post("/there", content=b" you")
    finally:
        launch.stop()
    assert (answered.text, answered.headers["x-path"]) == ("hello you", "/there")


def test_a_teardown_may_do_without_the_value(server: RunningServer) -> None:
    called = []
    with set_up(Settings(teardown=lambda client: called.append(client)), server) as value:
        assert value is None
    assert len(called) == 1


def test_it_works_inside_of_a_test_s_own_event_loop(server: RunningServer) -> None:
    async def in_a_loop() -> object:
        with set_up(Settings(setup=in_async), server) as value:
            return value

    assert asyncio.run(in_a_loop()) == "hello"


# --- what fails


async def failing_in_async(client: httpx.AsyncClient) -> None:
    (await client.get("/")).json()


def failing_in_plain(client: httpx.Client) -> None:
    client.get("/").json()


@pytest.mark.parametrize("step", [failing_in_async, failing_in_plain])
def test_a_failure_is_told_with_its_place_in_the_user_s_code_and_the_log(
    step: object, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(step)
    monkeypatch.setattr(type(server), "log", ("sqlite3.OperationalError: no such table: items",))
    with pytest.raises(SetupError) as raised, set_up(Settings(setup=step), server, "main"):
        pass
    lines = str(raised.value).splitlines()
    name = step.__name__  # type: ignore[attr-defined]
    assert lines[0] == f"setup {name} failed on {server.title}, of main:"
    assert lines[1].startswith(f'    File "{__file__}", line ')
    assert lines[1].endswith(f" in {name}")
    assert lines[-4] == "  json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert lines[-3].startswith("If that version lacks what the setup asks for, let the setup return without an error")
    assert lines[-2:] == ["last lines of its log:", "  | sqlite3.OperationalError: no such table: items"]
    assert sum(" in " in line for line in lines) == 1


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "leave, said",
    [
        (lambda: sys.exit(3), "it called sys.exit(3)"),
        (lambda: pytest.skip("why"), "it skipped a test that has measured (why)"),
    ],
    ids=["exit", "skip"],
)
def test_a_teardown_that_leaves_by_another_way_than_an_error_fails(
    server: RunningServer, *, is_async: bool, leave: abc.Callable[[], object], said: str
) -> None:
    def leaving(client: httpx.Client) -> None:
        leave()

    async def leaving_in_async(client: httpx.AsyncClient) -> None:
        leave()

    step = leaving_in_async if is_async else leaving
    with pytest.raises(SetupError) as raised, set_up(Settings(teardown=step), server):
        pass
    lines = str(raised.value).splitlines()
    assert any(f"RuntimeError: {said}" in line for line in lines)
    assert not any("setting_up.py" in line or "asyncio" in line for line in lines if __file__ not in line)
    # The server of this process goes on.
    with set_up(Settings(setup=in_plain), server) as value:
        assert value


def test_a_setup_that_calls_exit_fails_and_may_skip_the_test(server: RunningServer) -> None:
    def leaving(client: httpx.Client) -> None:
        sys.exit("no database")

    def skipping(client: httpx.Client) -> None:
        pytest.skip("no database")

    with (
        pytest.raises(SetupError, match=r"it called sys\.exit\('no database'\)"),
        set_up(Settings(setup=leaving), server),
    ):
        pass
    with pytest.raises(pytest.skip.Exception), set_up(Settings(setup=skipping), server):
        pass


def test_it_has_a_time_limit(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.session.setup.LEAST_LIMIT_S", 0.05)

    async def slow_in_async(client: httpx.AsyncClient) -> None:
        await asyncio.sleep(1000)

    def slow_in_plain(client: httpx.Client) -> None:
        time.sleep(2)

    for step, name in ((slow_in_async, "slow_in_async"), (slow_in_plain, "slow_in_plain")):
        match = f"^setup {name} did not end within 0.05 s on "
        with pytest.raises(SetupError, match=match), set_up(Settings(setup=step, timeout_ns=50_000_000), server):
            pass


def test_what_it_calls_knows_that_it_is_called_by_it(server: RunningServer) -> None:
    known: list[str] = []

    async def fill(client: httpx.AsyncClient) -> None:
        known.append(running_step())
        await asyncio.gather(asyncio.to_thread(lambda: known.append(running_step())), client.get("/"))

    def empty(client: httpx.Client) -> None:
        known.append(running_step())

    with set_up(Settings(setup=fill, teardown=empty), server):
        assert running_step() == ""
    assert (known, running_step()) == (["setup fill", "setup fill", "teardown empty"], "")


def test_a_time_limit_of_its_own_is_its_own_failure(server: RunningServer) -> None:
    async def impatient(client: httpx.AsyncClient) -> None:
        raise TimeoutError("enough")

    match = r"setup impatient failed on .*\n(.*\n)*  TimeoutError: enough"
    with pytest.raises(SetupError, match=match), set_up(Settings(setup=impatient), server):
        pass


def test_a_coroutine_that_nobody_awaits_is_a_failure(server: RunningServer) -> None:
    steps = Settings(setup=lambda client: in_async(client))
    with pytest.raises(SetupError, match="returned a coroutine: write it as an"), set_up(steps, server):
        pass


def failing_teardown(client: httpx.Client) -> None:
    raise OSError("no space")


def test_a_teardown_that_fails_fails(server: RunningServer) -> None:
    match = r"^teardown failing_teardown failed on "
    with pytest.raises(SetupError, match=match), set_up(Settings(teardown=failing_teardown), server):
        pass


def test_a_teardown_runs_where_the_load_failed_whose_error_stays(server: RunningServer) -> None:
    with pytest.raises(KeyError) as raised, set_up(Settings(teardown=failing_teardown), server):
        raise KeyError
    (note,) = raised.value.__notes__
    assert note.startswith("teardown failing_teardown failed on ")


# --- on which boots it runs


def test_a_teardown_runs_where_the_test_is_interrupted(server: RunningServer) -> None:
    """pytest's own time limits and Ctrl-C are no Exceptions."""
    torn_down: list[object] = []

    def interrupted() -> None:
        with set_up(Settings(setup=in_plain, teardown=lambda client, value: torn_down.append(value)), server):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(torn_down) == 1


class Notes:
    """A setup and a teardown that note what they are called with."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def fill(self, client: httpx.Client) -> str:
        self.called.append(f"setup {client.base_url.host}:{client.base_url.port}")
        return f"ids of {client.base_url.port}"

    def empty(self, client: httpx.Client, value: str) -> None:
        self.called.append(f"teardown {value}")


def measured(tmp_path: Path, host: Host, *settings: Settings, shown: bool = False, work: Work = GET) -> None:
    rig, _, _ = rig_of(host)
    with Session(Options(baselines=tmp_path), rig) as session:
        for own in settings:
            if shown:
                session.server(own, TEST.nodeid)
            session.measure(work, own, TEST)


def test_it_runs_once_on_every_boot_of_a_test(tmp_path: Path) -> None:
    notes, host = Notes(), Host()
    own = replace(ALONE, setup=notes.fill, teardown=notes.empty)
    measured(tmp_path, host, own, shown=True)
    assert notes.called == [
        line for number in range(3) for line in (f"setup fake:{number}", f"teardown ids of {number}")
    ]
    assert len(host.booted) == 3


def test_a_boot_serves_another_test_only_where_a_teardown_cleared_it(tmp_path: Path) -> None:
    cleared, left = Host(), Host()
    notes = Notes()
    measured(tmp_path, cleared, replace(ALONE, setup=notes.fill, teardown=notes.empty), ALONE)
    measured(tmp_path, left, replace(ALONE, setup=notes.fill), ALONE)
    assert len(cleared.booted) == 5
    assert len(left.booted) == 6
    assert left.most_alive == 1


def test_a_boot_on_which_the_setup_failed_serves_no_more(tmp_path: Path) -> None:
    host = Host()
    with pytest.raises(SetupError):
        measured(tmp_path, host, replace(ALONE, setup=failing_teardown))
    assert all(server.is_over for server in host.servers)


def test_figures_with_a_setup_are_of_something_else(tmp_path: Path) -> None:
    rig, _, _ = rig_of(Host())
    with Session(Options(baselines=tmp_path), rig) as session:
        session.measure(GET, ALONE, TEST)
        session.measure(GET, replace(ALONE, setup=Notes().fill), TEST)
        without, with_setup = session.results
    assert "setup" not in without.identity
    assert with_setup.identity == {**without.identity, "setup": "Notes.fill"}


@pytest.mark.parametrize("takes_value", [True, False])
def test_only_journeys_that_take_a_value_get_it(takes_value: bool) -> None:
    journey = Journey(name="any", function=in_async, takes_value=takes_value)
    assert journey.arguments == ()
    given = with_value(journey, None)
    assert isinstance(given, Journey)
    assert given.arguments == ((None,) if takes_value else ())
    assert given.identity() == journey.identity()
    assert with_value(GET, 1) is GET


def test_both_sides_of_a_comparison_are_set_up_in_every_pair(compare: Compare) -> None:  # noqa: F811
    notes = Notes()
    compared = compare(PLAIN, PLAIN, replace(SETTINGS, setup=notes.fill, teardown=notes.empty))
    pairs = len(compared.result.pairs)
    assert len(notes.called) == 4 * pairs
    assert sum(line.startswith("setup") for line in notes.called) == 2 * pairs
    assert len(set(notes.called)) == 4 * pairs


class Failing:
    """A setup that fails on one side, in its first calls there or always."""

    def __init__(self, comparing: Comparing, side: Side, *, times: int = 1_000) -> None:
        self._host = comparing.host
        self._side = side
        self._left = times

    def __call__(self, client: httpx.Client) -> None:
        server = self._host.servers[client.base_url.port or 0]
        if self._host.booted[server.number].side is self._side and self._left:
            self._left -= 1
            raise OSError("no such table: items")


@pytest.mark.parametrize("failing", Side)
def test_a_setup_that_fails_on_either_side_fails_the_test(failing: Side, compare: Compare) -> None:  # noqa: F811
    """It is no proof that the base lacks anything: that would be NEW, which passes in CI."""
    comparing = compare.session(PLAIN, PLAIN, ci=True)
    with pytest.raises(SetupError, match=r"^setup Failing failed on fake ") as raised:
        comparing.measure(replace(SETTINGS, setup=Failing(comparing, failing)))
    assert isinstance(raised.value, BaseSetupError) is (failing is Side.BASE)
    assert (f", of {compare.base.title}:" in str(raised.value)) is (failing is Side.BASE)
    assert "no such table: items" in str(raised.value)
    assert all(server.is_over for server in comparing.host.servers)


@pytest.mark.parametrize("failing", Side)
@pytest.mark.parametrize(
    "feed, said",
    [
        (
            lambda ids: [ids[0]],
            r"the feed of GET /\{id\} failed on fake[^\n]*:\n.* in <lambda>\n(.*\n)*  IndexError: list index",
        ),
        (lambda ids: ids, r"GET /\{id\} has no requests on .*: feed: it has no row"),
    ],
)
def test_a_feed_that_fails_on_a_side_is_told_as_a_setup_is(feed: Maker, said: str, failing: Side) -> None:
    work = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=feed)
    server = cast("RunningServer", SimpleNamespace(title="fake", log=("a line",)))
    base = "main" if failing is Side.BASE else ""
    with pytest.raises(SetupError, match=said) as raised:
        work_of_boot(work, [], server, 60, base)
    assert isinstance(raised.value, BaseSetupError) is (failing is Side.BASE)
    assert ("on fake, of main:" in str(raised.value)) is (failing is Side.BASE)
    assert str(raised.value).endswith("| a line")


def test_a_feed_that_does_not_end_is_told() -> None:
    work = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda _: [threading.Event().wait()])
    server = cast("RunningServer", SimpleNamespace(title="fake", log=()))
    with pytest.raises(SetupError, match=r"^the feed of GET /\{id\} did not end within 0.1 s on fake$"):
        work_of_boot(work, [], server, 0.1)


def test_a_feed_that_fails_on_the_base_is_told_with_its_side(compare: Compare) -> None:  # noqa: F811
    comparing = compare.session(PLAIN, PLAIN)
    work = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda ids: ids[0])  # type: ignore[index]
    with pytest.raises(BaseSetupError, match=r"^the feed of GET /\{id\} failed on fake "):
        comparing.measure(replace(SETTINGS, setup=lambda client: []), work)


def test_a_setup_that_failed_once_on_the_base_is_tried_on_fresh_boots(compare: Compare) -> None:  # noqa: F811
    comparing = compare.session(PLAIN, PLAIN)
    compared = comparing.measure(replace(RPS, tolerances={"rps": 4.0}, setup=Failing(comparing, Side.BASE, times=1)))
    assert compared.only.outcome is Outcome.PASS
    assert len(comparing.host.booted) == 2 * (len(compared.result.pairs) + 1)


def test_a_base_that_died_in_its_setup_is_named(compare: Compare) -> None:  # noqa: F811
    comparing = compare.session(PLAIN, PLAIN)

    def fill(client: httpx.Client) -> None:
        server = comparing.host.servers[client.base_url.port or 0]
        if comparing.host.booted[server.number].side is Side.BASE:
            server.is_dead = True
            raise OSError("connection reset")

    with pytest.raises(BaseDiedError, match="ended with exit status 3") as raised:
        comparing.measure(replace(SETTINGS, setup=fill))
    assert str(raised.value).startswith(f"{compare.base.title}: ")


def test_a_baseline_whose_code_cannot_be_set_up_leaves_its_figures_and_its_log_is_shown(project: Project) -> None:  # noqa: F811
    def fill(client: httpx.Client) -> None:
        if host.booted and host.booted[host.servers[client.base_url.port or 0].number].side is Side.BASE:
            raise OSError("no such table: items")

    settings = replace(ALONE, setup=fill)
    host = Host()
    project.run(host, Code(project.directory, OLD), settings, update="new")
    host = Host()
    with project.session(host, Code(project.directory, NEW)) as session:
        session.measure(GET, settings, TEST)
        (result,), (note,) = session.results, session.notes
    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is Outcome.INCONCLUSIVE
    assert "only stored figures compare: setup " in notes_text(result.verdict.code_notes)
    assert "\n" not in notes_text(result.verdict.code_notes)
    assert note.startswith("test_any: setup ")
    assert "no such table: items" in note
