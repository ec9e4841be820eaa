"""The app that every client of `peers.py` loads: as little work as FastAPI allows."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

BODY = bytes(256 * 1024)

app = FastAPI()


@app.get("/tiny")
async def tiny() -> dict[str, bool]:
    """Answers with a few bytes."""
    return {"ok": True}


@app.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    """Counts the body and forgets it: nothing is kept, however long the load."""
    size_bytes = 0
    async for block in request.stream():
        size_bytes += len(block)
    return {"size_bytes": size_bytes}


@app.get("/download")
async def download() -> Response:
    """Answers with 256 KiB."""
    return Response(BODY, media_type="application/octet-stream")
