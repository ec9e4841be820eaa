"""Loads of a Django project: a database for each boot, migrated when it starts."""

from __future__ import annotations

import httpx
import pytest

from pytest_fileperf import Uvicorn


def add_users(client: httpx.Client) -> None:
    for number in range(10):
        client.post("/users", json={"name": f"user {number}"}).raise_for_status()


@pytest.mark.fileperf(app="databases.library:make()", setup=add_users)
def test_count_users(fileperf, tmp_path):
    server = Uvicorn(env={"DB_NAME": f"{tmp_path}/library-{{boot}}.db"})
    fileperf.get("/users", server=server, connections=8, expect_body='{"users": 10}')
