"""A FastAPI app with SQLAlchemy: the database's address comes from the environment."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///shop.db"), connect_args={"timeout": 30})


class Base(DeclarativeBase):
    """What all tables share."""


class Item(Base):
    """What the shop sells."""

    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    yield
    engine.dispose()


app = FastAPI(lifespan=lifespan)


def session() -> Iterator[Session]:
    with Session(engine) as found:
        yield found


@app.post("/items")
def add(item: dict[str, str], database: Annotated[Session, Depends(session)]) -> dict[str, int]:
    row = Item(name=item["name"])
    database.add(row)
    database.commit()
    return {"id": row.id}


@app.get("/items/{number}")
def read(number: int, database: Annotated[Session, Depends(session)]) -> dict[str, str]:
    row = database.get(Item, number)
    if row is None:
        raise HTTPException(404)
    return {"name": row.name}
