"""Where and how both sides of a comparison boot: on fake servers, and on cores that are only numbers."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from apps import SOURCE
from serve.processes import launch
from session.fakes import App, Host, Pool, Server

from pytest_fileperf.errors import RegressionError, ServerDiedError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.load import Side
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.spec import Url, Uvicorn
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.session.sides import Absent, Base, Sides
from pytest_fileperf.settings.plans import Pace, Plan, app_of
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.tree import CodeTree

TITLE = "main (1a2b3c4)"
SERVER, GENERATOR = frozenset({1}), frozenset({0})


class Turned(random.Random):
    """Chance that turns everything round, or nothing."""

    def __init__(self, turned: bool) -> None:
        super().__init__(0)
        self._turned = turned

    def sample(self, population, k, *, counts=None):  # type: ignore[no-untyped-def]
        drawn = list(population)
        return drawn[::-1] if self._turned else drawn


@pytest.fixture
def base(tmp_path: Path) -> Base:
    for tree in ("here", "base"):
        (tmp_path / tree).mkdir()
    code_tree = CodeTree(title=TITLE, here=tmp_path / "here", there=tmp_path / "base")
    return Base(title=TITLE, code_tree=code_tree)


def sides_of(host: Host, base: Base, *, chance: random.Random | None = None, pool: ServerPool | None = None) -> Sides:
    plan = Plan(
        test=TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any"),
        work=Operation(method="GET", url="/"),
        settings=Settings(),
        app=AppSpec("compared_app:app"),
        cores=SERVER,
        generator_cores=GENERATOR,
    )
    return Sides(base, plan, pool=pool or Pool(host), chance=chance or random.Random(1))


def pairs_of(sides: Sides, count: int = 3) -> list[tuple[Server, Server]]:
    """Boots so many pairs; returns their servers, base and now."""
    made = []
    for number in range(count):
        with sides.booted(number) as servers:
            assert not isinstance(servers, Absent)
            base, now = servers
            assert isinstance(base, Server)
            assert isinstance(now, Server)
            assert not base.is_over
            assert not now.is_over
            made.append((base, now))
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_sides_boot_one_after_the_other_by_chance_where_they_serve(turned: bool, base: Base) -> None:
    host = Host()
    pairs = pairs_of(sides_of(host, base, chance=Turned(turned)))

    order = [Side.NOW, Side.BASE] if turned else [Side.BASE, Side.NOW]
    assert [(asked.side, asked.cores) for asked in host.booted] == [(side, SERVER) for side in order] * 3
    assert host.most_alive == 2
    assert all(server.is_over for pair in pairs for server in pair)


def test_every_boot_has_a_number_of_its_own_to_be_filled_in(base: Base) -> None:
    host = Host()
    pairs_of(sides_of(host, base))
    assert [asked.serial for asked in sorted(host.booted, key=lambda asked: (asked.boot, asked.side))] == [*range(6)]


def test_the_server_of_earlier_tests_ends_before_a_pair_boots(base: Base) -> None:
    host = Host()
    pool = Pool(host)
    earlier = pool.any_boot(Uvicorn(), AppSpec("compared_app:app"), SERVER)
    pairs_of(sides_of(host, base, pool=pool), 1)
    assert isinstance(earlier, Server)
    assert earlier.is_over
    assert host.most_alive == 2


def test_both_boots_of_a_pair_have_one_number_and_pairs_count_on(base: Base) -> None:
    host = Host()
    pairs_of(sides_of(host, base))
    first = host.booted[0].boot
    assert [asked.boot for asked in host.booted] == [first, first, first + 1, first + 1, first + 2, first + 2]


def test_a_base_without_the_app_is_absent_and_nothing_is_left(base: Base) -> None:
    host = Host(base=App(missing=True))
    with sides_of(host, base).booted(0) as servers:
        assert isinstance(servers, Absent)
        assert (servers.side, servers.app) == (Side.BASE, True)
    assert all(server.is_over for server in host.servers)


# --- Comparisons on real servers. What differs is so gross that no noise hides it, and nobody asks for PASS

pytestmark = pytest.mark.timeout(120)

MS = 1_000_000
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
QUICK = Settings(
    app="compared_app:app", connections=2, max_duration_ns=20_000 * MS, timeout_ns=5_000 * MS, gate=("rps",)
)
PACE = Pace(
    first_pair_ns=600 * MS,
    pair_ns=600 * MS,
    warmup_ns=50 * MS,
    probe_ns=100 * MS,
    limiting_ns=200 * MS,
    profile_ns=200 * MS,
)
"""What is asked here needs few turns."""

APP = f"""{SOURCE}
import asyncio
import os

async def answer(scope, receive, send, sleep_s=0.0, body=b"x" * 1000):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    await asyncio.sleep(sleep_s)
    await respond(send, body)
"""


def source(code: str) -> str:
    """Returns the module of an app; the code of its `app` uses `answer`."""
    return APP + inspect.cleandoc(code) + "\n"


PLAIN = source("app = answer")
SLOW_AND_LARGE = source(
    "async def app(scope, receive, send): await answer(scope, receive, send, sleep_s=0.01, body=b'y' * 5000)"
)
DYING = source(
    """
    count = 0
    async def app(scope, receive, send):
        global count
        count += scope["type"] == "http"
        if count > 30:
            os._exit(3)
        await answer(scope, receive, send)
    """
)
Trees = Callable[..., Base]


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trees:
    """Makes the tree of the test run and the one to compare with."""

    def make(base: str | None = PLAIN, now: str = PLAIN) -> Base:
        for tree, code in (("here", now), ("base", base)):
            (tmp_path / tree).mkdir()
            (tmp_path / tree / "other.py").touch()
            if code is not None:
                (tmp_path / tree / "compared_app.py").write_text(code, encoding="utf-8")
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.syspath_prepend(tmp_path / "here")
        return Base(title=TITLE, code_tree=CodeTree(title=TITLE, here=tmp_path / "here", there=tmp_path / "base"))

    return make


@contextmanager
def nothing_left() -> Iterator[None]:
    """Asserts that no process is left."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        yield
    finally:
        assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@contextmanager
def session(base: Base, tmp_path: Path) -> Iterator[Session]:
    options = Options(baselines=tmp_path / "baselines")
    with nothing_left(), Session(options, Rig(pace=PACE), against=base) as made:
        yield made


def real_sides_of(base: Base) -> Sides:
    plan = Plan(test=TEST, work=GET, settings=QUICK, app=app_of(QUICK))
    return Sides(base, plan, pool=ServerPool(), chance=random.Random(1))


def test_an_app_that_the_base_has_not_is_absent(trees: Trees) -> None:
    with nothing_left(), real_sides_of(trees(None)).booted(0) as servers:
        assert isinstance(servers, Absent)
        assert servers.app
        assert servers.what.startswith(f"{TITLE} has no such app: ")


def test_a_base_that_dies_under_load_is_named(trees: Trees, tmp_path: Path) -> None:
    with session(trees(DYING), tmp_path) as made, pytest.raises(ServerDiedError, match=r"^main \(1a2b3c4\): "):
        made.measure(GET, QUICK, TEST)


def test_the_base_may_be_a_server_that_runs(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(PLAIN, SLOW_AND_LARGE).code_tree
    with launch(Uvicorn(), AppSpec("compared_app:app"), code_tree=code_tree) as running:
        with session(Base(title=running.url, url=Url(running.url)), tmp_path) as made:
            with pytest.raises(RegressionError, match=f"worse than {running.url}"):
                made.measure(GET, QUICK, TEST)
            assert made.results[0].base is not None
        assert all(process.is_running() for process in running.processes)
