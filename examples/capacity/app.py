"""Three kinds of server: one request after the other, many small answers, and a pool of threads."""

from __future__ import annotations

import asyncio
import time

from fastapi import FastAPI, Response

app = FastAPI()
SERVICE_S = 0.005
free = {"at": 0.0}
FILE = bytes(64 * 1024)


@app.get("/queue")
async def queue() -> Response:
    """Answers one request after the other, 5 ms each: 200 a second at the very most."""
    loop = asyncio.get_running_loop()
    free["at"] = max(free["at"], loop.time()) + SERVICE_S
    await asyncio.sleep(free["at"] - loop.time())
    return Response(b"done")


@app.get("/download")
async def download() -> Response:
    """Answers at once: the CPU of one core is the limit."""
    return Response(FILE)


@app.get("/threads")
def threads() -> Response:
    """Waits for 20 ms in one of 40 threads."""
    time.sleep(0.02)
    return Response(b"done")
