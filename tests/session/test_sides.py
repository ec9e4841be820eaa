"""Where and how both sides of a comparison boot: on fake servers, and on cores that are only numbers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from session.fakes import App, Host, Pool, Server

from pytest_fileperf.judge.record import TestId
from pytest_fileperf.plan.load import Side
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.session.sides import Absent, Base, Sides
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Settings
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
