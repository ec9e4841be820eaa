"""An app that a factory makes. It is skipped where Datasette is not installed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from pytest_fileperf import Uvicorn


@pytest.fixture
def server(tmp_path):
    with closing(sqlite3.connect(tmp_path / "cities.db")) as database:
        database.execute("create table cities as select 'city' as name")
    return Uvicorn(env={"DATABASE": f"{tmp_path}/cities.db"})


@pytest.mark.fileperf(app="servers.datasette_app:make()", connections=8, gate="none")
def test_datasette(fileperf, server):
    pytest.importorskip("datasette")
    fileperf.get("/cities/cities.csv", server=server, expect_body="rowid,name\r\n1,city\r\n")
