"""Loads of an app with SQLAlchemy: a database for each boot, and data in it before the load."""

from __future__ import annotations

import random

import httpx
import pytest

from pytest_fileperf import Uvicorn


@pytest.fixture
def server(tmp_path):
    return Uvicorn(env={"DATABASE_URL": f"sqlite:///{tmp_path}/shop-{{boot}}.db"})


async def fill(client: httpx.AsyncClient) -> list[int]:
    """Adds items, and returns their numbers; it runs on each boot."""
    added = [await client.post("/items", json={"name": f"item {number}"}) for number in range(20)]
    return [response.raise_for_status().json()["id"] for response in added]


async def read_one(client: httpx.AsyncClient, numbers: list[int]) -> None:
    response = await client.get(f"/items/{random.choice(numbers)}")
    response.raise_for_status()


@pytest.mark.fileperf(app="databases.shop:app", setup=fill, max_queries=1)
def test_read_items(fileperf, server):
    fileperf.run(read_one, server=server, connections=8)


@pytest.mark.fileperf(app="databases.shop:app", gate="none")
def test_add_items(fileperf, server):
    fileperf.post("/items", json={"name": "new"}, server=server, connections=4)


@pytest.mark.fileperf(app="databases.overridden:make()", gate="none")
def test_add_to_test_database(fileperf, tmp_path):
    addresses = {"TEST_DATABASE_URL": f"sqlite:///{tmp_path}/test-{{boot}}.db", "DATABASE_URL": "sqlite://"}
    fileperf.post("/items", json={"name": "new"}, server=Uvicorn(env=addresses), connections=4)
