"""The shop on a test database: its session is overridden where the server imports it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from databases.shop import Base, app, session
from fastapi import FastAPI
from sqlalchemy import create_engine
from sqlalchemy.orm import Session


def make() -> FastAPI:
    engine = create_engine(os.environ["TEST_DATABASE_URL"], connect_args={"timeout": 30})
    Base.metadata.create_all(engine)

    def test_session() -> Iterator[Session]:
        with Session(engine) as found:
            yield found

    app.dependency_overrides[session] = test_session
    return app
