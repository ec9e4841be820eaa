"""The app of the comparisons in `mixes.py`: three kinds of requests, each of which can be made a known share slower.

Their work is hashing, which takes about as long each time. A copy of this file is the other side.
"""

from __future__ import annotations

import hashlib

from changes import SLOWER_PARTS
from fastapi import FastAPI, Request, Response

ROUNDS = {"item": 5_000, "file": 10_000, "upload": 7_500}
"""About as many times 0.4 µs."""
app = FastAPI()


def work(kind: str) -> None:
    """Hashes as often as this kind of request needs, and the share more."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", round(ROUNDS[kind] * (1 + SLOWER_PARTS.get(kind, 0.0))))


@app.get("/item/{name}")
async def item(name: str) -> dict[str, str]:
    """Answers with a few bytes."""
    work("item")
    return {"name": name}


@app.get("/file/{name}")
async def file(name: str) -> Response:
    """Answers with 64 KiB."""
    work("file")
    return Response(bytes(64 * 1024), media_type="application/octet-stream")


@app.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    """Takes a body."""
    size_bytes = len(await request.body())
    work("upload")
    return {"size_bytes": size_bytes}
