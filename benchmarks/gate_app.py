"""The app of the runs in gate.py: two endpoints whose cost can be raised by a known share. The other side is a copy."""

from __future__ import annotations

import asyncio
import random
import time

from changes import DELAY_S, DELAYED, SLOWER, STALL_S
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send


class Change:
    """Makes a request burn a share of what the process has used since the last one, and one of so many wait."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._mark_s = time.process_time()
        self._owed_s = 0.0
        self._requests = 0
        self._stalls_at_s = time.monotonic() + STALL_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Changes the request, and serves it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        now_s = time.process_time()
        self._owed_s += SLOWER * (now_s - self._mark_s)
        if self._owed_s > 0:
            slow_function(now_s + self._owed_s)
        self._mark_s = time.process_time()
        if SLOWER:
            self._owed_s -= self._mark_s - now_s  # what asking for the time takes is burned too
        if STALL_S and time.monotonic() > self._stalls_at_s:
            time.sleep(0.030)  # noqa: ASYNC251 # all requests are to wait
            self._stalls_at_s = time.monotonic() + STALL_S * random.uniform(0.5, 1.5)
        self._requests += 1
        if DELAYED and self._requests % DELAYED == 0:
            await asyncio.sleep(DELAY_S)
        await self.app(scope, receive, send)


def slow_function(until_s: float) -> None:
    """Burns until the process has used so much; a comparison shall name it."""
    while time.process_time() < until_s:
        pass


app = FastAPI()


@app.get("/tiny")
async def tiny() -> Response:
    """Costs as little as a framework's endpoint can."""
    return Response(b"hello")


@app.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    """Takes the body as it comes."""
    size_bytes = 0
    async for block in request.stream():
        size_bytes += len(block)
    return {"size_bytes": size_bytes}


app.add_middleware(Change)
