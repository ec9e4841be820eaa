"""A small app whose files need a token, or a user and a password."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.security import HTTPBasic, HTTPBasicCredentials

app = FastAPI()
tokens = {"a-token-for-tests"}


@app.post("/login")
async def login(user: dict[str, str]) -> dict[str, str]:
    """Any user is let in: what counts here is that a token is needed."""
    token = f"token-of-{user['user']}"
    tokens.add(token)
    return {"token": token}


@app.get("/files")
async def files(authorization: Annotated[str, Header()] = "") -> list[str]:
    if authorization.removeprefix("Bearer ") not in tokens:
        raise HTTPException(401)
    return ["a.txt", "b.txt"]


@app.get("/basic")
async def basic(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> list[str]:
    if not secrets.compare_digest(given.password, "a-password-for-tests"):
        raise HTTPException(401)
    return ["a.txt", "b.txt"]
