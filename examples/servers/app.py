"""An app with a dependency that a test overrides."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()


def get_greeting() -> str:
    return "hello"


@app.get("/greeting")
async def greeting(text: Annotated[str, Depends(get_greeting)]) -> PlainTextResponse:
    return PlainTextResponse(text)
