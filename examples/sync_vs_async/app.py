"""Two endpoints that only wait: one occupies a thread for that time, the other nothing but a timer."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import PlainTextResponse

app = FastAPI()

Delay = Annotated[float, Query(ge=0, le=60, description="seconds")]


@app.get("/sync_endpoint")
def sync_endpoint(delay: Delay = 0.3) -> PlainTextResponse:
    """Waits in a thread of the pool, which has 40 of them."""
    time.sleep(delay)
    return PlainTextResponse("slept in a thread\n")


@app.get("/async_endpoint")
async def async_endpoint(delay: Delay = 0.3) -> PlainTextResponse:
    """Waits in the event loop, where any number of requests can."""
    await asyncio.sleep(delay)
    return PlainTextResponse("slept in the event loop\n")
